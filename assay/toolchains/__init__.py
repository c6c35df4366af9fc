"""Compare times with another toolchain: pairs of processes that are sampled alternately.

The entry point is ``assay.toolchains.side_by_side.rerun``. The sampled processes import this
package too, so it imports nothing here.
"""

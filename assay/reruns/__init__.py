"""Running a baseline toolchain again, beside the present one: process pairs that take turns.

The door is ``assay.reruns.side_by_side.rerun``. The processes import this package too, so it brings
nothing in by itself.
"""

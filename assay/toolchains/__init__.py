"""Programs on other toolchains: their environments, comparison of times, bisection, matrices.

The entry points are ``side_by_side.rerun``, ``bisect.find`` and ``matrix.measure``. Processes on
other toolchains import this package too, so this file imports nothing.
"""

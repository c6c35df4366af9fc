"""What holds for all tests of the library."""

from hypothesis import settings

# Compilers and other runs share the machine: how long an example takes says nothing.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

"""What reruns of baseline toolchains keep."""

"""What reruns of accepted toolchains keep."""

"""What today's compilers do not keep, and where that is reported."""

from assay import KnownDefect

_REPORT = "https://github.com/openxla/xla/issues/17541"
_SEEN = "2026-11-20"
_DEVICES = ("gpu*", "tpu*")
_OFFLOAD = ("host-bytes", "device-bytes-fall", "to-host-bytes", "to-device-bytes")

KNOWN_DEFECTS: tuple[KnownDefect, ...] = ()

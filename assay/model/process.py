"""One of several processes that run programs together, as ``jax.distributed`` counts them."""

from dataclasses import dataclass

from assay.model.blame import WrongValue

_PARTS = 3
_PORTS = range(1, 2**16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Process ``index`` of ``count``. Process 0 listens at ``host`` and ``port``.

    ``local_devices`` are the ids of the accelerators that it uses, empty for all of its machine.
    """

    host: str
    port: int
    count: int
    index: int
    local_devices: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Process":
        """The process of ``HOST:PORT,COUNT,INDEX``.

        Raises:
            WrongValue: the text has another form, or its port or INDEX is out of range.
        """
        address, *numbers = text.split(",")
        host, _, port = address.rpartition(":")
        digits = [port, *numbers]
        if not (host and len(digits) == _PARTS and all(map(str.isdecimal, digits))):
            raise WrongValue(f"got {text!r}, wanted HOST:PORT,COUNT,INDEX; try localhost:9876,2,0")
        number, count, index = map(int, digits)
        if number not in _PORTS or not index < count:
            raise WrongValue(
                f"got {text!r}, wanted a port up to 65535 and an INDEX from 0 to COUNT - 1"
            )
        return cls(host=host.strip("[]"), port=number, count=count, index=index)

    def __str__(self) -> str:
        return f"process {self.index} of {self.count}"


def is_loopback(host: str) -> bool:
    """Whether a machine uses this host name for itself."""
    return host in {"localhost", "::1"} or host.startswith("127.")

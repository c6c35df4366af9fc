"""One run on each machine of a fleet, and how a machine differs from the others."""

from dataclasses import dataclass

from assay.model.timing import Change, Ratio, Times
from assay.model.verdict import ExitCode, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineRun:
    """The run on one machine; without an ``exit_code`` it did not end, and ``why`` says why.

    ``folder`` is the name of its folder, next to those of the other machines.
    """

    name: str
    folder: str = ""
    exit_code: ExitCode | None = None
    why: str = ""
    records: tuple[Record, ...] = ()
    times: tuple[Times, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A verdict or number of a machine that most machines do not have.

    ``usual`` is a record of most of them, None if there is no majority.
    """

    record: Record
    usual: Record | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine compared with the fleet: the ratio of its times, if any, and its deviations."""

    run: MachineRun
    ratio: Ratio | None
    deviations: tuple[Deviation, ...]

    @property
    def is_odd(self) -> bool:
        """Whether its numbers or times are not those of the fleet."""
        changed = self.ratio is not None and self.ratio.change in (Change.SLOWER, Change.FASTER)
        return changed or bool(self.deviations)

    @property
    def exit_code(self) -> ExitCode:
        """That of its run; an odd machine, or a run that did not end, fails."""
        own = self.run.exit_code
        return ExitCode.FAILED if own is None or (own is ExitCode.PASSED and self.is_odd) else own

"""A whole run on each machine of the cluster, for ``assay fleet --each-node``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from assay.fleet.cluster import Cluster
from assay.fleet.ledger import Group, Ledger
from assay.fleet.messages import Ended, Job, Lost, Message, Place, Refused, Started
from assay.model.blame import WrongValue
from assay.model.fleet import MachineRun
from assay.model.verdict import ExitCode
from assay.store import evidence, records
from assay.store.files import readable, write_whole


def run_on_each(
    cluster: Cluster, job: Job, folder: Path, watch: Callable[[str], None]
) -> tuple[MachineRun, ...]:
    """Run the job's pytest on every machine; the folder of each run gets the machine's name.

    ``watch`` gets a line when a run starts, ends or is lost.

    Raises:
        WrongValue: no machine has processors, or one cannot run what the driver asks for.
    """
    places = {place.id: place for place in cluster.places()}
    if not places:
        raise WrongValue("got a cluster without a machine with processors, wanted one")
    runs = {
        place.id: MachineRun(name=place.name, folder=readable([place.name]))
        for place in places.values()
    }

    def report(message: Message, _place: Place | None, _following: str) -> None:
        if isinstance(message, Refused):
            raise WrongValue(message.reason)
        if isinstance(message, Started):
            watch(f"{message.place.name}: started")
        if isinstance(message, Ended):
            name = runs[message.item].name
            for file, data in message.files.items():
                write_whole(folder / runs[message.item].folder / file, data)
            code = ExitCode(msgspec.json.decode(message.reports))
            runs[message.item] = replace(runs[message.item], exit_code=code)
            done = sum(each.exit_code is not None for each in runs.values())
            watch(f"{name}: exit {code.value}; {done} of {len(runs)} machines done")

    def lose(lost: Lost, _again: Sequence[str]) -> None:
        watch(f"{lost.node or 'a machine'}: lost ({lost.why})")

    def give_up(item: str, losses: Sequence[Lost]) -> None:
        whys = dict.fromkeys(each.why for each in losses)
        why = f"its worker was lost {len(losses)} times ({'; '.join(whys)})"
        runs[item] = replace(runs[item], why=why)

    cluster.start(job)
    ledger = Ledger(report=report, lose=lose, give_up=give_up)
    try:
        # The one item of a machine's group is the machine.
        ledger.run([Group(items=(each,), node=each) for each in places], cluster)
    finally:
        cluster.close()
    return tuple(_with_results(each, folder / each.folder) for each in runs.values())


def _with_results(run: MachineRun, folder: Path) -> MachineRun:
    """The run with the records and times in its folder, if it wrote any."""
    if not (folder / records.FILE_NAME).exists():
        return run
    times, _ = evidence.TIMES.load_all(folder)
    return replace(run, records=records.load(folder), times=times)

"""What the ``assay`` fixture gives: HLO and budget assertions in anyone's plain test."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from assay.model.claim import Check, Claim
from assay.model.evidence import Evidence
from assay.model.names import legible, suite_of
from assay.model.trial import Trial
from assay.model.workload import Arm, Program, Role, Workload
from assay.plugin.items import VERDICTS, conclude
from assay.plugin.session import Session
from assay.targets import resolve


class Assay:
    """Observes functions and judges claims for one test; each verdict is recorded as usual."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._node = request.node
        self._session = request.config.stash[Session.KEY]
        self._count = 0

    def observe(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        target: str,
        shardings: Callable[[Sequence[Any]], Any] | None = None,
        **rest: Any,
    ) -> Evidence:
        """What is seen of ``function(*arguments)`` compiled for a target.

        ``arguments`` are arrays or ``ShapeDtypeStruct``; ``shardings(devices)`` gives their
        shardings; further keywords are those of ``Program``. A program that does not trace or
        compile is evidence, not an exception.

        Raises:
            TargetError: no target has that name.
        """
        return self._evidence(self._workload(function, arguments, shardings, rest), target)

    def require(
        self,
        claim: Claim,
        function: Callable[..., Any],
        *arguments: Any,
        target: str,
        shardings: Callable[[Sequence[Any]], Any] | None = None,
        **rest: Any,
    ) -> Evidence:
        """Judge a claim on ``function(*arguments)``; a broken one fails the test in words."""
        workload = self._workload(function, arguments, shardings, rest)
        name = str(resolve(target).name)
        check = Check(claim=claim, workloads=(workload,))
        record = self._session.judge(
            Trial(check=check, workload=workload, arm=workload.arms[0], target=name)
        )
        self._node.stash.setdefault(VERDICTS, []).append(record)
        conclude(record)
        return self._evidence(workload, target)

    def _evidence(self, workload: Workload, target: str) -> Evidence:
        name = str(resolve(target).name)
        return self._session.run.evidence(workload, workload.arms[0], name)

    def _workload(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        shardings: Callable[[Sequence[Any]], Any] | None,
        rest: dict[str, Any],
    ) -> Workload:
        def program(devices: Sequence[Any]) -> Program:
            placed = shardings(devices) if shardings else None
            return Program(function=function, arguments=arguments, in_shardings=placed, **rest)

        self._count += 1
        # The whole of the id, so that no test is judged by the evidence of another.
        file, _, test = self._node.nodeid.partition("::")
        return Workload(
            suite=suite_of(file),
            name=f"{legible(test.replace('::', '.'))}-{self._count}",
            arms=(
                Arm(
                    name=legible(getattr(function, "__name__", "program")),
                    role=Role.CONTROL,
                    program=program,
                ),
            ),
        )

"""``qualification.md``: the page a vendor reads."""

from collections.abc import Iterator

from assay.report.labels import amount, code, escape, plural, table
from assay.report.qualification import Decision, Feature, JudgedClaim, Qualification


def vendor_page(qualification: Qualification) -> str:
    """The first screen, then every claim of every feature with its numbers."""
    return "\n\n".join([*_first_screen(qualification), *_reasons(qualification)]) + "\n"


def vendor_summary(qualification: Qualification) -> str:
    """Headline, environment and one line a feature."""
    return "\n\n".join(_first_screen(qualification)) + "\n"


def _first_screen(qualification: Qualification) -> Iterator[str]:
    yield f"# Qualification of {escape(qualification.target)}"
    yield f"**{_headline(qualification)}**"
    yield "## Environment"
    yield table(("what", "value"), _environment_rows(qualification))
    yield "## Features"
    yield table(("feature", "decision", "reason"), map(_feature_row, qualification.features))
    yield (
        "A feature passes only if every claim it was judged by passes and that claim's "
        "negative control failed in the same run."
    )


def _reasons(qualification: Qualification) -> Iterator[str]:
    yield "## Reasons"
    for feature in qualification.features:
        yield from _feature_blocks(feature)


def _headline(qualification: Qualification) -> str:
    decisions = [feature.decision for feature in qualification.features]
    counts = ", ".join(f"{decisions.count(decision)} {decision.value}" for decision in Decision)
    features = plural(len(decisions), "feature")
    return f"{features}: {counts}. Exit code {qualification.exit_code.value}."


def _environment_rows(qualification: Qualification) -> Iterator[tuple[str, str]]:
    environment = qualification.environment
    yield "target", escape(environment.target)
    yield "date", escape(environment.date)
    yield "run", escape(", ".join(qualification.runs))
    yield "platform", escape(environment.platform)
    yield "python", escape(environment.python)
    for name, version in environment.toolchain.items():
        yield escape(name), escape(version)


def _feature_row(feature: Feature) -> tuple[str, ...]:
    return (_name(feature), _decision(feature), escape(feature.reason))


def _feature_blocks(feature: Feature) -> Iterator[str]:
    yield f"### {_name(feature)}: {_decision(feature)}"
    yield escape(feature.reason)
    for link in feature.upstream:
        yield f"Upstream: {code(link)}"
    head = ("workload", "claim", "verdict", "measured", "limit", "negative control", "reason")
    yield table(head, map(_claim_row, feature.claims))


def _claim_row(claim: JudgedClaim) -> tuple[str, ...]:
    negative_controls = ", ".join(
        f"{negative_control.workload}/{negative_control.variant}: {negative_control.verdict.value}"
        for negative_control in claim.negative_controls
    )
    return (
        escape(claim.workload),
        escape(claim.claim),
        claim.verdict.value,
        amount(claim.measured, claim.unit),
        amount(claim.limit, claim.unit),
        escape(
            f"{claim.detector.value} ({negative_controls})"
            if negative_controls
            else claim.detector.value
        ),
        escape(claim.reason),
    )


def _name(feature: Feature) -> str:
    return escape(f"{feature.suite}/{feature.variant}")


def _decision(feature: Feature) -> str:
    known = " (known)" if feature.known else ""
    return f"**{feature.decision.value}**{known}"

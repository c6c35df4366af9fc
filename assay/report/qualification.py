"""A qualification in words: on the terminal, as a page, and as a certificate to print."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rich.console import Console

from assay.model.qualification import (
    Cause,
    Certificate,
    Check,
    Decision,
    Demand,
    Feature,
    JudgedCell,
    Mismatch,
    Producer,
    Qualification,
    Strictness,
)
from assay.model.verdict import ExitCode, Outcome
from assay.report.html_page import render
from assay.report.labels import amount, plural
from assay.report.terminal import Page

CERTIFICATE: Final = "certificate.html"
DETAILS: Final = "qualification.html"
_STYLES: Final = {
    Decision.PASSED: "green",
    Decision.FAILED: "bold red",
    Decision.INCONCLUSIVE: "blue",
    Decision.UNSUPPORTED: "dim",
}
_TONES: Final = {
    Decision.FAILED: "bad",
    Decision.INCONCLUSIVE: "note",
    Decision.PASSED: "good",
    Decision.UNSUPPORTED: "faint",
}
"""The class of a decision's style, in the order of the pages."""
_LEVELS: Final = {
    1: "level 1: the decisive programs",
    2: "level 2: all programs that the rules name, compiled anew",
    3: "level 3: as level 2, with timings on the device",
    4: "level 4: as level 3, with what takes long",
}
_DROPPED: Final = {
    Strictness.FEATURE: "the feature is left out",
    Strictness.WORDING: "its name or description is another",
    Strictness.REQUIRED: "it is not required",
    Strictness.VERDICT: "a verdict is not needed",
    Strictness.WITHOUT_DEFECT: "a known defect is accepted",
    Strictness.NEGATIVE_CONTROL: "a negative control is not needed",
    Strictness.LIMIT: "a limit is higher or left out",
}
_ADDED: Final = {
    Strictness.FEATURE: "the feature is added",
    Strictness.WORDING: "its name or description is another",
    Strictness.REQUIRED: "it is required",
    Strictness.VERDICT: "a verdict is added",
    Strictness.WITHOUT_DEFECT: "a known defect is not accepted",
    Strictness.NEGATIVE_CONTROL: "a negative control is added",
    Strictness.LIMIT: "a limit is added or lower",
}
UNSIGNED: Final = (
    "The certificate is unsigned. Its hashes detect accidental changes and partial edits; they do "
    "not detect a certificate whose hashes were computed again after a change."
)
SIGNED: Final = (
    "A signature shows who issued the certificate and that it was not changed since. It does not "
    "show that the measurements are right: repeat them with the command on the certificate."
)


class Line(NamedTuple):
    """A feature on one line: the decision, and what it rests on."""

    feature: Feature
    tone: str
    text: str


def result(qualification: Qualification) -> str:
    """The result in words."""
    where = f"at level {qualification.level}"
    return {
        ExitCode.PASSED: f"Qualified {where}",
        ExitCode.FAILED: f"Not qualified {where}",
        ExitCode.MISUSE: f"Not qualified {where}: the run was interrupted",
        ExitCode.CRASHED: f"Not qualified {where}: Assay itself failed",
    }[qualification.exit_code]


def explain(feature: Feature) -> str:
    """Why the feature is decided as it is, in one line."""
    at = [each for each in feature.cells if each.cause is feature.cause]
    total = plural(len(feature.cells), "verdict")
    if feature.cause is Cause.HOLDS:
        held = sum(each.verdict is not Outcome.KNOWN_DEFECT for each in feature.cells)
        return f"{plural(held, 'claim')} held; every negative control failed{_defects(feature)}"
    if feature.cause is Cause.UNSUPPORTED:
        return feature.reason
    of_total = f"{len(at)} of {total}"
    return {
        Cause.ASSAY_FAILED: f"Assay failed at {_first(at)}",
        Cause.CLAIM_FAILED: f"{of_total} failed: {_first(at)}",
        Cause.DEFECT_NOT_ACCEPTED: f"known defect that the rules do not accept: {_first(at)}",
        Cause.LIMIT_EXCEEDED: f"above the limit of the rules: {_first(at)}",
        Cause.NOT_REACHED: f"coverage is missing, {of_total} not reached: {_first(at)}",
        Cause.UNDETECTED: f"a negative control did not fail: {_first(at)}",
        Cause.INCONCLUSIVE: f"{of_total} inconclusive: {_first(at)}",
        Cause.NOT_JUDGED: f"coverage is missing, {of_total} not judged: {_first(at)}",
    }[feature.cause]


def _defects(feature: Feature) -> str:
    """The known defects that the rules accept, each with the remedy that passed."""
    if not feature.known_defects:
        return ""
    named = ", ".join(f"{each.variant} (use {each.remedy})" for each in feature.known_defects)
    return f"; {plural(len(feature.known_defects), 'known defect')} with a remedy: {named}"


def _first(cells: Sequence[JudgedCell]) -> str:
    """The first of the verdicts, with its reason and how many more there are."""
    first, *others = cells
    more = f" (and {len(others)} more)" if others else ""
    reason = first.reason
    if first.cause is Cause.LIMIT_EXCEEDED:
        measured, most = (amount(each, first.unit) for each in (first.measured, first.at_most))
        reason = f"measured {measured}, at most {most} allowed"
    elif first.cause is Cause.NOT_REACHED and first.verdict:
        reason = f"no verdict on negative control {first.reason}"
    return f"{first.workload}/{first.variant}, {first.claim}{': ' * bool(reason)}{reason}{more}"


def demands(found: Iterable[Demand], *, added: bool = False) -> Iterator[str]:
    """One line for each feature and kind of demand that rules dropped or added."""
    words = _ADDED if added else _DROPPED
    groups: dict[tuple[str, Strictness], list[str]] = {}
    for demand in found:
        groups.setdefault((demand.feature, demand.kind), []).append(demand.where)
    for (feature, kind), places in groups.items():
        where = f" ({places[0]})" if places[0] else ""
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{feature}: {words[kind]}{where}{more}"


def rules_line(qualification: Qualification) -> str:
    """How strict the rules are, compared with those of Assay."""
    used = qualification.rules
    if used.dropped:
        return "LESS STRICT than the rules of Assay"
    if used.added:
        return f"stricter than the rules of Assay: {plural(len(used.added), 'demand')} added"
    return "as strict as the rules of Assay"


def counted(features: Iterable[Feature]) -> str:
    """The number of features of each decision, in words."""
    found = Counter(each.decision for each in features)
    numbers = ", ".join(f"{found[each]} {each.value}" for each in Decision if found[each])
    return f"{plural(found.total(), 'feature')}: {numbers or 'none decided'}"


def print_qualification(console: Console, qualification: Qualification) -> None:
    """The result, a line for each feature, and how strict the rules are."""
    page = Page(console)
    code = qualification.exit_code.value
    style = "bold red" if code else "bold green"
    page.line()
    page.text((f"{qualification.target}: {result(qualification)}", style), f" (exit {code})")
    page.text(f"{counted(qualification.features)}; {rules_line(qualification)}")
    for line in demands(qualification.rules.dropped):
        page.text((line, "bold red"), first="  ", indent=2)
    for feature in qualification.features:
        decision = (f"{feature.decision.value:13}", _STYLES[feature.decision])
        optional = " (not required)" if feature.cells and not feature.required else ""
        page.text(decision, (feature.name, "bold"), f" [{feature.id}]{optional}", indent=13)
        page.text(explain(feature), first=" " * 13, indent=13)
    for name, level in qualification.later.items():
        page.text((f"{'later':13}", "dim"), f"{name} is decided from level {level} on", indent=13)


def pages(qualification: Qualification, number: str) -> Mapping[str, bytes]:
    """The certificate to print and the page with every verdict, by file name."""
    values = {
        "qualification": qualification,
        "number": number,
        "result": result(qualification),
        "tone": "bad" if qualification.exit_code.value else "good",
        "level": _LEVELS[qualification.level],
        "lines": [Line(each, _TONES[each.decision], explain(each)) for each in _all(qualification)],
        "counted": counted(qualification.features),
        "rules": rules_line(qualification),
        "dropped": list(demands(qualification.rules.dropped)),
        "added": list(demands(qualification.rules.added, added=True)),
        "signer": fingerprint(qualification.public_key),
        "trust": SIGNED if qualification.public_key else UNSIGNED,
    }
    return {name: render(name, **values).encode() for name in (CERTIFICATE, DETAILS)}


def _all(qualification: Qualification) -> Sequence[Feature]:
    """The features, those that fail first."""
    return sorted(qualification.features, key=lambda each: list(_TONES).index(each.decision))


def fingerprint(public_key: str) -> str:
    """A public key as a person compares it: in groups of four digits, empty if there is none."""
    return " ".join(public_key[at : at + 4] for at in range(0, len(public_key), 4))


def print_verification(
    console: Console,
    certificate: Certificate,
    number: str,
    mismatches: Sequence[Mismatch],
    *,
    here: Producer,
    authentic: bool,
) -> None:
    """What the check of a certificate found, one sentence for each mismatch.

    ``number`` is the one that the certificate's first page must show. ``here`` are the sources that
    repeated the decisions.
    """
    page, seen = Page(console), certificate.qualification
    for each in mismatches:
        page.text((mismatch(each), "bold red"), indent=2)
    if not mismatches:
        page.text(
            ("The certificate matches its evidence", "bold green"),
            f": {len(seen.evidence)} files, {plural(len(seen.features), 'feature')} decided again "
            "from the records and rules.",
        )
    page.text(f"It says: {seen.target}: {result(seen)}; {rules_line(seen)}.", indent=2)
    page.text(f"Number of the certificate: {number}")
    page.text(sources_line(seen.producer, here))
    for line in demands(seen.rules.dropped):
        page.text((line, "bold red"), first="  ", indent=2)
    if not seen.public_key:
        page.text(UNSIGNED)
        return
    key = fingerprint(seen.public_key)
    if authentic:
        page.text(f"The given key signed it: {key}.")
    elif not any(each.check is Check.SIGNATURE for each in mismatches):
        page.text(f"It names the key {key}. Give --public-key to check whose key that is.")
    page.text(SIGNED)


def sources_line(producer: Producer, here: Producer) -> str:
    """Whether the verdicts were reached by the Assay and the suites that are here."""
    commit = f", commit {producer.commit}" if producer.commit else ""
    of = {
        f"Assay (version {producer.version}{commit})": producer.sha256 == here.sha256,
        "suites": producer.suites_sha256 == here.suites_sha256 != "",
    }
    if all(of.values()):
        return "The verdicts were reached by the Assay and the suites that are here."
    others = " and ".join(name for name, is_same in of.items() if not is_same)
    return f"The verdicts were reached by other sources than those here: {others}."


def mismatch(found: Mismatch) -> str:
    """What does not match, in one sentence."""
    names = ", ".join(found.subjects)
    if found.check is Check.SIGNATURE:
        return _signature(found)
    if found.check is Check.DECISIONS and found.is_missing:
        return "The records or the rules cannot be read, so that no decision can be repeated."
    if found.is_missing:
        return f"{names} is missing."
    return {
        Check.CERTIFICATE: f"{names} was changed after it was written: its hash does not match.",
        Check.PAGES: f"{names} is not the page that was written with the certificate.",
        Check.RECORDS: f"{names} was changed: the certificate was decided from other records.",
        Check.RULES: f"{names} was changed: the certificate was decided by other rules.",
        Check.EVIDENCE: f"{names} was changed: the certificate names another hash of it.",
        Check.DECISIONS: f"The records and rules decide otherwise than the certificate: {names}.",
        Check.STRICTNESS: "The rules are less strict than those of the Assay installed here, and "
        f"the certificate does not say so: {names}.",
    }[found.check]


def _signature(found: Mismatch) -> str:
    match found.subjects:
        case ():
            return "The certificate is unsigned; a signature was expected."
        case (_,) if found.is_missing:
            return "The certificate names a signer, and its signature is missing."
        case (_,):
            return "The signature does not fit: the certificate was changed after it was signed."
        case _:
            return "The certificate was signed with another key than the given one."

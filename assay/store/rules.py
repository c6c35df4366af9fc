"""The rules of a qualification: a TOML file, packaged or a vendor's own."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Final

import msgspec

from assay.model.blame import WrongValue
from assay.model.qualification import FeatureRule, Requirement
from assay.store.files import read_file

PACKAGED: Final = Path(__file__).parents[1] / "judge" / "qualification.toml"
"""The rules that come with Assay."""
SCHEMA: Final = 1

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Texts = Annotated[tuple[_Text, ...], msgspec.Meta(min_length=1)]


class _Requirement(msgspec.Struct, forbid_unknown_fields=True):
    level: Annotated[int, msgspec.Meta(ge=1, le=4)]
    targets: _Texts
    workloads: _Texts
    variants: _Texts
    claims: Annotated[dict[_Text, _Texts], msgspec.Meta(min_length=1)]
    known_defects: dict[_Text, _Text] = {}
    at_most: dict[_Text, float] = {}


class _Feature(msgspec.Struct, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")]
    name: _Text
    promise: _Text
    suite: _Text
    elsewhere: _Text
    requirements: Annotated[tuple[_Requirement, ...], msgspec.Meta(min_length=1)]
    required: bool = True


class _File(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    feature: Annotated[tuple[_Feature, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules of a file, and its bytes with their SHA-256."""

    features: tuple[FeatureRule, ...]
    text: bytes
    sha256: str


def load(path: Path) -> Rules:
    """The rules of a file.

    Raises:
        WrongValue: the file cannot be read, or its rules contradict one another.
    """
    try:
        text = read_file(path)
        file = msgspec.toml.decode(text, type=_File)
    except (OSError, RecursionError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from None
    if file.schema != SCHEMA:
        raise _wrong(path, f"schema {file.schema}, not {SCHEMA}")
    if problem := next(_problems(file), ""):
        raise _wrong(path, problem)
    features = tuple(
        FeatureRule(
            **msgspec.structs.asdict(each)
            | {
                "requirements": tuple(
                    Requirement(**msgspec.structs.asdict(needed)) for needed in each.requirements
                )
            }
        )
        for each in file.feature
    )
    return Rules(features=features, text=text, sha256=hashlib.sha256(text).hexdigest())


def _wrong(path: Path, problem: str) -> WrongValue:
    return WrongValue(
        f"got {path}: {problem}; wanted rules as those in {PACKAGED}: copy that file and change it"
    )


def _problems(file: _File) -> Iterator[str]:
    for name, count in Counter(each.id for each in file.feature).items():
        if count > 1:
            yield f"feature {name!r} is there {count} times"
    for feature in file.feature:
        for needed in feature.requirements:
            yield from (f"{feature.id}: {each}" for each in _of_requirement(needed))


def _of_requirement(needed: _Requirement) -> Iterator[str]:
    for variant, remedy in needed.known_defects.items():
        if variant not in needed.variants:
            yield f"known defect of {variant!r}, which is not among the variants"
        if remedy not in needed.variants or remedy in needed.known_defects:
            yield f"remedy {remedy!r} of {variant!r} is no variant that must pass"
    for claim, most in needed.at_most.items():
        if claim not in needed.claims:
            yield f"at_most of {claim!r}, which is not among the claims"
        if not isfinite(most):
            yield f"at_most of {claim!r} is {most}"

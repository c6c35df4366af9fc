"""The programs whose numbers became baselines, kept in the user's cache folder.

A file is found by the place of the number, its toolchain and its value, so that a number that was
stored elsewhere is never compared with another program.
"""

import hashlib
import os
from pathlib import Path

import msgspec

from assay.model.verdict import BaselineNumber, Record
from assay.store import evidence
from assay.store.compile_cache import CompileCache, CompiledProgram, usual_folder

_FOLDER = "baselines"


def keep(root: Path, directory: Path, record: Record) -> None:
    """Keep the program of a record whose number is stored in the folder of baselines ``root``.

    ``directory`` is the run's folder, which still holds the program's HLO. Nothing is kept if the
    record's value or toolchain is not that of the number, or if the run has no HLO of the program.
    """
    cache, number = _cache(), record.baseline
    if number is None or (number.value, number.toolchain) != (record.measured, record.toolchain):
        return
    key = (record.suite, record.workload, record.variant, record.target)
    seen, hlo_gz = evidence.find(directory, key), evidence.hlo_of(directory, key)
    if cache and hlo_gz and seen and seen.memory and seen.module:
        program = CompiledProgram(memory=seen.memory, module=seen.module, hlo_gz=hlo_gz)
        cache.save(_name(root, key, record.claim, number), program)


def find(
    root: Path, key: evidence.Key, claim: str, number: BaselineNumber
) -> CompiledProgram | None:
    """The program that had the stored number; None if this machine keeps none."""
    cache = _cache()
    return cache.load(_name(root, key, claim, number)) if cache else None


def _cache() -> CompileCache | None:
    folder = usual_folder(os.environ)
    return CompileCache(folder.with_name(_FOLDER)) if folder else None


def _name(root: Path, key: evidence.Key, claim: str, number: BaselineNumber) -> str:
    parts = (str(root.resolve()), *key, claim, number.value, sorted(number.toolchain.items()))
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()

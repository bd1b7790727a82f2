"""Makes the recordings of the documentation, their pages, and the tables of figures in the text.

``python docs/recordings/record.py`` runs every experiment anew (some twenty minutes on an idle
machine) on the embedded server of the example project; names of experiments run these alone.
``--pages`` only renders anew what was recorded.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGES = HERE.parent / "_static" / "recordings"
EXPLANATION = HERE.parent / "explanation"

EXPERIMENTS = {
    "crash-group": "crash --repeat 20",
    "crash-child": "crash --kill child --repeat 20",
    "crash-supervisor": "crash --kill supervisor --repeat 20",
    "zombie": "zombie",
    "restart": "restart",
    "burst-one": "burst",
    "burst-bulk": "burst --submit bulk",
    "soak": "soak --minutes 5 --seed 20260901",
}


def run(names: Sequence[str]) -> None:
    """Run experiments, one after the other."""
    manage = [sys.executable, str(ROOT / "example_project" / "manage.py")]
    subprocess.run([*manage, "migrate", "--verbosity", "0"], check=True)
    for name in names:
        command = [*manage, "relay_lab"]
        flags = [*EXPERIMENTS[name].split(), "--record", str(HERE / f"{name}.json")]
        print(f"$ relay_lab {EXPERIMENTS[name]}", flush=True)
        subprocess.run([*command, *flags], check=True)


def figures(name: str) -> dict[str, object]:
    """Return the figures of a recording, or nothing where there is none yet."""
    from django_relay import recording

    path = HERE / f"{name}.json"
    if not path.exists():
        return {}
    return dict(recording.load(path.read_text(encoding="utf-8")).figures)


def render() -> None:
    """Make the pages, and put the figures into the text."""
    from django_relay import recording, replay

    PAGES.mkdir(parents=True, exist_ok=True)
    for path in sorted(HERE.glob("*.json")):
        made = recording.load(path.read_text(encoding="utf-8"))
        (PAGES / f"{path.stem}.html").write_text(replay.self_contained(made), encoding="utf-8")
    for page in ("crash-experiment", "burst-benchmark"):
        path = EXPLANATION / f"{page}.md"
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """Put the tables of figures between their marks."""
    for name, table in (("crash", crash_table), ("burst", burst_table), ("soak", soak_table)):
        pattern = rf"(<!-- {name}: .*? -->\n).*?(<!-- end -->)"
        if found := re.search(pattern, text, flags=re.DOTALL):
            text = text[: found.start()] + found[1] + table() + found[2] + text[found.end() :]
    return text


def crash_table() -> str:
    """From kill to success, by whom the kill hit."""
    rows = [
        "| killed | p50 | p95 | max | attempts | late endings refused |",
        "|---|---|---|---|---|---|",
    ]
    for who, words in (
        ("group", "the whole worker"),
        ("supervisor", "its supervisor alone"),
        ("child", "the child that runs the job"),
    ):
        found = figures(f"crash-{who}")
        ranks = found.get("distribution", {})
        if isinstance(ranks, dict) and ranks:
            seconds = " | ".join(f"{ranks[p]:.2f} s" for p in ("p50", "p95", "max"))
            told = f"{found['attempts']} each | {found['refusals']} of {found['repeats']}"
            rows.append(f"| {words} | {seconds} | {told} |")
    return "\n".join(rows) + "\n"


def burst_table() -> str:
    """Throughput and queueing, by submission and configuration."""
    heads = ["submission", "slots", "jobs/s", "handler alone", "share"]
    heads += ["start p50, p95, p99", "finish p50, p95, p99"]
    rows = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, words in (("burst-one", "a commit a job"), ("burst-bulk", "a commit a thousand")):
        found = figures(name).get("configurations", [])
        for row in found if isinstance(found, list) else []:
            slots = f"{row['slots'] * row['processes']}"
            slots += f" ({row['processes']} x {row['slots']})" if row["processes"] > 1 else ""
            cells = [words, slots, f"{row['jobs_per_second']:,.0f}"]
            cells += [f"{row['ceiling_jobs_per_second']:,.0f}", f"{100 * row['share']:.0f} %"]
            for kind in ("start_ms", "finish_ms"):
                cells.append(", ".join(_time(row[kind][p]) for p in ("p50", "p95", "p99")))
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def soak_table() -> str:
    """What the soak survived."""
    found = figures("soak")
    rows = ["| what | how often |", "|---|---|"]
    faults = found.get("faults", {})
    if isinstance(faults, dict):
        rows += [f"| {name.replace('_', ' ')} | {n} |" for name, n in faults.items()]
    for key in ("jobs", "lost", "duplicates_started", "duplicates_unexplained", "refusals"):
        if key in found:
            rows.append(f"| **{key.replace('_', ' ')}** | {found[key]} |")
    return "\n".join(rows) + "\n"


def _time(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.0f} ms"


def main(arguments: Sequence[str]) -> None:
    sys.path.insert(0, str(ROOT))
    if arguments != ["--pages"]:
        run(arguments or list(EXPERIMENTS))
    import django
    from django.conf import settings

    settings.configure()
    django.setup()
    render()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The pages hold together: snippets compile and pass the checks, excerpts are the code's own lines,
links lead somewhere. What the reference says is held in ``test_reference.py``; what the tutorial
and the quick start do is done in ``tests/process/test_tutorial.py``.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from django_relay import checks
from tests.pages import DOCS, PAGES, README, ROOT, blocks

ONE_JOB = DOCS / "explanation" / "one-job.md"


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 150


def test_the_readme_names_what_the_checks_ask_for() -> None:
    readme = " ".join(README.read_text().split())
    assert "Django 5.2, 6.0 or 6.1" in readme
    assert f"PostgreSQL {checks.MIN_POSTGRESQL}" in readme
    assert "Python {}.{}".format(*checks.MIN_PYTHON) in readme


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_every_snippet_of_python_compiles(page: Path) -> None:
    for block in blocks(page, "python"):
        if page != ONE_JOB:
            compile(block.text, str(page), "exec")


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_settings_in_a_snippet_pass_the_checks(page: Path) -> None:
    for block in blocks(page, "python"):
        if "BACKEND" not in block.text or page == ONE_JOB:
            continue
        names: dict[str, Any] = {"INSTALLED_APPS": []}
        exec(block.text, names)
        for alias, entry in names["TASKS"].items():
            found = checks.check_backend(
                alias, queues=entry.get("QUEUES", []), options=entry.get("OPTIONS", {})
            )
            assert [f for f in found if "there is no database 'jobs'" not in f.msg] == []


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_what_a_snippet_imports_of_ours_is_there(page: Path) -> None:
    for block in blocks(page, "python"):
        for module, names in re.findall(r"^from (django_relay\S*) import (.+)$", block.text, re.M):
            for name in names.split(", "):
                assert hasattr(import_module(module), name), f"{module}.{name}"


def test_the_walk_through_one_job_shows_six_files_as_they_are() -> None:
    walked = []
    for block in blocks(ONE_JOB, "python", "sql"):
        named = re.findall(r"`(django_relay/[\w/]+\.py)`", block.before)
        if not named:
            continue
        walked.append(named[0])
        source = [line.strip() for line in (ROOT / named[0]).read_text().splitlines()]
        for line in (line.strip() for line in block.text.splitlines()):
            if line == "...":
                continue
            assert line in source, f"{named[0]} has no line (any more, here): {line}"
            del source[: source.index(line) + 1]
    assert len(set(walked)) == len(walked) == 6


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_every_link_to_a_file_leads_to_one(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_can_be_reached_from_the_index() -> None:
    toctree = "".join(block.text for block in blocks(DOCS / "index.md", "{toctree}"))
    named = {DOCS / f"{line}.md" for line in toctree.splitlines() if line and line[0] != ":"}
    assert named | {DOCS / "index.md"} == set(PAGES)

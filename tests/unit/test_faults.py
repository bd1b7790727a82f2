"""The page of faults names tests that there are, and tells of each fault once."""

from __future__ import annotations

import re
from collections import Counter

from tests.pages import DOCS, ROOT, code, table

PAGE = DOCS / "explanation" / "faults.md"
HEADINGS = re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
ROWS = [row for heading in HEADINGS for row in table(PAGE, heading)]


def every_test() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text(encoding="utf-8")
        found.update(re.findall(r"^ *(?:async )?def (test_\w+)\(", text, re.MULTILINE))
    return found


def test_each_fault_has_what_happens_and_a_test_that_shows_it() -> None:
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == 5, row
        fault, happens, _, _, shown = row
        assert fault, row
        assert happens, row
        assert code(shown), f"{fault}: no test is named"


def test_the_tests_that_the_faults_name_are_there() -> None:
    named = {name for row in ROWS for name in code(row[-1])}
    assert sorted(named - every_test()) == []


def test_no_fault_is_told_twice() -> None:
    told = Counter((heading, row[0]) for heading in HEADINGS for row in table(PAGE, heading))
    assert [fault for fault, times in told.items() if times > 1] == []

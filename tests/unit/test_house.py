"""The house rules that a program can check: sizes, docstrings, names, and where writes may be.

The direction of imports is import-linter's, style is ruff's; both are settled in pyproject.toml.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import ROOT

MODULE, FUNCTION, DOCSTRING = 320, 40, 12
#: A longer module owes its reader more than one line.
TRIVIAL = 160
BANNED = {"base", "handler", "handlers", "helper", "helpers", "manager", "misc", "util", "utils"}
TOP = {
    ".ci",
    ".gitignore",
    "LICENSE",
    "README.md",
    "django_relay",
    "docs",
    "example_project",
    "pyproject.toml",
    "tests",
}
# Upper case, as all SQL here is; a lock (FOR NO KEY UPDATE) is no write.
WRITE = re.compile(r"\b(INSERT INTO|DELETE FROM|TRUNCATE|MERGE INTO|(?<!KEY )(?<!FOR )UPDATE \w)")


def modules(*roots: str) -> list[Path]:
    return [
        path
        for root in roots
        for path in sorted((ROOT / root).rglob("*.py"))
        if path.stat().st_size and not {"migrations", "var"} & set(path.relative_to(ROOT).parts)
    ]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


EVERY = modules("django_relay", "example_project", "tests", "docs")


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_a_module_and_its_functions_can_be_taken_in_at_a_glance(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MODULE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= FUNCTION, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_a_module_says_what_it_is(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    said = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    assert 1 <= len(said) <= DOCSTRING
    if path.is_relative_to(ROOT / "django_relay") and source.count("\n") > TRIVIAL:
        assert len(said) > 1, "one line is for trivial modules"


@pytest.mark.parametrize("path", EVERY, ids=name)
def test_a_modules_name_says_what_is_in_it(path: Path) -> None:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[-1].startswith("test_"):  # its name is its subject, whatever that is called
        return
    assert not {word for part in parts for word in part.split("_")} & BANNED


@pytest.mark.parametrize("path", modules("django_relay"), ids=name)
def test_only_transitions_write(path: Path) -> None:
    if "transitions" not in path.parts:
        assert [text for text in strings(path) if WRITE.search(text)] == []


def strings(path: Path) -> Iterator[str]:
    """Yield what a module has between quotes, but for its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


@pytest.mark.parametrize(
    ("text", "is_write"),
    [
        ("INSERT INTO django_relay_job (id) SELECT 1", True),
        ("UPDATE django_relay_job AS j SET", True),
        ("DELETE FROM django_relay_lease", True),
        ("SELECT id FROM django_relay_job FOR UPDATE SKIP LOCKED", False),
        ("SELECT id FROM django_relay_job FOR NO KEY UPDATE OF j", False),
    ],
)
def test_a_write_is_told_from_a_lock(text: str, is_write: bool) -> None:
    assert bool(WRITE.search(text)) is is_write


@pytest.mark.parametrize("path", modules("django_relay/transitions"), ids=name)
def test_a_statement_that_writes_has_its_locks_told_above_it(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    for match in re.finditer(r'^[A-Z_]+ = f?("{1,3})(.*?)\1$', source, re.MULTILINE | re.DOTALL):
        if WRITE.search(match[2]):
            # Or above the one before it, for the two of them.
            assert re.search(r"^# .*\bLocks\b", source[: match.start()], re.MULTILINE), match[0]


def test_the_top_of_the_repository_holds_what_was_agreed() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no repository")
    listed = subprocess.run(
        [git, "-c", f"safe.directory={ROOT}", "ls-files"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert {line.split("/")[0] for line in listed.stdout.splitlines()} <= TOP

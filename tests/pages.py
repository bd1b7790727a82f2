"""The pages of the documentation as data: their code blocks, each with what was said before it,
and their tables by the heading they stand under."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)

_FENCE = re.compile(r"^```(\S*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`([\w/]+\.py)`")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, its text, and the paragraph before it."""

    language: str
    text: str
    before: str

    @property
    def file(self) -> str | None:
        """The first file that the paragraph before it names: where the text belongs."""
        named = _FILE.search(self.before)
        return named[1] if named else None


def blocks(page: Path, *languages: str) -> list[Block]:
    """Return the blocks of a page in order: of these languages, or all."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = _FENCE.sub("", text[: match.start()]).rstrip()
        found.append(Block(match[1], match[2], before.rpartition("\n\n")[2]))
    return [block for block in found if not languages or block.language in languages]


def table(page: Path, heading: str, *, number: int = 1) -> list[list[str]]:
    """Return the cells of the rows of a table: the first, or a further one, below a heading."""
    text = page.read_text(encoding="utf-8")
    section = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    section = re.split(r"^#+ ", section, flags=re.MULTILINE)[0]
    tables = re.findall(r"(?:^\|.*\n?)+", section, flags=re.MULTILINE)
    rows = [_cells(line) for line in tables[number - 1].splitlines()]
    assert set("".join(rows[1])) <= {"-", ":"}, f"{page.name}, {heading}: no table"
    return rows[2:]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def code(cell: str) -> list[str]:
    """Return what a cell has between backticks."""
    return re.findall(r"`([^`]+)`", cell)

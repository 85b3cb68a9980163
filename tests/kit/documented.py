"""The commands that README and docs name, read off the pages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))
_BLOCK = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`((?:\.venv/bin/)?fleethpa\s(?:[^`\n]|\n(?!\n))+)`")
"""In a paragraph, where a command may go on in the next line."""


@dataclass(frozen=True)
class Documented:
    """One command of a page: where it is, its text without the remark behind it, and the output that the page shows."""

    page: str
    line: int
    text: str
    output: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """For messages and test names."""
        return f"{self.page}:{self.line} {self.text}"


def blocks(page: str) -> list[Documented]:
    """The commands of a page's code blocks, in order: lines with a prompt, or all lines of a shell block."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Documented] = []
    for block in _BLOCK.finditer(text):
        first = text[: block.start("body")].count("\n") + 1
        lines = block["body"].splitlines()
        if block["language"] == "sh":
            found += [Documented(page, first + n, _bare(line)) for n, line in enumerate(lines) if line.strip()]
        elif block["language"] in ("console", ""):
            found += _prompted(page, first, lines)
    return found


def inline(page: str) -> list[Documented]:
    """The commands that a page's sentences and tables name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    bare = _BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    return [Documented(page, bare[: m.start()].count("\n") + 1, " ".join(m[1].split())) for m in _INLINE.finditer(bare)]


def _prompted(page: str, first: int, lines: list[str]) -> list[Documented]:
    found: list[Documented] = []
    for number, line in enumerate(lines):
        if line.startswith("$ "):
            found.append(Documented(page, first + number, _bare(line[2:])))
        elif found:
            last = found[-1]
            found[-1] = Documented(last.page, last.line, last.text, (*last.output, line))
    return found


def _bare(line: str) -> str:
    return re.sub(r"\s+#\s.*$", "", line).strip()

"""Commands that the program advises, wherever in its code: the verb is there, and so is every option that is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from fleethpa.cli.main import cli, verbs
from tests.kit.documented import ROOT
from tests.tiers import PACKAGES

COMMAND = re.compile(r"\bfleethpa ((?:[a-z][\w-]*)(?: [^`;\n]*)?)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


NAMED = re.compile(r"\bfleethpa[ \"']")
"""In the source of a module one of whose texts has a command, in one piece or in several."""


def texts() -> Iterator[tuple[str, str]]:
    """Every text in those modules of the product that name its command, with its place; what is filled in is an X."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if not NAMED.search(source := path.read_text()):
                continue
            nodes = list(ast.walk(ast.parse(source)))
            inner = {part for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            for node in nodes:
                if isinstance(node, ast.JoinedStr):
                    yield _place(path, node), "".join(_written(part) for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inner:
                    yield _place(path, node), node.value


def _place(path: Path, node: ast.expr) -> str:
    return f"{path.relative_to(ROOT)}:{node.lineno}"


def _written(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "X"


@cache
def advised() -> list[tuple[str, list[str]]]:
    """The commands in these texts as words, up to where another one begins."""
    return list(_advised())


def _advised() -> Iterator[tuple[str, list[str]]]:
    for place, text in texts():
        for found in COMMAND.finditer(text):
            words = re.split(r"\s+", re.split(r"\bfleethpa |, (?:or|then|and) |\. | \| ", found[1])[0])
            if words[0] in verbs():
                yield place, words


def _options(words: list[str]) -> set[str]:
    """The options of the command that some words begin with."""
    command: click.Command | None = cli
    known = {name for each in cli.params for name in (*each.opts, *each.secondary_opts)}
    for word in words:
        if not isinstance(command, click.Group):
            break
        found = command.get_command(click.Context(command), word)
        if found is None:
            break
        command = found
        known |= {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return known | {"--help"}


def test_every_option_of_a_command_that_the_code_advises_is_one_that_it_takes() -> None:
    wrong = [
        f"{place}: fleethpa {' '.join(words)}"
        for place, words in advised()
        if {*OPTION.findall(" ".join(words))} - _options(words)
    ]
    assert wrong == []


def test_there_is_much_to_check() -> None:
    assert sum(any(word.startswith("--") for word in words) for _, words in advised()) > 50

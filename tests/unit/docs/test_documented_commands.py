"""Every command that README and docs name is one that this release takes, with files that are there."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from fleethpa.cli.main import cli
from schemas.decisions import ENGINE
from tests.kit.documented import PAGES, ROOT, Documented, blocks, inline

NUMBERS = {"N": "1", "PARTITION": "0"}
"""Placeholders that stand for numbers."""


def _commands() -> list[Documented]:
    return [each for page in PAGES for each in (*blocks(page), *inline(page))]


def _invocations(text: str) -> list[list[str]]:
    """The arguments of each call of fleethpa in a line; what is optional (`[--fix]`) is given, of `a|b` the first."""
    found = []
    for part in re.split(r" \| |; |&& ", text):
        part = re.sub(r"\[(-[^\]]*)\]", r"\1", part)
        part = re.sub(r" \[[A-Z]+\]", "", part)
        words = [NUMBERS.get(word, word) for word in shlex.split(re.sub(r"\s+>\s+\S+", "", part))]
        if words and words[0].rpartition("/")[2] == "fleethpa":
            found.append([words[1].partition("|")[0], *(w.partition("|")[0] for w in words[2:])])
    return found


def _parse(arguments: list[str]) -> None:
    """Parse as the command line does, and run nothing."""
    command: click.Command = cli
    context = cli.make_context("fleethpa", list(arguments))
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        context = found.make_context(name, rest, parent=context)
        command = found


@pytest.mark.parametrize("documented", _commands(), ids=lambda each: each.where)
def test_documented_commands_are_taken(documented: Documented) -> None:
    for arguments in _invocations(documented.text):
        try:
            _parse(arguments)
        except click.MissingParameter:
            # A sentence may name a verb alone, with what it takes left open.
            assert documented in inline(documented.page)


@pytest.mark.parametrize("page", [*PAGES, "compose/helm/fleethpa/templates/NOTES.txt"])
def test_the_engine_that_is_to_be_recorded_at_first_is_the_newest(page: str) -> None:
    assert set(re.findall(r"topics engine (\d+)", (ROOT / page).read_text())) <= {str(ENGINE)}


@pytest.mark.parametrize(
    "documented", [each for page in PAGES for each in blocks(page) if " -f " in each.text], ids=lambda each: each.where
)
def test_files_that_commands_read_are_in_the_repository(documented: Documented) -> None:
    for name in re.findall(r" -f (\S+)", documented.text):
        assert name == "-" or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_pages_call_the_program_where_make_puts_it(page: str) -> None:
    for documented in (*blocks(page), *inline(page)):
        words = documented.text.split()
        # A sentence may name a verb; what is to be typed can be typed.
        assert words[0] != "fleethpa" or len(words) == 2 or not _is_whole(words), documented.where


def _is_whole(words: list[str]) -> bool:
    """Whether words can be typed as they are: they hold no placeholder."""
    return not any(re.fullmatch(r"[A-Z/…]+", word) for word in words)

"""docs/reference/cli.md says what the commands say."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fleethpa.cli.main import cli, verbs
from fleethpa.frame.session import COMMON_NAMES
from tests.clireference import reference

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def test_the_command_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run `make generated`"


ROOT = click.Context(cli, info_name="fleethpa", **cli.context_settings)


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(ROOT):
            below = command.get_command(ROOT, name)
            assert below is not None
            yield from commands(below, f"{path} {name}")


def test_every_flag_of_every_command_is_in_the_reference() -> None:
    sections = {part.partition("\n")[0].lstrip("# "): part for part in reference().split("\n##")}
    for path, command in commands(cli, "fleethpa"):
        own = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON_NAMES and not p.hidden]
        for option in own if command is not cli else ():
            assert option.opts[-1] in sections[path], f"{path} {option.opts[-1]}"


@pytest.mark.parametrize("verb", [verb for verb in verbs() if isinstance(cli.get_command(ROOT, verb), click.Group)])
def test_the_list_of_verbs_says_of_a_group_what_its_own_help_says(verb: str) -> None:
    command = cli.get_command(ROOT, verb)
    assert command is not None
    assert verbs()[verb].help == command.get_short_help_str(200)

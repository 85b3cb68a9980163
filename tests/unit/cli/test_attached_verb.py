"""A verb is attached by one file and one line: here from outside of the package."""

import keyword
import sys

import click
import pytest

from fleethpa.cli import main
from fleethpa.cli.main import Verb
from fleethpa.fleet.state import read_state
from fleethpa.frame.session import Session, command_options
from tests.clireference import reference
from tests.kit.cli import Cli, Fleet


@click.command()
@click.option("--loud", is_flag=True, help="Print it in capitals.")
@command_options(reads=True)
async def toy(session: Session, loud: bool) -> None:
    """Print the names of all HPAs, and nothing of them."""
    async with session.past() as past:
        names = [str(hpa) for hpa in (await read_state(past)).hpas]
    session.lines(name.upper() if loud else name for name in names)


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this file were `fleethpa/cli/toy.py`, with its line in the table of verbs."""
    monkeypatch.setitem(sys.modules, "fleethpa.cli.toy", sys.modules[__name__])
    monkeypatch.setitem(main.SECTIONS["See"], "toy", Verb("cli.toy:toy", "Print the names of all HPAs."))


@pytest.mark.usefixtures("attached")
def test_a_verb_that_is_attached_is_in_the_help_under_its_title(run: Cli) -> None:
    text = run("--help", "--all").stdout
    section = text.partition("See:\n")[2].partition("Ask the log:")[0]
    assert section.rstrip().splitlines()[-1].split(maxsplit=1) == ["toy", "Print the names of all HPAs."]
    assert ["--loud", "Print", "it", "in", "capitals."] in map(str.split, run("toy", "--help").stdout.splitlines())


@pytest.mark.usefixtures("attached")
def test_it_runs_and_is_what_a_slip_may_have_meant(run: Cli) -> None:
    assert run("toy").stdout == "east/shop/checkout\n"
    assert run("toy", "--loud").stdout == "EAST/SHOP/CHECKOUT\n"
    assert "Did you mean `toy`?" in run("tooy").stderr
    assert "toy is a verb" in run("--toy").stderr


@pytest.mark.usefixtures("attached")
def test_it_is_in_the_reference_with_its_flags() -> None:
    section = reference().partition("\n## fleethpa toy\n")[2].partition("\n## ")[0]
    assert "Print the names of all HPAs, and nothing of them." in section
    assert "fleethpa toy [OPTIONS]" in section
    assert "| `--loud` | Print it in capitals. |" in section


def test_without_its_line_it_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Cli(monkeypatch, Fleet())
    assert run("toy").exit_code == 2
    assert "\n  toy " not in run("--help", "--all").stdout
    assert "fleethpa toy" not in reference()


def test_the_module_of_a_verb_has_its_name() -> None:
    """Those of the command line itself are in the module of the table; a word of Python has `_` at its end."""
    places = {name: verb.place for name, verb in main.verbs().items() if verb.place.startswith("cli.")}
    elsewhere = {name for name, place in places.items() if place != "cli.{0}:{0}".format(_module(name))}
    assert elsewhere == {"config", "completion", "version"}


def _module(verb: str) -> str:
    return f"{verb}_" if keyword.iskeyword(verb) else verb.replace("-", "_")

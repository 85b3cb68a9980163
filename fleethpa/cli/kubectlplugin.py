"""`kubectl fleethpa …`: the same commands as a kubectl plugin, with kubectl's `--context` where fleethpa has `-C`.

kubectl runs an executable named `kubectl-fleethpa` with the words that follow. `-n` and `-A` mean the same in both.
A context names a cluster: `--context east` is `-C east`. Without it the whole fleet is meant.
"""

import sys
from collections.abc import Iterator, Sequence

import click

from fleethpa.cli.main import VERBS, cli
from fleethpa.cli.main import main as command_main
from fleethpa.frame.errors import INTERRUPTED, USAGE, CommandError, usage
from fleethpa.frame.session import say

_FLAG = "--context"


def translated(arguments: Sequence[str]) -> list[str]:
    """Give the arguments with `--context NAME` written as `-C NAME`, for verbs that do not have `--context` themselves.

    Raises CommandError: `--context` without a name, or beside `-C` (exit 2).
    """
    found: list[str] = []
    clusters: list[str] = []
    rest = iter(arguments)
    verb = next((word for word in arguments if word in VERBS), "")
    if verb and not _takes_clusters(verb):
        return list(arguments)
    for word in rest:
        if word == "--":
            return [*found, *clusters, word, *rest]
        elif word == _FLAG or word.startswith(f"{_FLAG}="):
            name = word.partition("=")[2] if "=" in word else next(rest, "")
            if not name:
                raise usage("--context needs the name of a context", next_step="kubectl config get-contexts")
            if any(each in ("-C", "--clusters") or each.startswith("--clusters=") for each in arguments):
                raise usage("--context and -C exclude each other", cause="Both name the clusters that are meant.")
            clusters = ["-C", name]
        else:
            found.append(word)
    return found + clusters  # behind the verb, whose option it is


def _takes_clusters(verb: str) -> bool:
    command = cli.get_command(click.Context(cli), verb)
    options = set(_options(command)) if command else set()
    return "-C" in options and _FLAG not in options


def _options(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        yield from parameter.opts
    for below in getattr(command, "commands", {}).values():
        yield from _options(below)


def kubectl_plugin() -> None:
    """Entry point of the executable that kubectl finds."""
    try:
        sys.argv[1:] = translated(sys.argv[1:])
    except CommandError as problem:
        say(problem.text())
        sys.exit(USAGE)
    except KeyboardInterrupt:  # while the verb was imported, of which the options are asked
        sys.exit(INTERRUPTED)
    command_main()

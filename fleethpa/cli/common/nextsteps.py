"""Commands in hints, as this user can run them: the program's name and the connection options that were given."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import click

NAME: Final = "fleethpa"
OPTIONS: Final = {
    "source": "--from",
    "brokers": "--brokers",
    "kafka_config": "--kafka-config",
    "config": "--config",
    "kubeconfig": "--kubeconfig",
}
"""Options that say where fleethpa is, in the order in which hints give them: parameter and flag."""

# One space separates the words of a command; a comma, a bracket, a pipe or a second space ends it.
_COMMAND: Final = re.compile(rf"(?<![\w./-]){NAME}(?P<words>(?: [^\s,;|()`]+)+)")
_MARK: Final = re.compile(r"\b(?:Next|Back|Recompute): ")
_OWN_CONNECTION: Final = ("dev", "demo")
"""Verbs that bring their own brokers and clusters: a hint at them is a hint at something else than what was given."""


@cache
def program() -> str:
    """How to call this program again from here: its name where the shell finds it, else its path."""
    called = Path(sys.argv[0])
    if (called.parent.name, called.name) == (NAME, "__main__.py"):
        return f"{_from_here(Path(sys.executable))} -m {NAME}"
    if called.name != NAME:
        return NAME  # it runs within another program
    found = shutil.which(NAME)
    return NAME if found and os.path.realpath(found) == os.path.realpath(called) else _from_here(called)


def completed(text: str, options: Mapping[str, Any]) -> str:
    """A hint whose commands have the program's name and, where their verb takes them, the options that were given."""

    def complete(match: re.Match[str]) -> str:
        words = match["words"].split()
        end = "." if words[-1].endswith(".") and words[-1] != "." else ""
        words[-1] = words[-1].removesuffix(".")
        command = _verb(words)
        if command is None:
            return match[0]
        lacking = [] if words[0] in _OWN_CONNECTION else _lacking(command, words, options)
        return f"{program()} {' '.join([*words, *lacking])}{end}"

    return _COMMAND.sub(complete, text)


def hinted(text: str, options: Mapping[str, Any]) -> str:
    """A page whose hints (what follows `Next: `, `Back: ` or `Recompute: ` on a line) are completed."""
    return "\n".join(_hinted_line(line, options) for line in text.split("\n"))


def _hinted_line(line: str, options: Mapping[str, Any]) -> str:
    mark = _MARK.search(line)
    return line if mark is None else line[: mark.end()] + completed(line[mark.end() :], options)


def _verb(words: list[str]) -> click.Command | None:
    """The command that words name; None: they are prose, or no command runs."""
    context = click.get_current_context(silent=True)
    command = context.find_root().command if context is not None else None
    for word in words:
        if context is None or not isinstance(command, click.Group):
            break
        command = command.get_command(context, word)
    return None if isinstance(command, click.Group) else command


def _lacking(command: click.Command, words: list[str], options: Mapping[str, Any]) -> list[str]:
    taken = {param.name for param in command.params}
    given = {flag: options[name] for name, flag in OPTIONS.items() if options.get(name) and name in taken}
    return [
        part
        for flag, value in given.items()
        if flag not in words and (flag, value) != ("--from", "kafka")
        for part in (flag, shlex.quote(str(value)))
    ]


def _from_here(path: Path) -> str:
    """A path as short as it can be said from the working folder."""
    absolute = Path(os.path.abspath(path))
    try:
        return shlex.quote(str(absolute.relative_to(Path.cwd())))
    except (ValueError, OSError):
        return shlex.quote(str(absolute))

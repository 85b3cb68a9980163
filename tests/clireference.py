"""The command reference, made from the commands.

`python -m tests.clireference > docs/reference/cli.md` renews the page.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from fleethpa.cli.main import cli, verbs
from fleethpa.frame.errors import (
    ANSWER_IS_NO,
    INTERNAL,
    INTERRUPTED,
    NOT_FOUND,
    OK,
    PARTIAL,
    TIMED_OUT,
    UNREACHABLE,
    USAGE,
)
from fleethpa.frame.session import COMMON_NAMES

HEAD = """# Command reference

Made from the commands by `python -m tests.clireference`; a test keeps it current.

`fleethpa VERB [CLUSTER/][NAMESPACE/]NAME [flags]`. An HPA is `cluster/namespace/name`; without `-n` and `-A` the
namespace is `default`, as kubectl's. Data goes to stdout, everything else to stderr.
"""
CODES = (
    (OK, "done"),
    (ANSWER_IS_NO, "completed with a negative result: refused, rejected, not settled, differences found"),
    (USAGE, "wrong use or wrong input"),
    (UNREACHABLE, "Kafka or an API server cannot be reached"),
    (NOT_FOUND, "not found (0 with `--ignore-not-found`)"),
    (PARTIAL, "partial: a part of the answer is not known, or only as it was before; the output names that part"),
    (INTERNAL, "a fault of fleethpa itself; `--debug` shows where"),
    (TIMED_OUT, "`--timeout` was hit"),
    (INTERRUPTED, "Ctrl-C"),
)


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    yield "## Exit codes\n\n| code | meaning |\n|---|---|"
    yield from (f"| {code} | {meaning} |" for code, meaning in CODES)
    yield "\n## Common flags\n\nBefore or after the verb.\n"
    yield "| flag | meaning |\n|---|---|"
    root = click.Context(cli, info_name="fleethpa", **cli.context_settings)
    yield from (_row(option, root) for option in cli.params if isinstance(option, click.Option))
    for verb in verbs():
        command = cli.get_command(root, verb)
        assert command is not None
        yield from _command(command, f"fleethpa {verb}", root, 2)


def _command(command: click.Command, path: str, parent: click.Context, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield f"\n{'#' * level} {path}\n"
    yield _text(command.help or "")
    if not isinstance(command, click.Group):
        yield from _usage(command, path, context)
        return
    if command.invoke_without_command:
        yield from _usage(command, path, context)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _command(below, f"{path} {name}", context, level + 1)


def _usage(command: click.Command, path: str, context: click.Context) -> Iterator[str]:
    yield "\n```\n" + " ".join([path, *command.collect_usage_pieces(context)]) + "\n```"
    own = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON_NAMES and not p.hidden]
    if own:
        yield "\n| flag | meaning |\n|---|---|"
        yield from (_row(option, context) for option in own)
    if (listed := getattr(command, "listed", None)) is not None:
        yield "\n| setting | meaning [without it] |\n|---|---|"
        yield from (f"| `{_cell(name)}` | {_cell(text)} |" for name, text in listed())


def _row(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    flag, meaning = record if record is not None else (option.opts[0], "")
    return f"| `{_cell(flag)}` | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _text(help_text: str) -> str:
    return "\n".join(line.strip() for line in help_text.replace("\b", "").strip().splitlines())


if __name__ == "__main__":
    print(reference(), end="")

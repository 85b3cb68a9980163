"""Groups of commands that suggest the nearest name for an unknown one."""

from __future__ import annotations

import difflib
from typing import Final

import click

from fleethpa.cli.common.failures import USAGE, CommandError

_NEAR: Final = 0.5
_MEANT: Final = {
    **dict.fromkeys(("disable", "freeze", "halt", "hold", "stop", "suspend"), "pause"),
    **dict.fromkeys(("continue", "enable", "unfreeze", "unpause"), "resume"),
    **dict.fromkeys(("revert", "undo"), "rollback"),
}
"""Words that other tools have for a command. By its letters `freeze` is nearest to `release`, which gives HPAs away."""


class SuggestingGroup(click.Group):
    """A group whose error for an unknown command names the nearest one and the help that comes next."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name in known or name.startswith("-"):
            return super().resolve_command(ctx, args)
        meant = _MEANT.get(name)
        near = [meant] if meant in known else difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
        cause = f"Did you mean `{near[0]}`?" if near else f"Known are {', '.join(known)}." if ctx.parent else ""
        help_of = f"{ctx.command_path} {near[0]}" if near else ctx.command_path
        what = f"unknown command {name!r} of `{ctx.command_path}`" if ctx.parent else f"unknown verb {name!r}"
        raise CommandError(what, cause=cause, next_step=f"{help_of} --help", code=USAGE)

"""`fleethpa audit`: the trail of decisions: verified; listed and followed as `fleethpa decisions` does."""

from __future__ import annotations

import importlib
from typing import Final

import click

from fleethpa.cli.common.suggesting import SuggestingGroup

COMMANDS: Final = {
    "list": ("fleethpa.cli.decisions", "decisions"),
    "tail": ("fleethpa.cli.decisions", "tail"),
    "verify": ("fleethpa.cli.audit_verify", "audit_verify"),
    "keygen": ("fleethpa.cli.audit_verify", "audit_keygen"),
}
"""Name: module and attribute of the command, imported when it is called."""


class AuditGroup(SuggestingGroup):
    """A group that imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.group(cls=AuditGroup)
def audit() -> None:
    """List decisions, check that none was altered, and create the key that signs checkpoints."""

"""`fleethpa completion`: the script that teaches a shell our verbs, flags and HPA names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.main import cli


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@command_options()
def completion(session: Session, shell: str) -> None:
    """Print the completion script of SHELL; add `source <(fleethpa completion bash)` to ~/.bashrc."""

    kind = get_completion_class(shell)
    if kind is None:
        raise click.BadParameter(f"there is no completion for {shell}")
    session.out(kind(cli, {}, "fleethpa", "_FLEETHPA_COMPLETE").source())

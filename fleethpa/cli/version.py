"""`fleethpa version`."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed

import click

from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.output.formats import one
from schemas.decisions import ENGINE

UPSTREAM = "v1.37.1"
"""Release of Kubernetes whose HPA controller the engine equals."""


@click.command()
@output_option(formats=("table", "json", "yaml"))
@command_options()
def version(session: Session, output: str) -> None:
    """Print the versions of fleethpa, its engine, the upstream controller that it equals, and Python."""

    facts = {
        "fleethpa": installed("fleet-hpa"),
        "engine": str(ENGINE),
        "upstream": UPSTREAM,
        "python": platform.python_version(),
    }
    if output == "table":
        session.lines(f"{name:10} {value}" for name, value in facts.items())
    else:
        session.out(one("Version", facts, output))

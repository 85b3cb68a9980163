"""`fleethpa config view`: the settings in force, and where each came from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from fleethpa.cli.common.session import Session, command_options, output_option
from fleethpa.cli.common.suggesting import SuggestingGroup
from fleethpa.cli.output.formats import Listing, render
from fleethpa.cli.output.table import Column
from schemas.connection import MASK

_SHOWN: Final = ("kafkaConfig", "kubeconfig", "contexts", "author")


@dataclass(frozen=True)
class Setting:
    """One setting. `value` is text, secrets masked; `origin`: the flag, variable or file that named it."""

    name: str
    value: str
    origin: str


@click.group(cls=SuggestingGroup)
def config() -> None:
    """Show the configuration in force and where each value came from."""


@config.command("view")
@click.option("--show-origin", is_flag=True, help="Also where each value came from.")
@output_option(formats=("table", "json", "yaml", "jsonl"))
@command_options()
def view(session: Session, show_origin: bool, output: str) -> None:
    """Print the settings in force: flags come first, then environment, configuration file and `fleethpa dev`.

    What FLEETHPA_KAFKA_… and --brokers say takes the place of the same setting in the file of --kafka-config.
    """
    columns: tuple[Column[Setting], ...] = (
        Column("SETTING", lambda each: each.name),
        Column("VALUE", lambda each: each.value or "<none>"),
        Column("ORIGIN", lambda each: each.origin, wide=True),
    )
    listing = Listing(
        kind="Setting", items=_settings(session), columns=columns, document=asdict, name=lambda each: each.name
    )
    session.out(render(listing, "wide" if output == "table" and show_origin else output))


def _settings(session: Session) -> list[Setting]:
    found = session.config
    values = {"kafkaConfig": found.kafka_config, "kubeconfig": found.kubeconfig, "author": found.author}
    values["contexts"] = ",".join(found.contexts)
    shown = [Setting(name, values[name], found.origins.get(name, "default")) for name in _SHOWN]
    if not (found.brokers or found.kafka_config):
        return [Setting("kafka.bootstrapServers", "", "default"), *shown]
    origins = found.kafka_origins()
    kafka: dict[str, Any] = asdict(found.kafka())
    kafka["password"] = MASK if kafka["password"] else ""
    return [*(Setting(f"kafka.{_camel(name)}", value, origins[name]) for name, value in kafka.items()), *shown]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)

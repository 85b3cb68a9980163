"""`fleethpa topics`: create and check the topics, print manifests and access lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
import yaml

from fleethpa.cli.common.brokerconnection import client_settings, connecting
from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, CommandError, usage
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.suggesting import SuggestingGroup
from fleethpa.cli.common.writing import PlannedRecord, dry_run, write_all, write_options
from runtime.acls import ACLS, Component, acl_commands
from schemas.decisions import ENGINE
from schemas.settings import EngineSet
from schemas.topics import DEFAULT_PARTITIONS
from streams.state.partitionrow import PartitionRow
from streams.state.rowcodec import Row, decode_row, partition_key

if TYPE_CHECKING:
    from runtime.topicadmin import TopicDifference, WantedTopic

R = TypeVar("R")
COMPONENTS = ("observer", "ingest", "decider", "reconciler", "router", "breaker", "reader", "operator")


def _shape(function: Callable[..., R]) -> Callable[..., R]:
    function = click.option(
        "--partitions",
        type=click.IntRange(1),
        help="Number of partitions; it can never be changed. "
        f"[default: that of the existing topics, or else {DEFAULT_PARTITIONS}]",
    )(function)
    function = click.option(
        "--replication-factor",
        type=click.IntRange(1),
        help="Replicas of each partition. [default: that of the existing topics, or else 3]",
    )(function)
    function = click.option(
        "--strimzi-cluster", default="kafka", show_default=True, help="Name of the Kafka resource, for -o yaml."
    )(function)
    function = click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")(function)
    return click.option("-o", "--output", type=click.Choice(["text", "yaml"]), default="text", show_default=True)(
        function
    )


@click.group(cls=SuggestingGroup)
def topics() -> None:
    """Create or check the topics, print permissions on them, or set the engine."""


@topics.command("init")
@_shape
@command_options()
def init(session: Session, /, **options: Any) -> int:
    """Create the topics that are missing; with -o yaml print them as manifests of Strimzi's topic operator instead."""
    if options["output"] == "yaml":
        return _print_manifests(session, options)
    want, found = _compared(session, options)
    missing = [one for one in found if one.what == "topic"]
    _change(session, [one for one in want if one.name in {gap.topic for gap in missing}], options["dry_run"])
    for one in missing:
        session.out(f"topic/{one.topic} {'would be created' if options['dry_run'] else 'created'}")
    others = [one for one in found if one.what != "topic"]
    for one in others:
        session.warn(f"{one}")
    if others:
        session.note("Next: fleethpa topics check --fix")
    if not missing:
        session.out("all topics exist")
    return OK


@topics.command("check")
@click.option("--fix", is_flag=True, help="Create missing topics and correct settings that differ.")
@_shape
@command_options()
def check(session: Session, /, fix: bool, **options: Any) -> int:
    """Compare the topics with what fleethpa needs; exit 1 if they differ."""
    if options["output"] == "yaml":
        return _print_manifests(session, options)
    want, found = _compared(session, options)
    for one in found:
        session.out(f"{one}{'' if one.fixable else ' (cannot be changed: create the topic again)'}")
    if not found:
        session.out("all topics are as they should be")
        return OK
    if not fix:
        session.note("Next: fleethpa topics check --fix --dry-run")
        return ANSWER_IS_NO
    _change(session, want, options["dry_run"])
    left = [one for one in found if not one.fixable]
    word = "would be fixed" if options["dry_run"] else "fixed"
    session.out(f"{len(found) - len(left)} {word}, {len(left)} left")
    return ANSWER_IS_NO if left or options["dry_run"] else OK


@topics.command("acls")
@click.argument("component", type=click.Choice(COMPONENTS), required=False)
@click.option("--principal", default="User:fleethpa-{component}", show_default=True, help="Who gets the permissions.")
@command_options()
def acls(session: Session, /, component: str | None, principal: str) -> int:
    """Print the smallest set of permissions of each component, as arguments of kafka-acls.sh."""
    for name in get_args(Component):
        if component in (None, name):
            session.out(f"# {name}")
            session.out("\n".join(acl_commands(ACLS[name], principal.format(component=name))))
    return OK


@topics.command("engine")
@click.argument("number", type=click.IntRange(1), required=False)
@write_options
@command_options()
def engine(session: Session, /, number: int | None, **written: Any) -> int:
    """Show the engine and the partition count that the log records, or set the engine from this point of the log on.

    Do it once after `topics init`, and after an upgrade when every worker runs the new release.
    """
    if number is None:
        return _show_engine(session)
    if number > ENGINE:
        raise usage(f"this release has engine {ENGINE}, not {number}", next_step="run a newer release of fleethpa")
    return _record_engine(session, number, written)


def _show_engine(session: Session) -> int:
    async def own_rows() -> list[Row]:
        async with session.past() as past:
            stored = [(number, await past.newest_rows(number)) for number in range(await past.partitions())]
        keys = ((partition_key(number), rows) for number, rows in stored)
        return [decode_row(key, rows[key]) for key, rows in keys if key in rows]

    known = [row for row in session.run(own_rows()) if isinstance(row, PartitionRow)]
    engines, counts = sorted({row.engine for row in known}), sorted({row.partitions for row in known})
    session.out(f"engine      {', '.join(map(str, engines)) or 'none recorded yet'}")
    session.out(f"partitions  {', '.join(map(str, counts)) or 'none recorded yet'}")
    session.out(f"this release has engine {ENGINE}")
    return OK


def _record_engine(session: Session, number: int, written: dict[str, Any]) -> int:
    async def work() -> int:
        async with session.writer() as writer:
            body = EngineSet(
                engine=number, partitions=writer.partitions, author=session.config.author, reason=written["reason"]
            )
            writes = [PlannedRecord(f"engine {number} and {writer.partitions} partitions recorded", body, "*")]
            return (
                dry_run(session, writes)
                if written["dry_run"]
                else await write_all(session, writer, writes, written["wait"])
            )

    return session.run(work())


def _print_manifests(session: Session, options: dict[str, Any]) -> int:
    """Print the topics as manifests; no broker is asked."""
    from runtime.topicadmin import strimzi, wanted_beside

    want = wanted_beside({}, options["partitions"], options["replication_factor"])
    session.out(yaml.safe_dump_all(strimzi(want, options["strimzi_cluster"]), sort_keys=False).rstrip())
    return OK


def _compared(session: Session, options: dict[str, Any]) -> tuple[list[WantedTopic], list[TopicDifference]]:
    from runtime.topicadmin import check_beside

    settings = client_settings(session.config)

    async def ask() -> tuple[list[WantedTopic], list[TopicDifference]]:
        async with connecting(settings.bootstrap_servers):
            return await check_beside(settings, options["partitions"], options["replication_factor"])

    return session.run(ask())


def _change(session: Session, want: Sequence[WantedTopic], dry_run: bool) -> None:
    from runtime.topicadmin import TopicError, fix

    if dry_run or not want:
        return
    settings = client_settings(session.config)

    async def change() -> None:
        async with connecting(settings.bootstrap_servers):
            await fix(settings, want)

    try:
        session.run(change())
    except TopicError as error:
        cause = "The broker says no: too few brokers for the replication factor, or no permission."
        raise CommandError(str(error), cause=cause, next_step="fleethpa topics init --replication-factor 1") from error

"""`fleethpa admin topics`: create and check topics, print access lists, set engine and log time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import click
import yaml

from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import WriteOptions, dry_run, write_all, write_options
from fleethpa.fleet.logtimes import log_time_problem
from fleethpa.fleet.state import read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError, SuggestingGroup, unreachable, usage
from fleethpa.frame.options import together
from fleethpa.frame.session import Session, command_options
from fleethpa.frame.sources import TOPICS_REFUSED, client_settings, connecting
from fleethpa.show.text import rfc3339
from runtime.topicneeds import ACLS, Component, TopicDifference, WantedTopic, acl_commands, strimzi, wanted_beside
from schemas.decisions import ENGINE
from schemas.settings import EngineSet, LogTimeSet
from schemas.topics import DEFAULT_PARTITIONS
from streams.state.partitionrow import PartitionRow
from streams.state.rowcodec import decode_row, partition_key

_shape = together(
    click.option("-o", "--output", type=click.Choice(["text", "yaml"]), default="text"),
    click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing."),
    click.option("--strimzi-cluster", default="kafka", help="Name of the Kafka resource, for -o yaml."),
    click.option(
        "--replication-factor",
        type=click.IntRange(1),
        help="Replicas of each partition. [default: that of the existing topics, or else 3]",
    ),
    click.option(
        "--partitions",
        type=click.IntRange(1),
        help="Number of partitions; it can never be changed. "
        f"[default: that of the existing topics, or else {DEFAULT_PARTITIONS}]",
    ),
)


@click.group(cls=SuggestingGroup)
def topics() -> None:
    """Create or check the topics, print permissions, or set engine or log time."""


@topics.command("init")
@_shape
@command_options()
async def init(session: Session, /, **options: Any) -> int:
    """Create the topics that are missing; with -o yaml print them as manifests of Strimzi's topic operator instead."""
    if options["output"] == "yaml":
        return _print_manifests(session, options)
    want, gaps = await _compared(session, options)
    missing = [gap for gap in gaps if gap.what == "topic"]
    await _change(
        session, [topic for topic in want if topic.name in {gap.topic for gap in missing}], options["dry_run"]
    )
    for gap in missing:
        session.out(f"topic/{gap.topic} {'would be created' if options['dry_run'] else 'created'}")
    others = [gap for gap in gaps if gap.what != "topic"]
    for gap in others:
        session.warn(f"{gap}")
    if others:
        session.note("Next: fleethpa admin topics check --fix")
    if not missing:
        session.out("all topics exist")
    return OK


@topics.command("check")
@click.option("--fix", is_flag=True, help="Create missing topics and correct settings that differ.")
@_shape
@command_options()
async def check_topics(session: Session, /, fix: bool, **options: Any) -> int:
    """Compare the topics with what fleethpa needs; exit 1 if they differ."""
    if options["output"] == "yaml":
        return _print_manifests(session, options)
    want, gaps = await _compared(session, options)
    for gap in gaps:
        session.out(f"{gap}{'' if gap.fixable else ' (cannot be changed: create the topic again)'}")
    if not gaps:
        session.out("all topics are as they should be")
        return OK
    if not fix:
        session.note("Next: fleethpa admin topics check --fix --dry-run")
        return ANSWER_IS_NO
    await _change(session, want, options["dry_run"])
    left = [gap for gap in gaps if not gap.fixable]
    word = "would be fixed" if options["dry_run"] else "fixed"
    session.out(f"{len(gaps) - len(left)} {word}, {len(left)} left")
    return ANSWER_IS_NO if left or options["dry_run"] else OK


@topics.command("acls")
@click.argument("component", type=click.Choice(get_args(Component)), required=False)
@click.option("--principal", default="User:fleethpa-{component}", help="Who gets the permissions.")
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
async def engine(session: Session, /, number: int | None, options: WriteOptions) -> int:
    """Show the engine and the partition count that the log records, or set the engine from this point of the log on.

    Do it once after `admin topics init`, and after an upgrade when every worker runs the new release.
    """
    if number is None:
        return await _show_engine(session)
    if number > ENGINE:
        raise usage(f"this release has engine {ENGINE}, not {number}", next_step="run a newer release of fleethpa")
    async with session.writer() as writer:
        author, reason = session.config.author, options.reason
        body = EngineSet(engine=number, partitions=writer.partitions, author=author, reason=reason)
        writes = [PlannedRecord(f"engine {number} and {writer.partitions} partitions recorded", body, "*")]
        return dry_run(session, writes) if options.dry_run else await write_all(session, writer, writes, options.wait)


@topics.command("log-time")
@click.option("--set", "sets", is_flag=True, help="Set log time to this machine's clock, in every partition.")
@write_options
@command_options()
async def log_time(session: Session, /, sets: bool, options: WriteOptions) -> int:
    """Show log time, by which everything is decided, or set it to the present.

    Log time is the brokers' time of the newest record. A broker whose clock was wrong for a while may leave it ahead of
    the present, and nothing is decided before that is reached. Correct the brokers' clocks first. Where setting it
    changes log time by more than 10 seconds, windows and scale events begin anew, as after a restart of the controller.

    Exit 1: the log time of a partition is wrong.
    """
    if not sets:
        return await _show_log_times(session)
    async with session.writer() as writer:
        now_ms = session.now_ms()
        body = LogTimeSet(time=now_ms, author=session.config.author, reason=options.reason)
        writes = [PlannedRecord(f"log time set to {rfc3339(now_ms)} in every partition", body, "*")]
        return dry_run(session, writes) if options.dry_run else await write_all(session, writer, writes, options.wait)


async def _show_log_times(session: Session) -> int:
    async with session.past() as past:
        state = await read_state(past)
    problem_count = 0
    for number, row in sorted(state.folded.items()):
        problem = log_time_problem(row, session.now_ms())
        problem_count += bool(problem)
        session.out(f"{number:<4} {rfc3339(row.clock_ms) if row.clock_ms else 'no record yet'}  {problem}".rstrip())
    if problem_count:
        session.note("Next: set the brokers' clocks, then fleethpa admin topics log-time --set")
    return ANSWER_IS_NO if problem_count else OK


async def _show_engine(session: Session) -> int:
    async with session.past() as past:
        stored = [(number, await past.newest_rows(number)) for number in range(await past.partitions())]
    keys = ((partition_key(number), rows) for number, rows in stored)
    rows = (decode_row(key, rows[key]) for key, rows in keys if key in rows)
    known = [row for row in rows if isinstance(row, PartitionRow)]
    engines, counts = sorted({row.engine for row in known}), sorted({row.partitions for row in known})
    session.out(f"engine      {', '.join(map(str, engines)) or 'none recorded yet'}")
    session.out(f"partitions  {', '.join(map(str, counts)) or 'none recorded yet'}")
    session.out(f"this release has engine {ENGINE}")
    return OK


def _print_manifests(session: Session, options: dict[str, Any]) -> int:
    """Print the topics as manifests; no broker is asked."""
    want = wanted_beside({}, options["partitions"], options["replication_factor"])
    session.out(yaml.safe_dump_all(strimzi(want, options["strimzi_cluster"]), sort_keys=False).rstrip())
    return OK


async def _compared(session: Session, options: dict[str, Any]) -> tuple[list[WantedTopic], list[TopicDifference]]:
    from runtime.topicadmin import TopicError
    from runtime.topicadmin import check_topics as compared

    settings = client_settings(session.config)
    try:
        async with session.waiting(), connecting(settings.bootstrap_servers):
            return await compared(settings, options["partitions"], options["replication_factor"])
    except TopicError as error:
        raise unreachable(
            f"topics cannot be compared: {error}", next_step="fleethpa admin topics acls operator"
        ) from error


async def _change(session: Session, want: Sequence[WantedTopic], dry_run: bool) -> None:
    from runtime.topicadmin import TopicError, fix

    if dry_run or not want:
        return
    settings = client_settings(session.config)
    try:
        async with connecting(settings.bootstrap_servers):
            await fix(settings, want)
    except TopicError as error:
        step = "fleethpa admin topics init --replication-factor 1"
        raise CommandError(str(error), cause=TOPICS_REFUSED, next_step=step) from error

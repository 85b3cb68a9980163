"""Faults of the whole pipeline: each harms a running fleet and leaves it to the harness to be whole again."""

import asyncio
import random
import signal
import time
from collections.abc import Awaitable, Callable

from aiokafka import ConsumerRecord, TopicPartition

from fleethpa.lab.simulator.model import ConstantLoad
from runtime.kafkaclients import read_range, reader, strict_producer
from schemas import topics
from streams.decider.tail import Exit
from tests.kafka.chaos.wholes import WHOLES, check_wholes, swing_wholes
from tests.kafka.conftest import PARTITIONS
from tests.kafka.fleet import DECIDER_SESSION_S, Rig
from tests.kafka.losses import cut, lose_changelog, truncate_changelog
from tests.kafka.run_reading import read_topic
from tests.kit.clusters import Denial, FaultyCluster

Fault = Callable[[Rig, random.Random], Awaitable[None]]

KINDS = ("decider", "ingest", "reconciler", "observer")
REACH_S = 30.0
"""How long a part with an armed step may take to get there."""
SESSION_S = {"decider": DECIDER_SESSION_S, "ingest": 10.0, "reconciler": 15.0, "observer": 5.0}
"""After this time another one takes over; the observer has no session with Kafka."""
STEPS = {
    "decider": ("before-publish", "after-publish", "checkpoint-row:1", "checkpoint-row:4", "before-commit"),
    "ingest": ("before-log", "after-log", "before-commit"),
    "reconciler": ("before-outcome", "after-outcome", "before-commit"),
    "observer": ("before-send", "after-send"),
}
POISON = (
    b"",
    b"\x00\xff\xfe not json",
    b"[1,2",
    b'{"v":99,"cluster":"c0","namespace":"n0","entries":[]}',
    b'{"v":1,"cluster":"c0","namespace":"n0","entries":[{"kind":"podSet"}]}',
    b'{"v":1,"cluster":"c0","namespace":"n0","entries":[{"kind":"nonsense","x":1}]}',
    b'{"v":1,"cluster":"","namespace":"","entries":[{"kind":"podDeleted","name":"p"}]}',
    b'{"v":1,"cluster":"c0","namespace":"n0","time":-5,"entries":[{"kind":"podDeleted","name":"p"}]}',
    b'{"v":1,"ts":1,"cluster":"c0","namespace":"n0","type":"Pods","metric":"m","value":"NaN"}',
)
RESTORE_S = 60.0
"""How long a decider may take to own its partitions or to say why not."""
REPEATED = 300
"""How many of the newest public records are sent once more."""


def kill(kind: str) -> Fault:
    """kill -9 at a random moment."""

    async def fault(rig: Rig, rng: random.Random) -> None:
        await asyncio.sleep(rng.uniform(0.0, 2.0))
        rig.parts[f"{kind}-0"].kill()

    return fault


def kill_at_step(kind: str) -> Fault:
    """kill -9 at a marked step."""

    async def fault(rig: Rig, rng: random.Random) -> None:
        part = rig.parts[f"{kind}-0"]
        step = f"{rng.choice(STEPS[kind])}*{rng.randrange(1, 4)}"
        if not part.ended:
            await part.terminate()
        part.start(crash_at=step)
        await ended(rig, part.name, REACH_S)
        part.kill()

    return fault


def pause(kind: str) -> Fault:
    """SIGSTOP for longer than the session, then SIGCONT: it comes back as a ghost."""

    async def fault(rig: Rig, rng: random.Random) -> None:
        part = rig.parts[f"{kind}-0"]
        part.signal(signal.SIGSTOP)
        await asyncio.sleep(SESSION_S[kind] + rng.uniform(0.5, 3.0))
        part.signal(signal.SIGCONT)

    return fault


def second(kind: str) -> Fault:
    """A second one joins, works, and leaves in order or is killed."""

    async def fault(rig: Rig, rng: random.Random) -> None:
        name = f"{kind}-1"
        rig.add(name)
        await asyncio.sleep(rng.uniform(4.0, 10.0))
        part = rig.parts.pop(name)
        if rng.random() < 0.5 or part.ended:
            part.kill()
        else:
            await part.terminate()

    return fault


async def broker_killed(rig: Rig, rng: random.Random) -> None:
    """kill -9 of the broker, and a restart some seconds later."""
    await asyncio.to_thread(rig.broker.kill)
    await asyncio.sleep(rng.uniform(0.5, 6.0))
    await asyncio.to_thread(rig.broker.start)


def broker_paused(seconds: float) -> Fault:
    """The broker is stopped for up to this time."""

    async def fault(rig: Rig, rng: random.Random) -> None:
        rig.broker.pause()
        await asyncio.sleep(rng.uniform(0.5, 1.0) * seconds)
        rig.broker.resume()

    return fault


def ingest_away(seconds: float) -> Fault:
    """No ingest for some time; the public topics fill and are drained afterwards."""

    async def fault(rig: Rig, rng: random.Random) -> None:
        rig.parts["ingest-0"].kill()
        await asyncio.sleep(seconds * rng.uniform(0.5, 1.0))

    return fault


async def poison(rig: Rig, rng: random.Random) -> None:
    """Records that nobody can read, on every public topic."""
    async with strict_producer(rig.settings) as producer:
        for topic in topics.PUBLIC_TOPICS:
            for value in POISON:
                await producer.send(topic, value, partition=rng.randrange(PARTITIONS))
        await producer.flush()


async def repeated_input(rig: Rig, rng: random.Random) -> None:
    """The newest public records again, out of order, as a foreign bridge might deliver them."""
    newest = [record for topic in topics.PUBLIC_TOPICS for record in await _newest(rig, topic)]
    async with strict_producer(rig.settings) as producer:
        for record in rng.sample(newest, min(REPEATED, len(newest))):
            headers = [(name, value) for name, value in record.headers]
            await producer.send(record.topic, record.value, key=record.key, partition=record.partition, headers=headers)
        await producer.flush()


async def _newest(rig: Rig, topic: str) -> list[ConsumerRecord]:
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with reader(rig.settings, tps) as consumer:
        ends = await consumer.end_offsets(tps)
        return [r for tp in tps async for r in read_range(consumer, tp, max(0, ends[tp] - REPEATED // 10), ends[tp])]


async def clock_jumps(rig: Rig, rng: random.Random) -> None:
    """The broker's clock jumps ahead by a minute or two and soon back, while log time does not advance."""
    if rig.broker.clock is None:
        raise RuntimeError("the broker runs by the host's clock: give it one that can be set")
    ahead_s = rng.uniform(60.0, 120.0)
    await asyncio.to_thread(rig.broker.clock.set_ahead, ahead_s)
    await asyncio.sleep(rng.uniform(3.0, 8.0))
    await asyncio.to_thread(rig.broker.clock.set_ahead, 0.0)
    rig.log_time_stands_until = time.monotonic() + ahead_s


def _member(rig: Rig, rng: random.Random) -> FaultyCluster:
    found = rng.choice(list(rig.world.fleet.clusters.values()))
    assert isinstance(found, FaultyCluster)
    return found


async def _while(rig: Rig, seconds: float) -> None:
    """Let this time pass while no FleetHPA may have more than its maxReplicas."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        check_wholes(rig.world)
        await asyncio.sleep(0.5)


async def member_cannot_write(rig: Rig, rng: random.Random) -> None:
    """The API server of one cluster refuses all writes of replicas."""
    cluster = _member(rig, rng)
    cluster.deny(Denial(resource="deployments/scale", verb=verb) for verb in ("update", "patch"))
    try:
        await _while(rig, rng.uniform(10.0, 40.0))
    finally:
        cluster.deny([])


async def member_away(rig: Rig, rng: random.Random) -> None:
    """The API server of one cluster is gone, for longer than the cluster may be silent, or not."""
    cluster = _member(rig, rng)
    await cluster.stop_api(abort=True)
    try:
        await _while(rig, rng.uniform(5.0, 40.0))
    finally:
        await cluster.start_api()


async def member_lies(rig: Rig, rng: random.Random) -> None:
    """The metrics of one cluster say that its part of each FleetHPA does nothing, or more than any cluster could."""
    cluster = _member(rig, rng)
    load = rng.choice([0.0, 1e6])
    try:
        for namespace, name in WHOLES:
            cluster.set_load(namespace, name, ConstantLoad(load))
        await _while(rig, rng.uniform(10.0, 40.0))
    finally:
        swing_wholes(rig.world)


async def changelog_lost(rig: Rig, _: random.Random) -> None:
    """All state rows are gone; the log is whole, unless another fault has cut it."""
    rig.parts["decider-0"].kill()
    await lose_changelog(rig.settings)
    await restored(rig)


async def changelog_truncated(rig: Rig, rng: random.Random) -> None:
    """Some of the state rows are gone."""
    rig.parts["decider-0"].kill()
    await truncate_changelog(rig.settings, rng.uniform(0.2, 0.9))
    await restored(rig)


async def changelog_lost_and_log_cut(rig: Rig, rng: random.Random) -> None:
    """All state rows are gone, and the log has lost its beginning."""
    rig.parts["decider-0"].kill()
    log = await read_topic(rig.settings, topics.LOG)
    firsts = {number: records[round(len(records) * rng.uniform(0.1, 0.9))].offset for number, records in log.items()}
    for number, records in log.items():
        rig.cut_log.setdefault(number, []).extend(r for r in records if r.offset < firsts[number])
    await lose_changelog(rig.settings)
    await cut(rig.settings, topics.LOG, firsts)
    await restored(rig)


async def restored(rig: Rig) -> None:
    """What an operator does: start the decider and, where it ends saying that state is lost, do what it says."""
    rig.harmed_until = time.monotonic()
    part = rig.parts["decider-0"]
    stated = part.output.stat().st_size
    part.start()
    deadline = time.monotonic() + RESTORE_S
    while not part.ended and "owning log partitions" not in part.stated(stated):
        if time.monotonic() > deadline:
            raise AssertionError(f"neither state nor an error after {RESTORE_S:.0f} s\n{part.tail()}")
        await asyncio.sleep(0.1)
    if not part.ended:
        return
    if part.running.returncode != Exit.NEEDS_OPERATOR or "--rebuild" not in part.stated(stated):
        raise AssertionError(f"lost state is no error in words: {part.running.returncode}\n{part.tail()}")
    await lose_changelog(rig.settings)
    rig.add("decider-0-rebuild", "--rebuild")
    rebuilding = rig.parts.pop("decider-0-rebuild")
    code = await asyncio.to_thread(rebuilding.running.wait, RESTORE_S)
    if code != 0:
        raise AssertionError(f"the rebuild ended with {code}\n{rebuilding.tail()}")
    part.start()
    rig.parts["observer-0"].kill()
    await rig.write_settings()


async def ended(rig: Rig, name: str, timeout_s: float) -> bool:
    """Whether a part ended by itself in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not rig.parts[name].ended and loop.time() < deadline:
        await asyncio.sleep(0.05)
    return rig.parts[name].ended


FAULTS: dict[str, tuple[int, Fault]] = {
    **{f"kill {kind}": (2, kill(kind)) for kind in KINDS},
    **{f"kill {kind} at a step": (2, kill_at_step(kind)) for kind in KINDS},
    **{f"pause {kind}": (1, pause(kind)) for kind in KINDS},
    "second decider": (2, second("decider")),
    "second ingest": (1, second("ingest")),
    "second reconciler": (1, second("reconciler")),
    "broker killed": (1, broker_killed),
    "broker paused": (1, broker_paused(12)),
    "broker paused for 60 s": (1, broker_paused(60)),
    "broker clock jumps": (1, clock_jumps),
    "changelog lost": (1, changelog_lost),
    "changelog truncated": (1, changelog_truncated),
    "changelog lost, log cut": (1, changelog_lost_and_log_cut),
    "ingest away": (1, ingest_away(120)),
    "member cannot write": (1, member_cannot_write),
    "member away": (1, member_away),
    "member lies": (1, member_lies),
    "poison": (2, poison),
    "repeated input": (2, repeated_input),
}
"""Name → how often relative to the others, and what it does."""

SHORT = ("kill decider at a step", "kill ingest at a step", "kill reconciler at a step", "poison", "repeated input")
"""A run of a minute or two."""

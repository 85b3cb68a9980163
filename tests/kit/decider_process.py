"""Decider processes under test: start them, kill them, and read what they decided."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from runtime.kafkaclients import read_range, reader, strict_producer
from schemas import topics
from schemas.connection import KafkaSettings
from tests.kit.playback import Log, TimedRecord
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


class Decider:
    """A decider process.

    Args:
        bootstrap: the brokers.
        output: file for what it prints.
        instance_id: static member name.
        crash_at: marked step at which it kills itself.
        module: what to run in place of `fleethpa`.
    """

    def __init__(
        self,
        bootstrap: str,
        output: Path,
        *arguments: str,
        instance_id: str = "",
        crash_at: str = "",
        module: str = "fleethpa",
        session_timeout_s: float = 3,
    ) -> None:
        module = "tests.kafka.chaos.armed" if crash_at else module
        command = [sys.executable, "-m", module, "run", "decider"]
        command += ["--brokers", bootstrap, "--session-timeout", str(session_timeout_s)]
        command += ["--instance-id", instance_id] if instance_id else []
        environment = os.environ | ({"FLEETHPA_CRASH_AT": crash_at} if crash_at else {})
        self.output = output
        self.started_at = time.monotonic()
        with output.open("ab") as stream:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=stream, stderr=stream, cwd=ROOT, env=environment
            )

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def terminate(self, timeout_s: float = PATIENCE_S) -> int:
        """Ask it to end; its exit code."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def pause(self) -> None:
        """Make it stand still."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    def tail(self) -> str:
        """The end of what it printed."""
        return self.output.read_text(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            self.resume()
            self.kill()


class Read(NamedTuple):
    """Decisions of a partition: all records, and those left after the readers' rule (a number seen is ignored)."""

    records: list[bytes]
    decisions: list[bytes]


async def load_log(settings: KafkaSettings, log: Log) -> None:
    """Append the records with their timestamps."""
    async with strict_producer(settings) as producer:
        await append_log(producer, log)


async def append_log(producer: AIOKafkaProducer, log: Log) -> None:
    """Append the records with their timestamps, and wait until they stand."""
    sent = [
        await producer.send(topics.LOG, record.value, partition=number, timestamp_ms=record.timestamp_ms)
        for number, records in log.items()
        for record in records
    ]
    await asyncio.gather(*sent)


async def read_decisions(settings: KafkaSettings, partitions: Sequence[int]) -> dict[int, Read]:
    """The records of the decisions topic."""
    tps = [TopicPartition(topics.DECISIONS, number) for number in partitions]
    async with reader(settings, tps) as consumer:
        firsts, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        return {tp.partition: await _read(consumer, tp, firsts[tp], ends[tp]) for tp in tps}


async def _read(consumer: AIOKafkaConsumer, tp: TopicPartition, first: int, end: int) -> Read:
    records = [record.value async for record in read_range(consumer, tp, first, end)]
    newest, decisions = 0, []
    for value in records:
        if (seq := orjson.loads(value)["seq"]) > newest:
            newest = seq
            decisions.append(value)
    return Read(records, decisions)


async def read_log(settings: KafkaSettings, partitions: Sequence[int]) -> dict[int, list[TimedRecord]]:
    """The log as the brokers hold it, from offset 0 of each partition on, without gaps."""
    tps = [TopicPartition(topics.LOG, number) for number in partitions]
    log: dict[int, list[TimedRecord]] = {}
    async with reader(settings, tps) as consumer:
        ends = await consumer.end_offsets(tps)
        for tp in tps:
            found: list[TimedRecord] = []
            log[tp.partition] = found
            async for record in read_range(consumer, tp, 0, ends[tp]):
                assert record.offset == len(found), f"{tp}: offset {record.offset} follows {len(found) - 1}"
                found.append(TimedRecord(record.timestamp, record.value))
    return log


async def count_decisions(settings: KafkaSettings, partitions: Sequence[int]) -> int:
    """How many records stand on the decisions topic."""
    async with reader(settings) as consumer:
        return sum((await consumer.end_offsets([TopicPartition(topics.DECISIONS, one) for one in partitions])).values())


def first_difference(want: Mapping[int, list[bytes]], got: Mapping[int, Read]) -> str:
    """Where the decisions differ from the wanted ones, in words; empty where they do not."""
    for number, values in want.items():
        found = got[number].decisions
        for index, (one, other) in enumerate(zip(values, found, strict=False)):
            if one != other:
                return f"partition {number}, decision {index}:\n want {one.decode()}\n got  {other.decode()}"
        if len(values) != len(found):
            return f"partition {number}: wanted {len(values)} decisions, got {len(found)}"
    return ""


async def wait_for_decisions(
    settings: KafkaSettings, want: Mapping[int, list[bytes]], running: Sequence[Decider], timeout_s: float = PATIENCE_S
) -> dict[int, Read]:
    """Wait until there are as many decisions as wanted, and return them."""
    deadline = time.monotonic() + timeout_s
    while True:
        got = await read_decisions(settings, sorted(want))
        if all(len(got[number].decisions) >= len(values) for number, values in want.items()):
            return got
        if dead := [one for one in running if one.ended]:
            raise AssertionError(f"a decider ended with {dead[0].process.returncode}:\n{dead[0].tail()}")
        if time.monotonic() > deadline:
            counts = {number: (len(got[number].decisions), len(values)) for number, values in want.items()}
            raise AssertionError(f"decisions (got, wanted) after {timeout_s} s: {counts}\n{running[0].tail()}")
        await asyncio.sleep(0.3)

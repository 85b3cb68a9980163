"""A changelog that is lost: folded anew from a whole log, or visibly begun anew from what is left of it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import orjson
from aiokafka import TopicPartition

from runtime.kafkaclients import read_range, reader
from schemas import topics
from schemas.connection import KafkaSettings
from streams.decider.tail import Exit
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kafka.losses import cut, lose_changelog
from tests.kit.decider_process import (
    ROOT,
    Decider,
    Read,
    first_difference,
    load_log,
    read_decisions,
    wait_for_decisions,
)
from tests.kit.playback import Log, fold, make_log
from tests.patience import PATIENCE_S

CUT = 1
REBUILD = ("run", "decider", "--playback", "--rebuild")


async def test_a_lost_changelog_with_a_whole_log_changes_nothing(settings: KafkaSettings, tmp_path: Path) -> None:
    log = make_log(partitions=PARTITIONS, minutes=10, hpas=24, seed=21)
    want = fold(log)
    await _decide(settings, tmp_path, {number: records[:400] for number, records in log.items()})
    await lose_changelog(settings)
    await load_log(settings, {number: records[400:] for number, records in log.items()})
    with _decider(settings, tmp_path) as running:
        got = await wait_for_decisions(settings, want, [running], 180)
    assert first_difference(want, got) == ""
    assert all(len(got[number].records) == len(values) for number, values in want.items())


async def test_a_lost_changelog_and_a_cut_log_stop_it_and_a_rebuild_begins_anew_visibly(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=10, hpas=24, seed=23)
    before = await _decide(settings, tmp_path, {number: records[:400] for number, records in log.items()})
    await lose_changelog(settings)
    await cut(settings, topics.LOG, dict.fromkeys(range(PARTITIONS), CUT))
    with _decider(settings, tmp_path) as stopped:
        assert await asyncio.to_thread(stopped.process.wait, 180) == Exit.NEEDS_OPERATOR
        assert "`fleethpa run decider --rebuild`" in stopped.tail()
    code, stated = await _run(settings, *REBUILD)
    assert code == 0, stated
    assert await _restarts(settings) == [f"state was lost; rebuilt from log offset {CUT}"] * PARTITIONS
    await load_log(settings, {number: records[400:] for number, records in log.items()})
    more = {number: [*read.decisions, b""] for number, read in before.items() if read.decisions}
    with _decider(settings, tmp_path) as running:
        got = await wait_for_decisions(settings, more, [running], 180)
    _check_chain(before, got)


async def test_with_an_archive_a_lost_changelog_and_a_cut_log_change_nothing(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=10, hpas=24, seed=25)
    await _decide(settings, tmp_path, {number: records[:400] for number, records in log.items()})
    archive = str(tmp_path / "archive")
    assert (await _run(settings, "admin", "archive", "--to", archive, "--once"))[0] == 0
    # What came after the archive's end is in the log only, what the log has lost in the archive only.
    await load_log(settings, {number: records[400:450] for number, records in log.items()})
    await lose_changelog(settings)
    await cut(settings, topics.LOG, dict.fromkeys(range(PARTITIONS), 350))
    code, stated = await _run(settings, *REBUILD, "--archive", str(tmp_path))
    assert code == Exit.NEEDS_OPERATOR, stated
    assert f"{tmp_path} is not a fleethpa archive" in stated
    code, stated = await _run(settings, *REBUILD, "--archive", archive)
    assert code == 0, stated
    await load_log(settings, {number: records[450:] for number, records in log.items()})
    want = fold(log)
    with _decider(settings, tmp_path) as running:
        got = await wait_for_decisions(settings, want, [running], 180)
    assert first_difference(want, got) == ""
    assert all(len(got[number].records) == len(values) for number, values in want.items())


async def _run(settings: KafkaSettings, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "fleethpa", *arguments, "--brokers", settings.bootstrap_servers]
    done = await asyncio.to_thread(
        subprocess.run, command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    return done.returncode, done.stderr


def _check_chain(before: dict[int, Read], got: dict[int, Read]) -> None:
    for number, read in got.items():
        sequence = [orjson.loads(value)["seq"] for value in read.records]
        assert sequence == list(range(1, len(sequence) + 1))
        assert read.records[: len(before[number].records)] == before[number].records


def _decider(settings: KafkaSettings, folder: Path, *arguments: str) -> Decider:
    output = folder / "decider.txt"
    return Decider(
        settings.bootstrap_servers, output, "--playback", *arguments, instance_id="decider-0", session_timeout_s=8
    )


async def _decide(settings: KafkaSettings, folder: Path, log: Log) -> dict[int, Read]:
    await make_topics(settings, playback_topics())
    await load_log(settings, log)
    want = fold(log)
    with _decider(settings, folder) as running:
        await wait_for_decisions(settings, want, [running], 180)
        assert await asyncio.to_thread(running.terminate, 120) == 0, running.tail()
    return await read_decisions(settings, sorted(want))


async def _restarts(settings: KafkaSettings) -> list[str]:
    tps = [TopicPartition(topics.LOG, number) for number in range(PARTITIONS)]
    found = []
    async with reader(settings, tps) as consumer:
        ends = await consumer.end_offsets(tps)
        for tp in tps:
            async for record in read_range(consumer, tp, ends[tp] - 1, ends[tp]):
                found += [entry["body"]["reason"] for entry in orjson.loads(record.value)["entries"]]
    return found

"""The same log records and times give the same decision bytes on Apache Kafka, the embedded broker and a pure fold."""

import asyncio
from pathlib import Path

from schemas.connection import KafkaSettings
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kit.decider_process import Decider, first_difference, load_log, wait_for_decisions
from tests.kit.playback import fold, make_log

SESSION_S = 8.0
"""Long enough that a process on a busy machine does not fence itself."""
STEPS = ("before-publish*2", "after-publish*2", "checkpoint-row:1", "checkpoint-row:5*3", "before-commit")


async def test_a_decider_killed_at_every_marked_step_decides_what_an_undisturbed_fold_does(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=20, hpas=40, seed=11)
    want = fold(log)
    await make_topics(settings, playback_topics())
    await load_log(settings, log)
    for step in STEPS:
        with member(settings, tmp_path, crash_at=step) as doomed:
            assert await asyncio.to_thread(doomed.process.wait, 180) == -9, f"{step}: {doomed.tail()}"
    with member(settings, tmp_path) as running:
        await _owning(running)  # all may have been decided before
        got = await wait_for_decisions(settings, want, [running], 180)
        assert await asyncio.to_thread(running.terminate, 120) == 0, running.tail()
    assert first_difference(want, got) == ""


async def test_two_workers_of_which_one_joins_and_is_killed_decide_the_same(
    settings: KafkaSettings, tmp_path: Path
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=20, hpas=40, seed=12)
    want = fold(log)
    await make_topics(settings, playback_topics())
    with Decider(settings.bootstrap_servers, tmp_path / "a.txt", "--playback", session_timeout_s=SESSION_S) as first:
        await load_log(settings, {number: records[:600] for number, records in log.items()})
        with Decider(
            settings.bootstrap_servers, tmp_path / "b.txt", "--playback", session_timeout_s=SESSION_S
        ) as second:
            await _owning(second)
            await load_log(settings, {number: records[600:] for number, records in log.items()})
            second.kill()
        got = await wait_for_decisions(settings, want, [first], 180)
    assert first_difference(want, got) == ""


def member(settings: KafkaSettings, folder: Path, crash_at: str = "") -> Decider:
    """The one static member of the group."""
    output = folder / f"decider {crash_at}.txt"
    return Decider(
        settings.bootstrap_servers,
        output,
        "--playback",
        instance_id="decider-0",
        crash_at=crash_at,
        session_timeout_s=SESSION_S,
    )


async def _owning(running: Decider) -> None:
    while "owning log partitions" not in running.tail():
        assert not running.ended, running.tail()
        await asyncio.sleep(0.1)

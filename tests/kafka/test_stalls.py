"""Each stall that Faust is silent about, put into a live decider: it ends with a reason, and a restart continues."""

import asyncio
from pathlib import Path

import pytest

from runtime import topicneeds
from schemas.connection import KafkaSettings
from streams.decider.tail import Exit
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kafka.run_reading import Run
from tests.kafka.run_reading import first_difference as first_live_difference
from tests.kit.decider_process import Decider, first_difference, load_log, wait_for_decisions
from tests.kit.playback import Log, fold, make_log
from tests.kit.stalled_decider import ENVIRONMENT, FETCH_HANGS
from tests.patience import PATIENCE_S

LIMITS = ("--stall-seconds", "8", "--recovery-seconds", "12")


def stalling(settings: KafkaSettings, folder: Path, *arguments: str) -> Decider:
    """The static member, about to stall."""
    output, module = folder / "decider.txt", "tests.kit.stalled_decider"
    return Decider(
        settings.bootstrap_servers,
        output,
        *LIMITS,
        *arguments,
        instance_id="decider-0",
        module=module,
        session_timeout_s=8,
    )


def healthy(settings: KafkaSettings, folder: Path, *arguments: str) -> Decider:
    """The same member, as a supervisor starts it again."""
    return Decider(
        settings.bootstrap_servers, folder / "decider.txt", *arguments, instance_id="decider-0", session_timeout_s=8
    )


async def says(running: Decider, text: str) -> None:
    """Wait until it has printed this."""
    async with asyncio.timeout(PATIENCE_S):
        while text not in running.tail():
            assert not running.ended, running.tail()
            await asyncio.sleep(0.1)


async def ends_stalled(running: Decider, reason: str) -> None:
    """It must end by itself, with the code and the reason of a stall."""
    with running:
        code = await asyncio.to_thread(running.process.wait, 120)
        assert code == Exit.STALLED, running.tail()
        assert reason in running.tail()


def halves(log: Log) -> tuple[Log, Log]:
    """The log, cut in two."""
    return (
        {number: records[: len(records) // 2] for number, records in log.items()},
        {number: records[len(records) // 2 :] for number, records in log.items()},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stall", "reason"),
    [
        pytest.param("recovery", "recovery has not ended after 1", id="a first recovery that never ends"),
        pytest.param("fetch", "nothing was applied for", id="a fetch that never comes back"),
        pytest.param("loop", "the event loop has not turned for", id="an event loop that hangs in a call"),
    ],
)
async def test_a_stalled_decider_ends_and_its_restart_goes_on_with_the_same_bytes(
    settings: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stall: str, reason: str
) -> None:
    log = make_log(partitions=PARTITIONS, minutes=10, hpas=24, seed=31)
    want = fold(log)
    first, second = halves(log)
    await make_topics(settings, playback_topics())
    monkeypatch.setenv(ENVIRONMENT, stall)
    await load_log(settings, first)
    doomed = stalling(settings, tmp_path, "--playback")
    if stall == "fetch":
        # Only records that come after the last fetch are sure to wait for one.
        await says(doomed, FETCH_HANGS)
    loading = asyncio.create_task(load_log(settings, second))
    await ends_stalled(doomed, reason)
    await loading
    with healthy(settings, tmp_path, "--playback") as running:
        got = await wait_for_decisions(settings, want, [running], 180)
    assert first_difference(want, got) == ""


@pytest.mark.slow
async def test_ticks_that_stop_end_the_decider_and_its_restart_goes_on_with_the_same_bytes(
    settings: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    await load_log(settings, make_log(partitions=PARTITIONS, minutes=1, hpas=24, seed=32))
    monkeypatch.setenv(ENVIRONMENT, "ticks")
    await ends_stalled(stalling(settings, tmp_path), "no tick came for")
    before = await Run.read(settings)
    with healthy(settings, tmp_path) as running:
        await _more_ticks(settings, before, running)
        assert await asyncio.to_thread(running.terminate, 120) == 0, running.tail()
    run = await Run.read(settings)
    known = {number: values[: len(run.decisions[number])] for number, values in run.replayed().items()}
    assert first_live_difference(known, run.decisions) == ""
    assert sum(map(len, run.decisions.values())) > sum(map(len, before.decisions.values())) > 0


async def _more_ticks(settings: KafkaSettings, before: Run, running: Decider) -> None:
    """Wait for so many ticks that every HPA is due once more."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            now = await Run.read(settings)
            if all(len(records) >= len(before.log[number]) + 20 for number, records in now.log.items()):
                return
            assert not running.ended, running.tail()
            await asyncio.sleep(1)

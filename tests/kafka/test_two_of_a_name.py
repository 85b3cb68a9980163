"""Two processes of one name on one Kafka: the one that was replaced ends and says so, and the other one goes on."""

import asyncio
from pathlib import Path

from runtime import topicneeds
from schemas import topics
from schemas.connection import KafkaSettings
from streams.decider.tail import Exit
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kit.decider_process import Decider, first_difference, load_log, wait_for_decisions
from tests.kit.playback import fold, make_log
from tests.pipeline.ingesting import Process, producer, reading, sample

SESSION_S = 8.0


async def test_of_two_deciders_one_ends_and_the_other_decides_all(settings: KafkaSettings, tmp_path: Path) -> None:
    log = make_log(partitions=PARTITIONS, minutes=20, hpas=40, seed=13)
    want = fold(log)
    await make_topics(settings, playback_topics())
    half = {number: records[:600] for number, records in log.items()}
    await load_log(settings, half)
    with _decider(settings, tmp_path, "first") as first:
        await wait_for_decisions(settings, fold(half), [first], 180)
        with _decider(settings, tmp_path, "second") as second:
            code = await asyncio.to_thread(first.process.wait, 120)
            assert (code, second.ended) == (Exit.FENCED, False), first.tail() + second.tail()
            assert "another process of the name 'decider-0' has taken this one's place" in first.tail()
            await load_log(settings, {number: records[600:] for number, records in log.items()})
            got = await wait_for_decisions(settings, want, [second], 180)
            assert "delete the changelog" not in second.tail()
    assert first_difference(want, got) == ""


def _decider(settings: KafkaSettings, folder: Path, name: str) -> Decider:
    return Decider(
        settings.bootstrap_servers,
        folder / f"{name}.txt",
        "--playback",
        instance_id="decider-0",
        session_timeout_s=SESSION_S,
    )


async def test_of_two_ingests_one_ends_and_the_other_goes_on(settings: KafkaSettings) -> None:
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    async with producer(settings) as out, reading(settings, topics.LOG) as log:
        with Process(settings, "--member", "ingest-0") as first:
            await first.port()
            await out.send_and_wait(topics.SAMPLES, sample(1))
            await log.until(lambda log: log.values() == {1})
            with Process(settings, "--member", "ingest-0") as second:
                code, text = await first.ended()
                assert code == 3, text
                assert "another process of the name 'ingest-0' has taken this one's place" in text
                await out.send_and_wait(topics.SAMPLES, sample(2))
                await log.until(lambda log: log.values() == {1, 2})
                assert second.popen.poll() is None


async def test_of_two_hubs_that_start_in_the_same_seconds_one_ends(settings: KafkaSettings, tmp_path: Path) -> None:
    """Neither finds the other before it begins; each sees the other's records then."""
    await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
    async with producer(settings) as out, reading(settings, topics.LOG) as log:
        with (
            Decider(settings.bootstrap_servers, tmp_path / "decider.txt", "--hub", "us") as decider,
            Process(settings, "--hub", "us") as refused,
            Process(settings, "--hub", "eu") as works,
        ):
            code, text = await refused.ended()
            ended = await asyncio.to_thread(decider.process.wait, 120)
            assert (code, ended) == (3, Exit.NEEDS_OPERATOR), (text, decider.tail())
            for each in (text, decider.tail()):
                assert "hub 'eu' works with fleethpa.log" in each
                assert "this is hub 'us'" in each
            await out.send_and_wait(topics.SAMPLES, sample(1))
            await log.until(lambda log: log.values() == {1})
            assert works.popen.poll() is None

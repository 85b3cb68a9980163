"""SASL, TLS, mutual TLS and permissions, on a broker that enforces them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.kafkaclients import reader
from schemas import topics
from streams.decider.tail import Exit
from tests.kafka.granting import grant
from tests.kafka.secured import Secured, scram, secured_broker
from tests.kit.decider_process import Decider
from tests.patience import PATIENCE_S


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured_broker(tmp_path / "kafka", ["decider"]) as found:
        yield found


def worker(secured: Secured, folder: Path, *lines: str) -> Decider:
    """A decider with this `client.properties`."""
    properties = secured.properties(folder / "client.properties", *lines)
    arguments = ("--kafka-config", str(properties))
    return Decider(secured.broker.bootstrap, folder / "decider.txt", *arguments, session_timeout_s=8)


async def test_a_decider_with_a_client_certificate_owns_partitions(secured: Secured, tmp_path: Path) -> None:
    await grant(secured.admin, "decider", "User:decider")
    certificate = secured.authority.issue("decider")
    lines = ("security.protocol=SSL", f"ssl.keystore.location={certificate}", "ssl.keystore.type=PEM")
    secured.broker.ports["port"] = secured.broker.ports["mutual"]
    with worker(secured, tmp_path, *lines) as running:
        await _until(running, "owning log partitions")


async def test_plain_over_tls_reads(secured: Secured) -> None:
    settings = replace(secured.admin, sasl_mechanism="PLAIN", username="plain", password="plain-secret")
    async with reader(settings) as consumer:
        assert topics.LOG not in await consumer.topics()  # signed in, and allowed nothing


@pytest.mark.parametrize(
    ("withheld", "code", "text"),
    [
        pytest.param(topics.LOG, Exit.DENIED, "fleethpa.log", id="the log"),
        pytest.param(topics.DECISIONS, Exit.DENIED, "fleethpa.decisions", id="the decisions"),
        pytest.param(topics.DECIDER_APP_ID, Exit.DENIED, "group fleethpa-decider", id="the group"),
    ],
)
async def test_a_denied_permission_is_an_error_in_words_and_not_a_hang(
    secured: Secured, tmp_path: Path, withheld: str, code: Exit, text: str
) -> None:
    await grant(secured.admin, "decider", "User:decider", withheld=withheld)
    with worker(secured, tmp_path, *scram("decider")) as running:
        assert await asyncio.to_thread(running.process.wait, 180) == code, running.tail()
        assert text in running.tail()
        assert "fleethpa admin topics acls" in running.tail()


async def test_a_wrong_password_is_an_error_in_words(secured: Secured, tmp_path: Path) -> None:
    with worker(secured, tmp_path, *scram("decider", "wrong")) as running:
        assert await asyncio.to_thread(running.process.wait, 180) == Exit.STALLED, running.tail()
        assert "cannot use the brokers" in running.tail()


async def _until(running: Decider, text: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while text not in running.tail():
            assert not running.ended, running.tail()
            await asyncio.sleep(0.1)

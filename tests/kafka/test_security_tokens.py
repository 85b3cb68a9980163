"""OAUTHBEARER on a broker that ends a connection with its token: nothing is lost, and the decisions are the same."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka.errors import KafkaConnectionError

from runtime.kafkaclients import reader, running_producer
from schemas.connection import KafkaSettings
from streams.decider.tail import Exit
from tests.kafka.broker import JAVA, KafkaBroker
from tests.kafka.conftest import PARTITIONS, make_topics, playback_topics
from tests.kafka.granting import grant
from tests.kafka.secured import broker_with
from tests.kit.decider_process import Decider, append_log, first_difference, wait_for_decisions
from tests.kit.issuer import AUDIENCE, Issuer
from tests.kit.playback import TimedRecord, fold, make_log
from tests.patience import PATIENCE_S

LIFETIME_S = 6
LOGINS = """sasl.enabled.mechanisms=OAUTHBEARER
listener.name.sasl_ssl.oauthbearer.connections.max.reauth.ms=3600000
listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.sasl_ssl.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.oauthbearer.clock.skew.seconds=0
"""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    secrets = {name: f"{name}-secret" for name in ("decider", "admin", "setup")}
    with Issuer(secrets, LIFETIME_S, lasting=("setup",)) as running:
        yield running


@pytest.fixture
async def broker(issuer: Issuer, tmp_path: Path) -> AsyncIterator[KafkaBroker]:
    keys = f"{issuer.url}/keys"
    trust = f"sasl.oauthbearer.jwks.endpoint.url={keys}\nsasl.oauthbearer.expected.audience={AUDIENCE}\n"
    java = (*JAVA, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}")
    owners = "super.users=User:broker;User:admin;User:setup\n"
    with broker_with(tmp_path / "kafka", LOGINS + trust + owners, java=java) as (running, _):
        yield running


def client(broker: KafkaBroker, issuer: Issuer, name: str) -> KafkaSettings:
    return KafkaSettings(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        username=name,
        password=f"{name}-secret",
        token_endpoint=f"{issuer.url}/token",
        cafile=str(broker.folder / "ca.pem"),
    )


def worker(settings: KafkaSettings, folder: Path) -> Decider:
    """A decider with these settings in a `client.properties`."""
    login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    lines = (
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        f"sasl.oauthbearer.token.endpoint.url={settings.token_endpoint}",
        f'sasl.jaas.config={login} clientId="{settings.username}" clientSecret="{settings.password}";',
        f"ssl.truststore.location={settings.cafile}",
    )
    properties = folder / "client.properties"
    properties.write_text("\n".join(lines))
    arguments = ("--playback", "--kafka-config", str(properties))
    return Decider(settings.bootstrap_servers, folder / "decider.txt", *arguments, session_timeout_s=8)


@pytest.mark.slow
async def test_tokens_end_during_a_run_and_the_decisions_are_those_of_a_fold(
    broker: KafkaBroker, issuer: Issuer, tmp_path: Path
) -> None:
    admin = client(broker, issuer, "admin")
    # Where the machine is busy, what makes topics may take longer than a token that ends during the run.
    setup = client(broker, issuer, "setup")
    await make_topics(setup, playback_topics(PARTITIONS))
    await grant(setup, "decider", "User:decider")
    log = make_log(partitions=PARTITIONS, minutes=6, hpas=4, seed=7)
    want = fold(log)
    pieces = 6
    with worker(client(broker, issuer, "decider"), tmp_path) as running:
        async with running_producer(admin) as producer:
            for piece in range(pieces):
                await append_log(producer, {n: slice_of(records, piece, pieces) for n, records in log.items()})
                await until_given(issuer, "decider", issuer.given.count("decider") + 1, running)
        got = await wait_for_decisions(admin, want, [running])
        assert first_difference(want, got) == ""
        assert issuer.given.count("decider") >= pieces
        assert issuer.given.count("admin") > 2
        assert running.terminate() == 0


async def test_a_secret_that_the_issuer_does_not_know_is_an_error_in_words(
    broker: KafkaBroker, issuer: Issuer, tmp_path: Path
) -> None:
    wrong = replace(client(broker, issuer, "decider"), password="wrong")
    with pytest.raises(KafkaConnectionError):
        async with reader(wrong):
            pass
    with worker(wrong, tmp_path) as running:
        assert await asyncio.to_thread(running.process.wait, 180) == Exit.STALLED, running.tail()
        assert "answered 401: invalid_client no such client" in running.tail()


def slice_of(records: Sequence[TimedRecord], piece: int, pieces: int) -> Sequence[TimedRecord]:
    return records[len(records) * piece // pieces : len(records) * (piece + 1) // pieces]


async def until_given(issuer: Issuer, name: str, count: int, running: Decider) -> None:
    """Wait until the issuer has given a client this many tokens."""
    async with asyncio.timeout(PATIENCE_S):
        while issuer.given.count(name) < count:
            assert not running.ended, running.tail()
            await asyncio.sleep(0.1)

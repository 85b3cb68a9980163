"""SASL, TLS, mutual TLS and permissions, on a broker that enforces them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from schemas import topics
from schemas.connection import KafkaSettings
from streams import topics as admin
from streams.decider.exits import Exit
from streams.kafka import reader
from tests.decider_process import Decider
from tests.kafka.broker import KafkaBroker
from tests.kafka.certificates import Authority
from tests.kafka.conftest import make_topics

LISTENERS = """
listeners=SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{mutual},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=SASL_SSL://127.0.0.1:{port},SSL://127.0.0.1:{mutual}
listener.security.protocol.map=SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:SSL
inter.broker.listener.name=SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
ssl.client.auth=required
listener.name.sasl_ssl.ssl.client.auth=none
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/
sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_plain="plain-secret";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:broker;User:admin
"""


@dataclass
class Secured:
    """A broker with security on, and how its administrator gets in."""

    broker: KafkaBroker
    admin: KafkaSettings
    certificate: Path


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
    folder = tmp_path / "kafka"
    folder.mkdir()
    authority = Authority(folder)
    authority.issue("broker")
    users = {"admin": "admin-secret", "decider": "decider-secret"}
    with KafkaBroker(folder, listeners=LISTENERS, extra_ports=("mutual",), scram=users) as broker:
        settings = KafkaSettings(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_SSL",
            username="admin",
            password="admin-secret",
            cafile=str(authority.cafile),
        )
        await make_topics(settings, admin.wanted(4, 1))
        yield Secured(broker, settings, authority.issue("decider"))


def worker(secured: Secured, folder: Path, *lines: str) -> Decider:
    """A decider with this `client.properties`."""
    text = [f"ssl.truststore.location={secured.admin.cafile}", "ssl.truststore.type=PEM", *lines]
    (folder / "client.properties").write_text("\n".join(text))
    arguments = ("--client-properties", str(folder / "client.properties"))
    return Decider(secured.broker.bootstrap, folder / "decider.txt", *arguments, session_timeout_s=8)


def scram(user: str, password: str) -> tuple[str, ...]:
    """The lines of a SCRAM login."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'sasl.jaas.config={module} required username="{user}" password="{password}";'
    return "security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", login


async def test_a_decider_with_its_least_permissions_ticks_and_writes(secured: Secured, tmp_path: Path) -> None:
    await admin.grant(secured.admin, "decider", "User:decider")
    with worker(secured, tmp_path, *scram("decider", "decider-secret")) as running:
        await _until(running, "owning log partitions")
        assert await asyncio.to_thread(running.terminate, 120) == 0, running.tail()


async def test_a_decider_with_a_client_certificate_owns_partitions(secured: Secured, tmp_path: Path) -> None:
    await admin.grant(secured.admin, "decider", "User:decider")
    lines = ("security.protocol=SSL", f"ssl.keystore.location={secured.certificate}", "ssl.keystore.type=PEM")
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
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, withheld: str, code: Exit, text: str
) -> None:
    left = tuple(acl for acl in admin.ACLS["decider"] if acl.name != withheld)
    monkeypatch.setattr(admin, "ACLS", {"decider": left})
    await admin.grant(secured.admin, "decider", "User:decider")
    with worker(secured, tmp_path, *scram("decider", "decider-secret")) as running:
        assert await asyncio.to_thread(running.process.wait, 180) == code, running.tail()
        assert text in running.tail()
        assert "fleethpa topics acls" in running.tail()


async def test_a_wrong_password_is_an_error_in_words(secured: Secured, tmp_path: Path) -> None:
    with worker(secured, tmp_path, *scram("decider", "wrong")) as running:
        assert await asyncio.to_thread(running.process.wait, 180) == Exit.NEEDS_OPERATOR, running.tail()
        assert "cannot use the brokers" in running.tail()


async def _until(running: Decider, text: str) -> None:
    async with asyncio.timeout(180):
        while text not in running.tail():
            assert not running.ended, running.tail()
            await asyncio.sleep(0.1)

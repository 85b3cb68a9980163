"""A broker that enforces TLS, signing in and permissions."""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import topicneeds
from schemas.connection import KafkaSettings
from tests.kafka.broker import KafkaBroker
from tests.kafka.certificates import Authority
from tests.kafka.conftest import PARTITIONS, make_topics

_LISTENERS = """
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
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:broker;User:admin
"""
"""Of every secured broker: TLS with its own certificate, and permissions."""
LOGINS = """sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_plain="plain-secret";
"""
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@contextmanager
def broker_with(folder: Path, logins: str = LOGINS, **more: Any) -> Iterator[tuple[KafkaBroker, Authority]]:
    """A broker that enforces TLS and permissions, and signs its clients in by these lines of its configuration."""
    folder.mkdir()
    authority = Authority(folder)
    authority.issue("broker")
    with KafkaBroker(folder, listeners=_LISTENERS + logins, extra_ports=("mutual",), **more) as broker:
        yield broker, authority


@dataclass
class Secured:
    """A broker with security on, and how its administrator gets in. The password of a user is its name + `-secret`."""

    broker: KafkaBroker
    admin: KafkaSettings
    authority: Authority

    def properties(self, path: Path, *lines: str) -> Path:
        """Write a `client.properties` that trusts the broker."""
        trust = (f"ssl.truststore.location={self.authority.cafile}", "ssl.truststore.type=PEM")
        path.write_text("\n".join((*trust, *lines, "")))
        return path


@asynccontextmanager
async def secured_broker(folder: Path, users: Iterable[str], **more: Any) -> AsyncIterator[Secured]:
    """The broker with all topics; the users may do nothing yet. `more`: as `KafkaBroker`."""
    passwords = {name: f"{name}-secret" for name in ("admin", *users)}
    with broker_with(folder, scram=passwords, **more) as (broker, authority):
        settings = KafkaSettings(
            bootstrap_servers=broker.bootstrap,
            security_protocol="SASL_SSL",
            username="admin",
            password=passwords["admin"],
            cafile=str(authority.cafile),
        )
        await make_topics(settings, topicneeds.wanted(PARTITIONS, 1))
        yield Secured(broker, settings, authority)


def scram(user: str, password: str = "") -> tuple[str, ...]:
    """The lines of a SCRAM login."""
    login = f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password or f"{user}-secret"}";'
    return "security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", login

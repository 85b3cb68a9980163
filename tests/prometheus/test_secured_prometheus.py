"""A real Prometheus that wants TLS with the certificate of a client, and a user with a password."""

import shutil
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reconciler.clusters.answers import ApiError, ClusterError, NoAnswerError
from reconciler.prometheus.connections import parse_prometheus_file
from reconciler.prometheus.promclient import PromClient
from tests.kafka.certificates import Authority
from tests.prometheus.server import Access, Prometheus, scraping

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="NO PROMETHEUS: there is no binary on the PATH"),
]

PASSWORD = "s3cret"
PASSWORD_HASH = "$2b$04$QkRVAKuuid9JFPyudvRsNuuC84WDo9e3/xCRSwPqndaM4vfrBLQMS"
"""Of the password, by bcrypt with its lowest cost."""
RULES = Path("tests/data/prometheus/documentation.yaml").resolve()


@asynccontextmanager
async def secured(folder: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus whose files are in the folder: `ca.pem`, `hub.pem` and `password` are those of its client."""
    authority = Authority(folder)
    server, client = authority.issue("prometheus"), authority.issue("hub")
    (folder / "password").write_text(f"{PASSWORD}\n")
    web_config = folder / "web.yml"
    web_config.write_text(
        f"""
tls_server_config:
  cert_file: {server}
  key_file: {server}
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: {authority.cafile}
basic_auth_users: {{hub: "{PASSWORD_HASH}"}}
"""
    )
    context = ssl.create_default_context(cafile=str(authority.cafile))
    context.load_cert_chain(client)
    access = Access(web_config, context, aiohttp.encode_basic_auth("hub", PASSWORD))
    async with scraping(folder, _nothing, access) as made:
        yield made


def _nothing(_: float) -> Iterable[str]:
    return ()


BASIC = {"username": "hub", "passwordFile": "password"}
TLS = {"caFile": "ca.pem", "certFile": "hub.pem", "keyFile": "hub.pem"}


async def _asked(server: Prometheus, folder: Path, settings: dict[str, Any]) -> list[float]:
    cluster = {"url": server.url, "rules": str(RULES), "sources": {}, "timeout": "5s", **settings}
    text = str({"clusters": {"east": cluster}})
    found = parse_prometheus_file(text, "prometheus.yaml", lambda path: Path(path).read_text(), str(folder))
    client = PromClient(found.clusters["east"])
    try:
        return [sample.number for sample in (await client.query("vector(42)")).samples]
    finally:
        await client.close()


async def test_tls_with_a_private_authority_a_clients_certificate_and_a_password(tmp_path: Path) -> None:
    async with secured(tmp_path) as server:
        assert await _asked(server, tmp_path, {"basic": BASIC, "tls": TLS}) == [42.0]
        assert await _asked(
            server, tmp_path, {"basic": BASIC, "tls": {**TLS, "caFile": "", "insecureSkipVerify": True}}
        ) == [42.0]
        (tmp_path / "wrong").write_text("guess\n")
        refusals: list[tuple[dict[str, Any], type[ClusterError], str]] = [
            ({"tls": TLS}, ApiError, "HTTP status 401"),
            ({"basic": {**BASIC, "passwordFile": "wrong"}, "tls": TLS}, ApiError, "HTTP status 401"),
            ({"basic": BASIC, "tls": {**TLS, "caFile": ""}}, NoAnswerError, "certificate verify failed"),
            ({"basic": BASIC, "tls": {**TLS, "serverName": "other.example"}}, NoAnswerError, "Hostname mismatch"),
            ({"basic": BASIC, "tls": {"caFile": "ca.pem"}}, NoAnswerError, "(?i)bad.certificate|certificate.required"),
        ]
        for settings, error, words in refusals:
            with pytest.raises(error, match=words):
                await _asked(server, tmp_path, settings)

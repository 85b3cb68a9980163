"""What a kubeconfig says about who asks: every request is made so, or the file is refused by the field's name."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives import serialization

from fleethpa.lab.simulator.cluster import local_identity
from reconciler.clusters.answers import ConfigError
from reconciler.clusters.client import ClusterClient, ClusterConfig
from reconciler.clusters.credentials import Credentials
from reconciler.observer.httpconnections import HttpConnection
from reconciler.prometheus.connections import PromConnection
from reconciler.prometheus.promclient import PromClient
from reconciler.prometheus.promrules import PromRules
from tests.kafka.certificates import Authority

MARKER = "Zq7marker"
AUTHORITY = {"certificate-authority-data": base64.b64encode(local_identity().certificate_pem).decode()}
"""That of `Asked`."""


class Asked:
    """A server that keeps the headers of every request."""

    def __init__(self) -> None:
        self.headers: list[dict[str, list[str]]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.headers.append({name.lower(): request.headers.getall(name) for name in request.headers})
        return web.json_response({"metadata": {"resourceVersion": "1"}})


@pytest.fixture
async def asked() -> AsyncIterator[Asked]:
    found, app = Asked(), web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    server = TestServer(app, scheme="https")
    await server.start_server(ssl=local_identity().context)
    found.url = str(server.make_url("/"))
    yield found
    await server.close()


def _client(folder: Path, user: dict[str, Any], server: str, **changes: Any) -> ClusterClient:
    document = {
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server} | changes}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return ClusterClient(ClusterConfig("prod", str(path), "prod"))


async def test_every_request_is_made_as_the_one_who_is_impersonated(tmp_path: Path, asked: Asked) -> None:
    user = {"token": "t", "as": "bot", "as-groups": ["a", "b"], "as-uid": "7", "as-user-extra": {"x/y": ["1", "2"]}}
    client = _client(tmp_path, user, asked.url, **AUTHORITY)
    try:
        await client.get("/api/v1/pods")  # by libcurl
        await client.put("/api/v1/pods/a", {})
        await client.request("POST", "/api/v1/pods", body={})  # by aiohttp
        await client.request("DELETE", "/api/v1/pods/a")
        async for _ in client.watch("/api/v1/pods?watch=1", silence_s=5):
            break
    finally:
        await client.close()
    assert len(asked.headers) == 5
    for headers in asked.headers:
        assert headers["authorization"] == ["Bearer t"]
        assert headers["impersonate-user"] == ["bot"]
        assert headers["impersonate-group"] == ["a", "b"]
        assert headers["impersonate-uid"] == ["7"]
        assert headers["impersonate-extra-x%2fy"] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "inline", "sent"),
    [
        pytest.param("from-file\n", "", "from-file", id="a final newline"),
        pytest.param("  from-file \r\n\n", "", "from-file", id="blanks around it"),
        pytest.param("from-file\n", "inline", "from-file", id="the file comes first"),
        pytest.param(None, "inline", "inline", id="without the file, the other one"),
    ],
)
async def test_a_token_file_is_read_as_client_go_does(
    tmp_path: Path, asked: Asked, text: str | None, inline: str, sent: str
) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
    client = _client(tmp_path, {"tokenFile": str(file), "token": inline}, asked.url, **AUTHORITY)
    try:
        await client.get("/api")
    finally:
        await client.close()
    assert asked.headers[0]["authorization"] == [f"Bearer {sent}"]


@pytest.mark.parametrize(
    ("user", "cluster", "reason"),
    [
        pytest.param({"as-groups": ["g"]}, {}, "user.as-groups needs user.as", id="groups of nobody"),
        pytest.param({"actAs": MARKER}, {}, "user.actAs is not a field", id="an unknown field"),
        pytest.param({}, {"ca": MARKER}, "cluster.ca is not a field", id="an unknown field of the cluster"),
        pytest.param({}, {"proxy-url": "socks5://h:1"}, "cluster.proxy-url: socks5://… is not", id="SOCKS"),
        pytest.param({"auth-provider": {"name": "azure"}}, {}, "user.auth-provider 'azure'", id="a provider of before"),
        pytest.param(
            {"auth-provider": {"name": "gcp"}}, {}, r".*exec \(gke-gcloud-auth-plugin\)", id="another of before"
        ),
        pytest.param(
            {},
            {"insecure-skip-tls-verify": True, "certificate-authority-data": "YQ=="},
            "cluster.insecure-skip-tls-verify contradicts cluster.certificate-authority-data",
            id="an authority that would not be asked",
        ),
        pytest.param({}, {"server": "HTTPS://h"}, "cluster.server must be https://HOST.*lower case", id="upper case"),
        pytest.param(
            {"token": MARKER, "username": "a", "password": MARKER},
            {},
            "user.token and user.username are two identities",
            id="two identities",
        ),
        pytest.param(
            {"tokenFile": "t", "exec": {"command": "a"}}, {}, "user.token and user.exec are two", id="a plugin beside"
        ),
        pytest.param({"username": "a"}, {}, "user.username needs user.password", id="half a name"),
        pytest.param({"tokenFile": "/dev/null"}, {}, "tokenFile /dev/null is empty", id="an empty token"),
        pytest.param({"tokenFile": "/nope"}, {}, "user.tokenFile /nope cannot be read: No such", id="no token's file"),
        pytest.param(
            {"exec": {"command": "nope", "apiVersion": "client.authentication.k8s.io/v1"}},
            {},
            "user.exec.command nope cannot be run: No such",
            id="no plugin",
        ),
        pytest.param(
            {},
            {"certificate-authority": "/nope"},
            "cluster.certificate-authority /nope cannot be read",
            id="no authority's file",
        ),
        pytest.param(
            {}, {"certificate-authority-data": "YQ=="}, "cluster.certificate-authority .* in PEM", id="no PEM"
        ),
        pytest.param(
            {"client-certificate-data": "YQ==", "client-key-data": "YQ=="},
            {},
            "user.client-certificate or user.client-key .* in PEM",
            id="a certificate that is none",
        ),
        pytest.param({"client-key-data": "YQ=="}, {}, "user.client-key needs user.client-cert", id="a key alone"),
        pytest.param({"token": 12}, {}, "user.token must be a text", id="a number as token"),
        pytest.param({"token": [MARKER]}, {}, "user.token must be a text", id="a list as token"),
        pytest.param({"password": {"a": MARKER}}, {}, "user.password must be a text", id="a mapping as password"),
        pytest.param({"exec": {"args": [MARKER]}}, {}, "user.exec.command is missing", id="no command"),
        pytest.param({"exec": {"command": "a", "args": [1]}}, {}, "user.exec.args must be a list of", id="arguments"),
        pytest.param({"exec": {"command": "a", "env": {"A": MARKER}}}, {}, "user.exec.env must be", id="variables"),
        pytest.param({"client-key-data": f"{MARKER}!"}, {}, "user.client-key-data must be base64", id="no base64"),
        pytest.param({}, {"insecure-skip-tls-verify": "false"}, "cluster.insecure-skip-tls-verify", id="a text"),
        pytest.param({}, {"server": ""}, "cluster.server is missing", id="no server"),
        pytest.param({}, {"server": "h:1"}, "cluster.server must be https://HOST", id="no scheme"),
        pytest.param({}, {"server": f"https://u:{MARKER}@h"}, "cluster.server must be https://HOST", id="a password"),
        pytest.param({}, {"server": "https://h:99999"}, "cluster.server must be https://HOST", id="a port"),
        *(
            pytest.param(
                user, {"server": "http://h"}, f"user.{field} is not sent without TLS", id=f"{field} without TLS"
            )
            for field, user in {
                "token": {"token": MARKER},
                "tokenFile": {"tokenFile": "t"},
                "username": {"username": "a", "password": MARKER},
                "client-certificate-data": {"client-certificate-data": "YQ==", "client-key-data": "YQ=="},
                "exec": {"exec": {"command": "a"}},
                "as": {"as": "bot"},
            }.items()
        ),
        pytest.param({}, {"proxy-url": f"http://{MARKER}:x"}, "cluster.proxy-url must be http://HOST", id="a proxy"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_honoured_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], reason: str
) -> None:
    client = _client(tmp_path, user, **{"server": "https://127.0.0.1:9"} | cluster)
    with pytest.raises(ConfigError, match=f"cluster prod: its credentials cannot be loaded: {reason}") as refused:
        await client.get("/api")
    await client.close()
    assert MARKER not in str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param("user: u", "user: ''", "context.user is missing", id="no user in the context"),
        pytest.param("kind: Config", "{kind: Config, apiVersion: v2}", "not YAML", id="no YAML"),
        pytest.param("kind: Config", "apiVersion: v2", "its apiVersion is v2, and not v1", id="another version"),
        pytest.param("user:\n    token: ", "token: ", "Expected key user in users of", id="fields of another level"),
        pytest.param("- name: u", "- alias: u", "`users` must be a list of users, each with a name", id="no name"),
        pytest.param("users:\n", "users:\n- a\n", "`users` must be a list of users, each with a name", id="a text"),
    ],
)
async def test_a_kubeconfig_of_another_shape_is_refused_without_a_part_of_it(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    client = _client(tmp_path, {"token": MARKER}, "http://127.0.0.1:9")
    path = tmp_path / "kubeconfig"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError, match=reason) as refused:
        await client.get("/api")
    await client.close()
    assert MARKER not in str(refused.value)


async def test_relative_paths_are_those_from_the_folder_of_their_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not from the folder of the process, where another file of the name may be, nor from that of a merged file."""
    authority = Authority(tmp_path)
    authority.issue("client")
    document = yaml.safe_load(_CERTIFIED)
    (tmp_path / "one").mkdir()
    one, two = tmp_path / "one" / "kubeconfig", tmp_path / "kubeconfig"
    one.write_text(yaml.safe_dump({name: document[name] for name in ("contexts", "clusters")}))
    (tmp_path / "one" / "authority.pem").write_bytes(authority.cafile.read_bytes())
    two.write_text(yaml.safe_dump({"users": document["users"]}))
    plugin = tmp_path / "plugin"
    plugin.write_text('#!/bin/sh\necho \'{"status": {"token": "ours"}}\'\n')
    plugin.chmod(0o755)
    (tmp_path / "token").write_text("kept")
    monkeypatch.chdir("/")
    for context, token in (("certified", None), ("tokens", "Bearer kept"), ("plugins", "Bearer ours")):
        found, _ = await Credentials(ClusterConfig(context, f"{one}{os.pathsep}{two}", context)).load()
        assert found.ssl_ca_cert == str(tmp_path / "one" / "authority.pem")
        assert found.api_key.get("BearerToken") == token
        assert found.cert_file == (None if token else str(tmp_path / "client.pem"))


_CERTIFIED = """
clusters: [{name: c, cluster: {server: "https://h", certificate-authority: authority.pem}}]
contexts:
- {name: certified, context: {cluster: c, user: certified}}
- {name: tokens, context: {cluster: c, user: tokens}}
- {name: plugins, context: {cluster: c, user: plugins}}
users:
- {name: certified, user: {client-certificate: client.pem, client-key: ./client.pem}}
- {name: tokens, user: {tokenFile: ./token}}
- {name: plugins, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin}}}
"""


async def test_a_user_that_is_not_there_is_not_nobody(tmp_path: Path) -> None:
    client = _client(tmp_path, {}, "http://127.0.0.1:9")
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace("name: u", "name: other"))
    with pytest.raises(ConfigError, match="users: 'u', which the context names, is not there"):
        await client.get("/api")
    await client.close()


async def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    bundle = authority.issue("client")
    key = serialization.load_pem_private_key(bundle.read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"hunter2")
    form = serialization.PrivateFormat.PKCS8
    locked = tmp_path / "locked.pem"
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, encryption))
    user = {"client-certificate": str(bundle), "client-key": str(locked)}
    client = _client(tmp_path, user, "https://127.0.0.1:9", **{"certificate-authority": str(authority.cafile)})
    with pytest.raises(ConfigError, match="the client's private key is encrypted: decrypt it"):
        await client.get("/api")
    await client.close()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks4"])
async def test_a_socks_proxy_of_the_environment_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("http_proxy", f"{scheme}://u:{MARKER}@10.0.0.1:1080")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    client = _client(tmp_path, {}, "http://api.example")
    prometheus = PromClient(PromConnection(HttpConnection("http://prometheus.example"), PromRules(), frozenset()))
    for work in (client.get("/api"), prometheus.query("up")):
        with pytest.raises(
            ConfigError, match=rf"the environment's http_proxy: {scheme}://… is not supported"
        ) as refused:
            await work
        assert MARKER not in str(refused.value)
    await client.close()
    await prometheus.close()

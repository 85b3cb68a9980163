"""One API client per cluster: credentials that change, errors reported as they are, contexts that are named."""

import json
import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.config.kube_config import ConfigNode

from fleethpa.lab.simulator.cluster import kubeconfig, write_kubeconfig
from reconciler.clusters import client as clusters
from reconciler.clusters import credentials
from reconciler.clusters import credentials as execplugin
from reconciler.clusters.answers import ApiError, ConfigError, IdentityError, NoAnswerError, UnreachableError
from reconciler.clusters.client import ClusterClient, ClusterConfig, clusters_of
from tests.kit.clusters import Fault, FaultyCluster, cluster_uid

PODS = "/api/v1/namespaces/default/pods"


async def test_a_token_file_that_is_replaced_is_read_again_after_a_401(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_RELOAD_PAUSE_S", 0.0)
    async with FaultyCluster("east") as sim:
        token = tmp_path / "token"
        token.write_text("old")
        sim.api.tokens = {"old": "fleethpa"}
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"tokenFile": str(token)}), "east"))
        try:
            await client.get(PODS)
            token.write_text("new")
            sim.api.tokens = {"new": "fleethpa"}
            with pytest.raises(ApiError) as refused:
                await client.get(PODS)
            assert refused.value.status == 401
            await client.get(PODS)
        finally:
            await client.close()


async def test_an_exec_plugin_is_run_again_when_its_token_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "TOKEN_PERIOD_S", 0.0)
    async with FaultyCluster("east") as sim:
        reported = tmp_path / "token"
        reported.write_text("first")
        sim.api.tokens = {"first": "fleethpa"}
        plugin = _plugin(tmp_path, _tells(reported))
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        try:
            await client.get(PODS)
            reported.write_text("second")
            sim.api.tokens = {"second": "fleethpa"}
            await client.get(PODS)
        finally:
            await client.close()


async def test_a_plugin_that_fails_is_reported_and_nobody_is_asked_without_credentials(tmp_path: Path) -> None:
    async with FaultyCluster("east") as sim:
        plugin = _plugin(tmp_path, "echo no session >&2; exit 1")
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        try:
            for _ in range(2):
                with pytest.raises(
                    ConfigError, match=r"cluster east: .* exec plugin .*plugin ended with 1: no session"
                ):
                    await client.get(PODS)
            assert not sim.api.audit
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param("echo '{}'", "wrote no ExecCredential with a status", id="an object without a status"),
        pytest.param("echo '{\"status\":{}}'", "gave neither a token nor a certificate", id="an empty status"),
        pytest.param("echo token", "cannot be loaded", id="no JSON"),
        pytest.param("exit 3", "ended with 3: no message", id="a failure without a word"),
    ],
)
async def test_a_plugin_that_gives_nothing_is_reported(tmp_path: Path, body: str, says: str) -> None:
    async with FaultyCluster("east") as sim:
        plugin = _plugin(tmp_path, body)
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        with pytest.raises(ConfigError, match=says):
            await client.get(PODS)


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_plugin_is_given_the_cluster_if_it_wants_to_know(tmp_path: Path, wanted: bool) -> None:
    async with FaultyCluster("east") as sim:
        reported, token = tmp_path / "reported", tmp_path / "token"
        token.write_text("t")
        sim.api.tokens = {"t": "fleethpa"}
        body = f'echo "$KUBERNETES_EXEC_INFO" > {reported}; {_tells(token)}'
        plugin = _plugin(tmp_path, body) | {"provideClusterInfo": wanted}
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        try:
            await client.get(PODS)
        finally:
            await client.close()
        asked = json.loads(reported.read_text())["spec"]
        cluster = kubeconfig([sim])["clusters"][0]["cluster"]
        assert asked.pop("cluster", None) == (cluster if wanted else None)
        assert asked == {"interactive": False}


async def test_a_plugin_does_not_see_kafkas_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETHPA_KAFKA_PASSWORD", "secret")
    async with FaultyCluster("east") as sim:
        seen, token = tmp_path / "seen", tmp_path / "token"
        token.write_text("t")
        sim.api.tokens = {"t": "fleethpa"}
        plugin = _plugin(tmp_path, f"env > {seen}; {_tells(token)}") | {"env": [{"name": "OWN", "value": "v"}]}
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        try:
            await client.get(PODS)
        finally:
            await client.close()
        assert "OWN=v\n" in seen.read_text()
        assert "secret" not in seen.read_text()


async def test_a_plugin_that_is_not_installed_is_reported(tmp_path: Path) -> None:
    async with FaultyCluster("east") as sim:
        plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        with pytest.raises(ConfigError, match="no-such-plugin"):
            await client.get(PODS)


async def test_a_plugin_that_hangs_is_given_up_and_not_run_for_every_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execplugin, "TIMEOUT_S", 0.3)
    async with FaultyCluster("east") as sim:
        runs = tmp_path / "runs"
        plugin = _plugin(tmp_path, f"echo $$ >> {runs}; exec sleep 30")
        client = ClusterClient(ClusterConfig("east", _with_user(tmp_path, sim, {"exec": plugin}), "east"))
        try:
            for _ in range(3):
                with pytest.raises(ConfigError, match=r"plugin gave no answer within 0\.3 s"):
                    await client.get(PODS)
            [number] = runs.read_text().split()  # it ran once
            with pytest.raises(ProcessLookupError):
                os.kill(int(number), 0)  # and is gone
        finally:
            await client.close()


async def test_a_cluster_whose_address_changes_in_the_kubeconfig_is_followed_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "TOKEN_PERIOD_S", 0.0)
    async with FaultyCluster("east") as old, FaultyCluster("east") as new:
        path = write_kubeconfig(tmp_path / "k", [old])
        client = ClusterClient(ClusterConfig("east", str(path), "east"))
        try:
            await client.get(PODS)
            write_kubeconfig(tmp_path / "k", [new])
            await client.get(PODS)
            await client.get(PODS)
            assert (len(old.api.audit), len(new.api.audit)) == (1, 2)
        finally:
            await client.close()


async def test_a_context_that_leads_to_another_cluster_is_refused_before_anything_else_is_asked_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "TOKEN_PERIOD_S", 0.0)
    async with FaultyCluster("east") as own, FaultyCluster("east") as other:
        path, uid = write_kubeconfig(tmp_path / "k", [own]), cluster_uid(own)
        client = ClusterClient(ClusterConfig("east", str(path), "east"), lambda: uid)
        try:
            await client.get(PODS)
            write_kubeconfig(tmp_path / "k", [other])
            for _ in range(2):
                with pytest.raises(IdentityError, match=f"{uid}, and its .* has UID {cluster_uid(other)}"):
                    await client.put(f"{PODS}/web", {})
            with pytest.raises(IdentityError):
                await anext(client.watch(PODS, silence_s=5))
            assert [(each.verb, each.path) for each in other.api.audit] == [("get", "/api/v1/namespaces/kube-system")]
            write_kubeconfig(tmp_path / "k", [own])
            await client.get(PODS)
        finally:
            await client.close()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_text("clusters: ["), id="half a file"),
        pytest.param(lambda path: path.write_text(""), id="an empty file"),
        pytest.param(lambda path: path.unlink(), id="no file"),
        pytest.param(lambda path: path.write_text("contexts: 7\nclusters: []\nusers: []"), id="no kubeconfig"),
    ],
)
async def test_a_kubeconfig_that_is_just_being_written_costs_nothing_but_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Any
) -> None:
    monkeypatch.setattr(credentials, "TOKEN_PERIOD_S", 0.0)
    async with FaultyCluster("east") as sim:
        path = write_kubeconfig(tmp_path / "k", [sim])
        client, late = (ClusterClient(ClusterConfig("east", str(path), "east")) for _ in range(2))
        try:
            await client.get(PODS)
            damage(path)
            await client.get(PODS)
            with pytest.raises(ConfigError, match="cluster east: its credentials cannot be loaded"):
                await late.get(PODS)
        finally:
            await client.close()
            await late.close()


async def test_a_certificate_that_is_none_is_the_trouble_of_its_cluster_alone(tmp_path: Path) -> None:
    document = {
        "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "AAAA"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": {"token": "t"}}],
    }
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump(document))
    client = ClusterClient(ClusterConfig("a", str(path), "a"))
    with pytest.raises(ConfigError, match="cluster a: its credentials cannot be loaded"):
        await client.get(PODS)


async def test_a_kubeconfig_of_many_clusters_is_parsed_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    merge = credentials._merge

    def counted(paths: Sequence[str]) -> ConfigNode:
        parsed.extend(paths)
        return merge(paths)

    monkeypatch.setattr(credentials, "_merge", counted)
    async with FaultyCluster("east") as east, FaultyCluster("west") as west:
        path = write_kubeconfig(tmp_path / "k", [east, west])
        for _ in range(2):
            for config in clusters_of(str(path)):
                client = ClusterClient(config)
                await client.get(PODS)
                await client.close()
        assert len(parsed) == 1
        path.write_text(path.read_text() + "\n# changed\n")
        client = ClusterClient(clusters_of(str(path))[0])
        await client.get(PODS)
        await client.close()
        assert len(parsed) == 2


async def test_the_connection_of_a_watch_is_kept_alive_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []

    class Noted(socket.socket):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            opened.append(self)

    async with FaultyCluster("east") as sim:
        sim.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        monkeypatch.setattr(socket, "socket", Noted)
        client = ClusterClient(ClusterConfig("east", str(write_kubeconfig(tmp_path / "k", [sim])), "east"))
        try:
            events = client.watch("/api/v1/namespaces?watch=true", silence_s=5.0)
            await anext(events)
            assert any(each.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) for each in opened)
            await events.aclose()  # type: ignore[attr-defined]
        finally:
            await client.close()


async def test_a_watch_of_which_nothing_comes_any_more_ends(tmp_path: Path) -> None:
    async with FaultyCluster("east") as sim:
        sim.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        client = ClusterClient(ClusterConfig("east", str(write_kubeconfig(tmp_path / "k", [sim])), "east"))
        events, began_s = client.watch("/api/v1/namespaces?watch=true", silence_s=0.3), time.monotonic()
        try:
            with pytest.raises(UnreachableError, match=r"watch /api/v1/namespaces\S+: no answer within 0\.3 s"):
                assert [event["type"] async for event in events] == []
            assert time.monotonic() - began_s >= 0.3
        finally:
            await client.close()


async def test_troubles_are_reported_as_what_they_are(tmp_path: Path) -> None:
    async with FaultyCluster("east") as sim:
        client = ClusterClient(ClusterConfig("east", str(write_kubeconfig(tmp_path / "k", [sim])), "east"))
        try:
            number = sim.add_fault(Fault(action="hang"))
            with pytest.raises(NoAnswerError, match=r"no answer within 0\.2 s") as hung:
                await client.get(PODS, timeout_s=0.2)
            assert hung.value.was_connected
            sim.clear_faults(number)
            sim.add_fault(Fault(status=429, retry_after_s=7, message="slow down", remaining=1))
            with pytest.raises(ApiError, match="slow down") as throttled:
                await client.get(PODS)
            assert (throttled.value.status, throttled.value.retry_after_ms) == (429, 7_000)
            with pytest.raises(ApiError) as missing:
                await client.get(f"{PODS}/nobody")
            assert (missing.value.reason, str(missing.value)) == ("NotFound", 'pods "nobody" not found')
            await sim.stop_api(abort=True)
            with pytest.raises(NoAnswerError):
                await client.get(PODS)
            with pytest.raises(NoAnswerError) as refused:
                await client.get(PODS)
            assert not refused.value.was_connected
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("fault", "timeout_s", "says"),
    [
        pytest.param({"status": 429, "retry_after_s": 1, "remaining": 1}, 5.0, "", id="throttled once"),
        pytest.param({"status": 503, "retry_after_s": 1, "remaining": 1}, 5.0, "", id="busy once, and says until when"),
        pytest.param({"status": 503, "remaining": 1}, 5.0, "not now", id="busy, and does not say until when"),
        pytest.param({"status": 429, "retry_after_s": 9}, 0.5, "not now", id="throttled for longer than there is time"),
    ],
)
async def test_a_server_that_says_when_to_ask_again_is_asked_again_then(
    tmp_path: Path, fault: dict[str, Any], timeout_s: float, says: str
) -> None:
    async with FaultyCluster("east") as sim:
        client = ClusterClient(ClusterConfig("east", str(write_kubeconfig(tmp_path / "k", [sim])), "east"))
        sim.add_fault(Fault(**fault, message="not now"))
        try:
            if says:
                with pytest.raises(ApiError, match=says):
                    await client.get_patiently(PODS, timeout_s=timeout_s)
                assert len(sim.api.audit) == 1
            else:
                assert (await client.get_patiently(PODS, timeout_s=timeout_s))["kind"] == "PodList"
                assert [each.code for each in sim.api.audit] == [fault["status"], 200]
        finally:
            await client.close()


async def test_each_cluster_is_asked_with_its_own_credentials(tmp_path: Path) -> None:
    async with FaultyCluster("east") as east, FaultyCluster("west") as west:
        path = write_kubeconfig(tmp_path / "k", [east, west])
        clients = [ClusterClient(cluster) for cluster in clusters_of(str(path))]
        try:
            for client in clients:
                await client.get(PODS)
            assert [client.name for client in clients] == ["east", "west"]
            assert {each.user for each in [*east.api.audit, *west.api.audit]} == {"fleethpa"}
        finally:
            for client in clients:
                await client.close()


@pytest.mark.parametrize(
    ("contexts", "says"),
    [
        pytest.param(("nowhere",), "has no context 'nowhere'; it has a, arn", id="a context that is not there"),
        pytest.param((), "'arn:aws:eks/b' cannot be a cluster's name: rename the context", id="a name with a slash"),
    ],
)
def test_contexts_that_cannot_be_used(tmp_path: Path, contexts: Any, says: str) -> None:
    path = tmp_path / "k"
    path.write_text(yaml.safe_dump({"contexts": [{"name": "a"}, {"name": "arn:aws:eks/b"}]}))
    with pytest.raises(ConfigError, match=says):
        clusters_of(str(path), contexts)
    assert [(each.name, each.context) for each in clusters_of(str(path), ("a", "a"))] == [("a", "a")]


@pytest.mark.parametrize("text", ["- not: a mapping", "a: [", None])
def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "k"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        clusters_of(str(path))


def _plugin(folder: Path, body: str) -> dict[str, Any]:
    script = folder / "plugin"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o700)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}


def _tells(token: Path) -> str:
    return (
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"%s"}}}}\' "$(cat {token})"'
    )


def _with_user(folder: Path, sim: FaultyCluster, user: dict[str, Any]) -> str:
    document = kubeconfig([sim])
    document["users"] = [{"name": "east", "user": user}]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)

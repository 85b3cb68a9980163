"""Every documented key of a kubeconfig, Argo CD's Secret and a ClusterProfile is used, harmless, or refused."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from reconciler.core import clusterkeys as keys
from reconciler.core.foundclusters import (
    NOTHING_ALLOWED,
    AccessProvider,
    Allowed,
    FindingError,
    Member,
    from_argocd_secret,
    from_cluster_profile,
    from_kubeconfig,
    vetted,
)

DOCUMENTED = {
    "KUBECONFIG": "kind apiVersion preferences clusters users contexts current-context extensions",
    "CLUSTER": "server tls-server-name insecure-skip-tls-verify certificate-authority certificate-authority-data "
    "proxy-url disable-compression extensions",
    "USER": "client-certificate client-certificate-data client-key client-key-data token tokenFile as as-uid as-groups "
    "as-user-extra username password auth-provider exec extensions",
    "EXEC": "command args env apiVersion installHint provideClusterInfo interactiveMode",
    "CONTEXT": "cluster user namespace extensions",
    "ARGOCD_DATA": "name server config namespaces clusterResources project shard",
    "ARGOCD_CONFIG": "username password bearerToken tlsClientConfig awsAuthConfig execProviderConfig "
    "disableCompression proxyUrl",
    "ARGOCD_TLS": "insecure serverName certData keyData caData",
    "ARGOCD_AWS": "clusterName roleARN profile",
    "ARGOCD_EXEC": "command args env apiVersion installHint",
    "ACCESS_PROVIDER": "name cluster",
}
"""The keys as the sources named in `clusterkeys` document them."""
MARKER = "Zq7marker"
CLUSTER: dict[str, Any] = {"server": "https://api:6443", "certificate-authority-data": "Y2E="}


@pytest.mark.parametrize("table", DOCUMENTED)
def test_each_documented_key_has_its_place_in_the_table(table: str) -> None:
    found: Mapping[str, str] = getattr(keys, table)
    assert set(found) == set(DOCUMENTED[table].split())
    assert set(found.values()) <= {keys.USED, keys.HARMLESS}


def _kubeconfig(
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    **top: Any,
) -> list[Member]:
    document = {
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": CLUSTER | (cluster or {})}],
        "users": [{"name": "u", "user": {"token": "t"} | (user or {})}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"} | (context or {})}],
    }
    return from_kubeconfig(json.dumps(document | top), "Secret s/k", "east")


def _argocd(config: dict[str, Any] | None = None, **data: str) -> list[Member]:
    texts = {"server": "https://api:6443", "name": "east", "config": json.dumps({"bearerToken": "t"} | (config or {}))}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in (texts | data).items()}
    return from_argocd_secret({"metadata": {"namespace": "argocd", "name": "east"}, "data": encoded})


def _profile(cluster: dict[str, Any] | None = None, **provider: Any) -> list[Member]:
    offer = {"name": "p", "cluster": CLUSTER | (cluster or {})} | provider
    profile = {"metadata": {"namespace": "fleet", "name": "east"}, "status": {"accessProviders": [offer]}}
    return from_cluster_profile(profile, [AccessProvider("p", {"command": "get-token"})])


def _reason(make: Callable[[], list[Member]], allowed: Allowed = NOTHING_ALLOWED) -> str:
    try:
        return vetted(make()[0], allowed).config.refused
    except FindingError as error:
        return str(error)


PARTS: dict[str, tuple[Callable[[dict[str, Any]], list[Member]], str]] = {
    "a kubeconfig": (lambda each: _kubeconfig(**each), "Secret s/k: "),
    "its cluster": (lambda each: _kubeconfig(cluster=each), "Secret s/k: cluster."),
    "its user": (lambda each: _kubeconfig(user=each), "Secret s/k: user."),
    "its context": (lambda each: _kubeconfig(context=each), "Secret s/k: context."),
    "its plugin": (lambda each: _kubeconfig(user={"exec": {"command": "x"} | each}), "Secret s/k: user.exec."),
    "Argo CD's Secret": (lambda each: _argocd(None, **each), "Secret argocd/east: data."),
    "its configuration": (lambda each: _argocd(each), "Secret argocd/east: data.config: "),
    "its TLS": (lambda each: _argocd({"tlsClientConfig": each}), "Secret argocd/east: data.config: tlsClientConfig."),
    "its AWS": (
        lambda each: _argocd({"awsAuthConfig": {"clusterName": "e"} | each}),
        "Secret argocd/east: data.config: awsAuthConfig.",
    ),
    "its exec": (
        lambda each: _argocd({"execProviderConfig": {"command": "e"} | each}),
        "Secret argocd/east: data.config: execProviderConfig.",
    ),
    "a ClusterProfile's cluster": (lambda each: _profile(each), "ClusterProfile fleet/east: cluster."),
    "its provider": (lambda each: _profile(None, **each), "ClusterProfile fleet/east: status.accessProviders: p: "),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_key_that_is_not_in_the_table_is_refused_by_name_and_its_value_is_not_shown(part: str) -> None:
    make, where = PARTS[part]
    reason = _reason(lambda: make({"impersonate-as": MARKER}))
    assert reason.startswith(f"{where}impersonate-as is not a field that fleethpa knows")
    assert MARKER not in reason


@pytest.mark.parametrize(
    ("user", "field"),
    [
        pytest.param({"as-groups": ["g"]}, "as-groups", id="groups of nobody"),
        pytest.param({"as-uid": "7"}, "as-uid", id="a uid of nobody"),
        pytest.param({"as": "a\nb: c"}, "as", id="a second header"),
        pytest.param({"as": "a", "as-groups": "g"}, "as-groups", id="groups as a text"),
        pytest.param({"as": "a", "as-groups": ["g\n"]}, "as-groups", id="a group of two lines"),
        pytest.param({"as": "a", "as-user-extra": {"k": "v"}}, "as-user-extra", id="no list"),
        pytest.param({"as": ["a"]}, "as", id="no text"),
        pytest.param({"username": "a"}, "username", id="no password"),
        pytest.param({"password": MARKER}, "password", id="no name"),
        pytest.param({"client-certificate-data": "Yw=="}, "client-certificate", id="no key"),
        pytest.param({"exec": {"command": "x", "interactiveMode": "Always"}}, "exec.interactiveMode", id="a terminal"),
    ],
)
def test_a_user_that_cannot_be_honoured_is_refused_by_the_fields_name(user: dict[str, Any], field: str) -> None:
    reason = _reason(lambda: _kubeconfig(user=user), Allowed(frozenset({"x"})))
    assert reason.startswith(f"Secret s/k: user.{field}")
    assert MARKER not in reason


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1080", "socks5h://h:1", "SOCKS4://h:1", "ftp://h", "h:3128"])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda proxy: _kubeconfig(cluster={"proxy-url": proxy}), id="a kubeconfig"),
        pytest.param(lambda proxy: _argocd({"proxyUrl": proxy}), id="Argo CD"),
        pytest.param(lambda proxy: _profile({"proxy-url": proxy}), id="a ClusterProfile"),
    ],
)
def test_a_proxy_of_another_kind_is_refused(make: Callable[[str], list[Member]], proxy: str) -> None:
    assert "cluster.proxy-url: " in _reason(lambda: make(proxy), Allowed(frozenset({"get-token"})))
    assert not _reason(lambda: make("http://h:3128"), Allowed(frozenset({"get-token"})))


@pytest.mark.parametrize("field", ["certificate-authority", "insecure-skip-tls-verify"])
def test_a_cluster_profile_is_refused_where_it_asks_for_what_a_found_cluster_may_not(field: str) -> None:
    assert f"cluster.{field}" in _reason(lambda: _profile({field: "/x"}), Allowed(frozenset({"get-token"})))


def test_every_member_of_awsauthconfig_is_passed_on() -> None:
    [found] = _argocd({"awsAuthConfig": {"clusterName": "e", "roleARN": "arn:r", "profile": "p"}})
    assert found.config.document is not None
    plugin = found.config.document["users"][0]["user"]["exec"]
    assert plugin["args"] == ["aws", "--cluster-name", "e", "--role-arn", "arn:r", "--profile", "p"]
    assert "awsAuthConfig.clusterName: Required value" in _reason(lambda: _argocd({"awsAuthConfig": {"profile": "p"}}))


def test_who_is_impersonated_is_said_as_client_go_says_it() -> None:
    extra = {"example.com/a b%": ["1", "2"], "Reason": ["x"]}
    user = {"as": "bot", "as-uid": "7", "as-groups": ["viewers", "other"], "as-user-extra": extra}
    assert keys.impersonation(user) == [
        ("Impersonate-User", "bot"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Group", "viewers"),
        ("Impersonate-Group", "other"),
        ("Impersonate-Extra-example.com%2Fa%20b%25", "1"),
        ("Impersonate-Extra-example.com%2Fa%20b%25", "2"),
        ("Impersonate-Extra-Reason", "x"),
    ]
    assert keys.impersonation({"token": "t"}) == []

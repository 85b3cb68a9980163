"""From files and objects that describe clusters to kubeconfigs: what each contains, and how mistakes are reported."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from reconciler.clusters.clusterfinder import ClusterFinder, ClusterSources, find_once
from reconciler.clusters.credentials import cluster_info, environment
from reconciler.core import foundclusters
from reconciler.core.foundclusters import (
    CLUSTER_LABEL,
    NOTHING_ALLOWED,
    AccessProvider,
    Allowed,
    ClusterConfig,
    FindingError,
    Member,
    checked,
    vetted,
)
from schemas.limits import JSON_DEPTH

Json = dict[str, Any]

PLUGIN: Json = {"apiVersion": "client.authentication.k8s.io/v1", "command": "reader", "provideClusterInfo": True}
READER = AccessProvider("reader", PLUGIN)


def kubeconfig(*contexts: str, user: Json | None = None) -> str:
    return yaml.safe_dump(
        {
            "contexts": [{"name": each, "context": {"cluster": f"c-{each}", "user": "admin"}} for each in contexts],
            "clusters": [{"name": f"c-{each}", "cluster": {"server": f"https://{each}"}} for each in contexts],
            "users": [{"name": "admin", "user": {"token": "t"} if user is None else user}],
        }
    )


def secret(data: Json, labels: Json | None = None, name: str = "one") -> Json:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"metadata": {"namespace": "fleet", "name": name, "labels": labels or {}}, "data": encoded}


def argocd(config: Json | None = None, **data: str) -> Json:
    return secret({"name": "east", "server": "https://east", "config": json.dumps(config or {})} | data)


def profile(*access: Json, deprecated: tuple[Json, ...] = (), conditions: tuple[Json, ...] = ()) -> Json:
    status = {"accessProviders": list(access), "credentialProviders": list(deprecated), "conditions": list(conditions)}
    return {"metadata": {"namespace": "fleet", "name": "east"}, "status": status}


def offer(name: str = "reader", *extensions: tuple[str, Any], **cluster: Any) -> Json:
    listed = [{"name": key, "extension": value} for key, value in extensions]
    return {"name": name, "cluster": {"server": "https://east", "extensions": listed} | cluster}


def user_of(found: list[Member]) -> Json:
    [one] = found
    assert one.config.document is not None
    assert one.config.document["contexts"] == [
        {"name": one.config.name, "context": {"cluster": one.config.name, "user": one.config.name}}
    ]
    user: Json = one.config.document["users"][0]["user"]
    return user


def cluster_of(found: list[Member]) -> Json:
    [one] = found
    assert one.config.document is not None
    cluster: Json = one.config.document["clusters"][0]["cluster"]
    return cluster


@pytest.mark.parametrize(
    ("text", "file_name", "names"),
    [
        pytest.param(kubeconfig("admin@east"), "east.yaml", ["east"], id="one context is called as its file"),
        pytest.param(kubeconfig("x"), "east.eu.kubeconfig", ["east.eu"], id="only the ending goes"),
        pytest.param(kubeconfig("x"), "east", ["east"], id="no ending"),
        pytest.param(kubeconfig("east", "west"), "all.yaml", ["east", "west"], id="several are called as contexts"),
        pytest.param(kubeconfig(), "none.yaml", [], id="none"),
    ],
)
def test_clusters_of_a_file(text: str, file_name: str, names: list[str]) -> None:
    found = foundclusters.from_kubeconfig_file(text, file_name)
    assert [each.config.name for each in found] == names
    for each in found:
        assert user_of([each]) == {"token": "t"}


@pytest.mark.parametrize(
    ("labels", "key", "name"),
    [
        pytest.param({"fleethpa.io/cluster": "east"}, "kubeconfig", "east", id="our label"),
        pytest.param({"cluster.x-k8s.io/cluster-name": "east"}, "value", "east", id="Cluster API's label and key"),
        pytest.param({}, "kubeconfig", "one", id="no label: the Secret's name"),
    ],
)
def test_the_cluster_of_a_secret_with_a_kubeconfig(labels: Json, key: str, name: str) -> None:
    found = foundclusters.from_kubeconfig_secret(secret({key: kubeconfig("admin")}, labels))
    assert [each.config.name for each in found] == [name]


@pytest.mark.parametrize(
    ("config", "user", "cluster"),
    [
        pytest.param({"bearerToken": "t"}, {"token": "t"}, {}, id="token"),
        pytest.param({"username": "u", "password": "p"}, {"username": "u", "password": "p"}, {}, id="password"),
        pytest.param(
            {"tlsClientConfig": {"caData": "Y2E=", "certData": "Y2VydA==", "keyData": "a2V5", "serverName": "n"}},
            {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"},
            {"certificate-authority-data": "Y2E=", "tls-server-name": "n"},
            id="certificate",
        ),
        pytest.param(
            {"bearerToken": "t", "tlsClientConfig": {"insecure": True}, "proxyUrl": "http://p"},
            {"token": "t"},
            {"insecure-skip-tls-verify": True, "proxy-url": "http://p"},
            id="insecure, by a proxy",
        ),
        pytest.param(
            {"execProviderConfig": {"command": "c", "args": ["a"], "env": {"K": "v"}, "apiVersion": "x/v1beta1"}},
            {"exec": {"command": "c", "args": ["a"], "env": [{"name": "K", "value": "v"}], "apiVersion": "x/v1beta1"}},
            {},
            id="exec plugin",
        ),
        pytest.param(
            {"awsAuthConfig": {"clusterName": "e", "roleARN": "arn:r"}},
            {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1beta1",
                    "command": "argocd-k8s-auth",
                    "args": ["aws", "--cluster-name", "e", "--role-arn", "arn:r"],
                }
            },
            {},
            id="AWS",
        ),
    ],
)
def test_the_cluster_of_one_of_argo_cds_secrets(config: Json, user: Json, cluster: Json) -> None:
    found = foundclusters.from_argocd_secret(argocd(config))
    assert user_of(found) == user
    assert cluster_of(found) == {"server": "https://east"} | cluster


def test_argo_cds_own_cluster_is_the_one_of_this_process() -> None:
    [found] = foundclusters.from_argocd_secret(argocd(server="https://kubernetes.default.svc", name="in-cluster"))
    assert found.config == ClusterConfig("in-cluster")


@pytest.mark.parametrize(
    ("item", "provider"),
    [
        pytest.param(profile(offer()), "reader", id="access provider"),
        pytest.param(profile(deprecated=(offer(),)), "reader", id="the deprecated field"),
        pytest.param(profile(offer(server="https://new"), deprecated=(offer(),)), "reader", id="the new field counts"),
        pytest.param(profile(offer("other"), offer("second"), offer()), "reader", id="the file's order decides"),
        pytest.param(profile(offer("second")), "second", id="the second of the file"),
    ],
)
def test_a_cluster_profile_is_reached_by_the_first_provider_of_the_file(item: Json, provider: str) -> None:
    second = AccessProvider("second", PLUGIN | {"command": "second"})
    found = foundclusters.from_cluster_profile(item, [READER, second])
    assert user_of(found)["exec"]["command"] == provider
    new = "https://new" in json.dumps(item)
    assert cluster_of(found)["server"] == ("https://new" if new else "https://east")


ARGS = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
ENVS = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
CONFIG = "client.authentication.k8s.io/exec"


@pytest.mark.parametrize(
    ("args_policy", "envs_policy", "args", "envs"),
    [
        pytest.param("", "", ["base"], {"A": "file"}, id="nothing may be added unless the file says so"),
        pytest.param("Ignore", "Ignore", ["base"], {"A": "file"}, id="ignored"),
        pytest.param("Append", "AppendIfNotExists", ["base", "more"], {"A": "file", "B": "profile"}, id="added"),
        pytest.param("", "Replace", ["base"], {"A": "profile", "B": "profile"}, id="replaced"),
    ],
)
def test_a_cluster_profile_adds_to_the_plugin_what_the_policies_allow(
    args_policy: str, envs_policy: str, args: list[str], envs: Json
) -> None:
    plugin = PLUGIN | {"args": ["base"], "env": [{"name": "A", "value": "file"}]}
    provider = AccessProvider("reader", plugin, args_policy, envs_policy)
    more = (ARGS, ["more"]), (ENVS, {"A": "profile", "B": "profile"})
    for _ in range(2):  # the second profile finds the provider as it was
        made = user_of(foundclusters.from_cluster_profile(profile(offer("reader", *more)), [provider]))["exec"]
        assert made["args"] == args
        assert {each["name"]: each["value"] for each in made["env"]} == envs


def test_a_plugin_is_given_the_cluster_as_client_go_gives_it() -> None:
    ca = base64.b64encode(b"ca").decode()
    made = foundclusters.from_cluster_profile(
        profile(offer("reader", (CONFIG, {"clusterName": "east"}), **{"certificate-authority-data": ca})), [READER]
    )
    assert user_of(made)["exec"]["provideClusterInfo"]
    assert cluster_info(cluster_of(made)) == {
        "server": "https://east",
        "certificate-authority-data": ca,
        "config": {"clusterName": "east"},
    }


@pytest.mark.parametrize(
    ("conditions", "trouble"),
    [
        pytest.param((), "", id="none"),
        pytest.param(({"type": "ControlPlaneHealthy", "status": "True"},), "", id="healthy"),
        pytest.param(({"type": "Joined", "status": "False"},), "", id="of another kind"),
        pytest.param(
            ({"type": "ControlPlaneHealthy", "status": "False", "reason": "Down", "message": "no answer"},),
            "ControlPlaneHealthy is False: no answer",
            id="unhealthy",
        ),
        pytest.param(
            ({"type": "ControlPlaneHealthy", "status": "Unknown"},), "ControlPlaneHealthy is Unknown", id="unknown"
        ),
    ],
)
def test_conditions_of_a_cluster_profile(conditions: tuple[Json, ...], trouble: str) -> None:
    [found] = foundclusters.from_cluster_profile(profile(offer(), conditions=conditions), [READER])
    assert found.trouble == trouble


def _read_profile(item: Json) -> list[Member]:
    return foundclusters.from_cluster_profile(item, [READER])


def _read_providers(text: str) -> list[AccessProvider]:
    return foundclusters.providers_of(text, "--clusterprofile-provider-file p")


def _read_file(text: str) -> list[Member]:
    return foundclusters.from_kubeconfig_file(text, "east.yaml")


@pytest.mark.parametrize(
    ("read", "given", "says"),
    [
        pytest.param(_read_file, "a: [", "file east.yaml: not YAML", id="half a file"),
        pytest.param(_read_file, "hello", "must have a list of contexts", id="no kubeconfig"),
        pytest.param(_read_file, "contexts: [{name: x}]", "contexts: each needs 'context'", id="context"),
        pytest.param(
            _read_file,
            "contexts: [{name: x, context: {cluster: c}}]",
            "clusters: 'c', which a context names, is not there",
            id="cluster",
        ),
        pytest.param(foundclusters.from_kubeconfig_secret, secret({}), "Secret fleet/one: data: no key", id="no key"),
        pytest.param(
            foundclusters.from_kubeconfig_secret,
            secret({}) | {"data": {"kubeconfig": "?"}},
            "data.kubeconfig: not text in base64",
            id="no base64",
        ),
        pytest.param(foundclusters.from_argocd_secret, argocd(server=""), "data.server: Required value", id="server"),
        pytest.param(
            foundclusters.from_argocd_secret,
            secret({"server": "s", "config": "{"}),
            "data.config: not JSON",
            id="Argo's JSON",
        ),
        pytest.param(
            foundclusters.from_argocd_secret,
            argocd({"execProviderConfig": {"args": []}}),
            "execProviderConfig.command: Required value",
            id="no command",
        ),
        pytest.param(
            _read_profile,
            profile(offer("google")),
            "ClusterProfile fleet/east: status.accessProviders: has google; the provider file has reader",
            id="no provider",
        ),
        pytest.param(_read_profile, profile(offer(server="")), "cluster.server: Required value", id="no server"),
        pytest.param(_read_profile, {"metadata": {"name": "east"}}, "has none", id="no status yet"),
        pytest.param(_read_providers, "[]", "must be JSON with a list `providers`", id="a list"),
        pytest.param(_read_providers, '{"providers":[{"name":"x"}]}', "providers[0]: needs `name` and", id="no plugin"),
    ],
)
def test_a_mistake_is_reported_with_its_object_and_field(read: Callable[[Any], Any], given: Any, says: str) -> None:
    with pytest.raises(FindingError) as reported:
        read(given)
    assert says in str(reported.value)


def test_a_provider_with_an_unknown_policy_is_reported() -> None:
    provider = AccessProvider("reader", PLUGIN, "Prepend")
    with pytest.raises(FindingError, match="profileSourcedCLIArgsPolicy 'Prepend': not known"):
        foundclusters.from_cluster_profile(profile(offer("reader", (ARGS, ["x"]))), [provider])


@pytest.mark.parametrize(
    ("user", "cluster", "says"),
    [
        pytest.param({"tokenFile": "/proc/1/environ"}, {}, "user.tokenFile names a file", id="a token from a file"),
        pytest.param({"client-key": "/k"}, {}, "put its content into client-key-data", id="a key from a file"),
        pytest.param(
            {"client-certificate": "/c"}, {}, "user.client-certificate names a file", id="a certificate's file"
        ),
        pytest.param(
            {}, {"certificate-authority": "/c"}, "cluster.certificate-authority names", id="an authority's file"
        ),
        pytest.param(
            {}, {"insecure-skip-tls-verify": True}, "--found-insecure-tls", id="a server that is not verified"
        ),
        pytest.param({}, {"server": "http://east"}, "--found-insecure-tls", id="a connection without TLS"),
        pytest.param({}, {"insecure-skip-tls-verify": "no"}, "--found-insecure-tls", id="a text counts as true"),
        pytest.param({"auth-provider": {"name": "gcp"}}, {}, "user.auth-provider is not", id="the pod's own identity"),
        pytest.param({"exec": {"command": "sh"}}, {}, "exec.command 'sh' is not", id="a command"),
        pytest.param({"exec": {"command": "/tmp/aws"}}, {}, "exec.command '/tmp/aws'", id="another file of that name"),
        pytest.param(
            {"exec": {"command": "aws", "env": [{"name": "LD_PRELOAD", "value": "/x"}]}},
            {},
            "user.exec.env 'LD_PRELOAD' is not one of the variables that found clusters may set (AWS_PROFILE)",
            id="a variable that changes what an allowed plugin does",
        ),
    ],
)
def test_a_found_kubeconfig_that_reaches_beyond_itself_is_refused(user: Json, cluster: Json, says: str) -> None:
    document = yaml.safe_load(kubeconfig("east", user=user))
    document["clusters"][0]["cluster"] |= cluster
    [found] = foundclusters.from_kubeconfig_secret(secret({"kubeconfig": yaml.safe_dump(document)}))
    refused = vetted(found, Allowed(frozenset({"aws"}), frozenset({"AWS_PROFILE"}))).config.refused
    assert refused.startswith("Secret fleet/one: ")
    assert says in refused


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"tlsClientConfig": {"insecure": True}}, id="a server that is not verified"),
        pytest.param({"execProviderConfig": {"command": "sh"}}, id="a command"),
        pytest.param({"awsAuthConfig": {"clusterName": "e"}}, id="the pod's identity at AWS"),
    ],
)
def test_an_argo_cd_secret_that_reaches_beyond_itself_is_refused(config: Json) -> None:
    [found] = foundclusters.from_argocd_secret(argocd(config))
    assert vetted(found, NOTHING_ALLOWED).config.refused


def test_a_found_kubeconfig_is_used_as_far_as_it_is_allowed_and_known() -> None:
    plugin = {"command": "aws", "args": ["eks"], "env": [{"name": "AWS_PROFILE", "value": "p"}]}
    text = kubeconfig("east", user={"exec": plugin, "tokenFile": "", "as": "system:admin"})
    [found] = foundclusters.from_kubeconfig_file(text, "east")
    used = vetted(found, Allowed(frozenset({"aws"}), frozenset({"AWS_PROFILE"})))
    assert (used.config.refused, user_of([used])) == ("", {"exec": plugin, "as": "system:admin"})


def test_a_plugin_gets_no_variable_of_this_process_that_it_does_not_need() -> None:
    ours = {"PATH": "/bin", "AWS_ROLE_ARN": "a", "https_proxy": "p", "FLEETHPA_KAFKA_PASSWORD": "s", "MY_SECRET": "s"}
    assert environment(ours) == {"PATH": "/bin", "AWS_ROLE_ARN": "a", "https_proxy": "p"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "{contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: hello}]}", id="text"
        ),
        pytest.param("{contexts: [{name: x, context: {cluster: c}}], clusters: 7}", id="number"),
    ],
)
async def test_a_file_of_an_odd_shape_is_reported_and_ends_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "east").write_text(text)
    members, unreadable = await find_once(ClusterSources(folder=str(tmp_path)))
    assert not members
    assert list(unreadable) == ["east in folder"]


@pytest.mark.parametrize(
    ("user", "cluster", "refusal"),
    [
        pytest.param({"exec": "sh"}, {}, "user.exec must be a mapping", id="a plugin"),
        pytest.param({"token": 5}, {}, "user.token must be a text", id="a token"),
        pytest.param({}, {"insecure-skip-tls-verify": "false"}, "cluster.insecure-skip-tls-verify", id="a text for no"),
        pytest.param({}, {"server": ["https://a"]}, "cluster.server must be a text", id="an address"),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_field(
    user: dict[str, Any], cluster: dict[str, Any], refusal: str
) -> None:
    document = yaml.safe_load(kubeconfig("east", user=user))
    document["clusters"][0]["cluster"] |= cluster
    [found] = foundclusters.from_kubeconfig(yaml.safe_dump(document), "Secret a")
    assert vetted(found, NOTHING_ALLOWED).config.refused.startswith(f"Secret a: {refusal}")


@pytest.mark.parametrize(
    ("before", "there", "problems"),
    [
        pytest.param(
            {},
            {},
            [
                "Secret a: cluster east is named by Secret b, too: neither is used, rename one",
                "Secret b: cluster east is named by Secret a, too: neither is used, rename one",
            ],
            id="none was there",
        ),
        pytest.param(
            {"east": "Secret b"},
            {"east": "Secret b"},
            ["Secret a: cluster east is named by Secret b already: rename one"],
            id="the one that was there stays, whatever the other is called",
        ),
        pytest.param(
            {"east": "Secret c"},
            {},
            [
                "Secret a: cluster east is named by Secret b, too: neither is used, rename one",
                "Secret b: cluster east is named by Secret a, too: neither is used, rename one",
            ],
            id="the one that was there has gone",
        ),
    ],
)
def test_an_object_does_not_take_the_name_of_a_cluster_that_is_served(
    before: dict[str, str], there: dict[str, str], problems: list[str]
) -> None:
    named = (("east", "Secret b"), ("east", "Secret a"), ("east", "Secret a"), ("a/b", "c"))
    found = [Member(ClusterConfig(name), origin) for name, origin in named]
    clusters, shown = checked(found, before)
    assert {name: each.origin for name, each in clusters.items()} == there
    assert shown == ["c: 'a/b' cannot be a cluster's name: use one without a slash", *problems]


def test_a_secret_that_comes_later_does_not_take_a_cluster_over() -> None:
    finder = ClusterFinder(ClusterSources(), lambda what, why: None)

    def take(name: str) -> None:
        item = secret({"kubeconfig": kubeconfig("x")}, {CLUSTER_LABEL: "east"}, name)
        finder._update_object("secrets", item, foundclusters.from_kubeconfig_secret, is_there=True)

    for name in ("prod-kubeconfig", "aaa"):
        take(name)
        assert finder.members()["east"].origin == "Secret fleet/prod-kubeconfig"
    finder._update("secrets", "prod-kubeconfig", None)
    assert finder.members()["east"].origin == "Secret fleet/aaa"


def _nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def _deep_profile(depth: int) -> Json:
    extension: Any = {}
    for _ in range(min(depth, 900)):
        extension = {"a": extension}
    return profile(offer("reader", ("client.authentication.k8s.io/exec", extension)))


@pytest.mark.parametrize("depth", [JSON_DEPTH.most + 2, 900, 5_000, 100_000])
@pytest.mark.parametrize("kind", ["argocd", "kubeconfig", "profile"])
def test_json_that_is_nested_deeply_concerns_its_own_object_alone(depth: int, kind: str) -> None:
    """Base64 of some kilobytes in one Secret would else end observer and reconciler of every cluster."""
    noted: dict[str, str | None] = {}
    finder = ClusterFinder(ClusterSources(), noted.__setitem__)
    item, read = {
        "argocd": (
            secret({"server": "https://a", "config": f'{{"execProviderConfig": {_nested(depth)}}}'}),
            foundclusters.from_argocd_secret,
        ),
        "kubeconfig": (secret({"value": f'{{"contexts": {_nested(depth)}}}'}), foundclusters.from_kubeconfig_secret),
        "profile": (_deep_profile(depth), lambda each: foundclusters.from_cluster_profile(each, [READER])),
    }[kind]
    item["metadata"]["name"] = "deep"
    finder._update_object("s", item, read, is_there=True)
    finder._update_object("s", argocd(name="good"), foundclusters.from_argocd_secret, is_there=True)
    assert set(finder.members()) == {"good"}
    assert "deep" in str(noted["deep in s"])


async def test_a_list_of_an_odd_shape_is_a_trouble_of_its_source(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        path = tmp_path / "inventory"
        path.write_text(kubeconfig("x", user={}).replace("https://x", str(server.make_url("/"))))
        inventory = ClusterConfig("inventory", str(path), "x")
        members, unreadable = await find_once(ClusterSources(argocd="argocd", inventory=inventory))
    assert not members
    assert "cannot be read: KeyError" in next(iter(unreadable.values()))

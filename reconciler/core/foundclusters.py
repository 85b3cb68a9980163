"""From objects that describe clusters to how each is reached: kubeconfigs, Secrets, Argo CD's cluster Secrets and
ClusterProfiles. Pure.

What each function gives is a kubeconfig in memory with one context, named as the cluster, so that credentials are read
in one way wherever they come from.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reconciler.core.clusterkeys import (
    ACCESS_PROVIDER,
    ARGOCD_AWS,
    ARGOCD_CONFIG,
    ARGOCD_DATA,
    ARGOCD_EXEC,
    ARGOCD_TLS,
    CONTEXT,
    KUBECONFIG,
    cluster_refusal,
    key_refusal,
    user_refusal,
)
from schemas.jsontext import read_document
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from schemas.kubernetes.shape import Json, JsonView

CLUSTER_LABEL: Final = "fleethpa.io/cluster"
"""A Secret with this label holds a kubeconfig; the value is the cluster's name in the fleet."""
CLUSTER_API_LABEL: Final = "cluster.x-k8s.io/cluster-name"
"""Cluster API's label of the Secrets with the kubeconfigs that it makes."""
ARGOCD_SELECTOR: Final = "argocd.argoproj.io/secret-type=cluster"
KUBECONFIG_KEYS: Final = ("kubeconfig", "value")
"""Keys of a Secret below which a kubeconfig may be; the second is Cluster API's."""
_IN_CLUSTER_SERVER: Final = "https://kubernetes.default.svc"

_FILES: Final = (
    ("cluster", "certificate-authority", "certificate-authority-data"),
    ("user", "tokenFile", "token"),
    ("user", "client-certificate", "client-certificate-data"),
    ("user", "client-key", "client-key-data"),
)
"""Fields that name a file, and those that take its content, by the part of a kubeconfig."""
_EXEC_API: Final = "client.authentication.k8s.io"
_EXEC_CONFIG: Final = f"{_EXEC_API}/exec"
_MORE_ARGS: Final = "clusterprofiles.multicluster.x-k8s.io/exec/additional-args"
_MORE_ENVS: Final = "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs"
_HEALTHY: Final = "ControlPlaneHealthy"


class FindingError(ValueError):
    """An object does not say how its cluster is reached; the text names the object, the field and what it should be."""


IN_CLUSTER: Final = ""
"""The context name that means the pod's own service account."""


@dataclass(frozen=True)
class ClusterConfig:
    """How to reach one cluster: its name in the fleet, the kubeconfig and the context in it (empty: in-cluster).

    `document`: a kubeconfig in memory, which takes the place of the file. `refused`: why it must not be used, which
    is then the error of every request; empty: it may.
    """

    name: str
    kubeconfig: str = ""
    context: str = IN_CLUSTER
    document: JsonView | None = None
    refused: str = ""


@dataclass(frozen=True)
class Member:
    """A cluster of the fleet as it is named now.

    `origin`: the object or file that names it, for messages; empty: an option does. `trouble`: what its object says is
    wrong with it; empty: nothing.
    """

    config: ClusterConfig
    origin: str = ""
    trouble: str = ""


@dataclass(frozen=True)
class Allowed:
    """What the operator lets the kubeconfigs of found clusters do, which others may write than the operator.

    `exec_plugins`: commands that they may run in this process' container; `exec_env`: variables that they may set for
    these. `insecure_tls`: whether a connection may go without verification of the server.
    """

    exec_plugins: frozenset[str] = frozenset()
    exec_env: frozenset[str] = frozenset()
    insecure_tls: bool = False


NOTHING_ALLOWED: Final = Allowed()
NOBODY: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class AccessProvider:
    """A provider of `--clusterprofile-provider-file`: how credentials are got by an exec plugin.

    `args_policy`, `envs_policy`: whether a ClusterProfile may add arguments and variables.
    """

    name: str
    exec_config: JsonView
    args_policy: str = ""
    envs_policy: str = ""


def checked(found: Iterable[Member], holders: Mapping[str, str] = NOBODY) -> tuple[dict[str, Member], list[str]]:
    """The clusters by name, and what is wrong.

    Of several objects that name one cluster the one that named it before stays (`holders`: name → origin); if none of
    them did, neither counts: whoever may write one of them would else take the cluster over.
    """
    named: dict[str, list[Member]] = {}
    problems = []
    for each in sorted(found, key=lambda one: one.origin):
        name = each.config.name
        if not name or "/" in name or name == "*":
            problems.append(f"{each.origin}: {name!r} cannot be a cluster's name: use one without a slash")
        elif each not in named.setdefault(name, []):  # one object may be found by two labels
            named[name].append(each)
    clusters = {}
    for name, members in named.items():
        holder = members[0] if len(members) == 1 else next((e for e in members if e.origin == holders.get(name)), None)
        if holder is not None:
            clusters[name] = holder
        for other in members:
            if holder is None:
                others = ", ".join(each.origin for each in members if each is not other)
                problems.append(
                    f"{other.origin}: cluster {name} is named by {others}, too: neither is used, rename one"
                )
            elif other is not holder:
                problems.append(f"{other.origin}: cluster {name} is named by {holder.origin} already: rename one")
    return clusters, problems


# --- kubeconfigs ------------------------------------------------------------------------------------------------------


def from_kubeconfig(text: str, origin: str, name: str = "") -> list[Member]:
    """The clusters of a kubeconfig: one with a single context is called `name`, those of several as their contexts.

    Raises FindingError: it is not a kubeconfig, or a context names what is not there.
    """
    try:
        document = parse_yaml(text, last_key_wins=True)
    except YamlTextError as error:
        raise FindingError(f"{origin}: not YAML{error.place and f' at {error.place}'}") from error
    if not isinstance(document, dict) or not isinstance(document.get("contexts"), list):
        raise FindingError(f"{origin}: contexts: a kubeconfig must have a list of contexts")
    contexts = document["contexts"]
    return [
        _member(chosen, origin, _only(document, context, chosen, origin))
        for context in contexts
        for chosen in [name if name and len(contexts) == 1 else str(_get(context, "name", origin))]
    ]


def from_kubeconfig_file(text: str, file_name: str) -> list[Member]:
    """The clusters of a file of a folder; one with a single context is called as the file, without its ending.

    Raises FindingError: as `from_kubeconfig`.
    """
    stem = re.sub(r"\.(kubeconfig|ya?ml|conf)$", "", file_name)
    return from_kubeconfig(text, f"file {file_name}", stem)


def from_kubeconfig_secret(secret: JsonView) -> list[Member]:
    """The clusters of a Secret with a kubeconfig, called as its label says.

    Raises FindingError: it has no kubeconfig, or no usable one.
    """
    origin = _origin("Secret", secret)
    labels = secret["metadata"].get("labels") or {}
    name = labels.get(CLUSTER_LABEL) or labels.get(CLUSTER_API_LABEL) or secret["metadata"]["name"]
    data = _decoded(secret, origin)
    key = next((key for key in KUBECONFIG_KEYS if key in data), None)
    if key is None:
        raise FindingError(f"{origin}: data: no key {' or '.join(KUBECONFIG_KEYS)} with a kubeconfig")
    return from_kubeconfig(data[key], origin, name)


def _only(document: Json, context: Json, name: str, origin: str) -> Json:
    """A kubeconfig with this context alone."""
    inner = _get(context, "context", origin)
    if reason := key_refusal(KUBECONFIG, document) or key_refusal(CONTEXT, inner, "context."):
        raise FindingError(f"{origin}: {reason}")
    cluster = _named(document, "clusters", _get(inner, "cluster", origin), origin)
    user_name = inner.get("user") or ""
    user = _named(document, "users", user_name, origin) if user_name else {}
    return _kubeconfig(name, cluster.get("cluster") or {}, user.get("user") or {})


def _named(document: Json, part: str, name: str, origin: str) -> Json:
    for each in document.get(part) or ():
        if isinstance(each, dict) and each.get("name") == name:
            return each
    raise FindingError(f"{origin}: {part}: {name!r}, which a context names, is not there")


def _get(mapping: Any, key: str, origin: str) -> Any:
    if not isinstance(mapping, dict) or not mapping.get(key):
        raise FindingError(f"{origin}: contexts: each needs {key!r}")
    return mapping[key]


# --- what a found kubeconfig may not say ------------------------------------------------------------------------------


def vetted(member: Member, allowed: Allowed) -> Member:
    """The cluster, refused if its kubeconfig has a field that is not known, not supported or not harmless.

    The refusal names the object, the field and the next step.
    """
    config = member.config
    if config.document is None:
        return member
    cluster, user = config.document["clusters"][0]["cluster"], config.document["users"][0]["user"]
    refusal = _refusal(cluster, user, allowed)
    refused = f"{member.origin}: {refusal}" if refusal else ""
    document = _kubeconfig(config.name, _given(cluster), _given(user))
    return replace(member, config=replace(config, document=document, refused=refused))


def _refusal(cluster: JsonView, user: JsonView, allowed: Allowed) -> str:
    """Why a kubeconfig is not used: the field, what is wrong with it and what to do; empty: it is used."""
    for part, field, content in _FILES:
        if (cluster if part == "cluster" else user).get(field):
            return (
                f"{part}.{field} names a file of fleethpa's own container, which a found cluster must not read: put "
                f"its content into {content}"
            )
    unverified = "insecure-skip-tls-verify" if cluster.get("insecure-skip-tls-verify") else ""
    unverified = unverified or ("server" if str(cluster.get("server")).lower().startswith("http:") else "")
    if unverified and not allowed.insecure_tls:
        return (
            f"cluster.{unverified}: the API server would not be verified: use https and certificate-authority-data, "
            "or allow this for all found clusters with --found-insecure-tls"
        )
    if user.get("auth-provider"):
        return "user.auth-provider is not supported for found clusters: use a token, a certificate or exec"
    return cluster_refusal(cluster) or user_refusal(user) or _plugin_refusal(user.get("exec") or {}, allowed)


def _plugin_refusal(plugin: JsonView, allowed: Allowed) -> str:
    """As `_refusal`, of the exec plugin; empty without one."""
    if plugin and plugin.get("command") not in allowed.exec_plugins:
        return (
            f"user.exec.command {plugin.get('command')!r} is not one of the plugins that found clusters may run "
            f"({', '.join(sorted(allowed.exec_plugins)) or 'none'}): use a token or a certificate, or name it in "
            "--found-exec-plugins"
        )
    for each in plugin.get("env") or ():
        if each.get("name") not in allowed.exec_env:
            return (
                f"user.exec.env {each.get('name')!r} is not one of the variables that found clusters may set "
                f"({', '.join(sorted(allowed.exec_env)) or 'none'}): leave it out, or name it in --found-exec-env"
            )
    return ""


# --- Argo CD ----------------------------------------------------------------------------------------------------------


def from_argocd_secret(secret: JsonView) -> list[Member]:
    """The cluster of one of Argo CD's cluster Secrets.

    Raises:
        FindingError: a field is missing or cannot be used.

    Source: argo-cd pkg/apis/application/v1alpha1/types.go `ClusterConfig` and `RawRestConfig`.
    """
    origin = _origin("Secret", secret)
    data = _decoded(secret, origin)
    server, name = data.get("server", ""), data.get("name", "").strip()
    if not server:
        raise FindingError(f"{origin}: data.server: Required value")
    try:
        config = read_document(data.get("config") or "{}")
    except ValueError as error:
        raise FindingError(f"{origin}: data.config: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise FindingError(f"{origin}: data.config: must be a JSON object")
    if reason := key_refusal(ARGOCD_DATA, data, "data."):
        raise FindingError(f"{origin}: {reason}")
    tls = _part(config, "tlsClientConfig", ARGOCD_TLS, origin) or {}
    aws = _part(config, "awsAuthConfig", ARGOCD_AWS, origin)
    plugin = _part(config, "execProviderConfig", ARGOCD_EXEC, origin)
    if reason := key_refusal(ARGOCD_CONFIG, config, "data.config: "):
        raise FindingError(f"{origin}: {reason}")
    name = name or secret["metadata"]["name"]
    if server.rstrip("/") == _IN_CLUSTER_SERVER and not config.get("bearerToken"):
        return [_member(name, origin, None)]
    cluster = _given(
        {
            "server": server,
            "insecure-skip-tls-verify": tls.get("insecure"),
            "tls-server-name": tls.get("serverName"),
            "certificate-authority-data": tls.get("caData"),
            "proxy-url": config.get("proxyUrl"),
        }
    )
    user = _given({"client-certificate-data": tls.get("certData"), "client-key-data": tls.get("keyData")})
    return [_member(name, origin, _kubeconfig(name, cluster, user | _argocd_user(config, aws, plugin, origin)))]


def _part(config: JsonView, name: str, table: Mapping[str, str], origin: str) -> Json | None:
    """An object in Argo CD's configuration; None: it has none. Raises FindingError: a key of it is not known."""
    part = config.get(name)
    if part is None:
        return None
    where = f"data.config: {name}"
    if not isinstance(part, dict):
        raise FindingError(f"{origin}: {where}: must be a JSON object")
    if reason := key_refusal(table, part, f"{where}."):
        raise FindingError(f"{origin}: {reason}")
    return part


def _argocd_user(config: JsonView, aws: JsonView | None, plugin: JsonView | None, origin: str) -> Json:
    if aws is not None:
        if not aws.get("clusterName"):
            raise FindingError(f"{origin}: data.config: awsAuthConfig.clusterName: Required value")
        args = ["aws", "--cluster-name", str(aws["clusterName"])]
        for option, key in (("--role-arn", "roleARN"), ("--profile", "profile")):
            args += [option, str(aws[key])] if aws.get(key) else []
        return {"exec": {"apiVersion": f"{_EXEC_API}/v1beta1", "command": "argocd-k8s-auth", "args": args}}
    if plugin is not None:
        if not plugin.get("command"):
            raise FindingError(f"{origin}: data.config: execProviderConfig.command: Required value")
        given = {"command": plugin["command"], "apiVersion": plugin.get("apiVersion") or f"{_EXEC_API}/v1"}
        envs = [{"name": name, "value": value} for name, value in (plugin.get("env") or {}).items()]
        return {"exec": given | _given({"args": plugin.get("args"), "env": envs})}
    return _given(
        {"token": config.get("bearerToken"), "username": config.get("username"), "password": config.get("password")}
    )


# --- ClusterProfile ---------------------------------------------------------------------------------------------------


def providers_of(text: str, origin: str) -> list[AccessProvider]:
    """The providers of a `--clusterprofile-provider-file`.

    Raises:
        FindingError: it is not JSON, or a provider has no name or no command.

    Source: cluster-inventory-api pkg/access/config.go `Config`, `Provider`.
    """
    try:
        document = read_document(text)
        listed = document["providers"]
    except (ValueError, TypeError, KeyError) as error:
        raise FindingError(f"{origin}: must be JSON with a list `providers`") from error
    providers = []
    for number, each in enumerate(listed or ()):
        plugin = each.get("execConfig") or {}
        if not each.get("name") or not plugin.get("command"):
            raise FindingError(f"{origin}: providers[{number}]: needs `name` and `execConfig.command`")
        policies = each.get("profileSourcedCLIArgsPolicy") or "", each.get("profileSourcedEnvVarsPolicy") or ""
        providers.append(AccessProvider(each["name"], plugin, *policies))
    return providers


def from_cluster_profile(profile: JsonView, providers: Sequence[AccessProvider]) -> list[Member]:
    """The cluster of a ClusterProfile, reached by the first provider of the file that it has.

    Raises:
        FindingError: it has none of the providers, or what it adds to the plugin cannot be used.

    Source: cluster-inventory-api pkg/access/config.go `BuildConfigFromCP`.
    """
    origin, name = _origin("ClusterProfile", profile), profile["metadata"]["name"]
    status = profile.get("status") or {}
    provider, cluster = _offer(status, providers, origin)
    extensions = {each["name"]: each.get("extension") for each in cluster.get("extensions") or ()}
    plugin = _plugin(provider, extensions, origin)
    reached = _given({key: value for key, value in cluster.items() if key != "extensions"})
    if (settings := extensions.get(_EXEC_CONFIG)) is not None:
        reached["extensions"] = [{"name": _EXEC_CONFIG, "extension": settings}]
    return [_member(name, origin, _kubeconfig(name, reached, {"exec": plugin}), _trouble(status))]


def _offer(status: JsonView, providers: Sequence[AccessProvider], origin: str) -> tuple[AccessProvider, JsonView]:
    """The first provider of the file that a profile has, and the cluster as that profile describes it there."""
    # The deprecated field first, so that one in `accessProviders` of the same name counts.
    offered = {each["name"]: each for each in status.get("credentialProviders") or ()}
    offered |= {each["name"]: each for each in status.get("accessProviders") or ()}
    provider = next((each for each in providers if each.name in offered), None)
    if provider is None:
        known, has = (", ".join(sorted(names)) or "none" for names in ({each.name for each in providers}, offered))
        raise FindingError(f"{origin}: status.accessProviders: has {has}; the provider file has {known}")
    if reason := key_refusal(ACCESS_PROVIDER, offered[provider.name], f"status.accessProviders: {provider.name}: "):
        raise FindingError(f"{origin}: {reason}")
    cluster = offered[provider.name].get("cluster") or {}
    if not cluster.get("server"):
        raise FindingError(f"{origin}: status.accessProviders: {provider.name}: cluster.server: Required value")
    return provider, cluster


def _plugin(provider: AccessProvider, extensions: Mapping[str, Any], origin: str) -> Json:
    """The provider's plugin, with what the profile adds, as far as the provider's policies allow that."""
    plugin = dict(provider.exec_config) | {"interactiveMode": "Never"}
    plugin.setdefault("apiVersion", f"{_EXEC_API}/v1")
    args, envs = list(plugin.get("args") or ()), {each["name"]: each["value"] for each in plugin.get("env") or ()}
    if _MORE_ARGS in extensions and provider.args_policy not in ("", "Ignore"):
        if provider.args_policy != "Append":
            raise FindingError(
                f"provider {provider.name}: profileSourcedCLIArgsPolicy {provider.args_policy!r}: not known"
            )
        args += _strings(extensions[_MORE_ARGS], _MORE_ARGS, origin)
    if _MORE_ENVS in extensions and provider.envs_policy not in ("", "Ignore"):
        given = extensions[_MORE_ENVS]
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise FindingError(f"{origin}: extension {_MORE_ENVS}: must map names to texts")
        match provider.envs_policy:
            case "AppendIfNotExists":
                envs = given | envs
            case "Replace":
                envs = envs | given
            case other:
                raise FindingError(f"provider {provider.name}: profileSourcedEnvVarsPolicy {other!r}: not known")
    plugin["args"], plugin["env"] = args, [{"name": name, "value": value} for name, value in envs.items()]
    return plugin


def _strings(value: Any, what: str, origin: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise FindingError(f"{origin}: extension {what}: must be a list of texts")
    return value


def _trouble(status: JsonView) -> str:
    """Return what the conditions of a ClusterProfile say is wrong: its control plane is not known to be healthy."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == _HEALTHY and condition.get("status") != "True":
            message = condition.get("message") or condition.get("reason") or ""
            return f"{_HEALTHY} is {condition.get('status')}: {message}".rstrip(": ")
    return ""


# --- what they share --------------------------------------------------------------------------------------------------


def _member(name: str, origin: str, kubeconfig: Json | None, trouble: str = "") -> Member:
    """A found cluster. `kubeconfig`: with one context of its name; None: it is the one in which this process runs."""
    context = IN_CLUSTER if kubeconfig is None else name
    return Member(ClusterConfig(name, context=context, document=kubeconfig), origin, trouble)


def _kubeconfig(name: str, cluster: JsonView, user: JsonView) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def _decoded(secret: JsonView, origin: str) -> dict[str, str]:
    """A Secret's data as texts. Raises FindingError: a value is not text."""
    decoded = {}
    for key, value in (secret.get("data") or {}).items():
        try:
            decoded[key] = base64.b64decode(value, validate=True).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError, TypeError) as error:
            raise FindingError(f"{origin}: data.{key}: not text in base64") from error
    return decoded


def _origin(kind: str, item: JsonView) -> str:
    return f"{kind} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}"


def _given(values: JsonView) -> Json:
    """Those that have a value."""
    return {key: value for key, value in values.items() if value}

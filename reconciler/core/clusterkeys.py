"""The documented keys of kubeconfigs, Argo CD's cluster Secrets and ClusterProfiles: what becomes of each. Pure.

A key is used, has no effect on how a cluster is reached (HARMLESS), or is refused by name with what to write instead;
one that is not in the table is refused, too, and so is a value of another type. So no field that says who we are, whom
we trust or what we connect to is dropped in silence, and a text is never taken for true.

Source: client-go tools/clientcmd/api/v1 types.go; argo-cd pkg/apis/application/v1alpha1 types.go `ClusterConfig`;
cluster-inventory-api apis/v1alpha1 `AccessProvider`.
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from schemas.kubernetes.shape import JsonView
from schemas.proxies import proxy_refusal

USED: Final = "used"
HARMLESS: Final = "harmless"

CLUSTER: Final[Mapping[str, str]] = {
    "server": USED,
    "tls-server-name": USED,
    "insecure-skip-tls-verify": USED,
    "certificate-authority": USED,
    "certificate-authority-data": USED,
    "proxy-url": USED,
    "disable-compression": HARMLESS,
    "extensions": USED,
}
USER: Final[Mapping[str, str]] = {
    "client-certificate": USED,
    "client-certificate-data": USED,
    "client-key": USED,
    "client-key-data": USED,
    "token": USED,
    "tokenFile": USED,
    "as": USED,
    "as-uid": USED,
    "as-groups": USED,
    "as-user-extra": USED,
    "username": USED,
    "password": USED,
    "auth-provider": USED,
    "exec": USED,
    "extensions": HARMLESS,
}
EXEC: Final[Mapping[str, str]] = {
    "command": USED,
    "args": USED,
    "env": USED,
    "apiVersion": USED,
    "installHint": HARMLESS,
    "provideClusterInfo": USED,
    "interactiveMode": USED,
}
CONTEXT: Final[Mapping[str, str]] = {"cluster": USED, "user": USED, "namespace": HARMLESS, "extensions": HARMLESS}
KUBECONFIG: Final[Mapping[str, str]] = {
    "apiVersion": HARMLESS,
    "kind": USED,
    "clusters": USED,
    "users": USED,
    "contexts": USED,
    "current-context": HARMLESS,
    "preferences": HARMLESS,
    "extensions": HARMLESS,
}
ARGOCD_DATA: Final[Mapping[str, str]] = {
    "name": USED,
    "server": USED,
    "config": USED,
    "namespaces": HARMLESS,
    "clusterResources": HARMLESS,
    "project": HARMLESS,
    "shard": HARMLESS,
}
ARGOCD_CONFIG: Final[Mapping[str, str]] = {
    "username": USED,
    "password": USED,
    "bearerToken": USED,
    "tlsClientConfig": USED,
    "awsAuthConfig": USED,
    "execProviderConfig": USED,
    "disableCompression": HARMLESS,
    "proxyUrl": USED,
}
ARGOCD_TLS: Final[Mapping[str, str]] = {
    "insecure": USED,
    "serverName": USED,
    "certData": USED,
    "keyData": USED,
    "caData": USED,
}
ARGOCD_AWS: Final[Mapping[str, str]] = {"clusterName": USED, "roleARN": USED, "profile": USED}
ARGOCD_EXEC: Final[Mapping[str, str]] = {
    "command": USED,
    "args": USED,
    "env": USED,
    "apiVersion": USED,
    "installHint": HARMLESS,
}
ACCESS_PROVIDER: Final[Mapping[str, str]] = {"name": USED, "cluster": USED}

AUTH_PROVIDERS: Final = ("oidc",)
"""client-go has no other any more, either."""
_PAIRS: Final = (
    *(("username", "password"), ("password", "username")),
    *(("client-certificate", "client-key"), ("client-key", "client-certificate")),
)
_IDENTITIES: Final = ("token", "username", "exec", "auth-provider")
"""Ways to be somebody, of which a user has one, as client-go clientcmd/validation.go has it for most; a certificate may
be beside it.
"""
_TOKEN: Final = "use a token, a certificate or exec"
_PLUGINS: Final = {"gcp": "gke-gcloud-auth-plugin", "azure": "kubelogin"}
"""Provider of before → the program that came after it, for exec."""


_TYPES: Final[Mapping[Any, tuple[str, frozenset[str]]]] = {
    bool: ("true or false", frozenset({"insecure-skip-tls-verify", "provideClusterInfo", "insecure"})),
    list: ("a list", frozenset({"clusters", "users", "contexts", "args", "extensions"})),
    dict: ("a mapping", frozenset({"auth-provider", "exec", "tlsClientConfig", "awsAuthConfig", "execProviderConfig"})),
}
"""Types of the keys that are used, and what they are called; every other is a text, but for those of `_OWN_TYPES`."""
_OWN_TYPES: Final = ("cluster", "env", "as", "as-uid", "as-groups", "as-user-extra")


def key_refusal(table: Mapping[str, str], given: Any, where: str = "") -> str:
    """Return why a mapping is refused: a key that is not in the table, or a value of another type than its own; empty:
    it has neither. `where`: the mapping, with a dot at its end.
    """
    if not isinstance(given, Mapping):
        return f"{where.rstrip('.')} must be a mapping"
    for key, value in given.items():
        if value in (None, "", [], {}, False):
            continue
        if key not in table:
            return f"{where}{key} is not a field that fleethpa knows: correct it, or leave it out"
        if table[key] == USED and key not in _OWN_TYPES and (reason := _type_refusal(key, value)):
            return f"{where}{key} {reason}"
    return ""


def _type_refusal(key: str, value: Any) -> str:
    kind, called = next(((kind, words) for kind, (words, keys) in _TYPES.items() if key in keys), (str, "a text"))
    if not isinstance(value, kind) or (key == "args" and not all(isinstance(each, str) for each in value)):
        return f"must be {'a list of texts' if key == 'args' else called}"
    if key.endswith("-data"):
        try:
            base64.b64decode(re.sub(r"[\r\n]", "", value), validate=True)
        except ValueError:
            return "must be base64"
    return ""


def _env_refusal(env: Any) -> str:
    is_list = isinstance(env, list) and all(
        isinstance(each, dict) and all(isinstance(each.get(name), str) for name in ("name", "value")) for each in env
    )
    return "" if is_list else "user.exec.env must be a list of mappings, each with a name and a value that are texts"


def user_refusal(user: JsonView) -> str:
    """Return why this user of a kubeconfig is not used: the field, and what to write instead; empty: it is used."""
    if reason := key_refusal(USER, user, "user."):
        return reason
    plugin = user.get("exec") or {}
    if reason := key_refusal(EXEC, plugin, "user.exec.") or _env_refusal(plugin.get("env") or []):
        return reason
    if plugin and not plugin.get("command"):
        return "user.exec.command is missing"
    if plugin.get("interactiveMode") == "Always":
        return "user.exec.interactiveMode Always: there is no terminal on which the plugin could ask: use another one"
    provider = (user.get("auth-provider") or {}).get("name")
    if provider is not None and provider not in AUTH_PROVIDERS:
        plugin = f" ({_PLUGINS[provider]})" if isinstance(provider, str) and provider in _PLUGINS else ""
        return f"user.auth-provider {provider!r} is not supported: {_TOKEN}{plugin}"
    for one, other in _PAIRS:
        has_one, has_other = (bool(user.get(each) or user.get(f"{each}-data")) for each in (one, other))
        if has_one and not has_other:
            return f"user.{one} needs user.{other}: add it, or leave both out"
    ways = [way for way in _IDENTITIES if user.get(way) or (way == "token" and user.get("tokenFile"))]
    if len(ways) > 1:
        return f"user.{ways[0]} and user.{ways[1]} are two identities: leave one out"
    return _impersonation_refusal(user)


def cluster_refusal(cluster: JsonView) -> str:
    """Return why this cluster of a kubeconfig is not used; empty: it is used."""
    return (
        key_refusal(CLUSTER, cluster, "cluster.")
        or proxy_refusal(cluster.get("proxy-url") or "", "cluster.proxy-url")
        or _server_refusal(cluster.get("server") or "")
        or _trust_refusal(cluster)
    )


def plaintext_refusal(cluster: JsonView, user: JsonView) -> str:
    """Return why a user of a kubeconfig is not used with a server that is reached without TLS, where everybody on the
    way could read who it is; empty: it may be used. kubectl sends nothing of the user there, without a word.

    Source: client-go tools/clientcmd/client_config.go `ClientConfig`.
    """
    stated = next((key for key in USER if USER[key] == USED and user.get(key)), "")
    if not stated or not (cluster.get("server") or "").startswith("http://"):
        return ""
    return f"user.{stated} is not sent without TLS: write https:// in cluster.server, or leave user.{stated} out"


def _trust_refusal(cluster: JsonView) -> str:
    """Source: client-go transport/transport.go `TLSConfigFor`."""
    authority = next((key for key in ("certificate-authority", "certificate-authority-data") if cluster.get(key)), "")
    if not (authority and cluster.get("insecure-skip-tls-verify")):
        return ""
    return f"cluster.insecure-skip-tls-verify contradicts cluster.{authority}: remove the first to verify the server"


def _server_refusal(server: str) -> str:
    if not server:
        return "cluster.server is missing"
    try:
        parts = urlsplit(server)
        is_http = server.startswith(("https://", "http://"))  # the client's loader knows them in lower case alone
        is_address = is_http and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or "@" in parts.netloc or parts.query or parts.fragment:
        return "cluster.server must be https://HOST[:PORT][/PATH], with https in lower case, without a user and a query"
    return ""


# --- impersonation ----------------------------------------------------------------------------------------------------


def impersonation(user: JsonView) -> list[tuple[str, str]]:
    """Return the headers by which requests are made as somebody else, as a kubeconfig's user asks; none: as itself.

    Source: client-go transport/round_trippers.go `impersonatingRoundTripper`.
    """
    if not user.get("as"):
        return []
    headers = [("Impersonate-User", user["as"])]
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", user["as-uid"]))
    headers += [("Impersonate-Group", group) for group in user.get("as-groups") or ()]
    for key, values in (user.get("as-user-extra") or {}).items():
        headers += [(f"Impersonate-Extra-{_escaped(key)}", value) for value in values]
    return headers


def _impersonation_refusal(user: JsonView) -> str:
    groups, extra = user.get("as-groups") or [], user.get("as-user-extra") or {}
    for key in ("as", "as-uid"):
        if not _is_header(user.get(key) or ""):
            return f"user.{key} must be a text that can be in a header"
    if not isinstance(groups, list) or not all(map(_is_header, groups)):
        return "user.as-groups must be a list of texts that can be in a header"
    is_extra = isinstance(extra, dict) and all(
        isinstance(key, str) and key and isinstance(values, list) and all(map(_is_header, values))
        for key, values in extra.items()
    )
    if not is_extra:
        return "user.as-user-extra must map names to lists of texts that can be in a header"
    others = [key for key in ("as-uid", "as-groups", "as-user-extra") if user.get(key)]
    if others and not user.get("as"):
        return f"user.{others[0]} needs user.as: nobody is impersonated without it"
    return ""


def _is_header(value: Any) -> bool:
    return isinstance(value, str) and value.isascii() and (not value or value.isprintable()) and value == value.strip()


def _escaped(key: str) -> str:
    """Source: client-go transport/round_trippers.go `headerKeyEscape`."""
    return re.sub(rb"[^A-Za-z0-9!#$&'*+.^_`|~-]", lambda match: b"%%%02X" % match[0][0], key.encode()).decode()

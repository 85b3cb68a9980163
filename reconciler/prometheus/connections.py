"""The file of `--prometheus`: how the Prometheus of each cluster is reached, and which questions it is asked."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from posixpath import basename, dirname, join
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, structs

from reconciler.prometheus.promrules import PromRules, RulesError, as_type, parse_rules, read_document
from schemas.answers import API_OF, Query
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.limits import PROM_QUERIES, PROM_SERIES, PROM_TIMEOUT, Limit

ReadFile = Callable[[str], str]
"""The text of a file that the settings name, by its path there. Raises RulesError: it cannot be read."""

DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_QUERIES: Final = 20
_LABEL = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
_HEADER = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_HEADERS: Final = ("authorization", "content-type", "content-length", "host", "transfer-encoding")


class _Part(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A field that is not known is an error."""


T = TypeVar("T", bound=_Part)


class Basic(_Part, frozen=True):
    """A user name, and the file with its password."""

    username: str
    password_file: str


class Tls(_Part, frozen=True):
    """Files of the authorities to trust, and of the client's certificate and key; the name in the server's."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False


NO_TLS: Final = Tls()
SourceType = Literal["Resource", "Pods", "Object", "External"]


class _Cluster(_Part, frozen=True):
    url: str
    rules: str
    sources: dict[SourceType, Literal["prometheus", "api"]]
    bearer_token_file: str = ""
    basic: Basic | None = None
    tls: Tls = NO_TLS
    headers: dict[str, str] = {}
    matchers: dict[str, str] = {}
    timeout: str = ""
    queries_per_second: int = DEFAULT_QUERIES
    max_series: int = PROM_SERIES.most


class _File(_Part, frozen=True):
    clusters: dict[str, _Cluster]


@dataclass(frozen=True)
class PromConnection:
    """One cluster's Prometheus. `apis`: the questions that it answers, by `api`; the metrics APIs answer the others."""

    url: str
    rules: PromRules
    apis: frozenset[str]
    rules_file: str = ""
    bearer_token_file: str = ""
    basic: Basic | None = None
    tls: Tls = NO_TLS
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    queries_per_second: int = DEFAULT_QUERIES
    max_series: int = PROM_SERIES.most

    def answers(self, query: Query) -> bool:
        """Whether it is asked this question."""
        return query.api in self.apis


@dataclass(frozen=True)
class PromConnections:
    """The Prometheus of each cluster, by name; that of `*` is for every cluster that is not named."""

    clusters: Mapping[str, PromConnection] = field(default_factory=dict)

    def of(self, cluster: str) -> PromConnection | None:
        """The Prometheus of a cluster; None: only its metrics APIs are asked."""
        return self.clusters.get(cluster) or self.clusters.get(EVERY_CLUSTER)


def parse_prometheus_file(text: str, origin: str, read: ReadFile, folder: str = "") -> PromConnections:
    """Read the file of `--prometheus`, and the files of rules that it names.

    Args:
        folder: where the files are that it names, unless by an absolute path.

    Raises:
        RulesError: it cannot be used; the text names the file, the field and what it should be.
    """
    file = as_type(read_document(text, origin), origin, _File)
    return PromConnections(
        {
            name: _connection(_placed(each, folder), f"{origin}: clusters.{name}", read)
            for name, each in file.clusters.items()
        }
    )


def read_connections(path: str, read: ReadFile) -> PromConnections:
    """Read the file of `--prometheus`, and the files beside it that it names. Raises RulesError: it cannot be used."""
    return parse_prometheus_file(read(path), path, read, dirname(path))


def _placed(part: T, folder: str) -> T:
    """The part with the paths of its files as they are from here."""
    names = [name for name in part.__struct_fields__ if name.endswith("_file") or name == "rules"]
    placed: dict[str, Any] = {name: join(folder, path) for name in names if (path := getattr(part, name))}
    for name in ("basic", "tls"):
        if (inner := getattr(part, name, None)) is not None:
            placed[name] = _placed(inner, folder)
    return structs.replace(part, **placed)


def _connection(cluster: _Cluster, where: str, read: ReadFile) -> PromConnection:
    _check(cluster, where)
    rules = parse_rules(read(cluster.rules), cluster.rules, cluster.matchers)
    apis = frozenset(API_OF[kind] for kind, source in cluster.sources.items() if source == "prometheus")
    if "resource" in apis and rules.resource is None:
        raise RulesError(f"{where}.sources.Resource: {cluster.rules} has no resourceRules: add them, or leave this out")
    return PromConnection(
        url=cluster.url.rstrip("/"),
        rules=rules,
        apis=apis,
        rules_file=basename(cluster.rules),
        bearer_token_file=cluster.bearer_token_file,
        basic=cluster.basic,
        tls=cluster.tls,
        headers=cluster.headers,
        timeout_s=_timeout_s(cluster.timeout, where),
        queries_per_second=_bounded(cluster.queries_per_second, PROM_QUERIES, f"{where}.queriesPerSecond"),
        max_series=_bounded(cluster.max_series, PROM_SERIES, f"{where}.maxSeries"),
    )


def _check(cluster: _Cluster, where: str) -> None:
    url = urlsplit(cluster.url)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise RulesError(f"{where}.url: must be http(s)://HOST[:PORT][/PATH], before /api/v1")
    if "@" in url.netloc:
        raise RulesError(f"{where}.url: must hold no password: use basic, or bearerTokenFile")
    if cluster.basic is not None and cluster.bearer_token_file:
        raise RulesError(f"{where}: basic and bearerTokenFile exclude each other")
    if bool(cluster.tls.cert_file) != bool(cluster.tls.key_file):
        raise RulesError(f"{where}.tls: certFile and keyFile belong together")
    for name, value in cluster.headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _NOT_HEADERS or not value.isprintable():
            raise RulesError(f"{where}.headers: {name!r} cannot be set here, or not to this value")
    for name in cluster.matchers:
        if not _LABEL.fullmatch(name):
            raise RulesError(f"{where}.matchers: {name!r} is not the name of a label")


def _timeout_s(text: str, where: str) -> float:
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        timeout_ms = parse_duration_ms(text)
    except ValueError as error:
        raise RulesError(f"{where}.timeout: {error}") from error
    return _bounded(timeout_ms, PROM_TIMEOUT, f"{where}.timeout") / 1000


def _bounded(value: int, limit: Limit, where: str) -> int:
    if not 1 <= value <= limit.most:
        raise RulesError(f"{where}: {value} {limit.unit} is not from 1 to {limit.most}")
    return value

"""The file of `--prometheus`: how the Prometheus of each cluster is reached, and which questions it is asked."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from posixpath import basename, dirname
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from reconciler.observer.httpconnections import FilePart, HttpConnection, HttpPart, bounded, http_connection, placed
from reconciler.prometheus import promlimits
from reconciler.prometheus.promrules import PromRules, RulesError, as_type, parse_rules, read_document
from schemas.answers import API_OF, Query
from schemas.keys import EVERY_CLUSTER

ReadFile = Callable[[str], str]
"""The text of a file that the settings name, by its path there. Raises ValueError: it cannot be read."""

_LABEL = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")
SourceType = Literal["Resource", "Pods", "Object", "External"]


class _Cluster(HttpPart, frozen=True, kw_only=True):
    rules: str
    sources: dict[SourceType, Literal["prometheus", "api"]]
    matchers: dict[str, str] = msgspec.field(default_factory=dict)
    max_series: int = promlimits.SERIES.most


class _File(FilePart, frozen=True):
    clusters: dict[str, _Cluster]


@dataclass(frozen=True)
class PromConnection:
    """One cluster's Prometheus. `apis`: the questions that it answers, by `api`; the metrics APIs answer the others."""

    http: HttpConnection
    rules: PromRules
    apis: frozenset[str]
    rules_file: str = ""
    max_series: int = promlimits.SERIES.most

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
        ValueError: it cannot be used; the text names the file, the field and what it should be.
    """
    file = as_type(read_document(text, origin), origin, _File)
    return PromConnections(
        {
            name: _connection(placed(each, folder, "rules"), f"{origin}: clusters.{name}", read)
            for name, each in file.clusters.items()
        }
    )


def read_connections(path: str, read: ReadFile) -> PromConnections:
    """Read the file of `--prometheus`, and the files beside it that it names. Raises ValueError: it cannot be used."""
    return parse_prometheus_file(read(path), path, read, dirname(path))


def _connection(cluster: _Cluster, where: str, read: ReadFile) -> PromConnection:
    _check_url(cluster.url, f"{where}.url")
    http = http_connection(cluster, where)
    for name in cluster.matchers:
        if not _LABEL.fullmatch(name):
            raise RulesError(f"{where}.matchers: {name!r} is not the name of a label")
    rules = parse_rules(read(cluster.rules), cluster.rules, cluster.matchers)
    apis = frozenset(API_OF[kind] for kind, source in cluster.sources.items() if source == "prometheus")
    if "resource" in apis and rules.resource is None:
        raise RulesError(f"{where}.sources.Resource: {cluster.rules} has no resourceRules: add them, or leave this out")
    return PromConnection(
        http=replace(http, url=http.url.rstrip("/")),
        rules=rules,
        apis=apis,
        rules_file=basename(cluster.rules),
        max_series=bounded(cluster.max_series, promlimits.SERIES, f"{where}.maxSeries"),
    )


def _check_url(text: str, where: str) -> None:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise RulesError(f"{where}: must be http(s)://HOST[:PORT][/PATH], before /api/v1")

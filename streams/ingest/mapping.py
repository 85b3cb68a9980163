"""How a foreign series becomes a metric of an HPA: rules from YAML, first match wins; and the settings of ingest."""

from collections.abc import Mapping as MappingType
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from schemas.codec import in_words
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from schemas.limits import Refusal
from schemas.observed import MetricType, Point
from streams.ingest.checks import check_cluster, check_namespace, check_object, check_text, is_cluster, to_milli
from streams.ingest.otlp import SourceSeries, Temporality


class MappingError(ValueError):
    """A mapping file that cannot be used; the text names the file and the field."""


class Attributes(Struct, frozen=True, forbid_unknown_fields=True):
    """The attributes or labels with the identity of a series; of each list, the first that is set is used."""

    cluster: list[str] = field(default_factory=lambda: ["k8s.cluster.name", "cluster"])
    namespace: list[str] = field(
        default_factory=lambda: ["k8s.namespace.name", "namespace", "exported_namespace", "kubernetes_namespace"]
    )
    pod: list[str] = field(default_factory=lambda: ["k8s.pod.name", "pod", "pod_name"])
    container: list[str] = field(default_factory=lambda: ["k8s.container.name", "container"])


class Rule(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What to do with the series whose name matches the glob `match` and whose labels match the globs of `where`.

    `drop`: leave them out. Else they become `type` (default: `Pods` where a pod is named, `External` otherwise) called
    `metric` (default: the series' own name). `temporality`: for producers that do not say it (Prometheus counters).
    `object_kind` (`Kind` or `Kind.group`) and `object` (attribute that holds its name): for type `Object`.
    `utilization`: values are shares of the request, 1 is 100%. `labels`: which labels to keep; default all but the
    identity.
    """

    match: str
    where: dict[str, str] = {}
    drop: bool = False
    type: MetricType | None = None
    metric: str = ""
    temporality: Temporality | None = None
    object_kind: str = ""
    object: str = ""
    utilization: bool = False
    labels: list[str] | None = None


class TopicRule(Struct, frozen=True, forbid_unknown_fields=True):
    """What holds for one topic: the `cluster` of series that name none."""

    cluster: str = ""


_DEFAULT_RULES = """
- {match: k8s.pod.cpu.usage, type: Resource, metric: cpu}
- {match: k8s.pod.memory.working_set, type: Resource, metric: memory}
- {match: container.cpu.usage, type: ContainerResource, metric: cpu}
- {match: container.memory.working_set, type: ContainerResource, metric: memory}
- {match: k8s.pod.cpu_request_utilization, type: Resource, metric: cpu, utilization: true}
- {match: k8s.container.cpu_request_utilization, type: ContainerResource, metric: cpu, utilization: true}
- {match: k8s.pod.memory_request_utilization, type: Resource, metric: memory, utilization: true}
- {match: k8s.container.memory_request_utilization, type: ContainerResource, metric: memory, utilization: true}
- {match: container_*, where: {container: POD}, drop: true}
- {match: container_cpu_usage_seconds_total, type: ContainerResource, metric: cpu, temporality: cumulative}
- {match: container_memory_working_set_bytes, type: ContainerResource, metric: memory}
# What is left of the collectors' own conventions is about nodes, disks and networks: many series, no HPA's metric.
- {match: k8s.*, drop: true}
- {match: container.*, drop: true}
- {match: container_*, drop: true}
- {match: kube_*, drop: true}
- {match: node_*, drop: true}
- {match: up, drop: true}
- {match: scrape_*, drop: true}
- {match: "*"}
"""
"""As in a mapping file: the names of OpenTelemetry's collectors, then those of cAdvisor and Prometheus."""


@cache
def _default_rules() -> list[Rule]:
    return msgspec.convert(parse_yaml(_DEFAULT_RULES), list[Rule])


class Mapping(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration. `rules` are tried before the built-in ones, unless `defaults` is false.

    `unmatched`: what happens to a record none of whose series matches a rule: `reject` copies it to the rejected topic,
    `count` only counts it.
    """

    version: Literal[1] = 1
    topics: dict[str, TopicRule] = {}
    attributes: Attributes = field(default_factory=Attributes)
    rules: list[Rule] = []
    defaults: bool = True
    unmatched: Literal["reject", "count"] = "reject"

    @property
    def identity(self) -> frozenset[str]:
        """Attribute names that say whose a series is, which labels need not repeat."""
        names = self.attributes
        return frozenset((*names.cluster, *names.namespace, *names.pod, *names.container))

    @property
    def all_rules(self) -> list[Rule]:
        return [*self.rules, *_default_rules()] if self.defaults else list(self.rules)


def load_mapping(text: str, name: str) -> Mapping:
    """Read the YAML text of mapping file `name`.

    Raises MappingError: naming the file, and the field where one is at fault.
    """
    try:
        document = parse_yaml(text)
    except YamlTextError as error:
        raise MappingError(f"{name}: not YAML: {error}") from error
    try:
        mapping = msgspec.convert({} if document is None else document, Mapping)
    except msgspec.ValidationError as error:
        raise MappingError(f"{name}: {in_words(error)}") from error
    _check(mapping, name)
    return mapping


def _check(mapping: Mapping, name: str) -> None:
    for topic, fixed in mapping.topics.items():
        if fixed.cluster and not is_cluster(fixed.cluster):
            raise MappingError(f"{name}: topics.{topic}.cluster: {fixed.cluster!r} cannot be a cluster's name")
    for index, rule in enumerate(mapping.rules):
        if problem := _problem(rule):
            raise MappingError(f"{name}: rules[{index}].{problem}")


def _problem(rule: Rule) -> str:
    if not rule.match:
        return "match: must not be empty; `*` matches every name"
    if rule.type == "Object" and not (rule.object_kind and rule.object):
        return "type: Object needs objectKind and object (the attribute that holds the object's name)"
    if rule.type != "Object" and (rule.object or rule.object_kind):
        return "object: only for type: Object"
    if rule.utilization and rule.type not in ("Resource", "ContainerResource"):
        return "utilization: only for type: Resource or ContainerResource"
    if rule.type in ("Resource", "ContainerResource") and not rule.metric:
        return f"metric: type: {rule.type} needs the resource's name, such as cpu or memory"
    return ""


_KEPT_NAMES = 8_192
_KEPT_NAME = 512
"""Characters of a name; for a longer one the rules are gone through each time."""


class Resolved(NamedTuple):
    """A series that became a point of a namespace."""

    cluster: str
    namespace: str
    point: Point


class Resolver:
    """A mapping made ready: which rule a series falls under is found once per name."""

    def __init__(self, mapping: Mapping) -> None:
        self._mapping = mapping
        self._rules = mapping.all_rules
        self._identity = mapping.identity
        self._candidates = lru_cache(maxsize=_KEPT_NAMES)(self._matching)

    def resolve(self, series: SourceSeries, topic: str, cluster: str = "") -> Resolved:
        """Make a point of a series.

        Args:
            cluster: the record's own, from a header, for series that name none.

        Raises:
            Refusal: `unmatched` or `dropped` where it is not wanted, else what is wrong with it.
        """
        rule = self._rule(series)
        if series.unsupported:
            raise Refusal(
                "unsupported",
                f"{series.name} is a {series.unsupported}, which has no single value: send "
                "a gauge or a sum instead, or drop it by a rule",
            )
        identified = self._identify(series)
        kind: MetricType = rule.type or ("Pods" if identified["pod"] else "External")
        _check_identity(series, rule, kind, identified)
        cluster = identified["cluster"] or cluster or self._topic_cluster(topic)
        if not cluster:
            raise self._nameless("cluster", series, f"or set topics.{topic}.cluster in the mapping")
        if not identified["namespace"]:
            raise self._nameless("namespace", series, "or drop the series by a rule")
        check_cluster(cluster)
        check_namespace(identified["namespace"])
        return Resolved(cluster, identified["namespace"], self._point(series, rule, kind, identified))

    def _rule(self, series: SourceSeries) -> Rule:
        # Names of any length come in, and what is kept of them must have an end.
        candidates = self._candidates if len(series.name) <= _KEPT_NAME else self._matching
        for rule in candidates(series.name):
            if all(fnmatchcase(series.attribute(name), glob) for name, glob in rule.where.items()):
                if rule.drop:
                    raise Refusal("dropped", f"{series.name} is left out by rule {rule.match!r}")
                return rule
        raise Refusal("unmatched", f"{series.name} matches no rule of the mapping")

    def _matching(self, name: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self._rules if fnmatchcase(name, rule.match))

    def _identify(self, series: SourceSeries) -> dict[str, str]:
        names = self._mapping.attributes
        return {
            "cluster": _first(series, names.cluster),
            "namespace": _first(series, names.namespace),
            "pod": _first(series, names.pod),
            "container": _first(series, names.container),
        }

    def _topic_cluster(self, topic: str) -> str:
        rule = self._mapping.topics.get(topic)
        return rule.cluster if rule else ""

    def _nameless(self, what: str, series: SourceSeries, else_: str) -> Refusal:
        names = ", ".join(getattr(self._mapping.attributes, what))
        return Refusal("noIdentity", f"{series.name} names no {what}: set one of the attributes {names}, {else_}")

    def _point(self, series: SourceSeries, rule: Rule, kind: MetricType, found: MappingType[str, str]) -> Point:
        try:
            milli = to_milli(series.value)
        except Refusal as refusal:
            raise Refusal(refusal.code, f"{series.name}: {refusal.text}") from refusal
        is_resource = kind in ("Resource", "ContainerResource")
        return Point(
            type=kind,
            metric=check_text(rule.metric or series.name, "metric"),
            milli=milli,
            time=series.time_ms,
            pod=found["pod"] if kind in ("Resource", "ContainerResource", "Pods") else "",
            container=found["container"] if kind == "ContainerResource" else "",
            object_kind=rule.object_kind,
            object=series.attribute(rule.object) if rule.object else "",
            labels={} if is_resource else self._labels(series, rule, kind),
            temporality=rule.temporality or series.temporality,
            start_time=max(series.start_ms, 0),
            utilization=rule.utilization,
        )

    def _labels(self, series: SourceSeries, rule: Rule, kind: MetricType) -> dict[str, str]:
        """Labels that a metric selector can ask for; a pod's resource attributes only repeat what the pod says."""
        if rule.labels is not None:
            return {name: text for name in sorted(rule.labels) if (text := series.attribute(name))}
        merged: dict[str, Any] = dict(series.attributes) if kind == "Pods" else {**series.resource, **series.attributes}
        return {name: merged[name] for name in sorted(merged) if name not in self._identity}


def _first(series: SourceSeries, names: list[str]) -> str:
    return next((text for name in names if (text := series.attribute(name))), "")


def _check_identity(series: SourceSeries, rule: Rule, kind: MetricType, found: MappingType[str, str]) -> None:
    if kind in ("Resource", "ContainerResource", "Pods"):
        if not found["pod"]:
            raise Refusal("unmatched", f"{series.name} names no pod, which a {kind} metric needs")
        check_object(found["pod"], "pod")
    if kind == "ContainerResource":
        if not found["container"]:
            raise Refusal("unmatched", f"{series.name} names no container, which a ContainerResource metric needs")
        check_namespace(found["container"])
    if kind == "Object" and not series.attribute(rule.object):
        raise Refusal("unmatched", f"{series.name} has no attribute {rule.object}, which names its object")

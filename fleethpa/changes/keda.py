"""KEDA's ScaledObjects as HPAs: what is carried over, and by name every field that is not.

A ScaledObject makes an HPA in its cluster; the HPA here has the name of that one. What a trigger asks is no part of an
HPA: a query of a Prometheus becomes a rule of the observer's source, everything else has to be served or pushed by
somebody else, and is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from fleethpa.changes.manifests import FileManifest, check_hpa
from fleethpa.changes.schedules import ANNOTATION as SCHEDULE
from fleethpa.changes.schedules import ReplicaSchedule, parse_zone
from fleethpa.fleet.finding import DEFAULT_NAMESPACE
from fleethpa.frame.errors import CommandError
from schemas.codec import whole_number
from schemas.kubernetes.metricspecs import metric_name
from schemas.kubernetes.quantity import QuantityError, parse_milli
from schemas.kubernetes.shape import HPA_HEAD, Json
from schemas.windows import DAYS, parse_window
from streams.state.replacements.fallback import BEHAVIORS, FALLBACK_ANNOTATION, STATIC, parse_fallback

KIND: Final = "ScaledObject"
JOB_KIND: Final = "ScaledJob"
_GROUP: Final = "keda.sh"
_MOST: Final = 100
"""KEDA's default of maxReplicaCount."""


class Trigger(NamedTuple):
    """A kind of trigger whose number per replica is known. `target`: the field that has it, and `default` its value
    there (empty: it has to be given). `source`: where the number can come from here.
    """

    target: str
    default: str
    source: str


_EXPORTER: Final = "an exporter that a Prometheus reads (docs/prometheus.md)"
TRIGGERS: Final[Mapping[str, Trigger]] = {
    "activemq": Trigger("targetQueueSize", "10", _EXPORTER),
    "apache-kafka": Trigger("lagThreshold", "10", "kafka-exporter or kminion, which a Prometheus reads"),
    "artemis-queue": Trigger("queueLength", "10", _EXPORTER),
    "aws-cloudwatch": Trigger("targetMetricValue", "", "cloudwatch-exporter, which a Prometheus reads"),
    "aws-kinesis-stream": Trigger("shardCount", "2", "cloudwatch-exporter, which a Prometheus reads"),
    "aws-sqs-queue": Trigger("queueLength", "5", "cloudwatch-exporter, which a Prometheus reads"),
    "azure-eventhub": Trigger("unprocessedEventThreshold", "64", "azure-metrics-exporter, which a Prometheus reads"),
    "azure-log-analytics": Trigger("threshold", "", "azure-metrics-exporter, which a Prometheus reads"),
    "azure-monitor": Trigger("targetValue", "", "azure-metrics-exporter, which a Prometheus reads"),
    "azure-queue": Trigger("queueLength", "5", "azure-metrics-exporter, which a Prometheus reads"),
    "azure-servicebus": Trigger("messageCount", "5", "azure-metrics-exporter, which a Prometheus reads"),
    "datadog": Trigger("queryValue", "", "Datadog's cluster agent as the external metrics API"),
    "elasticsearch": Trigger("targetValue", "", "elasticsearch-exporter, which a Prometheus reads"),
    "gcp-pubsub": Trigger("value", "10", "stackdriver-exporter, which a Prometheus reads"),
    "gcp-stackdriver": Trigger("targetValue", "5", "stackdriver-exporter, which a Prometheus reads"),
    "graphite": Trigger("threshold", "", _EXPORTER),
    "influxdb": Trigger("thresholdValue", "", _EXPORTER),
    "kafka": Trigger("lagThreshold", "10", "kafka-exporter or kminion, which a Prometheus reads"),
    "kubernetes-workload": Trigger("value", "", "kube-state-metrics, which a Prometheus reads"),
    "loki": Trigger("threshold", "", "a recording rule of Loki, which a Prometheus has"),
    "metrics-api": Trigger("targetValue", "", "samples that the application pushes (docs/connect-your-metrics.md)"),
    "mongodb": Trigger("queryValue", "", "mongodb-exporter, which a Prometheus reads"),
    "mssql": Trigger("targetValue", "", "sql-exporter, which a Prometheus reads"),
    "mysql": Trigger("queryValue", "", "sql-exporter, which a Prometheus reads"),
    "nats-jetstream": Trigger("lagThreshold", "10", "prometheus-nats-exporter, which a Prometheus reads"),
    "new-relic": Trigger("threshold", "", "New Relic's metrics adapter as the external metrics API"),
    "postgresql": Trigger("targetQueryValue", "", "sql-exporter, which a Prometheus reads"),
    "prometheus": Trigger("threshold", "", "the query itself, as a rule of the observer (--rules FILE)"),
    "pulsar": Trigger("msgBacklogThreshold", "10", "Pulsar's own metrics, which a Prometheus reads"),
    "rabbitmq": Trigger("value", "20", "RabbitMQ's own metrics, which a Prometheus reads"),
    "redis": Trigger("listLength", "5", "redis_exporter, which a Prometheus reads"),
    "redis-streams": Trigger("pendingEntriesCount", "5", "redis_exporter, which a Prometheus reads"),
    "selenium-grid": Trigger("targetValue", "1", "Selenium's own metrics, which a Prometheus reads"),
    "solace-event-queue": Trigger("messageCountTarget", "", "solace-prometheus-exporter, which a Prometheus reads"),
    "temporal": Trigger("targetQueueSize", "5", "Temporal's own metrics, which a Prometheus reads"),
}
"""Beside cpu, memory and cron. Source: https://keda.sh/docs/latest/scalers/ ; docs/keda.md has the same table."""

_OTHER_TARGETS: Final[Mapping[str, str]] = {
    "datadog": "targetValue",
    "gcp-pubsub": "subscriptionSize",
    "rabbitmq": "queueLength",
    "redis-streams": "lagCount",
}
"""Trigger → a field that has the target in place of the one of the table. Source: pkg/scalers of KEDA 2.18."""
_FURTHER_TARGETS: Final[Mapping[str, Sequence[str]]] = {
    "solace-event-queue": ("messageSpoolUsageTarget", "messageReceiveRateTarget")
}
"""Trigger → fields of which each makes one more metric of KEDA's HPA."""


def _target_field(kind: str, metadata: Json) -> str:
    """Return the field that has the target of a trigger."""
    if kind == "redis-streams" and not any(str(name).startswith("consumerGroup") for name in metadata):
        return "streamLength"
    other = _OTHER_TARGETS.get(kind)
    return other if other is not None and metadata.get(other) else TRIGGERS[kind].target


class KedaImport(NamedTuple):
    """A ScaledObject as an HPA, as far as it is one.

    `hpa`: the manifest; None: nothing that an HPA could scale by. `rules`: rules of the observer's Prometheus, each
    with its server. `left`: path of a field → why it is not carried over, and what to do. `is_whole`: whether every
    trigger is in the HPA, so that it never scales by less than KEDA did.
    """

    source: str
    name: str
    hpa: Json | None
    rules: list[tuple[str, Json]]
    left: dict[str, str]
    is_whole: bool


def imported(manifest: FileManifest) -> KedaImport:
    """Read a ScaledObject of keda.sh/v1alpha1."""
    return _Reader(manifest).read()


class _Reader:
    def __init__(self, manifest: FileManifest) -> None:
        self.manifest = manifest
        self.body = manifest.body
        self.left: dict[str, str] = {}
        self.rules: list[tuple[str, Json]] = []
        self.metrics: list[Json] = []
        self.crons: list[tuple[str, str, int]] = []
        """Time zone, days and times, and replicas."""
        self.least, self.most = 0, _MOST
        self.lost = self.unreadable = False

    def read(self) -> KedaImport:
        name = self.manifest.name
        spec = self._part(self.body, "spec")
        self._leave(self.body, "", ("apiVersion", "kind", "metadata", "spec"), "what KEDA reported")
        for path in self.manifest.duplicates:
            self.left[path] = "it is given twice, and the last one counts"
        self._metadata()
        target = self._target(spec)
        self.most = self._count(spec, "maxReplicaCount", _MOST)
        self.least = self._count(spec, "minReplicaCount", 0)
        for at, trigger in enumerate(self._triggers(spec)):
            self._trigger(at, trigger if isinstance(trigger, dict) else {})
        advanced = self._advanced(spec)
        self._times(spec)
        if self.least == 0 and self.metrics and not any(each["type"] == "External" for each in self.metrics):
            self.left.setdefault("spec.minReplicaCount", "0 needs a metric that is not of the pods: minReplicas is 1")
            self.least = 1
        annotations = self._fallback(spec) | self._schedule()
        named = self._named(advanced.get("name") or f"keda-hpa-{name}", annotations)
        hpa = self._hpa(target, named, advanced)
        return KedaImport(self.manifest.source, name, hpa, self.rules, self.left, hpa is not None and not self.lost)

    def _hpa(self, target: Json, metadata: Json, config: Json) -> Json | None:
        """Return the manifest, or None where no HPA can be made of the object; the reason is then in what is left."""
        version = str(self.body.get("apiVersion") or _GROUP)
        if version.partition("/")[0] != _GROUP:
            self.left["apiVersion"] = f"{version} has other fields: write the object as {_GROUP}/v1alpha1 (KEDA 2)"
        elif target and not self.metrics:
            why = "no trigger is a metric, and an HPA has to have one: `fleethpa schedule` needs an HPA to change"
            self.left["spec"] = why
        elif target and not self.unreadable:
            spec = {"scaleTargetRef": target, "minReplicas": self.least, "maxReplicas": self.most}
            spec |= {"metrics": self.metrics} | ({"behavior": config["behavior"]} if config.get("behavior") else {})
            hpa = {**HPA_HEAD, "metadata": metadata, "spec": spec}
            _, errors = check_hpa(FileManifest(self.manifest.source, hpa), DEFAULT_NAMESPACE)
            if not errors:
                return hpa
            self.left["spec"] = f"no API server takes the HPA of it: {'; '.join(errors)}"
        return None

    # --- parts of the object ----------------------------------------------------------------------------------------

    def _part(self, whole: Mapping[str, Any], name: str, path: str = "") -> Json:
        part = whole.get(name)
        if part is not None and not isinstance(part, dict):
            self.left[f"{path}{name}"] = "it is no object"
        return part if isinstance(part, dict) else {}

    def _leave(self, whole: Mapping[str, Any], path: str, known: Sequence[str], why: str) -> None:
        for name in whole:
            if name not in known:
                self.left[f"{path}{name}"] = why

    def _metadata(self) -> None:
        metadata = self._part(self.body, "metadata")
        self._leave(
            metadata, "metadata.", ("name", "namespace", "labels", "annotations"), "of the object in its cluster"
        )
        for name in self._part(metadata, "annotations", "metadata."):
            why = _ANNOTATIONS.get(
                name, "KEDA's own" if name.startswith("autoscaling.keda.sh/") else "of the object there"
            )
            self.left[f"metadata.annotations[{name}]"] = why

    def _named(self, name: str, annotations: Mapping[str, str]) -> Json:
        metadata = self._part(self.body, "metadata")
        kept = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
        labels = {"labels": metadata["labels"]} if metadata.get("labels") else {}
        return {"name": name, **kept, **labels} | ({"annotations": dict(annotations)} if annotations else {})

    def _target(self, spec: Json) -> Json:
        ref = self._part(spec, "scaleTargetRef", "spec.")
        self._leave(
            ref, "spec.scaleTargetRef.", ("apiVersion", "kind", "name"), "where KEDA finds variables of triggers"
        )
        if not isinstance(ref.get("name"), str) or not ref["name"]:
            why = "it names nothing" if ref.get("name") in (None, "") else "its name is not a text: put it into quotes"
            self.left["spec.scaleTargetRef"] = why
            return {}
        return {
            "apiVersion": ref.get("apiVersion") or "apps/v1",
            "kind": ref.get("kind") or "Deployment",
            "name": ref["name"],
        }

    def _count(self, spec: Json, name: str, default: int) -> int:
        value = default if spec.get(name) is None else spec[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.left[f"spec.{name}"], self.unreadable = f"{value!r} is not a number: write one", True
        return default

    def _advanced(self, spec: Json) -> Json:
        advanced = self._part(spec, "advanced", "spec.")
        config = self._part(advanced, "horizontalPodAutoscalerConfig", "spec.advanced.")
        for name in advanced:
            if name == "scalingModifiers" and not advanced[name]:
                continue  # so KEDA writes an object that has none
            if name == "scalingModifiers":
                self.lost = True
                why = (
                    "a formula over several triggers: each is a metric by itself here, and the highest proposal counts"
                )
                self.left[f"spec.advanced.{name}"] = why
            elif name != "horizontalPodAutoscalerConfig":
                why = "a deleted HPA leaves the replicas as they are"
                self.left[f"spec.advanced.{name}"] = (
                    why if name == "restoreToOriginalReplicaCount" else "not known here"
                )
        path = "spec.advanced.horizontalPodAutoscalerConfig."
        self._leave(config, path, ("name", "behavior"), "not known here")
        return config

    def _times(self, spec: Json) -> None:
        for name, why in _OF_THE_SPEC.items():
            if name in spec:
                self.left[f"spec.{name}"] = why
        known = ("scaleTargetRef", "minReplicaCount", "maxReplicaCount", "triggers", "advanced", "fallback")
        for name in spec:
            if name not in known and name not in _OF_THE_SPEC:
                self.left[f"spec.{name}"] = "not known here"

    def _fallback(self, spec: Json) -> dict[str, str]:
        fallback = self._part(spec, "fallback", "spec.")
        if not fallback:
            return {}
        behavior = fallback.get("behavior") or STATIC
        self._leave(fallback, "spec.fallback.", ("failureThreshold", "replicas", "behavior"), "not known here")
        if not isinstance(behavior, str) or behavior not in BEHAVIORS:
            self.left["spec.fallback.behavior"] = (
                f"{behavior!r} is not one of {', '.join(BEHAVIORS)}: {STATIC} is taken"
            )
            behavior = STATIC
        numbers = fallback.get("failureThreshold"), fallback.get("replicas")
        stated = [f"failureThreshold={numbers[0]}", f"replicas={numbers[1]}"]
        stated += [f"behavior={behavior}"] if behavior != STATIC else []
        # KEDA's is for what KEDA serves: a failure of cpu or memory alone does not bring it.
        stated += [f"metric={metric_name(each)}" for each in self.metrics if each["type"] == "External"]
        text = ",".join(stated)
        if parse_fallback(text) is None:
            self.left["spec.fallback"] = "failureThreshold (from 1) and replicas have to be numbers"
            return {}
        return {FALLBACK_ANNOTATION: text}

    # --- triggers -----------------------------------------------------------------------------------------------------

    def _triggers(self, spec: Json) -> Sequence[Any]:
        triggers = spec.get("triggers")
        if not isinstance(triggers, list | None):
            self._lose("spec.triggers", "it is no list")
        return triggers if isinstance(triggers, list) else ()

    def _trigger(self, at: int, trigger: Json) -> None:
        path, kind = f"spec.triggers[{at}]", str(trigger.get("type", ""))
        metadata = self._part(trigger, "metadata", f"{path}.")
        known = ("type", "metadata", "metricType")
        for name in trigger:
            if name not in known:
                self.left[f"{path}.{name}"] = _OF_A_TRIGGER.get(name, "not known here")
        if kind in ("cpu", "memory"):
            self._resource(path, kind, trigger, metadata)
        elif kind == "cron":
            self._cron(path, metadata)
        elif kind in TRIGGERS:
            self._external(path, at, kind, trigger, metadata)
        else:
            self._lose(
                path, f"a trigger {kind!r} is not known here: add a metric for it, or the HPA scales by less than KEDA"
            )

    def _lose(self, path: str, why: str) -> None:
        self.left[path], self.lost = why, True

    def _resource(self, path: str, kind: str, trigger: Json, metadata: Json) -> None:
        stated, older = trigger.get("metricType"), metadata.get("type")
        aim = str(stated or older or "Utilization")
        value = str(metadata.get("value", ""))
        self._leave(metadata, f"{path}.metadata.", ("type", "value", "containerName"), "not known here")
        if stated and older and stated != older:
            # KEDA refuses the two together, or goes by metadata.type, by its version.
            self._lose(f"{path}.metadata.type", f"metricType is {stated}, and this says {older}: keep one of them")
            return
        if not stated and not older:
            self.left[f"{path}.metricType"] = "not given, so that KEDA refuses the trigger: Utilization is taken"
        if aim == "Utilization" and (percent := whole_number(value)) is not None:
            target: Json = {"type": "Utilization", "averageUtilization": percent}
        elif aim == "AverageValue" and value:
            target = {"type": "AverageValue", "averageValue": value}
        else:
            self._lose(path, f"{aim} {value!r} cannot be a target of {kind}")
            return
        container = metadata.get("containerName")
        if container:
            source = {"name": kind, "container": container, "target": target}
            self.metrics.append({"type": "ContainerResource", "containerResource": source})
        else:
            self.metrics.append({"type": "Resource", "resource": {"name": kind, "target": target}})

    def _external(self, path: str, at: int, kind: str, trigger: Json, metadata: Json) -> None:
        known, stated = TRIGGERS[kind], _target_field(kind, metadata)
        value = str(metadata.get(stated, known.default))
        own = _OF_DATADOG.get(str(metadata.get("type")), _AVERAGE) if kind == "datadog" else _AVERAGE
        aim = str(trigger.get("metricType") or own)
        if not value or aim not in (_AVERAGE, "Value"):
            self._lose(path, f"its {stated} is missing" if not value else f"a metric has no target {aim}")
            return
        if not _is_above_0(value):
            self._lose(f"{path}.metadata.{stated}", f"{value!r} is not a number above 0")
            return
        if stated not in metadata:
            self.left[f"{path}.metadata.{stated}"] = f"not given: {value}, KEDA's default, is taken"
        name = f"{self.manifest.name}-s{at}-{kind}"
        field = "averageValue" if aim == _AVERAGE else "value"
        target = {"type": aim, field: value}
        self.metrics.append({"type": "External", "external": {"metric": {"name": name}, "target": target}})
        query = str(metadata.get("query", "")) if kind == "prometheus" else ""
        if query:
            rule = {
                "seriesQuery": '{__name__="up"}',
                "resources": {"namespaced": False},
                "name": {"as": name},
                "metricsQuery": query,
            }
            self.rules.append((str(metadata.get("serverAddress", "")), rule))
        elif kind == "prometheus":
            self._lose(f"{path}.metadata.query", "it is missing")
        for each in metadata:
            if each in _FURTHER_TARGETS.get(kind, ()):
                self._lose(f"{path}.metadata.{each}", "a metric of its own in KEDA's HPA: add one with this target")
            elif each != stated and not (query and each == "query"):
                self.left[f"{path}.metadata.{each}"] = self._of_the_source(kind, each, name)
        if kind == "prometheus":
            # KEDA's default; where it is stated, it is named by the loop.
            self.left[f"{path}.metadata.ignoreNullValues"] = _OF_PROMETHEUS["ignoreNullValues"]
        else:
            self.left[path] = f"nothing serves the metric {name} yet: {known.source}"

    def _of_the_source(self, kind: str, field: str, name: str) -> str:
        if field.startswith("activation"):
            return "from 0 replicas an HPA begins as soon as its metric is above 0"
        if field in _BESIDE_METADATA:
            return "KEDA does not read it in the metadata of a trigger"
        if kind != "prometheus":
            return f"of the source of {name}"
        return _OF_PROMETHEUS.get(field, "not known here")

    # --- cron ---------------------------------------------------------------------------------------------------------

    def _cron(self, path: str, metadata: Json) -> None:
        self._leave(metadata, f"{path}.metadata.", ("timezone", "start", "end", "desiredReplicas"), "not known here")
        times = cron_times(str(metadata.get("start", "")), str(metadata.get("end", "")))
        wanted, zone = whole_number(str(metadata.get("desiredReplicas", ""))), str(metadata.get("timezone", ""))
        if times is None:
            self._lose(
                path, "its times are not one begin and one end on each of some days: `fleethpa schedule` has rules"
            )
            return
        if wanted is None:
            self._lose(f"{path}.metadata.desiredReplicas", "it is not a number")
            return
        try:
            parse_zone(zone)
        except CommandError as error:
            self._lose(f"{path}.metadata.timezone", f"{zone!r} is not a time zone that is known here. {error.cause}")
            return
        if wanted > self.most:
            why = f"KEDA's HPA does not go above maxReplicaCount, either: minReplicas is {self.most}"
            self.left[f"{path}.metadata.desiredReplicas"], wanted = why, self.most
        if self.crons and self.crons[0][0] != zone:
            self._lose(path, f"a schedule has one time zone, and the first cron trigger has {self.crons[0][0]}")
            return
        self.crons.append((zone, times, wanted))

    def _schedule(self) -> dict[str, str]:
        """The rules of the cron triggers: the least replicas at their times; of several that hold, KEDA takes the most,
        and a schedule the last.
        """
        if not self.crons:
            return {}
        rules = [
            f"{times} minReplicas={count}"
            for _, times, count in sorted(self.crons, key=lambda each: each[2])
            if count > self.least
        ]
        if not rules:
            return {}
        otherwise = [f"minReplicas={self.least}"]
        schedule = ReplicaSchedule(time_zone=self.crons[0][0], rules=rules, otherwise=otherwise)
        return {SCHEDULE: msgspec.json.encode(schedule).decode()}


def _is_above_0(value: str) -> bool:
    try:
        return parse_milli(value) > 0
    except QuantityError:
        return False


_AVERAGE: Final = "AverageValue"
_OF_DATADOG: Final = {"average": _AVERAGE, "global": "Value"}
"""Its own names of a metric's type."""
_ANNOTATIONS: Final = {
    "autoscaling.keda.sh/paused": "fleethpa pause CLUSTER/NAMESPACE/NAME",
    "autoscaling.keda.sh/paused-replicas": "fleethpa override CLUSTER/NAMESPACE/NAME --replicas N --for 2h",
    "autoscaling.keda.sh/paused-scale-in": "fleethpa pause CLUSTER/NAMESPACE/NAME --scale-in",
    "autoscaling.keda.sh/paused-scale-out": "fleethpa pause CLUSTER/NAMESPACE/NAME --scale-out",
}
_OF_THE_SPEC: Final = {
    "pollingInterval": "metrics are asked for once per sync period: that of the cluster (fleethpa settings CLUSTER "
    "sync-period=…), or the HPA's own (annotation fleethpa.io/sync-period)",
    "cooldownPeriod": "to 0 an HPA goes by its scale-down window: behavior.scaleDown.stabilizationWindowSeconds",
    "initialCooldownPeriod": "to 0 an HPA goes by its scale-down window",
    "idleReplicaCount": "an HPA has no replicas for when nothing is to be done: minReplicas 0, or a schedule",
}
_BESIDE_METADATA: Final = ("minReplicaCount", "maxReplicaCount", "metricType", *_OF_THE_SPEC)
"""Fields of the spec and of a trigger that are often written one level too deep."""
_OF_A_TRIGGER: Final = {
    "name": "triggers are named by their number here",
    "authenticationRef": "credentials are of the observer's source, not of an HPA",
    "useCachedMetrics": "every metric is read once per sync period, and logged",
}
_OF_PROMETHEUS: Final = {
    "serverAddress": "of the observer: `url` in the file of --prometheus (docs/prometheus.md)",
    "metricName": "KEDA no longer reads it",
    "namespace": "of the observer: a matcher in the file of --prometheus",
    "customHeaders": "of the observer: `headers` in the file of --prometheus",
    "cortexOrgID": "of the observer: `headers` (X-Scope-OrgID) in the file of --prometheus",
    "unsafeSsl": "of the observer: `tls.insecureSkipVerify` in the file of --prometheus",
    "authModes": "of the observer: tokens and certificates in the file of --prometheus",
    "timeout": "of the observer: `timeout` in the file of --prometheus",
    "ignoreNullValues": "a query without a series is an error of the metric here, and no 0",
}
_CRON: Final = re.compile(r"([0-9]{1,2}) ([0-9]{1,2}) (\S+) (\S+) (\S+)", re.ASCII)
_ANY: Final = ("*", "?")
_NUMBERS: Final = re.compile(r"[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*", re.ASCII)


def cron_times(start: str, end: str) -> str | None:
    """Days and times as a schedule writes them, of two cron expressions; None: they are not that of each of some days.

    An end on other days than the start has to be on the day of the week after each.
    """
    begin, until = (_CRON.fullmatch(" ".join(text.split())) for text in (start, end))
    if begin is None or until is None:
        return None
    first_min, last_min = (int(each[2]) * 60 + int(each[1]) for each in (begin, until))
    if first_min == last_min or max(int(each[1]) for each in (begin, until)) > 59:
        return None
    over_night = last_min < first_min
    if all(each[3] in _ANY and each[4] in _ANY for each in (begin, until)):
        days = _week(begin[5], until[5], over_night)
    elif over_night or begin.groups()[2:] != until.groups()[2:] or begin[5] not in _ANY:
        return None
    else:
        days = _dates(begin[3], begin[4])
    times = f"{first_min // 60:02}:{first_min % 60:02}-{last_min // 60:02}:{last_min % 60:02}"
    try:
        parse_window(f"{days} {times}")
    except ValueError:  # no such hour, day or month
        return None
    return f"{days} {times}"


def _week(begin: str, until: str, over_night: bool) -> str:
    """Days of the week as a schedule writes them; empty: they cannot be read, or are not those of both expressions."""
    days, last = _days(begin), _days(until)
    if days is None or last is None:
        return ""
    expected = {(day + 1) % 7 for day in days} if over_night and len(days) < 7 else days
    if last != expected:
        return ""
    return "daily" if len(days) == 7 else ",".join(DAYS[day] for day in sorted(days))


def _dates(days: str, month: str) -> str:
    """Days of every month, or dates of every year, as a schedule writes them; empty: they cannot be read."""
    if _NUMBERS.fullmatch(days) is None:
        return ""
    if month in _ANY:
        return f"monthly {days}"
    number = whole_number(month)
    if number is None:
        return ""
    dates = []
    for part in days.split(","):
        first, dash, last = part.partition("-")
        if dash and int(last) < int(first):
            return ""
        dates.append(f"{number:02}-{int(first):02}" + (f"..{number:02}-{int(last):02}" if dash else ""))
    return ",".join(dates)


def _days(text: str) -> set[int] | None:
    """The days of a cron expression, 0 is Monday; None: they cannot be read."""
    if text in _ANY:
        return set(range(7))
    weekdays: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = [_day(first), _day(last if dash else first)]
        if None in ends:
            return None
        begin, end = (each or 0 for each in ends)
        weekdays.update((begin + step) % 7 for step in range((end - begin) % 7 + 1))
    return weekdays


def _day(text: str) -> int | None:
    names = {name.upper(): at for at, name in enumerate(DAYS)}
    if text.upper() in names:
        return names[text.upper()]
    number = whole_number(text)
    return (number - 1) % 7 if number is not None and number <= 7 else None


def scaled_objects_in(manifests: Sequence[FileManifest]) -> Iterator[FileManifest]:
    """The ScaledObjects among some objects."""
    return (each for each in manifests if each.body.get("kind") == KIND)

"""A recording of a native control plane, and what an observer of it would have written to the public topics."""

import gzip
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from msgspec import structs

from reconciler.core import metricanswers as metric_answers
from reconciler.core.objects import (
    DERIVED_KINDS,
    hpa_body,
    kept_hpa,
    pod_body,
    scale_failure,
    scale_of_parent,
    target_of,
)
from reconciler.observer.clusterview import WATCHES, ClusterState
from schemas import topics
from schemas.answers import Answers, MetricAnswer
from schemas.codec import encode
from schemas.entries import VERSION, Body, PublicRecord
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Heartbeat,
    PodDeleted,
    PodList,
    PodSet,
    ScaleSet,
    Target,
)
from schemas.settings import ClusterSettings, SettingsSet

Json = dict[str, Any]

CLUSTER = "recorded"
SESSION = "recorder"
HEARTBEAT_MS = 10_000
SETTINGS = ClusterSettings(
    sync_period_ms=5_000,
    downscale_stabilization_ms=60_000,
    cpu_initialization_period_ms=30_000,
    initial_readiness_delay_ms=10_000,
    tolerance="0.1",
    default_mode="shadow",
)
"""The flags of the recorded controller manager; see the header of the recording."""

_READ = ("watch", "action")
_KINDS = {plural: (kind, group) for (group, kind), plural in DERIVED_KINDS.items()}


def moment_ms(seconds: float) -> int:
    """Unix milliseconds of a recorded time."""
    return round(seconds * 1_000_000) // 1000


class Tape:
    """The files of a recording, `NAME-watch.jsonl.gz` and so on, all in one folder.

    Args:
        folder: where they are.
        seconds: how much of it to take.
    """

    def __init__(self, folder: Path, seconds: float = inf) -> None:
        self.header = next(_lines(folder, "watch"))
        end = self.header["t"] + seconds
        self.watch = [line for line in _lines(folder, "watch") if line["type"] in _READ and line["t"] <= end]
        self.syncs = [line for line in _lines(folder, "syncs") if line["type"] == "sync" and line["t"] <= end]
        self.answers = {line["id"]: line for line in _lines(folder, "answers") if line["type"] == "answer"}

    @property
    def namespace(self) -> str:
        """The namespace that was recorded."""
        return str(self.header["namespace"])

    def actions(self, name: str) -> list[int]:
        """Moments (ms) of the disturbances of that name."""
        return [moment_ms(line["t"]) for line in self.watch if line["type"] == "action" and line["name"] == name]

    def answered_ms(self, sync: Json) -> int:
        """When the controller had all answers: the clock of its decision. Without answers: when it began."""
        times = [self.answers[each]["t"] for each in sync["answers"] if each in self.answers]
        return moment_ms(max(times, default=sync["t"]))


def _lines(folder: Path, kind: str) -> Iterator[Json]:
    (path,) = folder.glob(f"*-{kind}.jsonl.gz")
    with gzip.open(path) as stream:
        for line in stream:
            yield orjson.loads(line)


class Observed(NamedTuple):
    """A record of a public topic. `sync`: index of the native sync whose answers it holds."""

    topic: str
    time_ms: int
    value: bytes
    sync: int | None = None


def observed(tape: Tape, *, later_ms: int = 0, settings: ClusterSettings = SETTINGS) -> list[Observed]:
    """What the observer writes, in order of time; no two records bear the same time, so that their order is the same
    through any number of topics.

    Args:
        tape: the recording.
        later_ms: how long after the native controller the observer gets the answers: its polls have another phase.
        settings: of the cluster.
    """
    return list(_Observer(tape, later_ms, settings).run())


class _Observer:
    """Turns what was recorded into records, with the observer's own converters and its memory of what it published."""

    def __init__(self, tape: Tape, later_ms: int, settings: ClusterSettings) -> None:
        self._tape = tape
        self._later_ms = later_ms
        self._settings = settings
        self._state = ClusterState()
        self._parents: dict[Target, Json] = {}
        self._last_ms = 0

    def run(self) -> Iterator[Observed]:
        tape = self._tape
        events: list[tuple[int, int, Json]] = [(moment_ms(line["t"]), 0, line) for line in tape.watch]
        events += [
            (tape.answered_ms(sync) + self._later_ms, number + 1, sync) for number, sync in enumerate(tape.syncs)
        ]
        events.sort(key=lambda event: event[0])
        yield from self._begin(events[0][0])
        beaten_ms = events[0][0]
        for time_ms, number, line in events:
            while time_ms - beaten_ms >= HEARTBEAT_MS:
                beaten_ms += HEARTBEAT_MS
                yield self._record(topics.SCALES, beaten_ms, [Heartbeat(session=SESSION, watches=list(WATCHES))])
            for topic, body in self._reported(line):
                yield self._record(topic, time_ms, [body], number - 1 if number else None)

    def _begin(self, time_ms: int) -> Iterator[Observed]:
        settings = PublicRecord(
            v=VERSION, time=time_ms, entries=[SettingsSet(cluster=CLUSTER, settings=self._settings)]
        )
        yield Observed(topics.SETTINGS, time_ms, encode(settings))
        self._last_ms = time_ms
        yield self._record(topics.AUTOSCALERS, time_ms, [AutoscalerList(list_id="0", hpas=[], session=SESSION)])
        yield self._record(topics.PODS, time_ms, [PodList(list_id="0", pods=[], session=SESSION)])

    def _record(self, topic: str, time_ms: int, bodies: list[Body], sync: int | None = None) -> Observed:
        self._last_ms = max(time_ms, self._last_ms + 1)
        record = PublicRecord(
            v=VERSION, time=self._last_ms, cluster=CLUSTER, namespace=self._tape.namespace, entries=bodies
        )
        return Observed(topic, self._last_ms, encode(record), sync)

    def _reported(self, line: Json) -> Iterator[tuple[str, Body]]:
        if line["type"] == "sync":
            if answers := self._answers(line):
                yield topics.SAMPLES, Answers(items=answers, session=SESSION)
            return
        match line.get("resource"):
            case "pods":
                yield from ((topics.PODS, body) for body in self._pod(line["event"], line["object"]))
            case "horizontalpodautoscalers":
                yield from self._hpa(line["event"], line["object"])
            case "deployments" | "statefulsets" as plural:
                yield from self._parent(plural, line["event"], line["object"])

    def _pod(self, event: str, item: Json) -> Iterator[Body]:
        pods = self._state.namespace(self._tape.namespace).pods
        if event == "DELETED":
            if pods.pop(item["metadata"]["name"], None) is not None:
                yield PodDeleted(name=item["metadata"]["name"], session=SESSION)
        elif self._state.set_pod(self._tape.namespace, pod := pod_body(item)):
            yield PodSet(pod=pod, session=SESSION)

    def _hpa(self, event: str, item: Json) -> Iterator[tuple[str, Body]]:
        hpas, metadata = self._state.namespace(self._tape.namespace).hpas, item["metadata"]
        if event == "DELETED":
            hpas.pop(metadata["name"], None)
            yield (topics.AUTOSCALERS, AutoscalerDeleted(name=metadata["name"], uid=metadata["uid"], session=SESSION))
            return
        hpas[metadata["name"]] = kept_hpa(item)
        yield topics.AUTOSCALERS, AutoscalerSet(hpa=hpa_body(item), session=SESSION)
        yield from self._scale(target_of(item))

    def _parent(self, plural: str, event: str, item: Json) -> Iterator[tuple[str, Body]]:
        kind, group = _KINDS[plural]
        target = Target(kind=kind, name=item["metadata"]["name"], group=group)
        if event == "DELETED":
            self._parents.pop(target, None)
        else:
            self._parents[target] = item
        yield from self._scale(target)

    def _scale(self, target: Target) -> Iterator[tuple[str, Body]]:
        state = self._state.namespace(self._tape.namespace)
        if target not in state.targets():
            return
        parent = self._parents.get(target)
        scale: ScaleSet
        if parent is None:
            plural = DERIVED_KINDS[target.group, target.kind]
            scale = scale_failure(target, f'{plural}.{target.group} "{target.name}" not found', SESSION)
        else:
            scale = scale_of_parent(target, parent, SESSION)
        if self._state.set_scale(self._tape.namespace, scale):
            yield topics.SCALES, scale

    def _answers(self, sync: Json) -> list[MetricAnswer]:
        """The answers of one sync, as if its HPA's metrics had been asked for together."""
        hpa = self._state.namespace(self._tape.namespace).hpas.get(sync["hpa"])
        if hpa is None or not sync["answers"]:
            return []
        selectors = {hpa.asking.target: sync["scale"]["selector"]}
        asked = [
            query
            for metric in hpa.asking.metrics
            for query in metric_answers.queries([structs.replace(hpa.asking, metrics=(metric,))], selectors)
        ]
        return [self._answer(query, each) for query, each in zip(asked, sync["answers"], strict=False)]

    def _answer(self, query: MetricAnswer, identifier: str) -> MetricAnswer:
        line = self._tape.answers.get(identifier)
        if line is None:
            return metric_answers.failed(query, "the server is currently unable to handle the request")
        if line["status"] != 200:
            return metric_answers.failed(query, line["body"].get("message") or f"status {line['status']}")
        return metric_answers.fill(query, line["body"])

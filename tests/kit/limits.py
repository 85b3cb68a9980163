"""Objects of any size, sent the way that records go: conversion, batches, fold, checkpoint, producers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from hypothesis import strategies as st

from schemas import limits, topics
from schemas.answers import Answers, MetricAnswer
from schemas.codec import decode, encode
from schemas.entries import Body, LogRecord, Outcome, PublicRecord, central_name
from schemas.limits import Refusal
from schemas.observed import (
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    ConflictingAutoscaler,
    Heartbeat,
    ObserverTrouble,
    PodList,
    PodSet,
    Point,
    Samples,
    ScaleSet,
    Serving,
    Target,
    WriteProblem,
)
from schemas.partitioning import partition_for
from schemas.settings import ClusterSettings, SettingsSet
from streams.ingest.convert import convert
from streams.ingest.logwriter import Batcher, log_entries, rejected
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import Conversion, RawRecord
from streams.state.rows import SIDES
from tests.kit.partition import CLUSTER, ENFORCING, KEY, NAMESPACE, LogBuilder, cpu_answer, make_hpa, make_pod, scale

BROKER_BYTES = 1_048_576 - 4_096
"""What the brokers take of one record, but for its key and headers."""
PARTITIONS = 4
TOPIC_OF: dict[type, str] = {
    AutoscalerSet: topics.AUTOSCALERS,
    AutoscalerList: topics.AUTOSCALERS,
    Command: topics.SETTINGS,
    PodSet: topics.PODS,
    PodList: topics.PODS,
    Answers: topics.SAMPLES,
    Samples: topics.SAMPLES,
    Outcome: topics.OUTCOMES,
    SettingsSet: topics.SETTINGS,
}
"""Everything else is of the topic of scales."""


_CHARACTERS = b"abcdefghijklmnopqrstuvwxyz234567" * 8
"""The letter or digit of each byte."""


@cache
def _random() -> str:
    return Random(7).randbytes(12 * 1024 * 1024).translate(_CHARACTERS).decode()


def text(length: int, seed: int = 7) -> str:
    """Letters and digits that hardly compress: 5 random bits in each."""
    return _random()[seed * 400 : seed * 400 + length]


def external(name: str, selector: dict[str, Any] | None = None) -> dict[str, Any]:
    """An External metric."""
    metric = {"name": name} | ({} if selector is None else {"selector": selector})
    return {"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "1"}}}


def huge_hpa(name: str = "huge", length: int = 110_000) -> dict[str, Any]:
    """An HPA whose metric has a name of so many characters, which an API server takes."""
    return make_hpa(name, f"uid-{name}", metrics=[external(text(length))])


@dataclass
class Pipeline:
    """Ingest, one partition of a decider, and the sizes of all that they write. HPA `web` is harmless."""

    log: LogBuilder = field(default_factory=lambda: LogBuilder(partition_for(KEY, PARTITIONS)))
    offset: int = 0
    refused: list[str] = field(default_factory=list)
    settings: ClusterSettings = ENFORCING

    def __post_init__(self) -> None:
        self.send(SettingsSet(cluster="*", settings=self.settings))
        self.send(AutoscalerSet(hpa=make_hpa()))
        self.send(scale())
        self.send(PodSet(pod=make_pod("web-1")))

    def send(self, *bodies: Body, topic: str = "", after_ms: int = 20) -> list[dict[str, Any]]:
        """Take a record in as ingest and the decider do; give the decisions."""
        self.offset += 1
        self.log.now_ms += after_ms
        is_namespaced = not isinstance(bodies[0], ClusterReport | Serving | SettingsSet)
        of = {"cluster": CLUSTER, "namespace": NAMESPACE} if is_namespaced else {}
        value = encode(PublicRecord(v=1, entries=list(bodies), time=self.log.now_ms, **of))
        source = topic or (topics.SPECS if central_name(bodies[0]) else TOPIC_OF.get(type(bodies[0]), topics.SCALES))
        raw = RawRecord(source, 0, self.offset, self.log.now_ms, value)
        return self.take(convert(raw, Resolver(Mapping())), raw)

    def take(self, found: Conversion, raw: RawRecord) -> list[dict[str, Any]]:
        """Batch what was converted, and fold what goes into the partition."""
        batcher = Batcher(PARTITIONS)
        for entry in log_entries(found.pieces, raw, found.time_ms, PARTITIONS):
            if isinstance(entry, Refusal):
                found.refuse(entry)
            else:
                batcher.add(entry)
        self.refused += [refusal.text for refusal in found.refusals]
        if found.is_rejected:
            reject = rejected(raw, found.code, found.reason(), found.format)
            assert len(reject.value) + sum(len(key) + len(value) for key, value in reject.headers) < BROKER_BYTES
        made: list[dict[str, Any]] = []
        for batch in batcher.batches():
            assert len(batch.value) <= topics.MAX_LOG_RECORD_BYTES
            if batch.partition == self.log.partition.number:
                made += self.log.add(*decode(batch.value, LogRecord).entries)
        return made

    def check_sizes(self) -> None:
        """Check that the topics take all that the decider writes."""
        state = self.log.partition.state
        for namespace in state.namespaces.values():
            namespace.dirty = set(SIDES)
        for hpa in state.hpas.values():
            hpa.dirty = True
        rows = {key: len(value) for key, value in self.log.partition.checkpoint()}
        assert {key: size for key, size in rows.items() if size >= BROKER_BYTES} == {}
        assert {key: size for key, size in rows.items() if b"|h/" in key and size > topics.MAX_ROW_BYTES} == {}
        sizes = [len(decision.value) for decision in self.log.decisions]
        assert max(sizes) < limits.DECISION.most + 64 * 1024

    def check_harmless(self) -> None:
        """Check that the harmless HPA is evaluated by what comes now."""
        now_ms = self.log.now_ms + 15_000
        made = self.send(Answers(items=[cpu_answer("web", {"web-1": 50}, now_ms)]), after_ms=15_000)
        made += self.log.ticks(16)
        assert [each for each in made if "uid-web" in each["id"]], made


# --- objects of any size ----------------------------------------------------------------------------------------------


def _hpa(length: int, seed: int) -> Body:
    return AutoscalerSet(hpa=huge_hpa(length=length))


def _hpa_of_many_metrics(length: int, seed: int) -> Body:
    return AutoscalerSet(hpa=make_hpa("huge", "u", metrics=[external(text(300, at)) for at in range(length // 400)]))


def _labelled_hpa(length: int, seed: int) -> Body:
    hpa = make_hpa("huge", "u")
    hpa["metadata"]["annotations"] = {"fleethpa.io/budget": text(length, seed)}
    return AutoscalerSet(hpa=hpa, author=text(length // 4, seed), reason="\x01" * (length // 8))


def _changed_web(length: int, seed: int) -> Body:
    hpa = make_hpa(generation=seed)
    hpa["status"] = {"desiredReplicas": 2, "conditions": [{"type": "x", "status": "True", "message": text(length)}]}
    return AutoscalerSet(hpa=hpa)


def _hpas(length: int, seed: int) -> Body:
    hpas = [make_hpa(), *(huge_hpa(f"h{at}", length // 4) for at in range(4))]
    return AutoscalerList(list_id=f"l{seed}", hpas=hpas)


def _conflicting(length: int, seed: int) -> Body:
    target = Target(kind="Deployment", name=text(length // 2))
    other = ConflictingAutoscaler(kind=text(length // 2), name="a", target=target)
    return AutoscalerList(list_id=f"l{seed}", hpas=[make_hpa()], conflicting=[other])


def _pods(length: int, seed: int) -> Body:
    pods = [make_pod(f"huge-{at}", labels={"app": "web", "x": text(length // 4, seed)}) for at in range(4)]
    return PodList(list_id=f"l{seed}", pods=[make_pod("web-1"), *pods])


def _pod(length: int, seed: int) -> Body:
    return PodSet(pod=make_pod(f"huge-{seed}", uid=text(length, seed)))


def _scale(length: int, seed: int) -> Body:
    return ScaleSet(target=Target(kind="Deployment", name="huge", group="apps"), selector=f"app={text(length, seed)}")


def _scale_error(length: int, seed: int) -> Body:
    return ScaleSet(target=Target(kind="Deployment", name="web", group="apps"), error="\x01" * length)


def _answer(length: int, seed: int) -> Body:
    return Answers(items=[MetricAnswer(api="resource", selector="app=web", error=text(length, seed))])


def _question(length: int, seed: int) -> Body:
    return Answers(items=[MetricAnswer(api="external", metric=text(length, seed)), cpu_answer("web", {"web-1": 1}, 1)])


def _sample(length: int, seed: int) -> Body:
    return Samples(points=[Point(type="External", metric="m", milli=1, time=1, labels={"a": text(length, seed)})])


def _outcome(length: int, seed: int) -> Body:
    return Outcome(
        decision="0-1-uid-web", name="web", uid="uid-web", result="failed", error=text(length), selector=text(length)
    )


def _heartbeat(length: int, seed: int) -> Body:
    return Heartbeat(session="s@1", watches=["pods"], problems={"pods": text(length, seed)})


def _report(length: int, seed: int) -> Body:
    trouble = ObserverTrouble(part="pods", reason="failing", since=1, error=text(length // 100))
    return ClusterReport(cluster=CLUSTER, session="s@1", instance="s", troubles=[trouble] * 100)


def _serving(length: int, seed: int) -> Body:
    return Serving(session="s@1", clusters=[CLUSTER], problems={CLUSTER: WriteProblem(text(length, seed), "failing")})


def _settings(length: int, seed: int) -> Body:
    namespaces: dict[str, Any] = {f"ns-{at}": "shadow" for at in range(length // 20)}
    return SettingsSet(cluster=CLUSTER, settings=ClusterSettings(namespaces=namespaces))


def _pause(length: int, seed: int) -> Body:
    return Command(command="pause", author=text(length, seed), reason=text(length, seed), until=1)


Make = Callable[[int, int], Body]
OBJECTS: tuple[Make, ...] = (
    _hpa,
    _hpa_of_many_metrics,
    _labelled_hpa,
    _changed_web,
    _hpas,
    _conflicting,
    _pods,
    _pod,
    _scale,
    _scale_error,
    _answer,
    _question,
    _sample,
    _outcome,
    _heartbeat,
    _report,
    _serving,
    _settings,
    _pause,
)
LENGTHS = st.sampled_from((600, 3_000, 15_000, 60_000, 200_000, 495_000, 1_000_000, 4_000_000, 10_485_760))
"""Characters; a record of more than 4 MiB is refused unread."""
SENT = st.tuples(st.sampled_from(OBJECTS), LENGTHS, st.integers(1, 9))


def check_all(sent: list[tuple[Make, int, int]]) -> None:
    """Send objects of these sizes and check what comes of them."""
    pipeline = Pipeline()
    for make, length, seed in sent:
        pipeline.send(make(length, seed))
        pipeline.log.ticks(2)
    pipeline.check_harmless()
    pipeline.check_sizes()

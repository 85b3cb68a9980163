"""Whatever an agent reports, what deciders keep and write of it stays within what the brokers take: a test per attempt.

Each attempt goes the way that records go: conversion, rules for agents, log, fold, rows of a checkpoint.
Texts are random, so that no compression helps. The limits of rows are an eighth here, so that an attempt takes an
eighth of the time; what bounds one HPA and one decision is as it is. The fold refuses what is over a limit of
number or of stored bytes, whoever reports it; ingest refuses what is over a limit of size or rate.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import pytest

from fleethpa.fleet.troubles import ClusterView
from schemas import limits
from schemas.agents import AgentSet
from schemas.answers import Answers, MetricAnswer, in_columns, pod_value
from schemas.codec import decode, encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, ControlTransferred, Entry, LeftNative, Outcome, PublicRecord
from schemas.keys import HpaId, namespace_key
from schemas.limits import Refusal
from schemas.observed import (
    REFUSED_PART,
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    ConflictingAutoscaler,
    Heartbeat,
    ObserverTrouble,
    Pod,
    PodDeleted,
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
from schemas.topics import MAX_ROW_BYTES
from streams.ingest import pieces as rates
from streams.ingest.convert import convert
from streams.ingest.logwriter import Batcher, LogEntry, log_entries
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.own import ReceivedAt, admit, refuse_future
from streams.ingest.pieces import COPIED_BYTES, AgentRates, Conversion, Piece, Rate, RawRecord
from streams.state import rowcodec
from streams.state.namespacerows import query_key
from streams.state.rows import SIDES, RefusedRow
from tests.kit.partition import LogBuilder, make_hpa, make_pod

T = TypeVar("T")
CHARACTERS = b"abcdefghijklmnopqrstuvwxyz234567" * 8
"""The letter or digit of each byte."""
SUMS = [name for name in dir(limits) if name.startswith("NAMESPACE_")]
EAST = AgentSet(cluster="east", incarnation=7, max_namespaces=300, max_hpas=240)
SESSION = "agent-east@4"
PARTITIONS = 4
SHARE = 8
LARGE_SHARE = 512
BROKER_BYTES = 1_048_576 - 4_096
"""What the brokers take of one record, but for its key and headers."""
PARTITION = partition_for(namespace_key("east", "shop"), PARTITIONS)


@dataclass
class Hub:
    """Ingest's rules and one partition of a decider."""

    random: Random = field(default_factory=lambda: Random(7))
    rates: AgentRates = field(default_factory=AgentRates)
    log: LogBuilder = field(default_factory=lambda: LogBuilder(PARTITION))
    codes: set[str] = field(default_factory=set)
    offset: int = 0

    def __post_init__(self) -> None:
        self.log.add(Entry(key=WHOLE_PARTITION_KEY, body=EAST))
        self.report(Heartbeat(session=SESSION, watches=["pods", "autoscalers", "scales", "metrics"]))

    def text(self, length: int) -> str:
        """Letters and digits that hardly compress: 5 random bits in each."""
        return self.random.randbytes(length).translate(CHARACTERS).decode()

    def report(self, *bodies: Body, namespace: str = "shop", after_ms: int = 20) -> Conversion:
        """Take a record in, as ingest and the decider do."""
        self.offset += 1
        now_ms = self.log.now_ms + after_ms
        value = encode(PublicRecord(v=1, entries=list(bodies), time=now_ms, cluster="east", namespace=namespace))
        raw = RawRecord(EAST.topics.reports, 0, self.offset, now_ms, value)
        found = convert(raw, Resolver(Mapping()))
        refuse_future(found, now_ms)
        admit(found, EAST, EAST.topics, self.rates, ReceivedAt(now_ms / 1000, now_ms / 1000))
        entries = []
        for entry in log_entries(found.pieces, raw, found.time_ms, PARTITIONS):
            if isinstance(entry, Refusal):
                found.refuse(entry)
            elif entry.partition in (None, PARTITION):
                entries.append(decode(entry.data, Entry))
        self.codes |= {refusal.code for refusal in found.refusals}
        self.log.add(*entries, after_ms=after_ms)
        return found

    @property
    def refused(self) -> set[str]:
        """The limits because of which the fold stored something not."""
        state = self.log.partition.state
        whole = {limit for rows in state.row.refused.values() for limit in rows}
        return whole | {limit for space in state.namespaces.values() for limit in space.held.refused}

    def rows(self) -> dict[bytes, int]:
        """The sizes of all rows."""
        for namespace in self.log.partition.state.namespaces.values():
            namespace.dirty = set(SIDES)
        for hpa in self.log.partition.state.hpas.values():
            hpa.dirty = True
        return {key: len(value) for key, value in self.log.partition.checkpoint()}


def hpa(name: str, uid: str = "u", generation: int = 1, **spec: Any) -> dict[str, Any]:
    return make_hpa(name, uid, generation, **spec)


def metric_answer(hub: Hub, **fields: Any) -> MetricAnswer:
    """An answer to another question each time."""
    return MetricAnswer(api="pods", metric=hub.text(20), selector="app=web", **fields)


def elsewhere(hub: Hub) -> str:
    """A namespace whose rows are in the same log partition."""
    while partition_for(namespace_key("east", name := hub.text(63)), PARTITIONS) != PARTITION:
        pass
    return name


# --- attempts ---------------------------------------------------------------------------------------------------------

Attempt = Callable[[Hub], Iterator[None]]


def many_scales(hub: Hub) -> Iterator[None]:
    for _ in range(5):
        target = [Target(group=hub.text(200), kind=hub.text(200), name=hub.text(253)) for _ in range(100)]
        hub.report(*[ScaleSet(target=each, selector=f"app={hub.text(60)}", session=SESSION) for each in target])
        yield


def long_selectors(hub: Hub) -> Iterator[None]:
    for _ in range(8):
        selector = ",".join(f"a{number}={hub.text(60)}" for number in range(60))[:1_900].rpartition(",")[0]
        hub.report(
            *[
                ScaleSet(target=Target(kind="Deployment", name=hub.text(20)), selector=selector, session=SESSION)
                for _ in range(10)
            ]
        )
        yield


def hpas_in_one_namespace(hub: Hub) -> Iterator[None]:
    for _ in range(8):
        hub.report(*[AutoscalerSet(hpa=hpa(hub.text(253), hub.text(128)), session=SESSION) for _ in range(50)])
        yield


def hpas_in_one_partition(hub: Hub) -> Iterator[None]:
    for _ in range(5):
        bodies = []
        namespace = elsewhere(hub)
        for _ in range(50):
            made = hpa(hub.text(253))
            made["metadata"]["namespace"] = namespace
            bodies.append(AutoscalerSet(hpa=made, session=SESSION))
        hub.report(*bodies, namespace=namespace)
        yield


def hpas_that_come_and_go(hub: Hub) -> Iterator[None]:
    for _ in range(8):
        names = [hub.text(253) for _ in range(50)]
        hub.report(*[AutoscalerSet(hpa=hpa(name), session=SESSION) for name in names])
        hub.report(*[AutoscalerDeleted(name=name, session=SESSION) for name in names], after_ms=20_000)
        yield


def ends_of_hpas_that_never_were(hub: Hub) -> Iterator[None]:
    for _ in range(4):
        hub.report(*[AutoscalerDeleted(name=hub.text(253), session=SESSION) for _ in range(100)])
        yield


def lists_of_hpas_that_never_end(hub: Hub) -> Iterator[None]:
    for _ in range(8):
        hpas = [hpa(hub.text(253), hub.text(128)) for _ in range(50)]
        hub.report(AutoscalerList(list_id=hub.text(9), hpas=hpas, chunk=0, chunks=2, session=SESSION))
        yield


def conflicting(hub: Hub) -> Iterator[None]:
    target = Target(kind="Deployment", name="web")
    for chunk in range(5):
        made = [ConflictingAutoscaler(kind=hub.text(100), name=hub.text(200), target=target) for _ in range(100)]
        hub.report(AutoscalerList(list_id="l", hpas=[], conflicting=made, chunk=chunk, chunks=50, session=SESSION))
        yield


def generations(hub: Hub) -> Iterator[None]:
    hub.report(ScaleSet(target=Target(group="apps", kind="Deployment", name="web"), selector="app=web"))
    for number in range(300):
        hub.report(AutoscalerSet(hpa=hpa("web", generation=number, maxReplicas=10 + number % 2), session=SESSION))
        yield


def selectors_with_each_generation(hub: Hub) -> Iterator[None]:
    """The overlap check remembers since the last checkpoint which selectors an HPA had."""
    for number in range(150):
        made = hpa("web", generation=number, maxReplicas=10 + number % 2)
        made["metadata"]["annotations"] = {"a": hub.text(60_000 if number % 50 == 0 else 9)}
        selector = ",".join(f"a{at}={hub.text(60)}" for at in range(40))[:2_000].rpartition(",")[0]
        target = Target(group="apps", kind="Deployment", name="web")
        hub.report(ScaleSet(target=target, selector=selector, session=SESSION))
        hub.report(AutoscalerSet(hpa=made, session=SESSION))
        yield


def uids(hub: Hub) -> Iterator[None]:
    for length in (36, 128, 40_000, 60_000):
        for _ in range(30):
            hub.report(AutoscalerSet(hpa=hpa("web", hub.text(length)), session=SESSION))
            yield


def moves_of_the_native_controller(hub: Hub) -> Iterator[None]:
    for number in range(300):
        made = hpa("web")
        made["status"] = {"currentReplicas": 1, "desiredReplicas": 2 + number % 2, "lastScaleTime": _time(number)}
        hub.report(AutoscalerSet(hpa=made, session=SESSION))
        yield


def _time(number: int) -> str:
    return f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z"


def large_hpas(hub: Hub) -> Iterator[None]:
    for _ in range(5):
        made = hpa("web", hub.text(20))
        made["metadata"]["annotations"] = {"a": hub.text(60_000)}
        hub.report(AutoscalerSet(hpa=made, session=SESSION))
        metrics = [_pods_metric(hub.text(250)) for _ in range(200)]
        hub.report(AutoscalerSet(hpa=hpa("large", metrics=metrics), session=SESSION))
        yield


def _pods_metric(name: str) -> dict[str, Any]:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "1"}}}


def authors(hub: Hub) -> Iterator[None]:
    for _ in range(5):
        hub.report(AutoscalerSet(hpa=hpa("web"), author=hub.text(600_000), session=SESSION))
        yield


def pods_of_any_name(hub: Hub) -> Iterator[None]:
    for number in range(20):
        pod = Pod(name=hub.text(9), uid=hub.text(16_000), labels={"app": "web"})
        hub.report(PodSet(pod=pod, session=SESSION))
        if number == 9:
            hub.rows()
        yield


def pods_that_go_by_lists_that_nobody_follows(hub: Hub) -> Iterator[None]:
    """Deciders follow session 4; what session 3 says must make no room."""
    for _ in range(20):
        hub.report(PodSet(pod=Pod(name=hub.text(9), uid=hub.text(16_000)), session=SESSION))
        hub.report(PodList(list_id=hub.text(9), pods=[], session="agent-east@3"))
        hub.report(PodDeleted(name="web", session="agent-east@3"))
        yield


def pods_of_new_sessions(hub: Hub) -> Iterator[None]:
    """What a new session says of single pods counts only after its full list."""
    for epoch in range(5, 25):
        name = hub.text(9)
        hub.report(PodList(list_id=hub.text(9), pods=[], chunk=0, chunks=2, session=f"agent-east@{2 * epoch}"))
        hub.report(PodSet(pod=Pod(name=name, uid=hub.text(16_000)), session=f"agent-east@{2 * epoch}"))
        hub.report(PodDeleted(name=name, session=f"agent-east@{2 * epoch + 1}"))
        yield


def pods_in_a_list_that_is_too_long(hub: Hub) -> Iterator[None]:
    for _ in range(7):
        hub.report(*[PodSet(pod=Pod(name=hub.text(9), uid=hub.text(15_000)), session=SESSION) for _ in "abc"])
        pods = [Pod(name=f"p{number}", uid=hub.text(15_000)) for number in range(40)]
        hub.report(PodList(list_id=hub.text(9), pods=pods, session=SESSION))
        yield


def queries(hub: Hub) -> Iterator[None]:
    for _ in range(10):
        items = [metric_answer(hub, error=hub.text(60)) for _ in range(40)]
        hub.report(Answers(items=items, session=SESSION))
        yield


def large_answers(hub: Hub) -> Iterator[None]:
    for _ in range(15):
        values = [pod_value(hub.text(60), 1, 1) for _ in range(300)]
        hub.report(Answers(items=[metric_answer(hub, pods=in_columns(values))], session=SESSION))
        yield


def texts_of_answers(hub: Hub) -> Iterator[None]:
    for _ in range(2):
        hub.report(Answers(items=[MetricAnswer(api="resource", metric=hub.text(300_000))], session=SESSION))
        hub.report(Answers(items=[MetricAnswer(api="pods", metric="m", object=hub.text(300_000))], session=SESSION))
        hub.report(Answers(items=[MetricAnswer(api="resource", selector=hub.text(300_000))], session=SESSION))
        yield


def errors(hub: Hub) -> Iterator[None]:
    names = [f"m{number}" for number in range(50)]
    hub.report(AutoscalerSet(hpa=hpa("web", metrics=[_pods_metric(name) for name in names]), session=SESSION))
    for size in (300_000, 4_000):
        scale = ScaleSet(
            target=Target(group="apps", kind="Deployment", name="web"), selector="app=web", session=SESSION
        )
        hub.report(scale)
        hub.report(PodSet(pod=Pod(name="web-1", labels={"app": "web"}), session=SESSION))
        for name in names[:2] if size > 4_000 else names:
            item = MetricAnswer(api="pods", metric=name, selector="app=web", error=hub.text(size))
            hub.report(Answers(items=[item], session=SESSION))
        hub.log.ticks(40)
        hub.report(ScaleSet(target=scale.target, error=hub.text(size), session=SESSION))
        hub.log.ticks(40)
        yield


def errors_that_json_makes_longer(hub: Hub) -> Iterator[None]:
    hub.report(AutoscalerSet(hpa=hpa("web"), session=SESSION))
    hub.report(ScaleSet(target=Target(group="apps", kind="Deployment", name="web"), error="\x01" * 4_000))
    hub.log.ticks(40)
    yield


def outcomes(hub: Hub) -> Iterator[None]:
    hub.report(AutoscalerSet(hpa=hpa("web"), session=SESSION))
    for number in range(300):
        large = 5_000 if number % 2 else 3_000
        made = Outcome(decision=f"0-{number}-u", name="web", uid="u", result="failed", error=hub.text(large))
        hub.report(made, Outcome(decision="0-1-u", name="web", uid="u", result="applied", selector=hub.text(large)))
        yield


def samples(hub: Hub) -> Iterator[None]:
    def make() -> Point:
        labels = {"a": hub.text(20), "b": "x" * 200}
        return Point(type="External", metric="m", milli=1, time=hub.log.now_ms, labels=labels)

    for _ in range(5):
        hub.report(Samples(points=[make() for _ in range(40)]))
        yield


def samples_of_the_future(hub: Hub) -> Iterator[None]:
    for _ in range(3):
        points = [Point(type="Pods", metric="m", milli=1, time=253_402_300_799_999, pod=hub.text(9)) for _ in range(9)]
        assert not hub.report(Samples(points=points)).pieces
        yield


def names_of_samples(hub: Hub) -> Iterator[None]:
    for _ in range(2):
        hub.report(
            Samples(
                points=[
                    Point(type="Pods", metric="m", milli=1, time=1, pod="a", container=hub.text(90_000)),
                    Point(type="External", metric="m", milli=1, time=1, labels={"a": hub.text(90_000)}),
                ]
            )
        )
        yield


def samples_again_and_again(hub: Hub) -> Iterator[None]:
    pods = [hub.text(9) for _ in range(20)]
    for number in range(800):
        moment = hub.log.now_ms + number
        hub.report(
            Samples(
                points=[
                    Point(type="Pods", metric=f"m{at}", milli=1, time=moment, pod=pod) for at, pod in enumerate(pods)
                ]
            ),
            after_ms=1,
        )
        yield


def heartbeats(hub: Hub) -> Iterator[None]:
    for _ in range(20):
        watches = [hub.text(200) for _ in range(200)]
        hub.report(Heartbeat(session=SESSION, watches=watches, problems={"pods": hub.text(900)}))
        hub.report(Heartbeat(session=SESSION, watches=["pods"], problems={"pods": hub.text(100_000)}))
        yield


def namespaces(hub: Hub) -> Iterator[None]:
    for _ in range(500):
        hub.report(Heartbeat(session=SESSION), namespace=elsewhere(hub), after_ms=1)
        yield
    for count in (900, 5_000):
        hub.report(Heartbeat(session=SESSION, namespaces=[elsewhere(hub) for _ in range(count)]), after_ms=1)
        yield


def sessions(hub: Hub) -> Iterator[None]:
    for session in ("agent-east@" + "9" * 5_000, "agent-east", hub.text(40), "agent-west@4", SESSION):
        hub.report(PodSet(pod=Pod(name="web"), session=session))
        yield


def cluster_reports(hub: Hub) -> Iterator[None]:
    for size in (900, 90):
        for _ in range(20):
            troubles = [ObserverTrouble(part=hub.text(90), reason="failing", since=1, error=hub.text(size))] * 100
            report = ClusterReport(cluster="east", session=SESSION, instance="agent-east", troubles=troubles)
            hub.report(report, namespace="")
            yield


def whole_partitions(hub: Hub) -> Iterator[None]:
    for number in range(1, 60):
        serving = Serving(session=SESSION, clusters=["east"], problems={"east": WriteProblem(hub.text(900), "failing")})
        hands = ControlTransferred(cluster="east", holder=hub.text(500), generation=number, time=number)
        hub.report(serving, hands, namespace="")
        yield


CODES: dict[Attempt, set[str]] = {
    many_scales: {"scales"},
    long_selectors: {"scales"},
    hpas_in_one_namespace: {"HPAs"},
    hpas_in_one_partition: {"HPAs of the cluster"},
    hpas_that_come_and_go: set(),
    ends_of_hpas_that_never_were: set(),
    lists_of_hpas_that_never_end: {"HPAs"},
    conflicting: {"other autoscalers of targets"},
    generations: {"overRate"},
    selectors_with_each_generation: {"overRate"},
    uids: {"overLimit", "overRate"},
    moves_of_the_native_controller: {"overRate"},
    large_hpas: {"overLimit"},
    authors: set(),
    pods_of_any_name: {"pods"},
    pods_that_go_by_lists_that_nobody_follows: {"pods"},
    pods_of_new_sessions: {"pods"},
    pods_in_a_list_that_is_too_long: {"overLimit", "pods"},
    queries: {"answers of metrics APIs", "questions to metrics APIs"},
    large_answers: {"answers of metrics APIs"},
    texts_of_answers: {"overLimit"},
    errors: {"answers of metrics APIs"},
    errors_that_json_makes_longer: set(),
    outcomes: {"overLimit", "overRate"},
    samples: {"pushed samples"},
    samples_of_the_future: {"badTime"},
    names_of_samples: {"overLimit"},
    samples_again_and_again: {"overRate"},
    heartbeats: {"overLimit"},
    namespaces: {"namespaces of the cluster", "overLimit"},
    sessions: {"badName"},
    cluster_reports: {"overLimit"},
    whole_partitions: {"overRate"},
}


@pytest.mark.parametrize(("attempt", "codes"), CODES.items(), ids=[attempt.__name__ for attempt in CODES])
def test_what_deciders_keep_of_it_has_an_end(
    attempt: Attempt, codes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowcodec, "MAX_ROW_BYTES", MAX_ROW_BYTES // SHARE)
    monkeypatch.setattr(rates, "SAMPLES", Rate(15_000, 500.0))
    for name in SUMS:
        limit = getattr(limits, name)
        monkeypatch.setattr(
            limits, name, replace(limit, most=limit.most // (SHARE if limit.most < 2**20 else LARGE_SHARE))
        )
    hub = Hub()
    for _ in attempt(hub):
        pass
    assert hub.codes | hub.refused == codes
    rows = hub.rows()
    assert [key for key, size in rows.items() if size >= BROKER_BYTES // (1 if b"|h/" in key else SHARE)] == []
    assert all(len(decision.value) < BROKER_BYTES for decision in hub.log.decisions)


def test_what_is_not_cut_leaves_room_in_a_record_of_the_brokers() -> None:
    first = (limits.NAMESPACE_CONFLICTING, limits.NAMESPACE_CONFLICTING, limits.NAMESPACE_COMMANDS, limits.ANSWER)
    assert sum(limit.most for limit in first) + MAX_ROW_BYTES // 2 < BROKER_BYTES - 64 * 1024
    assert limits.NAMESPACE_VIEW.most < BROKER_BYTES - 64 * 1024


@pytest.mark.parametrize("partitions", [4, 24, 96])
def test_what_an_agent_writes_into_the_log_is_within_its_quota_for_any_number_of_partitions(partitions: int) -> None:
    """Ten seconds of the largest reports that concern the whole cluster, one after the other, inside the quota."""
    hub, sent, logged = Hub(), 0, 0
    quota = 2_097_152 * 10
    natives = [LeftNative(namespace=f"n{number}", name=hub.text(253)) for number in range(240)]
    rates, offset = AgentRates(), 0
    while sent < quota:
        offset += 1
        bodies: list[Body] = [
            ControlTransferred(cluster="east", holder=hub.text(500), generation=offset, time=offset, natives=natives),
            Serving(session=SESSION, clusters=["east"], problems={"east": WriteProblem(hub.text(900), "failing")}),
        ]
        value = encode(PublicRecord(v=1, entries=bodies * 6, time=1, cluster="", namespace=""))
        raw = RawRecord(EAST.topics.reports, 0, offset, 1, value)
        found = convert(raw, Resolver(Mapping()))
        admit(found, EAST, EAST.topics, rates, ReceivedAt(sent / 2_097_152, sent / 2_097_152))
        batcher = Batcher(partitions)
        for entry in log_entries(found.pieces, raw, found.time_ms, partitions):
            assert isinstance(entry, LogEntry)
            batcher.add(entry)
        logged += sum(len(batch.value) for batch in batcher.batches())
        sent += len(value)
    copied = partitions * (COPIED_BYTES.burst + 10 * COPIED_BYTES.per_s)
    assert logged < min(sent, 2 * copied + 40 * 80_000)


def test_a_native_hpa_goes_into_the_log_partition_of_its_namespace_only() -> None:
    natives = [LeftNative(namespace=f"n{number}", name="web") for number in range(20)]
    body = ControlTransferred(cluster="east", holder="hub/eu/1", generation=2, time=1, natives=natives)
    raw = RawRecord(EAST.topics.reports, 0, 0, 1, b"")
    entries = list(log_entries([Piece("", "", body)], raw, 1, PARTITIONS))
    found = []
    for entry in entries:
        assert isinstance(entry, LogEntry)
        change = decode(entry.data, Entry).body
        assert isinstance(change, ControlTransferred)
        found += change.natives
        wanted = {partition_for(namespace_key("east", native.namespace), PARTITIONS) for native in change.natives}
        assert wanted <= {entry.partition}
    assert sorted(native.namespace for native in found) == sorted(native.namespace for native in natives)
    assert {entry.partition for entry in entries if isinstance(entry, LogEntry)} == set(range(PARTITIONS))


def test_a_record_of_10_mb_is_refused_unread() -> None:
    raw = RawRecord(EAST.topics.reports, 0, 0, 0, b"{" * 10_000_000)
    found = convert(raw, Resolver(Mapping()))
    assert (found.pieces, found.code) == ([], "overLimit")


def test_all_of_an_agent_together_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLUSTER_BYTES", replace(limits.CLUSTER_BYTES, most=100_000))
    hub = Hub()
    for _ in range(30):
        hub.report(PodSet(pod=Pod(name=hub.text(20), uid=hub.text(12_000)), session=SESSION))
    assert hub.refused == {limits.CLUSTER_BYTES.what}
    assert 5 < len(hub.log.partition.state.namespaces["east/shop"].pods) < 12


# --- what an honest agent does is not in the way ----------------------------------------------------------------------


def test_pods_that_go_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLUSTER_BYTES", replace(limits.CLUSTER_BYTES, most=40_000))
    hub = Hub()
    for number in range(100):
        hub.report(PodSet(pod=Pod(name=f"web-{number}"), session=SESSION))
        hub.report(PodDeleted(name=f"web-{number}", session=SESSION))
    for epoch in range(5, 15):
        pods = [Pod(name=f"web-{epoch}-{number}") for number in range(30)]
        session = f"agent-east@{epoch}"
        hub.report(PodList(list_id=session, pods=pods[:15], chunk=0, chunks=2, session=session))
        hub.report(PodList(list_id=session, pods=pods[15:], chunk=1, chunks=2, session=session))
        hub.report(PodDeleted(name=f"web-{epoch}-3", session=session))
    assert hub.codes | hub.refused == set()
    assert len(hub.log.partition.state.namespaces["east/shop"].pods) == 29


def test_hpas_that_go_make_room_and_a_known_one_is_always_replaced() -> None:
    hub = Hub()
    names = [f"web-{number}" for number in range(EAST.max_hpas + 1)]
    for name in names:
        hub.report(AutoscalerSet(hpa=hpa(name), session=SESSION))
    directory = hub.log.partition.state.namespaces["east/shop"].directory
    assert {key.name for key in directory} == set(names[:-1])
    assert hub.refused == {limits.CLUSTER_HPAS.what}
    hub.report(AutoscalerSet(hpa=hpa(names[0], generation=2, maxReplicas=99), session=SESSION))
    assert hub.log.partition.state.hpas[HpaId("east", "shop", names[0])].row.hpa_object()["spec"]["maxReplicas"] == 99
    hub.report(AutoscalerDeleted(name=names[1], session=SESSION))
    hub.report(AutoscalerSet(hpa=hpa(names[-1]), session=SESSION))
    assert {key.name for key in directory} == {names[0], *names[2:]}


def test_what_the_fold_refuses_is_shown_for_an_hour() -> None:
    row = RefusedRow(count=3, name="web-17", first_ms=1_790_000_000_000, last_ms=1_790_000_060_000)

    def shown(now_ms: int) -> list[str]:
        refused = {"HPAs of the cluster in namespace shop": row}
        found = ClusterView("east", clock_ms=now_ms, reported_ms=now_ms, refused=refused).troubles
        return [trouble.text for trouble in found if trouble.kind == "overLimit"]

    [text] = shown(row.last_ms)
    assert "3 reports not taken" in text
    assert "HPAs of the cluster in namespace shop; newest: web-17" in text
    assert shown(row.last_ms + 3_600_001) == []


def test_answers_make_room_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLUSTER_BYTES", replace(limits.CLUSTER_BYTES, most=8_000))
    hub = Hub()

    def ask(name: str, after_ms: int = 20) -> bool:
        item = MetricAnswer(api="pods", metric=name, selector="app=web")
        hub.report(Answers(items=[item], session=SESSION), after_ms=after_ms)
        answers = hub.log.partition.state.namespaces["east/shop"].answers
        row = answers.get(query_key(item))
        return row is not None and row.time_ms == hub.log.now_ms

    assert {ask(f"m{number}") for number in range(40)} == {True, False}
    assert ask("m1"), "what is known already is replaced"
    for _ in range(2 * 60):
        hub.log.add(after_ms=60_000)
    assert ask("other")


def test_a_backlog_is_no_flood() -> None:
    """An hour of reports that is read in a second, as after a stop of ingest."""
    rates, codes = AgentRates(), set()
    body = AutoscalerSet(hpa=hpa("web"), session=SESSION)
    for number in range(3_600):
        found = Conversion(pieces=[Piece("east", "shop", body)])
        admit(found, EAST, EAST.topics, rates, ReceivedAt(now_s=100 + number / 3_600, at_s=number))
        codes.add(found.code)
    assert codes == {""}


def test_the_reports_of_an_agent_tell_what_was_refused_of_it() -> None:
    hub = Hub()
    report = ClusterReport(cluster="east", session=SESSION, instance="agent-east")
    assert hub.report(report, namespace="").pieces[0].body == report
    hub.report(PodSet(pod=Pod(name="web", uid="x" * 20_000), session=SESSION))
    shown = hub.report(report, namespace="").pieces[0].body
    assert isinstance(shown, ClusterReport)
    (trouble,) = shown.troubles
    assert (trouble.part, trouble.error.partition(":")[0]) == (REFUSED_PART, "1 entries, at last")
    assert hub.report(report, namespace="", after_ms=700_000).pieces[0].body == report


def test_the_largest_cluster_fits() -> None:
    """A fiftieth of 10,000 HPAs of 15 pods each, all in one log partition."""
    log, uid = LogBuilder(), "8af5a841-3902-43bc-bc72-7c0f68a39064"
    for namespace in (f"team-{number:02}-payments" for number in range(4)):
        listed = []
        for name in (f"checkout-service-{number:02}" for number in range(50)):
            made = hpa(name, uid)
            made["metadata"] |= {"namespace": namespace, "annotations": {"last-applied-configuration": "x" * 700}}
            listed.append(made)
            labels = {"app.kubernetes.io/name": name, "pod-template-hash": "7c9f8b5d4", "team": "payments"}
            pods = [make_pod(f"{name}-7c9f8b5d4-{number:05}", uid=uid, labels=labels) for number in range(15)]
            selector = f"app.kubernetes.io/name={name}"
            target = Target(group="apps", kind="Deployment", name=name)
            values = [pod_value(pod.name, 1, 1) for pod in pods]
            answers = Answers(items=[MetricAnswer(api="pods", metric="m", selector=selector, pods=in_columns(values))])
            bodies: list[Body] = [*[PodSet(pod=pod, session=SESSION) for pod in pods], answers]
            bodies.append(ScaleSet(target=target, selector=selector, uid=uid, session=SESSION))
            log.add(*[Entry(key=namespace_key("east", namespace), body=body) for body in bodies])
        body = AutoscalerList(list_id="l", hpas=listed, session=SESSION)
        log.add(Entry(key=namespace_key("east", namespace), body=body))
    state = log.partition.state
    assert [space.held.refused for space in state.namespaces.values()] == [{}] * 4
    used = state.usage["east"]
    assert (used.hpas, used.namespaces) == (200, 4)
    assert 50 * used.bytes < limits.CLUSTER_BYTES.most

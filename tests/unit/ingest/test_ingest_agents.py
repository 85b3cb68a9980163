"""What the topic of an agent may say, and what the shared topics may not say of its cluster."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec import structs

from schemas.agentregistry import AgentRegistry
from schemas.agents import AgentSet, AgentTopics
from schemas.answers import Answers
from schemas.codec import encode
from schemas.entries import KINDS, Body, ControlTransferred, Outcome, PublicRecord
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    Container,
    Heartbeat,
    Pod,
    PodDeleted,
    PodList,
    PodSet,
    Samples,
    ScaleSet,
    Serving,
    Target,
    WriteProblem,
)
from schemas.settings import ClusterSettings, EngineSet, Restart, SettingsSet, WatermarkReset
from schemas.topics import AUTOSCALERS, OUTCOMES, PODS, SAMPLES, SCALES, SETTINGS, SPECS
from streams.ingest.convert import convert
from streams.ingest.hpamanifests import KnownParts
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.own import ReceivedAt, admit, refuse_agents
from streams.ingest.pieces import COPIED_BYTES, AgentRates, Conversion, RawRecord

EAST = AgentSet(cluster="east", incarnation=7, max_namespaces=2, max_hpas=3)
REPORTS = EAST.topics.reports
SESSION = "agent-east@4"
NOW_MS = 1_790_000_000_000


def hpa(name: str = "web", **changes: Any) -> dict[str, Any]:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    body: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", "uid": "u"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 5},
    }
    return body | changes


def record(*bodies: Body, cluster: str = "east", namespace: str = "shop") -> bytes:
    return encode(PublicRecord(v=1, entries=list(bodies), time=NOW_MS, cluster=cluster, namespace=namespace))


def read(value: bytes, topic: str) -> Conversion:
    return convert(RawRecord(topic, 0, 0, NOW_MS, value), Resolver(Mapping()))


def reported(
    *bodies: Body,
    cluster: str = "east",
    namespace: str = "shop",
    agent: AgentSet | None = EAST,
    limits: AgentRates | None = None,
    now_s: float = 0.0,
) -> Conversion:
    """What becomes of a record on the topic of east's agent."""
    found = read(record(*bodies, cluster=cluster, namespace=namespace), REPORTS)
    admit(found, agent, EAST.topics, limits or AgentRates(), ReceivedAt(now_s, NOW_MS / 1000 + now_s))
    return found


OBSERVED = [
    pytest.param(Answers(items=[], session=SESSION), id="answers"),
    pytest.param(Samples(points=[]), id="samples"),
    pytest.param(PodDeleted(name="web-1", session=SESSION), id="podDeleted"),
    pytest.param(PodList(list_id="l", pods=[], session=SESSION), id="podList"),
    pytest.param(AutoscalerSet(hpa=hpa(), session=SESSION), id="autoscalerSet"),
    pytest.param(AutoscalerDeleted(name="web", session=SESSION), id="autoscalerDeleted"),
    pytest.param(AutoscalerList(list_id="l", hpas=[hpa()], session=SESSION), id="autoscalerList"),
    pytest.param(ScaleSet(target=Target(kind="Deployment", name="web", group="apps")), id="scaleSet"),
    pytest.param(Heartbeat(session=SESSION), id="heartbeat"),
    pytest.param(Outcome(decision="0-1-u", name="web", uid="u", result="applied"), id="outcome"),
]
SHARED = {
    "answers": SAMPLES,
    "samples": SAMPLES,
    "podDeleted": PODS,
    "podList": PODS,
    "autoscalerSet": AUTOSCALERS,
    "autoscalerDeleted": AUTOSCALERS,
    "autoscalerList": AUTOSCALERS,
    "scaleSet": SCALES,
    "heartbeat": SCALES,
    "outcome": OUTCOMES,
}


def test_an_agent_may_report_these_kinds_and_no_other() -> None:
    """A new kind is refused to agents until its line in `KINDS` says otherwise."""
    observed = [each for each in KINDS if each.is_observed]
    assert {each.tag for each in observed} == {*SHARED, "podSet", "clusterReport", "serving", "controlTransferred"}
    assert not any(SETTINGS in each.topics for each in observed)


@pytest.mark.parametrize("body", OBSERVED)
def test_an_agent_reports_what_is_observed_in_its_cluster(body: Body) -> None:
    found = reported(body)
    assert [(piece.cluster, piece.namespace) for piece in found.pieces] == [("east", "shop")]
    assert found.refusals == []


@pytest.mark.parametrize("body", OBSERVED)
def test_it_may_not_speak_for_another_cluster(body: Body) -> None:
    found = reported(body, cluster="west")
    assert (found.pieces, found.code) == ([], "otherCluster")
    assert "'east' may not report on cluster 'west'" in found.reason()


@pytest.mark.parametrize("body", OBSERVED)
def test_without_a_registration_of_the_topic_nothing_counts(body: Body) -> None:
    assert (reported(body, agent=None).pieces, reported(body, agent=None).code) == ([], "noAgent")


@pytest.mark.parametrize(
    ("body", "namespace", "code"),
    [
        pytest.param(Command(command="pause", name="web"), "shop", "wrongTopic", id="command for an HPA"),
        pytest.param(Command(command="resume", cluster="east"), "", "wrongTopic", id="command for its cluster"),
        pytest.param(
            SettingsSet(cluster="east", settings=ClusterSettings(frozen=False)), "", "wrongTopic", id="settings"
        ),
        pytest.param(AgentSet(cluster="west", incarnation=9, left=True), "", "wrongTopic", id="agent"),
        pytest.param(EngineSet(engine=1), "", "wrongTopic", id="engine"),
        pytest.param(WatermarkReset(topic=REPORTS, source_partition=0), "", "wrongTopic", id="watermarkReset"),
        pytest.param(Restart(reason="why not"), "", "wrongTopic", id="restart"),
        pytest.param(
            AutoscalerSet(hpa=hpa(), origin="central", mode="enforce"), "shop", "notAllowed", id="a central HPA"
        ),
        pytest.param(AutoscalerDeleted(name="web", origin="central"), "shop", "notAllowed", id="a central HPA's end"),
        pytest.param(Serving(session="r", clusters=["west"]), "", "otherCluster", id="serving another cluster"),
        pytest.param(
            ControlTransferred(cluster="west", holder="stand-in", generation=9, time=1),
            "",
            "otherCluster",
            id="other hands",
        ),
        pytest.param(
            Serving(session="r", clusters=["east"], problems={"west": WriteProblem("x", "failing")}),
            "",
            "otherCluster",
            id="its problems",
        ),
        pytest.param(Serving(session="r", clusters=["east"] * 2), "", "outOfRange", id="serving at length"),
        pytest.param(
            ClusterReport(cluster="west", session=SESSION, instance="agent-east"), "", "otherCluster", id="report"
        ),
        pytest.param(
            ClusterReport(cluster="east", session=SESSION, instance="x"), "", "badName", id="report of many instances"
        ),
        pytest.param(
            ClusterReport(cluster="east", session="x@1", instance="agent-east"), "", "badName", id="foreign session"
        ),
    ],
)
def test_it_may_not_say_anything_else(body: Body, namespace: str, code: str) -> None:
    found = reported(body, cluster="east" if namespace else "", namespace=namespace)
    assert (found.pieces, found.code) == ([], code)
    assert found.is_rejected


def test_its_own_report_and_what_it_serves_are_taken() -> None:
    report = ClusterReport(cluster="east", session=SESSION, instance="agent-east")
    serving = Serving(session=SESSION, clusters=["east"], problems={"east": WriteProblem("no", "failing")})
    found = reported(report, serving, cluster="", namespace="")
    assert [piece.body for piece in found.pieces] == [report, serving]


def test_a_sign_of_life_with_the_page_of_a_proxy_as_its_problem_is_still_one() -> None:
    page = "<html>" + "x" * 2_000
    beat = Heartbeat(session=SESSION, watches=["pods"], problems={"autoscalers": page})
    [piece] = reported(beat).pieces
    assert isinstance(piece.body, Heartbeat)
    assert piece.body.watches == ["pods"]
    assert piece.body.problems["autoscalers"].endswith("x… (cut, it has 2006 characters)")
    serving = Serving(session=SESSION, clusters=["east"], problems={"east": WriteProblem(page, "failing")})
    [piece] = reported(serving, cluster="", namespace="").pieces
    assert isinstance(piece.body, Serving)
    assert piece.body.problems["east"].error.endswith("x… (cut, it has 2006 characters)")


def test_heartbeats_that_name_namespaces_more_often_than_an_observer_does_are_refused() -> None:
    limits, names = AgentRates(), [f"n{number}" for number in range(999)]
    beat = Heartbeat(session=SESSION, watches=["pods"], namespaces=names)
    for at in range(60):  # as an observer sends them, for five minutes
        assert reported(beat, limits=limits, now_s=5.0 * at).result == "ok"
    flood = reported(*[beat] * 200, limits=limits, now_s=301.0)
    assert 0 < len(flood.pieces) <= 30
    assert {refusal.code for refusal in flood.refusals} == {"overRate"}
    repeated = structs.replace(beat, namespaces=["bank"] * 999)
    assert not reported(repeated, limits=limits, now_s=301.0).pieces


def test_the_good_part_of_a_record_is_taken() -> None:
    found = reported(Heartbeat(session=SESSION), Command(command="pause"))
    assert ([type(piece.body) for piece in found.pieces], found.result) == ([Heartbeat], "partial")


LARGE: Final = 50_000
"""Characters of a text that a hostile agent makes up anew for each record."""


def _pod(**changes: Any) -> Pod:
    return Pod(name="web-1", uid="u", **changes)


def _versioned(text: str) -> AutoscalerSet:
    metadata = {"name": "web", "namespace": "shop", "resourceVersion": "1", "annotations": {"large": text}}
    return AutoscalerSet(hpa=hpa(metadata=metadata, status={"desiredReplicas": 1}), session=SESSION)


HOSTILE: Final[dict[str, Callable[[str], bytes]]] = {
    "cluster": lambda text: record(Heartbeat(session=SESSION), cluster=text),
    "namespace": lambda text: record(Heartbeat(session=SESSION), namespace=text),
    "name": lambda text: record(PodDeleted(name=text, session=SESSION)),
    "request": lambda text: record(
        PodSet(pod=_pod(containers=[Container(name="web", requests={"cpu": text})]), session=SESSION)
    ),
    "label": lambda text: record(PodSet(pod=_pod(labels={"app": text}), session=SESSION)),
    "HPA": lambda text: record(_versioned(text)),
    "selector": lambda text: record(
        ScaleSet(target=Target(kind="Deployment", name="web", group="apps"), selector=f"app={text}")
    ),
    "series": lambda text: json.dumps(
        {"name": text, "labels": {"cluster": "east"}, "value": "1", "timestamp": "2026-11-21T12:00:00Z"}
    ).encode(),
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_nothing_is_kept_of_large_texts_that_differ_each_time(make: Callable[[str], bytes]) -> None:
    resolver, limits = Resolver(Mapping()), AgentRates()

    def take(number: int) -> None:
        raw = RawRecord(REPORTS, 0, 0, NOW_MS, make(f"n{number}-" + "x" * LARGE))
        admit(convert(raw, resolver), EAST, EAST.topics, limits, ReceivedAt(0.0, 0.0))

    take(0)
    tracemalloc.start()
    try:
        for number in range(1, 21):
            take(number)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5 * LARGE


def test_known_hpas_take_no_more_memory_than_they_may() -> None:
    known = KnownParts(max_bytes=1_000, max_one_bytes=200)
    known.put(b"too large", b"x" * 201)
    assert known.get(b"too large") is None
    for number in range(50):
        known.put(b"%4d" % number, b"x" * 96)
    assert known.bytes == 1_000
    assert [known.get(b"%4d" % number) is not None for number in (0, 39, 40, 49)] == [False, False, True, True]


# --- the shared topics ------------------------------------------------------------------------------------------------


def registry(*entries: AgentSet) -> AgentRegistry:
    made = AgentRegistry()
    for entry in entries or (EAST,):
        made.apply(entry)
    return made


def shared(body: Body, topic: str, known: AgentRegistry, cluster: str = "east", namespace: str = "shop") -> Conversion:
    found = read(record(body, cluster=cluster, namespace=namespace), topic)
    refuse_agents(found, known)
    return found


@pytest.mark.parametrize("body", OBSERVED)
def test_what_the_shared_topics_report_on_an_agents_cluster_is_refused(body: Body) -> None:
    topic = SHARED[str(body.__struct_config__.tag)]
    assert (shared(body, topic, registry()).pieces, shared(body, topic, registry()).code) == ([], "agentCluster")
    assert shared(body, topic, registry(), cluster="west").refusals == []
    left = structs.replace(EAST, left=True)
    assert shared(body, topic, registry(EAST, left)).refusals == []


def test_a_pause_on_a_topic_that_expires_is_refused() -> None:
    for command, topic in (("pause", AUTOSCALERS), ("resume", AUTOSCALERS), ("mode", SETTINGS)):
        body = Command(command=command, mode="off", name="web")  # type: ignore[arg-type]
        found = shared(body, topic, registry(), cluster="east", namespace="shop")
        wanted = SETTINGS if topic == AUTOSCALERS else AUTOSCALERS
        assert found.refusals[0].text.endswith(f"command {command} of HPAs and namespaces: send it to {wanted}")


@pytest.mark.parametrize(
    ("body", "topic", "namespace"),
    [
        pytest.param(AutoscalerSet(hpa=hpa(), origin="central"), SPECS, "shop", id="a central HPA"),
        pytest.param(AutoscalerDeleted(name="web", origin="central"), SPECS, "shop", id="the end of one"),
        pytest.param(Command(command="mode", mode="off", name="web"), AUTOSCALERS, "shop", id="a mode"),
        pytest.param(Command(command="pause", name="web"), SETTINGS, "shop", id="a pause"),
        pytest.param(Command(command="pause", cluster="east"), SETTINGS, "", id="a pause of a cluster"),
        pytest.param(SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)), SETTINGS, "", id="settings"),
    ],
)
def test_what_operators_write_is_taken(body: Body, topic: str, namespace: str) -> None:
    found = shared(body, topic, registry(), cluster="east" if namespace else "", namespace=namespace)
    assert (len(found.pieces), found.refusals) == (1, [])


def test_a_reconciler_serves_the_clusters_that_have_no_agent() -> None:
    body = Serving(session="r", clusters=["east", "west"], problems={"east": WriteProblem("x", "failing")})
    found = shared(body, SCALES, registry(), cluster="", namespace="")
    assert [piece.body for piece in found.pieces] == [Serving(session="r", clusters=["west"])]
    assert found.code == "agentCluster"


# --- the registry -----------------------------------------------------------------------------------------------------


def test_a_registry_never_goes_back() -> None:
    known, left = registry(), structs.replace(EAST, left=True)
    assert not known.apply(EAST)
    assert known.present("east") == EAST
    assert known.agent_of(AgentTopics("east", 6)) is None
    assert known.apply(left)
    assert (known.present("east"), known.agents(), known.newest("east")) == (None, [], left)
    assert not known.apply(EAST)
    again = structs.replace(EAST, incarnation=8)
    assert known.apply(again)
    assert (known.agents(), known.agent_of(EAST.topics), known.agent_of(again.topics)) == ([again], None, again)


def test_what_goes_into_every_log_partition_has_a_rate_in_bytes_beside_that_in_number() -> None:
    """Of two kinds as many as their number allows, which are more bytes than may be copied."""
    limits, copied_bytes, reasons = AgentRates(), 0, set()
    for second in range(200):
        serving = Serving(session=SESSION, clusters=["east"], problems={"east": WriteProblem("x" * 900, "failing")})
        hands = ControlTransferred(cluster="east", holder="h" * 500, generation=second, time=second)
        found = reported(serving, hands, cluster="", namespace="", limits=limits, now_s=second)
        copied_bytes += sum(len(encode(piece.body)) for piece in found.pieces)
        reasons |= {refusal.text for refusal in found.refusals}
    most_bytes = COPIED_BYTES.burst + 200 * COPIED_BYTES.per_s
    assert most_bytes - 2_000 < copied_bytes <= most_bytes
    wanted = "bytes of the agent of cluster 'east' for every log partition: more than 65,536 at once"
    assert any(reason.startswith(wanted) for reason in reasons), reasons

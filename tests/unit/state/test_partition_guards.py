"""Mode, pauses, refusals, guards; shadow and other hands; central HPAs."""

from typing import Any

import msgspec
import pytest

from schemas.answers import Answers
from schemas.entries import WHOLE_PARTITION_KEY, Body
from schemas.keys import HpaId
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Command,
    ConflictingAutoscaler,
    PodSet,
    Target,
)
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.partition import ENFORCING, START_MS, LogBuilder, cpu_answer, make_hpa, make_pod, scale

Json = dict[str, Any]
SECOND = 1_000
SCALED_OBJECT = ConflictingAutoscaler(
    kind="ScaledObject", name="k", target=Target(group="apps", kind="Deployment", name="web")
)


def answers(log: LogBuilder, milli: int, pods: int = 2) -> Answers:
    return Answers(items=[cpu_answer("web", {f"web-{i}": milli for i in range(pods)}, log.now_ms)])


def world(*before: Body, replicas: int = 2, hpa: Json | None = None) -> LogBuilder:
    log = LogBuilder()
    if before:
        log.add(*before)
    pods = [PodSet(pod=make_pod(f"web-{i}")) for i in range(replicas)]
    log.add(AutoscalerSet(hpa=hpa or make_hpa()), scale(spec=replicas), *pods)
    return log


def evaluate(log: LogBuilder, milli: int, after_ms: int = SECOND, pods: int = 2) -> Json:
    made = log.add(answers(log, milli, pods), after_ms=after_ms)
    assert len(made) == 1
    return made[0]


def cluster(**fields: Any) -> SettingsSet:
    return SettingsSet(cluster="eu", settings=ClusterSettings(**fields))


ALL = SettingsSet(cluster="*", settings=ENFORCING)


# --- mode -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "mode"),
    [
        pytest.param([], "shadow", id="shadow by default"),
        pytest.param([ALL], "enforce", id="the default of all clusters"),
        pytest.param([ALL, cluster(default_mode="shadow")], "shadow", id="a cluster's default beats that of all"),
        pytest.param(
            [ALL, cluster(namespaces={"shop": "shadow"})], "shadow", id="a namespace in the settings beats the cluster"
        ),
        pytest.param([ALL, Command(command="mode", mode="shadow")], "shadow", id="a command for the namespace"),
        pytest.param(
            [ALL, Command(command="mode", mode="shadow"), Command(command="mode", name="web", mode="enforce")],
            "enforce",
            id="the HPA's own mode beats all",
        ),
        pytest.param(
            [ALL, Command(command="mode", name="web", mode="shadow"), Command(command="mode", name="web", mode=None)],
            "enforce",
            id="the HPA's own mode can be taken back",
        ),
        pytest.param(
            [ALL, Command(command="mode", cluster="eu", mode="shadow")], "shadow", id="a command for the cluster"
        ),
    ],
)
def test_the_most_particular_mode_counts(before: list[Body], mode: str) -> None:
    decision = evaluate(world(*before), 100)
    assert decision.get("mode", "shadow") == mode
    assert ("wants" in decision) == (mode == "enforce")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        pytest.param(
            [cluster(native_controller="present")],
            "a native HPA controller runs in cluster eu: the settings say so (native-controller=present); ",
            id="the settings say that a native one runs",
        ),
        pytest.param(
            [cluster(native_controller="present", native_evidence="it wrote the status of HPA shop/web at T")],
            "a native HPA controller runs in cluster eu: it wrote the status of HPA shop/web at T; switch it off there",
            id="a native one showed itself",
        ),
        pytest.param(
            [cluster(native_controller="unknown")], "fleethpa settings eu native-controller=absent", id="nobody knows"
        ),
        pytest.param(
            [AutoscalerSet(hpa=make_hpa("b", "uid-b", scaleTargetRef=make_hpa()["spec"]["scaleTargetRef"]))],
            "the cluster's HPA shop/b drives Deployment/web too",
            id="a second HPA of the target",
        ),
        pytest.param(
            [AutoscalerList(list_id="l", hpas=[make_hpa()], conflicting=[SCALED_OBJECT])],
            "ScaledObject shop/k drives Deployment/web too",
            id="a ScaledObject of the target",
        ),
    ],
)
def test_enforcing_is_refused_with_a_reason(more: list[Body], text: str) -> None:
    log = world(ALL)
    log.add(*more)
    decision = next(made for made in log.add(answers(log, 100), after_ms=SECOND) if made["name"] == "web")
    assert text in decision["refused"]
    assert decision.get("mode", "shadow") == "shadow"
    assert "wants" not in decision


def test_a_conflicting_autoscaler_that_is_gone_no_longer_refuses() -> None:
    log = world(ALL)
    log.add(AutoscalerSet(hpa=make_hpa("b", "uid-b", scaleTargetRef=make_hpa()["spec"]["scaleTargetRef"])))
    log.add(AutoscalerDeleted(name="b"))
    assert evaluate(log, 100)["wants"] == 4


# --- pauses and guards ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "up", "held"),
    [
        pytest.param(Command(command="pause", name="web"), True, True, id="a pause holds scaling up"),
        pytest.param(Command(command="pause", name="web"), False, True, id="and down"),
        pytest.param(
            Command(command="pause", name="web", pause_kind="scaleDown"), True, False, id="a pause of scaling down"
        ),
        pytest.param(
            Command(command="pause", name="web", pause_kind="scaleUp"), True, True, id="a pause of scaling up"
        ),
        pytest.param(Command(command="pause", name="other"), True, False, id="somebody else's pause"),
        pytest.param(Command(command="pause"), True, True, id="a pause of the namespace"),
        pytest.param(Command(command="pause", cluster="eu"), True, True, id="a pause of the cluster"),
        pytest.param(Command(command="pause", cluster="*"), True, True, id="a pause of everything"),
        pytest.param(Command(command="pause", cluster="us"), True, False, id="a pause of another cluster"),
        pytest.param(
            Command(command="pause", name="web", until=START_MS + SECOND), True, False, id="a pause that has ended"
        ),
        pytest.param(
            Command(command="pause", name="web", until=START_MS + 1_001), True, True, id="a pause in its last moment"
        ),
    ],
)
def test_a_pause_keeps_the_count_and_records_the_evaluation(command: Command, up: bool, held: bool) -> None:
    hpa = make_hpa(behavior={"scaleUp": {"policies": []}, "scaleDown": _down()}) if not up else None
    log = world(ALL, command, hpa=hpa, replicas=4)
    decision = evaluate(log, 200 if up else 10, pods=4)
    assert ("wants" not in decision) == held
    assert ("Paused" in decision.get("constraintsApplied", [])) == held
    assert (decision["finalDesiredReplicas"] == 4) == held
    assert decision["rawDesiredReplicas"] != 4


def _down() -> Json:
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    return {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [percent]}


def test_a_paused_hpa_shows_its_count_and_goes_on_evaluating() -> None:
    log = world(ALL, Command(command="pause", name="web", author="anna", reason="INC-42"))
    decision = evaluate(log, 100)
    assert decision["paused"] == "this HPA is paused by anna: INC-42"
    assert decision["status"]["desiredReplicas"] == 2
    assert decision["steps"][-1] == {"step": "guard", "in": 4, "out": 2}
    evaluate(log, 100, 15_000)
    log.add(Command(command="resume", name="web"))
    assert evaluate(log, 100, 15_000)["wants"] == 4


@pytest.mark.parametrize(
    ("cluster", "stated"),
    [
        pytest.param("eu", "cluster eu is paused by anna", id="a cluster"),
        pytest.param("*", "all clusters are paused by anna", id="all clusters"),
    ],
)
def test_a_wider_pause_is_named_in_the_decision(cluster: str, stated: str) -> None:
    log = world(ALL)
    log.add(log.entry(Command(command="pause", cluster=cluster, author="anna"), WHOLE_PARTITION_KEY))
    assert evaluate(log, 100)["paused"] == stated


def test_a_resume_of_one_kind_leaves_the_other() -> None:
    pauses = [Command(command="pause", name="web", pause_kind=kind) for kind in ("scaleUp", "scaleDown")]
    log = world(ALL, *pauses, Command(command="resume", name="web", pause_kind="scaleUp"))
    assert evaluate(log, 100)["wants"] == 4


def test_a_frozen_cluster_is_evaluated_and_not_written() -> None:
    decision = evaluate(world(ALL, cluster(frozen=True)), 100)
    assert (decision["paused"], decision["constraintsApplied"]) == ("cluster eu is frozen", ["Frozen"])
    assert "wants" not in decision


def test_a_maximal_step_cuts_the_write() -> None:
    decision = evaluate(world(ALL, cluster(max_step=1)), 100)
    assert (decision["wants"], decision["finalDesiredReplicas"]) == (3, 3)
    assert decision["constraintsApplied"] == ["MaxStep"]


@pytest.mark.parametrize(
    ("before", "wants", "final"),
    [
        pytest.param([ALL], None, 4, id="enforcing holds a wrapped number"),
        pytest.param([ALL, cluster(hold_on_overflow=False)], 1, 1, id="unless that guard is off"),
        pytest.param([], None, 1, id="shadow shows what upstream does"),
    ],
)
def test_an_overflow_is_held(before: list[Body], wants: int | None, final: int) -> None:
    hpa = make_hpa(behavior={"scaleUp": {"policies": []}, "scaleDown": _down()})
    hpa["spec"]["metrics"][0]["resource"]["target"] = {"type": "AverageValue", "averageValue": "1m"}
    log = world(*before, hpa=hpa, replicas=4)
    decision = evaluate(log, 2**62 // 4, pods=4)
    assert (decision.get("wants"), decision["finalDesiredReplicas"]) == (wants, final)
    assert ("Overflow" in decision.get("constraintsApplied", [])) == (final == 4)


# --- shadow -----------------------------------------------------------------------------------------------------------


def native(current: int, desired: int, at: str, able: str = "SucceededRescale") -> AutoscalerSet:
    condition = {"type": "AbleToScale", "status": "True", "lastTransitionTime": at, "reason": able}
    status = {"currentReplicas": current, "desiredReplicas": desired, "lastScaleTime": at, "currentMetrics": None}
    return AutoscalerSet(hpa=shadowed() | {"status": status | {"conditions": [condition]}})


def shadowed() -> Json:
    policy = {"type": "Pods", "value": 2, "periodSeconds": 60}
    rules = {"selectPolicy": "Max", "policies": [policy]}
    return make_hpa(behavior={"scaleUp": rules | {"stabilizationWindowSeconds": 0}, "scaleDown": rules})


def test_shadow_wants_nothing_and_shows_what_upstream_would() -> None:
    decision = evaluate(world(), 100)
    assert "wants" not in decision
    assert decision["status"]["desiredReplicas"] == 4
    assert decision["events"][-1][1] == "SuccessfulRescale"


def test_the_native_controllers_writes_take_the_place_of_outcomes() -> None:
    log = world(hpa=shadowed())
    evaluate(log, 100)
    log.add(scale(spec=4, status=2), after_ms=SECOND)
    log.add(native(2, 4, "2026-01-01T00:00:02Z"), after_ms=500)
    decision = evaluate(log, 100, 15_000)
    # Two pods were added within the policy's period, so it allows no more: 4 - 2 + 2.
    assert decision["finalDesiredReplicas"] == 4
    assert decision["observed"]["change"] == {"from": 2, "to": 4, "by": "native", "at": START_MS + 2_500}
    assert decision["status"]["lastScaleTime"] == "2026-01-01T00:00:02Z"


@pytest.mark.parametrize(
    ("able", "events"),
    [
        pytest.param("SucceededRescale", [(2, START_MS + 1_500, False), (3, START_MS + 1_800, False)], id="a write"),
        pytest.param("SucceededGetScale", [(2, START_MS + 1_500, False)], id="the counts of a reconcile that failed"),
    ],
)
def test_two_native_writes_within_a_second_are_distinguished_by_their_counts(able: str, events: list[Any]) -> None:
    log = world(hpa=shadowed())
    log.add(native(2, 4, "2026-01-01T00:00:01Z"), after_ms=1_500)
    log.add(native(4, 7, "2026-01-01T00:00:01Z", able), after_ms=300)
    log.add(native(4, 7, "2026-01-01T00:00:01Z", able), after_ms=100)
    assert list(log.partition.state.hpas[HpaId("eu", "shop", "web")].row.history.scale_up_events) == events


def test_another_hand_is_distinguished_and_leaves_no_scale_event() -> None:
    log = world(hpa=shadowed())
    evaluate(log, 100)
    log.add(scale(spec=3, manager="kubectl-scale", manager_time=START_MS + 1_900), after_ms=SECOND)
    change = evaluate(log, 100, 15_000)["observed"]["change"]
    assert change == {"from": 2, "to": 3, "by": "other", "manager": "kubectl-scale", "at": START_MS + 1_900}
    assert log.partition.state.hpas[HpaId("eu", "shop", "web")].row.history.scale_up_events == ()


# --- central HPAs -----------------------------------------------------------------------------------------------------


def central(hpa: Json | None = None, **fields: Any) -> AutoscalerSet:
    body = hpa or make_hpa()
    body["metadata"] = {"name": body["metadata"]["name"], "namespace": "shop"}
    return AutoscalerSet(hpa=body, origin="central", **fields)


def central_world(*bodies: Body) -> LogBuilder:
    log = LogBuilder()
    log.add(scale(), PodSet(pod=make_pod("web-0")), PodSet(pod=make_pod("web-1")), *bodies)
    return log


def test_a_central_hpa_gets_uid_and_generation_from_the_log() -> None:
    log = central_world(central(author="anna", reason="first"))
    first = evaluate(log, 50)
    assert (first["origin"], first["generation"], len(first["uid"])) == ("central", 1, 36)
    (second,) = log.add(central(make_hpa(maxReplicas=12)), after_ms=SECOND)
    assert (second["uid"], second["generation"]) == (first["uid"], 2)
    assert log.add(central(make_hpa(maxReplicas=12))) == []


def test_a_central_hpa_is_shadow_unless_it_is_applied_to_enforce_and_needs_no_proof() -> None:
    assert "wants" not in evaluate(central_world(central()), 100)
    assert evaluate(central_world(central(mode="enforce")), 100)["wants"] == 4


def test_a_central_hpa_is_refused_while_the_cluster_has_one_of_its_target() -> None:
    log = central_world(AutoscalerSet(hpa=make_hpa()), central(mode="enforce"))
    decision = evaluate(log, 100)
    assert decision["origin"] == "central"
    assert "the cluster's HPA shop/web drives Deployment/web too" in decision["refused"]
    log.add(AutoscalerSet(hpa=make_hpa(generation=9)), AutoscalerDeleted(name="web", uid="uid-web"), after_ms=SECOND)
    assert evaluate(log, 100, 15_000)["wants"] == 4


def test_a_full_list_of_the_cluster_leaves_central_hpas_alone() -> None:
    log = central_world(central(), AutoscalerSet(hpa=make_hpa("gone", "uid-gone")))
    log.add(AutoscalerList(list_id="l", hpas=[]), after_ms=SECOND)
    assert sorted(log.partition.state.namespaces["eu/shop"].directory) == [("web", "central")]


def test_deleting_a_central_hpa_takes_back_its_mode() -> None:
    log = central_world(central(mode="enforce"))
    log.add(AutoscalerDeleted(name="web", origin="central"), central())
    assert "wants" not in evaluate(log, 100)


# --- records ----------------------------------------------------------------------------------------------------------


def test_each_record_is_whole() -> None:
    log = world()
    made = [evaluate(log, 50 + index % 2, 15_000) for index in range(3)]
    own = {"id", "seq", "prev", "time", "input", "metrics", "steps", "status"}
    assert [made[0].keys(), made[0].keys()] == [each.keys() for each in made[1:]]
    rest = [{name: value for name, value in each.items() if name not in own} for each in made]
    assert rest[0] == rest[1] == rest[2]
    assert [each["metrics"][0]["utilization"] for each in made] == [50, 51, 50]
    assert len({each["prev"] for each in made}) == 3


def test_headers_are_cloudevents() -> None:
    log = world()
    decision = evaluate(log, 50)
    record = log.decisions[-1]
    assert (record.id, record.key, record.seq) == (decision["id"], "eu/shop", 1)
    assert dict(record.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": decision["id"].encode(),
        "ce_source": b"/clusters/eu",
        "ce_subject": b"/eu/shop/horizontalpodautoscaler/web",
        "ce_type": b"io.fleethpa.decision.v1",
        "ce_time": decision["time"].encode(),
        "content-type": b"application/json",
    }


def test_an_hpa_that_cannot_be_compiled_is_counted_and_stops_nothing() -> None:
    hpa = make_hpa("odd", "uid-odd")
    hpa["spec"]["metrics"][0]["resource"]["target"] = {"type": "AverageValue", "averageValue": "much"}
    log = world()
    log.add(AutoscalerSet(hpa=hpa))
    assert "odd: " in str(log.partition.state.namespaces["eu/shop"].held.refused["HPAs that cannot be used"])
    assert evaluate(log, 50)["name"] == "web"


def test_a_pod_with_an_unreadable_request_fails_the_metric_and_not_the_partition() -> None:
    log = world()
    container = msgspec.structs.replace(make_pod("web-0").containers[0], requests={"cpu": "many"})
    log.add(PodSet(pod=make_pod("web-0", containers=[container])))
    assert "missing request for cpu in container main of Pod web-0" in evaluate(log, 50)["error"]

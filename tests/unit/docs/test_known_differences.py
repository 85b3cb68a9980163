"""Where fleethpa differs from upstream on purpose: each row of docs/known-differences.md names its test here."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.answers import Answers, MetricAnswer
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, Outcome
from schemas.fitting import fitted
from schemas.keys import HpaId
from schemas.kubernetes.hpa import hpa_from_manifest
from schemas.kubernetes.quantity import QuantityError, parse_milli, parse_quantity
from schemas.limits import UNUSABLE_HPA
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command, PodSet
from schemas.settings import ClusterSettings, EngineSet, Restart, SettingsSet
from streams.hpa.gofloat import ceil32, ceil64
from streams.hpa.observation import PodTemplate
from tests.kit.partition import ENFORCING, LogBuilder, cpu_answer, make_hpa, make_pod, scale
from tests.kit.pushed import Pushed
from tests.unit.state.test_own_period import PeriodWorld

Json = dict[str, Any]
SECOND = 1_000
PAGE = Path(__file__).parents[3] / "docs" / "known-differences.md"
WEB = HpaId("eu", "shop", "web")
ALL = SettingsSet(cluster="*", settings=ENFORCING)


def world(*before: Body | Entry, replicas: int = 2, hpa: Json | None = None) -> LogBuilder:
    """HPA web (50 % of 100m) on ready pods web-0, web-1, …; no answer yet."""
    log = LogBuilder()
    if before:
        log.add(*before)
    pods = [PodSet(pod=make_pod(f"web-{index}")) for index in range(replicas)]
    log.add(AutoscalerSet(hpa=hpa or make_hpa()), scale(spec=replicas), *pods)
    return log


def cpu(log: LogBuilder, milli: int, pods: int = 2) -> Answers:
    return Answers(items=[cpu_answer("web", {f"web-{index}": milli for index in range(pods)}, log.now_ms)])


def evaluate(log: LogBuilder, milli: int, after_ms: int = SECOND, pods: int = 2) -> Json:
    (made,) = log.add(cpu(log, milli, pods), after_ms=after_ms)
    return made


def outcome(decision: Json, result: Any = "applied", **fields: Any) -> Outcome:
    return Outcome(decision=decision["id"], name="web", uid="uid-web", result=result, **fields)


def memory(log: LogBuilder) -> Any:
    return log.partition.state.hpas[WEB].row.history


def external(value: int, log: LogBuilder) -> Answers:
    return Answers(items=[MetricAnswer(api="external", metric="queue", items=[(value, log.now_ms)])])


def queue_hpa() -> Json:
    target = {"type": "AverageValue", "averageValue": "1"}
    return make_hpa(metrics=[{"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}])


def test_every_row_of_the_page_has_its_test_and_every_test_its_row() -> None:
    rows = [line.rsplit("|", 2)[1] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)} | {"huge_quantity"}

    assert named == {name.removeprefix("test_differs_") for name in globals() if name.startswith("test_differs_")}
    assert "(`huge_quantity`)" in PAGE.read_text()


# --- time and order ---------------------------------------------------------------------------------------------------


def test_differs_one_clock() -> None:
    log = world()
    decision = evaluate(log, 100, after_ms=1_234)

    moments = {time_ms for _, time_ms in memory(log).recommendations}
    assert moments == {log.now_ms}
    assert decision["time"].endswith(":01.234Z")
    log.add(after_ms=-60_000)
    assert log.partition.clock_ms == log.now_ms + 60_000


def test_differs_due() -> None:
    log = world()
    evaluate(log, 50)

    assert log.add(after_ms=15_000) == [], "due, but an answer may still come"
    assert log.add(after_ms=2_999) == []
    assert len(log.add(after_ms=1)) == 1
    assert len(log.add(cpu(log, 50), after_ms=11_000)) == 1, "the answer of the next period, whatever the due time"


def test_differs_outcome_moment() -> None:
    log = world(ALL)
    wanted = evaluate(log, 100)
    assert wanted["wants"] == 4
    assert log.add(cpu(log, 900), after_ms=4 * SECOND) == [], "pending"

    (done,) = log.add(outcome(wanted, spec_replicas=4))

    assert done["status"]["lastScaleTime"] == "2026-01-01T00:00:05Z"
    assert done["status"]["conditions"][0]["reason"] == "SucceededRescale"


def test_differs_no_outcome() -> None:
    log = world(ALL)
    wanted = evaluate(log, 100)

    assert wanted["expires"] == log.now_ms + 10_000
    assert log.add(after_ms=14_999) == []
    (failed,) = log.add(after_ms=1)
    assert failed["outcome"]["result"] == "timeout"
    assert failed["events"][-1][1] == "FailedRescale"


@pytest.mark.parametrize(
    ("body", "step_ms"),
    [pytest.param([Restart(reason="rows were lost")], SECOND, id="entry"), pytest.param([], 310_001, id="step")],
)
def test_differs_restart(body: list[Body], step_ms: int) -> None:
    log = world(replicas=4)
    evaluate(log, 200, pods=4)
    before_ms = log.now_ms

    log.add(*body, after_ms=step_ms)
    log.ticks(20)

    assert memory(log).recommendations[0][0] == 4, "begins with the current count"
    assert all(time_ms > before_ms for _, time_ms in memory(log).recommendations)


def test_differs_deletion() -> None:
    log = world(ALL)
    wanted = evaluate(log, 100)
    log.add(AutoscalerDeleted(name="web", uid="uid-web"), after_ms=SECOND)

    made = [*log.add(outcome(wanted, spec_replicas=4)), *log.ticks(20)]

    assert "deleted during reconciliation" not in str(made)
    assert log.partition.state.hpas[WEB].row.gone


# --- what an evaluation sees ------------------------------------------------------------------------------------------


def test_differs_silent_metrics() -> None:
    log = world()
    evaluate(log, 50)

    errors = [made.get("error", "") for made in log.ticks(50)]

    assert errors[0] == "", "the last answer still holds"
    assert "no answer within two sync periods (30s)" in errors[-1]


def test_differs_silent_scale() -> None:
    log = world()
    log.add(scale(spec=2, session="s"))
    evaluate(log, 50)

    last = [made for made in log.ticks(60) if "status" in made][-1]

    assert last["status"]["conditions"][0]["reason"] == "FailedGetScale"
    assert "has come for more than 30s" in last["error"]


def test_differs_named_pod() -> None:
    log = LogBuilder()
    log.add(AutoscalerSet(hpa=make_hpa()), scale(spec=2))
    for name in ("web-1", "web-0"):
        log.add(PodSet(pod=make_pod(name, containers=[])))

    bare = [PodSet(pod=make_pod(name, containers=_without_request())) for name in ("web-1", "web-0")]
    log.add(*bare)

    assert "of Pod web-0" in evaluate(log, 50)["error"]


def _without_request() -> list[Any]:
    return [msgspec.structs.replace(make_pod("x").containers[0], requests={})]


def test_differs_origins() -> None:
    log = world()
    log.add(AutoscalerSet(hpa=make_hpa("other", "", scaleTargetRef=_deployment()), origin="central"))

    made = log.add(cpu(log, 50), after_ms=SECOND)
    again = log.add(cpu(log, 50), after_ms=16 * SECOND)

    assert [each["name"] for each in made] == ["other", "web"]
    assert len(again) == 2
    assert "AmbiguousSelector" not in str([*made, *again])


def test_differs_refusal() -> None:
    log = world(ALL)
    log.add(AutoscalerSet(hpa=make_hpa("other", "uid-other", scaleTargetRef=_deployment())))

    made = log.add(cpu(log, 50), after_ms=SECOND)

    for each in made:
        able = next(one for one in each["status"]["conditions"] if one["type"] == "AbleToScale")
        assert (able["status"], able["reason"]) == ("False", "EnforcingRefused")
        assert ["Warning", "EnforcingRefused", able["message"]] in each["events"]


def _deployment() -> Json:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def test_differs_pushed() -> None:
    settings = ClusterSettings(sources={"Resource": "samples"}, sample_age_limit_ms=20_000)
    log = world(SettingsSet(cluster="*", settings=settings))

    (made,) = log.add(after_ms=3 * SECOND)

    assert "no sample pushed within the last 20s" in made["error"]


def test_differs_early() -> None:
    pushed = Pushed(evaluate_on="sample").settled()

    assert [len(pushed.push(milli, 2 * SECOND)) for milli in (50, 100)] == [0, 1]


def test_differs_own_period() -> None:
    world = PeriodWorld("60s").run(300)
    assert (set(world.gaps_s("web")), set(world.gaps_s("api"))) == ({60}, {15})
    world = PeriodWorld("5s", min_sync_period_ms=5_000).run(300, every_ms=5 * SECOND)
    assert (set(world.gaps_s("web")), set(world.gaps_s("api"))) == ({5}, {15})


def test_differs_amd64() -> None:
    assert [ceil32(value) for value in (3e9, -3e9, float("inf"), float("nan"))] == [-(2**31)] * 4
    assert ceil64(1e19) == -(2**63)


# --- hostile input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1e2147483648", "1e-100001", "1" * 1025])
def test_differs_exponent(text: str) -> None:
    with pytest.raises(QuantityError, match=r"out of range|too long"):
        parse_quantity(text)


def test_differs_overhead_once() -> None:
    template = PodTemplate([], pod_requests={"cpu": "16Ei"}, overhead={"cpu": "15m"})
    both = PodTemplate([], pod_requests={"cpu": "16Ei"}, overhead={"cpu": "30m"})
    # The low 64 bits of (2^63 - 1) * 1000 and the overhead, as upstream has them at the first evaluation alone.
    assert [template.request("cpu", ""), template.request("cpu", "")] == [-985, -985]
    assert both.request("cpu", "") == -970


def test_differs_unreadable() -> None:
    log = world()
    container = msgspec.structs.replace(make_pod("web-0").containers[0], requests={"cpu": "many"})
    odd = make_hpa("odd", "uid-odd")
    odd["spec"]["metrics"][0]["resource"]["target"] = {"type": "AverageValue", "averageValue": "much"}
    log.add(PodSet(pod=make_pod("web-0", containers=[container])), AutoscalerSet(hpa=odd))

    decision = evaluate(log, 50)

    assert "missing request for cpu in container main of Pod web-0" in decision["error"]
    refused = log.partition.state.namespaces["eu/shop"].held.refused[UNUSABLE_HPA.what]
    assert refused.name.startswith("odd: ")


def in_ingest(body: Body) -> Body:
    """A body as ingest writes it into the log."""
    return fitted(body, "shop", lambda _: None)


def test_differs_too_large() -> None:
    log = world(ALL)
    metric = {"metric": {"name": "m" * 513}, "target": {"type": "Value", "value": "1"}}
    hpa = make_hpa(generation=2, metrics=[{"type": "External", "external": metric}])

    (made,) = log.add(in_ingest(AutoscalerSet(hpa=hpa)), after_ms=SECOND)

    able = next(one for one in made["status"]["conditions"] if one["type"] == "AbleToScale")
    assert (able["status"], able["reason"]) == ("False", "Ignored")
    assert "513 characters, the limit is 512" in able["message"]


def test_differs_cut() -> None:
    log = world()
    answer = MetricAnswer(api="resource", selector="app=web", error="x" * 5_000)

    (made,) = log.add(in_ingest(Answers(items=[answer])), after_ms=SECOND)

    assert "x… (cut, it has 5000 characters)" in made["error"]


def test_differs_too_large_pod() -> None:
    log = world()
    log.add(in_ingest(PodSet(pod=make_pod("web-0", labels={"app": "web", "x": "y" * 17_000}))))

    assert log.partition.state.namespaces["eu/shop"].pods["web-0"].pod.labels == {}


def test_differs_v2beta2() -> None:
    for version in ("v2beta2", "v2beta1", "v2alpha1"):
        manifest = make_hpa() | {"apiVersion": f"autoscaling/{version}"}
        manifest["spec"] = manifest["spec"] | {"metrics": []}

        assert hpa_from_manifest(manifest)["apiVersion"] == "autoscaling/v2"


# --- modes and guards -------------------------------------------------------------------------------------------------


def test_differs_shadow() -> None:
    decision = evaluate(world(), 100)

    assert "wants" not in decision
    assert decision["status"]["desiredReplicas"] == 4
    assert decision["events"][-1][1] == "SuccessfulRescale"


@pytest.mark.parametrize(
    ("guard", "wants", "constraint"),
    [
        pytest.param(SettingsSet(cluster="eu", settings=ClusterSettings(max_step=1)), 3, "MaxStep", id="maxStep"),
        pytest.param(SettingsSet(cluster="eu", settings=ClusterSettings(frozen=True)), None, "Frozen", id="frozen"),
        pytest.param(Command(command="pause", name="web"), None, "Paused", id="pause"),
    ],
)
def test_differs_guards(guard: Body, wants: int | None, constraint: str) -> None:
    decision = evaluate(world(ALL, guard), 100)

    assert (decision.get("wants"), decision["rawDesiredReplicas"]) == (wants, 4)
    assert constraint in decision["constraintsApplied"]


def test_differs_brakes() -> None:
    engine = Entry(key=WHOLE_PARTITION_KEY, body=EngineSet(engine=1))
    budget = SettingsSet(cluster="eu", settings=ClusterSettings(addition_budgets={"shop": "1/10m"}))
    decision = evaluate(world(engine, ALL, budget), 100)

    assert (decision["wants"], decision["rawDesiredReplicas"]) == (3, 4)
    assert decision["constraintsApplied"] == ["AdditionBudget"]


# --- where upstream's answer would hurt -------------------------------------------------------------------------------


def held(log: LogBuilder, body: Body, name: str) -> Json:
    """Evaluate what overflows: the count stays and the record says why."""
    (decision,) = log.add(body, after_ms=SECOND)
    assert "wants" not in decision
    assert "Overflow" in decision["constraintsApplied"]
    assert decision["paused"].startswith(f"held: {name} overflowed to a proposal of ")
    assert decision["finalDesiredReplicas"] == decision["currentReplicas"]
    return decision


def raw_hpa(average: str) -> Json:
    target = {"type": "AverageValue", "averageValue": average}
    return make_hpa(metrics=[{"type": "Resource", "resource": {"name": "cpu", "target": target}}], behavior=_at_once())


def _at_once() -> Json:
    """No windows: what is wanted is wanted now."""
    rules: Json = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    return {
        "scaleUp": {**rules, "stabilizationWindowSeconds": 0},
        "scaleDown": {**rules, "stabilizationWindowSeconds": 0},
    }


def test_differs_overflow_held() -> None:
    log = world(ALL, hpa=raw_hpa("1m"), replicas=4)

    decision = held(log, cpu(log, 2**62 // 4, 4), "cpu resource")

    assert decision["metrics"][0]["proposal"] == -(2**31), "the record keeps upstream's number"
    after = evaluate(log, 3, after_ms=15 * SECOND, pods=4)
    assert after["wants"] == 8, "in range again: it continues"


def test_differs_overflow_percent() -> None:
    log = world(ALL, hpa=make_hpa(behavior=_at_once()))
    log.add(*[PodSet(pod=_small(name)) for name in ("web-0", "web-1")])

    decision = held(log, cpu(log, 30_000_000), "cpu resource utilization (percentage of request)")

    assert decision["metrics"][0]["utilization"] == -1_294_967_296


def _small(name: str) -> Any:
    return make_pod(name, containers=[msgspec.structs.replace(make_pod(name).containers[0], requests={"cpu": "1m"})])


def test_differs_overflow_sum() -> None:
    log = world(ALL, hpa=make_hpa(behavior=_at_once()))

    decision = held(log, cpu(log, 2**62), "cpu resource utilization (percentage of request)")

    assert decision["rawDesiredReplicas"] == 0, "no negative proposal gives it away"


def test_differs_overflow_negative() -> None:
    log = world(ALL, hpa=queue_hpa())

    decision = held(log, external(-5_000, log), "external metric queue(nil)")

    assert decision["metrics"][0]["proposal"] == 2**31 - 1


def test_differs_huge_quantity() -> None:
    assert (parse_milli("1E"), parse_milli("9223372036854776")) == (0, -9223372036854775616)


def test_a_number_in_range_is_never_held() -> None:
    log = world(ALL, hpa=raw_hpa("1000"), replicas=2)
    (decision,) = log.add(cpu(log, 2**40), after_ms=SECOND)

    assert "Overflow" not in decision.get("constraintsApplied", [])

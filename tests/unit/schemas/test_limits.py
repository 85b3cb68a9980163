"""What is too large is refused with its name, in a smaller form where that can be, and stops nothing."""

import ast
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import MessageSizeTooLargeError
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from prometheus_client import CollectorRegistry

from fleethpa.changes.handover import Place, Plan
from fleethpa.changes.handoverplans import adopt_plan
from fleethpa.fleet.state import read_state
from reconciler.clusters.answers import ApiError
from reconciler.core.knowledge import FleetKnowledge
from reconciler.core.objects import kept_hpa
from reconciler.observer.clusterview import ObserverMetrics
from reconciler.observer.observertopics import RecordPublisher, autoscaler_lists
from reconciler.prometheus import promlimits
from schemas import limits, topics
from schemas.agentknowledge import CentralHpa
from schemas.answers import Answers, MetricAnswer
from schemas.codec import encode
from schemas.entries import Body, Outcome
from schemas.fitting import fitted, fitted_hpa
from schemas.keys import HpaId
from schemas.limits import shortened
from schemas.observed import (
    IGNORED,
    AutoscalerSet,
    ClusterReport,
    Command,
    ConflictingAutoscaler,
    ObserverTrouble,
    PodList,
    PodSet,
    ScaleSet,
    Target,
)
from schemas.settings import ClusterSettings
from schemas.topics import AUTOSCALERS, MAX_LOG_RECORD_BYTES
from streams.decider import app
from streams.decider.owned import BatchWriter, RecordTooLargeError, all_written
from streams.decider.tail import Exit
from tests.kit.cli import Cli, Fleet
from tests.kit.cli import hpa as checkout
from tests.kit.limits import LENGTHS, OBJECTS, SENT, Make, Pipeline, check_all, external, huge_hpa, text
from tests.kit.partition import ENFORCING, cpu_answer, make_hpa, make_pod
from tests.laws import examples
from tests.limitsreference import SOURCE, page
from tests.tiers import PACKAGES

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"
SHADOW = ClusterSettings()
TARGET = Target(kind="Deployment", name="web", group="apps")


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `make generated`"


def test_each_limit_is_on_the_page_and_says_what_the_user_sees() -> None:
    assert len(limits.LIMITS) > 30
    assert all(f"{limit.most:,} {limit.unit}" in page() and limit.shown for limit in limits.LIMITS)


def _limits_of(path: Path) -> Iterator[str]:
    """What each `Limit(…)` of a module is about; its own source where that is not a plain text."""
    text = path.read_text()
    if "Limit(" not in text:  # parsing all modules takes seconds
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Limit", "limits.Limit"):
            what = node.args[0] if node.args else next(each.value for each in node.keywords if each.arg == "what")
            yield str(what.value) if isinstance(what, ast.Constant) else ast.unparse(node)


def test_each_limit_of_the_product_is_on_the_page_wherever_it_is() -> None:
    root, made = PAGE.parents[1], page()
    modules = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    elsewhere = [what for path in modules if path != SOURCE for what in _limits_of(path)]
    assert len(elsewhere) >= len(promlimits.LIMITS)
    assert [what for what in elsewhere if f"| {what.rstrip(',')} | " not in made] == [], "add it to `ELSEWHERE`"


# --- the hostile objects ----------------------------------------------------------------------------------------------


def _pods() -> list[Body]:
    return [PodSet(pod=make_pod(f"p{at}", labels={"app": "web", "x": text(495_000, at)})) for at in range(4)]


def _selectors() -> list[Body]:
    return [ScaleSet(target=TARGET, spec_replicas=2, selector=f"app={text(384_000, at)}") for at in range(5)]


def _message() -> list[Body]:
    return [Answers(items=[MetricAnswer(api="resource", selector="app=web", error=text(200_000))])]


@pytest.mark.parametrize(
    ("bodies", "refused"),
    [
        pytest.param(
            [AutoscalerSet(hpa=huge_hpa())],
            "spec of HPA shop/huge: 110214 bytes of JSON, the limit is 16384",
            id="metric",
        ),
        pytest.param(_pods(), "object of pod p0: 495", id="labels of 4 pods"),
        pytest.param(
            _selectors(),
            "pod selector of the scale of Deployment/web: 384004 characters, the limit is 2048",
            id="selectors",
        ),
        pytest.param(_message(), "", id="message of a metrics API"),
    ],
)
def test_an_object_of_a_tenant_stops_nothing(bodies: list[Body], refused: str) -> None:
    pipeline = Pipeline(settings=SHADOW)
    for body in bodies:
        pipeline.send(body, after_ms=1_000)
    pipeline.log.ticks(40)
    pipeline.check_harmless()
    pipeline.check_sizes()
    assert any(refused in each for each in pipeline.refused) == bool(refused)


@pytest.mark.parametrize("make", OBJECTS)
def test_no_object_makes_a_record_that_is_too_large(make: Make) -> None:
    check_all([(make, 495_000, 3)])


@given(st.lists(SENT, min_size=1, max_size=4))
@settings(max_examples=examples(10))
def test_no_objects_together_make_a_record_that_is_too_large(sent: list[tuple[Make, int, int]]) -> None:
    check_all(sent)


@given(st.text(max_size=40), LENGTHS, st.sampled_from([limits.ERROR, limits.PROBLEM, limits.TEXT]))
@settings(max_examples=examples(30))
def test_a_text_is_cut_to_the_limit_of_its_json_and_never_otherwise(
    part: str, length: int, limit: limits.Limit
) -> None:
    whole = part * (min(length, 20_000) // (len(part) or 1))
    cut = shortened(whole, limit)
    assert len(encode(cut)) - 2 <= limit.most
    if cut != whole:
        assert len(encode(whole)) - 2 > limit.most
        head, _, rest = cut.rpartition("… (cut, it has ")
        assert whole.startswith(head)
        assert rest == f"{len(whole)} characters)"


@pytest.mark.parametrize("make", OBJECTS)
def test_what_is_within_the_limits_is_the_very_same(make: Make) -> None:
    noted: list[limits.OverLimitError] = []
    body = make(60, 1)
    assert fitted(body, "shop", noted.append) is body
    assert noted == []


# --- HPAs that are ignored --------------------------------------------------------------------------------------------


WHY = "fleethpa ignores this HPA: spec of HPA shop/web: "


def _evaluation(made: list[dict[str, Any]], name: str = "web") -> dict[str, Any]:
    return [each for each in made if each.get("name") == name and each.get("kind", "") != "completion"][-1]


def _too_large(**spec: Any) -> dict[str, Any]:
    return make_hpa(generation=2, metrics=[external(text(110_000))], **spec)


@pytest.mark.parametrize(
    ("mode", "shows"), [pytest.param(ENFORCING, True, id="enforce"), pytest.param(SHADOW, False, id="shadow")]
)
def test_a_change_that_is_too_large_ignores_the_hpa_visibly(mode: ClusterSettings, shows: bool) -> None:
    pipeline = Pipeline(settings=mode)
    made = _evaluation(pipeline.send(AutoscalerSet(hpa=_too_large()), after_ms=20_000))
    assert ("mode" in made, "wants" in made) == (False, False), "shadow, and nothing is written"
    assert made["refused"].startswith(WHY)
    assert made["refused"].endswith("make it smaller, for example by kubectl --context eu edit hpa web -n shop")
    assert made.get("showsRefusal", False) is shows
    condition = next(each for each in made["status"]["conditions"] if each["type"] == "AbleToScale")
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "Ignored", made["refused"])
    assert (made["status"]["observedGeneration"], made["status"]["currentReplicas"]) == (2, 2)
    assert made["finalDesiredReplicas"] == made["currentReplicas"] == 2


def test_an_hpa_that_is_small_again_is_evaluated_again() -> None:
    pipeline = Pipeline()
    pipeline.send(AutoscalerSet(hpa=_too_large()), after_ms=20_000)
    pipeline.send(AutoscalerSet(hpa=make_hpa(generation=3)), after_ms=1_000)
    now_ms = pipeline.log.now_ms
    pipeline.send(Answers(items=[cpu_answer("web", {"web-1": 100}, now_ms)]), after_ms=1_000)
    made = _evaluation([*pipeline.log.ticks(20), *map(_json, pipeline.log.decisions)])
    assert "refused" not in made
    assert (made["mode"], made["metrics"][0]["utilization"]) == ("enforce", 100)


def _json(decision: Any) -> dict[str, Any]:
    import msgspec

    found: dict[str, Any] = msgspec.json.decode(decision.value)
    return found


def test_a_write_that_is_pending_ends_before_the_hpa_is_ignored() -> None:
    pipeline = Pipeline()
    now_ms = pipeline.log.now_ms
    made = pipeline.send(Answers(items=[cpu_answer("web", {"web-1": 500}, now_ms)]), after_ms=1_000)
    while not (wanted := [each for each in made if each.get("wants")]):
        made = pipeline.log.ticks(1)
    assert pipeline.send(AutoscalerSet(hpa=_too_large()), after_ms=100) == []
    outcome = Outcome(decision=wanted[0]["id"], name="web", uid="uid-web", result="applied", spec_replicas=4)
    completion, after = pipeline.send(outcome, after_ms=100)
    assert completion["completes"] == wanted[0]["id"]
    assert after["refused"].startswith(WHY)


def test_a_decision_that_would_be_too_large_is_a_small_one_that_says_so() -> None:
    pipeline = Pipeline()
    names = [f"m{at}" for at in range(50)]
    pipeline.send(AutoscalerSet(hpa=make_hpa(generation=2, metrics=[external(name) for name in names])))
    failing = [MetricAnswer(api="external", metric=name, error=text(4_000)) for name in names]
    made = pipeline.send(Answers(items=failing), after_ms=1_000) + pipeline.log.ticks(31)
    large = next(each for each in map(_json, pipeline.log.decisions) if "decision of HPA" in str(each.get("refused")))
    assert large["refused"].startswith("fleethpa ignores this HPA: decision of HPA eu/shop/web: ")
    assert "bytes of JSON, the limit is 131072" in large["refused"]
    assert ("mode" in large, "wants" in large, large["reason"]) == (False, False, "Ignored")
    assert len(encode(large)) < 20_000
    assert made
    pipeline.check_sizes()
    good = [MetricAnswer(api="external", metric=name, items=[(1_000, pipeline.log.now_ms)]) for name in names]
    pipeline.send(Answers(items=good), after_ms=1_000)
    after = _evaluation(list(map(_json, [*pipeline.log.decisions])) + pipeline.log.ticks(20))
    assert "refused" not in after


def test_a_central_hpa_is_refused_before_it_is_sent_and_ignored_if_it_comes() -> None:
    pipeline = Pipeline()
    made = pipeline.send(AutoscalerSet(hpa=huge_hpa("job"), origin="central", mode="enforce"), after_ms=1_000)
    decision = _evaluation([*made, *pipeline.log.ticks(2)], "job")
    assert decision["showsRefusal"]
    assert decision["refused"].endswith("make it smaller, for example by fleethpa apply eu/shop/job")


def test_the_state_of_an_ignored_hpa_is_restored() -> None:
    pipeline = Pipeline()
    pipeline.send(AutoscalerSet(hpa=_too_large()), after_ms=20_000)
    partition = pipeline.log.partition
    rows = dict(partition.checkpoint())
    restored = type(partition).restore(partition.number, rows)
    offset, now_ms = partition.applied_offset + 1, pipeline.log.now_ms + 15_000
    tick = encode({"v": 1, "entries": []})
    assert restored.apply(offset, now_ms, tick) == partition.apply(offset, now_ms, tick) != []


HUGE = AutoscalerSet(hpa=checkout(metrics=[external(text(110_000))]))


def test_get_hpa_and_describe_show_why_an_hpa_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle()
    run = Cli(monkeypatch, fleet)
    fleet.append(fitted(HUGE, "shop", lambda _: None), after_ms=20_000)
    shown = run("get", "hpa", "-A", "-o", "json").stdout
    assert shown.count("fleethpa ignores this HPA: spec of HPA shop/checkout: 110") >= 2
    assert "shadow (refused)" in run("get", "hpa", "-A").stdout
    assert (
        "fleethpa ignores this HPA: spec of HPA shop/checkout: "
        in run("describe", "hpa", "checkout", "-n", "shop").stdout
    )
    assert "fleethpa ignores this HPA" in run("explain", "checkout", "-n", "shop").stdout


async def test_the_view_of_an_ignored_hpa_names_the_problem_once() -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.append(fitted(HUGE, "shop", lambda _: None), after_ms=20_000)
    [view] = (await read_state(fleet.past())).hpas.values()
    assert [problem.label for problem in view.problems] == ["ignored"]


# --- in a smaller form ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["autoscaling/v1", "autoscaling/v2beta2", "autoscaling/v2"])
def test_a_stub_has_identity_target_and_bounds(version: str) -> None:
    hpa = huge_hpa() | {"apiVersion": version, "status": {"currentReplicas": 3, "desiredReplicas": 4, "x": text(9)}}
    pipeline = Pipeline()
    pipeline.send(AutoscalerSet(hpa=hpa), after_ms=1_000)
    stub = next(each.row.hpa_object() for each in pipeline.log.partition.state.hpas.values() if each.ignored)
    assert stub[IGNORED].startswith("fleethpa ignores this HPA: ")
    assert stub["metadata"] == {"name": "huge", "namespace": "shop", "uid": "uid-huge", "generation": 1}
    assert stub["spec"] == {"scaleTargetRef": hpa["spec"]["scaleTargetRef"], "minReplicas": 1, "maxReplicas": 10}


@pytest.mark.parametrize(
    ("hpa", "why"),
    [
        pytest.param(make_hpa(metrics=[external("m")] * 51), "spec.metrics of HPA shop/web: 51 metrics", id="metrics"),
        pytest.param(
            make_hpa(metrics=[external("m" * 513)]),
            "a text in the spec of HPA shop/web, spec.metrics[0].external.metric.name,: 513 characters",
            id="name of a metric",
        ),
        pytest.param(
            make_hpa(metrics=[external("m", {"matchLabels": {f"l{at}": "v" * 60 for at in range(40)}})]),
            "a metric selector of HPA shop/web, spec.metrics[0].external.metric.selector,: 2",
            id="selector",
        ),
        pytest.param(make_hpa(uid="u" * 129), "metadata.uid of HPA shop/web: 129 characters", id="uid"),
        pytest.param(
            make_hpa() | {"status": {"x": "y" * 66_000}}, "without managed fields, of HPA shop/web: 66", id="object"
        ),
    ],
)
def test_an_hpa_is_ignored_for(hpa: dict[str, Any], why: str) -> None:
    noted: list[limits.OverLimitError] = []
    assert why in fitted_hpa(hpa, "shop", noted.append)[IGNORED]
    assert len(noted) == 1


LENGTHS_OF_TEXTS = st.sampled_from([1, 200, 511, 512, 513, 600])
TEXTS = st.builds(
    lambda length, letter: letter * length, LENGTHS_OF_TEXTS, st.sampled_from(["x", '"', "\\", "é", "\n"])
)
PARTS = st.recursive(
    TEXTS | st.integers(0, 9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "selector", "own.selector"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(parts=st.lists(PARTS, max_size=4))
def test_an_hpa_is_ignored_for_each_text_and_selector_that_is_too_long(parts: list[Any]) -> None:
    def is_over(value: Any, name: str = "") -> bool:
        if isinstance(value, str):
            return len(value) > limits.HPA_TEXT.most
        if name.endswith(".selector") and len(encode(value)) > limits.HPA_SELECTOR.most:
            return True
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        return any(is_over(each, f".{key}") for key, each in pairs)

    hpa = make_hpa()
    hpa["spec"] |= {"parts": parts}
    assert (IGNORED in fitted_hpa(hpa, "shop", lambda _: None)) == (
        len(encode(hpa["spec"])) > limits.HPA_SPEC.most or is_over(hpa["spec"])
    )


def test_managed_fields_do_not_count() -> None:
    hpa = make_hpa()
    hpa["metadata"]["managedFields"] = [{"manager": "x" * 70_000}]
    assert fitted_hpa(hpa, "shop", _never) is hpa


def _never(error: limits.OverLimitError) -> None:
    raise error


def test_a_pod_that_is_too_large_counts_for_no_hpa_and_removes_no_other() -> None:
    pipeline = Pipeline()
    pods = [make_pod("web-1"), make_pod("web-2", labels={"app": "web", "x": text(20_000)})]
    pipeline.send(PodList(list_id="l", pods=pods))
    found = pipeline.log.partition.state.namespaces["eu/shop"].pods
    assert {name: entry.pod.labels for name, entry in found.items()} == {"web-1": {"app": "web"}, "web-2": {}}
    assert pipeline.refused == [f"object of pod web-2: {len(encode(pods[1]))} bytes of JSON, the limit is 16384"]


def test_a_selector_that_is_too_long_is_a_scale_that_cannot_be_read() -> None:
    pipeline = Pipeline()
    pipeline.send(ScaleSet(target=TARGET, selector="app=" + "x" * 2_045), after_ms=1_000)
    made = _evaluation(pipeline.log.ticks(31))
    [condition] = [each for each in made["status"]["conditions"] if each["type"] == "AbleToScale"]
    assert condition["status"] == "False"
    assert "pod selector of the scale of Deployment/web: 2049 characters, the limit is 2048" in condition["message"]


def test_a_failed_write_whose_reason_is_long_still_ends() -> None:
    made = Pipeline().send(Outcome(decision="0-1-u", name="web", uid="u", result="failed", error=text(200_000)))
    assert made == []


def test_a_pause_counts_whatever_its_reason_is() -> None:
    pipeline = Pipeline()
    pause = Command(command="pause", name="web", author="anna", reason=text(9_000))
    pipeline.send(pause, topic=topics.SETTINGS)
    [(_, pauses)] = pipeline.log.partition.state.namespaces["eu/shop"].commands.values()
    assert pauses["all"].reason.endswith("… (cut, it has 9000 characters)")


def test_one_answer_that_is_refused_leaves_the_others() -> None:
    pipeline = Pipeline()
    good = cpu_answer("web", {"web-1": 1}, pipeline.log.now_ms)
    pipeline.send(Answers(items=[MetricAnswer(api="external", metric="m" * 513), good]))
    assert [key[1] for key in pipeline.log.partition.state.namespaces["eu/shop"].answers] == ["app=web"]
    assert pipeline.refused == [f"a name of an answer to {'m' * 80}: 513 characters, the limit is 512"]


# --- producers --------------------------------------------------------------------------------------------------------


class Sent:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    async def send(self, topic: str, cluster: str, namespace: str, bodies: Sequence[Body], time_ms: int) -> None:
        self.records.append(encode(list(bodies)))


async def test_an_observer_writes_a_stub_of_an_hpa_that_no_topic_takes() -> None:
    sent = Sent()
    outlet = RecordPublisher(sent, ObserverMetrics(CollectorRegistry()), lambda: 1)  # type: ignore[arg-type]
    pods: list[Body] = [PodSet(pod=make_pod(f"p{at}", labels={"x": text(1_200_000)})) for at in range(3)]
    await outlet.put(AUTOSCALERS, "eu", "shop", [AutoscalerSet(hpa=huge_hpa(length=1_400_000)), *pods])
    await outlet.flush()
    [record] = sent.records
    assert b"fleethpa ignores this HPA: spec of HPA shop/huge: 1400" in record
    assert len(record) < 2_000


def test_an_observer_asks_no_metrics_api_for_an_hpa_that_is_ignored() -> None:
    assert len(kept_hpa(make_hpa()).asking.metrics) == 1
    assert kept_hpa(huge_hpa()).asking.metrics == ()


def test_a_report_of_a_cluster_that_is_too_long_is_cut_to_what_fits_and_no_further() -> None:
    trouble = ObserverTrouble(part="pods", reason="failing", since=1, error="x" * 50)
    for length in range(120):
        last = structs.replace(trouble, error="x" * length)
        report = ClusterReport(cluster="east", session="s@1", troubles=[*[trouble] * 152, last, *[trouble] * 50])
        made = fitted(report, "", lambda _: None)
        more = structs.replace(report, troubles=report.troubles[: len(made.troubles) + 1])
        assert len(encode(made)) <= limits.REPORT.most < len(encode(more)), length


def test_conflicting_autoscalers_without_number_are_listed_in_chunks_that_the_log_takes() -> None:
    target = Target(kind="x" * 200, name="y")
    conflicting = [ConflictingAutoscaler(kind="ScaledObject", name=f"r{at}", target=target) for at in range(9_000)]
    lists = autoscaler_lists([make_hpa()], conflicting, "l", "s@1")
    assert all(len(encode(each)) < MAX_LOG_RECORD_BYTES for each in lists)
    assert [other for each in lists for other in each.conflicting] == conflicting
    assert [hpa["metadata"]["name"] for each in lists for hpa in each.hpas] == ["web"]
    assert {each.chunks for each in lists} == {len(lists)}


def test_the_message_of_an_api_server_is_cut_where_it_is_read() -> None:
    error = ApiError(403, "x" * 200_000)
    assert len(str(error)) < limits.ERROR.most
    assert str(error).endswith("… (cut, it has 200000 characters)")


def test_an_agent_never_gets_a_central_hpa_that_deciders_ignore() -> None:
    hpa, known = HpaId("eu", "shop", "web"), FleetKnowledge()
    assert known.set_hpa(hpa, make_hpa()).hpa == make_hpa()
    assert known.set_hpa(hpa, huge_hpa("web")) == CentralHpa(namespace="shop", name="web", deleted=True)
    assert [each.hpas for each in known.snapshot("eu", "s", 1)] == [[]]


class TooSmall:
    """A topic that takes no batch of more than 100 KB."""

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if len(bytes(batch._build())) > 100_000:
            future.set_exception(MessageSizeTooLargeError())
        else:
            future.set_result(SimpleNamespace(offset=0))
        return future


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        pytest.param(
            [("ce_subject", b"/eu/shop/horizontalpodautoscaler/web")], "horizontalpodautoscaler/web", id="decision"
        ),
        pytest.param([], "0|h/eu/shop/web", id="row"),
    ],
)
async def test_the_exit_for_a_record_that_no_topic_takes_names_it_and_advises_no_restart(
    headers: list[tuple[str, bytes]], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = BatchWriter(TooSmall(), "fleethpa.decisions", 3)
    await writer.add(b"x" * 9, b"small")
    await writer.add(text(1_100_000).encode(), b"0|h/eu/shop/web", headers)
    await writer.flush()
    with pytest.raises(RecordTooLargeError, match=r"1,100,000 bytes. A restart does not help") as found:
        await all_written([writer])
    ends: list[tuple[Exit, str]] = []

    def die(code: Exit, reason: str, *, error: BaseException | None = None) -> None:
        ends.append((code, reason))

    monkeypatch.setattr(app, "die", die)
    app.end(found.value)
    [(code, reason)] = ends
    assert code is Exit.NEEDS_OPERATOR
    assert name in reason
    assert "fleethpa.decisions partition 3" in reason


def test_of_selectors_that_change_with_every_record_the_row_keeps_one() -> None:
    pipeline = Pipeline(settings=SHADOW)
    for number in range(40):
        selector = ",".join(f"l{at}={text(60, number * 40 + at)}" for at in range(30))[:2_040].rpartition(",")[0]
        pipeline.log.add(
            ScaleSet(target=TARGET, spec_replicas=2, status_replicas=2, selector=selector),
            AutoscalerSet(hpa=make_hpa(generation=number + 2, metrics=[external("m")], maxReplicas=10 + number % 2)),
            Answers(items=[MetricAnswer(api="external", metric="m", items=[(1_000, pipeline.log.now_ms)])]),
            after_ms=20,
        )
    [row] = [value for key, value in pipeline.log.partition.checkpoint() if b"|h/eu/shop/web" in key]
    assert len(row) < 8_192


async def _plan(fleet: Fleet, natives: dict[HpaId, dict[str, Any]]) -> Plan[dict[str, Any]]:
    return adopt_plan(await read_state(fleet.past()), Place("east"), natives, "enforce")


def test_an_hpa_that_would_be_ignored_is_not_adopted_and_lint_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()
    fleet.settle()
    large = checkout(metrics=[external("m" * 600)])
    plan = asyncio.run(_plan(fleet, {HpaId("east", "shop", "checkout"): large}))
    assert plan.moved == {}
    assert "600 characters, the limit is 512" in str(plan.problems[0].cause)
    file = tmp_path / "hpa.json"
    file.write_bytes(encode(large))
    found = Cli(monkeypatch, fleet)("lint", "-f", str(file), "-o", "jsonl")
    assert found.exit_code == 1
    assert '"too-large"' in found.stdout

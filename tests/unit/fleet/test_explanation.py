"""The page of an explanation: every number on it follows from those beside it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import structs

from fleethpa.fleet.decisionpage import explained, explanation_lines, would_rows
from fleethpa.fleet.decisionsteps import step_rows
from schemas.decisions import MetricDecision, Step
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.observed import AutoscalerSet, Command, Container, Pod
from schemas.settings import ClusterSettings, SettingsSet
from streams.analysis.counterfactual import Counterfactuals, Flip, Without
from streams.history.recorded import Recorded, in_sequence
from streams.hpa.gofloat import MIN_INT64
from streams.partition import Partition
from tests.kit.cli import Cli, Fleet, hpa
from tests.kit.generated_log import Fleet as Generated
from tests.kit.generated_log import partition_log


def _explained(metrics: int, seed: int) -> Iterator[tuple[Recorded, list[str]]]:
    partition, values = Partition.empty(0), list[bytes]()
    for each in partition_log(Generated(hpas=20, namespaces=2, minutes=4, metrics=metrics, seed=seed)):
        values += [made.value for made in partition.apply(*each)]
    for recorded in in_sequence(0, enumerate(values)):
        if recorded.decision.kind == "evaluation":
            yield recorded, explanation_lines(explained(recorded.decision), now_ms=recorded.time_ms)


def test_the_numbers_that_explain_prints_add_up() -> None:
    products = 0
    for recorded, lines in _explained(metrics=3, seed=0):
        for line in lines:
            if found := re.search(r"^\S+ +(\d+) .*ceil\(.* = ([\d.]+)\)", line):
                assert math.ceil(float(found[2])) == int(found[1]), line
                products += 1
        outs = [step.out for step in recorded.decision.steps] or [recorded.decision.final_desired_replicas]
        ins = [step.in_ for step in recorded.decision.steps if step.step != "metrics"]
        assert ins == outs[: len(ins)]
        assert outs[-1] == recorded.decision.final_desired_replicas
    assert products > 500


def test_an_average_over_no_pods_is_no_number() -> None:
    """The controller divides the total by no pods, and keeps what a 64-bit integer makes of that."""
    recorded, _ = next(_explained(metrics=1, seed=0))
    metric = structs.replace(
        recorded.decision.metrics[0],
        value=MIN_INT64,
        target=30_000,
        utilization=None,
        target_utilization=None,
        ratio="nan",
        note="",
    )
    (row,) = [row for row in step_rows(structs.replace(recorded.decision, metrics=[metric])) if row.is_winner]
    assert row.detail.startswith("no average: there are no pods")
    assert "tolerance" not in row.detail
    flip = Flip(
        metric=0,
        name="jobs",
        direction="higher",
        varied="the value",
        now=0,
        value=1,
        answer=1,
        percent=False,
        shown_now=MIN_INT64,
        shown=MIN_INT64,
    )
    made = Counterfactuals(current=0, final=0, flips=[flip], without=[], unmoved=[])
    assert would_rows(made, 0) == [("jobs ≥ 0.001", "→ 1", "the value; was 0")]


@pytest.mark.parametrize(
    ("request_", "usage_milli", "shown"),
    [
        pytest.param("250m", 310, "from about 500m to 250m per pod; usage 300m → 310m", id="half the request"),
        pytest.param("500m", 600, "", id="the same request, twice the usage"),
        pytest.param("250m", 600, "", id="half the request, but twice the usage"),
        pytest.param("495m", 340, "", id="as much less as rounding may hide"),
    ],
)
def test_a_scale_up_after_requests_fell_names_them(
    monkeypatch: pytest.MonkeyPatch, request_: str, usage_milli: int, shown: str
) -> None:
    fleet = Fleet()
    fleet.settle(usage_milli=300)
    fleet.cpu_request = request_
    for _ in range(3):
        fleet.append(after_ms=10_000)
        fleet.observe(3, usage_milli)
    run = Cli(monkeypatch, fleet)
    text = run("explain", "east/shop/checkout", "--change").stdout
    assert "Goes up from 3 to " in text
    lines = [line.removeprefix("Request").strip() for line in text.splitlines() if line.startswith("Request")]
    known = "; of pods that are resized in place upstream counts the new request at once (kubernetes #142155)"
    assert lines == ([f"cpu: the ratio rose because the request fell, {shown}{known}"] if shown else [])


def test_replicas_that_are_not_known_are_not_shown_as_0(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.append(after_ms=60_000)  # no heartbeat: the scale counts as not read
    run = Cli(monkeypatch, fleet)
    text = run("explain", "east/shop/checkout", "--no-counterfactuals").stdout
    assert "Nothing changes, the replicas are not known: the scale cannot be read: " in text
    assert re.search(
        r"^current +- +the scale could not be read: failed to query scale subresource", text, re.MULTILINE
    ), text
    last = run("decisions", "-A", "--no-headers", "--last", "1").stdout
    assert last.split()[1:4] == ["east/shop/checkout", "-", "-"], last


def test_what_a_cluster_says_moves_no_cursor() -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.append(after_ms=16_000)
    fleet.observe(3, 300, error="\x1b[2J\x1b]0;title\x07no\rway\ttab")
    lines = explanation_lines(explained(fleet.decisions()[-1].decision), now_ms=fleet.now_ms)
    assert any("no way" in line for line in lines)
    assert all(character.isprintable() for line in lines for character in line)


@pytest.mark.parametrize(
    ("metric", "line"),
    [
        pytest.param(
            {"value": 6_002, "target": 10_000, "ratio": "0.6002", "pods_used": 5, "proposal": 4},
            "6.002/10 = 0.600   ceil(5 × 0.600 = 3.001)   outside tolerance",  # noqa: RUF001
            id="a product is shown with the decimals that round it up",
        ),
        pytest.param(
            {"value": 11_071, "target": 10_000, "ratio": "1.1071", "proposal": 4},
            "11.071/10 = 1.107   ceil(3 × 1.107 = 3.32)   outside tolerance",  # noqa: RUF001
            id="of an external average the pods are those that the scale counts",
        ),
        pytest.param(
            {"utilization": 18, "target_utilization": 80, "value": 1, "ratio": "0.225", "pods_used": 5, "proposal": 3}
            | {"pods_missing": 1},
            "18%/80% = 0.225   ceil(5 × 0.225 + 1 missing × 1.250 = 2.38)   "  # noqa: RUF001
            "outside tolerance, missing pods counted as using all that they request",
            id="missing pods count on the way down",
        ),
        pytest.param(
            {"value": 20_000, "target": 10_000, "ratio": "2.0", "pods_used": 2, "proposal": 4, "pods_missing": 1},
            "20/10 = 2.000   ceil(2 × 2.000 = 4.00)   outside tolerance, missing pods counted as using nothing",  # noqa: RUF001
            id="missing pods use nothing on the way up",
        ),
    ],
)
def test_the_formula_of_a_metric_is_the_one_that_was_calculated(metric: dict[str, Any], line: str) -> None:
    fleet = Fleet()
    fleet.settle()
    decision = structs.replace(
        fleet.decisions()[0].decision,
        current_replicas=6,
        observed={"specReplicas": 6, "statusReplicas": 3},
        metrics=[MetricDecision(type="External", name="queue", **metric)],
    )
    text = "\n".join(explanation_lines(explained(decision), now_ms=fleet.now_ms))
    assert line in text, text


@pytest.mark.parametrize(
    ("spec", "command", "result", "row"),
    [
        pytest.param(
            {"maxReplicas": 4},
            None,
            "Stays at maxReplicas 4: cpu 100% of 60% asks for 7",
            "  cpu higher               -    changes nothing: maxReplicas holds the replicas",
            id="at maxReplicas",
        ),
        pytest.param(
            {},
            Command(command="pause", name="checkout", author="anna"),
            "Stays at 4: this HPA is paused by anna; cpu 100% of 60% asks for 7",
            "  without the pause → 7 and what follows is without it, too",
            id="paused",
        ),
        pytest.param(
            {},
            Command(command="mode", name="checkout", mode="shadow"),
            "Would go up from 4 to 7: cpu 100% of 60% asks for 7    not written: mode shadow",
            None,
            id="in shadow",
        ),
    ],
)
def test_explain_says_what_holds_the_count_and_why_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], command: Command | None, result: str, row: str | None
) -> None:
    fleet = Fleet()
    fleet.settle(4, 300)
    fleet.append(AutoscalerSet(hpa=hpa(**spec)), *([command] if command else []), after_ms=16_000)
    fleet.observe(4, 500)
    text = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert f"Result     {result}\n" in text, text
    assert "no higher value" not in text
    if row:
        assert re.sub(r" +", " ", row) in re.sub(r" +", " ", text), text


@pytest.mark.parametrize(
    ("command", "label", "text"),
    [
        pytest.param(
            Command(command="pause", name="checkout", author="anna", reason="INC-42"),
            "Paused",
            "this HPA is paused by anna: INC-42; changes",
            id="a pause",
        ),
        pytest.param(
            Command(command="pause", pause_kind="scaleDown", author="anna"),
            "Paused",
            "scaleDown of namespace shop is paused by anna; scale-downs",
            id="a pause of one direction",
        ),
        pytest.param(
            SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)),
            "Frozen",
            "cluster east is frozen; changes",
            id="a freeze",
        ),
    ],
)
def test_explain_names_a_pause_also_where_no_change_was_wanted(
    monkeypatch: pytest.MonkeyPatch, command: Command | SettingsSet, label: str, text: str
) -> None:
    fleet = Fleet()
    fleet.settle(4, 300)
    fleet.append(command, key=WHOLE_PARTITION_KEY if isinstance(command, SettingsSet) else "east/shop", after_ms=16_000)
    fleet.observe(4, 300)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert "Stays at 4: within tolerance (ratio " in shown
    what, _, changes = text.rpartition("; ")
    stated = f"{label:<10} {what}; what the metrics ask for is recorded, and {changes} are not written\n"
    assert stated in shown, shown


def test_values_of_an_explanation_share_one_notation(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(3, 500)
    text = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    compared = re.findall(r"at (\d+)(m?); was (\d+)(m?)", text)
    assert compared, text
    assert all(unit == other for _, unit, _, other in compared), text


def test_a_limit_without_which_the_answer_is_the_same_is_not_named_as_its_cause() -> None:
    found = Counterfactuals(
        current=6,
        final=6,
        flips=[],
        unmoved=[],
        without=[
            Without(limit="Tolerance", answer=6, how="with a tolerance of 0"),
            Without(limit="MaxReplicas", answer=9, how="without a maximum"),
        ],
        release=None,
    )
    assert [row[:2] for row in would_rows(found, 0)] == [("without maxReplicas", "→ 9"), ("without the tolerance", "-")]
    assert would_rows(found, 0)[1][2] == "changes nothing"


# --- the cause in place of upstream's sentence ------------------------------------------------------------------------


def _with_pods(fleet: Fleet, milli: int, *others: Pod, **observed: Any) -> None:
    """An evaluation of two measured pods and these."""
    fleet.append(after_ms=16_000)
    fleet.observe(2, milli, unmeasured=others, **observed)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {"phase": "Succeeded", "owner": "Job/web-migrate"},
            "6 of 8 pods have no metrics: job-0 (Succeeded, of Job web-migrate), "
            "job-1 (Succeeded, of Job web-migrate), job-2 (Succeeded, of Job web-migrate), "
            "job-3 (Succeeded, of Job web-migrate), "
            "job-4 (Succeeded, of Job web-migrate) and 1 more; pods that have succeeded are ignored from Kubernetes "
            "1.38 on",
            id="finished pods of a Job",
        ),
        pytest.param(
            {"phase": "Pending", "ready": "False"},
            "6 of 8 pods are not ready: job-0 (Pending), job-1 (Pending), job-2 (Pending), job-3 (Pending), job-4 "
            "(Pending) and 1 more",
            id="pods that wait for a node",
        ),
        pytest.param(
            {},
            "6 of 8 pods have no metrics: job-0, job-1, job-2, job-3, job-4 and 1 more",
            id="running pods without metrics",
        ),
    ],
)
def test_pods_that_an_evaluation_could_not_count_are_named(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], line: str
) -> None:
    fleet = Fleet()
    fleet.settle(2, 300)
    others = [structs.replace(fleet._pod(number), name=f"job-{number}", **changes) for number in range(6)]
    _with_pods(fleet, 820, *others)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert f"{'Pods':<10} {line}\n" in shown, shown
    jobs = "pods are those of selector app=checkout; job-0 belongs to Job web-migrate"
    assert (jobs in shown) == ("owner" in changes), shown


def test_a_pod_of_a_job_without_requests_is_named_with_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(2, 300)
    job = structs.replace(fleet._pod(7), name="migrate", owner="Job/migrate", containers=[Container(name="sql")])
    _with_pods(fleet, 820, job)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert "migrate (of Job migrate) requests no cpu: set resources.requests.cpu of container sql" in shown, shown
    assert "pods are those of selector app=checkout; migrate belongs to Job migrate" in shown


def test_that_no_pod_has_the_container_is_said_in_place_of_that_pods_might_be_unready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    fleet.settle(2, 300)
    source = {"name": "cpu", "container": "app", "target": {"type": "AverageValue", "averageValue": "100m"}}
    metric = {"type": "ContainerResource", "containerResource": source}
    fleet.append(AutoscalerSet(hpa=hpa(metrics=[metric])), after_ms=16_000)
    fleet.observe(2, 300)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert "Pods       no pod has a container app: they have main\n" in shown, shown


def test_a_direction_that_the_spec_disables_is_the_verdict_also_while_a_window_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    fleet.settle(4, 300)
    policies = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
    behavior = {"scaleDown": {"selectPolicy": "Disabled", "policies": policies, "stabilizationWindowSeconds": 300}}
    fleet.append(AutoscalerSet(hpa=hpa(behavior=behavior)), after_ms=16_000)
    fleet.observe(4, 300)
    fleet.append(after_ms=16_000)
    fleet.observe(4, 60)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    text = "Stays at 4: scale-down is disabled by the spec (behavior.scaleDown.selectPolicy: Disabled)"
    assert f"{text}; cpu 12% of 60% asks for 1" in shown, shown
    assert "held by scale-down stabilization" not in shown


def test_while_a_window_holds_the_value_at_which_the_metrics_ask_for_another_count_is_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    fleet.settle(4, 300)
    fleet.append(after_ms=16_000)
    fleet.observe(4, 300)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert re.search(r"cpu lower +- +changes nothing: the stabilization window holds the replicas", shown), shown
    assert re.search(r"cpu ≤ 45%, for the metrics alone +→ 3 +.*; asked for, and held", shown), shown


def test_a_limit_that_acts_in_the_other_direction_is_not_named_as_what_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(4, 300)
    fleet.append(AutoscalerSet(hpa=hpa(maxReplicas=4)), after_ms=16_000)
    fleet.observe(4, 900)
    fleet.append(after_ms=16_000)
    fleet.observe(4, 300)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    (line,) = re.findall("cpu lower .*", shown)
    assert "maxReplicas" not in line, shown
    assert "the stabilization window holds the replicas" in line, shown


def test_the_step_of_a_pause_is_called_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(4, 300)
    fleet.append(Command(command="pause", name="checkout", author="anna"), after_ms=16_000)
    fleet.observe(4, 500)
    shown = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert re.search(r"^pause +4 +7 → 4", shown, re.MULTILINE), shown
    assert "\nguard " not in shown


def test_fields_with_a_label_have_a_line_of_their_own_where_they_say_something() -> None:
    recorded, lines = next(_explained(metrics=1, seed=0))
    assert not [line for line in lines if line.startswith(("Spec by", "Because"))]
    applied = structs.replace(recorded.decision, author="anna", change_reason="PAY-1\x1b[2J\nsale")
    shown = explanation_lines(explained(applied), now_ms=recorded.time_ms)
    assert "Spec by    anna" in shown
    (why,) = [line for line in shown if line.startswith("Because")]
    assert "PAY-1" in why
    assert "\x1b" not in why


CPU = {"type": "Resource", "name": "cpu resource utilization (percentage of request)", "value": 80, "utilization": 8}
QUEUE = {"type": "External", "name": "external metric queue(nil)", "value": 30_000, "target": 10_000, "proposal": 9}


@pytest.mark.parametrize(
    ("changes", "metrics", "verdict"),
    [
        pytest.param(
            {"constraints_applied": ["RemovalBudget"], "until_s": 420},
            [CPU | {"target_utilization": 60, "proposal": 1}],
            "Stays at 6: the removal budget allows no more until 14:07 (in 7m); cpu 8% of 60% asks for 1",
            id="a budget",
        ),
        pytest.param(
            {"constraints_applied": ["MaxReplicas", "AdditionBudget"], "raw_desired_replicas": 9, "max_replicas": 6},
            [QUEUE],
            "Stays at maxReplicas 6: the addition budget allows no more; queue 30 of 10 asks for 9",
            id="a bound and a budget",
        ),
        pytest.param(
            {"constraints_applied": ["Frozen"], "final_desired_replicas": 6},
            [CPU | {"target_utilization": 60, "proposal": 1}],
            "Stays at 6: held by the freeze of the cluster; cpu 8% of 60% asks for 1",
            id="a freeze, which has no end",
        ),
        pytest.param(
            {"raw_desired_replicas": 6},
            [CPU | {"target_utilization": 8, "proposal": 6}],
            "Stays at 6: cpu 8% of 8% asks for 6",
            id="the metric asks for what is there",
        ),
        pytest.param(
            {"raw_desired_replicas": 1}, [], "Stays at 6: the metrics ask for the current count", id="no metric"
        ),
        pytest.param(
            {"final_desired_replicas": 9, "raw_desired_replicas": 9, "selected_metric": "external metric queue(nil)"},
            [CPU | {"target_utilization": 60, "proposal": 1}, QUEUE],
            "Goes up from 6 to 9: queue 30 of 10 asks for 9",
            id="of two metrics the one that decided",
        ),
        pytest.param(
            {
                "final_desired_replicas": 7,
                "raw_desired_replicas": 9,
                "reason": "Current number of replicas above Spec.MaxReplicas",
            },
            [],
            "Goes up from 6 to 7: Current number of replicas above Spec.MaxReplicas; metrics ask for 9",
            id="another reason than a metric",
        ),
    ],
)
def test_the_verdict_is_one_sentence_with_what_holds_it_and_what_the_metric_says(
    changes: dict[str, Any], metrics: list[dict[str, Any]], verdict: str
) -> None:
    fleet = Fleet()
    fleet.settle()
    made = fleet.decisions()[0].decision
    made_ms = parse_time_ms("2026-11-21T14:00:00Z")
    ends = changes.pop("until_s", None)
    steps = [Step(step="removalBudget", in_=6, out=6, until=made_ms + 1000 * ends)] if ends else []
    known: dict[str, Any] = {
        "current_replicas": 6,
        "final_desired_replicas": 6,
        "raw_desired_replicas": 1,
        "max_replicas": 12,
    }
    known |= {"reason": "DesiredWithinRange", "selected_metric": "", "constraints_applied": [], "wants": None}
    decision = structs.replace(
        made,
        time="2026-11-21T14:00:00Z",
        steps=steps,
        metrics=[MetricDecision(**each) for each in metrics],
        **(known | changes),
    )
    assert explained(decision).verdict == verdict

"""Decisions in words: the wording where numbers or texts would mislead."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleethpa.show import words
from fleethpa.show.words import alike, cause, one_line, threshold
from schemas.decisions import Decision, InputPosition, MetricDecision, Step
from schemas.kubernetes.quantity import parse_quantity
from schemas.kubernetes.selectors import print_label_selector


def decision(metric: dict[str, Any], **changes: Any) -> Decision:
    made = MetricDecision(type="External", name="external metric queue(nil)", **metric)
    position = InputPosition(partition=0, offset=1, hash="")
    fixed: dict[str, Any] = {"id": "0-1-u", "seq": 1, "prev": "", "cluster": "c", "namespace": "n", "name": "web"}
    fixed |= {"uid": "u", "time": "2026-01-01T00:00:00Z", "input": position, "selected_metric": made.name}
    fixed["mode"] = "enforce"
    return Decision(**(fixed | {"metrics": [made]} | changes))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        pytest.param(60_000, "queue above target (60/30)", id="the value and the target that moved the replicas"),
        pytest.param(-(2**63), "queue above target", id="a value divided by no replicas is no number to show"),
    ],
)
def test_a_rescale_names_its_numbers(value: int, shown: str) -> None:
    made = decision(
        {"value": value, "target": 30_000},
        reason="external metric queue(nil) above target",
        current_replicas=0,
        final_desired_replicas=5,
    )
    assert words.why(made) == shown


def test_a_ratio_from_before_pods_were_filled_in_is_marked_as_one() -> None:
    made = decision(
        {"note": "withinTolerance", "ratio": "1.67", "pods_missing": 1}, current_replicas=5, final_desired_replicas=5
    )
    assert words.why(made) == "within tolerance (ratio 1.67 from measured pods only)"


def test_a_ratio_that_is_no_number_is_shown_as_none() -> None:
    made = decision({"note": "withinTolerance", "ratio": "nan"}, current_replicas=5, final_desired_replicas=5)
    assert words.why(made) == "within tolerance (no ratio)"


UP = {"reason": "external metric queue(nil) above target", "current_replicas": 4, "final_desired_replicas": 6}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        pytest.param(
            {"current_replicas": 12, "final_desired_replicas": 12, "max_replicas": 12, "raw_desired_replicas": 40}
            | {"constraints_applied": ["MaxReplicas"]},
            "at maxReplicas 12; metrics ask for 40",
            id="at a bound",
        ),
        pytest.param(
            {"current_replicas": 6, "final_desired_replicas": 6, "max_replicas": 12, "raw_desired_replicas": 40}
            | {"constraints_applied": ["MaxReplicas", "Paused"], "paused": "this HPA is paused by anna"},
            "held by maxReplicas, a pause; metrics ask for 40; not written: this HPA is paused by anna",
            id="held below a bound",
        ),
        pytest.param(
            UP | {"constraints_applied": ["ScaleUpPolicy"], "raw_desired_replicas": 9, "mode": "enforce"},
            "queue above target; limited by a scale-up policy; metrics ask for 9",
            id="cut on the way",
        ),
        pytest.param(
            UP | {"mode": "enforce", "error": "requests_per_second: DatadogMetric is invalid"},
            "queue above target; requests_per_second: DatadogMetric is invalid",
            id="another metric failed",
        ),
        pytest.param(UP | {"mode": "shadow"}, "queue above target; not written: mode shadow", id="in shadow"),
        pytest.param(
            UP | {"mode": "shadow", "refused": "ScaledObject shop/web drives Deployment/web too"},
            "queue above target; not written: enforcing is refused: ScaledObject shop/web drives Deployment/web too",
            id="where enforcing is refused",
        ),
        pytest.param(
            {"current_replicas": 3, "final_desired_replicas": 3, "reason": "DesiredWithinRange"},
            "the metrics ask for the current count",
            id="enough replicas",
        ),
        pytest.param(
            {"kind": "completion", "outcome": {"result": "failed", "error": "failed to update x: conflict"}},
            "write failed: conflict",
            id="a write that failed",
        ),
    ],
)
def test_one_line_says_why_a_decision_came_out_as_it_did(changes: dict[str, Any], line: str) -> None:
    assert words.why(decision({}, **changes)) == line


def test_a_limit_that_an_object_sets_is_named_with_the_object() -> None:
    made = decision(
        {},
        current_replicas=4,
        final_desired_replicas=4,
        raw_desired_replicas=8,
        constraints_applied=["CapacityGroup"],
        steps=[Step(step="capacity", in_=8, out=4, detail={"group": "search"})],
    )
    assert words.why(made) == "held by CapacityGroup search; metrics ask for 8"
    assert words.why(structs.replace(made, steps=[])) == "held by a CapacityGroup; metrics ask for 8"


@pytest.mark.parametrize(
    ("asked", "stabilized", "line"),
    [
        pytest.param(3, 5, "held by the scaleDown stabilization window; metrics ask for 3", id="a removal is put off"),
        pytest.param(
            3, 7, "held by the scaleDown stabilization window, a pause; metrics ask for 3", id="an addition comes of it"
        ),
        pytest.param(9, 5, "held by the scaleUp stabilization window; metrics ask for 9", id="an addition is put off"),
    ],
)
def test_the_window_that_changed_the_count_is_named(asked: int, stabilized: int, line: str) -> None:
    limits = ["StabilizationWindow"] + ["Paused"] * (stabilized != 5)
    made = decision(
        {},
        current_replicas=5,
        final_desired_replicas=5,
        raw_desired_replicas=asked,
        constraints_applied=limits,
        steps=[Step(step="stabilization", in_=asked, out=stabilized)],
    )
    assert words.why(made) == line


@pytest.mark.parametrize(
    ("note", "line"),
    [
        ("directionFlip", "with the pods without metrics counted in, the direction would reverse: replicas stay"),
        ("countGuard", "the new count contradicts the ratio: replicas stay"),
    ],
)
def test_rules_that_keep_the_count_are_named_in_plain_words(note: str, line: str) -> None:
    same = {"current_replicas": 3, "final_desired_replicas": 3, "reason": "DesiredWithinRange"}
    assert words.why(decision({"note": note, "ratio": "1.67"}, **same)) == line


CAUSE = "the server is currently unable to handle the request (get pods.metrics.k8s.io)"


@pytest.mark.parametrize(
    ("selector_object", "written"),
    [
        pytest.param({"matchLabels": {"queue": "orders"}}, "queue=orders", id="one label"),
        pytest.param({"matchLabels": {"b": "2", "a.io/x": "1"}}, "a.io/x=1,b=2", id="labels"),
        pytest.param(
            {
                "matchLabels": {"queue": ""},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["a", "b"]},
                    {"key": "env", "operator": "NotIn", "values": ["dev"]},
                    {"key": "x", "operator": "Exists"},
                    {"key": "y", "operator": "DoesNotExist"},
                ],
            },
            "queue=,tier in (a,b),env notin (dev),x,!y",
            id="expressions",
        ),
        pytest.param({}, "<everything>", id="an empty selector"),
    ],
)
def test_a_selector_is_shown_as_users_write_it(selector_object: dict[str, Any], written: str) -> None:
    text = f"unable to get external metric shop/queue/{print_label_selector(selector_object)}: no metrics returned"
    assert one_line(text) == f"unable to get external metric shop/queue/{written}: no metrics returned"


@pytest.mark.parametrize(
    ("error", "left"),
    [
        pytest.param(
            "invalid metrics (1 invalid out of 2), first error is: failed to get cpu resource metric value: failed to "
            "get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource "
            f"metrics API: {CAUSE}",
            CAUSE,
            id="wrapped many times",
        ),
        pytest.param(
            "failed to get queue external metric value: failed to get external metric queue: unable to get external "
            f"metric shop/queue/{print_label_selector({'matchLabels': {'queue': 'a'}})}: no metrics returned from "
            "external metrics API",
            "no metrics returned from external metrics API",
            id="around a selector",
        ),
        pytest.param("missing request for cpu in container main of Pod web-1", None, id="a bare cause"),
        pytest.param("failed to get cpu utilization: ", None, id="nothing behind it"),
        pytest.param("", None, id="no error"),
    ],
)
def test_the_cause_of_an_error_comes_without_what_upstream_puts_before_it(error: str, left: str | None) -> None:
    assert cause(error) == (error if left is None else left)


@pytest.mark.parametrize(
    ("milli", "metric", "texts"),
    [
        ((3_324, 6_000), "cpu", ["3324m", "6000m"]),
        ((3_000, 6_000), "cpu", ["3", "6"]),
        ((939_482_645_923, 2**30 * 1000), "memory", ["896Mi", "1024Mi"]),
        ((1_500 * 1024, 1000 * 1024), "memory", ["1.5Ki", "1Ki"]),
        ((75_000, 80_000), "memory", ["75", "80"]),
        ((3_324, 6_000), "queue", ["3.324", "6"]),
        ((0,), "memory", ["0"]),
    ],
)
def test_values_side_by_side_share_one_notation(milli: tuple[int, ...], metric: str, texts: list[str]) -> None:
    assert alike(milli, metric) == texts


@given(st.integers(0, 2**50), st.integers(0, 2**50), st.sampled_from(["cpu", "memory", "queue"]))
def test_a_printed_threshold_is_never_nearer_than_the_exact_one(value: int, now: int, metric: str) -> None:
    lower = value < now
    text, _ = threshold(value, now, metric, lower=lower)
    printed = parse_quantity(text).milli_value()
    assert printed <= value if lower else printed >= value


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param(
            {"constraints_applied": ["RemovalBudget"], "raw_desired_replicas": 2}
            | {"steps": [Step(step="removalBudget", out=12, until=1_767_255_960_000, in_=12)]},
            "held by the removal budget until 08:26:00 (metrics ask for 2)",
            id="a budget, until when",
        ),
        pytest.param(
            {"constraints_applied": ["Frozen"], "raw_desired_replicas": 2},
            "held by the freeze of the cluster (metrics ask for 2)",
            id="a freeze has no end",
        ),
        pytest.param({"constraints_applied": ["MaxReplicas"], "raw_desired_replicas": 40}, "", id="no brake"),
        pytest.param({"constraints_applied": ["Paused"], "raw_desired_replicas": 12}, "", id="nothing else is asked"),
    ],
)
def test_a_brake_that_keeps_the_replicas_is_named_with_its_end(changes: dict[str, Any], text: str) -> None:
    made = decision({}, current_replicas=12, final_desired_replicas=12, max_replicas=12, **changes)

    assert words.braked(made) == text

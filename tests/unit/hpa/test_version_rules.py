"""Which rules a version of Kubernetes has, and what the rules change that no recorded answer shows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.answers import MetricAnswer, PodUsage, in_columns
from streams.hpa.calculator import bounds, external_per_pod, object_per_pod
from streams.hpa.observation import (
    ContainerRequests,
    MetricFailure,
    PodRow,
    PodSamples,
    PodTemplate,
    TargetPods,
    compile_answer,
)
from streams.hpa.rules import CURRENT, GATES, NEWEST, OLDEST, RULES, UnknownRulesError, minor_of, parse_gates, rules_of

OLD = rules_of(OLDEST)


def test_the_defaults_are_the_rules_of_1_37() -> None:
    assert rules_of(37) == CURRENT


@pytest.mark.parametrize("minor", [30, 31, 32])
def test_1_30_to_1_32_changed_nothing(minor: int) -> None:
    assert rules_of(minor) == rules_of(29)


def test_each_other_version_changed_something() -> None:
    assert len({rules_of(minor) for minor in range(OLDEST, NEWEST + 1)}) == 9


def test_each_rule_begins_with_its_version() -> None:
    for name, rule in RULES.items():
        found = {minor: getattr(rules_of(minor), name) for minor in range(OLDEST, NEWEST + 1)}
        assert found == {minor: minor >= rule.since for minor in found}, name


@pytest.mark.parametrize(
    ("minor", "gates", "rule", "on"),
    [
        pytest.param(36, {"HPAScaleToZero": True}, "scale_to_zero", True, id="an alpha gate that is switched on"),
        pytest.param(37, {"HPAScaleToZero": False}, "scale_to_zero", False, id="a beta gate that is switched off"),
        pytest.param(34, {"HPAConfigurableTolerance": True}, "tolerance_field", True, id="its own tolerance in 1.34"),
        pytest.param(33, {"PodLevelResources": True}, "pod_level_requests", True, id="pod-level requests in 1.33"),
    ],
)
def test_a_gate_overrides_the_default_of_its_version(minor: int, gates: dict[str, bool], rule: str, on: bool) -> None:
    assert getattr(rules_of(minor, gates), rule) is on


@pytest.mark.parametrize(
    ("minor", "gates", "text"),
    [
        pytest.param(26, {}, "rules of Kubernetes 1.26 are not known; the oldest known version is 1.27", id="too old"),
        pytest.param(36, {"HPAGeneration": True}, "Kubernetes 1.36 has no feature gate HPAGeneration", id="too early"),
        pytest.param(37, {"Nope": True}, "has no feature gate Nope", id="no gate of the HPA controller"),
        pytest.param(37, {"HPAConfigurableTolerance": False}, "cannot be switched off in Kubernetes 1.37", id="locked"),
        pytest.param(38, {"HPAGeneration": False}, "cannot be switched off in Kubernetes 1.38", id="locked in 1.38"),
    ],
)
def test_rules_that_cannot_be_are_refused_with_the_reason(minor: int, gates: dict[str, bool], text: str) -> None:
    with pytest.raises(UnknownRulesError, match=text.replace(".", r"\.")):
        rules_of(minor, gates)


def test_a_version_newer_than_all_known_has_the_newest_rules() -> None:
    assert rules_of(NEWEST + 5) == rules_of(NEWEST)


@pytest.mark.parametrize(
    ("text", "minor"), [("1.33", 33), ("v1.33.4", 33), ("v1.29.1-eks-508b6b3", 29), ("v1.30.5-gke.1014001", 30)]
)
def test_a_version_is_read_as_clouds_write_it(text: str, minor: int) -> None:
    assert minor_of(text) == minor


@pytest.mark.parametrize("text", ["", "2.0", "1", "v1.x", "one"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UnknownRulesError, match="is no version of Kubernetes"):
        minor_of(text)


def test_gates_are_read_as_the_controller_manager_reads_them() -> None:
    assert parse_gates("HPAScaleToZero=true, HPAGeneration=false") == {"HPAScaleToZero": True, "HPAGeneration": False}
    assert parse_gates("") == {}


@pytest.mark.parametrize("text", ["HPAScaleToZero", "HPAScaleToZero=yes", "Nope=true"])
def test_what_is_no_gate_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UnknownRulesError, match="write NAME=true or NAME=false of HPAConfigurableTolerance"):
        parse_gates(text)


def test_each_gate_names_a_rule() -> None:
    assert {gate.rule for gate in GATES.values()} <= set(RULES)


@given(
    st.floats(0, 3, allow_nan=False),
    st.one_of(st.floats(-10, 10), st.integers(0, 1000).map(lambda percent: percent / 50), st.just(math.nan)),
)
def test_up_to_1_32_a_ratio_is_within_tolerance_where_its_distance_from_one_is(tolerance: float, ratio: float) -> None:
    low, high = bounds(tolerance, tolerance, OLD)

    assert (low <= ratio <= high) == (abs(1.0 - ratio) <= tolerance)


def test_exactly_ten_percent_above_the_target_is_outside_the_tolerance_up_to_1_32() -> None:
    ratio = 55 / 50

    assert not ratio <= bounds(0.1, 0.1, rules_of(32))[1]
    assert ratio <= bounds(0.1, 0.1, rules_of(33))[1]


def test_an_average_whose_ratio_is_no_number_keeps_the_replicas_up_to_1_32() -> None:
    beyond_64_bits = 0  # what upstream's MilliValue is of a target such as 1e30
    for minor, kept in ((32, "withinTolerance"), (33, "")):
        rules = rules_of(minor)
        band = bounds(0.1, 0.1, rules)
        assert object_per_pod(17, beyond_64_bits, 0, band, rules).kept == kept
        assert external_per_pod(17, beyond_64_bits, [], band, rules).kept == kept


def test_a_pod_without_the_named_container_in_its_sample_is_an_error_up_to_1_32() -> None:
    samples = {"a": [("app", {"cpu": 5})], "b": [("other", {"cpu": 5})]}
    usages = [PodUsage(pod=pod, time=1, window_ms=1, containers=found) for pod, found in samples.items()]
    answer = MetricAnswer(api="resource", pods=in_columns(usages))

    old = compile_answer(answer, "cpu", "app", "shop", rules_of(32))
    new = compile_answer(answer, "cpu", "app", "shop", rules_of(33))

    text = "failed to get container metrics: container app not present in metrics for pod shop/b"
    assert old == MetricFailure(text)
    assert isinstance(new, PodSamples)
    assert list(new.samples) == ["a"]


def test_pods_that_two_versions_look_at_keep_the_requests_of_each() -> None:
    template = PodTemplate([ContainerRequests("app", {"cpu": "1"})], [ContainerRequests("s", {"cpu": "1"}, True)])
    pods = TargetPods((PodRow("a", template, ready="True"),))

    assert [pods.requests("cpu", "", rules).active_total for rules in (OLD, CURRENT, OLD)] == [1000, 2000, 1000]


def test_succeeded_pods_are_ignored_from_1_38_on() -> None:
    row = PodRow("a", PodTemplate(()), phase="Succeeded")

    assert TargetPods((row,)).active == (row,)
    assert TargetPods((row,), rules_of(38)).ignored == (row,)

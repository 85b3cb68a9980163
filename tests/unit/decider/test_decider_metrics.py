"""The decider's metrics of HPAs and decisions, after a fold of a generated log."""

import re
from collections import Counter
from copy import copy
from typing import Any

import msgspec
import orjson
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from schemas.codec import encode
from schemas.decisions import Decision, InputPosition
from schemas.keys import HpaId
from schemas.settings import ClusterSettings
from streams.decider.metrics import FAMILIES, Metrics, Results, exposition, samples
from streams.history.recorded import in_sequence
from streams.partition import Partition
from streams.state.ledger import DecisionRecord
from streams.state.moves import Move
from tests.kit.generated_log import START_MS, Fleet, partition_log

WEB = 'cluster="c0",hpa="app0",namespace="ns0"'


ENFORCED = ClusterSettings(default_mode="enforce", native_controller="absent")


@pytest.fixture(scope="module")
def folded() -> tuple[Partition, list[DecisionRecord]]:
    partition, made = Partition.empty(0), []
    for record in partition_log(Fleet(hpas=2, namespaces=2, minutes=6, settings=ENFORCED)):
        made += partition.apply(*record)
    return partition, made


def exposed(registry: CollectorRegistry) -> dict[str, float]:
    return values_of(generate_latest(registry).decode())


def values_of(text: str) -> dict[str, float]:
    lines = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
    return {_sorted(name): float(value) for name, _, value in lines}


def _sorted(sample: str) -> str:
    name, brace, labels = sample.partition("{")
    each = sorted(re.findall(r'\w+="[^"]*"', labels))
    return f"{name}{{{','.join(each)}}}" if brace else name


def of_hpas(partition: Partition) -> dict[str, float]:
    return values_of(exposition([partition]))


def test_every_hpa_is_exposed_with_its_bounds_status_and_conditions(
    folded: tuple[Partition, list[DecisionRecord]],
) -> None:
    partition, _ = folded
    found = of_hpas(partition)
    row = partition.state.hpas[HpaId("c0", "ns0", "app0")].row
    assert (
        found[
            f'fleethpa_hpa_info{{{WEB},origin="cluster",target_api_version="apps/v1",target_kind="Deployment",target_name="app0"}}'
        ]
        == 1
    )
    assert found[_sorted(f'fleethpa_hpa_mode{{{WEB},mode="enforce"}}')] == 1
    assert found[f"fleethpa_hpa_spec_min_replicas{{{WEB}}}"] == 2
    assert found[f"fleethpa_hpa_spec_max_replicas{{{WEB}}}"] == 12
    assert found[f"fleethpa_hpa_paused{{{WEB}}}"] == 0
    assert row.own_status is not None
    assert found[f"fleethpa_hpa_status_desired_replicas{{{WEB}}}"] == row.own_status["desiredReplicas"]
    assert found[f"fleethpa_hpa_last_decision_timestamp_seconds{{{WEB}}}"] * 1000 == row.last_decision_ms
    active = f'fleethpa_hpa_status_condition{{{WEB},condition="ScalingActive",reason="ValidMetricFound",status="true"}}'
    assert found[_sorted(active)] == 1


def test_what_an_hpa_needs_is_exposed(
    folded: tuple[Partition, list[DecisionRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, _ = folded
    hpa = partition.state.hpas[HpaId("c0", "ns0", "app0")]
    row, now_ms = hpa.row, hpa.row.evaluated_ms
    assert row.own_status is not None
    monkeypatch.setattr(hpa, "row", row := copy(row))
    row.keep_status((row.own_status or {}) | {"currentReplicas": 12})
    row.wants, row.blocked = 30, (0, 164, 6, 0)
    row.moves = tuple(Move(now_ms - 9_000 * at, 2 + at % 2, 3 - at % 2, "fleethpa") for at in range(8, 0, -1))
    found = of_hpas(partition)
    names = ("wants_replicas", "saturated", "blocked", "flapping", "disabled")
    assert [found[f"fleethpa_hpa_{name}{{{WEB}}}"] for name in names] == [30, 1, 1, 1, 0]
    row.wants, row.blocked, row.moves = 12, (), row.moves[1:]
    assert [of_hpas(partition)[f"fleethpa_hpa_{name}{{{WEB}}}"] for name in names] == [12, 0, 0, 0, 0]


def test_every_metric_is_exposed_with_target_value_and_newest_sample(
    folded: tuple[Partition, list[DecisionRecord]],
) -> None:
    partition, made = folded
    found = of_hpas(partition)
    row = partition.state.hpas[HpaId("c0", "ns0", "app0")].row
    assert row.own_status is not None
    shown = row.own_status["currentMetrics"][0]["resource"]["current"]
    utilization = f'{{{WEB},metric_name="cpu",metric_target_type="utilization"}}'
    average = f'{{{WEB},metric_name="cpu",metric_target_type="average"}}'
    assert found[_sorted(f"fleethpa_hpa_spec_target_metric{utilization}")] == 80
    assert found[_sorted(f"fleethpa_hpa_status_target_metric{utilization}")] == shown["averageUtilization"]
    assert shown["averageValue"] == f"{1000 * found[_sorted(f'fleethpa_hpa_status_target_metric{average}')]:.0f}m"
    newest_ms = 1000 * found[_sorted(f'fleethpa_hpa_metric_last_sample_timestamp_seconds{{{WEB},metric_name="cpu"}}')]
    used = [time_ms for one in made if row.uid in one.id for time_ms in _newest_used(orjson.loads(one.value))]
    assert max(used) <= newest_ms <= partition.clock_ms


def _newest_used(decision: dict[str, Any]) -> list[int]:
    """Sample times that a record names."""
    return [m["newest"] for m in decision.get("metrics", ()) if "newest" in m]


def test_what_kube_state_metrics_has_of_an_hpa_is_exposed(
    folded: tuple[Partition, list[DecisionRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tolerances only where the spec sets them, as there."""
    partition, _ = folded
    hpa = partition.state.hpas[HpaId("c0", "ns0", "app0")]
    tolerances = [f"fleethpa_hpa_spec_behavior_scale_{side}_tolerance{{{WEB}}}" for side in ("up", "down")]
    before = of_hpas(partition)
    assert before[f"fleethpa_hpa_metadata_generation{{{WEB}}}"] == hpa.row.generation
    assert not before.keys() & set(tolerances)
    shown = hpa.row.hpa_object()
    shown["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
    shown["spec"]["behavior"] = {"scaleUp": {"tolerance": "50m"}, "scaleDown": {"tolerance": "0"}}
    monkeypatch.setattr(hpa, "row", row := copy(hpa.row))
    row.hpa = orjson.dumps(shown)
    found = of_hpas(partition)
    assert [found[name] for name in tolerances] == [0.05, 0]
    assert found[f"fleethpa_hpa_created{{{WEB}}}"] == 1_767_225_605


def test_a_deleted_hpa_is_exposed_no_longer(folded: tuple[Partition, list[DecisionRecord]]) -> None:
    partition, _ = folded
    row = partition.state.hpas[HpaId("c0", "ns0", "app0")].row
    row.deleted = True
    try:
        found = of_hpas(partition)
    finally:
        row.deleted = False
    assert not [name for name in found if 'hpa="app0"' in name]
    assert [name for name in found if 'hpa="app1"' in name]


def test_a_spec_that_changes_while_its_metrics_are_written_fails_no_scrape(
    folded: tuple[Partition, list[DecisionRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, _ = folded
    hpa = partition.state.hpas[HpaId("c0", "ns0", "app0")]
    found = samples(hpa, partition.state.namespaces["c0/ns0"])
    first = next(found)
    monkeypatch.setattr(hpa, "queries", ())  # as the thread that folds leaves it
    families = {name for name, *_ in [first, *found]}
    assert {"info", "spec_target_metric", "last_decision_timestamp_seconds"} <= families


def test_prometheus_own_parser_reads_labels_with_quotes_backslashes_and_line_breaks_as_they_are(
    folded: tuple[Partition, list[DecisionRecord]], monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, _ = folded
    row = partition.state.hpas[HpaId("c0", "ns0", "app0")].row
    reason = 'no "value"\nfor a\\b'
    shown = {"conditions": [{"type": "ScalingActive", "status": "False", "reason": reason}]}
    monkeypatch.setattr(row, "status", msgspec.Raw(msgspec.msgpack.encode(shown)))
    families = list(text_string_to_metric_families(exposition([partition])))
    assert [(family.name, family.type) for family in families] == [
        (f"fleethpa_hpa_{name}", "gauge") for name in FAMILIES
    ]
    labels = [each.labels for family in families for each in family.samples if "condition" in each.labels]
    own = {"cluster": "c0", "namespace": "ns0", "hpa": "app0", "condition": "ScalingActive", "status": "false"}
    assert own | {"reason": reason} in labels


def test_decisions_are_counted_by_what_they_came_to(folded: tuple[Partition, list[DecisionRecord]]) -> None:
    _, made = folded
    registry = CollectorRegistry()
    results = Results(registry)
    kinds = results.count(made, START_MS / 1000 + 360)
    found = {name: value for name, value in exposed(registry).items() if name.startswith("fleethpa_decisions_total")}
    assert {"evaluation", "completion"} == set(kinds)
    assert sum(found.values()) == len(made)
    for kind in ("evaluation", "completion"):
        of_kind = {name: value for name, value in found.items() if f'kind="{kind}"' in name}
        assert sum(of_kind.values()) == kinds[kind]
        assert all('mode="enforce"' in name and "reason=" in name for name in of_kind)
    assert any('action="scale_up"' in name or 'action="scale_down"' in name for name in found)


def record(**fields: Any) -> DecisionRecord:
    """A decision of one HPA."""
    headers = [("ce_subject", b"/c/n/horizontalpodautoscaler/web"), ("ce_source", b"/clusters/c")]
    made: dict[str, Any] = {"id": "0-1-u", "seq": 1, "prev": "", "time": "", "cluster": "c", "namespace": "n"}
    made |= {"name": "web", "uid": "u", "input": InputPosition(partition=0, offset=1, hash="")}
    body = Decision(**made, **fields)
    return DecisionRecord("0-1-u", "c/n", 1, encode(body), headers, body)


def test_writes_are_counted_by_cluster_and_by_how_they_ended() -> None:
    registry = CollectorRegistry()
    ended = [record(kind="completion", outcome={"result": each}) for each in ("timeout", "applied", "timeout")]
    Results(registry).count(ended, 0)
    found = {name: value for name, value in exposed(registry).items() if name.startswith("fleethpa_writes_ended_total")}
    assert found == {
        'fleethpa_writes_ended_total{cluster="c",result="applied"}': 1,
        'fleethpa_writes_ended_total{cluster="c",result="timeout"}': 2,
    }


def test_a_completion_of_the_engine_says_how_its_write_ended(folded: tuple[Partition, list[DecisionRecord]]) -> None:
    _, made = folded
    registry = CollectorRegistry()
    completions = Results(registry).count(made, 0)["completion"]
    found = {name: value for name, value in exposed(registry).items() if name.startswith("fleethpa_writes_ended_total")}
    assert sum(found.values()) == completions > 0
    assert all('cluster="c0"' in name for name in found)


def test_lag_is_from_the_newest_sample_to_the_record(folded: tuple[Partition, list[DecisionRecord]]) -> None:
    _, made = folded
    decision = next(one for one in made if b'"newest":' in one.value)
    registry = CollectorRegistry()
    Results(registry).count([decision], max(_newest_used(orjson.loads(decision.value))) / 1000 + 7)
    assert exposed(registry)["fleethpa_decision_lag_seconds_sum"] == pytest.approx(7)


def test_each_decision_has_a_lag_also_where_samples_of_several_times_are_in_the_future(
    folded: tuple[Partition, list[DecisionRecord]],
) -> None:
    newest = {}
    for one in folded[1]:
        if b'"newest":' in one.value:
            newest[max(_newest_used(orjson.loads(one.value)))] = one
    assert len(newest) > 1
    registry = CollectorRegistry()
    Results(registry).count(list(newest.values()), min(newest) / 1000 - 7)
    assert exposed(registry)["fleethpa_decision_lag_seconds_count"] == len(newest)


def test_each_record_is_counted_with_what_limits_it() -> None:
    partition, values = Partition.empty(0), []
    registry = CollectorRegistry()
    results = Results(registry)
    for at in partition_log(Fleet(hpas=4, namespaces=2, minutes=12, noise=0.02, settings=ENFORCED)):
        made = partition.apply(*at)
        values += [each.value for each in made]
        results.count(made, 0)
    found = Counter(",".join(each.decision.constraints_applied) for each in in_sequence(0, enumerate(values)))
    assert found["Tolerance"] > 0 < found[""]
    counted: Counter[str] = Counter()
    for name, value in exposed(registry).items():
        if limited := re.search(r'fleethpa_decisions_total.*limited_by="([^"]*)"', name):
            counted[limited[1]] += int(value)
    assert counted == found


def test_the_selector_of_a_metric_is_no_label() -> None:
    reason = "external metric queue(&LabelSelector{MatchLabels:map[string]string{queue: a,},}) above target"
    registry = CollectorRegistry()
    Results(registry).count([record(reason=reason)], 0)
    assert any('reason="external metric queue above target"' in name for name in exposed(registry))


def test_a_completion_is_counted_but_has_no_lag() -> None:
    ended = record(
        kind="completion",
        mode="enforce",
        direction="ScaleUp",
        constraints_applied=["MaxReplicas"],
        outcome={"result": "applied"},
    )
    metrics = Metrics()
    metrics.decided([ended])
    found = exposed(metrics.registry)
    labels = 'action="scale_up",kind="completion",limited_by="MaxReplicas",mode="enforce",reason=""'
    assert found[f"fleethpa_decisions_total{{{labels}}}"] == 1
    assert found["fleethpa_decision_lag_seconds_count"] == 0
    assert found["fleethpa_evaluations_total"] == 0

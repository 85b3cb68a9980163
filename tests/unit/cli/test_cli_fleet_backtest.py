"""`fleethpa backtest -f` with a FleetHPA: two clusters of a fleet in memory, one autoscaler over both."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.fleet.decisionfinding import short_id
from fleethpa.frame.errors import INTERNAL
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.keys import FLEET, HpaId
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.broken import break_for
from tests.kit.cli import Cli, Fleet
from tests.kit.published import fits

SINCE = ("--since", "2026-11-20T00:00:00Z")


def _manifest(**changes: Any) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": 60}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout"},
        "minReplicas": 4,
        "maxReplicas": 12,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "clusters": [{"name": "east", "weight": 2, "minReplicas": 1}, {"name": "west"}],
        "placement": {"strategy": "Weighted", "rebalanceAfter": "1m"},
    }
    return {
        "apiVersion": "fleethpa.io/v1alpha1",
        "kind": "FleetHPA",
        "metadata": {"namespace": "shop", "name": "checkout"},
        "spec": spec | changes,
    }


def _observed(fleet: Fleet, cluster: str, replicas: int, usage_milli: int) -> None:
    fleet.cluster = cluster
    fleet.observe(replicas, usage_milli)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """As `lived`; nobody changes it."""
    return lived()


def lived() -> Fleet:
    """East under load, west idle: 20 periods of 15 s with 4 and 2 replicas."""
    made = Fleet()
    for cluster in ("west", "east"):
        made.cluster = cluster
        made.settle(replicas=3)
    for _ in range(20):
        made.now_ms += 15_000
        _observed(made, "west", 2, 30)
        _observed(made, "east", 4, 450)
    return made


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleet: Fleet) -> Any:
    return _asking(Cli(monkeypatch, fleet), tmp_path)


def _asking(run: Cli, tmp_path: Path) -> Any:
    def asked(manifest: dict[str, Any], *arguments: str) -> Any:
        file = tmp_path / "fleethpa.yaml"
        file.write_text(yaml.safe_dump(manifest))
        return run("backtest", "-f", str(file), *arguments)

    return asked


def test_one_autoscaler_over_two_clusters_is_compared_with_the_separate_ones(ask: Any) -> None:
    document = fits("FleetBacktestList", ask(_manifest(), *SINCE, "-o", "json").stdout)

    (item,) = document["items"]
    assert (item["namespace"], item["name"], item["undecided"]) == ("shop", "checkout", 0)
    assert [each["hpa"] for each in item["members"]] == ["east/shop/checkout", "west/shop/checkout"]
    # 4 pods at 450m and 2 at 30m of 500m each are 62 % of what is requested: within tolerance of 60 %, so 6 stay. When
    # one of them moves, east has its addition for a period before west gives one up.
    totals = [each["candidate"] for each in item["series"]]
    assert sorted(totals) == [6] * (len(totals) - 1) + [7]
    assert [each["moves"] for each in item["members"]] == [1, 1]


@pytest.mark.parametrize(
    ("place", "victim", "whose"),
    [
        ("fleethpa.questions.fleetbacktests.fleet_backtest", FLEET, lambda fleet, recordings: fleet.hpa),
        ("streams.analysis.acrossclusters.MemberRecording.check", "west", lambda read: read._candidate.hpa),
        ("streams.analysis.acrossclusters.MemberRecording.add", "west", lambda read, inputs: inputs.hpa),
    ],
)
def test_a_fault_with_one_fleet_hpa_leaves_the_backtest_of_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleet: Fleet, place: str, victim: str, whose: Callable[..., HpaId]
) -> None:
    break_for(monkeypatch, HpaId(victim, "shop", "checkout"), place, whose)
    both, east = _manifest(), _manifest(clusters=[{"name": "east"}])
    east["metadata"] = {"namespace": "shop", "name": "east-only"}
    (tmp_path / "both.yaml").write_text(yaml.safe_dump(both))
    (tmp_path / "east.yaml").write_text(yaml.safe_dump(east))
    run = Cli(monkeypatch, fleet)
    done = run("backtest", "-f", str(tmp_path), *SINCE)
    assert done.exit_code == INTERNAL, done.output
    assert f"Error: {FLEET}/shop/checkout: internal error: BrokenError: here\n" in done.stderr, done.stderr
    assert "Next: run it again with --debug" in done.stderr
    assert ("FleetHPA shop/east-only" in done.stdout, "FleetHPA shop/checkout" in done.stdout) == (True, False)
    alone = run("backtest", "-f", str(tmp_path / "both.yaml"), *SINCE)
    assert (alone.exit_code, alone.stdout) == (INTERNAL, "")


def test_the_report_says_what_was_compared_and_what_the_model_cannot_know(ask: Any) -> None:
    made = ask(_manifest(), *SINCE)

    assert made.exit_code == 0, made.output
    assert "One autoscaler over 2 clusters would have wanted" in made.stdout
    assert "by cluster" in made.stdout
    assert "whether traffic follows replicas" in made.stdout


def test_the_recorded_decisions_that_bound_each_cluster_are_named(ask: Any, fleet: Fleet) -> None:
    ids: dict[str, list[str]] = {"east": [], "west": []}
    for each in fleet.decisions():
        if each.decision.kind == "evaluation":
            ids[each.decision.cluster].append(each.decision.id)
    [item] = fits("FleetBacktestList", ask(_manifest(), *SINCE, "-o", "json").stdout)["items"]
    assert [each["decisions"] for each in item["members"]] == [
        {"first": known[0], "last": known[-1]} for known in ids.values()
    ]
    east, west = (f"{short_id(known[0])} … {short_id(known[-1])}" for known in ids.values())
    assert f"recorded decisions: east {east}; west {west}" in ask(_manifest(), *SINCE).stdout
    fleet.values = []  # no decider has recorded any
    [item] = fits("FleetBacktestList", ask(_manifest(), *SINCE, "-o", "json").stdout)["items"]
    assert [each["decisions"] for each in item["members"]] == [{}, {}]
    assert "recorded decisions" not in ask(_manifest(), *SINCE).stdout


def test_money_is_named_where_each_cluster_has_a_price(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fleet = lived()
    ask = _asking(Cli(monkeypatch, fleet), tmp_path)
    clusters = [{"name": "east", "maxReplicas": 3}, {"name": "west", "minReplicas": 1}]
    assert " more" not in ask(_manifest(clusters=clusters), *SINCE).stdout
    fleet.append(SettingsSet(cluster="east", settings=ClusterSettings(price="60")), key=WHOLE_PARTITION_KEY)
    fleet.append(SettingsSet(cluster="west", settings=ClusterSettings(price="6")), key=WHOLE_PARTITION_KEY)
    fleet.checkpoint()
    shown = ask(_manifest(clusters=clusters), *SINCE).stdout
    hours = {name: 20 * 15 / 3600 * change for name, change in (("east", -1), ("west", 1))}
    saved = re.search(r"%; ([0-9.]+) less\)", shown)
    assert saved is not None, ask(_manifest(clusters=clusters), *SINCE).output
    assert float(saved[1]) == pytest.approx(-60 * hours["east"] - 6 * hours["west"], rel=0.25)
    assert re.search(r"%; [0-9.]+ (more|less)\)", ask(_manifest(clusters=clusters), *SINCE, "--price", "1/h").stdout)


def test_shares_keep_bounds_and_move_to_the_weights_after_a_while(ask: Any) -> None:
    clusters = [{"name": "east", "maxReplicas": 3}, {"name": "west", "minReplicas": 1}]
    item = fits("FleetBacktestList", ask(_manifest(clusters=clusters), *SINCE, "-o", "json").stdout)["items"][0]
    east, west = item["members"]
    assert east["shareMean"] < east["recordedMean"]
    assert east["moves"] <= 2
    assert west["shareMax"] == 3


@pytest.mark.parametrize("condition", ["replica_hours>=0", "scale_events>=0"])
def test_a_gate_decides_the_exit_code(ask: Any, condition: str) -> None:
    made = ask(_manifest(), *SINCE, "--fail-if", condition)
    assert made.exit_code == 1
    assert f"FAILED: shop/checkout: {condition}" in made.stdout


def _without(field: str) -> dict[str, Any]:
    made = _manifest()
    del made["spec"][field]
    return made


@pytest.mark.parametrize(
    ("manifest", "text"),
    [
        (_without("clusters"), "clusters"),
        (_without("maxReplicas"), "spec.maxReplicas"),
        (_manifest(clusters=[]), "spec.clusters"),
        (_manifest(clusters=[{"name": "east"}, {"name": "east"}]), "names east twice"),
        (_manifest(clusters=[{"name": "east", "wieght": 2}]), "unknown field `wieght`"),
        (_manifest(clusters=[{"name": "east", "weight": 0}]), "spec.clusters[0].weight"),
        (_manifest(clusters=[{"name": "east", "minReplicas": 13}]), "above its maximum 12"),
        (_manifest(clusters=[{"name": "east", "maxReplicas": 3}]), "add up to 3, below spec.minReplicas 4"),
        (
            _manifest(clusters=[{"name": "east", "minReplicas": 7}, {"name": "west", "minReplicas": 7}]),
            "add up to 14, above spec.maxReplicas 12",
        ),
        (_manifest(placement={"strategy": "Random"}), "spec.placement.strategy"),
        (_manifest(placement={"spilAfter": "60s"}), "unknown field `spilAfter`"),
        (_manifest(placement={"spillAfter": "0s"}), "spec.placement.spillAfter has to be longer than 0"),
        (_manifest(placement={"rebalanceAfter": "soon"}), "is not a duration"),
        (_manifest(whenAway={"policy": "Split"}), "spec.whenAway.policy"),
        (_manifest(whenAway={"policy": "Keep", "after": "2m"}), "goes only with the policy Spill"),
        (_manifest(whenAway={"policy": "Spill", "after": "soon"}), "is not a duration"),
        (_manifest(clusterz=[]), 'unknown field "spec.clusterz"'),
        (_manifest() | {"apiVersion": "v1"}, "apiVersion has to be fleethpa.io/v1alpha1"),
        (_manifest() | {"spec": "x"}, "spec an object"),
    ],
)
def test_an_invalid_manifest_is_refused_with_the_field(ask: Any, manifest: dict[str, Any], text: str) -> None:
    made = ask(manifest, *SINCE)
    assert (made.exit_code, text in made.stderr) == (2, True), made.stderr
    assert "FleetHPA" in made.stderr or "duration" in text


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--set", "cpu=50%"), 2, "a FleetHPA is tried by itself"),
        (("east/shop/checkout",), 2, "a FleetHPA is tried by itself"),
        (("--model", "closed"), 2, "in the open loop only"),
        (("--until", "2026-11-20T01:00:00Z"), 4, "has no evaluation"),
    ],
)
def test_wrong_use_is_answered_with_what_is_wrong(ask: Any, arguments: tuple[str, ...], code: int, text: str) -> None:
    made = ask(_manifest(), *SINCE, *arguments)
    assert (made.exit_code, text in made.stderr) == (code, True), made.stderr


def test_a_cluster_without_an_hpa_on_the_target_is_named(ask: Any) -> None:
    made = ask(_manifest(clusters=[{"name": "east"}, {"name": "north"}]), *SINCE)
    assert made.exit_code == 4
    assert "no HPA of cluster north scales shop/Deployment/checkout" in made.stderr


def test_a_metric_that_was_not_recorded_is_refused(ask: Any) -> None:
    target = {"type": "Utilization", "averageUtilization": 60}
    metrics = [{"type": "Resource", "resource": {"name": "memory", "target": target}}]
    made = ask(_manifest(metrics=metrics), *SINCE)
    assert made.exit_code == 2
    assert "only metrics that were recorded can be tried" in made.stderr

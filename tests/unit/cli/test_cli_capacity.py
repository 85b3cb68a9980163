"""`fleethpa limits test`: a ceiling over the decisions of a fleet in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerSet
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.cli import Cli, Fleet, hpa
from tests.kit.published import fits

SINCE = ("--since", "2026-11-20T00:00:00Z")


def _group(**changes: Any) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": {"app": "checkout"}}, "limit": {"replicas": 8}, "namespaces": ["*"]}
    return {
        "apiVersion": "fleethpa.io/v1alpha1",
        "kind": "CapacityGroup",
        "metadata": {"name": "shop"},
        "spec": {name: value for name, value in (spec | changes).items() if value is not None},
    }


@pytest.fixture
def fleet() -> Fleet:
    """East and west have 3 replicas each; then east's load doubles, and later is as before."""
    made = Fleet()
    for cluster in ("west", "east"):
        made.cluster = cluster
        made.settle(replicas=3)
    for usage_milli in (600, 600, 600, 300):
        made.now_ms += 15_000
        made.observe(3, usage_milli)
    return made


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleet: Fleet) -> Any:
    run = Cli(monkeypatch, fleet)

    def asked(manifest: dict[str, Any], *arguments: str) -> Any:
        file = tmp_path / "group.yaml"
        file.write_text(yaml.safe_dump(manifest))
        return run("limits", "test", "-f", str(file), *arguments)

    return asked


def test_a_ceiling_says_whom_it_would_have_held_back(ask: Any) -> None:
    document = fits("CapacityReport", ask(_group(), *SINCE, "-o", "json").stdout)
    (held,) = document["held"]
    assert (document["name"], document["hpas"], document["peak"]["used"], document["times"]) == ("shop", 2, 9, 1)
    assert (held["hpa"], held["times"], held["mostMissing"]) == ("east/shop/checkout", 1, 1)


def test_the_verdict_comes_first_in_words(ask: Any) -> None:
    made = ask(_group(), *SINCE)
    assert made.exit_code == 0, made.output
    assert "A limit of 8 replicas would have held back 1 of 2 HPAs: 1 time" in made.stdout
    assert "A limit of 9 replicas would have held nothing back" in made.stdout


def test_a_ceiling_that_is_never_reached_says_so(ask: Any) -> None:
    made = ask(_group(limit={"replicas": 9}), *SINCE)
    assert (
        "A limit of 9 replicas would never have held anything back: the most that was wanted at once is 9 replicas"
        in made.stdout
    )


def test_replicas_above_the_limit_stay(ask: Any) -> None:
    assert (
        "Up to 6 replicas were used, above the limit: nothing is scaled down"
        in ask(_group(limit={"replicas": 2}), *SINCE).stdout
    )


def test_a_group_may_be_of_some_clusters(ask: Any) -> None:
    document = fits("CapacityReport", ask(_group(clusters=["we*"]), *SINCE, "-o", "json").stdout)
    assert (document["hpas"], document["held"]) == (1, [])


def test_a_higher_priority_comes_first(ask: Any) -> None:
    first = [{"selector": {"matchLabels": {"app": "checkout"}}, "namespaces": ["*"], "value": 7}]
    document = fits("CapacityReport", ask(_group(priorities=first), *SINCE, "-o", "json").stdout)
    assert [each["priority"] for each in document["held"]] == [7]


def test_a_limit_of_units_counts_what_pods_request(ask: Any, fleet: Fleet) -> None:
    # A replica requests half a cpu: 9 are wanted at most, and 4 cpu are 8 of them.
    document = fits("CapacityReport", ask(_group(limit={"units": "cpu", "count": 4}), *SINCE, "-o", "json").stdout)
    (held,) = document["held"]
    assert (document["limit"], document["peak"]["used"]) == ({"units": "cpu", "count": 4.0}, 4.5)
    assert (held["hpa"], held["weight"], held["mostMissing"]) == ("east/shop/checkout", 0.5, 1)


def test_the_annotation_comes_before_what_pods_request(ask: Any, fleet: Fleet) -> None:
    for cluster, units in (("east", "license=2"), ("west", "license=0.5,cpu=9")):
        fleet.cluster = cluster
        made = hpa()
        made["metadata"]["annotations"] = {"fleethpa.io/units": units}
        fleet.append(AutoscalerSet(hpa=made, origin="central"))
    report = ask(_group(limit={"units": "license", "count": "12"}), *SINCE)
    assert "A limit of 12 license would have held back 1 of 2 HPAs" in report.stdout, report.output
    assert "A limit of 13.5 license would have held nothing back" in report.stdout
    assert "2 license  " in report.stdout


def test_a_limit_of_cost_counts_the_price_of_each_cluster(ask: Any, fleet: Fleet) -> None:
    settings = SettingsSet(cluster="east", settings=ClusterSettings(price="0.5"))
    fleet.append(settings, key=WHOLE_PARTITION_KEY)
    made = ask(_group(limit={"costPerHour": 2.5}), *SINCE)
    assert "A limit of 2.5/h would have held back 1 of 2 HPAs" in made.stdout, made.output
    assert "A limit of 3/h would have held nothing back" in made.stdout
    assert "1 HPA used nothing of the limit, among them west/shop/checkout" in made.stdout


@pytest.mark.parametrize(("gate", "code"), [("held>0", 1), ("held>+0", 1), ("held>1", 0), ("time_held>1h", 0)])
def test_a_gate_decides_the_exit_code(ask: Any, gate: str, code: int) -> None:
    assert ask(_group(), *SINCE, "--fail-if", gate).exit_code == code


def test_the_report_is_one_html_file(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "capacity.html"
    assert ask(_group(), *SINCE, "--html", str(file)).exit_code == 0
    assert "CapacityGroup shop" in file.read_text()


@pytest.mark.parametrize(
    ("manifest", "code", "text"),
    [
        (_group(limit=None), 2, "missing required field `limit`"),
        (_group(limit={"units": "gpu"}), 2, "limit needs one of replicas, units with count, and costPerHour"),
        (
            _group(limit={"replicas": 1, "costPerHour": 1}),
            2,
            "limit needs one of replicas, units with count, and costPerHour",
        ),
        (_group(limit={"units": "gpu", "count": "many"}), 2, "'many' is not a quantity"),
        (_group(limit={"units": "gpu", "count": True}), 2, "spec.limit.count"),
        (_group(limit={"costPerHour": -1}), 2, "'-1' is not a price"),
        (_group(limit={"costPerHour": 999_999_999.0 * 10}), 2, "is not a price"),
        (_group(limit={"units": "gpu", "count": 64}), 4, "no HPA of the CapacityGroup shop uses anything of its limit"),
        (_group(limit={"costPerHour": 1}), 4, "Their clusters have no price"),
        (_group(limit={"replicas": -1}), 2, "spec.limit.replicas"),
        (_group(selector=None), 2, "missing required field `selector`"),
        (_group(selector={"matchLabels": {"a b": "c"}}), 2, "a selector cannot be read"),
        (_group(selector={"matchLabels": {"app": "nosuch"}}), 4, "no HPA is of the CapacityGroup shop"),
        (_group(whenUnknown="Never"), 2, "spec.whenUnknown"),
        (_group(priorities=[{"value": 1}]), 2, "spec.priorities"),
        (_group() | {"apiVersion": "v1"}, 2, "apiVersion has to be fleethpa.io/v1alpha1"),
        (_group() | {"kind": "Quota"}, 2, "no CapacityGroup found"),
    ],
)
def test_what_is_wrong_is_named(ask: Any, manifest: dict[str, Any], code: int, text: str) -> None:
    made = ask(manifest, *SINCE)
    assert (made.exit_code, text in made.stderr) == (code, True), made.stderr


def test_a_window_without_evaluations_is_answered(ask: Any) -> None:
    made = ask(_group(), *SINCE, "--until", "2026-11-20T01:00:00Z")
    assert (made.exit_code, "was evaluated in this window" in made.stderr) == (4, True), made.stderr

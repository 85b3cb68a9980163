"""`apply` of a FleetHPA over a fleet in memory: what would be written, what is refused, and with which text."""

from __future__ import annotations

import re

import pytest
import yaml
from msgspec import structs

from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerList, AutoscalerSet, ClusterReport
from tests.kit.cli import Broker, Cli, Fleet, hpa
from tests.kit.published import fits
from tests.unit.cli.test_cli_write import GOOD, NATIVE

WHOLE = """
apiVersion: fleethpa.io/v1alpha1
kind: FleetHPA
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 12
  clusters:
  - {name: east, weight: 2, minReplicas: 1, maxReplicas: 8}
  - {name: west}
  placement: {rebalanceAfter: 1m, spillAfter: 60s}
  whenAway: {policy: Spill}
"""


@pytest.fixture(autouse=True)
def west(fleet: Fleet) -> None:
    """An observer has reported the cluster west, too."""
    fleet.append(ClusterReport(cluster="west", session="s", instance="o"), key=WHOLE_PARTITION_KEY)
    fleet.checkpoint()


def _take(fleet: Fleet, broker: Broker) -> None:
    """Append what was written to the log."""
    for cluster, namespace, body in broker.written:
        fleet.append(body, key=f"{cluster}/{namespace}")
    broker.written.clear()
    fleet.checkpoint()


def test_apply_of_a_fleet_hpa_writes_the_whole_and_its_hpa_in_each_cluster(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    result = run("apply", "-f", "-", "--mode", "shadow", "--yes", stdin=WHOLE)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "fleethpa @fleet/shop/web created",
        "hpa east/shop/web created",
        "hpa west/shop/web created",
    ]
    whole, east, west = [body for _, _, body in broker.written if isinstance(body, AutoscalerSet)]
    assert [cluster for cluster, _, _ in broker.written] == ["@fleet", "east", "west"]
    assert whole.fleet is not None
    assert [(each.name, each.weight, each.max_replicas) for each in whole.fleet.clusters] == [
        ("east", 2, 8),
        ("west", 1, 12),
    ]
    assert (whole.mode, east.mode, west.mode) == ("shadow", "enforce", "enforce")
    assert whole.revision == east.revision == west.revision > 0
    assert (west.hpa["spec"]["minReplicas"], west.hpa["spec"]["maxReplicas"]) == (1, 12)


def test_an_hpa_of_a_fleet_hpa_changes_and_goes_with_it_only(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)
    refused = run("apply", "-f", "-", "-C", "east", stdin=GOOD.replace("8", "9"))
    assert refused.exit_code == 1
    assert "hpa east/shop/web belongs to FleetHPA @fleet/shop/web" in refused.output
    assert broker.written == []

    without = WHOLE.replace("  - {name: west}\n", "").replace("maxReplicas: 12", "maxReplicas: 8")
    assert "hpa west/shop/web deleted" in run("apply", "-f", "-", "--yes", stdin=without).stdout
    broker.written.clear()
    gone = run("delete", "@fleet/shop/web", "--yes")
    assert gone.stdout.splitlines() == [f"hpa {cluster}/shop/web deleted" for cluster in ("@fleet", "east", "west")]


def test_what_a_fleet_hpa_scaled_is_named_where_it_is(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)

    deleted = run("delete", "@fleet/shop/web", "--dry-run").stderr
    assert "nothing will scale any more: Deployment/web in east/shop, " in deleted
    assert "in west/shop, which fleethpa by HPA web scales now" in deleted
    assert "@fleet/shop, " not in deleted

    shadowed = run("mode", "shadow", "@fleet/shop/web", "--dry-run").stderr
    whose = "nothing will scale any more: Deployment/web in the clusters of @fleet/shop/web, "
    assert f"{whose}which fleethpa by HPA web scales now" in shadowed


def test_an_hpa_that_a_fleet_hpa_takes_is_configured_and_a_new_one_created(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    fleet.append(AutoscalerSet(hpa=hpa("web"), origin="central", mode="enforce"), key="east/shop")
    fleet.checkpoint()
    result = run("apply", "-f", "-", "--mode", "shadow", "--yes", stdin=WHOLE)
    assert sorted(result.stdout.splitlines()) == [
        "fleethpa @fleet/shop/web created",
        "hpa east/shop/web configured",
        "hpa west/shop/web created",
    ], result.output


def test_a_fleet_hpa_that_does_not_exist_is_no_wrong_cluster(run: Cli, fleet: Fleet, broker: Broker) -> None:
    result = run("describe", "@fleet/shop/web")
    assert result.exit_code == 4
    assert "Error: no HPA @fleet/shop/web\n  No FleetHPA is known.\n" in result.stderr
    assert "Next: fleethpa get hpa -A" in result.stderr
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)
    assert "Did you mean @fleet/shop/web?" in run("describe", "@fleet/shop/wbe").stderr


def test_an_hpa_of_a_fleet_hpa_keeps_its_mode_when_the_whole_is_applied_again(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)
    assert run("mode", "shadow", "west/shop/web", "--yes").exit_code == 0
    _take(fleet, broker)
    result = run("apply", "-f", "-", "--yes", stdin=WHOLE.replace("maxReplicas: 12", "maxReplicas: 14"))
    assert result.stdout.splitlines() == [
        "fleethpa @fleet/shop/web configured",
        "hpa east/shop/web configured",
        "hpa west/shop/web configured (mode shadow: it takes no share)",
    ]
    _take(fleet, broker)
    modes = {
        each["cluster"]: each["mode"] for each in yaml.safe_load(run("get", "hpa", "-A", "-o", "yaml").stdout)["items"]
    }
    assert modes == {"@fleet": "enforce", "east": "enforce", "west": "shadow"}


def _shown_of(run: Cli, hpa: str) -> str:
    return next((line for line in run("describe", hpa).stdout.splitlines() if line.startswith("Incomplete:")), "")


def test_records_of_an_apply_that_did_not_arrive_are_named_with_the_next_command(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    lost = broker.written.pop()
    assert lost[0] == "west"
    _take(fleet, broker)
    again = "fleethpa get hpa @fleet/shop/web -o yaml | fleethpa apply -f -"
    assert _shown_of(run, "@fleet/shop/web").endswith(f"west has another spec of it or none. Next: {again}")
    assert "west has another spec of it or none" in run("get", "hpa", "--problem", "-A").stdout
    assert (
        run("apply", "-f", "-", "--yes", stdin=run("get", "hpa", "@fleet/shop/web", "-o", "yaml").stdout).exit_code == 0
    )
    _take(fleet, broker)
    assert _shown_of(run, "@fleet/shop/web") == ""

    without = WHOLE.replace("  - {name: west}\n", "").replace("maxReplicas: 12", "maxReplicas: 8")
    run("apply", "-f", "-", "--yes", stdin=without)
    broker.written.pop()  # that west goes
    _take(fleet, broker)
    assert "west has another spec of it or none" in _shown_of(run, "@fleet/shop/web")


def test_an_hpa_whose_fleet_hpa_did_not_arrive_says_so(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    del broker.written[0]
    _take(fleet, broker)
    assert "FleetHPA @fleet/shop/web, which allots its share, is not there" in _shown_of(run, "east/shop/web")


def test_an_hpa_that_joins_a_fleet_hpa_enforces(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "-C", "east", "--mode", "shadow", "--yes", stdin=GOOD)
    _take(fleet, broker)
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    assert [body.mode for _, body in _applied(broker)] == [None, "enforce", "enforce"]


def test_read_verbs_show_how_a_fleet_hpa_is_divided(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)
    (found,) = yaml.safe_load(run("get", "hpa", "@fleet/shop/web", "-o", "yaml").stdout)["items"]
    applied = yaml.safe_load(WHOLE)
    assert (found["apiVersion"], found["kind"]) == (applied["apiVersion"], applied["kind"])
    assert found["spec"]["clusters"] == [
        {"name": "east", "weight": 2, "minReplicas": 1, "maxReplicas": 8},
        {"name": "west", "maxReplicas": 12},
    ]
    assert found["spec"]["placement"] == {"strategy": "Weighted", "rebalanceAfter": "60s", "spillAfter": "60s"}
    assert found["spec"]["whenAway"] == {"policy": "Spill", "after": "120s"}
    page = run("describe", "@fleet/shop/web").stdout
    assert re.search(r"CLUSTER +WEIGHT +BOUNDS +SHARE +NOTE\n +east +2 +1 … 8 +- +has not reported\n", page), page
    assert "FleetHPA:    @fleet/shop/web" in run("describe", "east/shop/web").stdout
    for what in ("@fleet/shop/web", "@fleet/shop/web@2h"):
        assert "@fleet/shop/web has no decision" in run("explain", what).stderr


def _applied(broker: Broker) -> list[tuple[str, AutoscalerSet]]:
    return [(cluster, body) for cluster, _, body in broker.written if isinstance(body, AutoscalerSet)]


def test_a_fleet_hpa_that_was_deleted_is_put_back_from_what_get_printed(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--mode", "shadow", "--yes", stdin=WHOLE)
    first = _applied(broker)
    _take(fleet, broker)
    kept = run("get", "hpa", "-n", "shop", "-o", "yaml").stdout
    run("delete", "@fleet/shop/web", "--yes")
    _take(fleet, broker)
    assert "web" not in run("get", "hpa", "-n", "shop").stdout
    result = run("apply", "-f", "-", "--yes", stdin=kept)
    assert result.exit_code == 0, result.output
    revision = first[0][1].revision
    assert [(cluster, structs.replace(body, revision=revision)) for cluster, body in _applied(broker)] == first


def test_diff_compares_a_fleet_hpa_with_the_one_in_force(run: Cli, fleet: Fleet, broker: Broker) -> None:
    new = run("diff", "-f", "-", stdin=WHOLE)
    assert (new.exit_code, "+++ @fleet/shop/web (manifest)" in new.stdout) == (1, True)
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)
    same = run("diff", "-f", "-", stdin=WHOLE)
    assert (same.exit_code, same.stdout) == (0, "")
    changed = WHOLE.replace("weight: 2", "weight: 3").replace("maxReplicas: 12", "maxReplicas: 14")
    lines = run("diff", "-f", "-", stdin=changed).stdout.splitlines()
    assert {"-maxReplicas: 12", "+maxReplicas: 14", "-  weight: 2", "+  weight: 3"} <= set(lines)
    [item] = fits("DifferenceList", run("diff", "-f", "-", "-o", "json", stdin=changed).stdout)["items"]
    assert (item["cluster"], item["what"]) == ("@fleet", "changed")
    assert "clusters.east.weight 2→3" in item["changes"]


def test_an_override_of_one_cluster_of_a_fleet_hpa_is_warned_of(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=WHOLE)
    _take(fleet, broker)
    result = run("override", "east/shop/web", "--replicas", "4", "--for", "1h", "--reason", "x")
    assert "hpa east/shop/web has the share that FleetHPA @fleet/shop/web allots" in result.stderr
    assert "an override" not in run("override", "@fleet/shop/web", "--replicas", "4", "--for", "1h").stderr


def test_a_cluster_with_an_hpa_of_its_own_on_the_target_refuses_the_whole(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    fleet.append(NATIVE, key=WHOLE_PARTITION_KEY)
    fleet.append(AutoscalerList(list_id="l", hpas=[hpa("web", maxReplicas=8)]))
    fleet.checkpoint()
    result = run("apply", "-f", "-", "--yes", stdin=WHOLE)
    assert result.exit_code == 1
    assert 'east/shop/web: native HPA "web" (kube-controller-manager) owns Deployment/web' in result.output
    assert broker.written == []


def test_a_fleet_hpa_that_names_a_cluster_that_nobody_knows_is_refused_as_a_whole(run: Cli, broker: Broker) -> None:
    result = run("apply", "-f", "-", "--yes", stdin=WHOLE.replace("name: west", "name: wset"))
    assert (result.exit_code, broker.written) == (4, [])
    assert "FleetHPA @fleet/shop/web names the cluster wset, which is not known" in result.stderr
    assert "Did you mean west? Known are east, west." in result.stderr
    assert "take wset out of spec.clusters, and add it again when it is listed by" in result.stderr


def test_a_fleet_hpa_keeps_a_cluster_that_it_had_when_nobody_reports_it_any_more(
    run: Cli, fleet: Fleet, broker: Broker
) -> None:
    old = AutoscalerSet(hpa=hpa("web"), origin="central", mode="enforce", revision=1)
    fleet.append(old, key="old/shop")
    fleet.checkpoint()
    result = run("apply", "-f", "-", "--yes", stdin=WHOLE.replace("name: west", "name: old"))
    assert result.exit_code == 0, result.output

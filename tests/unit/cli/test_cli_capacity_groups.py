"""CapacityGroups in force, as a person changes and sees them: `apply`, `get`, `capacity describe` and `delete`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from fleethpa.changes.capacitygroups import deleted_groups
from schemas import limits
from schemas.capacity import CapacityGroupSet, CapacityLimit, CapacitySpec
from schemas.entries import WHOLE_PARTITION_KEY
from tests.kit.cli import Broker, Cli, Fleet
from tests.kit.published import fits
from tests.kit.whole import WholeFleet


def manifest(**changes: Any) -> str:
    spec = {"selector": {"matchLabels": {"app": "checkout"}}, "limit": {"replicas": 8}, "namespaces": ["*"]} | changes
    body = {
        "apiVersion": "fleethpa.io/v1alpha1",
        "kind": "CapacityGroup",
        "metadata": {"name": "shop"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }
    return yaml.safe_dump(body)


def applied(fleet: Fleet, broker: Broker) -> CapacityGroupSet:
    """Put what was written last into the log."""
    body = broker.written[-1][2]
    assert isinstance(body, CapacityGroupSet)
    fleet.append(body, key=WHOLE_PARTITION_KEY)
    fleet.checkpoint()
    return body


def applied_names(broker: Broker) -> list[str]:
    """Give the names of the groups that were written."""
    return [body.name for _, _, body in broker.written if isinstance(body, CapacityGroupSet)]


@pytest.mark.parametrize(
    ("limit", "read", "text"),
    [
        ({"replicas": 8}, ("replicas", "", 8), "8 replicas"),
        ({"units": "gpu", "count": "1.5"}, ("units", "gpu", 1_500), "1.5 gpu"),
        ({"costPerHour": 40}, ("cost", "", 40_000_000), "40/h"),
    ],
)
def test_a_group_is_applied_listed_and_put_back(
    run: Cli, fleet: Fleet, broker: Broker, limit: dict[str, Any], read: tuple[str, str, int], text: str
) -> None:
    result = run("apply", "-f", "-", "--yes", "--reason", "PAY-1", stdin=manifest(limit=limit, whenUnknown="Open"))
    assert (result.exit_code, result.stdout) == (0, "capacitygroup shop created\n")
    [(cluster, namespace, body)] = broker.written
    assert isinstance(body, CapacityGroupSet)
    assert (cluster, namespace, body.author, body.reason) == ("*", "", "anna", "PAY-1")
    assert body.spec is not None
    assert (body.spec.limit.kind, body.spec.limit.name, body.spec.limit.count) == read
    applied(fleet, broker)
    listing = run("get", "capacitygroups").stdout.splitlines()
    assert listing[0].split() == ["NAME", "LIMIT", "USED", "HPAS", "REPORTED", "HELD", "AGE"]
    assert listing[1].startswith("shop")
    assert text in listing[1]
    shown = run("get", "capacitygroup", "shop", "-o", "yaml").stdout
    again = run("apply", "-f", "-", stdin=shown)
    assert (again.exit_code, again.stdout) == (0, "capacitygroup shop unchanged\n")
    (item,) = fits("CapacityGroupList", run("get", "capacitygroups", "-o", "json").stdout)["items"]
    assert item["spec"]["limit"] == limit | ({"count": "1.5"} if "units" in limit else {})


def test_a_null_in_a_selector_is_as_if_it_were_not_there_as_for_an_api_server(run: Cli, broker: Broker) -> None:
    there = {"key": "app", "operator": "Exists", "values": None}
    selectors: list[dict[str, Any]] = [
        {"matchLabels": None, "matchExpressions": [there]},
        {"matchLabels": {}, "matchExpressions": None},
    ]
    for selector in selectors:
        result = run("apply", "-f", "-", "--yes", stdin=manifest(selector=selector))
        assert (result.exit_code, result.stdout) == (0, "capacitygroup shop created\n"), result.output
    assert applied_names(broker) == ["shop", "shop"]


def test_diff_compares_a_group_with_the_one_in_force(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=manifest(clusters=["east"]))
    applied(fleet, broker)
    same = run("diff", "-f", "-", stdin=manifest(clusters=["east"]))
    assert (same.exit_code, same.stdout) == (0, "")
    changed = run("diff", "-f", "-", stdin=manifest(clusters=["east", "w*"], limit={"replicas": 9}))
    assert changed.exit_code == 1
    assert "--- capacitygroup shop (in force)" in changed.stdout
    assert {"-  replicas: 8", "+  replicas: 9", "+- w*"} <= set(changed.stdout.splitlines())
    [item] = fits("DifferenceList", run("diff", "-f", "-", "-o", "json", stdin=manifest()).stdout)["items"]
    assert (item["name"], item["what"]) == ("shop", "changed")


def test_what_a_group_reaches_is_shown_before_it_is_in_force(run: Cli, broker: Broker) -> None:
    result = run("apply", "-f", "-", stdin=manifest())
    assert (result.exit_code, broker.written) == (2, [])
    assert "CapacityGroup shop bounds what 1 HPA may add, to 8 replicas; they have 3." in result.stderr
    assert "For the first 75 s they add nothing" in result.stderr
    assert "add --yes" in result.stderr


def test_a_limit_of_costs_names_clusters_without_a_price(run: Cli) -> None:
    result = run("apply", "-f", "-", "--dry-run", stdin=manifest(limit={"costPerHour": 1}))
    assert result.exit_code == 0
    assert "The setting `price` is not there for east" in result.stderr
    assert "fleethpa settings east price=0.04/h" in result.stderr


def test_a_group_that_names_a_cluster_that_nobody_knows_is_refused(run: Cli, broker: Broker) -> None:
    result = run("apply", "-f", "-", "--yes", stdin=manifest(clusters=["east", "est", "prod-*"]))
    assert (result.exit_code, broker.written) == (4, [])
    assert "CapacityGroup shop names the cluster est, which is not known" in result.stderr
    assert "Did you mean east? Known are east." in result.stderr
    assert "for a cluster that is added later write its name with a *, such as est*" in result.stderr
    result = run("apply", "-f", "-", "--yes", stdin=manifest(clusters=["east", "est*", "prod-*"]))
    assert (result.exit_code, result.stdout) == (0, "capacitygroup shop created\n")


def test_a_group_may_go_on_naming_a_cluster_that_is_gone(run: Cli, fleet: Fleet, broker: Broker) -> None:
    match = {"matchLabels": {"app": "checkout"}}
    spec = CapacitySpec(selector=match, limit=CapacityLimit(count=8), namespaces=["*"], clusters=["east", "old"])
    fleet.append(CapacityGroupSet(name="shop", revision=1, spec=spec), key=WHOLE_PARTITION_KEY)
    fleet.checkpoint()
    result = run("apply", "-f", "-", "--yes", stdin=manifest(clusters=["east", "old"], limit={"replicas": 9}))
    assert (result.exit_code, result.stdout) == (0, "capacitygroup shop configured\n")


def test_a_group_for_which_there_is_no_room_is_refused_and_others_are_applied(
    run: Cli, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ALL_GROUPS", replace(limits.ALL_GROUPS, most=200))
    large = manifest(clusters=["*" * 200]).replace("name: shop", "name: large")
    result = run("apply", "-f", "-", "--yes", stdin=f"{large}---\n{manifest()}")
    assert (result.exit_code, result.stdout) == (1, "capacitygroup shop created\n")
    assert "CapacityGroup large is not applied: there is no room for its spec" in result.stderr
    assert "fleethpa capacity delete" in result.stderr
    assert applied_names(broker) == ["shop"]


def test_a_group_says_what_its_members_have_want_and_may_have(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=manifest(limit={"replicas": 3}))
    applied(fleet, broker)
    assert "never" in run("capacity", "describe", "shop").stdout
    for _ in range(8):
        fleet.now_ms += 15_000
        fleet.observe(3, 600)
    fleet.checkpoint()
    shown = run("capacity", "describe", "shop").stdout.splitlines()
    assert shown[3].split() == ["HPA", "PRIORITY", "PER", "REPLICA", "HAS", "WANTS", "MAY", "HAVE", "REPORTED"]
    assert shown[4].startswith("east/shop/checkout")


def test_what_members_of_a_silent_cluster_have_is_said_to_be_the_last_that_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = WholeFleet({"east": 3, "west": 3})
    spec = CapacitySpec(selector={}, limit=CapacityLimit(count=20), namespaces=["shop"])
    made.append(CapacityGroupSet(name="shop", revision=1, spec=spec), key=WHOLE_PARTITION_KEY)
    for _ in range(8):
        made.period({"east": 300, "west": 300})
    made.checkpoint()
    run = Cli(monkeypatch, made)
    assert run("get", "capacitygroups").stdout.splitlines()[1].split()[:6] == [
        "shop",
        "20",
        "replicas",
        "6",
        "replicas",
        "2",
    ]
    assert run("get", "capacitygroups").exit_code == 0
    for _ in range(8):
        made.period({"east": 300})
    made.checkpoint()
    for verb in (("get", "capacitygroups"), ("capacity", "describe", "shop")):
        shown = run(*verb)
        assert (shown.exit_code, "6 replicas (last known)" in shown.stdout) == (5, True), shown.output


def test_a_deleted_group_bounds_nothing(run: Cli, fleet: Fleet, broker: Broker) -> None:
    run("apply", "-f", "-", "--yes", stdin=manifest())
    applied(fleet, broker)
    asked = run("capacity", "delete", "shop")
    assert asked.exit_code == 2
    assert "CapacityGroup shop no longer bounds what 1 HPA may add." in asked.stderr
    result = run("capacity", "delete", "shop", "--yes")
    assert (result.exit_code, result.stdout) == (0, "capacitygroup shop deleted\n")
    assert applied(fleet, broker).spec is None
    assert "No CapacityGroup is in force" in run("get", "capacitygroups").stderr


def test_delete_takes_the_manifest(run: Cli, fleet: Fleet, broker: Broker) -> None:
    missing = run("delete", "-f", "-", "--yes", stdin=manifest())
    assert missing.exit_code == 4
    assert "no CapacityGroup 'shop'" in missing.stderr
    run("apply", "-f", "-", "--yes", stdin=manifest())
    applied(fleet, broker)
    result = run("delete", "-f", "-", "--yes", stdin=manifest())
    assert (result.exit_code, result.stdout) == (0, "capacitygroup shop deleted\n")


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"limit": {}}, "spec.limit: limit needs one of replicas"),
        ({"limit": {"units": "gpu"}}, "units with count"),
        ({"limit": {"replicas": 1, "costPerHour": 2}}, "limit needs one of"),
        ({"limit": {"costPerHour": "much"}}, "spec.limit"),
        ({"limit": {"units": "gpu", "count": "-1"}}, "is not between 0"),
        ({"whenUnknown": "Maybe"}, "spec.whenUnknown"),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "a selector cannot be read"),
        ({"ceiling": 1}, "unknown field `ceiling`"),
    ],
)
def test_a_wrong_group_names_the_field(run: Cli, broker: Broker, changes: dict[str, Any], wanted: str) -> None:
    result = run("apply", "-f", "-", "--yes", stdin=manifest(**changes))
    assert (result.exit_code, broker.written) == (2, [])
    assert wanted in result.stderr
    assert "docs/across-clusters.md" in result.stderr


def test_revisions_of_groups_deleted_together_differ() -> None:
    revisions = [write.body.revision for write in deleted_groups(["a", "b"], 7, "anna", "")]  # type: ignore[union-attr]
    assert revisions == [7, 8]

"""What objects of the hub's API put into the log, where they may, and what their deletion takes out of it."""

from __future__ import annotations

from typing import Any

import pytest

from fleethpa.changes.manifests import FileManifest, check_hpa
from fleethpa.changes.owners import known_pauses, object_owning, without_owned
from fleethpa.changes.records import PlannedRecord, deleted_record
from fleethpa.hub.access import FleetAccesses
from fleethpa.hub.kinds import BY_NAME, hub_object
from fleethpa.hub.scene import Scene
from fleethpa.hub.stating import given_back
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.hpa import manifest_of
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerSet, Command
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.hubapi import ANNA, HubApi, template

WEB = HpaId("east", "shop", "web")


def manifest(name: str, namespace: str) -> Json:
    """An HPA as it is in the log."""
    body = manifest_of({"name": name, "namespace": namespace}, template(name))
    return check_hpa(FileManifest(name, body), namespace)[0]


def access(**spec: Any) -> FleetAccesses:
    return FleetAccesses([hub_object(BY_NAME["FleetAccess"], {"metadata": {"name": "a"}, "spec": spec})])


@pytest.mark.parametrize(
    ("granted", "asked", "is_allowed"),
    [
        (("shop", "east", None), ("shop", "east", "shop"), True),
        (("shop", "east", None), ("shop", "east", "search"), False),
        (("shop", "east", None), ("pay", "east", "pay"), False),
        (("shop", "east", None), ("shop", "west", "shop"), False),
        (("*", "*", None), ("pay", "west", "pay"), True),
        (("*", "*", None), ("pay", "west", "shop"), False),
        (("shop", "eu-*", ["shop", "shop-*"]), ("shop", "eu-1", "shop-blue"), True),
        (("shop", "eu-*", ["shop-*"]), ("shop", "eu-1", "shop"), False),
        (("shop", "eu-*", ["*"]), ("shop", "eu-*", "*"), True),
        (("shop", "eu-*", ["*"]), ("shop", "eu-1*", "a*"), True),
        (("shop", "eu-*", ["*"]), ("shop", "*", "shop"), False),
        (("shop", "e?st", ["*"]), ("shop", "e*", "shop"), False),
        (("shop", "east", []), ("shop", "east", "shop"), False),
    ],
)
def test_a_fleet_access_covers_names_and_globs_only_if_it_covers_all_that_they_mean(
    granted: tuple[str, str, list[str] | None], asked: tuple[str, str, str], is_allowed: bool
) -> None:
    namespace, cluster, members = granted
    spec: dict[str, Any] = {"namespaces": [namespace], "clusters": [cluster]}
    found = access(**spec, **({} if members is None else {"memberNamespaces": members}))
    assert found.allows(*asked) is is_allowed
    assert not FleetAccesses().allows(*asked)


@pytest.fixture
def api() -> HubApi:
    made = HubApi()
    made.grant("shop", "east", "west")
    return made


async def test_a_central_hpa_is_in_every_cluster_that_it_means_and_may_act_on(api: HubApi) -> None:
    key = api.apply("CentralHPA", "web", {"clusters": ["*"], "mode": "enforce", "template": template()}, "shop")

    verdicts = await api.settle()

    assert verdicts[key].is_accepted
    found = await api.hpas()
    assert sorted(found) == ["east/shop/web", "west/shop/web"]
    view = found["east/shop/web"]
    assert (view.origin, view.mode, view.author) == ("central", "enforce", "anna")
    owner = object_owning(view)
    assert owner is not None
    assert (owner.object, owner.generation, owner.mode) == ("CentralHPA/shop/web", 1, "enforce")


async def test_an_edit_is_written_once_and_a_cluster_that_is_not_meant_any_more_loses_its_hpa(api: HubApi) -> None:
    key = api.apply("CentralHPA", "web", {"clusters": ["east", "west"], "template": template()}, "shop")
    await api.settle()
    api.apply("CentralHPA", "web", {"clusters": ["west"], "template": template(most=12)}, "shop")

    first, last = await api.look(), await api.look()

    assert [type(each.body).__name__ for each in first[key].writes] == ["AutoscalerSet", "AutoscalerDeleted"]
    assert last[key].writes == ()
    found = await api.hpas()
    assert sorted(found) == ["west/shop/web"]
    assert found["west/shop/web"].spec["maxReplicas"] == 12


@pytest.mark.parametrize(
    ("spec", "reason", "text"),
    [
        (
            {"clusters": ["north"]},
            "Forbidden",
            "No FleetAccess lets namespace shop of the hub act on namespace shop of",
        ),
        ({"clusters": ["no*"]}, "NoCluster", "matches no*"),
        ({"clusters": ["east"], "namespace": "pay"}, "Forbidden", "on namespace pay of cluster east"),
        ({"clusters": ["*"], "namespace": "pay"}, "Forbidden", "in namespace pay matches *"),
        ({"clusters": ["east"], "template": template() | {"maxReplicas": 1}}, "Invalid", "maxReplicas"),
        ({"clusters": ["east"], "tolerance": 1}, "Invalid", "unknown field `tolerance`"),
        ({"clusterSelector": {"matchLabels": {"tier": "x"}}}, "NoCluster", "mean no cluster"),
    ],
)
async def test_what_is_refused_has_a_reason_writes_nothing_and_names_no_other_cluster(
    api: HubApi, spec: dict[str, Any], reason: str, text: str
) -> None:
    key = api.apply("CentralHPA", "web", {"template": template()} | spec, "shop")

    verdict = (await api.look())[key]

    assert (verdict.reason, verdict.writes) == (reason, ())
    assert text in verdict.message
    hidden = {"east", "west", "north"} - {*spec.get("clusters", ())}
    assert [name for name in hidden if name in verdict.message] == []
    assert await api.hpas() == {}


async def test_an_hpa_of_another_object_stays_with_the_older_one(api: HubApi) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    await api.settle()
    key = api.apply("CentralHPA", "rival", {"clusters": ["east"], "name": "web", "template": template(most=99)}, "shop")

    verdict = (await api.settle())[key]

    assert (verdict.reason, verdict.message) == ("Conflict", "HPA east/shop/web is made by CentralHPA/shop/web.")
    assert (await api.view(WEB)).spec["maxReplicas"] == 8


async def test_an_object_takes_over_what_the_log_owns_and_gives_it_back_unchanged(api: HubApi) -> None:
    api.fleet.append(AutoscalerSet(hpa=manifest("web", "shop"), origin="central", author="ben"), key="east/shop")
    key = api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")

    await api.settle()
    state = await api.state()
    assert object_owning(state.hpas[WEB]) is not None
    left, problems = without_owned(state, [deleted_record(WEB, "ben", "")])
    assert left == []
    assert "CentralHPA/shop/web of the hub's API states it" in problems[0].what
    assert problems[0].next_step.startswith("kubectl edit centralhpa.fleethpa.io web -n shop")

    scene = Scene(state, None, {}, api.fleet.now_ms, lambda _: ANNA)  # type: ignore[arg-type]  # not asked
    assert scene.missing() == [key]
    api._put(given_back(scene, key))
    view = await api.view(WEB)
    assert object_owning(view) is None
    assert view.spec == state.hpas[WEB].spec


async def test_an_object_that_is_older_than_the_log_is_not_written_until_somebody_says_so(api: HubApi) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template(most=8)}, "shop")
    key = api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template(most=12)}, "shop")
    await api.settle()
    newest = api.objects[key]
    restored = newest.body | {"spec": newest.body["spec"] | {"template": template(most=8)}}
    api.objects[key] = hub_object(newest.kind, restored | {"metadata": newest.metadata | {"generation": 1}})

    verdict = (await api.settle())[key]
    assert verdict.reason == "Restored"
    assert (await api.view(WEB)).spec["maxReplicas"] == 12

    metadata = api.objects[key].metadata | {"annotations": {"fleethpa.io/restored": "accept"}}
    api.objects[key] = hub_object(newest.kind, restored | {"metadata": metadata})
    await api.settle()
    assert (await api.view(WEB)).spec["maxReplicas"] == 8


async def test_a_deleted_object_waits_for_the_log_and_without_access_gives_its_hpas_back(api: HubApi) -> None:
    first = api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    second = api.apply("CentralHPA", "api", {"clusters": ["west"], "template": template("api")}, "shop")
    await api.settle()

    api.delete(first)
    await api.look()
    assert first in api.objects
    await api.settle()
    assert first not in api.objects
    api.grant("shop", "east")
    api.delete(second)
    await api.settle()

    found = await api.hpas()
    assert sorted(found) == ["west/shop/api"]
    assert object_owning(found["west/shop/api"]) is None


@pytest.mark.parametrize(
    ("most", "mode", "is_accepted"),
    [
        pytest.param("shadow", "shadow", True, id="as far as it may"),
        pytest.param("shadow", "off", True, id="less"),
        pytest.param("shadow", "enforce", False, id="more"),
        pytest.param("shadow", None, False, id="the cluster's setting may be more at any time"),
        pytest.param("enforce", None, True, id="everything may be"),
        pytest.param("off", "shadow", False, id="nothing may be decided"),
    ],
)
async def test_a_fleet_access_bounds_the_mode(most: str, mode: str | None, is_accepted: bool) -> None:
    api = HubApi()
    api.apply("FleetAccess", "shop", {"namespaces": ["shop"], "clusters": ["east"], "maxMode": most})
    spec = {"clusters": ["east"], "template": template()} | ({"mode": mode} if mode else {})
    key = api.apply("CentralHPA", "web", spec, "shop")

    verdict = (await api.settle())[key]

    assert verdict.is_accepted is is_accepted
    assert bool(await api.hpas()) is is_accepted
    if not is_accepted:
        assert verdict.reason == "Forbidden"
        assert f"at most mode {most}" in verdict.message


async def test_the_highest_of_several_bounds_counts_and_a_lower_one_later_keeps_what_was_accepted() -> None:
    api = HubApi()
    bound = {"namespaces": ["shop"], "clusters": ["*"], "maxMode": "shadow"}
    api.apply("FleetAccess", "shop", bound)
    more = api.apply("FleetAccess", "more", {"namespaces": ["shop"], "clusters": ["east"]})
    spec = {"clusters": ["east", "west"], "mode": "enforce", "template": template()}
    key = api.apply("CentralHPA", "web", spec, "shop")
    whole = {"clusters": [{"name": "west"}]} | template("all")
    fleet = api.apply("FleetHPA", "all", whole, "shop")

    verdicts = await api.settle()
    first = await api.hpas()
    api.objects.pop(more)
    api.apply("CentralHPA", "web", spec | {"template": template(most=30)}, "shop")
    later = await api.settle()

    assert (verdicts[key].reason, sorted(first)) == ("Forbidden", ["east/shop/web"])
    assert "HPA west/shop/web of mode enforce" in verdicts[key].message
    assert verdicts[fleet].reason == "Forbidden"
    assert later[key].reason == "Forbidden"
    view = (await api.hpas())["east/shop/web"]
    assert (view.mode, view.spec["maxReplicas"]) == ("enforce", 8)


async def test_a_revoked_access_leaves_what_was_accepted_and_refuses_a_change(api: HubApi) -> None:
    key = api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    await api.settle()
    api.grant("shop", "west")
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template(most=99)}, "shop")

    verdict = (await api.settle())[key]

    assert verdict.reason == "Forbidden"
    assert (await api.view(WEB)).spec["maxReplicas"] == 8


async def paused(api: HubApi, kind: str = "all") -> Any:
    return known_pauses(await api.state(), *WEB).get(kind)


async def test_a_pause_changes_with_its_object_and_its_end_leaves_the_others(api: HubApi) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    await api.settle()
    api.fleet.append(Command(command="pause", name="web", pause_kind="scaleDown", author="ben"), key="east/shop")
    spec = {"clusters": ["east"], "hpa": "web", "reason": "move"}
    key = api.apply("Pause", "p", spec, "shop")
    await api.settle()
    found = await paused(api)
    assert (found.author, found.reason, found.stated_by) == ("anna", "move", key)

    api.apply("Pause", "p", spec | {"direction": "ScaleUp"}, "shop")
    await api.settle()
    assert await paused(api) is None
    assert (await paused(api, "scaleUp")).stated_by == key
    assert (await paused(api, "scaleDown")).author == "ben"

    api.delete(key)
    await api.settle()
    assert await paused(api, "scaleUp") is None
    assert (await paused(api, "scaleDown")).author == "ben"


async def test_a_pause_does_not_replace_the_one_that_a_command_made(api: HubApi) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    await api.settle()
    api.fleet.append(Command(command="pause", name="web", author="ben", reason="incident"), key="east/shop")
    key = api.apply("Pause", "p", {"clusters": ["east"], "hpa": "web", "until": "2027-01-01T00:00:00Z"}, "shop")

    verdict = (await api.settle())[key]

    assert verdict.reason == "Conflict"
    assert "a command of ben" in verdict.message
    assert (await paused(api)).reason == "incident"


async def test_an_override_is_in_force_until_its_object_is_deleted(api: HubApi) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    await api.settle()
    spec = {"clusters": ["east"], "hpa": "web", "replicas": 5, "until": "2100-01-01T00:00:00Z"}
    key = api.apply("Override", "o", spec, "shop")
    await api.settle()
    assert (await api.view(WEB)).override.replicas == 5  # type: ignore[union-attr]
    state = await api.state()
    resumed = PlannedRecord("x", Command(command="override", name="web"), "east", "shop")
    assert without_owned(state, [resumed])[0] == []

    api.delete(key)
    await api.settle()
    assert (await api.view(WEB)).override is None


async def test_a_cluster_pause_of_a_star_is_of_all_clusters_and_needs_no_fleet_access() -> None:
    api = HubApi()
    key = api.apply("ClusterPause", "stop", {"clusters": ["*"], "reason": "incident"})
    await api.settle()
    assert "incident" in (await api.state()).paused

    api.delete(key)
    await api.settle()
    assert (await api.state()).paused == ""


async def test_a_schedule_changes_the_spec_at_its_times_and_the_template_stays_what_holds_otherwise(
    api: HubApi,
) -> None:
    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")
    rules = {"target": {"kind": "CentralHPA", "name": "web"}, "rules": ["daily 00:00-24:00 minReplicas=5"]}
    key = api.apply("Schedule", "day", rules, "shop")
    late = api.apply("Schedule", "late", rules, "shop")

    verdicts = await api.settle()
    assert verdicts[late].reason == "Conflict"
    assert (await api.view(WEB)).spec["minReplicas"] == 5

    api.apply("CentralHPA", "web", {"clusters": ["east"], "template": template(most=12)}, "shop")
    await api.settle()
    spec = (await api.view(WEB)).spec
    assert (spec["minReplicas"], spec["maxReplicas"]) == (5, 12)

    api.delete(late)
    api.delete(key)
    await api.settle()
    assert (await api.view(WEB)).spec["minReplicas"] == 2


async def test_a_cluster_config_states_all_settings_but_those_that_processes_prove() -> None:
    api = HubApi()
    held = ClusterSettings(native_controller="absent", max_step=3)
    api.fleet.append(SettingsSet(cluster="east", settings=held), key="*")
    key = api.apply("ClusterConfig", "east", {"settings": {"sync-period": "10s"}})
    await api.settle()
    found = (await api.state()).settings["east"]
    assert found == ClusterSettings(sync_period_ms=10_000, native_controller="absent", managed_by=key)

    bad = api.apply("ClusterConfig", "west", {"settings": {"sync-perod": "10s"}})
    verdict = (await api.settle())[bad]
    assert verdict.reason == "Invalid"
    assert "Did you mean sync-period?" in verdict.message

    api.delete(key)
    await api.settle()
    assert (await api.state()).settings["east"] == ClusterSettings(native_controller="absent")


def group(most: int, *namespaces: str) -> dict[str, Any]:
    return {"selector": {}, "limit": {"replicas": most}, "namespaces": list(namespaces), "clusters": ["east"]}


async def test_a_capacity_group_reaches_no_further_than_the_access_of_its_namespace(api: HubApi) -> None:
    wide = api.apply("CapacityGroup", "wide", group(5, "*"), "shop")
    own = api.apply("CapacityGroup", "own", group(5, "shop"), "shop")

    verdicts = await api.settle()

    assert verdicts[wide].reason == "Forbidden"
    assert verdicts[own].is_accepted
    assert list((await api.state()).capacity_groups) == ["own"]
    api.delete(own)
    await api.settle()
    assert (await api.state()).capacity_groups == {}


async def test_a_team_cannot_take_over_a_group_that_bounds_others(api: HubApi) -> None:
    admin = HubApi()
    admin.grant("ops", "*", members=["*"])
    admin.apply("CapacityGroup", "cpu", group(5, "*"), "ops")
    await admin.settle()
    admin.grant("shop", "east")
    key = admin.apply("CapacityGroup", "cpu", group(500, "shop"), "shop")

    verdict = (await admin.settle())[key]

    assert verdict.reason == "Forbidden"
    assert (await admin.state()).capacity_groups["cpu"].spec.limit.count == 5


async def test_a_fleet_hpa_is_written_as_a_whole_and_deleted_as_a_whole(api: HubApi) -> None:
    spec = template() | {"clusters": [{"name": "east"}, {"name": "west"}]}
    key = api.apply("FleetHPA", "web", spec, "shop")

    await api.settle()
    found = await api.hpas()
    assert sorted(found) == ["@fleet/shop/web", "east/shop/web", "west/shop/web"]
    assert object_owning(found[f"{FLEET}/shop/web"]) is not None

    forbidden = api.apply("FleetHPA", "api", template("api") | {"clusters": [{"name": "north"}]}, "shop")
    assert (await api.settle())[forbidden].reason == "Forbidden"
    api.delete(key)
    await api.settle()
    assert await api.hpas() == {}


async def test_a_fleet_hpa_that_reaches_further_than_the_access_is_not_taken_over(api: HubApi) -> None:
    api.grant("shop", "*")
    key = api.apply("FleetHPA", "web", template() | {"clusters": [{"name": "east"}, {"name": "north"}]}, "shop")
    await api.settle()
    api.grant("shop", "east")
    api.apply("FleetHPA", "web", template() | {"clusters": [{"name": "east"}]}, "shop")

    verdict = (await api.settle())[key]

    assert verdict.reason == "Forbidden"
    assert "north" not in verdict.message
    assert sorted(await api.hpas()) == ["@fleet/shop/web", "east/shop/web", "north/shop/web"]


async def test_an_object_cannot_write_what_rollouts_schedules_and_the_hub_itself_write(api: HubApi) -> None:
    annotations = {
        "team": "shop",
        "fleethpa.io/fallback": "failureThreshold=3,replicas=6",
        "fleethpa.io/rollout": "{}",
        "fleethpa.io/schedule": "{}",
        "fleethpa.io/object": "{}",
        "fleethpa.io/author": "root",
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
    }
    spec = {"clusters": ["east"], "template": template()}
    api.apply("CentralHPA", "web", spec, "shop", annotations=annotations)

    await api.settle()

    view = await api.view(WEB)
    assert {*view.annotations} == {"team", "fleethpa.io/fallback", "fleethpa.io/object"}
    assert object_owning(view) is not None

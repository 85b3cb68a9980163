"""Laws of the hub's API: looks come to rest, and nobody reaches what no FleetAccess gives them."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleethpa.changes.owners import object_owning
from fleethpa.hub.scene import all_pauses
from schemas.observed import AutoscalerSet, Command
from tests.kit.hubapi import HubApi, template
from tests.unit.hub.test_stating import manifest

NAMESPACES = ("shop", "pay")
CLUSTERS = ("east", "west")
globs = st.lists(st.sampled_from(["east", "west", "*", "e*"]), min_size=1, max_size=2, unique=True)
names = st.sampled_from(["web", "api"])
steps = st.one_of(
    st.tuples(st.just("grant"), st.sampled_from((*CLUSTERS, "*"))),
    st.tuples(st.just("hpa"), names, globs, st.integers(3, 9), st.sampled_from(["", *NAMESPACES])),
    st.tuples(st.just("pause"), names, globs, st.sampled_from(["All", "ScaleUp"]), st.sampled_from(["", *NAMESPACES])),
    st.tuples(st.just("schedule"), names, st.integers(2, 3)),
    st.tuples(st.just("delete"), st.integers(0, 9)),
)


def _step(api: HubApi, step: Any) -> None:
    """One change by the team `shop`."""
    match step:
        case "grant", cluster:
            api.grant("shop", cluster)
        case "hpa", name, clusters, most, namespace:
            spec = {"clusters": clusters, "template": template(name, most)}
            api.apply("CentralHPA", name, spec | ({"namespace": namespace} if namespace else {}), "shop")
        case "pause", name, clusters, direction, namespace:
            spec = {"clusters": clusters, "hpa": name, "direction": direction, "reason": "x"}
            api.apply("Pause", f"p-{name}", spec | ({"namespace": namespace} if namespace else {}), "shop")
        case "schedule", name, least:
            target = {"kind": "CentralHPA", "name": name}
            rules = {"target": target, "rules": [f"daily 00:00-24:00 minReplicas={least}"]}
            api.apply("Schedule", f"s-{name}", rules, "shop")
        case "delete", number:
            keys = sorted(key for key, item in api.objects.items() if not item.is_ending)
            if number < len(keys):
                api.delete(keys[number])


@given(st.lists(steps, max_size=8))
def test_looks_come_to_rest_and_a_team_changes_nothing_outside_its_access(plan: list[Any]) -> None:
    async def work() -> None:
        api = HubApi(CLUSTERS)
        for cluster in CLUSTERS:
            theirs = AutoscalerSet(hpa=manifest("web", "pay"), origin="central", author="pay")
            api.fleet.append(theirs, key=f"{cluster}/pay")
            api.fleet.append(Command(command="pause", name="web", author="pay"), key=f"{cluster}/pay")
        for step in plan:
            _step(api, step)
            await api.settle()
        state = await api.state()
        for cluster in CLUSTERS:
            pay = next(view for hpa, view in state.hpas.items() if hpa[:2] == (cluster, "pay") and hpa.name == "web")
            assert object_owning(pay) is None
            assert (pay.author, pay.spec["maxReplicas"]) == ("pay", 8)
        assert all(hpa.namespace in NAMESPACES and hpa.name in ("web", "api") for hpa in state.hpas)
        assert {each.pause.author for each in all_pauses(state) if each.namespace == "pay"} == {"pay"}
        stated = {owner.object for view in state.hpas.values() if (owner := object_owning(view)) is not None}
        assert stated <= api.objects.keys()
        assert {each.pause.stated_by for each in all_pauses(state)} - {""} <= api.objects.keys()

    asyncio.run(work())

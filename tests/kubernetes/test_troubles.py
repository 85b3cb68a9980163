"""What happens to a real cluster under fleethpa: restarts, lost and renewed access, targets that go, parts that die."""

import json
from functools import partial

import pytest
import yaml

from tests.kubernetes.access import granted, refused, used
from tests.kubernetes.hub import HOME, USER, give_token
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import NAMESPACE, deployment, wanted
from tests.kubernetes.world import NAMES, World, counts, is_at, rbac, shown


@pytest.fixture(scope="module", autouse=True)
def scaled(world: World) -> None:
    """Where each test begins, whether or not others have used the clusters before: fleethpa scales, to 200 %."""
    world.enforce()
    world.demand(200)
    world.settle(200)


def test_parts_that_are_killed_go_on_where_they_were(world: World) -> None:
    parts = list(world.hub.parts.values())
    for part in parts:
        part.kill()
    world.demand(0)
    world.until(partial(is_at, world.native, 0), lambda: "the native controller scales down")
    assert counts(world.central) == wanted(200)
    for part in parts:
        part.start()
    world.settle(0)


def test_nothing_is_refused_and_nothing_is_granted_that_is_not_used(world: World) -> None:
    for site, enforce in ((world.native, False), (world.central, True)):
        events = list(site.plane.audit(USER))
        assert refused(events) == []
        roles = yaml.safe_load_all(world.hub.run(*rbac(enforce=enforce)))
        assert granted(roles) - used(events) == set(), site.name


def test_an_api_server_that_crashes_is_followed_again(world: World) -> None:
    world.central.plane.kill_api_server()
    world.demand(200)
    world.central.plane.start_api_server()
    world.settle(200)


def test_access_that_is_taken_away_is_reported_and_given_back_is_used(world: World) -> None:
    """Watches that run already go on, but metrics are refused at once: HPAs say so and hold, as native ones would."""
    plane, hub = world.central.plane, world.hub
    plane.kubectl("delete", "clusterrolebinding", "fleethpa")

    def problems() -> set[str]:
        # Once a watch is refused, too, some of it is shown as last known, and the command ends with 5.
        found = hub.items("get", "hpa", "-A", "-C", "west", "--problem", codes=(0, 5))
        return {each["metadata"]["name"] for each in found}

    try:
        world.until(lambda: problems() >= set(NAMES), lambda: f"the trouble is seen; there is {problems()}")
        assert "may not list pods" in hub.run("admin", "clusters", "check", "west", "--enforce", codes=(1,))
        world.demand(0)
        world.until(partial(is_at, world.native, 0), lambda: "the native controller scales down")
        assert counts(world.central) == wanted(200)
    finally:
        plane.kubectl("apply", "-f", "-", stdin=hub.run(*rbac(enforce=True)))  # the tests after this one need it
    world.settle(0)


def test_a_token_is_replaced_while_the_old_one_dies(world: World) -> None:
    give_token(world.central, "second", world.tokens["west"])
    world.central.plane.kubectl("delete", "secret", "first", "-n", HOME)
    world.demand(200)
    world.settle(200)


def test_a_target_that_goes_and_comes_back_shows_as_native_shows_it(world: World) -> None:
    for site in world.sites:
        site.plane.kubectl("delete", "deployment", "cpu", "-n", NAMESPACE)

    def reason(site: Site) -> str:
        conditions = {each["type"]: each["reason"] for each in shown(site)["cpu"]["conditions"]}
        return str(conditions.get("AbleToScale"))

    world.until(
        lambda: {reason(site) for site in world.sites} == {"FailedGetScale"},
        lambda: f"the target is missed; there is {[reason(site) for site in world.sites]}",
    )
    assert shown(world.central)["cpu"] == shown(world.native)["cpu"]
    for site in world.sites:
        site.plane.apply([deployment("cpu")])
    world.settle(200)


def test_a_rolling_update_scales_nothing(world: World) -> None:
    plane = world.central.plane
    plane.kubectl("set", "image", "deployment/cpu", "server=shop:2", "-n", NAMESPACE)

    def rolled() -> bool:
        live = json.loads(plane.kubectl("get", "deployment", "cpu", "-n", NAMESPACE, "-o", "json"))
        assert live["spec"]["replicas"] == 4
        status = live["status"]
        new = status["updatedReplicas"] if status["observedGeneration"] == live["metadata"]["generation"] else 0
        return {new, status["replicas"], status["readyReplicas"]} == {4}

    until(rolled, "the update is through", 60.0, every_s=0.2)

"""What a cluster shows that fleethpa scales alone is what the native controller gives for the same input."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.kubernetes.showing import Description, describe, kinds_of, rescales_of
from tests.kubernetes.site import until
from tests.kubernetes.workloads import BROKEN, NAMESPACE, TO_MAXIMUM
from tests.kubernetes.world import NAMES, World, shown


def test_a_canary_proves_that_no_native_controller_runs(world: World) -> None:
    world.enforce()


@pytest.mark.parametrize("percent", [100, 104, 200, 0, pytest.param(200, id="200 again")])
def test_replicas_and_status_are_as_native_gives_them(world: World, percent: int) -> None:
    world.rest()
    world.demand(percent)
    world.settle(percent)

    def same() -> bool:
        return shown(world.central) == shown(world.native)

    try:
        until(same, "both show the same", 60.0, every_s=1.0)
    except AssertionError:
        ours, native = shown(world.central), shown(world.native)
        for name in NAMES:
            assert ours[name] == native[name], name


def test_events_are_as_native_gives_them(world: World) -> None:
    def differences() -> list[tuple[str, Any, Any]]:
        found = [site.plane.objects("events", NAMESPACE) for site in world.sites[::-1]]
        asked: list[tuple[str, Callable[..., Any]]] = [(name, rescales_of) for name in NAMES if name not in TO_MAXIMUM]
        asked += [(name, kinds_of) for name in NAMES if name in BROKEN]
        read = [(name, *(reader(events, name) for events in found)) for name, reader in asked]
        return [(name, ours, native) for name, ours, native in read if ours != native]

    try:
        until(lambda: not differences(), "both have the same Events", 30.0, every_s=1.0)
    except AssertionError:
        assert differences() == []


@pytest.mark.parametrize("name", NAMES)
def test_kubectl_describes_them_as_native_ones(world: World, name: str) -> None:
    def both() -> tuple[Description, Description]:
        ours, native = (
            describe(site.plane.kubectl("describe", "hpa", name, "-n", NAMESPACE)) for site in world.sites[::-1]
        )
        return ours, native

    def same() -> bool:
        ours, native = both()
        return ours.head == native.head and (name in TO_MAXIMUM or ours.events == native.events)

    try:
        until(same, "the two evaluate at other moments", 30.0)
    except AssertionError:
        ours, native = both()
        assert (ours.head, ours.events) == (native.head, native.events)

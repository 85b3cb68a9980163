"""Shadow beside the native controller, over all that the other tests of this tier have demanded."""

from tests.kubernetes.world import NAMES, World


def test_no_difference_in_shadow_is_unexplained(world: World) -> None:
    reports = world.hub.items("shadow-report", "-C", world.native.name, "-A", "--since", "1h", codes=(0, 1))
    assert {report["name"] for report in reports} == set(NAMES)
    for report in reports:
        assert report["counts"]["semantics"] == 0, report
        assert report["decisions"] >= 10 or report["name"] == "no-target", report

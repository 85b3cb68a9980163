"""Which HPA an error suggests for a name that none bears: never one of another cluster, as the next command writes."""

import pytest

from fleethpa.fleet.finding import Ref, nearest_cluster, no_such_hpa
from schemas.keys import HpaId

EAST, WEST = HpaId("east", "shop", "checkout"), HpaId("west", "shop", "checkout")


@pytest.mark.parametrize(
    ("ref", "known", "cause", "next_step"),
    [
        pytest.param(
            Ref("checkout", "shop", "wst"),
            [EAST, WEST],
            "Did you mean west/shop/checkout?",
            "name it west/shop/checkout",
            id="the nearest cluster, not the first",
        ),
        pytest.param(
            Ref("checkout"),
            [WEST, EAST],
            "HPAs of this name are east/shop/checkout, west/shop/checkout.",
            "fleethpa get hpa -A",
            id="all of them where no cluster is named",
        ),
        pytest.param(
            Ref("checkout", "shop", "north"),
            [EAST],
            "HPAs of this name are east/shop/checkout.",
            "fleethpa get hpa -A",
            id="no other cluster as the next step",
        ),
        pytest.param(Ref("chekout"), [EAST], "Did you mean east/shop/checkout?", "fleethpa get hpa -A", id="a slip"),
        pytest.param(
            Ref("chekout"),
            [WEST, EAST],
            "HPAs of the name checkout are east/shop/checkout, west/shop/checkout.",
            "fleethpa get hpa -A",
            id="a slip that several may be meant by",
        ),
        pytest.param(
            Ref("chekout", "shop", "west"),
            [EAST, HpaId("west", "shop", "web")],
            "",
            "fleethpa get hpa -A",
            id="a slip in one cluster suggests no other",
        ),
        pytest.param(
            Ref("shop"),
            [WEST, EAST],
            "shop is a namespace; its HPAs are east/shop/checkout, west/shop/checkout.",
            "fleethpa get hpa -A",
            id="a namespace",
        ),
        pytest.param(
            Ref("west"), [WEST, EAST], "west is a cluster; -C names it.", "fleethpa get hpa -A -C west", id="a cluster"
        ),
        pytest.param(Ref("cluster"), [EAST], "", "fleethpa get clusters", id="a type that is no HPA"),
        pytest.param(Ref("CapacityGroup"), [EAST], "", "fleethpa capacity --help", id="another one"),
        pytest.param(
            Ref("api", "shop"),
            [HpaId("east", "web", "public-api-v2"), EAST],
            "HPAs with api in their names are east/web/public-api-v2.",
            "fleethpa get hpa -A",
            id="a part of a name",
        ),
    ],
)
def test_a_suggestion_stays_in_the_cluster_that_was_meant(
    ref: Ref, known: list[HpaId], cause: str, next_step: str
) -> None:
    error = no_such_hpa(ref, known, None)

    assert (error.cause, error.next_step) == (cause, next_step)


def test_of_clusters_that_are_equally_near_none_is_left_out() -> None:
    assert nearest_cluster("esat", ["east", "west", "north"]).startswith("Did you mean east or west? ")
    assert nearest_cluster("nroth", ["east", "west", "north"]).startswith("Did you mean north? ")
    assert nearest_cluster("prod", ["east", "west"]) == "Known are east, west."

"""A FleetHPA in shadow against the HPAs of its clusters: what counts, and what does not match."""

import pytest

from streams.analysis.wholes import WholeSeen, whole_shadow


def _seen(total: int | None, east: int, west: int, *away: str) -> WholeSeen:
    had = {name: count for name, count in (("east", east), ("west", west)) if name not in away}
    return WholeSeen(0, total, {"east": east, "west": west}, had, away)


QUIET = [_seen(9, 6, 3)] * 60


def test_equal_totals_are_ready() -> None:
    made = whole_shadow(QUIET, [])
    assert (made.ready, made.agreed, made.compared, made.most_below, made.most_above) == (True, 60, 60, 0, 0)


def test_the_beginning_does_not_count() -> None:
    made = whole_shadow([_seen(None, 6, 3, "west"), _seen(None, 6, 3), *QUIET], [])
    assert (made.ready, made.evaluations, made.undecided) == (True, 60, 0)


def test_separate_hpas_that_follow_within_two_evaluations_had_the_same() -> None:
    climbing = [_seen(11, 6, 3), _seen(11, 6, 3), *[_seen(11, 7, 4)] * 60]
    assert whole_shadow(climbing, []).agreed == 62
    late = [*[_seen(11, 6, 3)] * 3, *[_seen(11, 7, 4)] * 60]
    assert (whole_shadow(late, []).agreed, whole_shadow(late, []).most_above) == (62, 2)


@pytest.mark.parametrize(("below", "ready"), [(1, True), (2, False)])
def test_one_fewer_per_further_cluster_is_rounding(below: int, ready: bool) -> None:
    made = whole_shadow([_seen(9 - below, 6, 3)] * 60, [])
    assert (made.ready, made.most_below, made.fewer) == (ready, below, 0 if ready else 60)


def test_more_than_one_in_a_hundred_without_all_clusters_is_named() -> None:
    seen = [*QUIET, _seen(6, 6, 3, "west"), *QUIET]
    assert whole_shadow(seen, []).ready
    made = whole_shadow([*seen, _seen(None, 6, 3), *QUIET[:1]], [])
    assert made.reasons == ["2 of 123 evaluations were without all clusters: west had not reported"]


def test_where_nothing_was_whole_all_of_it_is_named() -> None:
    made = whole_shadow([_seen(None, 6, 3, "east", "west")] * 3, ["east"])
    assert made.reasons == [
        "cluster east has no HPA of its own to compare with",
        "0 evaluations of all clusters, 40 are needed",
        "3 of 3 evaluations were without all clusters: east, west had not reported",
    ]
    assert made.members == []

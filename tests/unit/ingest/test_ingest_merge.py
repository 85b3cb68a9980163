"""Records of several partitions come in order of their source times while one of them is behind."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from streams.ingest.loop import Merge


def merge(**queues: list[int]) -> Merge[str, int]:
    made: Merge[str, int] = Merge()
    for key, times in queues.items():
        for time_ms in times:
            made.add(key, time_ms, time_ms)
    return made


def test_an_hour_old_sample_comes_before_todays_pods() -> None:
    made = merge(pods=[100, 200], samples=[10, 150])
    assert [item for _, item in made.ready({"pods": False, "samples": False})] == [10, 100, 150, 200]
    assert len(made) == 0


def test_nothing_is_taken_while_a_partition_that_is_behind_is_empty() -> None:
    made = merge(pods=[100])
    behind = {"pods": False, "samples": True}
    assert list(made.ready(behind)) == []
    assert made.missing(behind) == ["samples"]
    made.add("samples", 10, 10)
    assert [item for _, item in made.ready(behind)] == [10]
    assert made.waiting("pods") == 1


def test_a_partition_that_is_caught_up_holds_nobody_up() -> None:
    made = merge(pods=[100, 200])
    assert [item for _, item in made.ready({"pods": False, "samples": False})] == [100, 200]


def test_taking_stops_where_a_partition_that_is_behind_runs_empty() -> None:
    made = merge(pods=[100, 300], samples=[200])
    assert [item for _, item in made.ready({"pods": True, "samples": True})] == [100, 200]
    assert made.waiting("pods") == 1


def test_force_does_not_wait() -> None:
    made = merge(pods=[100])
    assert [item for _, item in made.ready({"pods": False, "samples": True}, force=True)] == [100]


def test_what_is_not_taken_stays_in_order() -> None:
    made = merge(pods=[1, 3], samples=[2, 4])
    assert [item for _, item in islice(made.ready({}), 2)] == [1, 2]
    assert [item for _, item in made.ready({})] == [3, 4]


def test_clear_forgets() -> None:
    made = merge(pods=[1])
    made.clear()
    assert list(made.ready({})) == []


queues = st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 20), max_size=8))


@given(queues, st.sets(st.sampled_from("abcd")))
def test_nothing_is_lost_no_partition_is_reordered_and_the_smallest_head_goes_first(
    given_queues: dict[str, list[int]], behind: set[str]
) -> None:
    made: Merge[str, tuple[int, int]] = Merge()
    for key, times in given_queues.items():
        for index, time_ms in enumerate(times):
            made.add(key, time_ms, (index, time_ms))
    left = {key: list(enumerate(times)) for key, times in given_queues.items()}
    is_behind = {key: key in behind for key in "abcd"}
    for force in (False, True):
        for key, item in made.ready(is_behind, force=force):
            assert item[1] == min(queue[0][1] for queue in left.values() if queue)
            assert left[key].pop(0) == item
    assert not any(left.values())

"""From the first decision that wants a write to the write, as the fleet bench counts it."""

from schemas.codec import encode
from tests.kit.fleetstats import READ_WITHIN_MS, Stats


def decided(stats: Stats, at_ms: int, wants: int | None, uid: str = "a") -> None:
    headers = {"ce_id": f"0-{at_ms}-{uid}".encode()}
    fields = {"time": "2026-01-01T00:00:00.000Z", "metrics": [{"newest": at_ms - 100}], "wants": wants}
    stats.decision(headers, at_ms, encode({name: value for name, value in fields.items() if value is not None}))


def read_on(stats: Stats) -> None:
    decided(stats, 1_000_000 + READ_WITHIN_MS, None, uid="another")


def test_a_write_that_expired_and_is_wanted_again_counts_from_the_first_time() -> None:
    stats = Stats()
    decided(stats, 10_000, 5)
    decided(stats, 25_000, 6)
    stats.write("a", 26_000, 6)
    read_on(stats)
    assert stats.first_want_ms() == [16_000]
    assert stats.written_ms() == [1_100]


def test_what_was_wanted_before_an_evaluation_that_wants_nothing_does_not_count() -> None:
    stats = Stats()
    for at_ms, wants in ((10_000, 5), (25_000, None), (40_000, 5)):
        decided(stats, at_ms, wants)
    stats.write("a", 41_000, 5)
    read_on(stats)
    assert stats.first_want_ms() == [1_000]


def test_each_write_counts_from_the_write_before() -> None:
    stats = Stats()
    decided(stats, 10_000, 5)
    stats.write("a", 11_000, 5)
    decided(stats, 25_000, 6)
    stats.write("a", 27_000, 6)
    read_on(stats)
    assert stats.first_want_ms() == [1_000, 2_000]


def test_what_is_wanted_as_a_stretch_begins_is_known_in_it() -> None:
    stats = Stats()
    for at_ms, wants in ((1_000, 4), (2_000, None), (10_000, 5)):
        decided(stats, at_ms, wants)
    decided(stats, 10_000, 7, uid="b")
    stats.write("b", 10_500, 7)
    stats.reset()
    decided(stats, 25_000, 6)
    decided(stats, 25_000, 8, uid="b")
    stats.write("a", 26_000, 6)
    stats.write("b", 26_000, 8)
    read_on(stats)
    assert stats.first_want_ms() == [16_000, 1_000]


def test_a_write_whose_decision_may_not_have_been_read_yet_is_left_out() -> None:
    stats = Stats()
    decided(stats, 10_000, 5)
    stats.write("a", 11_000, 5)
    assert stats.first_want_ms() == []

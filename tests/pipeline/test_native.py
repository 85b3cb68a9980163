"""The rules by which a recording's differences are classified, and that a wrong decision is not explained away."""

from pathlib import Path

import orjson
import pytest
from msgspec import structs

from schemas.settings import ClusterSettings
from tests.pipeline.native import (
    CUT_OFF,
    EQUAL,
    EQUAL_ELSEWHEN,
    EXPIRED,
    NATIVE_FIRST,
    OTHER_ANSWERS,
    REMEMBERED,
    RESTARTED,
    UNEXPLAINED,
    Comparison,
    Point,
    compare,
)
from tests.pipeline.playing import fold, partition_of
from tests.pipeline.tape import SETTINGS, Observed, Tape, observed

DATA = Path(__file__).parent / "data"
NOW = 1_000_000


def point(at_ms: int, current: int | None, wanted: int | None, remembered_ms: int | None = None) -> Point:
    bound = remembered_ms is not None
    return Point(NOW + at_ms, current, wanted, bound, NOW + remembered_ms if remembered_ms is not None else None)


def bound(at_ms: int, current: int, wanted: int) -> Point:
    """One in which something remembered had a say, without telling since when."""
    return Point(NOW + at_ms, current, wanted, True)


def classes(
    native: list[Point], ours: list[Point], restarts: tuple[int, ...] = (), answers: tuple[int, ...] = ()
) -> list[str]:
    """Classes of the native syncs."""
    made = Comparison(
        {"web": native}, {"web": ours}, [NOW + at for at in restarts], {"web": [NOW + at for at in answers]}, {15_000}
    )
    return [finding.why for finding in made.findings() if finding.side == "native"]


@pytest.mark.parametrize(
    ("native", "ours", "why"),
    [
        pytest.param(point(0, 2, 4), point(0, 2, 4), EQUAL, id="both wanted the same at once"),
        pytest.param(
            point(0, 2, 4), point(0, 2, 3), UNEXPLAINED, id="another proposal at the same moment has no excuse"
        ),
        pytest.param(point(0, 2, 4), point(0, 3, 4), UNEXPLAINED, id="nor has another count"),
        pytest.param(point(0, None, None), point(0, None, None), EQUAL, id="neither could read the scale"),
        pytest.param(point(0, None, None), point(0, 0, 0), UNEXPLAINED, id="an unread scale is not a scale of zero"),
        pytest.param(point(0, 2, 4), point(900, 2, 4), EQUAL_ELSEWHEN, id="the same a second later"),
        pytest.param(point(0, 2, 4), point(900, 4, 4), NATIVE_FIRST, id="we saw what it had written"),
        pytest.param(point(0, 2, 4), point(900, 4, 5), NATIVE_FIRST, id="we saw what it had written and went on"),
        pytest.param(point(0, 4, 4), point(900, 4, 5), UNEXPLAINED, id="another proposal a second later, same answers"),
        pytest.param(point(0, 2, 4), point(-900, 4, 4), UNEXPLAINED, id="no write is seen before it is made"),
        pytest.param(point(0, 2, 4), point(8_001, 2, 4), CUT_OFF, id="what comes later than any wait is no partner"),
        pytest.param(point(0, 4, 4), point(0, 4, 6, -9_000), REMEMBERED, id="remembered from a moment of ours alone"),
    ],
)
def test_class_of_one_sync(native: Point, ours: Point, why: str) -> None:
    earlier = [Point(NOW - 9_000, 4, 6, False)] if ours.remembered_ms else []
    assert classes([native], [*earlier, ours]) == [why]


def test_answers_between_the_moments_explain_another_wish() -> None:
    assert classes([point(0, 4, 4)], [point(900, 4, 5)], answers=(500,)) == [OTHER_ANSWERS]


def test_what_both_remember_explains_nothing() -> None:
    native, ours = [point(-9_000, 4, 4), point(0, 4, 4)], [point(-9_000, 4, 4), point(0, 4, 6, -9_000)]
    assert classes(native, ours) == [EQUAL, UNEXPLAINED]


def test_a_write_that_leaves_a_period_between_the_moments_explains_another_limit() -> None:
    write = point(-15_000, 2, 4)
    assert classes([write, bound(-30, 4, 4)], [write, bound(40, 4, 6)]) == [EQUAL, EXPIRED]


@pytest.mark.parametrize(
    ("native", "ours", "why"),
    [
        pytest.param(
            bound(50_000, 4, 4), point(50_000, 4, 3), RESTARTED, id="it holds to its first count for a window"
        ),
        pytest.param(bound(70_000, 4, 4), point(70_000, 4, 3), UNEXPLAINED, id="but not longer"),
        pytest.param(point(50_000, 4, 3), point(50_000, 4, 4, 5_000), RESTARTED, id="it forgot what we remember"),
        pytest.param(point(50_000, 4, 3), point(50_000, 4, 4, 20_000), UNEXPLAINED, id="not what came since"),
    ],
)
def test_after_a_restart(native: Point, ours: Point, why: str) -> None:
    first = point(8_000, 4, 4)
    assert classes([first, native], [first, ours], restarts=(0,)) == [EQUAL, why]


def test_our_decisions_between_the_syncs_are_looked_at_too() -> None:
    made = Comparison({"web": [point(0, 2, 2)]}, {"web": [point(0, 2, 2), point(2_500, 2, 9)]}, [], {}, {15_000})
    assert [(finding.side, finding.why) for finding in made.findings()] == [("native", EQUAL), ("ours", UNEXPLAINED)]


# --- on the recording itself ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def begun() -> tuple[Tape, list[Observed]]:
    tape = Tape(DATA, 150)
    return tape, observed(tape)


@pytest.fixture(scope="module")
def decided(begun: tuple[Tape, list[Observed]]) -> list[bytes]:
    return fold(begun[1], partition_of(begun[0].namespace)).decisions


def unexplained(tape: Tape, records: list[Observed], decisions: list[bytes]) -> int:
    return sum(finding.why == UNEXPLAINED for finding in compare(tape, records, decisions))


def test_the_first_minutes_have_nothing_unexplained(begun: tuple[Tape, list[Observed]], decided: list[bytes]) -> None:
    assert unexplained(*begun, decided) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"tolerance": "0.4"}, id="a tolerance of 0.4"),
        pytest.param({"downscale_stabilization_ms": 0}, id="no downscale stabilization", marks=pytest.mark.slow),
        pytest.param({"cpu_initialization_period_ms": 300_000}, id="a long CPU initialization", marks=pytest.mark.slow),
    ],
)
def test_settings_that_are_not_the_recordings_are_not_explained_away(
    begun: tuple[Tape, list[Observed]], wrong: dict[str, object]
) -> None:
    settings: ClusterSettings = structs.replace(SETTINGS, **wrong)
    tape, records = begun[0], observed(begun[0], settings=settings)
    assert unexplained(tape, records, fold(records, partition_of(tape.namespace)).decisions) > 0


def test_a_count_that_is_wrong_once_is_found(begun: tuple[Tape, list[Observed]], decided: list[bytes]) -> None:
    tape, records = begun
    decisions = list(decided)
    index = next(
        i for i, value in enumerate(decisions) if b'"currentReplicas":4,' in value and b'"name":"web"' in value
    )
    record = orjson.loads(decisions[index])
    decisions[index] = orjson.dumps(record | {"finalDesiredReplicas": record["currentReplicas"] + 7})
    assert unexplained(tape, records, decisions) > 0

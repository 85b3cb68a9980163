"""Times as people write them at the command line."""

import pytest

from fleethpa.frame.errors import CommandError
from fleethpa.frame.options import moment
from fleethpa.show.text import dated, time_of_day
from schemas.kubernetes.gotimes import parse_time_ms

NOW_MS = parse_time_ms("2026-11-25T09:30:00Z")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("2h", "2026-11-25T07:30:00Z", id="ago"),
        pytest.param("08:05", "2026-11-25T08:05:00Z", id="today"),
        pytest.param("09:30", "2026-11-25T09:30:00Z", id="now"),
        pytest.param("09:31", "2026-11-24T09:31:00Z", id="what is still to come today was yesterday"),
        pytest.param("yesterday 08:05", "2026-11-24T08:05:00Z", id="yesterday"),
        pytest.param("08:05:30", "2026-11-25T08:05:30Z", id="with seconds"),
        pytest.param("yesterday 08:05:59", "2026-11-24T08:05:59Z", id="yesterday with seconds"),
        pytest.param("yesterday 23:59", "2026-11-24T23:59:00Z", id="yesterday, late"),
        pytest.param("2026-11-21T08:00:15Z", "2026-11-21T08:00:15Z", id="RFC 3339"),
        pytest.param("11-21 08:00:15", "2026-11-21T08:00:15Z", id="as a sentence has another day"),
        pytest.param("12-31 08:00:15", "2025-12-31T08:00:15Z", id="a day that is still to come was last year"),
        pytest.param("2025-11-21 08:00:15", "2025-11-21T08:00:15Z", id="as a sentence has another year"),
    ],
)
def test_a_moment_is_read(text: str, found: str) -> None:
    assert moment(text, NOW_MS, "--at") == parse_time_ms(found)


@pytest.mark.parametrize(
    "text",
    [
        "24:00",
        "8:05",
        "13-21 08:00:15",
        "2026-02-30 08:00:15",
        "11-21 25:00:00",
        "08:05:60",
        "08:60",
        "yesterday",
        "tomorrow 08:05",
        "08:05 ",
    ],
)
def test_what_is_no_time_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        moment(text, NOW_MS, "--at")
    assert "yesterday 08:05" in caught.value.cause


@pytest.mark.parametrize("ago_ms", [0, 3_600_000, 20 * 3_600_000, 40 * 24 * 3_600_000, 400 * 24 * 3_600_000])
def test_a_time_that_a_sentence_says_can_be_typed(ago_ms: int) -> None:
    time_ms = NOW_MS - ago_ms
    assert moment(time_of_day(time_ms, NOW_MS), NOW_MS, "--at") == time_ms
    assert moment(dated(time_ms), NOW_MS, "--at") == time_ms

"""Times as people write them at the command line."""

import pytest

from fleethpa.frame.errors import CommandError
from fleethpa.frame.options import moment
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
    ],
)
def test_a_moment_is_read(text: str, found: str) -> None:
    assert moment(text, NOW_MS, "--at") == parse_time_ms(found)


@pytest.mark.parametrize("text", ["24:00", "8:05", "08:05:60", "08:60", "yesterday", "tomorrow 08:05", "08:05 "])
def test_what_is_no_time_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(CommandError) as caught:
        moment(text, NOW_MS, "--at")
    assert "yesterday 08:05" in caught.value.cause

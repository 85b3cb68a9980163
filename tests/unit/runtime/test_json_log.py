"""The log: no line more than once a minute, and nothing that is different is left out."""

import json
import logging

import pytest

from runtime.log import MOST_LINES, JsonLines, OncePerMinute


def line(
    text: str = "nothing can be read", *args: object, name: str = "fleethpa", level: int = 40, **data: object
) -> logging.LogRecord:
    record = logging.makeLogRecord({"name": name, "levelno": level, "levelname": "ERROR", "msg": text, "args": args})
    vars(record).update(data)
    return record


def written(*records: tuple[float, logging.LogRecord]) -> list[dict[str, str]]:
    lines = OncePerMinute()
    return [
        json.loads(JsonLines().format(each)) for now_s, record in records for each in lines.lines_for(record, now_s)
    ]


def test_a_line_that_repeats_is_written_once_a_minute_with_the_number_of_the_others() -> None:
    found = written(*((tenth / 10, line(topic="orders")) for tenth in range(1_211)))
    assert [each.get("repeated") for each in found] == [
        None,
        "600 more of the same in the last minute",
        "600 more of the same in the last minute",
    ]


def test_the_number_of_a_line_that_no_longer_comes_is_written_with_the_next_line() -> None:
    found = written((0, line()), (1, line()), (2, line()), (100, line("another")))
    assert [(each["message"], each.get("repeated")) for each in found] == [
        ("nothing can be read", None),
        ("another", None),
        ("nothing can be read", "2 more of the same in the last minute"),
    ]


@pytest.mark.parametrize(
    ("first", "second", "lines"),
    [
        pytest.param(line(cluster="c1"), line(cluster="c2"), 2, id="of two clusters"),
        pytest.param(line("%s: rejected", "a"), line("%s: rejected", "b"), 2, id="about two objects"),
        pytest.param(line(level=40), line(level=30), 2, id="of two levels"),
        pytest.param(line(error="denied"), line(error="timed out"), 2, id="with two reasons"),
        pytest.param(line(error="port 1"), line(error="port 22"), 1, id="with two ports in one reason"),
        pytest.param(
            line("no %d", 1, name="aiokafka.conn"), line("no %d", 2, name="aiokafka.conn"), 1, id="the driver's"
        ),
        pytest.param(line(level=50), line(level=50), 2, id="of a process that ends"),
        pytest.param(line(level=10), line(level=10), 2, id="for debugging"),
    ],
)
def test_lines_are_the_same_if_they_say_the_same_of_the_same(
    first: logging.LogRecord, second: logging.LogRecord, lines: int
) -> None:
    assert len(written((0, first), (1, second))) == lines


def test_few_different_lines_are_remembered() -> None:
    lines = OncePerMinute()
    for number in range(2 * MOST_LINES):
        assert len(lines.lines_for(line(cluster=str(number)), 0)) == 1
    assert len(lines._lines) == MOST_LINES

"""Log time follows the timestamps of the log, but not single ones that later records contradict."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec import Struct

from schemas.answers import Answers
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord
from schemas.observed import AutoscalerSet, Heartbeat, PodList
from schemas.settings import LogTimeSet, SettingsSet
from streams.hpa.evaluation import Pending
from streams.partition import Partition
from streams.state import acrossrows, logtime, partitionrow, rows
from streams.state.acrossrows import CapacityMember, ClaimRow
from streams.state.logtime import CONFIRMED_MS, STEP_LIMIT_MS
from tests.kit.partition import ENFORCING, KEY, START_MS, Record, cpu_answer, make_hpa, make_pod, scale

HOUR_MS = 3_600_000
YEARS_MS = 73 * 365 * 24 * HOUR_MS
SECOND = 1_000


class Run:
    """A log in which a true clock goes on by the second, whatever the timestamps of its records say."""

    def __init__(self, seed: int | None = None) -> None:
        self.partition = Partition.empty(0)
        self.records: list[Record] = []
        self.decided: list[bytes] = []
        self.true_ms = START_MS
        self.usage = 50
        self._crashes = None if seed is None else random.Random(seed)
        self._stored: dict[bytes, bytes] = {}
        pods = [make_pod(f"web-{number}") for number in range(4)]
        self.put(SettingsSet(cluster="*", settings=ENFORCING), key=WHOLE_PARTITION_KEY)
        self.put(AutoscalerSet(hpa=make_hpa(maxReplicas=40)), scale(spec=4), PodList(list_id="p", pods=pods))

    def put(self, *bodies: Body, ahead_ms: int = 0, key: str = KEY) -> list[bytes]:
        """Append one record, stamped so far ahead of the true clock; gives its decisions."""
        value = encode(LogRecord(v=1, entries=[Entry(key=key, body=each) for each in bodies]))
        record = Record(len(self.records), self.true_ms + ahead_ms, value)
        self.records.append(record)
        if self._crashes is not None and self._crashes.random() < 0.1:
            self._restart()
        made = [each.value for each in self.partition.apply(*record)]
        self.decided += made
        return made

    def _restart(self) -> None:
        self._stored |= dict(self.partition.checkpoint())
        self.partition = Partition.restore(0, self._stored)

    def seconds(self, count: int, *, ahead_ms: int = 0) -> Iterator[list[bytes]]:
        """Let true time pass: a tick a second, and answers of the metrics API every 15 s."""
        for _ in range(count):
            self.true_ms += SECOND
            made = self.put(ahead_ms=ahead_ms)
            if self.true_ms % 15_000 == 0:
                usages = {f"web-{number}": self.usage for number in range(4)}
                beat = Heartbeat(session="", watches=["pods", "scales", "autoscalers", "metrics"])
                made += self.put(beat, Answers(items=[cpu_answer("web", usages, self.true_ms)]), ahead_ms=ahead_ms)
            yield made

    def count(self, seconds: int, *, ahead_ms: int = 0) -> int:
        """How many decisions were made in so many seconds."""
        return sum([len(made) for made in self.seconds(seconds, ahead_ms=ahead_ms)])


def folded(records: Sequence[Record]) -> list[bytes]:
    partition = Partition.empty(0)
    return [each.value for record in records for each in partition.apply(*record)]


@pytest.mark.parametrize(
    "ahead_ms", [90_000, STEP_LIMIT_MS + 1, 2 * HOUR_MS, YEARS_MS], ids=["90 s", "5 min", "2 h", "73 years"]
)
@pytest.mark.parametrize("wrong", [1, 2, 3, 10, 40, 600], ids=lambda seconds: f"{seconds} s wrong")
def test_decisions_go_on_within_a_minute_of_timestamps_ahead(ahead_ms: int, wrong: int) -> None:
    run = Run()
    assert run.count(120) >= 7
    run.count(wrong, ahead_ms=ahead_ms)
    assert run.count(60) >= 2, "no decisions in the minute after the clock was right again"
    assert abs(run.partition.clock_ms - run.true_ms) < SECOND
    run.usage = 400
    assert run.count(120) >= 7
    assert b'"wants":' in b"".join(run.decided[-8:])
    assert folded(run.records) == run.decided


def test_a_record_that_is_doubted_brings_its_entries_and_no_decision_of_its_time() -> None:
    run = Run()
    run.count(60)
    hpa = make_hpa(name="api", uid="uid-api")
    run.put(AutoscalerSet(hpa=hpa), ahead_ms=2 * HOUR_MS)
    assert {each.name for each in run.partition.state.hpas} == {"web", "api"}
    assert run.partition.clock_ms <= run.true_ms


@pytest.mark.parametrize("second_ms", [70_000, 4 * 60_000, HOUR_MS, YEARS_MS])
def test_several_steps_ahead_in_a_row_are_taken_back_at_once(second_ms: int) -> None:
    run = Run()
    run.count(120)
    run.count(30, ahead_ms=2 * HOUR_MS)
    run.count(30, ahead_ms=2 * HOUR_MS + second_ms)
    assert run.count(60) >= 2
    assert abs(run.partition.clock_ms - run.true_ms) < SECOND
    assert folded(run.records) == run.decided


@pytest.mark.parametrize("wrong", [1, 20, 300])
def test_no_checkpoint_in_between_changes_a_decision(wrong: int) -> None:
    for seed in range(5):
        run = Run(seed)
        run.count(60)
        run.count(wrong, ahead_ms=2 * HOUR_MS)
        run.count(90)
        run.put(LogTimeSet(time=run.true_ms, author="ada"), key=WHOLE_PARTITION_KEY)
        run.count(60)
        assert folded(run.records) == run.decided, f"seed {seed}"


def test_a_gap_of_the_log_counts_once_records_have_confirmed_it() -> None:
    run = Run()
    run.count(60)
    run.true_ms += HOUR_MS
    run.put()
    before_ms = run.partition.clock_ms
    assert before_ms < run.true_ms - HOUR_MS + SECOND
    run.count(CONFIRMED_MS // SECOND)
    assert run.partition.clock_ms == run.true_ms
    assert run.partition.state.row.restart_reason.startswith("log time stepped 36")
    assert run.count(60) >= 3


def test_records_that_are_further_apart_than_the_limit_confirm_each_other() -> None:
    run = Run()
    for hour in range(1, 9):
        run.true_ms = START_MS + hour * HOUR_MS
        run.put()
        assert run.true_ms - run.partition.clock_ms <= HOUR_MS


def test_a_clock_that_is_set_back_before_what_was_log_time_does_not_count() -> None:
    run = Run()
    run.count(120)
    stopped_ms = run.partition.clock_ms
    run.count(60, ahead_ms=-HOUR_MS)
    assert run.partition.clock_ms == stopped_ms
    assert run.count(60) >= 3


def test_a_person_sets_log_time_back_where_the_first_record_was_ahead() -> None:
    run = Run.__new__(Run)
    run.partition, run.records, run.decided, run.true_ms, run.usage = Partition.empty(0), [], [], START_MS, 50
    run._crashes, run._stored = None, {}
    run.put(ahead_ms=YEARS_MS)
    Run.put(run, SettingsSet(cluster="*", settings=ENFORCING), key=WHOLE_PARTITION_KEY)
    pods = [make_pod(f"web-{number}") for number in range(4)]
    run.put(AutoscalerSet(hpa=make_hpa(maxReplicas=40)), scale(spec=4), PodList(list_id="p", pods=pods))
    assert run.count(120) <= 2
    run.put(LogTimeSet(time=run.true_ms, author="ada", reason="INC-7"), key=WHOLE_PARTITION_KEY)
    assert run.count(60) >= 2
    row = run.partition.state.row
    assert row.clock_ms == run.true_ms
    assert "ada" in row.restart_reason
    assert "INC-7" in row.restart_reason
    assert folded(run.records) == run.decided


def test_an_entry_that_agrees_with_log_time_is_no_restart() -> None:
    run = Run()
    run.count(60)
    run.put(LogTimeSet(time=run.true_ms - 3 * SECOND, author="ada"), key=WHOLE_PARTITION_KEY)
    run.count(5)
    assert run.partition.state.row.restart_offset == -1
    assert run.partition.clock_ms == run.true_ms


def _times(kind: Any) -> set[str]:
    return {field for field in kind.__struct_fields__ if field.endswith("_ms")}


LEFT = frozenset(
    {
        "clock_ms",
        "doubted_ms",
        "expires_ms",
        "longest_period_ms",
        "manager_ms",
        "recommended_ms",
        "set_ms",
        "start_ms",
        "stated_ms",
        "stepped_from_ms",
        "stepped_ms",
        "until_ms",
        "window_ms",
    }
)
"""Fields of rows that are times by another clock, ends that somebody has set, lengths, log time itself, and those of
windows, which begin anew.
"""


def a_write(wanted_ms: int) -> rows.PendingWrite:
    """One that expires ten seconds later."""
    pending = Pending(
        current_replicas=1,
        desired_replicas=2,
        reason="",
        name="web",
        reference="Deployment/shop/web",
        generation=1,
        to_zero=False,
        conditions=[],
    )
    return rows.PendingWrite("0-1-u", "u", pending, wanted_ms, wanted_ms + 10_000, 1)


def test_each_time_of_a_row_is_one_that_a_step_back_bounds_or_one_that_it_leaves() -> None:
    kinds = [
        each
        for module in (rows, partitionrow, acrossrows)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, Struct) and each.__module__.startswith("streams.")
    ]
    named = {name for kind in kinds for name in _times(kind)}
    assert named, "no row has a time"
    assert named <= logtime.BOUNDED | LEFT
    assert not logtime.BOUNDED & LEFT


@pytest.mark.parametrize(
    ("row", "field", "bounded"),
    [
        pytest.param(
            ClaimRow(revision=1, until_ms=900_000), "until_ms", 160_000, id="what a member has lasts a minute"
        ),
        pytest.param(ClaimRow(revision=1, until_ms=150_000), "until_ms", 150_000, id="one that ends before that"),
        pytest.param(CapacityMember(until_ms=900_000), "until_ms", 160_000, id="what a member was allotted"),
        pytest.param(a_write(wanted_ms=500_000), "expires_ms", 110_000, id="a write lives as long as it would have"),
        pytest.param(a_write(wanted_ms=90_000), "expires_ms", 100_000, id="a write that was wanted before"),
        pytest.param(
            rows.HpaRow(cluster="eu", namespace="shop", name="web", moves=((500_000, 1, 2, "ann"), (9, 2, 3, "bob"))),
            "moves",
            ((100_000, 1, 2, "ann"), (9, 2, 3, "bob")),
            id="the last changes of replicas",
        ),
        pytest.param(
            rows.NamespaceRow(cluster="eu", namespace="shop", unused={"web": 500_000, "api": 9}),
            "unused",
            {"web": 100_000, "api": 9},
            id="commands without an HPA",
        ),
    ],
)
def test_after_a_step_back_a_row_has_nothing_that_is_too_far_in_the_future(
    row: Struct, field: str, bounded: object
) -> None:
    assert getattr(logtime.bound(row, 100_000), field) == bounded

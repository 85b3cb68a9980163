"""HPAs that state a sync period of their own (annotation `fleethpa.io/sync-period`)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.fleet.state import read_state
from schemas.agents import AgentSet
from schemas.answers import Answers
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerSet, Origin
from schemas.settings import ClusterSettings, SettingsSet
from streams.history.evaluations import Evaluated, events
from streams.partition import Partition
from streams.state.clustersettings import own_period_ms, period_fault
from streams.state.rowcodec import merge_rows
from tests.kit.brakes import SECOND, World
from tests.kit.cli import Fleet
from tests.kit.partition import cpu_answer, fold, make_hpa
from tests.laws import examples

NAME = "fleethpa.io/sync-period"


@pytest.mark.parametrize(
    ("text", "period_ms"),
    [
        ("60s", 60_000),
        ("1m30s", 90_000),
        (" 100ms ", 100),
        ("1h", 3_600_000),
        ("99ms", None),
        ("1h1ms", None),
        ("60", None),
        ("-60s", None),
        ("", None),
        ("0" * 40 + "60s", None),
    ],
)
def test_the_annotation(text: str, period_ms: int | None) -> None:
    assert own_period_ms(text) == period_ms
    assert bool(period_fault(text, {})) == (period_ms is None)
    if period_ms is None:
        assert "must be from 100ms to 1h, such as 60s" in period_fault(text, {})


class PeriodWorld(World):
    """An HPA `web` with a period of its own and one, `api`, with that of the cluster, 15 s; a tick a second."""

    def __init__(self, text: str | None, **braking: Any) -> None:
        super().__init__("web", "api", **braking)
        self.at_ms: dict[str, list[int]] = {"web": [], "api": []}
        self.made: list[dict[str, Any]] = []
        self.state(text)

    def state(self, text: str | None) -> None:
        self.put("web", None if text is None else {NAME: text})

    def run(self, seconds: int, early_ms: tuple[int, ...] = (0,), *, answered: bool = True) -> "PeriodWorld":
        """An answer every 15 s, so much earlier than that, in turn."""
        start_ms = self.log.now_ms
        answers = [start_ms + number * 15 * SECOND - early_ms[number % len(early_ms)] for number in range(1, 300)]
        ticks = [start_ms + second * SECOND for second in range(1, seconds + 1)]
        for now_ms in sorted([*ticks, *(each for each in answers if answered and each <= ticks[-1])]):
            self.log.now_ms = now_ms
            self.take(self.log.add(*([self.answer()] if answered and now_ms in answers else [])))
        return self

    def answer(self) -> Answers:
        pods = {app: {f"{app}-{index}": 50 for index in range(count)} for app, count in self.replicas.items()}
        return Answers(items=[cpu_answer(app, usage, self.log.now_ms) for app, usage in pods.items()])

    def take(self, decisions: list[dict[str, Any]]) -> None:
        for each in decisions:
            self.at_ms[each["name"]].append(self.log.now_ms)
            self.made.append(each)

    def gaps_s(self, name: str) -> list[float]:
        """Between evaluations in a row; the first is of the new object."""
        return [(after - before) / SECOND for before, after in pairwise(self.at_ms[name])][1:]


@pytest.mark.parametrize(
    ("text", "gap_s"),
    [
        pytest.param("60s", 60, id="four periods of the cluster"),
        pytest.param("50s", 50, id="no whole number of them"),
        pytest.param("15s", 15, id="that of the cluster"),
        pytest.param("5s", 15, id="shorter, than which no answer comes"),
        pytest.param("often", 15, id="what cannot be read"),
        pytest.param(None, 15, id="none"),
    ],
)
def test_an_hpa_is_evaluated_in_its_own_period_and_others_in_that_of_the_cluster(text: str | None, gap_s: int) -> None:
    world = PeriodWorld(text).run(600)
    assert set(world.gaps_s("web")) == {gap_s}
    assert set(world.gaps_s("api")) == {15}


@settings(max_examples=examples(25))
@given(st.sampled_from((20, 45, 60, 90)), st.lists(st.integers(-1_500, 1_500), min_size=1, max_size=7))
def test_answers_that_come_early_or_late_never_shorten_the_period(seconds: int, early_ms: list[int]) -> None:
    """By the slack of 2 s at most, of which the evaluation is then as late as if it had been in time (`as_of`)."""
    world = PeriodWorld(f"{seconds}s").run(420, tuple(early_ms))
    gaps = world.gaps_s("web")
    assert gaps
    assert all(seconds - 3 <= gap <= seconds + 5 for gap in gaps), gaps
    _, again = fold(world.log.records)
    assert again == [each.value for each in world.log.decisions]


def test_an_answer_holds_for_two_of_its_own_periods() -> None:
    world = PeriodWorld("60s").run(60)
    world.run(240, answered=False)
    errors = {name: [each for each in world.made if each["name"] == name] for name in ("web", "api")}
    assert "no answer within two sync periods (30s)" in errors["api"][-1]["error"]
    kept = [each for each in errors["web"] if not each.get("error")]
    assert len(kept) >= 3, "one with an answer, and two with an answer that holds"
    assert "no answer within two sync periods (120s)" in errors["web"][-1]["error"]


def test_another_period_counts_at_once() -> None:
    world = PeriodWorld("10m").run(120)
    decided = len(world.log.decisions)
    world.state("30s")
    assert len(world.log.decisions) == decided + 1, "it is evaluated with the record that changes it"
    before = len(world.at_ms["web"])
    world.run(120)
    assert {(b - a) // SECOND for a, b in pairwise(world.at_ms["web"][before:])} == {30}
    world.state(None)
    world.run(120)
    assert set(world.gaps_s("web")[-6:]) == {15}


def test_where_an_agent_waits_for_decisions_it_does_not_count() -> None:
    world = PeriodWorld("10m").run(60)
    before, joined_ms = len(world.at_ms["web"]), world.log.now_ms
    world.take(world.log.add(world.log.entry(AgentSet(cluster="eu", incarnation=1), WHOLE_PARTITION_KEY)))
    world.run(120)
    after = world.at_ms["web"][before:]
    assert after[0] <= joined_ms + 5 * SECOND
    assert set(world.gaps_s("web")[-5:]) == {15}


def test_beside_a_native_controller_both_evaluate_in_the_same_period() -> None:
    world = PeriodWorld("60s").run(120)
    world.log.add(SettingsSet(cluster="*", settings=ClusterSettings(default_mode="shadow")))
    world.run(240)
    assert world.gaps_s("web")[-8:] == [15] * 8, "from the first evaluation in shadow on"


def test_a_replay_knows_the_period_of_each_evaluation() -> None:
    world = PeriodWorld("60s").run(180)
    recorded = events(Partition.empty(0), world.log.records, lambda _: True)
    periods = {each.inputs.hpa.name: each.inputs.period_ms for each in recorded if isinstance(each, Evaluated)}
    assert periods == {"web": 60_000, "api": 15_000}


def test_a_decider_that_starts_again_from_its_rows_decides_the_same_whatever_changes_the_period() -> None:
    world = PeriodWorld("50s").run(70, (0, 1_200, -900))
    world.state("20s")
    world.run(50, (300, -1_900))
    world.log.add(world.log.entry(AgentSet(cluster="eu", incarnation=1), WHOLE_PARTITION_KEY))
    world.run(40, (0, 1_000))
    world.log.add(world.log.entry(AgentSet(cluster="eu", incarnation=1, left=True), WHOLE_PARTITION_KEY))
    world.state("90s")
    log = world.run(120, (700, -700)).log
    first, rows = Partition.empty(0), dict[bytes, bytes]()
    for start, record in enumerate(log.records):
        if start % 6 == 0:
            merge_rows(rows, first.checkpoint())
            second = Partition.restore(0, dict(rows))
            made = [each.value for record in log.records[start:] for each in second.apply(*record)]
            assert made == [each.value for each in log.decisions][len(log.decisions) - len(made) :], start
        first.apply(*record)


@pytest.mark.parametrize(
    ("text", "origin", "says"),
    [
        ("5s", "central", "metrics of its cluster are asked for every 15s (sync-period)"),
        (
            "60s",
            "cluster",
            "its native controller evaluates it in the sync period of the cluster, and both are compared",
        ),
        ("60s", "central", ""),
        (None, "central", ""),
    ],
)
async def test_a_period_without_effect_is_a_problem_by_name(text: str | None, origin: Origin, says: str) -> None:
    fleet = Fleet()
    fleet.settle()
    hpa = make_hpa("web", "uid-web")
    hpa["metadata"]["annotations"] = {} if text is None else {NAME: text}
    fleet.append(AutoscalerSet(hpa=hpa, origin=origin))
    fleet.checkpoint()
    state = await read_state(fleet.past())
    found = [each for view in state.hpas.values() for each in view.problems if each.label == "sync period"]
    assert [each.text for each in found] == ([f"its annotation {NAME} has no effect: {says}"] if says else [])

"""HPAs that state a sync period of their own (annotation `fleethpa.io/sync-period`), longer or shorter."""

from itertools import pairwise
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.fleet.state import read_state
from schemas.agents import AgentSet
from schemas.answers import Answers
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.observed import AutoscalerDeleted, AutoscalerSet
from schemas.settings import ClusterSettings, SettingsSet
from schemas.syncperiods import own_period_ms, period_fault
from streams.history.evaluations import Evaluated, events
from streams.partition import Partition
from streams.state.rowcodec import merge_rows
from tests.kit.brakes import SECOND, World
from tests.kit.cli import Fleet
from tests.kit.partition import cpu_answer, fold, make_hpa
from tests.laws import examples

NAME = "fleethpa.io/sync-period"
CENTRAL, OF_NATIVE = {"origin": "central"}, {"origin": "cluster"}
OF_A_TOTAL = "has no effect: one total over several clusters is decided in their sync period"
BESIDE_NATIVE = (
    "has no effect: its native controller evaluates it in the sync period of the cluster, and both are compared"
)


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
        self.age_ms: dict[str, list[int]] = {"web": [], "api": []}
        """How old the metrics were by which each was decided."""
        self.state(text)

    def state(self, text: str | None) -> None:
        self.put("web", None if text is None else {NAME: text})

    def run(
        self, seconds: int, early_ms: tuple[int, ...] = (0,), *, answered: bool = True, every_ms: int = 15 * SECOND
    ) -> "PeriodWorld":
        """An answer every 15 s, or as often as is said, so much earlier than that, in turn."""
        start_ms = self.log.now_ms
        answers = [start_ms + number * every_ms - early_ms[number % len(early_ms)] for number in range(1, 700)]
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
            self.age_ms[each["name"]] += [self.log.now_ms - one["newest"] for one in each["metrics"] if "newest" in one]
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
        pytest.param("5s", 15, id="shorter, which nobody has allowed"),
        pytest.param("often", 15, id="what cannot be read"),
        pytest.param(None, 15, id="none"),
    ],
)
def test_an_hpa_is_evaluated_in_its_own_period_and_others_in_that_of_the_cluster(text: str | None, gap_s: int) -> None:
    world = PeriodWorld(text).run(600)
    assert set(world.gaps_s("web")) == {gap_s}
    assert set(world.gaps_s("api")) == {15}


@pytest.mark.parametrize(
    ("text", "allowed_ms", "gap_s"),
    [
        pytest.param("5s", 5_000, 5, id="as short as is allowed"),
        pytest.param("5s", 1_000, 5, id="longer than that"),
        pytest.param("1s", 5_000, 5, id="shorter: it counts as what is allowed"),
        pytest.param("100ms", 100, 1, id="no API is asked more than once a second"),
        pytest.param("5s", 15_000, 15, id="the cluster's is allowed"),
        pytest.param("5s", 60_000, 15, id="what is allowed is longer than the cluster's"),
        pytest.param("60s", 5_000, 60, id="a longer one is not shortened"),
    ],
)
def test_a_shorter_period_is_as_short_as_the_cluster_allows_and_its_metrics_are_fresh(
    text: str, allowed_ms: int, gap_s: int
) -> None:
    world = PeriodWorld(text, min_sync_period_ms=allowed_ms).run(300, every_ms=min(gap_s, 15) * SECOND)
    assert set(world.gaps_s("web")) == {gap_s}
    assert set(world.gaps_s("api")) == {15}, "it shares the namespace, and keeps its own"
    assert {age for ages in world.age_ms.values() for age in ages[1:]} == {0}
    assert not any(each.get("error") for each in world.made)


@settings(max_examples=examples(25))
@given(st.sampled_from((1, 3, 4, 5, 7)), st.lists(st.integers(-1_000, 1_000), min_size=1, max_size=7))
def test_answers_of_a_shorter_period_never_shorten_that_of_others(seconds: int, per_mille: list[int]) -> None:
    """Answers are up to a tenth of the period early or late."""
    jitter_ms = tuple(seconds * each // 10 for each in per_mille)
    world = PeriodWorld(f"{seconds}s", min_sync_period_ms=1_000).run(200, jitter_ms, every_ms=seconds * SECOND)
    assert all(0.75 * seconds <= gap <= 1.5 * seconds for gap in world.gaps_s("web")), world.gaps_s("web")
    # When an answer is due that was late, it is waited for: 3 s (`ANSWER_WAIT_MS`) at the most.
    assert all(13 <= gap <= 18 for gap in world.gaps_s("api")), world.gaps_s("api")
    assert set(world.age_ms["web"][2:]) == {0}, "each answer brings its evaluation, late ones too"
    assert max(world.age_ms["api"][2:]) <= 1.2 * seconds * SECOND
    assert not any(each.get("error") for each in world.made[2:]), (
        "but for the first, which have an answer of long before"
    )
    _, again = fold(world.log.records)
    assert again == [each.value for each in world.log.decisions]


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


@pytest.mark.parametrize(
    ("changes", "asked_every_ms"),
    [
        pytest.param(CENTRAL, 5_000, id="central"),
        pytest.param(OF_NATIVE, 5_000, id="of the cluster, whose native controller is absent"),
        pytest.param(CENTRAL | {"revision": 7}, None, id="with a share of a total, for which observers ask no sooner"),
    ],
)
def test_the_decider_expects_answers_as_often_as_observers_ask(
    changes: dict[str, Any], asked_every_ms: int | None
) -> None:
    world = PeriodWorld(None, min_sync_period_ms=5_000)
    hpa = make_hpa("more", "uid-more")
    hpa["metadata"]["annotations"] = {NAME: "2s"}
    world.log.add(AutoscalerSet(hpa=hpa, **changes))
    assert world.log.partition.state.namespaces["eu/shop"].shortest_ms == asked_every_ms
    world.log.add(AutoscalerDeleted(name="more", **{"origin": changes["origin"]}), after_ms=60 * SECOND)
    world.log.add(after_ms=60 * SECOND)
    assert world.log.partition.state.namespaces["eu/shop"].shortest_ms is None


def test_an_answer_holds_for_two_of_its_own_shorter_periods() -> None:
    world = PeriodWorld("5s", min_sync_period_ms=5_000).run(60, every_ms=5 * SECOND)
    world.run(90, answered=False)
    errors = {name: [each.get("error", "") for each in world.made if each["name"] == name] for name in ("web", "api")}
    assert "no answer within two sync periods (10s)" in errors["web"][-1]
    assert "no answer within two sync periods (30s)" in errors["api"][-1]


@pytest.mark.parametrize("before", [None, "10m"])
@pytest.mark.parametrize("wait_s", [1, 11, 14])
def test_a_shorter_period_begins_with_the_next_answer(before: str | None, wait_s: int) -> None:
    """The answer before it may be older than two of its periods."""
    world = PeriodWorld(before, min_sync_period_ms=5_000).run(120 + wait_s)
    decided, stated_ms = len(world.log.decisions), world.log.now_ms
    world.state("5s")
    assert len(world.log.decisions) == decided
    world.run(60, every_ms=5 * SECOND)
    since = [each for each in world.at_ms["web"] if each > stated_ms]
    assert since[0] <= stated_ms + 5 * SECOND
    assert {(b - a) // SECOND for a, b in pairwise(since)} == {5}
    assert not any(each.get("error") for each in world.made)
    assert all(13 <= gap <= 20 for gap in world.gaps_s("api")), "the answers have another phase"


@pytest.mark.parametrize("wait_s", [1, 11, 14])
def test_a_shorter_period_begins_with_the_setting_that_allows_it(wait_s: int) -> None:
    world = PeriodWorld("5s").run(120 + wait_s)
    allowed_ms = world.log.now_ms
    world.take(world.log.add(SettingsSet(cluster="*", settings=ClusterSettings(min_sync_period_ms=5_000))))
    world.run(60, every_ms=5 * SECOND)
    since = [each for each in world.at_ms["web"] if each > allowed_ms]
    assert since[0] <= allowed_ms + 5 * SECOND
    assert {(b - a) // SECOND for a, b in pairwise(since)} == {5}
    assert not any(each.get("error") for each in world.made)


def test_a_shorter_period_ends_with_the_setting_that_allows_it() -> None:
    world = PeriodWorld("5s", min_sync_period_ms=5_000).run(60, every_ms=5 * SECOND)
    world.log.add(SettingsSet(cluster="eu", settings=ClusterSettings(), unset=["minSyncPeriodMs"]))
    world.run(120)
    assert set(world.gaps_s("web")[-6:]) == {15}


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


def test_where_an_agent_waits_for_decisions_a_shorter_one_counts() -> None:
    world = PeriodWorld("5s", min_sync_period_ms=5_000).run(60, every_ms=5 * SECOND)
    world.take(world.log.add(world.log.entry(AgentSet(cluster="eu", incarnation=1), WHOLE_PARTITION_KEY)))
    world.run(120, every_ms=5 * SECOND)
    assert set(world.gaps_s("web")) == {5}


@pytest.mark.parametrize(("text", "allowed_ms"), [("60s", None), ("5s", 5_000)])
@pytest.mark.parametrize("native", ["absent", "present"])
def test_beside_a_native_controller_both_evaluate_in_the_same_period(
    text: str, allowed_ms: int | None, native: Literal["absent", "present"]
) -> None:
    world = PeriodWorld(text, min_sync_period_ms=allowed_ms).run(120)
    world.log.add(SettingsSet(cluster="*", settings=ClusterSettings(default_mode="shadow", native_controller=native)))
    world.run(240)
    assert world.gaps_s("web")[-8:] == [15] * 8, "from the first evaluation in shadow on"


@pytest.mark.parametrize(("text", "period_ms"), [("60s", 60_000), ("5s", 5_000)])
def test_a_replay_knows_the_period_of_each_evaluation(text: str, period_ms: int) -> None:
    world = PeriodWorld(text, min_sync_period_ms=5_000).run(180, every_ms=5 * SECOND)
    recorded = events(Partition.empty(0), world.log.records, lambda _: True)
    periods = {each.inputs.hpa.name: each.inputs.period_ms for each in recorded if isinstance(each, Evaluated)}
    assert periods == {"web": period_ms, "api": 15_000}


def test_a_decider_that_starts_again_from_its_rows_decides_the_same_whatever_changes_the_period() -> None:
    world = PeriodWorld("50s").run(70, (0, 1_200, -900))
    world.state("20s")
    world.run(50, (300, -1_900))
    world.log.add(world.log.entry(AgentSet(cluster="eu", incarnation=1), WHOLE_PARTITION_KEY))
    world.run(40, (0, 1_000))
    world.log.add(world.log.entry(AgentSet(cluster="eu", incarnation=1, left=True), WHOLE_PARTITION_KEY))
    world.state("90s")
    world.log.add(SettingsSet(cluster="eu", settings=ClusterSettings(min_sync_period_ms=4_000)))
    world.state("2s")
    world.run(40, (0, 300, -200), every_ms=4 * SECOND)
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
    ("text", "allowed_ms", "changes", "says"),
    [
        ("5s", None, CENTRAL, "has no effect: its cluster allows none below 15s (min-sync-period)"),
        ("5s", 60_000, CENTRAL, "has no effect: its cluster allows none below 15s (min-sync-period)"),
        ("2s", 5_000, CENTRAL, "counts as 5s: its cluster allows none below (min-sync-period)"),
        ("100ms", 100, CENTRAL, "counts as 1s: its cluster allows none below (min-sync-period)"),
        ("5s", 5_000, CENTRAL, ""),
        ("5s", 5_000, OF_NATIVE, BESIDE_NATIVE),
        ("60s", None, OF_NATIVE, BESIDE_NATIVE),
        ("5s", 5_000, CENTRAL | {"revision": 7}, OF_A_TOTAL),
        ("60s", None, CENTRAL | {"revision": 7}, OF_A_TOTAL),
        ("60s", None, CENTRAL, ""),
        (None, 5_000, CENTRAL, ""),
    ],
)
async def test_a_period_that_is_not_the_stated_one_is_a_problem_by_name(
    text: str | None, allowed_ms: int | None, changes: dict[str, Any], says: str
) -> None:
    fleet = Fleet()
    fleet.settle()
    compared = ClusterSettings(default_mode="shadow", min_sync_period_ms=allowed_ms)
    fleet.append(SettingsSet(cluster="*", settings=compared), key=WHOLE_PARTITION_KEY)
    hpa = make_hpa("web", "uid-web")
    hpa["metadata"]["annotations"] = {} if text is None else {NAME: text}
    fleet.append(AutoscalerSet(hpa=hpa, **changes))
    fleet.checkpoint()
    state = await read_state(fleet.past())
    found = [each for view in state.hpas.values() for each in view.problems if each.label == "sync period"]
    assert [each.text for each in found] == ([f"its annotation {NAME} {says}"] if says else [])

"""When an HPA is evaluated: with the answer of its period, once per period, whatever polls, ticks and rebalances do."""

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.agents import AgentSet
from schemas.answers import Answers, MetricAnswer
from schemas.codec import encode
from schemas.entries import Body, Entry, LogRecord, Outcome, Source
from schemas.observed import AutoscalerSet, PodSet
from schemas.settings import ClusterSettings, SettingsSet
from streams.partition import Partition
from streams.state.rowcodec import merge_rows
from streams.state.rows import Arrival
from streams.state.timing import as_of, note_arrival, turn
from tests.kit.partition import ENFORCING, START_MS, make_hpa, make_pod, scale
from tests.laws import examples

PERIOD_MS = 15_000
NOW = START_MS
ENDLESS = 1_000_000_000
DOUBLING = {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
Json = dict[str, Any]


def arrived(at_ms: int, before_ms: int = 0) -> Arrival:
    return Arrival(NOW + at_ms, NOW + before_ms if before_ms else 0)


class Case(NamedTuple):
    """Times in ms after NOW. The HPA was evaluated at 0 with the answer of then; the next is due at 15,000."""

    now: int
    arrivals: list[Arrival | None]
    evaluate: bool
    due: int
    look: int = 0
    evaluated: int = 0
    was_due: int = 15_000
    polled: bool = True


USED = arrived(0, -15_000)
CASES = {
    "an answer on time": Case(15_000, [arrived(15_000, 1)], True, 30_000),
    "a late answer moves what follows": Case(16_500, [Arrival(NOW + 16_500, NOW)], True, 31_500),
    "an early answer is not kept waiting": Case(14_200, [Arrival(NOW + 14_200, NOW)], True, 29_200),
    "before its time nothing is looked at": Case(9_000, [USED], False, 15_000, 15_000),
    "at its time the answer is waited for": Case(15_000, [USED], False, 15_000, 18_000),
    "not for ever": Case(18_000, [USED], True, 30_000),
    "an answer that failed to come before is not waited for": Case(
        30_000, [USED], True, 45_000, evaluated=18_000, was_due=30_000
    ),
    "samples that come every second wait for the due time": Case(
        14_000, [arrived(14_000, 13_000)], False, 15_000, 15_000, polled=False
    ),
    "samples that come every second keep the due times": Case(
        15_400, [arrived(15_400, 14_400)], True, 30_000, polled=False
    ),
    "samples that come every minute are not waited for in between": Case(
        15_000, [Arrival(NOW, NOW - 60_000)], True, 30_000, polled=False
    ),
    "answers of another rhythm are used at the due time": Case(15_000, [arrived(9_000, -1_000)], True, 30_000),
    "answers of another phase are taken up at once": Case(9_000, [Arrival(NOW + 9_000, NOW - 6_000)], True, 24_000),
    "or, soon after an evaluation, from their next one on": Case(
        4_000, [Arrival(NOW + 4_000, NOW - 11_000)], False, 19_000, 19_000
    ),
    "the first answer of all is taken up at once": Case(4_000, [Arrival(NOW + 4_000)], True, 19_000),
    "all of several questions are waited for": Case(14_900, [Arrival(NOW + 14_900, NOW), USED], False, 15_000, 15_000),
    "a question that is never answered holds up nobody": Case(14_900, [Arrival(NOW + 14_900, NOW), None], True, 29_900),
    "nothing to wait for": Case(15_000, [], True, 30_000),
    "far behind, the next due time lies ahead": Case(100_000, [USED], True, 120_000),
}


@pytest.mark.parametrize("name", CASES)
def test_a_turn_comes_with_the_answer_of_its_period(name: str) -> None:
    case = CASES[name]
    made = turn(
        NOW + case.now, NOW + case.was_due, NOW + case.evaluated, PERIOD_MS, case.arrivals, case.polled, PERIOD_MS
    )
    assert (made.evaluate, made.due_ms - NOW) == (case.evaluate, case.due)
    if not made.evaluate:
        assert made.look_ms - NOW == case.look


@pytest.mark.parametrize(
    ("known", "now", "noted"),
    [
        pytest.param(None, 5_000, arrived(5_000), id="the first"),
        pytest.param(arrived(0, -15_000), 15_000, Arrival(NOW + 15_000, NOW), id="the next"),
        pytest.param(arrived(15_000, 1), 17_000, arrived(15_000, 1), id="in parts: one arrival"),
        pytest.param(arrived(15_000, 1), 17_001, arrived(17_001, 15_000), id="no part of it any more"),
        pytest.param(arrived(0), 3_600_001, arrived(3_600_001), id="the one before is forgotten"),
    ],
)
def test_an_arrival_begins_with_its_first_part(known: Arrival | None, now: int, noted: Arrival) -> None:
    assert note_arrival(known, NOW + now, PERIOD_MS) == noted


def test_an_early_evaluation_counts_as_a_period_after_the_one_before() -> None:
    assert as_of(NOW + 14_500, NOW, PERIOD_MS) == NOW + 15_001
    assert as_of(NOW + 15_500, NOW, PERIOD_MS) == NOW + 15_500
    assert as_of(NOW + 12_000, NOW, PERIOD_MS) == NOW + 12_000
    assert as_of(NOW + 14_500, 0, PERIOD_MS) == NOW + 14_500


class Fleet:
    """HPAs that are polled per namespace on a phase of their own, and a log whose ticks come as they like.

    `jitter_ms`: a poll's answers come up to this late. `late`: share of polls that come 1.9 s late, at most. A
    rebalance: the partition is read back from its rows, and for some seconds nobody ticks.
    """

    def __init__(self, seed: int, *, namespaces: int, each: int, jitter_ms: int, late: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.names = [f"ns-{index}" for index in range(namespaces)]
        self.apps = [f"app-{index}" for index in range(each)]
        self.jitter_ms, self.late = jitter_ms, late
        self.partition = Partition.empty(0)
        self.rows: dict[bytes, bytes] = {}
        self.now_ms = START_MS
        self.behind, self.every = range(0), 1
        """When the decider is behind, and what its ticks say then."""
        self.replicas = {(name, app): 2 for name in self.names for app in self.apps}
        self.given: dict[str, list[tuple[int, int]]] = {name: [] for name in self.names}
        """Namespace -> (when its answers came, how old they were then)."""
        self.evaluated: dict[tuple[str, str], list[int]] = {key: [] for key in self.replicas}
        self.writes: list[tuple[int, str, Outcome]] = []

    def add(self, name: str, *bodies: Body, age_ms: int = 0) -> None:
        """Append a record and fold it; wanted writes are applied some hundred milliseconds later."""
        offset, every = self.partition.applied_offset + 1, self.every if self.now_ms in self.behind else 1
        entries = [
            Entry(
                key=f"eu/{name}" if name else "*",
                body=body,
                source=Source(topic="t", partition=0, offset=offset, index=index, time=self.now_ms - age_ms),
            )
            for index, body in enumerate(bodies)
        ]
        for made in self.partition.apply(offset, self.now_ms, encode(LogRecord(v=1, entries=entries, every=every))):
            self.take(msgspec.json.decode(made.value))

    def take(self, decision: Json) -> None:
        if decision.get("kind") == "completion":
            return
        _, namespace, app = decision["id"].split("-", 2)[2].split("/")
        self.evaluated[namespace, app].append(self.now_ms)
        if decision.get("wants") is not None:
            replicas = self.replicas[namespace, app] = decision["wants"]
            body = Outcome(
                decision=decision["id"], name=app, uid=decision["uid"], result="applied", spec_replicas=replicas
            )
            self.writes.append((self.now_ms + self.random.randrange(50, 900), namespace, body))

    def begin(self, mode: ClusterSettings) -> None:
        self.add("", SettingsSet(cluster="*", settings=mode))
        for name in self.names:
            for app in self.apps:
                metric = {"metric": {"name": app}, "target": {"type": "AverageValue", "averageValue": "10"}}
                hpa = make_hpa(
                    app,
                    f"uid/{name}/{app}",
                    minReplicas=2,
                    maxReplicas=100_000_000,
                    metrics=[{"type": "External", "external": metric}],
                    behavior={"scaleUp": DOUBLING},
                )
                hpa["metadata"]["namespace"] = name
                self.add(name, AutoscalerSet(hpa=hpa), scale(app, 2), PodSet(pod=make_pod(f"{app}-0", app)))

    def run(self, minutes: float, *, load: int, rebalances: bool = True) -> None:
        """Let time pass. `load`: per HPA; a replica carries 10."""
        for due_ms, kind, name in self.schedule(minutes, rebalances):
            self.writes.sort(key=lambda write: write[0])
            while self.writes and self.writes[0][0] <= due_ms:
                self.now_ms, namespace, body = max(self.writes[0][0], self.now_ms), *self.writes.pop(0)[1:]
                self.add(namespace, body)
            self.now_ms = max(self.now_ms, due_ms)
            if kind == "poll":
                age_ms = self.random.randrange(5, 60)
                self.given[name].append((self.now_ms, age_ms))
                self.add(name, Answers(items=[self.answer(app, load) for app in self.apps]), age_ms=age_ms)
            elif kind == "tick":
                self.add("")
            else:
                merge_rows(self.rows, self.partition.checkpoint())
                self.partition = Partition.restore(0, self.rows)

    def answer(self, app: str, load: int) -> MetricAnswer:
        return MetricAnswer(api="external", metric=app, items=[(1000 * load, self.now_ms)])

    def schedule(self, minutes: float, rebalances: bool) -> Iterator[tuple[int, str, str]]:
        """Polls, ticks and rebalances in order of time."""
        length_ms = int(minutes * 60_000)
        found: list[tuple[int, str, str]] = []
        for name in self.names:
            phase = self.random.randrange(PERIOD_MS)
            for at_ms in range(phase, length_ms, PERIOD_MS):
                delay = 1_900 if self.random.random() < self.late else self.random.randrange(self.jitter_ms + 1)
                found.append((START_MS + at_ms + delay, "poll", name))
        restored = [self.random.randrange(length_ms) for _ in range(int(minutes) if rebalances else 0)]
        found += [(START_MS + at_ms, "rebalance", "") for at_ms in restored]
        phase = self.random.randrange(1_000)
        for at_ms in range(phase, length_ms, 1_000):
            if not any(gone_ms <= at_ms < gone_ms + 7_000 for gone_ms in restored):
                found.append((START_MS + at_ms + self.random.randrange(40), "tick", ""))
        return iter(sorted(found))

    def intervals(self) -> list[int]:
        return [later - earlier for times in self.evaluated.values() for earlier, later in pairwise(times)]

    def ages(self) -> list[int]:
        """How old the newest answer was at each evaluation."""
        found = []
        for (name, _), times in self.evaluated.items():
            for at_ms in times:
                found.append(min(at_ms - came + age for came, age in self.given[name] if came <= at_ms))
        return found


@settings(max_examples=examples(10))
@given(
    seed=st.integers(0, 10_000),
    jitter_ms=st.integers(0, 950),
    mode=st.sampled_from([ClusterSettings(), ENFORCING]),
    load=st.sampled_from([20, ENDLESS]),
)
def test_each_answer_brings_one_evaluation_and_nothing_else_does(
    seed: int, jitter_ms: int, mode: ClusterSettings, load: int
) -> None:
    """Whether it writes or not: a write in every period, too, neither shifts an evaluation nor makes it wait."""
    fleet = Fleet(seed, namespaces=3, each=2, jitter_ms=jitter_ms)
    fleet.begin(mode)
    fleet.run(3, load=load)
    for (name, _), times in fleet.evaluated.items():
        # The first evaluation may have waited in vain for an answer that was yet to come.
        assert times[-10:] == [came for came, _ in fleet.given[name]][-10:]
    steady = [later - earlier for times in fleet.evaluated.values() for earlier, later in pairwise(times[-10:])]
    assert all(PERIOD_MS - jitter_ms <= each <= PERIOD_MS + jitter_ms for each in steady)


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 10_000), load=st.sampled_from([20, ENDLESS]))
def test_late_answers_neither_lose_a_period_nor_shift_the_next_ones(seed: int, load: int) -> None:
    fleet = Fleet(seed, namespaces=3, each=1, jitter_ms=200, late=0.2)
    fleet.begin(ENFORCING)
    fleet.run(4, load=load)
    for (name, _), times in fleet.evaluated.items():
        assert times[-13:] == [came for came, _ in fleet.given[name]][-13:]


@settings(max_examples=examples(6))
@given(seed=st.integers(0, 10_000), jitter_ms=st.integers(0, 300))
def test_under_load_a_target_doubles_in_every_period_as_upstreams_does(seed: int, jitter_ms: int) -> None:
    fleet = Fleet(seed, namespaces=1, each=1, jitter_ms=jitter_ms)
    fleet.begin(ENFORCING)
    fleet.run(2, load=ENDLESS)
    evaluations = len(fleet.evaluated["ns-0", "app-0"])
    assert evaluations >= 7
    # The first may wait in vain for an answer, and then it has nothing to go by.
    assert fleet.replicas["ns-0", "app-0"] in (2 << evaluations, 1 << evaluations)


@settings(max_examples=examples(4))
@given(
    seed=st.integers(0, 10_000),
    jitter_ms=st.integers(0, 950),
    mode=st.sampled_from([ClusterSettings(), ENFORCING]),
    load=st.sampled_from([20, ENDLESS]),
    every=st.integers(2, 4),
)
def test_while_the_decider_is_behind_an_hpa_is_evaluated_with_every_so_manieth_answer(
    seed: int, jitter_ms: int, mode: ClusterSettings, load: int, every: int
) -> None:
    """As ticks say; rebalances change nothing, and afterwards each answer brings an evaluation again."""
    fleet = Fleet(seed, namespaces=2, each=2, jitter_ms=jitter_ms)
    begin_ms, end_ms = START_MS + 120_000, START_MS + 360_000
    fleet.behind, fleet.every = range(begin_ms, end_ms), every
    fleet.begin(mode)
    fleet.run(8, load=load)
    for (name, _), times in fleet.evaluated.items():
        answers = [came for came, _ in fleet.given[name]]
        few = [at_ms for at_ms in times if begin_ms + 5_000 <= at_ms < end_ms - 5_000]
        first = answers.index(few[0])
        assert few == answers[first : first + every * len(few) : every]
        assert len(few) >= 230 // (15 * every) - 1
        assert times[-6:] == answers[-6:]


@pytest.mark.parametrize("left", [False, True])
def test_an_agent_gets_a_decision_in_every_sync_period_also_from_a_decider_that_is_behind(left: bool) -> None:
    """Without one for 30 s, its stand-in would take over. HPAs of an agent that has left wait like all others."""
    fleet = Fleet(3, namespaces=2, each=2, jitter_ms=200)
    fleet.behind, fleet.every = range(START_MS + 60_000, START_MS + 600_000), 4
    fleet.begin(ClusterSettings())
    fleet.add("", AgentSet(cluster="eu", incarnation=7))
    if left:
        fleet.add("", AgentSet(cluster="eu", incarnation=7, left=True))
    fleet.run(5, load=20)
    for (name, _), times in fleet.evaluated.items():
        answers = [came for came, _ in fleet.given[name]][-12:]
        assert times[-3:] == answers[-3:] if not left else len([at_ms for at_ms in times if at_ms in answers]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("load", [pytest.param(20, id="at rest"), pytest.param(ENDLESS, id="written in each period")])
def test_two_thousand_hpas_are_evaluated_with_their_answers(load: int) -> None:
    """Polls that jitter by 400 ms, one in fifty 1.9 s late; rebalances; run with `-s` to see the figures."""
    fleet = Fleet(7, namespaces=40, each=50, jitter_ms=400, late=0.02)
    fleet.begin(ENFORCING)
    fleet.run(3, load=load)
    for times in fleet.evaluated.values():
        del times[:2]  # the first may have waited in vain for an answer that was yet to come
    intervals, ages = fleet.intervals(), fleet.ages()
    mean_s = sum(intervals) / len(intervals) / 1000
    print(
        f"\n{len(fleet.evaluated)} HPAs, {len(intervals)} intervals: mean {mean_s:.2f} s, "
        f"{min(intervals) / 1000:.2f} to {max(intervals) / 1000:.2f} s; "
        f"answers {sum(ages) / len(ages):.0f} ms old on average, {max(ages)} ms at most"
    )
    assert abs(mean_s - 15) < 0.1
    assert min(intervals) >= PERIOD_MS - 1_900
    assert max(intervals) <= PERIOD_MS + 1_900
    assert max(ages) < 2_000

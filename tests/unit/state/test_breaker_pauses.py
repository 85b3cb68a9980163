"""Pauses of guardrails in the log: what they hold, whose they are, and that a replay needs no breaker."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.agents import KnownPause
from schemas.codec import encode
from schemas.entries import Body, BreakerCommand, GuardrailResume, PublicRecord
from schemas.inforce import MOST_PAUSES, InForce
from schemas.observed import Command
from schemas.settings import ClusterSettings, EngineSet
from streams.ingest.convert import convert
from streams.ingest.mapping import Mapping, Resolver
from streams.ingest.pieces import RawRecord
from streams.state.guards import GuardrailPauses, after_breaker, after_person, guardrail_in_force
from tests.kit.brakes import MINUTE, World, after
from tests.kit.partition import START_MS, LogBuilder, disturbed_log, fold
from tests.laws import examples

WAITS = BreakerCommand(command="pause", cluster="eu", guardrail="wave", removed=130, replicas=500, window_ms=5 * MINUTE)
PAUSE = msgspec.structs.replace(WAITS, until=START_MS + 10 * MINUTE)
RESUME = BreakerCommand(command="resume", cluster="eu", guardrail="wave")
ENDED = GuardrailResume(cluster="eu", author="ada")
OTHER = BreakerCommand(command="pause", cluster="eu", guardrail="fleet", until=START_MS + 20 * MINUTE)
REMOVED = "130 of 500 replicas removed within 5 min"
TEN = f"scale-downs paused by guardrail wave until 2026-01-01T00:10:00Z: {REMOVED}"


# --- what they hold ---------------------------------------------------------------------------------------------------


def test_scale_downs_are_held_until_the_pause_ends_and_scale_ups_are_not() -> None:
    world = World("web")
    world.log.add(PAUSE)
    held = world.poll(0)["web"]
    assert (held.get("wants"), held["finalDesiredReplicas"], held["paused"]) == (None, 10, TEN)
    assert held["constraintsApplied"] == ["MinReplicas", "Paused"]
    assert after(world.period(90)) == {"web": 18}
    world.log.now_ms = START_MS + 10 * MINUTE
    assert after(world.poll(0)) == {"web": 1}


def test_other_clusters_are_not_held() -> None:
    world = World("web")
    world.log.add(msgspec.structs.replace(PAUSE, cluster="us"))
    assert after(world.poll(0)) == {"web": 1}


def test_a_pause_of_one_namespace_holds_that_one_alone() -> None:
    alone = msgspec.structs.replace(PAUSE, namespace="shop")
    world = World("web")
    world.log.add(msgspec.structs.replace(PAUSE, namespace="batch"))
    assert after(world.poll(0)) == {"web": 1}
    world = World("web")
    world.log.add(alone)
    assert world.poll(0)["web"]["paused"] == f"scale-downs of namespace shop {TEN.removeprefix('scale-downs ')}"
    in_force = InForce()
    in_force.take_breaker(alone, START_MS)
    expected = [KnownPause(kind="scaleDown", namespace="shop", until=PAUSE.until)]
    assert in_force.pauses("eu", START_MS) == expected, "the stand-in keeps to it, too"


@pytest.mark.parametrize(
    ("ended", "left"),
    [
        pytest.param(GuardrailResume(cluster="eu", namespace="shop"), {"eu", "eu/batch", "us"}, id="a namespace"),
        pytest.param(GuardrailResume(cluster="eu"), {"us"}, id="a cluster with its namespaces"),
        pytest.param(GuardrailResume(cluster="*"), set(), id="all"),
    ],
)
def test_what_a_person_ends(ended: GuardrailResume, left: set[str]) -> None:
    known: GuardrailPauses = {}
    for cluster, namespace in (("eu", ""), ("eu", "shop"), ("eu", "batch"), ("us", "")):
        known = after_breaker(known, msgspec.structs.replace(WAITS, cluster=cluster, namespace=namespace), START_MS)
    assert after_person(known, ended).keys() == left


def test_after_the_pause_removals_go_through_the_budget() -> None:
    world = World("web", removal_budget="30%/10m")
    world.log.add(PAUSE)
    assert after(world.poll(0)) == {"web": 10}
    world.log.now_ms = START_MS + 10 * MINUTE
    assert after(world.poll(0)) == {"web": 7}


# --- whose they are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bodies", "text"),
    [
        pytest.param([PAUSE], TEN, id="a pause"),
        pytest.param([PAUSE, RESUME], "", id="ended by the breaker"),
        pytest.param([OTHER, RESUME], OTHER, id="of another guardrail"),
        pytest.param([PAUSE, OTHER], OTHER, id="the longer one is shown"),
        pytest.param([WAITS, OTHER], WAITS, id="one that waits is shown"),
        pytest.param([WAITS, RESUME, PAUSE], WAITS, id="one that waits is not ended or shortened"),
        pytest.param([PAUSE, WAITS], WAITS, id="lengthened until a person resumes"),
    ],
)
def test_the_pause_of_a_cluster(bodies: list[BreakerCommand], text: BreakerCommand | str) -> None:
    known: GuardrailPauses = {}
    in_force = InForce()
    for number, body in enumerate(bodies):
        known = after_breaker(known, body, START_MS + number)
        in_force.take_breaker(body, START_MS + number)
    found = guardrail_in_force(known, "eu", START_MS + MINUTE)
    assert found == (text if isinstance(text, str) else _shown(text))
    pauses = {(each.guardrail, each.until_ms) for each in in_force.guardrail_pauses(START_MS + MINUTE)}
    assert pauses == {(name, pause.until_ms) for name, pause in known.get("eu", {}).items()}


def _shown(body: BreakerCommand) -> str:
    return guardrail_in_force(after_breaker({}, body, 0), "eu", 0)


def test_a_pause_that_waits_for_a_person_says_so() -> None:
    found = guardrail_in_force(after_breaker({}, WAITS, 0), "eu", START_MS + 1_000 * MINUTE)
    assert found == f"scale-downs paused by guardrail wave until a person resumes: {REMOVED}"


def test_a_false_breaker_cannot_make_the_row_grow_without_end() -> None:
    known: GuardrailPauses = {}
    for number in range(MOST_PAUSES + 10):
        known = after_breaker(known, msgspec.structs.replace(WAITS, cluster=f"c{number}"), START_MS)
    assert len(known) == MOST_PAUSES
    known = after_breaker({"eu": {}}, PAUSE, START_MS)
    assert after_breaker(known, OTHER, START_MS + 15 * MINUTE).keys() == {"eu"}
    assert "wave" not in after_breaker(known, OTHER, START_MS + 15 * MINUTE)["eu"], "what has ended is forgotten"


CLUSTERS = st.sampled_from(("eu", "us", "*"))
UNTIL = st.sampled_from((0, START_MS + 2_000, START_MS + MINUTE))
PERSON = st.one_of(
    st.builds(Command, command=st.just("pause"), cluster=CLUSTERS, until=UNTIL, author=st.just("ada")),
    st.builds(Command, command=st.just("resume"), cluster=CLUSTERS, author=st.just("ada")),
)
BREAKER = st.builds(
    BreakerCommand,
    command=st.sampled_from(("pause", "resume")),
    cluster=st.sampled_from(("eu", "us")),
    namespace=st.sampled_from(("", "shop")),
    guardrail=st.sampled_from(("a", "b")),
    until=UNTIL,
)
ENDING = st.one_of(
    st.builds(GuardrailResume, cluster=CLUSTERS, author=st.just("ada")),
    st.builds(GuardrailResume, cluster=st.just("eu"), namespace=st.just("shop"), author=st.just("ada")),
)


def _folded(bodies: Sequence[Body | None]) -> LogBuilder:
    """A log with one record a second; None: an empty one."""
    log = LogBuilder()
    for body in bodies:
        log.now_ms += 1_000
        log.add(*([] if body is None else [body]))
    return log


@given(st.lists(st.one_of(PERSON, BREAKER, ENDING), max_size=12))
def test_neither_the_breaker_nor_a_person_touches_the_others_pauses(bodies: list[Body]) -> None:
    row = _folded(bodies).partition.state.row
    persons = _folded([body if isinstance(body, Command) else None for body in bodies]).partition.state.row
    guardrails = _folded([None if isinstance(body, Command) else body for body in bodies]).partition.state.row
    assert (row.pauses, row.guardrail_pauses) == (persons.pauses, guardrails.guardrail_pauses)


@settings(max_examples=examples(150))
@given(st.lists(st.one_of(BREAKER, ENDING), max_size=12), st.integers(0, 1 << 12), st.integers(0, 90))
def test_who_follows_the_topics_in_any_order_knows_what_the_log_says(
    bodies: list[BreakerCommand | GuardrailResume], order: int, later_s: int
) -> None:
    """Each topic is read in its order, the two of them as it happens: bit n of `order` picks the topic of read n."""
    log, in_force = _folded(bodies), InForce()
    timed = [(START_MS + number * 1_000, body) for number, body in enumerate(bodies, start=1)]
    unread = [[each for each in timed if isinstance(each[1], kind)] for kind in (BreakerCommand, GuardrailResume)]
    for number in range(len(bodies)):
        first = order >> number & 1
        at_ms, body = (unread[first] or unread[1 - first]).pop(0)
        (in_force.take_breaker if isinstance(body, BreakerCommand) else in_force.take)(body, at_ms)
    now_ms = log.now_ms + later_s * 1_000
    recorded = {
        (*scope.partition("/")[::2], name, pause.until_ms)
        for scope, pauses in log.partition.state.row.guardrail_pauses.items()
        for name, pause in pauses.items()
        if guardrail_in_force({scope: {name: pause}}, scope.partition("/")[0], now_ms, "shop")
    }
    assert {each[:4] for each in in_force.guardrail_pauses(now_ms)} == recorded


def test_a_pause_that_follows_a_command_holds_though_the_command_is_read_last() -> None:
    known: GuardrailPauses = after_breaker(after_person(after_breaker({}, WAITS, 10), ENDED), PAUSE, 30)
    in_force = InForce()
    for at_ms, body in ((10, WAITS), (30, PAUSE)):
        in_force.take_breaker(body, at_ms)
    assert [each.until_ms for each in in_force.guardrail_pauses(40)] == [0], "the person's word is not known yet"
    in_force.take(ENDED, 20)
    assert [each.until_ms for each in in_force.guardrail_pauses(40)] == [known["eu"]["wave"].until_ms] == [PAUSE.until]


def test_a_false_breaker_cannot_fill_who_follows_it() -> None:
    in_force = InForce()
    for number in range(MOST_PAUSES + 10):
        in_force.take_breaker(msgspec.structs.replace(PAUSE, cluster=f"c{number}"), START_MS)
    assert len(in_force.guardrail_pauses(START_MS)) == MOST_PAUSES
    in_force.take_breaker(OTHER, PAUSE.until)
    assert [each.guardrail for each in in_force.guardrail_pauses(PAUSE.until)] == ["fleet"], "what has ended makes room"


def test_what_ends_a_pause_may_be_read_before_it() -> None:
    in_force = InForce()
    in_force.take(GuardrailResume(cluster="*"), 20)
    in_force.take_breaker(WAITS, 10)
    assert in_force.guardrail_pauses(30) == []
    in_force.take_breaker(WAITS, 40)
    assert [each.since_ms for each in in_force.guardrail_pauses(50)] == [40]


def test_an_agents_stand_in_keeps_to_a_guardrails_pause() -> None:
    in_force = InForce()
    in_force.take_breaker(PAUSE, START_MS)
    in_force.take(Command(command="pause", cluster="eu", pause_kind="scaleDown"), START_MS)
    in_force.take(Command(command="resume", cluster="eu"), START_MS)
    assert in_force.pauses("eu", START_MS) == [KnownPause(kind="scaleDown", until=PAUSE.until)]
    assert in_force.pauses("us", START_MS) == []
    assert in_force.pauses("eu", PAUSE.until) == []


# --- the log alone decides --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_a_replay_needs_no_breaker(seed: int) -> None:
    log = disturbed_log(seed, braking=ClusterSettings(removal_budget="40%/2m", downscale_stabilization_ms=0))
    partition, decisions = fold(log.records)
    assert decisions == [made.value for made in log.decisions]
    assert partition.state.row == log.partition.state.row
    assert any(b"guardrail" in record.value for record in log.records)


# --- a hostile breaker ------------------------------------------------------------------------------------------------


def _converted(topic: str, *entries: object) -> str:
    value = encode(PublicRecord(v=1, entries=list(entries)))  # type: ignore[arg-type]
    found = convert(RawRecord(topic, 0, 0, START_MS, value), Resolver(Mapping()))
    return found.reason() if found.result != "ok" else ""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(PAUSE, "", id="a pause"),
        pytest.param(RESUME, "", id="a resume"),
        pytest.param(msgspec.structs.replace(PAUSE, cluster="*"), "cluster '*'", id="all clusters at once"),
        pytest.param(msgspec.structs.replace(PAUSE, namespace="shop"), "", id="of one namespace"),
        pytest.param(msgspec.structs.replace(PAUSE, namespace="a/b"), "'a/b'", id="of no namespace that can be"),
        pytest.param(msgspec.structs.replace(PAUSE, guardrail=""), "guardrail ''", id="of no guardrail"),
        pytest.param(msgspec.structs.replace(PAUSE, guardrail="x" * 64), "1-63", id="a long name"),
        pytest.param(msgspec.structs.replace(PAUSE, until=-1), ">= 0 - at `$.entries[0].until`", id="before all time"),
        pytest.param(msgspec.structs.replace(PAUSE, window_ms=MINUTE * 61), "windowMs", id="a long window"),
        pytest.param(Command(command="pause", cluster="eu"), "not read from fleethpa.breaker", id="a person's pause"),
        pytest.param(Command(command="mode", mode="off"), "not read from fleethpa.breaker", id="a mode"),
        pytest.param(EngineSet(engine=1), "not read from fleethpa.breaker", id="an engine"),
        pytest.param(GuardrailResume(cluster="eu"), "send it to fleethpa.settings", id="a person's word"),
    ],
)
def test_the_breakers_topic_says_pause_and_resume_only(body: Body, text: str) -> None:
    found = _converted(topics.BREAKER, body)
    assert (text in found) if text else not found


@pytest.mark.parametrize("topic", [topic for topic in topics.PUBLIC_TOPICS if topic != topics.BREAKER])
def test_no_other_topic_speaks_for_the_breaker(topic: str) -> None:
    assert "send it to fleethpa.breaker" in _converted(topic, PAUSE)

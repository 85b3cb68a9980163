"""Guardrails: rules over removals, on events and on recorded decisions."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fleethpa.frame.configuration import Config
from fleethpa.processes.breaker import Breaker, BreakerConfig
from schemas.codec import encode
from schemas.entries import Body, BreakerCommand, GuardrailResume
from schemas.settings import ClusterSettings, Guardrail, Guardrails, SettingsSet, problems
from streams.analysis.guardrailruns import EventReader, GuardedEvent, GuardrailRun, Trip, run_guardrails
from streams.archive.layout import DECISIONS, ArchivedRecord, archived_record
from streams.state.records import print_time
from tests.kit.brakes import World
from tests.kit.cli import Cli, Fleet
from tests.kit.memorypast import MemoryPast
from tests.kit.published import fits

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
CLUSTER = Guardrail(name="wave", window="5m", removed_percent=25, least_removed=10, pause="15m")
FLEET = Guardrail(name="fleet", scope="fleet", window="5m", removed_percent=20, least_removed=1, pause="15m")


def sizes(cluster: str, hpas: int, replicas: int = 10) -> list[GuardedEvent]:
    return [GuardedEvent(0, cluster, f"{cluster}/shop/{index}", replicas, 0) for index in range(hpas)]


def removal(time_ms: int, cluster: str, index: int, removed: int, replicas: int = 10) -> GuardedEvent:
    return GuardedEvent(time_ms, cluster, f"{cluster}/shop/{index}", replicas, removed)


def wave(cluster: str, hpas: int, removed: int, at_ms: int = MINUTE) -> list[GuardedEvent]:
    return [removal(at_ms + index, cluster, index, removed) for index in range(hpas)]


def trips(rules: list[Guardrail], *events: list[GuardedEvent]) -> list[Trip]:
    return run_guardrails(rules, [each for part in events for each in part])


def test_a_rule_trips_at_its_percentage_and_counts_what_the_pause_holds() -> None:
    (trip,) = trips([CLUSTER], sizes("east", 10), wave("east", 10, 5))
    # 25 of 100 replicas are reached with the fifth HPA; the other five are held for the 15 minutes.
    assert (trip.time, trip.removed, trip.replicas) == (MINUTE + 4, 25, 100)
    assert trip.until == MINUTE + 4 + 15 * MINUTE
    assert (trip.held, trip.held_hpas) == (25, 5)
    assert trip.cost_replica_hours == pytest.approx(25 * 0.25, abs=0.01)


@pytest.mark.parametrize(
    ("events", "count"),
    [
        pytest.param(wave("east", 4, 6), 0, id="24 of 100"),
        pytest.param(wave("east", 1, 9), 0, id="fewer than the least"),
        pytest.param(wave("east", 2, 10) + wave("east", 2, 10, 7 * MINUTE), 0, id="in two windows"),
        pytest.param([*wave("east", 2, 10), removal(3 * MINUTE, "east", 5, 5)], 1, id="in one window"),
    ],
)
def test_the_window_slides(events: list[GuardedEvent], count: int) -> None:
    assert len(trips([CLUSTER], sizes("east", 10), events)) == count


def test_the_percentage_is_of_the_most_that_was_there_in_the_window() -> None:
    shrinking = [GuardedEvent(MINUTE, "east", f"east/shop/{index}", 5, 0) for index in range(10)]
    assert trips([CLUSTER], sizes("east", 10), shrinking, wave("east", 4, 5, 2 * MINUTE)) == []


def test_the_third_trip_within_an_hour_waits_for_a_person() -> None:
    waves = [wave("east", 10, 5, at * 20 * MINUTE) for at in range(1, 4)]
    found = trips([CLUSTER], sizes("east", 10), *waves)
    assert [trip.until is None for trip in found] == [False, False, True]


def test_the_fleet_counts_three_clusters_at_least() -> None:
    clusters = ("east", "north", "west")
    both = [each for cluster in clusters[:2] for each in wave(cluster, 10, 5)]
    everywhere = [each for cluster in clusters for each in wave(cluster, 10, 5)]
    known = [each for cluster in clusters for each in sizes(cluster, 10)]
    assert trips([FLEET], known, both) == []
    assert {trip.cluster for trip in trips([FLEET], known, everywhere)} == set(clusters)


def test_one_hostile_cluster_cannot_stop_the_fleet() -> None:
    """A cluster that is larger than all others together counts for 40 % at most, and only itself is above the rule."""
    known = sizes("big", 100) + [each for name in ("a", "b", "c") for each in sizes(name, 10)]
    calm = [removal(MINUTE, name, 0, 1) for name in ("a", "b")]
    found = trips([FLEET], known, calm, wave("big", 100, 9, 2 * MINUTE))
    assert {trip.cluster for trip in found} <= {"big"}


# --- one namespace beside the others ----------------------------------------------------------------------------------


def spread(cluster: str, namespaces: int, removed: int = 0, at_ms: int = 0) -> list[GuardedEvent]:
    """Ten replicas in each namespace, and how many of them are removed there."""
    names = [f"{cluster}/ns-{number}/web" for number in range(namespaces)]
    return [GuardedEvent(at_ms + number, cluster, name, 10, removed) for number, name in enumerate(names)]


def tenant(at_ms: int, replicas: int, removed: int = 0) -> GuardedEvent:
    return GuardedEvent(at_ms, "east", "east/tenant/web", replicas, removed)


def test_a_wave_over_several_namespaces_pauses_the_cluster() -> None:
    (trip,) = trips([CLUSTER], spread("east", 10), spread("east", 10, 5, MINUTE))
    assert (trip.cluster, trip.namespace, trip.removed, trip.replicas) == ("east", "", 25, 100)


def test_one_namespace_that_shrinks_again_and_again_pauses_itself_alone() -> None:
    steps = [(0, 1_000, 900), (MINUTE, 100, 0), (5 * MINUTE, 1_000, 0)]
    shrinking = [tenant(20 * at * MINUTE + later, *change) for at in range(1, 4) for later, *change in steps]
    found = trips([CLUSTER], spread("east", 50), [tenant(0, 1_000)], shrinking)
    assert [(trip.namespace, trip.until is None) for trip in found] == [
        ("tenant", False),
        ("tenant", False),
        ("tenant", True),
    ]


@pytest.mark.parametrize(
    ("replicas", "at"),
    [
        pytest.param(0, 25, id="no pod of it was ever ready: 125 of 500"),
        pytest.param(1_000_000, 50, id="it counts for as much as all the others: 250 of 1000"),
    ],
)
def test_a_giant_namespace_does_not_hide_a_wave(replicas: int, at: int) -> None:
    found = trips([CLUSTER], spread("east", 50), [tenant(0, replicas)], spread("east", 50, 5, MINUTE))
    assert [(trip.namespace, trip.time - MINUTE) for trip in found] == [("", at - 1)]


def test_in_records_replicas_count_that_have_been_ready() -> None:
    reader = EventReader()
    where = {"cluster": "east", "namespace": "tenant", "name": "web", "mode": "enforce"}
    seen = [(1_000_000, 10, None), (1_000_000, 0, 100), (100, None, 5)]
    records = [
        encode(
            where
            | {"time": print_time(number * MINUTE), "currentReplicas": spec, "wants": wants}
            | {"observed": {} if ready is None else {"readyPods": ready}}
        )
        for number, (spec, ready, wants) in enumerate(seen)
    ]
    found = [(event.replicas, event.removed) for value in records for event in reader.take(value)]
    assert found == [(10, 0), (100, 95)]


def test_replicas_of_a_fleet_hpa_count_once_where_they_run() -> None:
    where = {"namespace": "shop", "name": "web", "mode": "enforce", "time": print_time(MINUTE)}
    reader = EventReader()
    values = [
        encode(where | {"cluster": name, "currentReplicas": count}) for name, count in (("@fleet", 9), ("east", 5))
    ]
    assert [event.cluster for value in values for event in reader.take(value)] == ["east"]


@given(st.lists(st.tuples(st.integers(1, 3_600), st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30))
def test_no_namespace_trips_a_rule_for_the_others(steps: list[tuple[int, int, int]]) -> None:
    at_ms, events = 0, spread("east", 5)
    for later_s, replicas, removed in steps:
        at_ms += later_s * SECOND
        events.append(tenant(at_ms, replicas, min(replicas, removed)))
    assert {trip.namespace for trip in trips([structs.replace(CLUSTER, least_removed=1)], events)} <= {"tenant"}


def test_the_fleets_rule_pauses_one_namespace_alone_where_it_alone_removes() -> None:
    known = [each for name in ("a", "b", "c") for each in spread(name, 10)]
    waves = [each for name in ("a", "b", "c") for each in spread(name, 10, 5, MINUTE)]
    alone = [each for each in waves if each.cluster != "a" or each.namespace in ("ns-0",)]
    big = [GuardedEvent(0, "a", "a/tenant/web", 100, 0), GuardedEvent(MINUTE, "a", "a/tenant/web", 100, 90)]
    found = {(trip.cluster, trip.namespace) for trip in trips([FLEET], known, alone, big)}
    assert found == {("a", "tenant"), ("b", ""), ("c", "")}


def test_shadow_and_short_records_change_nothing() -> None:
    world = World("web")
    world.poll(0)
    reader = EventReader()
    events = [event for made in world.log.decisions for event in reader.take(made.value)]
    assert [(event.replicas, event.removed) for event in events] == [(10, 0), (10, 9)]
    shadow = World("web", default_mode="shadow")
    shadow.poll(0)
    assert not any(EventReader().take(made.value) for made in shadow.log.decisions)


def _full_record(name: str, minute: int, replicas: int) -> bytes:
    where = {"cluster": "east", "namespace": "shop", "name": name, "time": print_time(minute * MINUTE)}
    return encode(where | {"mode": "enforce", "currentReplicas": replicas})


def test_the_replicas_of_hpas_that_are_gone_are_no_longer_counted() -> None:
    reader, run = EventReader(), GuardrailRun([CLUSTER])
    found: list[GuardedEvent] = []
    for minute in range(0, 80, 10):  # deciders write a full record every ten minutes
        records = [_full_record("web", minute, 20)]
        if minute < 20:
            records += [_full_record(f"preview-{number}", minute, 50) for number in range(10)]
        for value in records:
            for event in reader.take(value):
                found.append(event)
                run.watch(event)
    assert {(event.hpa, event.replicas) for event in found if event.time_ms == 50 * MINUTE} == {
        (f"east/shop/preview-{number}", 0) for number in range(10)
    }
    assert [event for event in found if event.hpa == "east/shop/web"] == [
        GuardedEvent(0, "east", "east/shop/web", 20, 0)
    ]
    # 16 of 30 is above the rule; of 530, if those that are gone still counted, it would be far below.
    assert [trip.cluster for trip in run.take(removal(80 * MINUTE, "east", 0, 16))] == ["east"]


def test_the_order_in_which_partitions_are_read_does_not_matter() -> None:
    events = sizes("east", 10) + wave("east", 10, 5) + sizes("west", 5) + wave("west", 5, 8)
    expected = run_guardrails([CLUSTER, FLEET], events)
    assert expected
    random.Random(7).shuffle(events)
    assert run_guardrails([CLUSTER, FLEET], events) == expected


def test_a_run_gives_its_trips_as_they_happen() -> None:
    run = GuardrailRun([CLUSTER])
    made = [trip for event in sizes("east", 10) + wave("east", 10, 5) for trip in run.take(event)]
    assert [(trip.time, trip.held) for trip in made] == [(MINUTE + 4, 0)]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"window": "5"}, "rules[0].window: duration", id="no duration"),
        pytest.param({"pause": "2h"}, "rules[0].pause: 2h must be from 1m to 1h", id="too long"),
        pytest.param({"name": ""}, "rules[0].name", id="no name"),
        pytest.param({"name": "x" * 64}, "rules[0].name", id="a name that no entry can hold"),
        pytest.param({"act": True, "actFrom": "tomorrow"}, "rules[0].actFrom: 'tomorrow' must be a time", id="no time"),
        pytest.param({"actFrom": "2026-12-06T08:00:00Z"}, "rules[0].actFrom: it has no effect", id="without act"),
    ],
)
def test_what_is_wrong_with_a_rule_is_reported_with_its_place(changes: dict[str, Any], text: str) -> None:
    rule = {"name": "wave", "removedPercent": 25} | changes
    found = problems(
        msgspec.convert({"apiVersion": "fleethpa.io/v1", "kind": "Guardrails", "rules": [rule]}, Guardrails)
    )
    assert any(each.startswith(text) for each in found)


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch)


def written(**changes: Any) -> str:
    rule = {"name": "wave", "removedPercent": 1, "leastRemoved": 1} | changes
    document = {"apiVersion": "fleethpa.io/v1", "kind": "Guardrails", "rules": [rule]}
    Path("guardrails.yaml").write_text(yaml.safe_dump(document))
    return "guardrails.yaml"


def test_the_rules_that_are_shipped_report_and_are_those_of_the_chart(run: Cli) -> None:
    root = Path(__file__).parents[3]
    rules = yaml.safe_load((root / "examples/guardrails.yaml").read_text())["rules"]
    chart = yaml.safe_load((root / "compose/helm/fleethpa/values.yaml").read_text())["breaker"]
    assert (chart["enabled"], chart["rules"]) == (False, rules)
    assert not any("act" in rule for rule in rules)


def test_lint(run: Cli) -> None:
    example = Path(__file__).parents[3] / "examples" / "guardrails.yaml"
    assert run("guardrails", "lint", str(example)).exit_code == 0
    for changes, text in (
        ({"removedPercent": 101}, "rules[0].removedPercent: expected `int` <= 100"),
        ({"removedPercent": 0}, "rules[0].removedPercent: expected `int` >= 1"),
        ({"leastRemoved": 0}, "rules[0].leastRemoved: expected `int` >= 1"),
    ):
        wrong = run("guardrails", "lint", written(**changes))
        assert (wrong.exit_code, text in wrong.stdout) == (1, True)
    unknown = run("guardrails", "lint", written(scpoe="fleet"))
    assert (unknown.exit_code, "scpoe" in unknown.stdout) == (1, True)
    assert run("guardrails", "lint", "nosuch.yaml").exit_code == 2
    assert run("guardrails", "lint", "-f", str(example)).exit_code == 0
    for none_or_two in ((), (str(example), "-f", str(example))):
        assert "guardrails lint -f guardrails.yaml" in run("guardrails", "lint", *none_or_two).stderr


def test_the_recorded_past(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    fleet = Fleet()
    fleet.settle(replicas=10, usage_milli=300)
    run = Cli(monkeypatch, fleet)
    quiet = run("guardrails", "test", "-f", written(removedPercent=100, leastRemoved=1000), "--since", "30d")
    assert (quiet.exit_code, quiet.stdout) == (0, "wave: never tripped\n")
    document = fits("GuardrailReport", run("guardrails", "test", "-f", "guardrails.yaml", "-o", "json").stdout)
    assert document["decisions"] == len(fleet.values)
    refused = run("guardrails", "test", "-f", written(window="3h"))
    assert (refused.exit_code, "fleethpa guardrails lint guardrails.yaml" in refused.stderr) == (2, True)


# --- the process ------------------------------------------------------------------------------------------------------


class _Arriving(MemoryPast):
    """A past of which the last records arrive only now."""

    def __init__(self, values: list[bytes], known: int) -> None:
        records = [archived_record(offset, 0, b"", (), value) for offset, value in enumerate(values)]
        super().__init__({(DECISIONS, 0): records[:known]})
        self.coming = records

    async def arriving(self, positions: dict[int, int]) -> AsyncGenerator[tuple[int, ArchivedRecord], None]:
        for record in self.coming[positions[0] :]:
            yield 0, record


@pytest.mark.parametrize(("known", "tripped"), [(0, 1.0), (3, 1.0), (None, None)])
def test_the_breaker_reports_what_trips_from_its_start_on(
    known: int | None, tripped: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = World("api", "web")
    world.poll(0)
    values = [made.value for made in world.log.decisions]
    rule = Guardrail(name="wave", removed_percent=80, least_removed=1)
    breaker = Breaker(BreakerConfig(config=Config(), rules=[rule], clock=lambda: world.log.now_ms))
    asyncio.run(breaker.follow(_Arriving(values, len(values) if known is None else known)))
    sample = breaker.health.registry.get_sample_value(
        "fleethpa_breaker_trips_total", {"rule": "wave", "cluster": "eu", "namespace": "shop"}
    )
    assert sample == tripped
    assert ("fleethpa pause -C eu -n shop --scale-in --for 15m" in caplog.text) == bool(tripped)


ACTS = Guardrail(name="wave", removed_percent=80, least_removed=1, act=True)


class _Followed:
    """What a breaker publishes of a wave of removals in cluster `eu`, after what it received before."""

    def __init__(
        self,
        *rules: Guardrail,
        received: Sequence[tuple[int, Body]] = (),
        settings: Sequence[SettingsSet] = (),
        **world: Any,
    ) -> None:
        self.world = World("api", "web", **world)
        self.world.poll(0)
        self.now_ms = self.world.log.now_ms
        self.published: list[BreakerCommand] = []
        self.breaker = Breaker(BreakerConfig(config=Config(), rules=rules, clock=lambda: self.now_ms))
        for ago_ms, body in received:
            (self.breaker.take_breaker if isinstance(body, BreakerCommand) else self.breaker.take)(
                body, self.now_ms - ago_ms
            )
        for each in settings:
            self.breaker.take(each, 0)
        values = [made.value for made in self.world.log.decisions]
        asyncio.run(self.breaker.follow(_Arriving(values, 0), self.publish))

    async def publish(self, body: BreakerCommand) -> None:
        self.published.append(body)

    def metric(self, name: str, rule: str = "wave") -> float | None:
        return self.breaker.health.registry.get_sample_value(name, {"rule": rule, "cluster": "eu", "namespace": "shop"})


def paused(ago_ms: int, **changes: Any) -> tuple[int, Body]:
    usual = {"command": "pause", "cluster": "eu", "namespace": "shop", "guardrail": "wave"}
    return ago_ms, BreakerCommand(**(usual | changes))


def test_a_rule_that_acts_pauses_what_it_trips_for() -> None:
    done = _Followed(ACTS)
    until_ms = done.now_ms + 15 * MINUTE
    assert done.published == [
        BreakerCommand(
            command="pause",
            cluster="eu",
            namespace="shop",
            guardrail="wave",
            until=until_ms,
            removed=18,
            replicas=20,
            window_ms=5 * MINUTE,
        )
    ]
    done.breaker.take_breaker(done.published[0], done.now_ms)
    assert done.metric("fleethpa_breaker_paused_until_timestamp_seconds") == until_ms / 1000
    done.breaker.take(GuardrailResume(cluster="*"), done.now_ms + 1)
    assert done.metric("fleethpa_breaker_paused_until_timestamp_seconds") == 0


@pytest.mark.parametrize(
    ("rules", "guardrails"),
    [
        pytest.param([structs.replace(ACTS, act=False)], [], id="one that only reports"),
        pytest.param([structs.replace(ACTS, act_from="2099-01-01T00:00:00Z")], [], id="one that acts later"),
        pytest.param([structs.replace(ACTS, act_from="2020-01-01T00:00:00Z")], ["wave"], id="one whose day came"),
        pytest.param(
            [Guardrail(name="early", removed_percent=1, least_removed=1), ACTS],
            ["wave"],
            id="one that reports hides none",
        ),
    ],
)
def test_which_rules_pause(rules: list[Guardrail], guardrails: list[str]) -> None:
    done = _Followed(*rules)
    assert [body.guardrail for body in done.published] == guardrails
    assert {rule.name: done.metric("fleethpa_breaker_trips_total", rule.name) for rule in rules} == {
        rule.name: 1.0 for rule in rules
    }


@pytest.mark.parametrize(
    ("received", "waits"),
    [
        pytest.param([paused(50 * MINUTE, until=1), paused(20 * MINUTE, until=1)], True, id="two within the hour"),
        pytest.param([paused(70 * MINUTE, until=1), paused(20 * MINUTE, until=1)], False, id="one of them before"),
        pytest.param([paused(50 * MINUTE, until=1), paused(20 * MINUTE, until=1, cluster="us")], False, id="elsewhere"),
        pytest.param([paused(50 * MINUTE, until=1), paused(50 * MINUTE - SECOND, until=1)], False, id="twice the same"),
    ],
)
def test_a_breaker_that_starts_again_knows_the_trips_of_the_hour(received: list[tuple[int, Body]], waits: bool) -> None:
    assert [not body.until for body in _Followed(ACTS, received=received).published] == [waits]


@pytest.mark.parametrize(
    ("rule", "settings", "warned"),
    [
        pytest.param(ACTS, [], True, id="no settings"),
        pytest.param(ACTS, [("eu", {"removal_budget": "30%/10m"})], False, id="a budget"),
        pytest.param(ACTS, [("*", {"removal_budget": "30%/10m"})], False, id="a budget of all clusters"),
        pytest.param(ACTS, [("us", {"removal_budget": "30%/10m"})], True, id="of another cluster"),
        pytest.param(ACTS, [("*", {"removal_budget": "30%/10m"}), ("eu", {"removal_budget": "off"})], True, id="off"),
        pytest.param(ACTS, [("eu", {"removal_budgets": {"*": "5/10m"}})], False, id="of every namespace"),
        pytest.param(ACTS, [("eu", {"removal_budgets": {"shop": "5/10m"}})], True, id="of one namespace"),
        pytest.param(structs.replace(ACTS, act=False), [], False, id="a rule that only reports"),
    ],
)
def test_a_rule_that_acts_without_a_budget_is_warned_of(
    rule: Guardrail, settings: list[tuple[str, dict[str, Any]]], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    words = [SettingsSet(cluster=cluster, settings=ClusterSettings(**each)) for cluster, each in settings]
    done = _Followed(rule, settings=words)
    assert caplog.text.count("fleethpa settings eu removal-budget=30%/10m") == warned
    count = done.breaker.health.registry.get_sample_value("fleethpa_breaker_clusters_without_budget")
    assert count == warned
    done.breaker.take(SettingsSet(cluster="*", settings=ClusterSettings(removal_budget="20%/5m")), 0)
    count = done.breaker.health.registry.get_sample_value("fleethpa_breaker_clusters_without_budget")
    assert count == (warned and any(each.get("removal_budget") == "off" for _, each in settings))


def test_what_a_breaker_beside_it_paused_is_not_paused_again() -> None:
    assert _Followed(ACTS, received=[paused(SECOND, until=2**50)]).published == []


def test_pauses_of_rules_that_no_longer_act_are_ended_but_for_those_that_wait_for_a_person() -> None:
    received = [paused(MINUTE, until=2**50, guardrail="gone"), paused(MINUTE, guardrail="waits")]
    report = structs.replace(ACTS, act=False)
    assert _Followed(report, received=received).published == [
        BreakerCommand(command="resume", cluster="eu", namespace="shop", guardrail="gone")
    ]


def test_what_was_removed_before_a_person_resumed_counts_no_more() -> None:
    rule = structs.replace(ACTS, removed_percent=25)
    run = GuardrailRun([rule], Guardrail.acts_at)
    for event in sizes("eu", 10) + wave("eu", 4, 7):
        run.take(event)
    assert run.take(removal(MINUTE + 10, "eu", 4, 8)) == [], "held by the pause"
    run.resumed("eu", MINUTE + 20)
    assert run.take(removal(MINUTE + 30, "eu", 4, 8)) == []
    assert [trip.removed for trip in run.take(removal(MINUTE + 40, "eu", 5, 20))] == [28]


@pytest.mark.parametrize("late_ms", [0, 5 * MINUTE, -5 * MINUTE])
def test_a_pause_of_this_breaker_counts_once_whenever_its_record_was_written(late_ms: int) -> None:
    """It was behind, or its clock is not that of the log: the second trip must not wait for a person."""
    run, found = GuardrailRun([structs.replace(ACTS, removed_percent=25)], Guardrail.acts_at), list[Trip]()
    for event in [*sizes("eu", 10), *wave("eu", 4, 7), *wave("eu", 4, 7, at_ms=30 * MINUTE)]:
        for trip in run.take(event):
            found.append(trip)
            body = BreakerCommand(
                command="pause", cluster="eu", namespace=trip.namespace, guardrail="wave", until=trip.until or 0
            )
            run.began(body, trip.time + late_ms)
    assert [trip.until is not None for trip in found] == [True, True]


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b"[]", b'{"time": 5}', b'{"time": "soon", "mode": "enforce"}'])
def test_a_decision_that_cannot_be_read_does_not_end_the_breaker(value: bytes) -> None:
    world = World("api", "web")
    world.poll(0)
    values = [value, *(made.value for made in world.log.decisions), value]
    for known in (0, 1):
        breaker = Breaker(BreakerConfig(config=Config(), rules=[ACTS], clock=lambda: world.log.now_ms))
        asyncio.run(breaker.follow(_Arriving(values, known)))
        trips = {"rule": "wave", "cluster": "eu", "namespace": "shop"}
        assert breaker.health.registry.get_sample_value("fleethpa_breaker_trips_total", trips) == 1.0

"""Schedules: what holds when, what is published, and what apply, diff and rollouts make of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka.errors import KafkaTimeoutError
from hypothesis import given, settings
from hypothesis import strategies as st

from fleethpa.changes.manifests import check_hpa, read_input
from fleethpa.changes.schedules import (
    ANNOTATION,
    ReplicaSchedule,
    due,
    kept_by,
    made,
    next_change_ms,
    rule_at,
    schedule_of,
    spec_at,
    with_schedule,
)
from fleethpa.fleet.state import read_state
from fleethpa.frame.configuration import load
from fleethpa.frame.errors import CommandError
from fleethpa.processes import scheduler as schedulerpart
from fleethpa.processes.scheduler import Scheduler, SchedulerConfig
from schemas.observed import AutoscalerSet
from tests.kit.cli import Broker, Cli, Fleet
from tests.kit.published import fits
from tests.laws import examples
from tests.patience import PATIENCE_S
from tests.unit.cli.test_cli_write import GOOD

NAME = "east/shop/web"
RULES = ("Mon-Fri 07:00-20:00 minReplicas=5", "Mon 12:00-13:00 minReplicas=7,cpu=70%")
MANIFEST = GOOD.replace(
    "maxReplicas: 8",
    "minReplicas: 2\n  maxReplicas: 8\n  metrics:\n"
    "    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}",
)


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


MONDAY_NOON, MONDAY_NIGHT = at("2026-01-05T12:30"), at("2026-01-05T23:00")


def body(tmp_path: Path, text: str = MANIFEST) -> dict[str, Any]:
    path = tmp_path / "hpa.yaml"
    path.write_text(text)
    found, errors = check_hpa(read_input((str(path),)).hpas[0], "shop")
    assert not errors
    return found


def values(spec: dict[str, Any]) -> tuple[int, int]:
    return spec["minReplicas"], spec["metrics"][0]["resource"]["target"]["averageUtilization"]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """A fleet with a cluster's own HPA `checkout` and a central one, `web`."""
    found = Fleet()
    found.settle()
    found.append(AutoscalerSet(hpa=body(tmp_path), origin="central", mode="shadow"))
    found.checkpoint()
    return found


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()

    @asynccontextmanager
    async def opened(config: Any) -> AsyncIterator[Broker]:
        yield found

    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, broker: Broker, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch, fleet)


def carried_out(fleet: Fleet, broker: Broker) -> AutoscalerSet:
    """Put into the log what was written last."""
    _, _, written = broker.written[-1]
    assert isinstance(written, AutoscalerSet)
    fleet.append(written)
    return written


# --- what holds when --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        pytest.param("2026-01-05T06:59", (2, 50), id="before"),
        pytest.param("2026-01-05T07:00", (5, 50), id="the first rule"),
        pytest.param("2026-01-05T12:00", (7, 70), id="the last rule that holds wins"),
        pytest.param("2026-01-06T12:00", (5, 50), id="another day: what the other rule sets is as before"),
        pytest.param("2026-01-10T12:00", (2, 50), id="the weekend"),
    ],
)
def test_the_spec_of_a_moment(tmp_path: Path, moment: str, expected: tuple[int, int]) -> None:
    hpa = body(tmp_path)
    schedule = made(hpa, RULES, "UTC")

    assert values(spec_at(hpa, schedule, at(moment))) == expected
    changed = with_schedule(hpa, schedule, spec_at(hpa, schedule, MONDAY_NOON))
    assert values(spec_at(changed, schedule, at(moment))) == expected  # from whatever it has now


def test_the_next_change_is_found_to_the_minute(tmp_path: Path) -> None:
    schedule = made(body(tmp_path), RULES, "Europe/Berlin")

    assert next_change_ms(schedule, at("2026-01-05T10:00")) == at("2026-01-05T11:00")
    assert next_change_ms(schedule, at("2026-01-09T20:00")) == at("2026-01-12T06:00")  # from Friday to Monday
    dated = made(body(tmp_path), ("12-24..01-02 18:00-24:00 minReplicas=3", "monthly 3 06:00-07:00 cpu=60%"), "UTC")
    assert next_change_ms(dated, at("2026-01-03T08:00")) == at("2026-02-03T06:00")
    assert next_change_ms(dated, at("2026-12-03T08:00")) == at("2026-12-24T18:00")
    always = made(body(tmp_path), ("daily 00:00-24:00 minReplicas=3",), "UTC")
    assert next_change_ms(always, MONDAY_NOON) is None


@settings(max_examples=examples(40))
@given(
    st.sampled_from(
        ("2026-03-28T20:30", "2026-10-24T21:00", "2026-10-25T00:30", "2026-06-30T12:15", "2026-12-31T02:00")
    ),
    st.lists(
        st.tuples(
            st.sampled_from(
                ("daily", "Sun", "monthly last", "monthly 1,29", "2026-03-29", "10-25..10-26", "12-31..01-01")
            ),
            st.sampled_from(("02:30-03:00", "02:10-02:50", "23:00-02:30", "00:00-24:00", "07:00-08:00", "00:00-00:01")),
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")),
)
def test_the_next_change_is_the_first_minute_of_another_rule(
    moment: str, rules: list[tuple[str, str]], zone: str
) -> None:
    """Also where the clock is put forward or back: every minute of three days is looked at."""
    texts = [f"{days} {times} minReplicas={count}" for count, (days, times) in enumerate(rules)]
    schedule, begin_ms = ReplicaSchedule(time_zone=zone, rules=texts, otherwise=["minReplicas=2"]), at(moment)
    minutes = range(begin_ms + 60_000, begin_ms + 3 * 86_400_000, 60_000)
    now = rule_at(schedule, begin_ms)
    expected = next((each for each in minutes if rule_at(schedule, each) != now), None)

    found = next_change_ms(schedule, begin_ms)
    assert found == expected or (expected is None and (found is None or found >= minutes.stop))


@pytest.mark.parametrize(
    ("rule", "stated"),
    [
        ("daily 07:00-08:00 speed=3", "no such field or metric"),
        ("daily 07:00-08:00 minReplicas=20", "is invalid"),
        ("daily 07:00-08:00 minReplicas=many", "takes a whole number"),
        ("at night minReplicas=3", "is not a rule"),
        ("daily 07:00-08:00", "is not a rule"),
        ("monthly 1,15 08:00-18:00", "A rule has days, times and settings"),
        ("monthly 1,32 08:00-18:00 minReplicas=3", "'32' is not a day of the month"),
        ("2026-02-30 08:00-18:00 minReplicas=3", "'2026-02-30' is not a date"),
        ("12-24..12-26 00:00-24:00 minReplicas=20", "is invalid"),
    ],
)
def test_a_rule_that_does_not_fit_is_refused_at_once(tmp_path: Path, rule: str, stated: str) -> None:
    with pytest.raises(CommandError) as caught:
        made(body(tmp_path), (rule,), "UTC")
    assert stated in caught.value.text()


def test_a_manifest_that_is_applied_keeps_the_schedule_and_sets_what_holds_otherwise(tmp_path: Path) -> None:
    hpa = body(tmp_path)
    held = with_schedule(hpa, made(hpa, RULES, "UTC"), hpa["spec"])
    applied = body(
        tmp_path, MANIFEST.replace("minReplicas: 2", "minReplicas: 3").replace("maxReplicas: 8", "maxReplicas: 9")
    )

    found = kept_by(held, applied, MONDAY_NOON)
    schedule = schedule_of(found)
    assert schedule is not None
    assert schedule.otherwise == ["minReplicas=3", "cpu=50%"]
    assert values(found["spec"]) == (7, 70)
    assert found["spec"]["maxReplicas"] == 9
    assert values(spec_at(found, schedule, MONDAY_NIGHT)) == (3, 50)
    assert kept_by(hpa, applied, MONDAY_NOON) is applied  # without a schedule nothing is kept


# --- the verbs --------------------------------------------------------------------------------------------------------


def test_create_publishes_the_hpa_with_its_schedule_and_what_holds_now(run: Cli, broker: Broker) -> None:
    made_ = run("schedule", "create", NAME, "--rule", "daily 00:00-24:00 minReplicas=4", "--reason", "PAY-2")

    assert made_.exit_code == 0, made_.output
    assert made_.stdout == f"hpa {NAME} has a schedule\n"
    [(_, _, written)] = broker.written
    assert isinstance(written, AutoscalerSet)
    assert (written.origin, written.author, written.reason) == ("central", "anna", "PAY-2")
    assert values(written.hpa["spec"]) == (4, 50)
    found = schedule_of(written.hpa)
    assert found is not None
    assert found.otherwise == ["minReplicas=2"]


def test_a_rule_whose_dates_are_past_is_warned_of(run: Cli, broker: Broker) -> None:
    dates = ("2020-12-24..2020-12-26", "12-24", "9999-12-31")
    rules = [word for each in dates for word in ("--rule", f"{each} 00:00-24:00 minReplicas=4")]
    made_ = run("schedule", "create", NAME, *rules)

    assert (made_.exit_code, len(broker.written)) == (0, 1)
    [line] = made_.stderr.splitlines()
    assert "2020-12-24..2020-12-26 00:00-24:00 minReplicas=4' never applies again: its dates are past" in line


def test_the_rules_of_dates_and_months_are_in_force_at_their_times(tmp_path: Path) -> None:
    hpa = body(tmp_path)
    rules = ("monthly 1,15 08:00-18:00 minReplicas=4", "2026-12-14..2026-12-16 00:00-24:00 minReplicas=6,cpu=80%")
    schedule = made(hpa, rules, "Europe/Berlin")

    assert schedule.rules == list(rules)
    assert values(spec_at(hpa, schedule, at("2026-11-15T07:00"))) == (4, 50)
    assert values(spec_at(hpa, schedule, at("2026-12-13T22:59"))) == (2, 50)
    assert values(spec_at(hpa, schedule, at("2026-12-15T10:00"))) == (6, 80)
    assert values(spec_at(hpa, schedule, at("2026-12-16T23:00"))) == (2, 50)


def test_a_schedule_is_listed_replaced_and_deleted(run: Cli, fleet: Fleet, broker: Broker) -> None:
    empty = run("schedule", "list", "-A")
    assert (empty.stdout, "No central HPA has a schedule" in empty.stderr) == ("", True)
    assert "Next: fleethpa schedule create NAME --rule 'Mon-Fri 07:00-20:00 minReplicas=8,cpu=70%'" in empty.stderr
    run("schedule", "create", NAME, "--rule", "daily 00:00-24:00 minReplicas=4")
    carried_out(fleet, broker)

    listed = run("schedule", "list", "-A").stdout
    assert "daily 00:00-24:00 minReplicas=4" in listed
    document = fits("ScheduleList", run("schedule", "list", "-A", "-o", "json").stdout)
    assert document["items"][0]["inForce"] == "daily 00:00-24:00 minReplicas=4"

    run("schedule", "create", NAME, "--rule", "daily 07:00-20:00 cpu=80%")
    carried_out(fleet, broker)
    assert re.search(r" 20..-..-..T(07|20):00:00Z\n", run("schedule", "list", "-A").stdout), "no milliseconds"
    assert re.search(r" in \d+[hms].*\n", run("schedule", "list", "-A", "--time", "relative").stdout)

    run("schedule", "create", NAME, "--rule", "daily 00:00-24:00 cpu=80%")
    replaced = carried_out(fleet, broker)
    assert values(replaced.hpa["spec"]) == (2, 80)  # what the old rule set is undone

    assert run("schedule", "delete", NAME).stdout == f"hpa {NAME} has no schedule any more\n"
    deleted = carried_out(fleet, broker)
    assert values(deleted.hpa["spec"]) == (2, 50)
    assert ANNOTATION not in deleted.hpa["metadata"].get("annotations", {})
    assert "it has no schedule" in run("schedule", "delete", NAME).stdout


def test_a_dry_run_writes_nothing_and_a_clusters_own_hpa_is_refused(run: Cli, broker: Broker) -> None:
    rule = ("--rule", "daily 00:00-24:00 minReplicas=4")
    assert run("schedule", "create", NAME, *rule, "--dry-run").stdout == f"hpa {NAME} has a schedule (dry run)\n"
    refused = run("schedule", "create", "east/shop/checkout", *rule)
    assert (refused.exit_code, "lives in its cluster" in refused.stderr) == (1, True)
    assert broker.written == []


@pytest.mark.parametrize(("rule", "zone"), [("at night minReplicas=3", "UTC"), ("Mon 07:00-08:00 cpu=70%", "Nowhere")])
def test_a_rule_is_read_before_a_broker_is_asked(monkeypatch: pytest.MonkeyPatch, rule: str, zone: str) -> None:
    """Without a fleet: nothing answers at the brokers that are configured."""
    refused = Cli(monkeypatch)("schedule", "create", NAME, "--rule", rule, "--time-zone", zone)
    assert refused.exit_code == 2, refused.output


def test_several_hpas_are_asked_about(run: Cli, fleet: Fleet, broker: Broker, tmp_path: Path) -> None:
    fleet.append(AutoscalerSet(hpa=body(tmp_path, MANIFEST.replace("web", "api")), origin="central", mode="shadow"))
    several = run("schedule", "create", "web", "api", "-n", "shop", "--rule", "daily 00:00-24:00 minReplicas=4")
    assert (several.exit_code, broker.written) == (2, [])
    assert "add --yes" in several.stderr


def test_apply_and_diff_leave_what_the_schedule_has_set(run: Cli, fleet: Fleet, broker: Broker, tmp_path: Path) -> None:
    run("schedule", "create", NAME, "--rule", "daily 00:00-24:00 minReplicas=4")
    carried_out(fleet, broker)

    assert run("apply", "-f", "-", stdin=MANIFEST).stdout == f"hpa {NAME} unchanged\n"
    (tmp_path / "web.yaml").write_text(MANIFEST)
    assert run("diff", "-f", str(tmp_path / "web.yaml")).exit_code == 0
    applied = run("apply", "-f", "-", stdin=MANIFEST.replace("maxReplicas: 8", "maxReplicas: 9"))
    assert applied.exit_code == 0, applied.output
    _, _, written = broker.written[-1]
    assert isinstance(written, AutoscalerSet)
    assert (written.hpa["spec"]["minReplicas"], written.hpa["spec"]["maxReplicas"]) == (4, 9)
    assert schedule_of(written.hpa) is not None


# --- the scheduler ----------------------------------------------------------------------------------------------------


async def look(fleet: Fleet, broker: Broker, now_ms: int) -> int:
    scheduler = Scheduler(SchedulerConfig(config=load({}), clock=lambda: now_ms))
    return await scheduler.publish_due(fleet.past(), broker)  # type: ignore[arg-type]  # stands for the writer


async def test_the_scheduler_publishes_what_is_due_and_then_nothing(
    fleet: Fleet, broker: Broker, tmp_path: Path
) -> None:
    hpa = body(tmp_path)
    fleet.append(AutoscalerSet(hpa=with_schedule(hpa, made(hpa, RULES, "UTC"), hpa["spec"]), origin="central"))

    for now_ms, expected, rule in (
        (MONDAY_NOON, (7, 70), RULES[1]),
        (at("2026-01-05T14:00"), (5, 50), RULES[0]),
        (MONDAY_NIGHT, (2, 50), "no rule holds"),
    ):
        assert await look(fleet, broker, now_ms) == 1
        written = carried_out(fleet, broker)
        assert values(written.hpa["spec"]) == expected
        assert (written.author, written.reason) == ("scheduler", f"schedule: {rule}")
        assert await look(fleet, broker, now_ms) == 0


async def test_what_cannot_be_followed_is_reported_and_stops_no_other(fleet: Fleet, tmp_path: Path) -> None:
    hpa = body(tmp_path)
    schedule = made(hpa, RULES, "UTC")
    fleet.append(AutoscalerSet(hpa=with_schedule(hpa, schedule, hpa["spec"]), origin="central"))
    other = body(tmp_path, MANIFEST.replace("web", "api"))
    broken = with_schedule(other, msgspec.structs.replace(schedule, rules=["never"]), other["spec"])
    fleet.append(AutoscalerSet(hpa=broken, origin="central"))
    spoilt = body(tmp_path, MANIFEST.replace("web", "job"))
    spoilt["metadata"]["annotations"] = {ANNOTATION: "{}"}
    fleet.append(AutoscalerSet(hpa=spoilt, origin="central"))

    writes, problems = due(await read_state(fleet.past()), MONDAY_NOON)
    assert [write.subject.split()[1] for write in writes] == [NAME]
    assert len(problems) == 2


async def test_it_gets_ready_after_its_first_look_and_ends_when_it_is_stopped(
    fleet: Fleet, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, ports = asyncio.Event(), list[int]()

    @asynccontextmanager
    async def past(*_: Any) -> AsyncIterator[Any]:
        yield fleet.past()

    @asynccontextmanager
    async def writer(_: Any) -> AsyncIterator[Any]:
        yield broker

    monkeypatch.setattr(schedulerpart, "open_past", past)
    monkeypatch.setattr(schedulerpart, "open_writer", writer)

    def announce(port: int) -> None:
        ports.append(port)
        stop.set()

    away = load({"brokers": "127.0.0.1:1"})  # which nobody waits for at the end
    part = Scheduler(SchedulerConfig(config=away))
    await asyncio.wait_for(part.health.accompany(part.run(stop), announce), PATIENCE_S)
    assert ports == [0]


async def test_a_scheduler_waits_for_brokers_that_do_not_answer_in_time(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet
) -> None:
    tries: list[str] = []
    stop = asyncio.Event()

    @asynccontextmanager
    async def past(*_: Any) -> AsyncIterator[Any]:
        yield fleet.past()

    @asynccontextmanager
    async def writer(_: Any) -> AsyncIterator[Any]:
        tries.append("")
        if len(tries) == 3:
            stop.set()
        raise KafkaTimeoutError("Failed to get offsets by times in 40000 ms")
        yield

    monkeypatch.setattr(schedulerpart, "open_past", past)
    monkeypatch.setattr(schedulerpart, "open_writer", writer)
    part = Scheduler(SchedulerConfig(config=load({"brokers": "127.0.0.1:1"}), every_s=0.01))
    await asyncio.wait_for(part.run(stop), PATIENCE_S)
    assert "[!] brokers: KafkaTimeoutError: Failed to get offsets by times in 40000 ms" in part.health.notes()


def test_no_rule_is_in_force_outside_of_its_times(tmp_path: Path) -> None:
    schedule = made(body(tmp_path), RULES, "UTC")
    assert rule_at(schedule, MONDAY_NIGHT) is None


def test_a_rule_whose_utilization_lacks_its_unit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="70 has no unit"):
        made(body(tmp_path), ["Mon-Fri 07:00-20:00 cpu=70"], "UTC")


def test_what_holds_otherwise_comes_back_although_a_rule_has_made_the_target_a_utilization(tmp_path: Path) -> None:
    average = MANIFEST.replace("type: Utilization, averageUtilization: 50", "type: AverageValue, averageValue: '2'")
    hpa = body(tmp_path, average)
    schedule = made(hpa, ["Mon 12:00-13:00 cpu=70%"], "UTC")
    under_rule = {**hpa, "spec": spec_at(hpa, schedule, MONDAY_NOON)}
    assert values(under_rule["spec"])[1] == 70
    assert spec_at(under_rule, schedule, MONDAY_NIGHT)["metrics"] == hpa["spec"]["metrics"]

"""Two writers of one central HPA at once: who changes what another one has replaced is refused, and says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fleethpa.changes.schedules import made, with_schedule
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import HpaView
from fleethpa.frame.configuration import load
from fleethpa.frame.writer import Fate, SentRecord
from fleethpa.processes.scheduler import Scheduler, SchedulerConfig
from reconciler.observer.observertopics import central_hpa
from schemas.entries import WHOLE_PARTITION_KEY, Body
from schemas.keys import HpaId
from schemas.kubernetes.hpa import hpa_from_manifest, manifest_of
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerDeleted, AutoscalerSet, ClusterReport
from tests.kit.cli import Broker, Cli, Fleet
from tests.unit.changes.test_schedules import MANIFEST, MONDAY_NOON, NAME, RULES, body

HPA = HpaId("east", "shop", "web")
RULE = ("--rule", "daily 00:00-24:00 minReplicas=4")


class Racing(Broker):
    """A writer whose records come into the log at once, each behind what others have put before it."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet
        self.before: list[Body] = []
        """By others: one before each record, in this order."""
        self.beyond = 0
        """So many log records behind what is folded."""
        self.specs: Json | None = None
        """As who reads fleethpa.specs has it."""

    def put(self, *bodies: Body, key: str = "east/shop") -> None:
        self._fleet.append(*bodies, key=key)
        for each in bodies:
            if (found := central_hpa(each, "shop")) is not None:
                self.specs = found[1]

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        key = f"{cluster}/{namespace}"
        if self.before:
            self.put(self.before.pop(0), key=key)
        self.put(*bodies, key=key)
        return await super().send(subject, cluster, namespace, bodies)

    async def fates(self, waiting: Any, timeout_s: float) -> list[Fate]:
        place = 0, len(self._fleet.log) - 1 + self.beyond
        return [Fate(each, "logged", place=place) for each in waiting]


@pytest.fixture
def fleet() -> Fleet:
    found = Fleet()
    found.settle()
    return found


@pytest.fixture
def broker(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Racing:
    found = Racing(fleet)

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[Racing]:
        yield found

    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, broker: Racing, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch, fleet)


class Present:
    """The topics, read anew for each question."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet.past(), name)


def by_ben(hpa: Json, most: int, **more: Any) -> AutoscalerSet:
    spec = hpa["spec"] | {"maxReplicas": most}
    return AutoscalerSet(
        hpa=hpa | {"spec": spec}, origin="central", mode="shadow", author="ben", reason="PAY-7", **more
    )


async def now(fleet: Fleet) -> HpaView | None:
    return (await read_state(fleet.past())).hpas.get(HPA)


async def test_the_scheduler_leaves_what_was_applied_since_it_read_and_follows_the_schedule_from_there(
    fleet: Fleet, broker: Racing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hpa = body(tmp_path)
    hpa = with_schedule(hpa, made(hpa, RULES, "UTC"), hpa["spec"])
    broker.put(AutoscalerSet(hpa=hpa, origin="central", mode="shadow"))
    broker.before = [by_ben(hpa, 50)]
    scheduler = Scheduler(SchedulerConfig(config=load({}), clock=lambda: MONDAY_NOON))

    await scheduler.publish_due(Present(fleet), broker)  # type: ignore[arg-type]  # stand for both
    found = await now(fleet)
    assert found is not None
    assert (found.spec["maxReplicas"], found.spec["minReplicas"], found.author) == (50, 2, "ben")
    assert "refused, as it was changed since it was read: ben changed it (PAY-7)" in caplog.text
    assert broker.specs is not None
    assert broker.specs["spec"] == found.spec

    await scheduler.publish_due(Present(fleet), broker)  # type: ignore[arg-type]  # stand for both
    found = await now(fleet)
    assert found is not None
    assert (found.spec["maxReplicas"], found.spec["minReplicas"], found.author) == (50, 7, "scheduler")


def _apply(run: Cli, tmp_path: Path) -> Any:
    return run("apply", "-f", "-", stdin=MANIFEST.replace("maxReplicas: 8", "maxReplicas: 9"))


def _schedule(run: Cli, tmp_path: Path) -> Any:
    return run("schedule", "create", NAME, *RULE)


def _rollback(run: Cli, tmp_path: Path) -> Any:
    return run("rollout", "undo", NAME)


@pytest.mark.parametrize("verb", [_apply, _schedule, _rollback])
def test_what_a_person_changes_meanwhile_stays(
    run: Cli, fleet: Fleet, broker: Racing, tmp_path: Path, verb: Callable[[Cli, Path], Any]
) -> None:
    hpa = body(tmp_path)
    broker.put(by_ben(hpa, 7))
    broker.put(by_ben(hpa, 8))
    broker.before = [by_ben(hpa, 50), by_ben(hpa, 60)]  # once more, while what is in force is published

    refused = verb(run, tmp_path)

    assert refused.exit_code == 1, refused.output
    assert "refused, as it was changed since it was read" in refused.stderr
    assert "ben changed it (PAY-7); that is in force" in refused.stderr
    found = asyncio.run(now(fleet))
    assert found is not None
    assert (found.spec["maxReplicas"], found.author) == (60, "ben")
    assert broker.specs is not None
    assert broker.specs["spec"] == found.spec
    doctor = run("get", "clusters", "east")
    assert "central HPAs that were changed since their writer read them" in doctor.output


@pytest.mark.parametrize("verb", [_apply, _schedule, _rollback])
def test_what_is_deleted_meanwhile_does_not_come_back(
    run: Cli, fleet: Fleet, broker: Racing, tmp_path: Path, verb: Callable[[Cli, Path], Any]
) -> None:
    hpa = body(tmp_path)
    broker.put(by_ben(hpa, 7))
    broker.put(by_ben(hpa, 8))
    broker.before = [AutoscalerDeleted(name="web", origin="central")]

    refused = verb(run, tmp_path)

    assert refused.exit_code == 1, refused.output
    assert "refused, as it was deleted since it was read" in refused.stderr
    fleet.append(after_ms=60_000)
    assert asyncio.run(now(fleet)) is None
    assert broker.specs is None


def test_of_two_who_create_the_same_hpa_at_once_the_first_stays(
    run: Cli, fleet: Fleet, broker: Racing, tmp_path: Path
) -> None:
    broker.before = [by_ben(body(tmp_path), 50)]
    refused = _apply(run, tmp_path)
    assert refused.exit_code == 1, refused.output
    found = asyncio.run(now(fleet))
    assert found is not None
    assert found.spec["maxReplicas"] == 50


WHOLE = """
apiVersion: fleethpa.io/v1alpha1
kind: FleetHPA
metadata: {name: front, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: front}
  minReplicas: 2
  maxReplicas: 12
  clusters: [{name: east}, {name: west}]
"""


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("maxReplicas: 12", "maxReplicas: 13"), id="its spec"),
        pytest.param(("{name: west}", "{name: west, weight: 2}"), id="its clusters alone"),
    ],
)
def test_of_two_who_change_a_fleet_hpa_at_once_the_first_stays(
    run: Cli, fleet: Fleet, broker: Racing, change: tuple[str, str]
) -> None:
    fleet.append(ClusterReport(cluster="west", session="s", instance="o"), key=WHOLE_PARTITION_KEY)
    places = [HpaId(cluster, "shop", "front") for cluster in ("@fleet", "east", "west")]
    assert run("apply", "-f", "-", "--yes", stdin=WHOLE).exit_code == 0
    states = asyncio.run(read_state(fleet.past())).hpas
    by_ben = [_again(states[place], 40) for place in places]
    broker.before = list(by_ben)

    refused = run("apply", "-f", "-", "--yes", stdin=WHOLE.replace(*change))

    assert refused.exit_code == 1, refused.output
    assert "hpa @fleet/shop/front: refused, as it was changed since it was read" in refused.stderr
    found = asyncio.run(read_state(fleet.past())).hpas
    assert {found[place].revision for place in places} == {by_ben[0].revision}
    assert [found[place].spec["maxReplicas"] for place in places] == [40, 40, 40]
    assert found[places[0]].fleet == by_ben[0].fleet
    again = run("apply", "-f", "-", "--yes", stdin=WHOLE.replace(*change))
    assert again.exit_code == 0, again.output


def _again(view: HpaView, most: int) -> AutoscalerSet:
    """Another apply of an HPA of the FleetHPA, from the same version."""
    body = manifest_of({"name": view.id.name, "namespace": view.id.namespace}, view.spec | {"maxReplicas": most})
    return AutoscalerSet(
        hpa=hpa_from_manifest(body, namespace_default="shop"),
        origin="central",
        author="ben",
        fleet=view.fleet,
        revision=view.revision + 1,
        changes=view.version,
    )


def test_of_what_no_decider_has_taken_up_it_is_not_known_whether_it_is_refused(run: Cli, broker: Racing) -> None:
    broker.beyond = 1
    written = run("apply", "-f", "-", stdin=MANIFEST)
    assert written.exit_code == 5, written.output
    assert "Error: hpa east/shop/web: this is recorded, and no decider has taken it up yet" in written.stderr
    broker.beyond = 0
    changed = run("apply", "-f", "-", stdin=MANIFEST.replace("maxReplicas: 8", "maxReplicas: 9"))
    assert (changed.exit_code, "configured" in changed.stdout) == (0, True), changed.output


def test_a_change_of_an_hpa_is_waited_for(run: Cli, broker: Racing) -> None:
    result = run("apply", "-f", "-", "--wait", "0s", stdin=MANIFEST)
    assert result.exit_code == 2, result.output
    assert "--wait 0s: a change of an HPA is waited for" in result.stderr
    assert broker.written == []


def test_the_same_change_by_two_is_no_conflict(run: Cli, fleet: Fleet, broker: Racing, tmp_path: Path) -> None:
    broker.put(by_ben(body(tmp_path), 8))
    broker.before = [by_ben(body(tmp_path), 9)]
    assert _apply(run, tmp_path).exit_code == 0

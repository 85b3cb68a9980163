"""What counts as a write of the native controller, and which of them contradicts a proof that there is none."""

import asyncio
import logging
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reconciler.agents.agent.process import AgentTerm
from reconciler.core.knowledge import Learnt
from reconciler.core.writeplan import WriteGuards
from reconciler.observer.nativecontroller import (
    AHEAD_MS,
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    REFUSED_PAUSE_S,
    RIGHTS,
    Canary,
    Evidence,
    NativeWatch,
    NoteCanary,
    Verdict,
    native_status_write,
    pause_after,
)
from reconciler.observer.troubles import ReadProblem
from runtime.brokerclock import BrokerClock
from runtime.process import PartHealth
from schemas.inforce import InForce
from schemas.observed import Reason
from schemas.settings import ClusterSettings, SettingsSet
from tests.patience import PATIENCE_S

SECOND_MS = 1_790_000_015_000
TEXT = "2026-09-21T14:13:35Z"


def owned(*entries: tuple[str, str, str]) -> dict[str, Any]:
    """An object whose managed fields are of these (manager, subresource, time)."""
    fields = [{"manager": manager, "subresource": part, "time": time} for manager, part, time in entries]
    return {"metadata": {"namespace": "shop", "name": "web", "managedFields": fields}}


def test_the_newest_status_of_the_controller_manager_is_evidence() -> None:
    item = owned(
        ("kube-controller-manager", "status", "2026-09-21T14:00:00Z"), ("kube-controller-manager", "status", TEXT)
    )
    expected = Evidence(SECOND_MS, f"it wrote the status of HPA shop/web at {TEXT}")
    assert native_status_write(item, SECOND_MS) == expected


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(("fleethpa", "status", TEXT), id="our own status"),
        pytest.param(("kubectl", "scale", TEXT), id="a user's scale"),
        pytest.param(("kube-controller-manager", "", TEXT), id="another controller: metadata or a ReplicaSet's spec"),
        pytest.param(("kube-controller-manager", "scale", TEXT), id="a scale, whose entry anybody may drop"),
        pytest.param(("kube-controller-manager", "status", ""), id="without a time"),
        pytest.param(("kube-controller-manager", "status", "2099-01-01T00:00:00Z"), id="from the future"),
    ],
)
def test_other_writes_are_not(entry: tuple[str, str, str]) -> None:
    assert native_status_write(owned(entry), SECOND_MS) is None
    real = ("kube-controller-manager", "status", TEXT)
    found = native_status_write(owned(entry, real), SECOND_MS)
    assert found is not None, "nor do they hide a real one"
    assert found.time_ms == SECOND_MS


def test_an_api_server_may_be_ahead_of_the_observer() -> None:
    item = owned(("kube-controller-manager", "status", TEXT))
    assert native_status_write(item, SECOND_MS - AHEAD_MS) is not None
    assert native_status_write(item, SECOND_MS - AHEAD_MS - 1) is None


def watched(in_force: InForce, cluster: str = "east") -> NativeWatch:
    """What compares the native controller's writes in a cluster with what is in force."""
    unused: Any = None
    return NativeWatch(
        cluster, unused, note=unused, absent_since_ms=lambda: in_force.native_absent_since_ms(cluster), clock=unused
    )


def test_what_a_canary_refuted_contradicts_no_longer_and_a_later_write_does() -> None:
    in_force = InForce([SettingsSet(cluster="east", settings=ClusterSettings(native_controller="absent"))])
    east = watched(in_force)
    east.refute(SECOND_MS)
    assert not east.contradicts(Evidence(SECOND_MS, "it wrote"))
    assert east.contradicts(Evidence(SECOND_MS + 1, "it wrote"))
    assert not watched(in_force, "west").contradicts(Evidence(SECOND_MS + 1, "it wrote"))


@pytest.mark.parametrize(
    ("settings", "contradicts"),
    [
        pytest.param([], False, id="nothing was proven"),
        pytest.param([("east", "absent", SECOND_MS - 1)], True, id="a proof before the write"),
        pytest.param([("east", "absent", SECOND_MS)], False, id="a proof in the second of the write"),
        pytest.param([("*", "absent", SECOND_MS - 1)], True, id="a proof for all clusters"),
        pytest.param([("*", "absent", 0), ("east", "unknown", 1)], False, id="the cluster's own word counts"),
        pytest.param([("east", "absent", 0), ("east", "present", 1)], False, id="the proof was withdrawn"),
        pytest.param([("east", "absent", 0), ("east", "absent", SECOND_MS + 1)], False, id="it was proven again"),
        pytest.param([("west", "absent", 0)], False, id="another cluster"),
        pytest.param([("east", "absent", 0), ("east", None, SECOND_MS + 1)], True, id="a setting of something else"),
    ],
)
def test_only_a_write_after_the_proof_contradicts_it(settings: list[tuple[str, Any, int]], contradicts: bool) -> None:
    in_force = InForce()
    for cluster, verdict, when_ms in settings:
        in_force.apply(SettingsSet(cluster=cluster, settings=ClusterSettings(native_controller=verdict)), when_ms)
    assert watched(in_force).contradicts(Evidence(SECOND_MS, "it wrote")) is contradicts
    assert not watched(in_force).contradicts(None)


def test_a_verdict_that_is_taken_away_leaves_that_for_all_clusters() -> None:
    in_force = InForce()
    in_force.apply(SettingsSet(cluster="*", settings=ClusterSettings(native_controller="absent")), 5)
    in_force.apply(SettingsSet(cluster="east", settings=ClusterSettings(native_controller="present")), 6)
    assert in_force.native_absent_since_ms("east") is None
    in_force.apply(SettingsSet(cluster="east", settings=ClusterSettings(), unset=["nativeController"]), 7)
    assert in_force.native_absent_since_ms("east") == 5


@pytest.mark.parametrize(
    ("reason", "before_s", "pause_s"),
    [
        pytest.param("unreachable", 0.0, FIRST_PAUSE_S, id="soon"),
        pytest.param("failing", 16.0, 32.0, id="then more and more seldom"),
        pytest.param("failing", 50.0, LONGEST_PAUSE_S, id="within a minute"),
        pytest.param("forbidden", 0.0, REFUSED_PAUSE_S, id="a right that is missing is not asked for each minute"),
        pytest.param("unreachable", REFUSED_PAUSE_S, FIRST_PAUSE_S, id="after a refusal it begins anew"),
    ],
)
def test_when_a_canary_that_failed_is_made_again(reason: Reason, before_s: float, pause_s: float) -> None:
    assert pause_after(ReadProblem(reason, "no"), before_s) == pause_s


class _Canary:
    """A canary with this verdict; None: it cannot be made, and continues trying."""

    def __init__(self, verdict: Verdict | None, note: NoteCanary) -> None:
        self._verdict, self._note = verdict, note

    async def verdict(self) -> Verdict:
        if self._verdict is None:
            self._note(ReadProblem("forbidden", "no right to create HPAs", RIGHTS))
            await asyncio.Event().wait()
        assert self._verdict is not None
        return self._verdict


@pytest.mark.parametrize(
    ("verdict", "runs", "noted"),
    [
        pytest.param("present", True, None, id="a native controller runs"),
        pytest.param("absent", False, f"it wrote at {TEXT}, but a canary showed that it does not run", id="forged"),
        pytest.param(None, False, f"it wrote at {TEXT}, and no right to create HPAs", id="nobody knows yet"),
    ],
)
async def test_a_canary_decides_whether_a_native_controller_runs(
    verdict: Verdict | None, runs: bool, noted: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.observer.nativecontroller.ASKED_AGAIN_S", 0.0)
    in_force, notes, found = InForce(), list[ReadProblem | None](), list[Evidence]()
    in_force.apply(SettingsSet(cluster="east", settings=ClusterSettings(native_controller="absent")), 0)
    asked = asyncio.Semaphore(0)
    settled = asyncio.Event()

    def note(problem: ReadProblem | None) -> None:
        notes.append(problem)
        if problem is None or "being asked" not in problem.text:
            settled.set()

    def canary(note: NoteCanary) -> Canary:
        asked.release()
        return cast("Canary", _Canary(verdict, note))

    async def withdraw(evidence: Evidence) -> None:
        found.append(evidence)
        in_force.apply(SettingsSet(cluster="east", settings=ClusterSettings(native_controller="present")), SECOND_MS)

    absent_since_ms = partial(in_force.native_absent_since_ms, "east")
    watch = NativeWatch("east", canary, note=note, absent_since_ms=absent_since_ms, clock=lambda: SECOND_MS)
    watch.wrote(Evidence(SECOND_MS, f"it wrote at {TEXT}"))
    running = asyncio.create_task(watch.run(withdraw))
    async with asyncio.timeout(PATIENCE_S):
        await asked.acquire()
        await settled.wait()
        while bool(found) != runs:
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert bool(found) is runs
    assert (notes[-1] and notes[-1].text) == noted
    assert asked.locked(), "asked once"
    assert watch.contradicts(Evidence(SECOND_MS, "")) is (verdict is None)


@pytest.mark.parametrize(
    ("has_no_native", "level"),
    [pytest.param(True, logging.ERROR, id="declared absent"), pytest.param(False, logging.INFO, id="meant to run")],
)
async def test_an_agent_logs_once_that_a_native_controller_runs(
    has_no_native: bool, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    term: Any = SimpleNamespace(
        client=SimpleNamespace(name="east"), _native_evidence="", has_no_native=has_no_native, health=PartHealth()
    )
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            await AgentTerm._native_runs(term, Evidence(2, "it wrote"))
    assert [(record.message, record.levelno) for record in caplog.records] == [("a native controller runs", level)]
    assert term._native_evidence == "it wrote"
    term.knowledge = SimpleNamespace(
        settings=[SettingsSet(cluster="east", settings=ClusterSettings(max_step=3))], pauses=[], is_complete=True
    )
    term.clock = BrokerClock(is_stamped=False, clock=lambda: 5)
    term._shown = SimpleNamespace(put_nowait=lambda news: None)
    term.in_force, term.observer = InForce(), SimpleNamespace(settings_changed=lambda: None)
    assert AgentTerm.guards(term, "east") == WriteGuards(native="it wrote")
    AgentTerm._learnt(term, Learnt({}, has_settings=True))
    assert AgentTerm.guards(term, "east") == WriteGuards(settings=ClusterSettings(max_step=3)), (
        "it holds until the settings change"
    )

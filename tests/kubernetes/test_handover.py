"""HPAs of a real cluster go to fleethpa and back, in bulk: no replica moves, and the right one of the two scales."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from tests.kafka.fleet import ROOT
from tests.kubernetes.backend import Demand
from tests.kubernetes.hub import SAME_SETTINGS, Hub
from tests.kubernetes.site import Site, until
from tests.kubernetes.workloads import NAMESPACE, deployment, hpa, namespace, resource

CLUSTER: Final = "south"
NAMES: Final = tuple(f"app{number}" for number in range(5))
PLACE: Final = f"{CLUSTER}/{NAMESPACE}"
SETTLED_S: Final = 120.0
KILLS: Final = 3
NATIVE, CENTRAL = "kube-controller-manager", "fleethpa"


@dataclass
class Move:
    """One cluster whose HPAs change hands. `lasted_s`: how long a whole run of each verb took."""

    site: Site
    hub: Hub
    folder: Path
    lasted_s: dict[str, float] = field(default_factory=dict)

    def command(self, verb: str) -> list[str]:
        export = ["--export", str(self.folder)] if verb == "adopt" else []
        return [verb, "-C", CLUSTER, "-n", NAMESPACE, "--yes", "--reason", "a test", "--wait", "30s", *export]

    def carry_out(self, verb: str) -> None:
        began = time.monotonic()
        self.hub.run(*self.command(verb))
        self.lasted_s.setdefault(verb, time.monotonic() - began)

    def kill(self, verb: str, after_s: float) -> bool:
        """Start the command and kill it; whether it was still running then."""
        running = subprocess.Popen(
            [sys.executable, "-m", "fleethpa", *self.command(verb)],
            cwd=ROOT,
            env=os.environ | self.hub.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            running.wait(after_s)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
        return running.wait() == -signal.SIGKILL

    def demand(self, percent: int) -> None:
        """At 100 two replicas are right for each, at 200 four."""
        for name in NAMES:
            self.site.backend.demands[NAMESPACE, name] = Demand(cpu_milli=2 * percent - 10)

    def settle(self, percent: int) -> None:
        """Demand so much, and wait until every target has what is right."""
        self.demand(percent)
        right = dict.fromkeys(NAMES, percent // 50)
        until(lambda: self.counts() == right, f"all have {percent // 50} replicas", SETTLED_S)

    def counts(self) -> dict[str, int]:
        found = self.site.plane.objects("deployments", NAMESPACE)
        return {each["metadata"]["name"]: each["spec"]["replicas"] for each in found}

    def writers(self, since: int = 0) -> list[str]:
        """Who has written a `/scale`, by its user agent, from this one on; in their order."""
        found = []
        for line in self.site.plane.audit_log.read_text().splitlines():
            event: Json = json.loads(line)
            about, code = event.get("objectRef") or {}, (event.get("responseStatus") or {}).get("code")
            if about.get("subresource") == "scale" and event["verb"] in ("update", "patch") and code == 200:
                found.append(event["userAgent"].partition("/")[0])
        return found[since:]

    def modes(self) -> dict[str, tuple[str, str]]:
        """HPA → origin and mode, as fleethpa knows it."""
        found = self.hub.items("get", "hpa", "-A", "-C", CLUSTER)
        return {each["metadata"]["name"]: (each["origin"], each["mode"]) for each in found}

    def is_central(self) -> bool:
        return self.modes() == dict.fromkeys(NAMES, ("central", "enforce")) and not self.site.hpas(NAMESPACE)

    def is_native(self) -> bool:
        natives = self.site.hpas(NAMESPACE)
        looked_after = all((each.get("status") or {}).get("observedGeneration") for each in natives.values())
        in_shadow = self.modes() == dict.fromkeys(NAMES, ("cluster", "shadow"))
        return in_shadow and natives.keys() == set(NAMES) and looked_after


@pytest.fixture(scope="module")
def move(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Move]:
    folder = tmp_path_factory.mktemp("handover")
    with ExitStack() as stack:
        site = stack.enter_context(Site(CLUSTER, folder / CLUSTER, binaries))
        hub = stack.enter_context(Hub(folder / "hub", site.plane.kubeconfig))
        move = Move(site, hub, folder)
        move.demand(100)
        cpu = resource("cpu", averageUtilization=50)
        site.plane.apply([namespace(), *(deployment(name) for name in NAMES), *(hpa(name, cpu) for name in NAMES)])
        hub.start("ingest")
        hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
        hub.run("settings", "*", *SAME_SETTINGS, "--yes", "--wait", "30s")
        hub.start("decider", "--session-timeout", "10")
        for part in ("observer", "reconciler"):
            hub.start(part)
        until(move.is_native, "fleethpa has seen what the native controller scales", SETTLED_S)
        # Both directions are used, and what fleethpa remembers in shadow is no longer than the native window.
        move.settle(200)
        yield move


def test_a_namespace_goes_to_fleethpa_and_back_without_a_replica_moved(move: Move) -> None:
    specs = {name: each["spec"] for name, each in move.site.hpas(NAMESPACE).items()}
    known = len(move.writers())
    move.carry_out("adopt")
    until(move.is_central, "all are central and enforced", SETTLED_S)
    move.hub.run("status", "-C", CLUSTER, "-n", NAMESPACE, "--watch", "--timeout", "2m")
    assert move.writers(known) == []
    move.settle(400)
    assert set(move.writers(known)) == {CENTRAL}

    known = len(move.writers())
    move.carry_out("release")
    until(move.is_native, "all are native, and fleethpa is in shadow", SETTLED_S)
    assert move.writers(known) == []
    now = {name: each["spec"] for name, each in move.site.hpas(NAMESPACE).items()}
    assert all(semantically_equal_spec(specs[name], now[name]) for name in NAMES)
    move.settle(100)
    assert set(move.writers(known)) == {NATIVE}


def test_killed_anywhere_it_goes_on_where_it_was(move: Move) -> None:
    known, moments = len(move.writers()), random.Random(20261122)
    before, killed = move.counts(), 0
    for number in range(KILLS):
        for verb, is_done in (("adopt", move.is_central), ("release", move.is_native)):
            part = move.lasted_s[verb] * (number + moments.random()) / KILLS
            killed += move.kill(verb, part)
            move.carry_out(verb)
            until(is_done, f"{verb} is done", SETTLED_S)
            assert move.writers(known) == [], (verb, part)
    assert killed, "no run was killed before its end"
    assert move.counts() == before


def test_history_says_who_moved_an_hpa(move: Move) -> None:
    changes = move.hub.items("history", f"{PLACE}/{NAMES[0]}")
    moves = [each for each in changes if each["what"] in ("adopted", "released")]
    assert {each["what"] for each in moves[-2:]} == {"adopted", "released"}
    assert {each["reason"] for each in moves} == {"a test"}


def test_a_released_target_at_zero_scales_again(move: Move) -> None:
    """Without its condition ScaledToZero the native controller would take it for switched off by hand."""
    plane, name = move.site.plane, "to-zero"
    queue = {"type": "External", "external": {"metric": {"name": "jobs"}, "target": _average("10")}}
    at_once = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    move.site.backend.external[NAMESPACE, "jobs"] = 0
    plane.apply([deployment(name), hpa(name, queue, low=0, behavior=at_once)])
    until(partial(_is_at, move, name, 0), "it is at zero", SETTLED_S)
    until(lambda: name in move.modes(), "fleethpa has seen it")
    one = [f"{PLACE}/{name}", "--yes", "--wait", "30s"]
    move.hub.run("adopt", *one, "--export", str(move.folder))
    move.hub.run("status", f"{PLACE}/{name}", "--watch", "--timeout", "2m")
    move.hub.run("release", *one)
    move.site.backend.external[NAMESPACE, "jobs"] = 30
    until(partial(_is_at, move, name, 3), "it scales up from zero", SETTLED_S)


def _is_at(move: Move, name: str, replicas: int) -> bool:
    return move.counts()[name] == replicas


def _average(value: str) -> Json:
    return {"type": "AverageValue", "averageValue": value}

"""`doctor` and `clusters check`: every trouble is named, with what to do next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from fleethpa.simulator.apifaults import Denial
from fleethpa.simulator.kubeconfig import write_kubeconfig
from fleethpa.simulator.simulatedcluster import SimulatedCluster
from schemas.autoscalers import Command
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.scales import Heartbeat
from schemas.settings import ClusterSettings, SettingsSet
from tests.published import fits
from tests.unit.cli_kit import Cli, Fleet

AREAS = ("--only", "kafka,log,clusters,hpas")


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fleet:
    """`checkout` runs, and its state has been written."""
    made = Fleet()
    made.settle(3, 300)
    made.checkpoint()
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("fleethpa.cli.common.session.Session.now_ms", lambda _: made.now_ms + 900)
    return made


def items(done: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fits("CheckList", done.stdout)["items"]
    return found


def troubles(done: Result) -> list[tuple[str, str, str]]:
    return [(each["level"], each["area"], each["message"]) for each in items(done) if each["level"] != "ok"]


def test_a_fleet_that_runs_is_all_ok(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    run = Cli(monkeypatch, fleet)
    done = run("doctor", *AREAS, "-o", "json")
    assert done.exit_code == 0, done.output
    assert {(each["area"], each["level"]) for each in items(done)} == {
        ("kafka", "ok"), ("log", "ok"), ("clusters", "ok"), ("hpas", "ok")
    }  # fmt: skip
    shown = run("doctor", *AREAS)
    assert "keeps up with 1 log partitions" in shown.stdout
    assert shown.stderr == "0 failures, 0 warnings\n"


def _quiet(fleet: Fleet) -> None:
    fleet.now_ms += 95_000


def _behind(fleet: Fleet) -> None:
    for _ in range(8):
        fleet.append(Heartbeat(session="s", watches=["pods", "autoscalers", "scales"]), after_ms=10_000)


def _silent(fleet: Fleet) -> None:
    for _ in range(5):
        fleet.append(after_ms=10_000)
    fleet.checkpoint()


def _problem(fleet: Fleet) -> None:
    fleet.append(Heartbeat(session="s", watches=["autoscalers", "scales"], problems={"pods": "pods is forbidden"}))
    fleet.checkpoint()


def _frozen(fleet: Fleet) -> None:
    fleet.append(SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)), key=WHOLE)


def _paused(fleet: Fleet) -> None:
    fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))


@pytest.mark.parametrize(
    ("happens", "level", "area", "said", "code"),
    [
        pytest.param(_quiet, "failure", "log", "the newest log record is 1m35s old", 1, id="ingest does not run"),
        pytest.param(_behind, "failure", "log", "log partition 0 was last decided 1m20s before", 1, id="decider lags"),
        pytest.param(_silent, "failure", "clusters", "its observer was heard not for 50s", 1, id="no observer"),
        pytest.param(_problem, "warning", "clusters", "shop/pods: pods is forbidden", 0, id="a watch is forbidden"),
        pytest.param(_frozen, "warning", "clusters", "is frozen", 0, id="a frozen cluster"),
        pytest.param(_paused, "warning", "hpas", "paused", 0, id="a paused HPA"),
    ],
)
def test_each_trouble_is_named(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet, happens: Any, level: str, area: str, said: str, code: int
) -> None:
    before = fleet.now_ms
    happens(fleet)
    if happens is _quiet:
        monkeypatch.setattr("fleethpa.cli.common.session.Session.now_ms", lambda _: before + 95_000)
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    assert done.exit_code == code, done.output
    assert any(each[:2] == (level, area) and each[2].startswith(said) for each in troubles(done)), troubles(done)
    assert all(each["nextStep"] for each in items(done) if each["level"] != "ok")


def test_no_broker_is_a_failure_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    done = Cli(monkeypatch)("doctor", "--brokers", "127.0.0.1:1", "-o", "json")
    assert done.exit_code == 1
    assert [each[:2] for each in troubles(done)] == [("failure", "kafka")]
    assert "cannot talk to Kafka" in troubles(done)[0][2]


def test_an_unknown_area_is_wrong_use(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    done = Cli(monkeypatch, fleet)("doctor", "--only", "moon")
    assert (done.exit_code, "Known are kafka, topics" in done.stderr) == (2, True)


# --- permissions ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def member(tmp_path: Path) -> AsyncIterator[tuple[SimulatedCluster, tuple[str, ...]]]:
    async with SimulatedCluster("east") as sim:
        yield sim, ("--kubeconfig", str(write_kubeconfig(tmp_path / "k", [sim])))


@pytest.mark.parametrize(
    ("denied", "arguments", "level", "said"),
    [
        pytest.param(None, (), "ok", "may observe (", id="everything may be read"),
        pytest.param(None, ("--enforce",), "ok", "may observe and enforce", id="and written"),
        pytest.param(
            Denial(resource="deployments/scale", verb="update"), (), "ok", "may observe (", id="not asked: writing"
        ),
        pytest.param(
            Denial(resource="deployments/scale", verb="update"),
            ("--enforce",),
            "failure",
            "may not update deployments.apps/scale",
            id="a scale cannot be written",
        ),
        pytest.param(
            Denial(resource="scaledobjects"), (), "warning", "may not list scaledobjects.keda.sh", id="KEDA is not seen"
        ),
        pytest.param(
            Denial(namespace="shop", resource="pods"),
            ("--namespace", "shop"),
            "failure",
            "may not list pods, watch pods",
            id="one namespace",
        ),
    ],
)
async def test_clusters_check_asks_for_each_permission(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    denied: Denial | None,
    arguments: tuple[str, ...],
    level: str,
    said: str,
) -> None:
    async with member(tmp_path) as (sim, reach):
        sim.access.denials = [denied] if denied else []
        run = Cli(monkeypatch)
        done = await asyncio.to_thread(run, "clusters", "check", *arguments, "-o", "json", *reach)
        (found,) = items(done)
        assert (found["level"], found["subject"], done.exit_code) == (level, "east", int(level == "failure"))
        assert said in found["message"]
        if level != "ok":
            wanted = f"fleethpa clusters rbac{' --enforce' if '--enforce' in arguments else ''}"
            assert found["nextStep"].startswith(wanted)


async def test_clusters_check_asks_for_the_custom_resources_that_are_scaled_and_prints_the_missing_rules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with member(tmp_path) as (sim, reach):
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "gear"}
        spec = {"scaleTargetRef": reference, "maxReplicas": 3}
        metadata = {"name": "gear", "namespace": "shop"}
        sim.apply(
            {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
        )
        run = Cli(monkeypatch)
        fine = await asyncio.to_thread(run, "clusters", "check", *reach)
        assert (fine.exit_code, "lacks" in fine.stdout) == (0, False)
        sim.access.denials = [Denial(resource="widgets"), Denial(resource="widgets/scale")]
        denied = await asyncio.to_thread(run, "clusters", "check", "--enforce", *reach)
        assert denied.exit_code == 1
        assert "may not list widgets.example.com, watch widgets.example.com, get widgets.example.com/scale" in (
            " ".join(denied.stdout.split())
        )
        assert "fleethpa clusters rbac --enforce --for widgets.example.com" in " ".join(denied.stdout.split())
        pasted = yaml.safe_load(denied.stdout.partition("lacks:\n")[2])
        assert pasted == [
            {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "watch"]},
            {"apiGroups": ["example.com"], "resources": ["widgets/scale"], "verbs": ["get", "update"]},
        ]
        printed = await asyncio.to_thread(
            run, "clusters", "rbac", "--enforce", "--resource", "widgets.example.com", "--namespace", "shop"
        )
        role = next(iter(yaml.safe_load_all(printed.stdout)))
        assert [rule for rule in role["rules"] if rule["apiGroups"] == ["example.com"]] == pasted
        wrong = await asyncio.to_thread(run, "clusters", "rbac", "--resource", "widgets")
        assert (wrong.exit_code, "PLURAL.GROUP" in wrong.stderr) == (2, True)


async def test_a_cluster_that_does_not_answer_and_one_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleet: Fleet
) -> None:
    async with member(tmp_path) as (sim, reach):
        run = Cli(monkeypatch, fleet)
        unknown = await asyncio.to_thread(run, "clusters", "check", "mars", *reach)
        assert (unknown.exit_code, "no context for cluster mars" in unknown.stderr) == (4, True)
        everything = await asyncio.to_thread(run, "doctor", "--only", "hpas,access", "-o", "json", *reach)
        # `checkout` is enforced there, so writing is asked for too.
        assert [each["message"].partition(" (")[0] for each in items(everything)][-1].endswith("observe and enforce")
        await sim.stop_api(abort=True)
        dead = await asyncio.to_thread(run, "clusters", "check", *reach)
        assert (dead.exit_code, "failure" in dead.stdout, "Traceback" in dead.output) == (1, True, False)

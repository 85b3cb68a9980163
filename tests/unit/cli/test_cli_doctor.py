"""`doctor` and `clusters check`: every trouble is named, with what to do next."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from fleethpa.fleet.backlogs import Unread
from fleethpa.simulator.cluster import write_kubeconfig
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.entries import Body, BreakerCommand
from schemas.observed import (
    AutoscalerSet,
    ClusterReport,
    Command,
    Heartbeat,
    ObserverTrouble,
    ScaleSet,
    Serving,
    Target,
)
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from tests.kit.archive import write_archive
from tests.kit.cli import Cli, Fleet, hpa
from tests.kit.clusters import Denial, FaultyCluster
from tests.kit.generated_log import Fleet as GeneratedFleet
from tests.kit.published import fits

AREAS = ("--only", "kafka,log,clusters,hpas", "--brokers", "127.0.0.1:1")

PARTS = ("--only", "kafka,log,clusters", "--brokers", "127.0.0.1:1")


class Running(Fleet):
    """A fleet whose parts run, or stand still, one by one. `unread`: what doctor reads beside the log."""

    def __init__(self) -> None:
        super().__init__()
        self.unread = Unread()
        self.settle(3, 300)
        self.run(20)

    def run(self, seconds: int, *, without: tuple[str, ...] = (), troubles: tuple[ObserverTrouble, ...] = ()) -> None:
        """Let time pass, five seconds at a time, in which some parts do nothing."""
        for _ in range(0, seconds, 5):
            self.now_ms += 5_000
            written: list[Body] = []
            if "observer" not in without:
                report = ClusterReport(cluster="east", session="s", instance="o", troubles=list(troubles))
                written += [Heartbeat(session="s", watches=["pods", "autoscalers", "scales"]), report]
            if "reconciler" not in without:
                written.append(Serving(session="r", clusters=["east"]))
            self._ingest(written, "ingest" not in without)
            if "decider" not in without:
                self.append(after_ms=0)
                self.checkpoint()

    def _ingest(self, written: list[Body], runs: bool) -> None:
        if not runs:
            self.unread = Unread(self.unread.records + len(written), self.unread.oldest_ms or self.now_ms)
            return
        self.append(after_ms=0, by="ingest")
        for body in written:
            self.append(body, key=None if isinstance(body, Heartbeat) else WHOLE, after_ms=0)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Running:
    """`checkout` runs, and every part does."""
    made = Running()

    async def unread(*_: object) -> Unread:
        return made.unread

    monkeypatch.setattr("fleethpa.fleet.backlogs.unread", unread)
    monkeypatch.setattr("tests.kit.cli.FleetPast.now_ms", lambda _: made.now_ms + 900)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda _: made.now_ms + 900)
    return made


def items(done: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fits("CheckList", done.stdout)["items"]
    return found


def troubles(done: Result) -> list[tuple[str, str, str]]:
    return [(each["level"], each["area"], each["message"]) for each in items(done) if each["level"] != "ok"]


def test_a_fleet_that_runs_is_all_ok(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    run = Cli(monkeypatch, fleet)
    done = run("doctor", *AREAS, "-o", "json")
    assert done.exit_code == 0, done.output
    assert {(each["area"], each["level"]) for each in items(done)} == {
        ("kafka", "ok"), ("log", "ok"), ("clusters", "ok"), ("hpas", "ok")
    }  # fmt: skip
    shown = run("doctor", *AREAS)
    assert "keeps up with 1 log partitions" in shown.stdout
    assert shown.stderr == "0 failures, 0 warnings\n"


def test_doctor_names_the_log_partitions_in_which_a_decider_was_behind(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.append(after_ms=0, every=3)
    done = run("doctor", *AREAS, "-o", "json")
    text = "was behind: each HPA of log partition 0 is evaluated once in 3 sync periods for now"
    assert troubles(done) == [("warning", "log", text)]
    assert done.exit_code == 0
    remark = "the decider was behind: each HPA of log partition 0 is evaluated once in 3 sync periods"
    for question in (("get", "hpa", "-A"), ("explain", "east/shop/checkout"), ("history", "east/shop/checkout")):
        assert remark in run(*question, "--brokers", "127.0.0.1:1").stderr, question
    fleet.append(after_ms=0)
    assert not troubles(run("doctor", *AREAS, "-o", "json"))
    assert remark not in run("get", "hpa", "-A", "--brokers", "127.0.0.1:1").stderr


def test_doctor_and_topics_log_time_name_a_partition_whose_records_are_stamped_ahead(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    run, true_ms = Cli(monkeypatch, fleet), fleet.now_ms
    assert run("topics", "log-time").exit_code == 0
    monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda _: true_ms + 900)
    fleet.append(after_ms=7_200_000)
    doubted = "its newest record is stamped 2h ahead of log time, and counts once others confirm it"
    assert ("failure", "log", f"log partition 0: {doubted}") in troubles(run("doctor", *AREAS, "-o", "json"))
    shown = run("topics", "log-time")
    assert (shown.exit_code, doubted in shown.stdout) == (1, True)
    assert "fleethpa topics log-time --set" in shown.stderr
    fleet.append(after_ms=10_000)
    ahead = "log partition 0: log time is 2h9s ahead of this machine's clock"
    assert ("failure", "log", ahead) in troubles(run("doctor", *AREAS, "-o", "json"))


def test_doctor_warns_of_a_guardrail_that_acts_without_a_removal_budget(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    run, step = Cli(monkeypatch, fleet), "fleethpa settings east removal-budget=30%/10m"
    fleet.append(EngineSet(engine=1), key=WHOLE)
    fleet.append(BreakerCommand(command="pause", cluster="east", guardrail="wave"), key=WHOLE)
    assert step in run("doctor", *AREAS).stdout
    fleet.append(SettingsSet(cluster="*", settings=ClusterSettings(removal_budget="20%/10m")), key=WHOLE)
    found = run("doctor", *AREAS).stdout
    assert "guardrail wave" in found
    assert step not in found


def test_doctor_forgets_a_pause_that_has_ended(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.append(Command(command="pause", cluster="east", until=fleet.now_ms + 10_000), key=WHOLE)
    paused = run("doctor", *AREAS, "-o", "json")
    assert "fleethpa resume -C east" in paused.stdout
    assert [each["level"] for each in items(paused) if each["area"] == "clusters"] == ["warning"]
    fleet.run(20)
    assert "resume" not in run("doctor", *PARTS).stdout


@pytest.mark.parametrize(
    ("stopped", "stated"),
    [
        pytest.param(
            ("ingest",), {"ingest": "ingest hangs or does not run: nothing has come into the log since"}, id="ingest"
        ),
        pytest.param(
            ("decider",),
            {"decider": "the decider hangs or does not run: nothing was decided in the log since"},
            id="decider",
        ),
        pytest.param(
            ("ingest", "decider"), {"ingest": "neither ingest nor the decider has written to the log since"}, id="both"
        ),
        pytest.param(("observer",), {"east": "its observer has been silent since"}, id="observer"),
        pytest.param(("reconciler",), {"east": "its reconciler has been silent since"}, id="reconciler"),
        pytest.param(
            ("ingest", "observer", "reconciler"),
            {"ingest": "ingest hangs or does not run: nothing has come into the log since"},
            id="all but the decider, whose ticks go on: without ingest no report arrives",
        ),
    ],
)
def test_a_part_that_hangs_is_found_by_what_it_alone_does(
    monkeypatch: pytest.MonkeyPatch, fleet: Running, stopped: tuple[str, ...], stated: dict[str, str]
) -> None:
    fleet.run(88, without=stopped)
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    assert done.exit_code == 1, done.output
    failures = [each for each in items(done) if each["level"] == "failure"]
    for subject, text in stated.items():
        assert any(each["subject"] == subject and each["message"].startswith(text) for each in failures), failures
    assert {each["subject"] for each in failures} == set(stated), "and nobody else is blamed"
    assert all("(1m" in each["message"] for each in failures), failures
    assert all(each["nextStep"].startswith("fleethpa run ") for each in failures)
    reporting = any(each["message"].startswith("reporting") for each in items(done))
    assert reporting == (stopped == ("decider",)), "a process without a heartbeat is not listed as reporting"


def test_ingest_that_falls_behind_is_found(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    fleet.unread = Unread(1_234, fleet.now_ms - 90_000)
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    assert [each[2].partition(" since")[0] for each in troubles(done)] == [
        "is behind: 1234 records waiting, the oldest"
    ]


@pytest.mark.parametrize(
    ("trouble", "level", "stated", "step"),
    [
        pytest.param(
            {"part": "apiServer", "reason": "unreachable", "error": "connection refused"},
            "failure",
            "its API server is away since TIME (50s): connection refused",
            "kubectl --context east get --raw /readyz",
            id="the API server is away",
        ),
        pytest.param(
            {
                "part": "metrics.k8s.io",
                "reason": "failing",
                "error": "503",
                "namespaces": ["shop"],
                "namespace_count": 1,
            },
            "failure",
            "metrics API metrics.k8s.io fails in shop since TIME (50s): 503",
            "kubectl --context east get apiservices",
            id="a metrics API fails",
        ),
        pytest.param(
            {"part": "metrics.k8s.io", "reason": "forbidden", "error": "403"},
            "failure",
            "metrics API metrics.k8s.io is forbidden to the observer since TIME (50s): 403",
            "fleethpa clusters check east",
            id="a metrics API is forbidden",
        ),
        pytest.param(
            {"part": "pods", "reason": "forbidden", "error": "pods is forbidden"},
            "failure",
            "watching pods is forbidden since TIME (50s): pods is forbidden",
            "fleethpa clusters check east",
            id="a watch is forbidden",
        ),
        pytest.param(
            {"part": "scaledobjects", "reason": "failing", "error": "500"},
            "warning",
            "watching scaledobjects fails since TIME (50s): 500",
            "fleethpa clusters check east",
            id="rivals cannot be seen",
        ),
        pytest.param(
            {"part": "refusedReports", "reason": "failing", "error": "3 entries, at last: too many"},
            "warning",
            "ingest refuses some of what its agent reports since TIME (50s): 3 entries, at last: too many",
            "read fleethpa.rejected; fleethpa clusters remove east, if its agent is not to be trusted",
            id="ingest refuses reports",
        ),
    ],
)
def test_what_an_observer_reports_is_one_line_with_since_when_and_what_is_next(
    monkeypatch: pytest.MonkeyPatch, fleet: Running, trouble: dict[str, Any], level: str, stated: str, step: str
) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.run(50, troubles=(ObserverTrouble(since=fleet.now_ms, **trouble),))
    done = run("doctor", *PARTS, "-o", "json")
    assert [(each[0], _timeless(each[2])) for each in troubles(done)] == [(level, stated)]
    assert [each["nextStep"] for each in items(done) if each["level"] != "ok"] == [step]
    is_old = trouble["part"] in ("apiServer", "pods")
    shown = run("get", "hpa", "-A")
    assert shown.exit_code == (5 if is_old else 0)
    assert f"warning: cluster east: {stated}{'; 1 HPA shown as last known' if is_old else ''}. Next: {step}\n" in (
        _timeless(shown.stderr)
    )
    clusters = run("get", "clusters")
    assert clusters.exit_code == (5 if is_old else 0)
    assert stated in _timeless(clusters.stdout)
    document = fits("ClusterList", run("get", "clusters", "-o", "json").stdout)["items"][0]
    assert document["state"] == ("away" if trouble["part"] == "apiServer" else "up")
    assert [each["nextStep"] for each in document["troubles"]] == [step]


def _timeless(text: str) -> str:
    return re.sub(r"since \S+", "since TIME", text)


def test_the_trouble_of_an_api_server_is_not_reported_again_for_each_of_its_apis(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    parts = ("apiServer", "pods", "autoscalers", "metrics.k8s.io")
    fleet.run(
        50, troubles=tuple(ObserverTrouble(part=part, reason="unreachable", since=fleet.now_ms) for part in parts)
    )
    done = Cli(monkeypatch, fleet)("doctor", *PARTS, "-o", "json")
    assert [_timeless(each[2]) for each in troubles(done)] == ["its API server is away since TIME (50s)"]


def test_what_is_shown_may_be_old_where_nothing_comes_into_the_log(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    fleet.run(60, without=("ingest",))
    shown = Cli(monkeypatch, fleet)("get", "hpa", "-A")
    assert "nothing has come into the log since" in shown.stderr
    assert "silent" not in shown.stderr, "nobody can tell how the others are"
    assert shown.exit_code == 5


def test_explain_names_what_is_wrong_in_the_cluster_of_a_decision_that_failed(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    away = ObserverTrouble(part="apiServer", reason="unreachable", error="connection refused", since=fleet.now_ms)
    fleet.run(50, troubles=(away,))
    text = Cli(monkeypatch, fleet)("explain", "east/shop/checkout").stdout
    assert "Cluster    east: its API server is away since TIME (50s): connection refused\n" in _timeless(text)
    assert "Next: kubectl --context east get --raw /readyz\n" in text


def test_explain_mentions_a_fight_over_the_replicas(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    deployment = Target(group="apps", kind="Deployment", name="checkout")
    shown: dict[str, Any] = {"target": deployment, "status_replicas": 3, "selector": "app=checkout", "session": "s"}
    for number in range(3):
        fleet.now_ms += 16_000
        fleet.observe(3, 500)
        fleet.applied(5)
        fleet.append(ScaleSet(**shown, spec_replicas=3, resource_version=str(9 + number)))
    fleet.now_ms += 16_000
    fleet.observe(3, 500)
    run = Cli(monkeypatch, fleet)
    text = run("explain", "east/shop/checkout").stdout
    fight = next(line for line in text.splitlines() if line.startswith("Fight"))
    assert re.match(
        r"Fight +another hand and fleethpa undo each other: \d times, between 3 and 5 replicas, since", fight
    )
    assert "get deployment checkout -o yaml --show-managed-fields" in text
    document = fits("Decision", run("explain", "east/shop/checkout", "-o", "json").stdout)
    assert document["fight"]["writers"] == ["another hand", "fleethpa"]


def _behind(fleet: Running) -> None:
    for _ in range(8):
        fleet.append(after_ms=10_000)


def _problem(fleet: Running) -> None:
    fleet.partition.state.row.reports.clear()
    fleet.append(Heartbeat(session="s", watches=["autoscalers", "scales"], problems={"pods": "pods is forbidden"}))
    fleet.checkpoint()


def _frozen(fleet: Running) -> None:
    fleet.append(SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)), key=WHOLE)


def _paused(fleet: Running) -> None:
    fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))


@pytest.mark.parametrize(
    ("happens", "level", "area", "stated", "code"),
    [
        pytest.param(_behind, "failure", "log", "log partition 0 was last decided 1m20s before", 1, id="decider lags"),
        pytest.param(_problem, "warning", "clusters", "shop/pods: pods is forbidden", 0, id="an older observer's word"),
        pytest.param(_frozen, "warning", "clusters", "is frozen", 0, id="a frozen cluster"),
        pytest.param(_paused, "warning", "hpas", "paused", 0, id="a paused HPA"),
    ],
)
def test_each_trouble_is_named(
    monkeypatch: pytest.MonkeyPatch, fleet: Running, happens: Any, level: str, area: str, stated: str, code: int
) -> None:
    happens(fleet)
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    assert done.exit_code == code, done.output
    assert any(each[:2] == (level, area) and each[2].startswith(stated) for each in troubles(done)), troubles(done)
    assert all(each["nextStep"] for each in items(done) if each["level"] != "ok")


def test_what_is_paused_is_resumed_and_not_explained(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    _paused(fleet)
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    assert [each["nextStep"] for each in items(done) if each["area"] == "hpas" and each["level"] == "warning"] == [
        "fleethpa resume east/shop/checkout"
    ], done.output


def test_pauses_of_single_hpas_for_one_reason_are_each_ended(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    fleet.append(AutoscalerSet(hpa=hpa("web"), origin="central", mode="enforce"))
    for name in ("checkout", "web"):
        fleet.append(Command(command="pause", name=name, author="anna", reason="INC-1"), after_ms=0)
    fleet.checkpoint()
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    steps = [each["nextStep"] for each in items(done) if "paused" in each["message"]]
    assert steps == ["fleethpa resume east/shop/checkout, and so for each of them"], done.output


def test_a_pause_is_not_ended_because_of_another_problem(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    _paused(fleet)
    fleet.now_ms += 16_000
    fleet.observe(3, 0, error="the server is currently unable to handle the request")
    fleet.checkpoint()
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    (found,) = [each for each in items(done) if each["area"] == "hpas" and each["level"] == "warning"]
    assert ("no metrics" in found["message"], "paused" in found["message"]) == (True, True), found
    assert found["nextStep"] == "fleethpa explain east/shop/checkout"


@pytest.mark.parametrize(
    ("value", "stated", "step"),
    [
        pytest.param(b"garbage", "is not a log record", "fleethpa audit verify", id="a record that cannot be read"),
        pytest.param(
            b'{"v":1,"entries":[{"key":"*","body":{"kind":"engine","engine":99,"author":"a"}}]}',
            "99",
            "run a newer release of fleethpa",
            id="a newer engine",
        ),
    ],
)
def test_a_log_that_cannot_be_folded_is_a_failure_not_an_error(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet, value: bytes, stated: str, step: str
) -> None:
    fleet.log.append((len(fleet.log), fleet.now_ms + 100, value))
    done = Cli(monkeypatch, fleet)("doctor", *AREAS, "-o", "json")
    found = [each for each in items(done) if each["level"] == "failure"]
    assert done.exit_code == 1
    assert [(stated in each["message"], step in each["nextStep"]) for each in found] == [(True, True)], found


def test_no_broker_is_a_failure_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    done = Cli(monkeypatch)("doctor", "--brokers", "127.0.0.1:1", "-o", "json")
    assert done.exit_code == 1
    assert [each[:2] for each in troubles(done)] == [("failure", "kafka")]
    assert "cannot talk to Kafka" in troubles(done)[0][2]


def test_an_unknown_area_is_wrong_use(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    done = Cli(monkeypatch, fleet)("doctor", "--only", "moon")
    assert (done.exit_code, "Known are kafka, topics" in done.stderr) == (2, True)


# --- permissions ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def member(tmp_path: Path) -> AsyncIterator[tuple[FaultyCluster, tuple[str, ...]]]:
    async with FaultyCluster("east") as sim:
        yield sim, ("--kubeconfig", str(write_kubeconfig(tmp_path / "k", [sim])))


@pytest.mark.parametrize(
    ("denied", "arguments", "level", "stated"),
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
    stated: str,
) -> None:
    async with member(tmp_path) as (sim, reach):
        sim.api.denials = [denied] if denied else []
        run = Cli(monkeypatch)
        done = await asyncio.to_thread(run, "clusters", "check", *arguments, "-o", "json", *reach)
        (found,) = items(done)
        assert (found["level"], found["subject"], done.exit_code) == (level, "east", int(level == "failure"))
        assert stated in found["message"]
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
        sim.api.denials = [Denial(resource="widgets"), Denial(resource="widgets/scale")]
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


def test_while_ingest_hangs_an_hpa_without_metrics_names_it_and_not_its_observer(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    fleet.run(120, without=("ingest",))
    run = Cli(monkeypatch, fleet)
    for arguments in (["status", "-A"], ["get", "hpa", "-A", "--problem"], ["doctor", *AREAS]):
        shown = run(*arguments)
        assert "no metric: ingest hangs since 2026-11-21T14:00:2" in shown.stdout, (arguments, shown.output)
        assert "observer" not in shown.stdout, (arguments, shown.output)
        assert "no answer" not in shown.stdout, (arguments, shown.output)


async def test_doctor_of_an_archive_asks_no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a", GeneratedFleet(hpas=1, namespaces=1, minutes=1, partitions=1, seed=1))
    async with member(tmp_path) as (sim, reach):
        await sim.stop_api(abort=True)
        run = Cli(monkeypatch)
        done = await asyncio.to_thread(run, "doctor", "--from", str(archive), "-o", "json", *reach)
        assert [each for each in items(done) if each["level"] == "failure"] == [], done.output
        (access,) = [each for each in items(done) if each["area"] == "access"]
        assert (access["level"], access["message"]) == (
            "ok",
            "not asked: an archive is of the past, and clusters are as they are now",
        )


async def test_clusters_that_a_folder_names_are_asked_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleet: Fleet
) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    async with member(tmp_path) as (_, (_, kubeconfig)):
        (folder / "north.yaml").write_text(Path(kubeconfig).read_text())
        run = Cli(monkeypatch, fleet)
        by_folder = ("--kubeconfig-dir", str(folder), "-o", "json")
        fine = await asyncio.to_thread(run, "clusters", "check", *by_folder)
        assert [(each["level"], each["subject"]) for each in items(fine)] == [("ok", "north")]
        unknown = await asyncio.to_thread(run, "clusters", "check", "mars", *by_folder)
        assert (unknown.exit_code, "no cluster mars" in unknown.stderr) == (4, True)
        (folder / "south.yaml").write_text("contexts: [")
        for command in (("clusters", "check"), ("doctor", "--only", "access")):
            done = await asyncio.to_thread(run, *command, *by_folder)
            found = {each["subject"]: (each["level"], each["message"]) for each in items(done)}
            assert done.exit_code == 1
            assert found.pop("north")[0] == "ok"
            [(level, message)] = found.values()
            assert level == "failure"
            assert "south.yaml" in message


async def test_an_inventory_that_may_not_be_read_is_named_with_what_grants_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with member(tmp_path) as (sim, reach):
        sim.api.denials = [Denial(resource="secrets")]
        options = ("--argocd-clusters", "argocd", "--inventory-context", "east", "-o", "json")
        done = await asyncio.to_thread(Cli(monkeypatch), "clusters", "check", *reach, *options)
        [found] = items(done)
        assert (done.exit_code, found["level"]) == (1, "failure")
        assert found["nextStep"] == "fleethpa clusters rbac --secrets-in argocd | kubectl apply -f -"


def test_two_hpas_of_one_target_are_one_problem_that_names_the_newer_one(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    newer = hpa("web", scaleTargetRef=hpa()["spec"]["scaleTargetRef"])
    newer["metadata"] |= {"creationTimestamp": "2026-11-21T13:59:00Z"}
    fleet.append(AutoscalerSet(hpa=newer))
    fleet.run(20)
    found = troubles(Cli(monkeypatch, fleet)("doctor", "--only", "hpas", *PARTS[2:], "-o", "json"))
    (text,) = [text for _, area, text in found if area == "hpas"]
    assert "HPAs checkout and web drive Deployment/checkout" in text
    assert "web is the newer one" in text
    steps = [
        each["nextStep"]
        for each in items(Cli(monkeypatch, fleet)("doctor", "--only", "hpas", *PARTS[2:], "-o", "json"))
    ]
    deletions = {step for step in steps if "delete" in step}
    assert deletions == {"kubectl --context east delete hpa web -n shop"}
    for name in ("checkout", "web"):
        shown = Cli(monkeypatch, fleet)("get", "hpa", name, "-n", "shop", "-o", "json").stdout
        assert "delete hpa checkout" not in shown

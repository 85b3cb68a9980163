"""`doctor` and `admin clusters check`: every trouble is named, with what to do next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from fleethpa.fleet.backlogs import Unread
from fleethpa.fleet.doctor import finding_checks
from fleethpa.fleet.members import KnownMembers
from schemas.agents import AgentSet, AgentTopics
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.entries import Body
from schemas.observed import AutoscalerList, AutoscalerSet, ClusterReport, Heartbeat, ObserverTrouble, Serving
from schemas.settings import SettingsSet
from tests.kit.cli import SETTINGS, Cli, Fleet, hpa
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
        decided = len(self.values)
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
        if "decider" in without:
            del self.values[decided:]

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
    assert run("admin", "topics", "log-time").exit_code == 0
    monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda _: true_ms + 900)
    fleet.append(after_ms=7_200_000)
    doubted = "its newest record is stamped 2h ahead of log time, and counts once others confirm it"
    assert ("failure", "log", f"log partition 0: {doubted}") in troubles(run("doctor", *AREAS, "-o", "json"))
    shown = run("admin", "topics", "log-time")
    assert (shown.exit_code, doubted in shown.stdout) == (1, True)
    assert "fleethpa admin topics log-time --set" in shown.stderr
    fleet.append(after_ms=10_000)
    ahead = "log partition 0: log time is 2h9s ahead of this machine's clock"
    assert ("failure", "log", ahead) in troubles(run("doctor", *AREAS, "-o", "json"))


@pytest.mark.parametrize(("hung", "step"), [("decider", "fleethpa run decider"), ("ingest", "fleethpa run ingest")])
def test_nothing_is_said_of_clusters_of_which_nothing_is_known_now(
    monkeypatch: pytest.MonkeyPatch, fleet: Running, hung: str, step: str
) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.run(60, without=(hung,))
    (east,) = [each for each in items(run("doctor", *AREAS, "-o", "json")) if each["area"] == "clusters"]
    assert (east["level"], east["message"].partition(",")[0]) == ("warning", "not known now"), east
    assert east["nextStep"].startswith(step)
    assert "unknown" in run("get", "clusters", "--brokers", "127.0.0.1:1").stdout


def test_where_the_log_lost_what_follows_the_state_each_verb_says_what_it_means_and_where_to_read_on(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.run(30, without=("decider",))
    del fleet.log[:-2]
    shown = run("get", "clusters", "--brokers", "127.0.0.1:1")
    assert shown.exit_code == 3
    assert "what came after the stored state of offset" in shown.stderr
    assert "expired or were deleted. A decider that runs writes another one within a minute" in shown.stderr
    assert "Next: see docs/operations.md#recovery" in shown.stderr
    (found,) = items(run("doctor", *AREAS, "-o", "json"))
    assert (found["level"], found["nextStep"]) == ("failure", "see docs/operations.md#recovery")


def test_what_hpas_lack_because_ingest_hangs_ends_with_ingest(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.run(60, without=("ingest",))
    found = items(run("doctor", *AREAS, "-o", "json"))
    (lacking,) = [each for each in found if each["area"] == "hpas" and each["level"] == "warning"]
    assert "no metric: ingest hangs since" in lacking["message"]
    assert lacking["nextStep"].startswith("fleethpa run ingest")


def test_that_no_hpa_has_a_problem_is_not_said_of_now_while_nothing_is_known_now(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    run = Cli(monkeypatch, fleet)
    asked = ("get", "hpa", "-A", "--problem", "--brokers", "127.0.0.1:1")
    fleet.observe(3, 300)
    fleet.run(5)
    assert "No HPA has a problem.\n" in run(*asked).stderr
    fleet.run(10, without=("decider",))
    fleet.observe(3, 300)
    fleet.run(15, without=("decider",))
    shown = run(*asked).stderr
    assert "the decider hangs or does not run" in shown
    assert "No HPA had a problem when it was last known.\n" in shown
    assert "has a problem" not in shown


def test_an_hpa_of_which_nothing_is_known_now_is_not_said_to_be_well(
    monkeypatch: pytest.MonkeyPatch, fleet: Running
) -> None:
    run, brokers = Cli(monkeypatch, fleet), ("--brokers", "127.0.0.1:1")
    fleet.observe(3, 300)
    fleet.run(5)
    shown = run("status", "-A", *brokers)
    assert (shown.stdout, shown.exit_code) == ("east/shop/checkout  ok\n", 0)
    fleet.run(10, without=("decider",))
    fleet.observe(3, 300)
    fleet.run(15, without=("decider",))
    shown = run("status", "-A", *brokers)
    assert "the decider hangs" in shown.stderr
    assert (shown.stdout, shown.exit_code) == ("east/shop/checkout  ok when last known\n", 5)
    assert run("status", "-A", "--watch", "--timeout", "200ms", *brokers).exit_code == 124
    assert run("get", "hpa", "-A", *brokers).exit_code == 5
    assert run("get", "clusters", *brokers).exit_code == 5
    found = [each["message"] for each in items(run("doctor", *AREAS, "-o", "json")) if each["area"] == "hpas"]
    assert found == ["1 HPA when last known: 1 enforce"]


def test_metrics_that_a_silent_cluster_itself_reported_are_said_to_be_the_last_that_were_known(
    run: Cli, fleet: Running
) -> None:
    is_off = msgspec.structs.replace(SETTINGS, default_mode="off")
    current = {"name": "cpu", "current": {"averageUtilization": 55, "averageValue": "55m"}}
    status = {"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [{"type": "Resource", "resource": current}]}
    fleet.append(SettingsSet(cluster="east", settings=is_off), key=WHOLE)
    fleet.append(AutoscalerSet(session="s", hpa=hpa("cart") | {"status": status}))
    fleet.run(10)
    shown = run("get", "hpa", "east/shop/cart").stdout + run("describe", "east/shop/cart").stdout
    assert "cpu: 55%/60%  " in shown
    assert "( current / target )" in shown
    assert "last known" not in shown
    fleet.run(60, without=("observer",))
    shown = run("get", "hpa", "east/shop/cart").stdout + run("describe", "east/shop/cart").stdout
    assert "cpu: 55%/60% (last known)" in shown
    assert "( last known / target )" in shown
    assert "( current / target )" not in shown


def test_an_override_that_is_not_folded_yet_may_be_there(monkeypatch: pytest.MonkeyPatch, fleet: Running) -> None:
    run = Cli(monkeypatch, fleet)
    asked = ("override", "east/shop/checkout", "--end", "--dry-run", "--brokers", "127.0.0.1:1")
    assert "hpa east/shop/checkout has no override" in run(*asked).stderr
    fleet.run(60, without=("decider",))
    shown = run(*asked).stderr
    assert "has no override" not in shown
    assert "hpa east/shop/checkout had no override when it was last known" in shown


@pytest.mark.parametrize("process", ["observer", "reconciler"])
def test_a_process_that_hangs_is_said_once_with_one_command(
    monkeypatch: pytest.MonkeyPatch, fleet: Running, process: str
) -> None:
    run = Cli(monkeypatch, fleet)
    fleet.run(60, without=(process,))
    for asked in (("get", "hpa", "-A"), ("get", "clusters")):
        shown = run(*asked, "--brokers", "127.0.0.1:1")
        assert f"the {process} of east hangs or does not run" in shown.stderr, asked
        assert shown.stderr.count(f"fleethpa run {process}") == 1, shown.stderr
        assert shown.exit_code == (5 if process == "observer" else 0)


def test_a_silent_agent_that_ingest_does_not_read_is_told_from_one_that_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, run: Cli, fleet: Running
) -> None:
    waiting = {"east": 12}

    async def unread_reports(_: object, agents: list[AgentTopics]) -> dict[str, int]:
        assert agents == [AgentTopics("east", 7)]
        return waiting

    monkeypatch.setattr("fleethpa.fleet.backlogs.unread_reports", unread_reports)
    fleet.append(AgentSet(cluster="east", incarnation=7), key=WHOLE, after_ms=0)
    fleet.run(60, without=("observer", "reconciler"))
    text = "cluster east: 12 records of its agent wait unread in fleethpa.from.east.7"
    shown = run("doctor", *PARTS)
    assert (shown.exit_code, text in shown.stdout) == (1, True), shown.stdout
    assert "fleethpa admin topics acls ingest" in shown.stdout
    waiting.clear()
    assert "wait unread" not in run("doctor", *PARTS).stdout


def test_a_cluster_that_is_observed_under_two_names_is_a_failure_and_named_by_each_verb(
    run: Cli, fleet: Running
) -> None:
    beat = Heartbeat(session="w", watches=["pods", "autoscalers", "scales"])
    fleet.append(AutoscalerList(list_id="l", session="w", hpas=[hpa()]), key="west/shop", after_ms=0)
    fleet.append(beat, key="west/shop", after_ms=0)
    fleet.append(ClusterReport(cluster="west", session="w", instance="w"), key=WHOLE, after_ms=0)
    text = "it is cluster east under another name, or a copy of it: HPA shop/checkout has one uid in both"
    assert f"warning: cluster west: {text}" in run("get", "hpa", "-A").stderr
    shown = run("doctor", *PARTS)
    assert (shown.exit_code, text in shown.stdout) == (1, True)
    fleet.run(40)  # the observer of west has ended: that may have been its former name
    assert "under another name" not in run("get", "hpa", "-A").stderr + run("doctor", *PARTS).stdout


def test_an_observer_that_is_started_again_and_again_and_reports_on_no_namespace_is_named(
    run: Cli, fleet: Running
) -> None:
    for _ in range(8):
        fleet.run(5, without=("observer",))
        fleet.append(ClusterReport(cluster="east", session="s", instance="o"), key=WHOLE, after_ms=0)
    shown = run("get", "clusters").stdout + run("doctor", *PARTS).stdout
    assert shown.count("its observer has reported on none of its namespaces since") == 2
    stated = run("get", "hpa", "-A").stderr
    assert "cluster east: its observer has reported on none of its namespaces since" in stated
    assert "hangs or does not run" not in stated, "it reports"


def test_a_found_kubeconfig_that_is_refused_is_not_answered_with_a_question_to_its_api_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}
    document = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"exec": command}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "u"}}],
    }
    (tmp_path / "prod.yaml").write_text(json.dumps(document))
    found = Cli(monkeypatch)("admin", "clusters", "check", "--kubeconfig-dir", str(tmp_path))
    assert found.exit_code == 1
    assert "user.exec.command 'aws' is not one of the plugins" in found.stdout
    assert "or name it in --found-exec-plugins" in found.stdout
    assert "kubectl" not in found.stdout


@pytest.mark.parametrize("verb", [("admin", "clusters", "check"), ("doctor", "--only", "access", "--brokers", "x:1")])
def test_a_cluster_that_cannot_be_read_is_named_once_with_the_next_step(
    run: Cli, tmp_path: Path, caplog: pytest.LogCaptureFixture, verb: tuple[str, ...]
) -> None:
    (tmp_path / "prod.yaml").write_text("[1")
    found = run(*verb, "--kubeconfig-dir", str(tmp_path))
    assert "prod.yaml in folder" in found.stdout
    assert "not YAML at line 1" in found.stdout
    assert f"kubectl --kubeconfig {tmp_path}/prod.yaml config view" in found.stdout
    assert caplog.messages == [], "where no log is set up, its lines have no name and no reason"


def test_what_shows_a_collection_and_an_object_of_it_is_named() -> None:
    secrets = "/api/v1/namespaces/argocd/secrets?argocd=cluster"
    found = KnownMembers(
        (), {secrets: "forbidden", f"prod in {secrets}": "data.server: Required value", "clusters: x": "y"}
    )
    assert [check.next_step for check in finding_checks(found)] == [
        "fleethpa admin clusters rbac --secrets-in argocd | kubectl apply -f -",
        "",
        "kubectl -n argocd describe secrets prod",
    ]

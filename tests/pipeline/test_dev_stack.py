"""`fleethpa dev` as a user has it: one terminal keeps it up, others use fleethpa and the real kubectl against it.

All of it is in the slow tier: the stack is five processes, and one start of it serves every test here.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleethpa.frame.errors import ANSWER_IS_NO, OK
from fleethpa.tuning.specsearch import FEWEST
from tests.kit.cli import Cli
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

FLEETHPA = [sys.executable, "-m", "fleethpa"]
ALL = {
    "east/media/encode",
    "east/shop/checkout",
    "east/shop/search",
    "north/factory/ingest",
    "north/factory/press",
    "south/depot/orders",
    "south/depot/routing",
    "west/data/cache",
    "west/shop/checkout",
}
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 3
  maxReplicas: 6
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
"""
DEPLOYMENT = """
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers: [{name: main, image: "web:1", resources: {requests: {cpu: 100m}}}]
"""


class Terminal:
    """A second terminal: the same machine, no flags."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(folder), "USER": "anna", "COLUMNS": "80"}
        self.environ.pop("KUBECONFIG", None)

    def fleethpa(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*FLEETHPA, *arguments], env=self.environ, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
        )

    def ok(self, *arguments: str, stdin: str | None = None) -> str:
        """Run and insist on exit 0."""
        done = self.fleethpa(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def following(self, *arguments: str) -> Iterator[Iterator[str]]:
        """The lines of a command that continues until it is interrupted."""
        with subprocess.Popen([*FLEETHPA, *arguments], env=self.environ, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=PATIENCE_S)  # it ends once it has written what it has begun
                assert process.returncode == 130
            finally:
                process.kill()

    def hpas(self) -> dict[str, dict[str, Any]]:
        items = json.loads(self.ok("get", "hpa", "-A", "-o", "json"))["items"]
        return {f"{i['cluster']}/{i['metadata']['namespace']}/{i['metadata']['name']}": i for i in items}

    def kubectl(self, cluster: str, *arguments: str, stdin: str | None = None) -> str:
        base = ["kubectl", "--kubeconfig", str(self.folder / "kubeconfig"), "--context", cluster]
        environ = self.environ | {"HOME": str(self.folder)}
        done = subprocess.run(
            [*base, *arguments], env=environ, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, f"kubectl {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def replicas(self, cluster: str, namespace: str, name: str) -> int:
        path = "jsonpath={.spec.replicas}"
        return int(self.kubectl(cluster, "get", "deployment", name, "-n", namespace, "-o", path))

    def runtime(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "dev.json").read_text())
        return found


def until(true: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    pause_s = 0.2
    while not true():
        assert time.monotonic() < deadline, f"not in {timeout_s} s: {what}"
        time.sleep(pause_s)  # between two looks at another process; nothing waits for the time itself
        pause_s = min(pause_s * 1.5, 1.0)  # a look starts a process: the later, the less often


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("dev")
    made = Terminal(folder)
    with (folder / "dev.out").open("w+") as out:
        process = subprocess.Popen([*FLEETHPA, "dev"], env=made.environ, stdout=out, stderr=out, cwd=folder)
        try:
            until(lambda: _is_up(process, folder), "fleethpa dev is up", 60)
            made.ok("settings", "*", "sync-period=2s", "--reason", "quick tests")
            yield made
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            # Ctrl-C leaves nothing behind.
            assert not (folder / "dev.json").exists()
        finally:
            if process.poll() is None:
                process.kill()


def _is_up(process: subprocess.Popen[bytes], folder: Path) -> bool:
    stated = (folder / "dev.out").read_text()
    assert process.poll() is None, stated
    return "Ctrl-C ends it." in stated


def test_a_second_terminal_sees_the_world_that_kubectl_sees(terminal: Terminal) -> None:
    assert set(terminal.hpas()) == ALL
    table = terminal.ok("get", "hpa", "-A").splitlines()
    assert table[0].split()[:3] == ["NAMESPACE", "NAME", "CLUSTER"]
    assert len(table) == len(ALL) + 1
    clusters = terminal.ok("get", "clusters", "--no-headers").splitlines()
    assert [line.split()[:2] for line in clusters] == [["east", "up"], ["north", "up"], ["south", "up"], ["west", "up"]]

    def agree() -> bool:
        ours = terminal.hpas()["west/data/cache"]["status"].get("currentReplicas")
        return str(ours) == terminal.kubectl(
            "west", "get", "statefulset", "cache", "-n", "data", "-o", "jsonpath={.spec.replicas}"
        )

    until(agree, "fleethpa and kubectl show the same replicas")
    assert "pod/checkout-" in terminal.kubectl("east", "get", "hpa,pods", "-A")


def test_doctor_finds_nothing_wrong_with_a_fresh_stack(terminal: Terminal) -> None:
    checks = json.loads(terminal.ok("doctor", "--only", "kafka,topics,log,clusters,access", "-o", "json"))["items"]
    assert [each for each in checks if each["level"] != "ok"] == []
    assert {each["area"] for each in checks} == {"kafka", "topics", "log", "clusters", "access"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl")
def test_describe_begins_as_kubectl_describe_does(terminal: Terminal) -> None:
    def same() -> bool:
        theirs = terminal.kubectl("north", "describe", "hpa", "ingest", "-n", "factory", "--show-events=false")
        ours = terminal.ok("describe", "hpa", "north/factory/ingest")
        return _without_usage(ours).startswith(_without_usage(theirs).rstrip("\n") + "\n")

    # Replicas and conditions may move between the two looks.
    until(same, "the same page")
    assert "Last decisions:" in terminal.ok("describe", "north/factory/ingest")


def _without_usage(page: str) -> str:
    """A page without what was measured (`41% (41m) / 60%`), which moves from one look to the next."""
    return re.sub(r"\S+( \(\S+\))? / ", "… / ", page)


def test_every_decision_can_be_explained_and_followed(terminal: Terminal) -> None:
    text = terminal.ok("explain", "west/data/cache")
    assert "memory" in text
    assert "Inputs   log" in text
    newest = json.loads(terminal.ok("decisions", "-A", "--last", "1", "-o", "jsonl"))
    assert newest["id"] in terminal.ok("explain", newest["id"])
    with terminal.following("decisions", "-A", "--follow", "-o", "jsonl") as lines:
        unseen = {"east", "west", "north"}
        while unseen:
            unseen.discard(json.loads(next(lines))["cluster"])


def test_kubectl_apply_makes_an_hpa_that_fleethpa_drives(terminal: Terminal) -> None:
    terminal.kubectl("west", "apply", "-f", "-", stdin=DEPLOYMENT.replace("NAME", "api"))
    least = HPA.replace("name: web", "name: api").replace("minReplicas: 3", "minReplicas: 2")
    terminal.kubectl("west", "apply", "-f", "-", stdin=least)
    until(lambda: terminal.replicas("west", "web", "api") == 2, "minReplicas reached")
    until(lambda: "ScalingActive" in terminal.kubectl("west", "describe", "hpa", "api", "-n", "web"), "conditions")
    page = terminal.kubectl("west", "describe", "hpa", "api", "-n", "web")
    assert "AbleToScale" in page
    assert "New size: 2; reason: Current number of replicas below Spec.MinReplicas" in page
    assert terminal.hpas()["west/web/api"]["mode"] == "enforce"


def test_apply_drives_pause_stops_resume_goes_on_delete_ends(terminal: Terminal) -> None:
    terminal.kubectl("north", "apply", "-f", "-", stdin=DEPLOYMENT.replace("NAME", "web"))
    assert (
        terminal.ok("apply", "-f", "-", "-C", "north", "--reason", "PAY-1", stdin=HPA) == "hpa north/web/web created\n"
    )
    until(lambda: terminal.replicas("north", "web", "web") == 3, "the central HPA drives")
    view = terminal.hpas()["north/web/web"]
    assert (view["origin"], view["mode"]) == ("central", "enforce")

    assert terminal.ok("pause", "north/web/web", "--reason", "INC-42") == "hpa north/web/web paused\n"
    assert "INC-42" in terminal.hpas()["north/web/web"]["paused"]
    changed = terminal.ok("apply", "-f", "-", "-C", "north", stdin=HPA.replace("minReplicas: 3", "minReplicas: 5"))
    assert changed == "hpa north/web/web configured (minReplicas 3→5)\n"
    until(lambda: "paused" in terminal.ok("explain", "north/web/web"), "a decision under the pause")
    assert terminal.replicas("north", "web", "web") == 3

    terminal.ok("resume", "north/web/web")
    until(lambda: terminal.replicas("north", "web", "web") == 5, "the pause is over")
    assert terminal.ok("delete", "north/web/web", "--yes") == "hpa north/web/web deleted\n"
    assert "north/web/web" not in terminal.hpas()


def test_doctor_names_ingest_that_hangs_while_the_decider_ticks_on_and_nobody_whose_reports_it_keeps(
    terminal: Terminal,
) -> None:
    parts = terminal.runtime()["processes"]["parts"]

    def failures() -> list[Any]:
        checks = json.loads(terminal.fleethpa("doctor", "--only", "log,clusters", "-o", "json").stdout)["items"]
        return [each for each in checks if each["level"] == "failure"]

    os.kill(parts, signal.SIGSTOP)
    try:
        until(lambda: bool(failures()), "ingest is named", 90)
        (found,) = failures()
        assert (found["area"], found["subject"], found["nextStep"]) == ("log", "ingest", "fleethpa run ingest")
    finally:
        os.kill(parts, signal.SIGCONT)
    until(lambda: failures() == [], "they continue", 60)


def test_a_killed_decider_comes_back_where_it_was(terminal: Terminal) -> None:
    before = {item["id"] for item in _decisions(terminal)}
    with terminal.following("decisions", "-A", "--follow", "-o", "jsonl") as lines:
        os.kill(terminal.runtime()["processes"]["decider"], signal.SIGKILL)
        after = set[str]()
        while len(after) < 5:
            after |= {json.loads(next(lines))["id"]} - before
    for partition in range(4):
        seqs = [item["seq"] for item in _decisions(terminal) if item["position"]["partition"] == partition]
        assert seqs == list(range(1, len(seqs) + 1)), f"gaps or repeats in partition {partition}"


def _decisions(terminal: Terminal) -> list[dict[str, Any]]:
    text = terminal.ok("decisions", "-A", "--last", "100000", "-o", "jsonl")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def recorded(terminal: Terminal) -> Path:
    """An archive of the stack, once it holds enough evaluations of each HPA for `tune` to search."""

    def enough() -> bool:
        rows = csv.DictReader(terminal.ok("export", "decisions", "-A", "-o", "csv").splitlines())
        named = (f"{row['cluster']}/{row['namespace']}/{row['name']}" for row in rows if row["raw_desired_replicas"])
        counts = Counter(named)
        return all(counts[hpa] > FEWEST for hpa in ALL)

    until(enough, f"{FEWEST} evaluations of each HPA", 400)
    archive = terminal.folder / "archive"
    terminal.ok("admin", "archive", "--to", str(archive), "--once")
    return archive


@pytest.mark.parametrize("hpa", sorted(ALL))
def test_every_analysis_of_each_hpa_has_an_answer(recorded: Path, monkeypatch: pytest.MonkeyPatch, hpa: str) -> None:
    run = Cli(monkeypatch)
    for analysis in (
        "tune",
        "backtest --set maxReplicas=30",
        "what-if --set maxReplicas=30",
        "explain",
        "describe",
        "history",
        "export decisions -o csv",
    ):
        done = run(*analysis.split(), hpa, "--from", str(recorded))
        assert done.exit_code == 0, (analysis, done.output)
        assert done.stdout, analysis
        assert "are needed" not in done.stdout, (analysis, done.stdout)


def test_every_analysis_of_the_whole_stack_has_an_answer(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Cli(monkeypatch)
    for analysis in (
        "tune -A",
        "backtest -A --set maxReplicas=30",
        "shadow-report -A -C south",
        "export decisions -A -o jsonl",
    ):
        done = run(*analysis.split(), "--from", str(recorded))
        assert done.exit_code in (OK, ANSWER_IS_NO), (analysis, done.output)
        assert done.stdout, analysis

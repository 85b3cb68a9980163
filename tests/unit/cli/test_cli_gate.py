"""The gate of a pull request: ten HPAs of which three change, against a revision and a folder, from a bundle."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from fleethpa.questions.gate import COMMENT, GatedPair, GateFindings, markdown
from schemas.keys import HpaId
from streams.analysis.answer import SpecDifference
from streams.analysis.closedloop import StartUp
from streams.analysis.measures import Measures
from streams.analysis.specpairs import SpecPair
from tests.kit.archive import ENFORCING, topics_in_closed_loop, write_archive
from tests.kit.cli import Cli
from tests.kit.documented import ROOT
from tests.kit.generated_log import Fleet
from tests.kit.published import fits

FLEET = Fleet(hpas=10, namespaces=1, minutes=12, partitions=1, pods=5, churn=0.002, noise=0.03, settings=ENFORCING)
SINCE = ("--since", "2025-12-31T00:00:00Z")
CHANGED: dict[str, dict[str, int]] = {
    "app1": {"minReplicas": 12},
    "app4": {"maxReplicas": 30, "minReplicas": 5},
    "app7": {"minReplicas": 1},
}


@dataclass
class Repository:
    """A git repository with manifests in `hpas`, and a bundle of their past."""

    root: Path
    bundle: Path
    run: Cli

    def git(self, *words: str) -> None:
        environ = {"GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(self.root), "PATH": os.environ["PATH"]}
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *who, *words], cwd=self.root, env=environ, check=True, capture_output=True)

    def write(self, name: str, body: dict[str, Any]) -> None:
        (self.root / "hpas" / f"{name}.yaml").write_text(yaml.safe_dump(body))

    def read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((self.root / "hpas" / f"{name}.yaml").read_text())
        return found

    def gate(self, *words: str) -> Any:
        return self.run("backtest", "-f", str(self.root / "hpas"), *SINCE, "--from", str(self.bundle), *words)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    archive = write_archive(folder / "archive", FLEET, topics=topics_in_closed_loop(FLEET), segment_ms=360_000)
    file = folder / "past.tar"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEETHPA_RUNTIME_DIR", str(folder))
        made = Cli(patch)("export", "bundle", "c0/ns0/app0", *SINCE, "--out", str(file), "--from", str(archive))
    assert made.exit_code == 0, made.output
    return file


@pytest.fixture(scope="module")
def written(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a repository of ten HPAs, committed, of which three are changed since then."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEETHPA_RUNTIME_DIR", str(folder))
        made = Repository(folder / "repository", bundle, Cli(patch))
        listed = made.run("get", "hpa", "-A", "-o", "yaml", "--from", str(bundle))
    (made.root / "hpas").mkdir(parents=True)
    for item in yaml.safe_load(listed.stdout)["items"]:
        names = {key: item["metadata"][key] for key in ("name", "namespace")}
        body: dict[str, Any] = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": names}
        made.write(names["name"], body | {"spec": item["spec"]})
    made.git("init", "-q")
    made.git("add", "-A")
    made.git("commit", "-qm", "before")
    for name, fields in CHANGED.items():
        before = made.read(name)
        made.write(name, before | {"spec": before["spec"] | fields})
    return made.root


@pytest.fixture
def repository(bundle: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Ten HPAs, committed, of which three are changed since then: a copy that a test may change."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    shutil.copytree(written, tmp_path / "repository")
    return Repository(tmp_path / "repository", bundle, Cli(monkeypatch))


def test_only_what_changed_is_tried_and_the_comment_says_what_it_does(repository: Repository) -> None:
    done = repository.gate("--base", "HEAD", "-o", "markdown")
    assert done.exit_code == 0, done.output
    text = done.stdout
    assert text.startswith("### fleethpa: passed\n\n3 HPAs of 10 changed since HEAD: on the recorded load ")
    assert "replica-hours (model error ±" in text
    assert {name for name in re.findall(r"^\| c0/ns0/(\w+) \|", text, re.M)} == set(CHANGED)
    assert "- c0/ns0/app4: maxReplicas " in text
    assert "Z (decision 0-" in text, "its ID, which explain takes"
    assert text.count("  - first difference at 2026-01-01T00:") + text.count("want other replicas") >= 3
    assert text.count("  - limits met: ") == 3
    assert text.count("against what ran") == 3
    assert "This model cannot know" in text
    assert len(text) <= COMMENT


def test_a_folder_is_as_good_as_a_revision(repository: Repository, tmp_path: Path) -> None:
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "base"), "HEAD"], cwd=repository.root, check=True)
    folder = tmp_path / "base" / "hpas"
    by_folder = repository.gate("--base", str(folder), "-o", "json").stdout
    by_revision = repository.gate("--base", "HEAD", "-o", "json").stdout
    assert fits("GateReport", by_folder)["items"] == fits("GateReport", by_revision)["items"]


def test_a_condition_that_is_met_fails_the_gate_and_comes_first(repository: Repository) -> None:
    done = repository.gate("--base", "HEAD", "-o", "markdown", "--fail-if", "replica_hours>+20%")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "### fleethpa: FAILED"
    assert "- **FAILED** c0/ns0/app1: replica&#95;hours&gt;+20%" in lines
    assert repository.gate("--base", "HEAD", "--fail-if", "replica_hours>+2000%").exit_code == 0
    assert "FAILED: replica_hours>+20%" in repository.gate("--base", "HEAD", "--fail-if", "replica_hours>+20%").stdout


def test_what_cannot_be_tried_is_named_with_its_reason(repository: Repository) -> None:
    new, unknown = repository.read("app2"), repository.read("app3")
    new["metadata"]["name"] = "new"
    repository.write("new", new)
    unknown["metadata"]["name"] = "unknown"
    repository.write("unknown", unknown)
    repository.git("add", "hpas/unknown.yaml")
    repository.git("commit", "-qm", "one without a past", "hpas/unknown.yaml")
    repository.write("unknown", unknown | {"spec": unknown["spec"] | {"maxReplicas": 77}})
    (repository.root / "hpas" / "app5.yaml").unlink()
    text = repository.gate("--base", "HEAD", "-o", "markdown").stdout
    assert "- not tried: ns0/unknown: the recording has no HPA of this name" in text
    assert "- not tried: new, without a past: ns0/new" in text
    assert "- not tried: removed: ns0/app5" in text


def test_a_cluster_that_is_misspelt_does_not_pass_the_gate(repository: Repository) -> None:
    done = repository.gate("--base", "HEAD", "-C", "prod", "-o", "markdown")
    assert done.exit_code == 4, done.output
    assert "no cluster matches 'prod'" in done.stderr


def test_a_change_of_which_nothing_could_be_tried_is_not_called_passed(repository: Repository) -> None:
    repository.git("commit", "-qam", "merged")
    unknown = repository.read("app3")
    unknown["metadata"]["name"] = "unknown"
    repository.write("unknown", unknown)
    repository.git("add", "hpas/unknown.yaml")
    repository.git("commit", "-qm", "one without a past", "hpas/unknown.yaml")
    repository.write("unknown", unknown | {"spec": unknown["spec"] | {"maxReplicas": 77}})
    done = repository.gate("--base", "HEAD", "-C", "c*", "-o", "markdown")
    assert (done.exit_code, done.stdout.splitlines()[0]) == (0, "### fleethpa: nothing tried")
    assert "ns0/unknown: the recording has no HPA of this name in c&#42;" in done.stdout


def test_without_a_change_nothing_is_read(repository: Repository) -> None:
    repository.git("commit", "-qam", "merged")
    done = repository.gate("--base", "HEAD", "-o", "markdown")
    assert (done.exit_code, done.stdout.splitlines()[2]) == (0, "No HPA changed since HEAD.")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        pytest.param(("--base", "nosuch"), "--base nosuch cannot be read from the repository", id="no such revision"),
        pytest.param(("--base=--output=x",), "--base --output=x", id="a revision that is an option"),
        pytest.param(("-o", "markdown"), "-o markdown is for a comparison of manifests", id="no base"),
        pytest.param(("--base", "HEAD", "--set", "maxReplicas=3"), "--base needs -f", id="another candidate"),
        pytest.param(("--base", "HEAD", "--model", "open"), "--base needs --model closed", id="the open model"),
    ],
)
def test_wrong_use_is_refused(repository: Repository, words: tuple[str, ...], text: str) -> None:
    done = repository.gate(*words)
    assert done.exit_code == 2, done.output
    assert text in done.stderr


# --- the text ---------------------------------------------------------------------------------------------------------

MEASURES = Measures(
    replica_hours=1.0,
    above_target_minutes=0.0,
    worst_overload=1.0,
    at_max_minutes=0.0,
    scale_events=0,
    direction_flips=0,
    unknown_minutes=0.0,
    hours=1.0,
)


def pair(number: int, hours: float = 1.0, changes: str = "minReplicas 1→2", *, failed: bool = False) -> GatedPair:
    first = SpecDifference(
        decision="0-1-uid",
        time=0,
        current=1,
        base=1,
        changed=2,
        base_asked=1,
        changed_asked=1,
        base_held=[],
        changed_held=["MinReplicas"],
    )
    made = SpecPair(
        hpa=HpaId("c", "n", f"app-{number:05}"),
        evaluations=1,
        since_ms=0,
        until_ms=1,
        recorded=MEASURES,
        deployed=MEASURES,
        base=MEASURES,
        changed=msgspec.structs.replace(MEASURES, replica_hours=hours),
        base_limits={},
        changed_limits={"MinReplicas": 5.0},
        first=first,
        start_up=StartUp(ms=1, measured=0, how=""),
    )
    return GatedPair(made, [changes], ["replica_hours>+1%"] if failed else [])


@pytest.mark.parametrize("count", [1, 60, 200, 500, 3_000])
def test_the_text_fits_a_comment_and_says_what_was_left_out(count: int) -> None:
    pairs = [pair(number, 1.0 + number) for number in range(count)]
    text = markdown(GateFindings("main", pairs, {}, [], [], 0, None))
    assert len(text) <= COMMENT
    shown = re.findall(r"^\| c/n/app-(\d+) \|", text, re.M)
    # The largest changes come first, and none is missing without a word.
    assert shown == [f"{number:05}" for number in range(count - 1, count - 1 - len(shown), -1)]
    left = count - len(shown)
    assert (f"| {left:,} further HPA" in text) == bool(left)
    details = len(re.findall(r"^- c/n/app-\d+: ", text, re.M))
    assert (f"The details of {count - details:,} HPA" in text) == (details < count)


def test_what_fails_is_never_left_out_for_what_passes() -> None:
    pairs = [pair(0, failed=True), *[pair(number, 1_000.0) for number in range(1, 3_000)]]
    text = markdown(GateFindings("main", pairs, {}, [], [], 0, None))
    assert "| **c/n/app-00000** |" in text
    assert len(text) <= COMMENT


def test_no_text_of_a_manifest_is_markup_in_the_comment() -> None:
    hostile = "a|b <img src=x> `x` @team [x](http://evil) \n# head **b** ![i](j) &amp;"
    text = markdown(GateFindings("main", [pair(0, changes=hostile)], {hostile: hostile}, [], [], 0, None))
    for part in ("<img", "`x`", "@team", "[x](", "http://", "\n# head", "**b**", "!["):
        assert part not in text
    (row,) = [line for line in text.splitlines() if line.startswith("| c/n/")]
    assert row.count("|") == 7


# --- the action and the template --------------------------------------------------------------------------------------


def scripts(name: str) -> tuple[dict[str, Any], str]:
    """The action or the template, and the script of its gate."""
    found = yaml.safe_load((ROOT / name).read_text())
    if "runs" in found:
        return found, next(each["run"] for each in found["runs"]["steps"] if each.get("id") == "gate")
    return found, found["fleethpa-gate"]["script"][0]


@pytest.mark.parametrize("name", [".github/actions/gate/action.yaml", "compose/gitlab/gate.yaml"])
@pytest.mark.parametrize(
    ("fail_if", "code"), [("", 0), ("scale_events>+900\nreplica_hours>+20%\n", 1), ("nonsense", 2)]
)
def test_the_scripts_of_ci_pass_on_the_text_and_the_exit_code(
    repository: Repository, tmp_path: Path, name: str, fail_if: str, code: int
) -> None:
    _, script = scripts(name)
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "fleethpa"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleethpa "$@"\n')
    program.chmod(0o755)
    given = {"FILES": "hpas", "ARCHIVE": str(repository.bundle), "SINCE": "30d", "FAIL_IF": fail_if}
    environ = {f"FLEETHPA_{key}": value for key, value in given.items()} | given
    environ |= {"BASE": "HEAD", "CI_MERGE_REQUEST_DIFF_BASE_SHA": "HEAD", "RUNNER_TEMP": str(tmp_path)}
    environ |= {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    environ |= {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script], cwd=repository.root, env=environ, capture_output=True, text=True
    )
    is_action = name.endswith("action.yaml")
    assert done.returncode == (0 if is_action else code), done.stderr
    if is_action:
        assert (tmp_path / "output").read_text() == f"exit-code={code}\n"
    text = (tmp_path / "summary").read_text() if is_action else (repository.root / "gate.md").read_text()
    assert text.startswith(f"### fleethpa: {('passed', 'FAILED', 'not run')[code]}")


@pytest.mark.parametrize(("own", "asked"), [("", "pr comment 7 --repo o/r --body-file"), ("11\n12\n", "comments/12")])
def test_the_action_changes_its_own_comment_and_no_other(tmp_path: Path, own: str, asked: str) -> None:
    action, _ = scripts(".github/actions/gate/action.yaml")
    (script,) = [each["run"] for each in action["runs"]["steps"] if "gh api" in each["run"]]
    program, calls = tmp_path / "gh", tmp_path / "calls"
    listed = f'case "$*" in *--paginate*) printf "{own}";; esac'
    program.write_text(f'#!/bin/sh\necho "$*" >> "{calls}"\n{listed}\n')
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path)}
    environ |= {"NUMBER": "7", "REPOSITORY": "o/r"}
    subprocess.run(["bash", "-eo", "pipefail", "-c", script], env=environ, check=True, capture_output=True)
    found, written = calls.read_text().splitlines()
    assert 'startswith("### fleethpa: ")' in found
    assert asked in written


def test_the_action_has_an_input_for_all_that_its_steps_use_and_puts_none_into_a_script() -> None:
    action, _ = scripts(".github/actions/gate/action.yaml")
    text = yaml.safe_dump(action["runs"])
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"], "a value in a script can be a command"

"""Every question to the log is answered for HPAs with each optional field absent, alone and all together."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from fleethpa.frame.errors import INTERNAL
from schemas.kubernetes.hpa import hpa_from_manifest
from streams.analysis.candidate import CandidateError
from tests.kit import generated_log
from tests.kit.archive import write_archive
from tests.kit.broken import BrokenError
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet, GeneratedWorkload

ABSENT = (
    "",
    "the metric cpu",
    "metadata.labels",
    "spec.minReplicas",
    "spec.metrics",
    "spec.behavior",
    "spec.behavior.scaleUp",
    "spec.behavior.scaleDown",
    "spec.behavior.scaleUp.policies",
    "spec.behavior.scaleUp.selectPolicy",
    "spec.behavior.scaleUp.stabilizationWindowSeconds",
    "spec.behavior.scaleDown.policies",
    "spec.behavior.scaleDown.selectPolicy",
    "spec.behavior.scaleDown.stabilizationWindowSeconds",
)
"""Of an HPA of the fleet: the field that its manifest lacks."""
FLEET = Fleet(hpas=len(ABSENT), namespaces=2, minutes=33, seed=28, pods=4, metrics=2)
HPAS = [f"c0/ns{number % FLEET.namespaces}/app{number}" for number in range(FLEET.hpas)]
SINCE = ("--since", "2025-12-31T00:00:00Z")


def without(field: str, body: dict[str, Any]) -> dict[str, Any]:
    """The manifest without a field, as an observer gives it to the log."""
    body = deepcopy(body)
    if field == "the metric cpu":
        body["spec"]["metrics"] = [each for each in body["spec"]["metrics"] if each["resource"]["name"] != "cpu"]
        return hpa_from_manifest(body)
    *path, last = field.split(".")
    holder = body
    for name in path:
        holder = holder[name]
    holder.pop(last, None)
    return hpa_from_manifest(body)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = generated_log.hpa

    def hpa(workload: GeneratedWorkload, fleet: Fleet) -> dict[str, Any]:
        return without(ABSENT[int(workload.name.removeprefix("app"))], made(workload, fleet))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generated_log, "hpa", hpa)
        yield write_archive(tmp_path_factory.mktemp("absent") / "a", FLEET)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Cli(monkeypatch)


def answered(run: Cli, archive: Path, *arguments: str) -> str:
    done = run(*arguments, "--from", str(archive))
    assert "internal error" not in done.output, (arguments, done.output)
    assert done.exit_code in (0, 1), (arguments, done.output)
    return done.stdout + done.stderr  # what is left out of an answer is named beside it


@pytest.mark.slow
@pytest.mark.parametrize(
    "question",
    [
        ("tune", "-A", *SINCE),
        ("backtest", "-A", "--set", "scaleDown.stabilizationWindowSeconds=60", *SINCE),
        ("shadow-report", "-A", *SINCE),
        ("export", "decisions", "-A", "-o", "csv"),
    ],
    ids=" ".join,
)
def test_a_question_about_all_names_each_of_them(run: Cli, archive: Path, question: tuple[str, ...]) -> None:
    said = answered(run, archive, *question)
    for hpa in HPAS:
        assert hpa in said or ",".join(hpa.split("/")) in said, hpa


def test_an_hpa_to_which_a_change_does_not_apply_ends_no_run_over_the_others(run: Cli, archive: Path) -> None:
    done = run("backtest", "-A", "--set", "cpu=70%", "--since", "2026-01-01T00:31:00Z", "--from", str(archive))
    assert done.exit_code == 0, done.output
    assert f"1 HPA left out: {HPAS[1]}. " in done.stderr
    assert [f"\n{hpa} " in done.stdout for hpa in HPAS] == [hpa != HPAS[1] for hpa in HPAS]
    named = run("backtest", *HPAS[:2], "--set", "cpu=70%", "--from", str(archive))
    assert (named.exit_code, named.stdout) == (2, "")


def test_every_named_hpa_that_cannot_be_tried_is_told(run: Cli, archive: Path) -> None:
    done = run("backtest", *HPAS[:3], "--set", "minReplicas=99", "--from", str(archive))
    assert (done.exit_code, done.stdout) == (2, "")
    assert [f"--set on {hpa}" in done.stderr for hpa in HPAS[:3]] == [True] * 3, done.stderr


def test_a_refusal_of_one_named_hpa_hides_no_fault_with_another(
    monkeypatch: pytest.MonkeyPatch, run: Cli, archive: Path
) -> None:
    faulty, refused = HPAS[0], HPAS[2]

    def tried(events: Any, candidate: Any, model: str) -> Any:
        if str(candidate.hpa) == faulty:
            raise BrokenError("here")
        raise CandidateError(f"{candidate.hpa}: not this one")

    monkeypatch.setattr("fleethpa.questions.backtests.backtest", tried)
    done = run("backtest", faulty, refused, "--set", "maxReplicas=8", "--from", str(archive))
    assert (done.exit_code, done.stdout) == (INTERNAL, "")
    assert f"Error: {faulty}: internal error: BrokenError: here\n" in done.stderr
    assert f"Error: {refused}: not this one\n" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("hpa", HPAS, ids=[field or "nothing" for field in ABSENT])
def test_each_is_explained_and_tried(run: Cli, archive: Path, hpa: str) -> None:
    assert "STEP" in answered(run, archive, "explain", hpa)
    assert "created" in answered(run, archive, "history", hpa)
    assert "→" in answered(run, archive, "what-if", hpa, "--set", "maxReplicas=30")
    assert "→" in answered(run, archive, "what-if", hpa, "--set", "scaleUp.stabilizationWindowSeconds=30")

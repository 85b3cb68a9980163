"""The Job of a report in shards on a real control plane: its pods, their numbers, and that it completes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet
from tests.kubernetes.controlplane import ControlPlane
from tests.kubernetes.manifests import NAMESPACE, PLAIN
from tests.kubernetes.site import until

Json = dict[str, Any]
FLEET = Fleet(hpas=8, namespaces=8, minutes=10, partitions=4, metrics=1, seed=3, pods=2)
ENDED = {"containerStatuses": [], "phase": "Succeeded"}


@pytest.fixture
def plane(binaries: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane without nodes, whose namespace admits restricted pods only."""
    with ControlPlane("home", tmp_path / "home", binaries, native=False) as made:
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        made.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": restricted}}])
        yield made


def _index(pod: Json) -> str:
    """The value of JOB_COMPLETION_INDEX, as a kubelet takes it from the pod."""
    (variable,) = [each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "JOB_COMPLETION_INDEX"]
    path = variable["valueFrom"]["fieldRef"]["fieldPath"]
    labels: dict[str, str] = pod["metadata"]["labels"] if ".labels[" in path else pod["metadata"]["annotations"]
    return labels["batch.kubernetes.io/job-completion-index"]


def test_the_job_completes_and_its_parts_make_the_report(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = write_archive(tmp_path / "archive", FLEET, segment_ms=600_000)
    plane.kubectl("apply", "--validate=strict", "-f", str(PLAIN / "report-job.yaml"))
    (job,) = yaml.safe_load_all((PLAIN / "report-job.yaml").read_text())
    until(lambda: len(plane.objects("pods", NAMESPACE)) == job["spec"]["completions"], "a pod for each shard")

    run, places = Cli(monkeypatch), {"/archive": str(archive), "/parts": str(tmp_path / "parts")}
    times = {"2026-11-01T00:00:00Z": "2026-01-01T00:00:00Z", "2026-11-08T00:00:00Z": "2026-01-01T00:10:00Z"}
    for pod in plane.objects("pods", NAMESPACE):
        words = [word.replace("$(JOB_COMPLETION_INDEX)", _index(pod)) for word in pod["spec"]["containers"][0]["args"]]
        done = run(*[(places | times).get(word, word) for word in words])
        assert done.exit_code == 0, done.output
        patch = json.dumps({"status": ENDED})
        plane.kubectl("patch", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--subresource=status", "-p", patch)
    plane.kubectl("wait", "--for=condition=Complete", "job/fleethpa-report", "-n", NAMESPACE, "--timeout=120s")

    since, until_time = times.values()
    window = ("--since", since, "--until", until_time)
    whole = run("cost", "-A", *window, "--from", str(archive))
    assert run("cost", "--parts", places["/parts"]).stdout == whole.stdout
    assert "8 HPAs" in whole.stdout

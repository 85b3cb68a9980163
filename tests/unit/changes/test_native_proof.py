"""`admin clusters prove-native-absent`: a canary HPA is watched, deleted, and its verdict recorded."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from fleethpa.changes import handover as nativeproof
from fleethpa.frame.writer import Fate, SentRecord
from reconciler.clusters.answers import ApiError, ClusterError
from schemas.entries import Body
from schemas.settings import SettingsSet
from tests.kit.cli import Cli, Fleet

Json = dict[str, Any]


class Cluster:
    """An API server with or without a native controller, and the writer of the log. `failure`: what a POST raises."""

    def __init__(self) -> None:
        self.canaries: dict[str, Json] = {}
        self.made = 0
        self.written: list[SettingsSet] = []
        self.failure: ClusterError | None = None
        self.native_runs = self.loses_canaries = False

    name = "east"

    async def request(self, method: str, path: str, body: Json | None = None, **_: object) -> Json:
        if self.failure is not None:
            raise self.failure
        if method == "DELETE":
            return self.canaries.pop(path, {})
        assert body is not None
        self.made += 1
        name = f"{path}/{body['metadata']['name']}"
        if not self.loses_canaries:
            self.canaries[name] = body | ({"status": {"observedGeneration": 1}} if self.native_runs else {})
        return body

    async def get_object(self, path: str, **_: object) -> Json:
        if path not in self.canaries:
            raise ApiError(404, f"{path} not found")
        return self.canaries[path]

    async def close(self) -> None:
        pass

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        self.written += [body for body in bodies if isinstance(body, SettingsSet)]
        return SentRecord(subject, "fleethpa.settings", 0, 0)

    async def fates(self, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        return [Fate(pending, "logged") for pending in waiting]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    made = Cluster()

    @asynccontextmanager
    async def opened(config: Any) -> AsyncIterator[Cluster]:
        yield made

    monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)
    opened = AsyncMock(side_effect=lambda session, clusters: dict.fromkeys(clusters, made))
    monkeypatch.setattr(nativeproof, "open_clients", opened)
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Cli:
    fleet = Fleet()
    fleet.settle()
    fleet.checkpoint()
    return Cli(monkeypatch, fleet)


def prove(run: Cli, *options: str, name: str = "east") -> Any:
    return run("admin", "clusters", "prove-native-absent", name, "--canary-wait", "50ms", *options)


def test_where_nobody_writes_its_status_no_native_controller_runs(run: Cli, cluster: Cluster) -> None:
    done = prove(run, "--yes")
    assert done.exit_code == 0, done.output
    [entry] = cluster.written
    assert (entry.cluster, entry.settings.native_controller) == ("east", "absent")
    assert entry.reason == "canary HPA in default for 50ms"
    assert (cluster.made, cluster.canaries) == (1, {})


def test_a_native_controller_is_recorded_too_and_ends_with_1(run: Cli, cluster: Cluster) -> None:
    cluster.native_runs = True
    done = prove(run, "--yes", "--reason", "before the change")
    assert done.exit_code == 1
    [entry] = cluster.written
    assert (entry.settings.native_controller, entry.reason) == ("present", "before the change")
    assert "It wrote the status of the canary HPA." in done.stderr
    assert "fleethpa adopt -C east -A --dry-run" in done.stderr
    assert cluster.canaries == {}


@pytest.mark.parametrize(
    ("failure", "code", "stated"),
    [
        pytest.param(ApiError(403, "forbidden"), 1, "fleethpa admin clusters check east --enforce", id="refused"),
        pytest.param(ClusterError("connection refused"), 3, "does not answer: connection refused", id="away"),
    ],
)
def test_a_cluster_that_refuses_or_is_away_proves_nothing(
    run: Cli, cluster: Cluster, failure: ClusterError, code: int, stated: str
) -> None:
    cluster.failure = failure
    done = prove(run, "--yes")
    assert (done.exit_code, stated in done.stderr) == (code, True), done.output
    assert cluster.written == []


def test_a_canary_that_is_deleted_while_it_is_watched_proves_nothing(run: Cli, cluster: Cluster) -> None:
    cluster.loses_canaries = True
    done = prove(run, "--yes")
    assert (done.exit_code, cluster.written) == (1, [])
    assert "was deleted while it was watched" in done.stderr


def test_nothing_is_made_in_a_dry_run_or_for_a_cluster_that_is_not_known(run: Cli, cluster: Cluster) -> None:
    assert prove(run, "--dry-run").stdout == "east: canary HPA in default for 50ms (dry run)\n"
    assert prove(run, name="mars").exit_code == 4
    assert (cluster.made, cluster.written) == (0, [])

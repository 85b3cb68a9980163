"""A log whose timestamps step back: log time does not, and every window, snapshot and moment is of log time."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from streams.archive.layout import DECISIONS, LOG
from tests.kit.archive import ENFORCING, Topics, decided, write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet, GeneratedRecord, generate

FLEET = Fleet(hpas=3, namespaces=1, minutes=3, partitions=1, metrics=1, seed=4, settings=ENFORCING)
AHEAD_MS = 40_000
SEGMENT_MS = 10_000
"""Short: segments end while the timestamps are behind log time."""


def _ahead(record: GeneratedRecord, begin_ms: int) -> GeneratedRecord:
    """From the 60th to the 62nd second the broker's clock is 40 seconds ahead."""
    is_ahead = 60_000 <= record.timestamp_ms - begin_ms < 62_000
    return record._replace(timestamp_ms=record.timestamp_ms + AHEAD_MS) if is_ahead else record


@pytest.fixture(scope="module")
def made() -> Topics:
    records = list(generate(FLEET))
    found: Topics = {(topic, 0): [] for topic in (LOG, DECISIONS)}
    for topic, number, record in decided((_ahead(r, records[0].timestamp_ms) for r in records), 1):
        found[topic, number].append(record)
    return found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, made: Topics) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive"), FLEET, topics=made, segment_ms=SEGMENT_MS)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Cli(monkeypatch)


def times(made: Topics) -> list[str]:
    bodies = [orjson.loads(record.value) for record in made[DECISIONS, 0]]
    return [body["time"] for body in bodies]


def test_the_world_is_shown_as_of_a_moment_that_log_time_leapt_over(run: Cli, root: Path) -> None:
    result = run("get", "hpa", "-A", "--from", str(root), "--at", "2026-01-01T00:01:30Z")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("window", [("--since", "2026-01-01T00:01:30Z"), ("--until", "2026-01-01T00:01:30Z")])
def test_a_window_of_a_replay_is_of_log_time(run: Cli, root: Path, made: Topics, window: tuple[str, str]) -> None:
    result = run("audit", "verify", "--from", str(root), "--jobs", "1", "-o", "json", *window)
    assert result.exit_code == 0, result.output
    edge = "2026-01-01T00:01:30.000Z"
    asked = [time for time in times(made) if (time >= edge) == (window[0] == "--since")]
    assert orjson.loads(result.stdout)["decisions"] == len(asked)


def test_a_verification_since_a_moment_checks_every_decision_from_then_on(run: Cli, root: Path, made: Topics) -> None:
    result = run("audit", "verify", "--from", str(root), "--jobs", "1", "-o", "json", "--since", "2026-01-01T00:01:30Z")
    assert result.exit_code == 0, result.output
    asked = [time for time in times(made) if time >= "2026-01-01T00:01:30.000Z"]
    assert orjson.loads(result.stdout)["decisions"] >= len(asked)


@pytest.mark.parametrize("edge", ["--since", "--until"])
def test_a_backtest_takes_a_window_that_ends_where_timestamps_stepped_back(run: Cli, root: Path, edge: str) -> None:
    window = ["--since", "2026-01-01T00:00:00Z"] if edge == "--until" else []
    change = ("--set", "maxReplicas=30", "c0/ns0/app0")
    result = run("backtest", *change, "--from", str(root), "-o", "json", *window, edge, "2026-01-01T00:01:30Z")
    assert result.exit_code == 0, result.output

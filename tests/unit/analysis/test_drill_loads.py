"""The load that the fleet drill reads from a decision, and that of an HPA over a time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from fleethpa.questions.drillloads import Load, LoadSeries, load_of
from schemas.decisions import Decision

JOBS = {"type": "External", "name": "jobs", "ratio": "1.5", "proposal": 12}
FAILED = {"type": "Resource", "name": "memory", "error": "no answer"}
CPU = {"type": "Resource", "name": "cpu", "ratio": "1.25", "proposal": 10, "podsUsed": 8}
JOBS = {"type": "External", "name": "jobs", "ratio": "1.5", "proposal": 12}
FAILED = {"type": "Resource", "name": "memory", "error": "no answer"}


def _decision(*metrics: Mapping[str, Any], **fields: Any) -> Decision:
    record = {"id": "0-1-u", "seq": 1, "prev": "", "cluster": "c", "namespace": "n", "name": "a", "uid": "u"}
    record |= {"time": "", "input": {"partition": 0, "offset": 1, "hash": ""}, "specHash": "s"}
    record |= {"currentReplicas": 8, "observed": {"specReplicas": 8, "statusReplicas": 8}, "metrics": list(metrics)}
    return msgspec.convert(record | fields, Decision)


@pytest.mark.parametrize(
    ("decision", "load"),
    [
        pytest.param(_decision(CPU), Load(10.0), id="ratio times the pods with a sample"),
        pytest.param(_decision(CPU, JOBS), Load(12.0), id="the largest of the metrics, an external one by the scale"),
        pytest.param(
            _decision(CPU | {"ratio": "1.05", "proposal": 8, "note": "withinTolerance"}),
            Load(8.4),
            id="within the tolerance the load, not the count that stays",
        ),
        pytest.param(
            _decision(CPU | {"ratio": "0.5", "proposal": 6, "podsUsed": 6, "podsMissing": 2}),
            Load(6.0),
            id="pods without a sample count as the controller counted them",
        ),
        pytest.param(_decision(CPU, FAILED), Load(10.0, "memory: no answer"), id="one metric has no value"),
        pytest.param(_decision(FAILED), Load(None, "memory: no answer"), id="none has a value"),
        pytest.param(_decision(CPU | {"ratio": "inf"}), Load(None, "cpu: its value is no load"), id="no number"),
        pytest.param(_decision(CPU | {"ratio": "-1.0"}), Load(None, "cpu: its value is no load"), id="overflow"),
        pytest.param(
            _decision(reason="FailedGetScale", observed={}), Load(None, "its scale could not be read"), id="no scale"
        ),
        pytest.param(_decision(currentReplicas=0), Load(0.0), id="switched off"),
        pytest.param(
            _decision(currentReplicas=30),
            Load(None, "its replicas were out of its bounds, so that its metrics were not asked"),
            id="above maxReplicas, at which nothing is asked",
        ),
    ],
)
def test_the_load_of_a_decision(decision: Decision, load: Load) -> None:
    made = load_of(decision)
    assert made.unread == load.unread
    assert made.pods == pytest.approx(load.pods)


def test_only_what_was_decided_under_the_newest_spec_counts() -> None:
    series = LoadSeries()
    series.add(_decision(FAILED), 0)
    series.add(_decision(CPU), 15_000)
    series.add(_decision(JOBS, specHash="t"), 30_000)
    assert (len(series), series.load(0)) == (1, Load(12.0))
    assert [series.newest(time_ms) for time_ms in (29_999, 30_000, 90_000)] == [-1, 0, 0]

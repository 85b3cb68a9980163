"""Upstream's answers come out of the log too: entries folded, observed, decided, completed, restored from rows."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from schemas.kubernetes.hpa import semantically_equal_status
from streams.hpa import observation as metricsclient
from streams.hpa.observation import MetricFailure
from streams.state import clusterhpa, gather
from streams.state.clustersettings import Effective
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.timing import Turn
from tests.conformance.logged import LoggedScenario
from tests.conformance.reported import UntoldError

DATA = Path(__file__).parent / "data"
_NAMED_POD = re.compile(r" Pod [^ \"]+")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The HPAs that a record may evaluate. Errors of metrics are, as in the scenarios, the client's whole text."""
    names: set[str] = set()

    def asked_for(state: State, _namespace: Namespace, hpa: Hpa, _settings: Effective) -> Turn:
        due_ms = hpa.row.next_due_ms
        if hpa.id.name in names and state.now_ms >= due_ms:
            return Turn(True, state.now_ms + 1, state.now_ms)
        return Turn(False, due_ms, due_ms)

    monkeypatch.setattr(clusterhpa, "next_turn", asked_for)
    for module in (gather, metricsclient):
        monkeypatch.setattr(module, "fetch_failure", lambda api, message: MetricFailure(message))
    return names


def cases_of(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
        yield from map(json.loads, lines)


def unnamed(value: Any) -> Any:
    """Forget which pod an error names: the fold takes the first by name."""
    return json.loads(_NAMED_POD.sub(" Pod any", json.dumps(value)))


def reported(case: dict[str, Any], scenario: LoggedScenario) -> None:
    """Tell a whole scenario; every decision, status and in the end the memory must be upstream's.

    In shadow the native controller's own status is recorded after each tick, and a write that failed is not compared.
    """
    stored = scenario.status
    for index, tick in enumerate(case["ticks"]):
        place, shadow = f"{case['id']} tick {index}", scenario.mode == "shadow"
        ours, upstream = scenario.tick(tick["in"]), dict(tick["out"])
        stored = upstream.pop("status", scenario.status if tick["in"].get("hpaRecreated") else stored)
        upstream.pop("desiredGauge", None)
        attempted, failed = upstream.get("scaleAttempts"), "scaledTo" not in upstream
        if shadow:
            upstream = {key: value for key, value in upstream.items() if key not in ("scaleAttempts", "scaledTo")}
        shown = scenario.shown if shadow else scenario.own_status() if scenario.exists else None
        if not (shadow and attempted and failed):
            assert unnamed(ours) == unnamed(upstream), place
            assert shown is None or semantically_equal_status(unnamed(shown), unnamed(stored)), place
        if shadow:
            scenario.take_native_status(stored)
        scenario.status = stored
    if scenario.exists:
        assert scenario.memory() == case["memory"], case["id"]


@pytest.mark.parametrize("name", ["controller-boundary", "controller-random", "controller-trace"])
@pytest.mark.parametrize(
    ("mode", "restored", "every"),
    [
        pytest.param("enforce", False, 6, id="enforced"),
        pytest.param("enforce", True, 24, id="enforced, read back from its rows after each record"),
        pytest.param("shadow", False, 12, id="in shadow beside the native controller"),
    ],
)
@pytest.mark.parametrize(
    "finer",
    [pytest.param(1, id="a part of the cases"), pytest.param(6, id="six times as many", marks=pytest.mark.slow)],
)
def test_every_decision_of_the_log_is_upstreams(
    finer: int, mode: str, restored: bool, every: int, name: str, asked: set[str]
) -> None:
    ends: Counter[str] = Counter()
    for case in islice(cases_of(name), 0, None, every // finer):
        try:
            reported(case, LoggedScenario(case, mode, asked, restored=restored))
        except UntoldError as end:
            ends[str(end)] += 1
        else:
            ends["whole"] += 1

    # A log cannot express everything that a scenario of the controller can; at least half of them are run to their end.
    assert 2 * ends["whole"] >= sum(ends.values()) > 0, ends

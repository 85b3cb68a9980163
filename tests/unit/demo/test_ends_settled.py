"""The demo's record ends settled: its last evaluations found what their metrics ask for."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from fleethpa.lab.demo.screen import DemoReport
from fleethpa.lab.demo.story import _settled
from schemas.keys import HpaId
from tests.kit.cli import Fleet

HPA = HpaId("east", "shop", "checkout")


@pytest.mark.parametrize(
    ("change", "is_settled"),
    [
        pytest.param({"current_replicas": 2}, True, id="an evaluation that found it"),
        pytest.param({"current_replicas": 8}, False, id="an evaluation that only now decides it"),
        pytest.param({"current_replicas": 2, "raw_desired_replicas": 3}, False, id="the metrics ask for another count"),
    ],
)
def test_an_hpa_is_settled_once_an_evaluation_found_what_its_metrics_ask_for(
    change: dict[str, Any], is_settled: bool
) -> None:
    fleet = Fleet()
    fleet.settle(replicas=2, usage_milli=300)
    found = next(each for each in fleet.decisions() if each.decision.kind == "evaluation")
    decision = structs.replace(found.decision, **({"raw_desired_replicas": 2} | change))
    report = DemoReport(screen=None, clients={}, hpas=(HPA,))  # type: ignore[arg-type]  # nothing is shown
    report.decisions.append(structs.replace(found, decision=decision))
    report.replicas[HPA] = 2
    assert _settled(report, HPA, 0) == is_settled

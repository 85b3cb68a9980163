"""Current values that cannot be are shown as unknown; the status keeps what upstream writes."""

from typing import Any

import pytest

from fleethpa.fleet.lists import possible
from fleethpa.show.kubectl import describe, targets
from schemas.kubernetes.quantity import format_milli
from streams.hpa.gofloat import ceil64
from tests.kit.cli import hpa

NOTHING = format_milli(ceil64(float("nan")))
"""What an average over no pods is in upstream's status."""
NAME = {"metric": {"name": "queue_depth"}}
OBJECT = {"describedObject": {"kind": "Service", "name": "web", "apiVersion": "v1"}}


def _hpa(kind: str, source: dict[str, Any], target: dict[str, Any], current: dict[str, Any]) -> dict[str, Any]:
    name = kind[:1].lower() + kind[1:]
    metrics = [{"type": kind, name: source | {"target": target}}]
    status = {"currentReplicas": 0, "currentMetrics": [{"type": kind, name: source | {"current": current}}]}
    return hpa(metrics=metrics) | {"status": status}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param(
            _hpa("External", NAME, {"type": "AverageValue", "averageValue": "30"}, {"averageValue": NOTHING}),
            "<unknown>/30 (avg)",
            id="an external average over 0 replicas",
        ),
        pytest.param(
            _hpa("Object", NAME | OBJECT, {"type": "AverageValue", "averageValue": "30"}, {"averageValue": NOTHING}),
            "<unknown>/30 (avg)",
            id="an object's average over 0 replicas",
        ),
        pytest.param(
            _hpa("Pods", NAME, {"type": "AverageValue", "averageValue": "30"}, {"averageValue": NOTHING}),
            "<unknown>/30",
            id="an average of pods",
        ),
        pytest.param(
            _hpa(
                "Resource",
                {"name": "cpu"},
                {"type": "Utilization", "averageUtilization": 60},
                {"averageUtilization": -(2**31), "averageValue": "3"},
            ),
            "cpu: <unknown>/60%",
            id="a utilization that left its type",
        ),
        pytest.param(
            _hpa("External", NAME, {"type": "AverageValue", "averageValue": "30"}, {"averageValue": "-4"}),
            "-4/30 (avg)",
            id="a negative value can be",
        ),
        pytest.param(
            _hpa("External", NAME, {"type": "Value", "value": "30"}, {"value": "0"}), "0/30", id="zero is a value"
        ),
    ],
)
def test_targets_show_unknown_where_a_value_cannot_be(given: dict[str, Any], shown: str) -> None:
    before = str(given)
    assert targets(possible(given)) == shown
    assert ("<unknown>" in describe(possible(given))) == ("<unknown>" in shown)
    assert str(given) == before


def test_an_hpa_without_such_a_value_is_the_same_object() -> None:
    given = hpa()
    assert possible(given) is given

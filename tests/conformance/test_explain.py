"""What upstream leaves to chance is recognised by narrow rules: each explains its own difference and no other."""

from typing import Any

import pytest

from tests.conformance import openpoints
from tests.conformance.compare import differences

Json = dict[str, Any]
START = 946_684_800.0
PODS = ("web-1", "web-2")


def status(
    reason: str = "ValidMetricFound",
    message: str = "fine",
    *,
    average: str = "1k",
    at: str = "00:00:00",
    desired: int = 2,
) -> Json:
    condition = {
        "type": "ScalingActive",
        "status": "True",
        "lastTransitionTime": f"2000-01-01T{at}Z",
        "reason": reason,
        "message": message,
    }
    metric = {"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": average}}}
    return {"desiredReplicas": desired, "currentMetrics": [metric], "conditions": [condition]}


def two(first: str, second: str, desired: int = 2) -> Json:
    message = f"pods by selector app=x are controlled by more than one HPA (e.g. [ns/{first} ns/{second}])"
    return status("AmbiguousSelector", message, desired=desired)


def missing(pod: str) -> Json:
    return status("FailedGetResourceMetric", f"failed: missing request for cpu in container app of Pod {pod}")


@pytest.mark.parametrize(
    ("before", "recorded", "ours", "expected"),
    [
        pytest.param(
            two("a", "b"), two("b", "a"), two("a", "b"), openpoints.NAME_ORDER, id="two names in another order"
        ),
        pytest.param(two("b", "a"), None, two("a", "b"), openpoints.NAME_ORDER, id="so open whether to write at all"),
        pytest.param(two("a", "b"), two("b", "c"), two("a", "b"), None, id="other names"),
        pytest.param(two("a", "b"), two("b", "a", 3), two("a", "b"), None, id="other names' order and another number"),
        pytest.param(
            status(), missing("web-2"), missing("web-1"), openpoints.POD_NAMED, id="another pod of the target"
        ),
        pytest.param(status(), missing("db-1"), missing("web-1"), None, id="a pod that is not the target's"),
        pytest.param(
            status(), status(average="1000"), status(), openpoints.QUANTITY_TEXT, id="a quantity written otherwise"
        ),
        pytest.param(status(), status(average="1001"), status(), None, id="another quantity"),
        pytest.param(status(), status(at="00:00:01"), status(), openpoints.SECOND, id="a second within the sync"),
        pytest.param(status(), status(at="00:00:09"), status(), None, id="a second after the sync"),
        pytest.param(status(), status(desired=3), status(), None, id="another number"),
        pytest.param(status(), None, status(desired=3), None, id="a write that was not made"),
    ],
)
def test_what_explains_a_difference(before: Json, recorded: Json | None, ours: Json, expected: str | None) -> None:
    assert openpoints.explain(before, recorded, ours, PODS, (START, START + 2)) == expected


@pytest.mark.parametrize(
    ("upstream", "ours", "found"),
    [
        pytest.param({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}, [("a[1].b", 2, 3)], id="the deepest place"),
        pytest.param({"a": 1}, {}, [("a", 1, "(absent)")], id="something is missing"),
        pytest.param([1], [1, 2], [("", [1], [1, 2])], id="lists of other lengths as a whole"),
        pytest.param({"a": 1}, {"a": True}, [("a", 1, True)], id="types count"),
        pytest.param({"a": 1, "b": [2]}, {"b": [2], "a": 1}, [], id="the order of keys does not"),
    ],
)
def test_where_two_values_differ(upstream: Any, ours: Any, found: list[Any]) -> None:
    assert list(differences(upstream, ours)) == found

"""What the status of a cluster's HPA changes when it comes again."""

from typing import Any

import pytest

from schemas.entries import Body
from schemas.observed import AutoscalerSet
from streams.state.rows import DirectoryKey
from tests.kit.central import ABSENT, central, evaluate, mode, native, world
from tests.kit.partition import KEY

Json = dict[str, Any]
BEGUN = "2026-09-21T14:13:35Z"
ABLE = {"type": "AbleToScale", "status": "True", "lastTransitionTime": BEGUN, "reason": "ReadyForNewScale"}
STATUS = {"lastScaleTime": BEGUN, "currentReplicas": 2, "desiredReplicas": 2, "conditions": [ABLE]}


def with_status(status: Json) -> AutoscalerSet:
    return AutoscalerSet(hpa=native().hpa | {"status": status})


@pytest.mark.parametrize("before", [[], [central()]], ids=["evaluated", "hidden by a central HPA"])
def test_what_a_status_takes_counts_as_bytes_of_its_object(before: list[Body]) -> None:
    log = world(ABSENT, with_status(STATUS), *before)
    key, held = DirectoryKey("web", "cluster"), log.partition.state.namespaces[KEY].held
    own, bytes_before = log.partition.state.namespaces[KEY].directory[key].own, held.bytes
    log.add(with_status(STATUS | {"conditions": [ABLE, {"type": "x" * 1_000, "status": "True"}]}))
    more = log.partition.state.namespaces[KEY].directory[key].own - own
    assert more == held.bytes - bytes_before == len(',{"type":"","status":"True"}') + 1_000


def test_after_it_was_enforced_an_hpa_goes_on_from_the_status_that_came_last() -> None:
    log = world(ABSENT, native(), mode("enforce"))
    evaluate(log, 50)
    log.add(with_status(STATUS | {"lastScaleTime": "2026-09-21T14:14:50Z"}))
    log.add(mode("shadow"))
    (decision,) = evaluate(log, 50)
    assert decision["status"]["lastScaleTime"] == "2026-09-21T14:14:50Z"

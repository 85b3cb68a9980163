"""A status that comes by itself is folded as the whole object with it would be."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.entries import Body
from schemas.observed import AutoscalerList, AutoscalerSet, AutoscalerStatus
from streams.history.evaluations import NativeSync, NativeTraces, events
from streams.state.partition import Partition
from streams.state.rows import DirectoryKey
from tests.kit.central import ABSENT, CENTRAL_EVENTS, WEB, central, evaluate, mode, native, world
from tests.kit.partition import KEY, LogBuilder
from tests.laws import examples

Json = dict[str, Any]
BEGUN = "2026-09-21T14:13:35Z"


def status_of(counts: tuple[int, int], scaled: str = BEGUN, reason: str = "ReadyForNewScale") -> Json:
    able = {"type": "AbleToScale", "status": "True", "lastTransitionTime": BEGUN, "reason": reason, "message": "m"}
    return {"lastScaleTime": scaled, "currentReplicas": counts[0], "desiredReplicas": counts[1], "conditions": [able]}


STATUSES = [
    status_of((2, 2)),
    status_of((2, 4), "2026-09-21T14:13:50Z", "SucceededRescale"),
    status_of((4, 2), "2026-09-21T14:14:50Z", "SucceededRescale"),
    status_of((4, 3), "2026-09-21T14:14:50Z", "SucceededRescale"),
    status_of((3, 3), reason="ScaleDownStabilized"),
    {},
]


def reported(before: dict[str, Json], bodies: list[Body]) -> dict[str, Json]:
    """The HPAs of a cluster as they were reported last, by name; deleted ones stay."""
    known = dict(before)
    for body in bodies:
        if isinstance(body, AutoscalerSet | AutoscalerList):
            hpas = body.hpas if isinstance(body, AutoscalerList) else [body.hpa] if body.origin == "cluster" else []
            known |= {hpa["metadata"]["name"]: hpa for hpa in hpas}
    return known


def log_of(seed: int, *, alone: bool) -> LogBuilder:
    """A log in which HPAs come, change their statuses and go, the same for the same seed. `alone`: statuses come by
    themselves; else with the whole object.
    """
    rng, log, hpas = random.Random(seed), world(ABSENT), dict[str, Json]()
    for _ in range(25):
        bodies: list[Body] = rng.choices(CENTRAL_EVENTS, k=rng.randrange(3))
        log.add(*bodies, after_ms=rng.choice((1_000, 15_000)))
        hpas = reported(hpas, bodies)
        directory = log.partition.state.namespaces[KEY].directory
        known = {key.name: entry.uid for key, entry in sorted(directory.items()) if key.origin == "cluster"}
        # What was reported last of an HPA that a central one replaces is not taken.
        names = [name for name, uid in known.items() if hpas[name]["metadata"]["uid"] == uid]
        if names:
            name, status = rng.choice(names), rng.choice(STATUSES)
            hpas[name], uid = hpas[name] | {"status": status}, known[name]
            log.add(AutoscalerStatus(name=name, uid=uid, status=status) if alone else AutoscalerSet(hpa=hpas[name]))
        if rng.random() < 0.5:
            evaluate(log, rng.choice((20, 100)))
    return log


def kept(log: LogBuilder) -> list[Any]:
    """What is known of the HPAs, and what was decided and compared."""
    found = events(Partition.empty(0), log.records, lambda _: True, NativeTraces(lambda _: True))
    syncs = [(each.inputs.hpa, each.status, each.rescaled) for each in found if isinstance(each, NativeSync)]
    rows = [
        (name, hpa.row.native, hpa.row.hidden, hpa.row.history, hpa.row.native_moves)
        for name, hpa in sorted(log.partition.state.hpas.items())
    ]
    # A decision names the hash of its record, and that of the decision before it.
    decisions = [msgspec.json.decode(each.value) | {"input": None, "prev": None} for each in log.decisions]
    return [syncs, rows, decisions]


@given(st.integers(0, 10_000))
@settings(max_examples=examples(60))
def test_a_status_by_itself_changes_what_the_whole_object_with_it_would(seed: int) -> None:
    assert kept(log_of(seed, alone=True)) == kept(log_of(seed, alone=False))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(AutoscalerStatus(name="api", uid="uid-web", status=STATUSES[1]), id="of an HPA that is not known"),
        pytest.param(
            AutoscalerStatus(name="web", uid="uid-2", status=STATUSES[1]), id="of another object of this name"
        ),
        pytest.param(AutoscalerStatus(name="web", status=STATUSES[1]), id="of no object"),
    ],
)
def test_a_status_of_what_is_not_known_is_ignored(body: AutoscalerStatus) -> None:
    log = world(ABSENT, native())
    log.add(body)
    assert log.partition.state.hpas[WEB].row.native_status == {}
    assert [key.name for key in log.partition.state.namespaces[KEY].directory] == ["web"]


def test_a_status_of_an_observer_that_is_not_followed_is_ignored() -> None:
    log = world(ABSENT, AutoscalerList(list_id="l", hpas=[native().hpa], session="one@1"))
    log.add(AutoscalerStatus(name="web", uid="uid-web", status=STATUSES[1], session="two@1"))
    assert log.partition.state.hpas[WEB].row.native_status == {}
    log.add(AutoscalerStatus(name="web", uid="uid-web", status=STATUSES[1], session="one@1"))
    assert log.partition.state.hpas[WEB].row.native_status == STATUSES[1]


@pytest.mark.parametrize("before", [[], [central()]], ids=["evaluated", "hidden by a central HPA"])
def test_what_a_status_takes_counts_as_bytes_of_its_object(before: list[Body]) -> None:
    log = world(ABSENT, AutoscalerSet(hpa=native().hpa | {"status": STATUSES[0]}), *before)
    key, held = DirectoryKey("web", "cluster"), log.partition.state.namespaces[KEY].held
    own, bytes_before = log.partition.state.namespaces[KEY].directory[key].own, held.bytes
    longer = STATUSES[0] | {"conditions": [*STATUSES[0]["conditions"], {"type": "x" * 1_000, "status": "True"}]}
    log.add(AutoscalerStatus(name="web", uid="uid-web", status=longer))
    more = log.partition.state.namespaces[KEY].directory[key].own - own
    assert more == held.bytes - bytes_before == len(',{"type":"","status":"True"}') + 1_000


def test_after_it_was_enforced_an_hpa_goes_on_from_the_status_that_came_last() -> None:
    log = world(ABSENT, native(), mode("enforce"))
    evaluate(log, 50)
    log.add(AutoscalerStatus(name="web", uid="uid-web", status=STATUSES[4]))
    log.add(mode("shadow"))
    (decision,) = evaluate(log, 50)
    assert decision["status"]["lastScaleTime"] == STATUSES[4]["lastScaleTime"]

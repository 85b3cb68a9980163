"""The plan of one wanted write: what is written, what is not, and how it ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reconciler.core.writeplan import (
    ATTEMPTS,
    Action,
    End,
    ObservedHpa,
    ObservedScale,
    Retry,
    Trouble,
    Write,
    WriteGuards,
    after_trouble,
    outcome,
    plan,
)
from schemas.agentknowledge import KnownPause
from schemas.decisions import Decision, InputPosition
from schemas.observed import Target
from schemas.settings import ClusterSettings

NOW = 1_000_000
DECISION = Decision(
    id="0-7-u1",
    seq=1,
    prev="",
    cluster="east",
    namespace="shop",
    name="web",
    uid="u1",
    time="1970-01-01T00:16:40.000Z",
    input=InputPosition(partition=0, offset=7, hash=""),
    target=Target(group="apps", kind="Deployment", name="web"),
    mode="enforce",
    current_replicas=2,
    min_replicas=1,
    max_replicas=10,
    wants=5,
    expires=NOW + 10_000,
)
SCALE = ObservedScale(spec_replicas=2, status_replicas=2, selector="app=web", resource_version="17")
HPA = ObservedHpa(uid="u1", deleting=False, min_replicas=1, max_replicas=10, target=("Deployment", "apps", "web"))
CENTRAL = structs.replace(DECISION, origin="central")


def paused(**pause: Any) -> WriteGuards:
    return WriteGuards(pauses=(KnownPause(**pause),))


def test_a_decision_of_after_the_end_of_a_pause_is_written_though_the_clock_here_is_behind() -> None:
    assert planned(guards=paused(until=NOW), now_ms=NOW - 5) == Write(5, "17")


def limited_by(**settings: Any) -> WriteGuards:
    return WriteGuards(settings=ClusterSettings(**settings))


def planned(decision: Decision = DECISION, **changes: Any) -> Action:
    given_: dict[str, Any] = {"scale": SCALE, "hpa": HPA, "guards": WriteGuards(), "now_ms": NOW, **changes}
    return plan(decision, **given_)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, Write(5, "17"), id="nothing changed: written under the version that was read"),
        pytest.param({"scale": structs.replace(SCALE, spec_replicas=5)}, End("applied"), id="already as wanted"),
        pytest.param(
            {"scale": structs.replace(SCALE, spec_replicas=5), "now_ms": NOW + 99_999, "hpa": None},
            End("applied"),
            id="already as wanted counts, however late and whatever else changed",
        ),
        pytest.param(
            {"now_ms": NOW + 10_000},
            End("stale", "its time to live passed before it could be written"),
            id="stale from the very moment on at which it expires",
        ),
        pytest.param({"now_ms": NOW + 9_999}, Write(5, "17"), id="written one millisecond before it expires"),
        pytest.param({"hpa": None}, End("refused", "the HPA was deleted"), id="HPA gone"),
        pytest.param(
            {"hpa": structs.replace(HPA, deleting=True)}, End("refused", "the HPA was deleted"), id="HPA on its way out"
        ),
        pytest.param(
            {"hpa": structs.replace(HPA, uid="u2")},
            End("refused", "the HPA was deleted and created again"),
            id="another HPA of that name",
        ),
        pytest.param(
            {"hpa": structs.replace(HPA, target=("Deployment", "apps", "api"))},
            End("refused", "the HPA now scales Deployment/api"),
            id="HPA scales something else now",
        ),
        pytest.param(
            {"scale": structs.replace(SCALE, spec_replicas=3)},
            End("refused", "another hand changed the replicas from 2 to 3 since the decision"),
            id="moved by another hand",
        ),
        pytest.param({"hpa": structs.replace(HPA, max_replicas=5)}, Write(5, "17"), id="exactly the live maximum"),
        pytest.param(
            {"hpa": structs.replace(HPA, max_replicas=4)},
            End("refused", "5 replicas are outside the HPA's limits, which are 1 to 4 now"),
            id="above the live maximum",
        ),
        pytest.param(
            {"hpa": structs.replace(HPA, min_replicas=6)},
            End("refused", "5 replicas are outside the HPA's limits, which are 6 to 10 now"),
            id="below the live minimum",
        ),
        pytest.param(
            {"guards": limited_by(frozen=True)}, End("refused", "cluster east is frozen"), id="frozen cluster"
        ),
        pytest.param(
            {"guards": paused()}, End("refused", "cluster east was paused after the decision"), id="everything paused"
        ),
        pytest.param(
            {"guards": paused(kind="scaleUp", namespace="shop")},
            End("refused", "scaleUp of namespace shop was paused after the decision"),
            id="scale-ups of the namespace paused",
        ),
        pytest.param(
            {"guards": paused(namespace="shop", name="web", until=NOW + 1)},
            End("refused", "HPA shop/web was paused after the decision"),
            id="paused for one more millisecond",
        ),
        pytest.param({"guards": paused(until=NOW)}, Write(5, "17"), id="the pause has ended by itself"),
        pytest.param({"guards": paused(kind="scaleDown")}, Write(5, "17"), id="the other direction is paused"),
        pytest.param({"guards": paused(namespace="bank")}, Write(5, "17"), id="another namespace is paused"),
        pytest.param({"guards": paused(namespace="shop", name="api")}, Write(5, "17"), id="another HPA is paused"),
        pytest.param(
            {"guards": WriteGuards(native="it wrote the status of HPA shop/web")},
            End("refused", "a native HPA controller runs in cluster east: it wrote the status of HPA shop/web"),
            id="a native controller that is seen to run",
        ),
        pytest.param({"guards": limited_by(max_step=3)}, Write(5, "17"), id="exactly the largest step"),
        pytest.param(
            {"guards": limited_by(max_step=2)},
            End("refused", "a step from 2 to 5 is larger than the cluster's maxStep 2"),
            id="too large a step",
        ),
    ],
)
def test_plan(changes: dict[str, Any], expected: Action) -> None:
    assert planned(**changes) == expected


def test_a_central_hpa_needs_no_object_and_keeps_its_decided_limits() -> None:
    assert planned(CENTRAL, hpa=None) == Write(5, "17")
    assert planned(structs.replace(CENTRAL, max_replicas=4), hpa=None) == End(
        "refused", "5 replicas are outside the HPA's limits, which are 1 to 4 now"
    )


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_other_modes_write_nothing(mode: Any) -> None:
    found = planned(structs.replace(DECISION, mode=mode))
    assert found == End("refused", f"the HPA's mode is {mode}, which writes nothing")


@pytest.mark.parametrize("limit", ["MaxStep", "RemovalBudget"])
def test_a_cut_step_towards_the_limits_may_end_outside_of_them(limit: str) -> None:
    scale = structs.replace(SCALE, spec_replicas=20)
    whole = structs.replace(DECISION, current_replicas=20, wants=14)
    refused = End("refused", "14 replicas are outside the HPA's limits, which are 1 to 10 now")
    assert planned(whole, scale=scale) == refused
    cut = structs.replace(whole, constraints_applied=["MaxReplicas", limit])
    assert planned(cut, scale=scale) == Write(14, "17")
    away = structs.replace(cut, wants=21)
    assert isinstance(planned(away, scale=scale), End)


def test_a_cut_step_up_towards_the_minimum_is_written() -> None:
    cut = structs.replace(DECISION, min_replicas=8, wants=5, constraints_applied=["MinReplicas", "AdditionBudget"])
    assert planned(cut, hpa=structs.replace(HPA, min_replicas=8)) == Write(5, "17")


def test_a_decision_without_a_wish_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="0-7-u1 wants no write"):
        planned(structs.replace(DECISION, wants=None))


COUNTS = st.integers(0, 40)


@given(
    wants=COUNTS,
    decided_at=COUNTS,
    live=COUNTS,
    low=COUNTS,
    high=COUNTS,
    max_step=st.none() | st.integers(1, 40),
    frozen=st.booleans(),
    late_ms=st.integers(-20_000, 20_000),
    central=st.booleans(),
)
def test_no_write_is_outside_min_max_or_step_nor_late_nor_over_another_hand(
    wants: int,
    decided_at: int,
    live: int,
    low: int,
    high: int,
    max_step: int | None,
    frozen: bool,
    late_ms: int,
    central: bool,
) -> None:
    decision = structs.replace(
        DECISION,
        wants=wants,
        current_replicas=decided_at,
        min_replicas=low,
        max_replicas=high,
        origin="central" if central else "cluster",
    )
    hpa = None if central else structs.replace(HPA, min_replicas=low, max_replicas=high)
    action = plan(
        decision,
        scale=structs.replace(SCALE, spec_replicas=live),
        hpa=hpa,
        guards=limited_by(frozen=frozen, max_step=max_step),
        now_ms=NOW + 10_000 + late_ms,
    )
    if isinstance(action, Write):
        assert action.replicas == wants != live == decided_at
        assert low <= wants <= high
        assert max_step is None or abs(wants - live) <= max_step
        assert not frozen
        assert late_ms < 0
        assert action.resource_version == "17"
    else:
        assert (action.result == "applied") == (live == wants)
        assert action.error or action.result == "applied"


# --- trouble ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trouble", "attempt", "expected"),
    [
        pytest.param(Trouble(409, "c"), 1, Retry(10), id="a conflict begins again at once"),
        pytest.param(Trouble(409, "c"), ATTEMPTS - 1, Retry(10), id="the last but one conflict, too"),
        pytest.param(Trouble(409, "c"), ATTEMPTS, End("failed", "c"), id="the fifth conflict is the end"),
        pytest.param(Trouble(0, "hang"), 1, Retry(200), id="no answer: a short pause"),
        pytest.param(Trouble(503, "x"), 3, Retry(800), id="pauses double"),
        pytest.param(Trouble(500, "x"), 30, Retry(2_000), id="pauses have a limit"),
        pytest.param(Trouble(429, "x", 3_000), 1, Retry(3_000), id="429 says how long to wait"),
        pytest.param(Trouble(429, "x", 30_000), 1, End("failed", "x"), id="429 asks for more time than there is"),
        pytest.param(Trouble(404, "gone"), 1, End("failed", "gone"), id="not found is final"),
        pytest.param(Trouble(403, "no"), 1, End("failed", "no", is_forbidden=True), id="forbidden is final"),
        pytest.param(Trouble(422, "bad"), 1, End("failed", "bad"), id="invalid is final"),
    ],
)
def test_after_trouble(trouble: Trouble, attempt: int, expected: Retry | End) -> None:
    assert after_trouble(trouble, attempt=attempt, expires_ms=NOW + 10_000, now_ms=NOW) == expected


@given(
    statuses=st.lists(st.sampled_from([0, 403, 404, 409, 422, 429, 500, 503]), min_size=1, max_size=3),
    pause=st.none() | st.integers(0, 9_000),
)
def test_trouble_of_any_kind_ends_within_the_time_to_live(statuses: list[int], pause: int | None) -> None:
    now, attempt = NOW, 0
    while True:
        attempt += 1
        trouble = Trouble(statuses[attempt % len(statuses)], "x", pause)
        step = after_trouble(trouble, attempt=attempt, expires_ms=NOW + 10_000, now_ms=now)
        if isinstance(step, End):
            break
        now += step.after_ms
        assert now < NOW + 10_000
        assert attempt < 2_000
    assert step.result == "failed"


def test_an_outcome_carries_the_newest_scale_that_was_seen() -> None:
    reported = outcome(DECISION, End("failed", "why", scale=SCALE, attempts=3))
    assert (reported.decision, reported.uid, reported.result, reported.error, reported.attempts) == (
        "0-7-u1",
        "u1",
        "failed",
        "why",
        3,
    )
    assert (reported.spec_replicas, reported.status_replicas, reported.selector, reported.resource_version) == (
        2,
        2,
        "app=web",
        "17",
    )
    assert outcome(DECISION, End("stale")).spec_replicas is None


def test_a_native_controller_is_no_concern_of_central_hpas() -> None:
    guards = WriteGuards(native="it wrote")
    assert isinstance(planned(structs.replace(DECISION, origin="central"), hpa=None, guards=guards), Write)

"""Silence, proof of life and settling, by the clock of one agent."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.agents.standin.evidence import (
    FAILING,
    FRESH_MS,
    GRACE_MS,
    LONGEST_PROOF_MS,
    PROOF_MS,
    SETTLE_MS,
    STAGGER_MS,
    STEADY_MS,
    STUCK_MS,
    Judge,
    grace_of,
    next_proof_ms,
    stagger_ms,
)
from reconciler.agents.standin.protocol import CLOSING, HpaKey, Judgement
from reconciler.core.fence import STAND_IN
from reconciler.core.lease import SeenLease

HUB = SeenLease("hub/eu/k1", 1, "v1", "u1")


def passed(
    judge: Judge,
    begin_ms: int,
    seconds: int,
    lease: SeenLease | None = HUB,
    *,
    is_ok: bool = True,
    each: Callable[[], None] = lambda: None,
) -> Judgement:
    """Look once a second, from the first moment on up to and including the last."""
    for second in range(seconds + 1):
        each()
        found = judge.judge(begin_ms + second * 1_000, lease, is_ok=is_ok)
    return found


def test_silence_counts_after_the_grace_period() -> None:
    judge = Judge()
    judge.expect({3})
    assert not passed(judge, 0, 29).is_hub_silent
    assert judge.judge(30_000, HUB, is_ok=True).is_hub_silent


def test_each_partition_must_show_life() -> None:
    judge = Judge()
    judge.expect({3, 4})
    assert passed(judge, 0, 40, each=lambda: judge.sign(3)).is_hub_silent


def test_where_nothing_is_enforced_nothing_is_silent() -> None:
    judge = Judge()
    assert passed(judge, 0, 100) == Judgement(is_hub_proven=True, is_settled=True)


def test_only_time_with_successful_reads_counts() -> None:
    judge = Judge()
    judge.expect({3})
    passed(judge, 0, 20)
    passed(judge, 21_000, 300, is_ok=False)
    assert not passed(judge, 322_000, 9).is_hub_silent
    assert judge.judge(332_000, HUB, is_ok=True).is_hub_silent


def test_a_suspended_machine_has_waited_for_nothing() -> None:
    judge = Judge()
    judge.expect({3})
    judge.judge(0, HUB, is_ok=True)
    assert not judge.judge(3_600_000, HUB, is_ok=True).is_hub_silent


NO_RIGHT = (
    'deployments.apps "web" is forbidden: User "system:serviceaccount:fleethpa-system:fleethpa-agent" cannot update '
    'resource "deployments/scale" in API group "apps" in the namespace "shop"'
)
DENIED = 'admission webhook "policy.example.com" denied the request: frozen'


def refused(judge: Judge, error: str = NO_RIGHT, hpas: int = FAILING) -> None:
    """A write of so many HPAs fails; the hub continues deciding."""
    judge.sign(3)
    for number in range(hpas):
        judge.wrote(HpaKey("shop", f"web-{number}"), error)


def deciding() -> Judge:
    judge = Judge()
    judge.expect({3})
    judge.judge(0, HUB, is_ok=True)
    return judge


@pytest.mark.parametrize(
    ("error", "is_evidence"),
    [
        pytest.param(NO_RIGHT, True, id="the account has no right"),
        pytest.param(DENIED, False, id="a webhook denies it"),
        pytest.param(f'admission webhook "a" denied the request: {NO_RIGHT}', False, id="a webhook repeats the text"),
        pytest.param(
            "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no",
            False,
            id="a policy denies it",
        ),
        pytest.param('deployments.apps "web" is forbidden: exceeded quota: q', False, id="a quota"),
        pytest.param('deployments.apps "web" not found', False, id="the target is gone"),
        pytest.param('Deployment.apps "web" is invalid: spec.replicas: Invalid value: 9', False, id="it is invalid"),
        pytest.param("Operation cannot be fulfilled on deployments.apps: modified", False, id="a conflict"),
        pytest.param("PUT /scale: connection refused", False, id="an API server that restarts"),
        pytest.param("the server has received too many requests and has asked us to try again later", False, id="429"),
        pytest.param("an error on the server has prevented the request from succeeding", False, id="500"),
    ],
)
def test_only_a_missing_right_is_a_failure_that_the_native_controller_would_not_have(
    error: str, is_evidence: bool
) -> None:
    judge = deciding()
    assert passed(judge, 0, 60, each=lambda: refused(judge, error)).is_hub_silent is is_evidence


def test_a_hub_that_decides_but_may_not_write_is_silent_until_a_write_succeeds() -> None:
    judge = deciding()
    found = passed(judge, 0, 31, each=lambda: refused(judge))
    assert (found.is_hub_silent, found.reason) == (True, f"the API server refused the hub's writes: {NO_RIGHT}")
    judge.wrote(HpaKey("shop", "other"))
    assert not passed(judge, 32_000, 1, each=lambda: judge.sign(3)).is_hub_silent


def test_writes_of_few_hpas_that_fail_are_no_silence_of_the_hub() -> None:
    judge = deciding()
    assert not passed(judge, 0, 100, each=lambda: refused(judge, hpas=FAILING - 1)).is_hub_silent


def test_failed_writes_are_forgotten_after_the_grace_period() -> None:
    judge = deciding()
    refused(judge)
    assert not passed(judge, 0, 6 * 3_600, each=lambda: judge.sign(3)).is_hub_silent
    refused(judge)
    assert not passed(judge, 21_601_000, 100, each=lambda: judge.sign(3)).is_hub_silent


def test_a_new_holder_clears_failed_writes_and_the_hub_is_tried_again_after_its_proof_of_life() -> None:
    judge, taken = deciding(), SeenLease(STAND_IN, 2, "v2", "u1")
    assert passed(judge, 0, 31, each=lambda: refused(judge)).is_hub_silent
    assert not passed(judge, 32_000, 59, taken, each=lambda: judge.sign(3)).is_hub_silent
    assert passed(judge, 92_000, 2, taken, each=lambda: judge.sign(3)).is_hub_proven


def test_the_reason_of_a_silence_names_the_partitions() -> None:
    judge = Judge()
    judge.expect({3})
    assert passed(judge, 0, 30).reason == "no decisions from partition 3 of the log for 30 s"
    judge = Judge()
    judge.expect(set(range(24)))
    assert passed(judge, 0, 30).reason == (
        "no decisions from 24 partitions of the log (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) for 30 s"
    )


def test_silence_counts_from_before_the_term() -> None:
    judge = Judge()
    for second in range(21):
        judge.stood_by(second * 1_000, HUB, is_ok=True)
    judge.begin_term()
    judge.expect({3, 4})
    assert not passed(judge, 21_000, 8).is_hub_silent
    judge.sign(4, age_ms=25_000)  # old, but received: silent since then
    assert judge.judge(30_000, HUB, is_ok=True).is_hub_silent, "nothing was ever received of partition 3"
    judge.sign(3, age_ms=10_000)
    assert not passed(judge, 31_000, 2).is_hub_silent
    assert judge.judge(34_000, HUB, is_ok=True).is_hub_silent


def test_silence_is_not_known_before_all_was_heard() -> None:
    judge = Judge()
    judge.expect({3})
    passed(judge, 0, 40)
    assert not judge.judge(41_000, HUB, is_ok=True, has_received=False).is_hub_silent
    assert judge.judge(42_000, HUB, is_ok=True).is_hub_silent


def test_an_old_decision_is_no_proof_of_life() -> None:
    judge = Judge()
    judge.expect({3})
    passed(judge, 0, 70, each=lambda: judge.sign(3, age_ms=FRESH_MS + 1))
    assert not judge.judge(71_000, HUB, is_ok=True).is_hub_proven


def test_a_new_term_asks_for_proof_of_life_anew_and_keeps_what_has_settled() -> None:
    judge = Judge()
    judge.expect({3})
    assert passed(judge, 0, 70, each=lambda: judge.sign(3)).is_hub_proven
    judge.begin_term()
    judge.expect({3})
    judge.sign(3)
    found = judge.judge(82_000, HUB, is_ok=True)
    assert (found.is_hub_proven, found.is_settled) == (False, True)


def test_life_is_proven_after_a_minute_and_every_silence_begins_it_anew() -> None:
    judge = Judge()
    judge.expect({3})
    assert passed(judge, 0, 40).is_hub_silent
    life = lambda: judge.sign(3)  # noqa: E731
    assert not passed(judge, 41_000, 59, each=life).is_hub_proven
    assert passed(judge, 101_000, 2, each=life).is_hub_proven
    assert passed(judge, 104_000, 31).is_hub_silent
    assert not passed(judge, 136_000, 50, each=life).is_hub_proven


def test_a_partition_that_is_new_must_show_life_before_the_proof_begins() -> None:
    judge = Judge()
    judge.expect({3})
    passed(judge, 0, 70, each=lambda: judge.sign(3))
    judge.expect({3, 4})
    assert not judge.judge(71_000, HUB, is_ok=True).is_hub_proven


def test_a_change_of_hands_settles() -> None:
    judge = Judge()
    before_ms = SETTLE_MS - 1
    assert not judge.judge(0, HUB, is_ok=True).is_settled
    assert not judge.judge(before_ms, HUB, is_ok=True).is_settled
    assert judge.judge(SETTLE_MS, HUB, is_ok=True).is_settled
    other = SeenLease(STAND_IN, 2, "v2", "u1")
    assert not judge.judge(SETTLE_MS + 1, other, is_ok=True).is_settled
    renewed = SeenLease(STAND_IN, 2, "v3", "u1")
    assert judge.judge(2 * SETTLE_MS + 1, renewed, is_ok=True).is_settled
    assert not judge.judge(3 * SETTLE_MS, None, is_ok=True).is_settled


def test_a_change_that_a_slow_answer_shows_settles_from_the_answer_on() -> None:
    judge, taken = Judge(), SeenLease(STAND_IN, 2, "v2", "u1")
    judge.judge(0, HUB, is_ok=True)
    assert not judge.judge(1_000, taken, is_ok=True, took_ms=4_000).is_settled
    assert not judge.judge(5_000 + SETTLE_MS - 1, taken, is_ok=True).is_settled
    assert judge.judge(5_000 + SETTLE_MS, taken, is_ok=True).is_settled


def test_what_a_replica_saw_while_it_stood_by_has_settled_when_it_leads() -> None:
    judge, taken = Judge(), SeenLease(STAND_IN, 2, "v2", "u1")
    judge.stood_by(0, taken, is_ok=True)
    judge.stood_by(2_000, None, is_ok=False)
    judge.begin_term()
    assert not judge.judge(SETTLE_MS - 1, taken, is_ok=True).is_settled
    assert judge.judge(SETTLE_MS, taken, is_ok=True).is_settled
    judge.stood_by(SETTLE_MS + 1, None, is_ok=True)
    assert not judge.judge(SETTLE_MS + 2, taken, is_ok=True).is_settled, "it was deleted in between"


def test_the_answer_to_ones_own_change_is_the_first_look_at_it() -> None:
    judge, taken = Judge(), SeenLease(STAND_IN, 2, "v2", "u1")
    judge.judge(0, HUB, is_ok=True)
    judge.saw(300, taken)
    assert not judge.judge(300 + SETTLE_MS - 1, taken, is_ok=True).is_settled
    assert judge.judge(300 + SETTLE_MS, taken, is_ok=True).is_settled


def test_a_hand_back_that_waits_too_long_is_stuck() -> None:
    judge = Judge()
    closing = SeenLease(CLOSING, 3, "v2", "u1")
    judge.judge(0, closing, is_ok=True)
    assert not judge.judge(SETTLE_MS + STUCK_MS - 1, closing, is_ok=True).is_stuck
    assert judge.judge(SETTLE_MS + STUCK_MS, closing, is_ok=True).is_stuck


@pytest.mark.parametrize(("period_ms", "found_ms"), [(5_000, GRACE_MS), (15_000, GRACE_MS), (60_000, 120_000)])
def test_the_grace_period_is_two_sync_periods_at_least(period_ms: int, found_ms: int) -> None:
    assert grace_of(period_ms) == found_ms


@pytest.mark.parametrize(
    ("last_ms", "in_charge_ms", "found_ms"),
    [
        (None, None, PROOF_MS),
        (PROOF_MS, STEADY_MS, PROOF_MS),
        (PROOF_MS, STEADY_MS - 1, 2 * PROOF_MS),
        (16 * PROOF_MS, 0, LONGEST_PROOF_MS),
        (LONGEST_PROOF_MS, 0, LONGEST_PROOF_MS),
        (LONGEST_PROOF_MS, STEADY_MS, PROOF_MS),
    ],
)
def test_the_proof_doubles_where_the_hub_flaps(last_ms: int | None, in_charge_ms: int | None, found_ms: int) -> None:
    assert next_proof_ms(last_ms, in_charge_ms) == found_ms


@given(st.text(max_size=20))
def test_clusters_are_staggered(cluster: str) -> None:
    assert 0 <= stagger_ms(cluster) < STAGGER_MS

"""The newest wanted write of each target, and the offsets whose work has ended."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reconciler.core.inbox import Inbox, OffsetProgress, Position, target_key
from schemas.decisions import Decision, InputPosition, MetricDecision, Step
from schemas.observed import Target


def decided(seq: int, name: str = "web", **changes: Any) -> Decision:
    decision = Decision(
        id=f"0-{seq}-{name}",
        seq=seq,
        prev="",
        cluster="east",
        namespace="shop",
        name=name,
        uid=name,
        time="2026-11-21T12:00:00.000Z",
        input=InputPosition(partition=0, offset=seq, hash=""),
        target=Target(group="apps", kind="Deployment", name=name),
        mode="enforce",
        wants=5,
        expires=10,
    )
    return structs.replace(decision, **changes)


def at(offset: int, partition: int = 0) -> Position:
    return Position(partition, offset)


def test_a_newer_decision_replaces_the_older_wish() -> None:
    inbox = Inbox()
    older, newer = decided(1), decided(2)
    assert inbox.offer(older, at(0))[0] is not None
    wanted, replaced = inbox.offer(newer, at(1))
    assert wanted is not None
    assert wanted.decision == newer
    assert [each.decision for each in replaced] == [older]
    assert not inbox.is_newest(older)
    assert inbox.is_newest(newer)


def test_a_wanted_write_keeps_what_its_write_needs_and_not_what_it_shows() -> None:
    needed = decided(1)
    whole = structs.replace(
        needed,
        status={"currentReplicas": 3},
        metrics=[MetricDecision(type="Resource", name="cpu", value=100)],
        steps=[Step(step="metrics", in_=3, out=7)],
        events=[("Normal", "SuccessfulRescale", "New size: 7")],
        observed={"specReplicas": 3},
        labels={"action": "scaleUp"},
    )
    wanted, _ = Inbox().offer(whole, at(0))
    assert wanted is not None
    assert wanted.decision == needed


def test_a_newer_evaluation_that_wants_nothing_ends_the_older_wish() -> None:
    inbox = Inbox()
    older = decided(1)
    inbox.offer(older, at(0))
    assert inbox.offer(decided(2, wants=None), at(1)) == (None, [inbox_wish(older)])
    assert not inbox.is_newest(older)


def inbox_wish(decision: Decision) -> Any:
    from reconciler.core.inbox import WantedWrite

    return WantedWrite(decision, at(decision.seq - 1))


def test_a_completion_ends_only_the_wish_that_it_completes() -> None:
    inbox = Inbox()
    inbox.offer(decided(1), at(0))
    stranger = decided(2, kind="completion", completes="0-99-web", wants=None)
    assert inbox.offer(stranger, at(1)) == (None, [])
    assert inbox.is_newest(decided(1))
    completion = decided(3, kind="completion", completes="0-1-web", wants=None)
    assert len(inbox.offer(completion, at(2))[1]) == 1


def test_a_repeated_sequence_number_is_passed_over() -> None:
    inbox = Inbox()
    assert inbox.offer(decided(5), at(0))[0] is not None
    assert inbox.offer(decided(5), at(1)) == (None, [])
    assert inbox.offer(decided(4, wants=9), at(2)) == (None, [])
    assert inbox.offer(decided(1), at(0, partition=1))[0] is not None  # numbers are per partition


def test_other_modes_are_no_wish() -> None:
    inbox = Inbox()
    assert inbox.offer(decided(1, mode="shadow"), at(0)) == (None, [])
    assert inbox.offer(decided(2, mode="off"), at(1)) == (None, [])
    assert len(inbox) == 0


def test_the_end_of_an_older_wish_leaves_the_newer_one() -> None:
    inbox = Inbox()
    older, newer = decided(1), decided(2)
    inbox.offer(older, at(0))
    inbox.offer(newer, at(1))
    inbox.ended(older)
    assert inbox.is_newest(newer)
    inbox.ended(newer)
    assert len(inbox) == 0


def test_partitions_that_were_given_up_are_forgotten_with_their_numbers() -> None:
    inbox = Inbox()
    inbox.offer(decided(7), at(3))
    inbox.offer(decided(7, "api"), at(3, partition=1))
    assert [wanted.decision.name for wanted in inbox.forget([0])] == ["web"]
    assert inbox.offer(decided(7), at(3))[0] is not None


def test_without_a_target_the_scale_target_ref_names_it() -> None:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert target_key(decided(1, target=None, scale_target_ref=reference)) == target_key(decided(1))


@given(st.lists(st.tuples(st.sampled_from(["web", "api"]), st.booleans()), max_size=30))
def test_never_an_old_decision_over_a_newer_one_and_every_wish_ends(steps: list[tuple[str, bool]]) -> None:
    inbox = Inbox()
    open_: dict[str, Decision] = {}
    wished = ended = 0
    for seq, (name, wants) in enumerate(steps, start=1):
        wanted, replaced = inbox.offer(decided(seq, name, wants=5 if wants else None), at(seq))
        for old in replaced:
            assert open_.pop(old.decision.name) == old.decision
            assert not inbox.is_newest(old.decision)
            ended += 1
        if wanted is not None:
            open_[name] = wanted.decision
            wished += 1
    for decision in open_.values():
        assert inbox.is_newest(decision)
        inbox.ended(decision)
        ended += 1
    assert wished == ended
    assert len(inbox) == 0


# --- progress ---------------------------------------------------------------------------------------------------------


def test_nothing_is_committed_before_the_first_record() -> None:
    assert OffsetProgress().committable == -1


def test_an_open_record_holds_the_commit_back_and_later_ones_wait_behind_it() -> None:
    progress = OffsetProgress()
    for offset in (4, 5, 6):
        progress.begin(offset)
    progress.begin(4)  # two pieces of work for one record
    progress.done(5)
    progress.done(6)
    progress.done(4)
    assert progress.committable == 4
    progress.done(4)
    assert progress.committable == 7


@given(st.lists(st.integers(0, 20), unique=True, min_size=1).map(sorted), st.data())
def test_no_offset_at_or_above_an_open_one_is_ever_committed(offsets: list[int], data: Any) -> None:
    progress = OffsetProgress()
    for offset in offsets:
        progress.begin(offset)
    left = set(offsets)
    for offset in data.draw(st.permutations(offsets)):
        progress.done(offset)
        left.discard(offset)
        assert progress.committable == (min(left) if left else offsets[-1] + 1)


# --- repeats ----------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["begin", "go on"]), st.integers(0, 2), st.integers(0, 50)), min_size=1, max_size=120
)


@given(STEPS)
def test_however_repeats_interleave_each_decision_is_taken_once_and_in_order(steps: list[tuple[str, int, int]]) -> None:
    """Several routers may copy one log partition at once, each from where it found the offsets committed, and without
    gaps: all of them together write a topic in which every decision is at least once. Other clusters' decisions
    leave holes in the numbers.
    """
    inbox = Inbox()
    written = dict.fromkeys(range(3), 0)
    writers: dict[int, list[int]] = {partition: [] for partition in range(3)}
    taken: dict[int, list[int]] = {partition: [] for partition in range(3)}
    for number, (step, partition, pick) in enumerate(steps):
        cursors = writers[partition]
        if step == "begin" or not cursors:
            cursors.append(pick % (written[partition] + 1))
            continue
        which = pick % len(cursors)
        cursors[which] += 1
        index = cursors[which]
        written[partition] = max(written[partition], index)
        decision = decided(3 * index, f"web-{index}", time=f"2026-11-21T12:{index:02}:00.000Z")
        assert not inbox.begins_anew(decision, partition)
        wanted, _ = inbox.offer(decision, at(number, partition))
        if wanted is not None:
            taken[partition].append(index)
    assert taken == {partition: list(range(1, highest + 1)) for partition, highest in written.items()}


def test_partitions_of_the_log_number_their_decisions_independently() -> None:
    inbox = Inbox()
    assert inbox.offer(decided(900, "web"), at(0, 7))[0] is not None
    assert inbox.offer(decided(3, "api"), at(1, 2))[0] is not None


def test_decisions_whose_numbers_begin_again_are_later_than_the_newest() -> None:
    inbox = Inbox()
    inbox.offer(decided(900, time="2026-11-21T12:00:00.000Z"), at(0))
    assert not inbox.begins_anew(decided(900, time="2026-11-21T12:00:00.000Z"), 0)
    assert not inbox.begins_anew(decided(899, time="2026-11-21T11:59:00.000Z"), 0)
    assert not inbox.begins_anew(decided(901, time="2026-11-21T12:00:01.000Z"), 0)
    assert inbox.begins_anew(decided(1, time="2026-11-21T12:00:01.000Z"), 0)

"""When an HPA is evaluated: with the answer of its period, once per period (docs/decisions/0006-when-an-hpa-is-due.md).

All times are log time, Unix milliseconds. Nothing here reads a clock, and what is remembered lives in rows, so that a
rebalance changes no evaluation.
"""

from collections.abc import Sequence

from msgspec import Struct

from streams.state.answers import REMEMBERED_MS
from streams.state.rows import Arrival

ANSWER_WAIT_MS = 3_000
"""An HPA whose answer does not come is evaluated this long after it was expected."""
SLACK_MS = 2_000
"""How much earlier than a period after the one before an answer may come and still be the next period's."""
HELD_PERIODS = 2
"""For so many sync periods an answer holds, and the first one to a question is waited for."""


class Turn(Struct, frozen=True, gc=False):
    """Whether to evaluate an HPA now, and when next.

    `evaluate`: evaluate it now. `due_ms`: when its next answer is expected, from now on. `look_ms`: when to look again
    if nothing else happens; unused if it is evaluated.
    """

    evaluate: bool
    due_ms: int
    look_ms: int


def slack_ms(period_ms: int) -> int:
    """Return the slack of answers for a sync period: 2 s, or a quarter of a short period."""
    return SLACK_MS if period_ms >= 4 * SLACK_MS else period_ms // 4


def held_ms(period_ms: int) -> int:
    """Return how long an answer of a metrics API holds: two sync periods, or REMEMBERED_MS if that is less."""
    return min(HELD_PERIODS * period_ms, REMEMBERED_MS)


def note_arrival(known: Arrival | None, now_ms: int, period_ms: int) -> Arrival:
    """Note that an answer or sample came now; what comes within the slack of the first one belongs to it."""
    age_ms = REMEMBERED_MS + 1 if known is None else now_ms - known.started_ms
    if known is None or age_ms > REMEMBERED_MS:
        return Arrival(now_ms)
    if age_ms < period_ms and age_ms <= slack_ms(period_ms):
        return known
    return Arrival(now_ms, known.started_ms)


def recent(arrival: Arrival | None, now_ms: int) -> Arrival | None:
    """Return an arrival, unless a checkpoint may have removed it because of its age."""
    return arrival if arrival is not None and now_ms - arrival.started_ms <= REMEMBERED_MS else None


def turn(
    now_ms: int,
    due_ms: int,
    evaluated_ms: int,
    period_ms: int,
    arrivals: Sequence[Arrival | None],
    polled: bool,
    asked_every_ms: int,
    first_wait_ms: int = ANSWER_WAIT_MS,
) -> Turn:
    """Return whether an HPA is evaluated now, and when its next answer is expected.

    Calling it again, after a rebalance, does not change the result: the outcome changes only with an argument other
    than `now_ms`, or when `now_ms` passes `due_ms` or the end of the wait after it.

    Args:
        now_ms: time of the record that is applied.
        due_ms: when the answers of this period are expected.
        evaluated_ms: time as of which the HPA was last evaluated (`as_of`); 0: not yet under this spec.
        period_ms: the sync period of the HPA.
        arrivals: per question or series that the HPA's metrics need, what came last; None: nothing yet.
        polled: they are answers that an observer asks for once per period, not samples that come as they like.
        asked_every_ms: how often an observer asks in its namespace; the HPA's period is as long or longer.
        first_wait_ms: how long the first answer of all to a question is waited for.
    """
    slack = slack_ms(asked_every_ms)
    since_ms = max(evaluated_ms + 1, due_ms - asked_every_ms + slack) if evaluated_ms else due_ms - slack
    regular_from_ms = max(since_ms, _in_time_from(due_ms, period_ms, asked_every_ms))
    answered, first_of_all = 0, False
    regular_ms: int | None = None
    for each in arrivals:
        if each is not None and each.started_ms >= since_ms:
            answered += 1
            # Those that follow the one before by a period at least, so that the next may be expected.
            if each.started_ms >= regular_from_ms and each.started_ms - each.before_ms >= asked_every_ms - slack:
                regular_ms = each.started_ms if regular_ms is None else max(regular_ms, each.started_ms)
                first_of_all = first_of_all or not each.before_ms
    waits = answered < len(arrivals) and any(
        [_is_awaited(each, since_ms, due_ms, evaluated_ms, asked_every_ms, polled) for each in arrivals]
    )
    if now_ms >= due_ms:
        if waits:
            is_new = not evaluated_ms and None in arrivals
            until_ms = due_ms + (first_wait_ms if is_new else ANSWER_WAIT_MS)
            if now_ms < until_ms:
                return Turn(False, due_ms, until_ms)
    elif regular_ms is None or waits:
        return Turn(False, due_ms, due_ms)
    anchor_ms = due_ms if regular_ms is None else regular_ms
    if now_ms < due_ms and now_ms - evaluated_ms < period_ms // 2 and not first_of_all:
        # Too soon after the last evaluation, and none of them is the first: follow these answers from the next one on.
        return Turn(False, anchor_ms + period_ms, anchor_ms + period_ms)
    return Turn(True, _next_due(anchor_ms, now_ms, period_ms), now_ms)


def without_early_turn(planned: Turn, now_ms: int, evaluated_ms: int, period_ms: int, every: int) -> Turn:
    """Leave out a turn that comes before `every` sync periods after the last evaluation; the first of all is taken."""
    if not planned.evaluate or not evaluated_ms or now_ms - evaluated_ms >= every * period_ms - period_ms // 2:
        return planned
    return Turn(False, planned.due_ms, planned.due_ms)


def _in_time_from(due_ms: int, period_ms: int, asked_every_ms: int) -> int:
    """Return from when on an answer brings the evaluation that is due. Of several answers in a period of the HPA it is
    the one at its end, so that the period is never shorter.
    """
    slack = slack_ms(asked_every_ms)
    return due_ms - asked_every_ms + slack if period_ms <= asked_every_ms else due_ms - slack


def due_after_early(due_ms: int, now_ms: int, period_ms: int) -> int:
    """Return when answers are expected next, after an evaluation that did not wait for them: as before, unless that is
    less than half a period away.
    """
    return due_ms if due_ms - now_ms >= period_ms // 2 else _next_due(due_ms, now_ms, period_ms)


def _is_awaited(
    arrival: Arrival | None, since_ms: int, due_ms: int, evaluated_ms: int, period_ms: int, polled: bool
) -> bool:
    """Return whether to wait for an answer: it is expected in this period and has not arrived."""
    if arrival is None:
        return not evaluated_ms
    if arrival.started_ms >= since_ms or due_ms + ANSWER_WAIT_MS - arrival.started_ms > REMEMBERED_MS:
        return False
    gap_ms = arrival.started_ms - arrival.before_ms if arrival.before_ms and not polled else period_ms
    expected_ms = arrival.started_ms + gap_ms
    # One that failed to come in the period before this one is waited for by a new spec only.
    return expected_ms <= due_ms + ANSWER_WAIT_MS and (not evaluated_ms or expected_ms > due_ms - period_ms // 2)


def _next_due(anchor_ms: int, now_ms: int, period_ms: int) -> int:
    """Return the first time, whole periods after `anchor_ms`, that is half a period away at least."""
    missing_ms = now_ms + period_ms // 2 - anchor_ms
    return anchor_ms + max(1, -(-missing_ms // period_ms)) * period_ms


def as_of(now_ms: int, evaluated_ms: int, period_ms: int) -> int:
    """Return the time as of which an evaluation that takes place now decides.

    Upstream begins a sync no sooner than a period after the one before, so a scale event or recommendation that is n
    periods old has left a window of n periods. Answers may come a little early; the evaluation then counts as that much
    later. Source: upstream `processNextWorkItem`, which queues an HPA again with the resync period, v1.37.1.
    """
    earliest_ms = evaluated_ms + period_ms + 1
    return earliest_ms if evaluated_ms and now_ms < earliest_ms <= now_ms + slack_ms(period_ms) else now_ms

"""Fights over a scale: two writers that undo each other, as the moves that an HPA's row keeps show it."""

from collections.abc import Iterable

from msgspec import Struct

from streams.state.moves import ANOTHER, Move

FIGHT_WINDOW_MS = 600_000
"""Two writers that undo each other within this time fight; a fight is over after this time without a change."""
FIGHT_TURNS = 3
"""How many times what one writer set must have been undone by the other. With two turns it could still be one act of
another hand, which the autoscaler answers.
"""


class Fight(Struct, frozen=True, kw_only=True, rename="camel"):
    """Two writers that undo each other: `turns` times between `since` and `until` (Unix ms)."""

    writers: tuple[str, str]
    turns: int
    since: int
    until: int
    lowest: int
    highest: int


def by_another(moves: Iterable[Move], now_ms: int) -> int:
    """Count the moves of another fleethpa within the last ten minutes."""
    return sum(move.writer == ANOTHER and now_ms - move.time_ms <= FIGHT_WINDOW_MS for move in moves)


def fights(moves: Iterable[tuple[int, int, int, str]]) -> list[Fight]:
    """Find stretches, oldest first, in which one writer takes back what another has just set, again and again."""
    closed: list[Fight] = []
    turns: list[Move] = []
    for each in (Move(*known) for known in moves):
        if turns and not (_undoes(each, turns[-1]) and _is_of_pair(each, turns)):
            closed += _closed(turns)
            turns = [turns[-1]] if _undoes(each, turns[-1]) else []
        turns.append(each)
    return closed + _closed(turns)


def fight_now(moves: Iterable[tuple[int, int, int, str]], now_ms: int) -> Fight | None:
    """Return the fight that continues at a moment; None: no writers fight."""
    all_fights = fights(moves)
    return all_fights[-1] if all_fights and now_ms - all_fights[-1].until <= FIGHT_WINDOW_MS else None


def _undoes(later: Move, earlier: Move) -> bool:
    """Another writer, soon after, in the other direction."""
    if later.writer == earlier.writer or later.time_ms - earlier.time_ms > FIGHT_WINDOW_MS:
        return False
    return (later.after - later.before) * (earlier.after - earlier.before) < 0


def _is_of_pair(each: Move, turns: list[Move]) -> bool:
    return len(turns) < 2 or each.writer in (turns[-1].writer, turns[-2].writer)


def _closed(turns: list[Move]) -> list[Fight]:
    if len(turns) - 1 < FIGHT_TURNS:
        return []
    counts = [turn.after for turn in turns]
    first, second = sorted({turn.writer for turn in turns[-2:]})
    return [
        Fight(
            writers=(first, second),
            turns=len(turns) - 1,
            since=turns[0].time_ms,
            until=turns[-1].time_ms,
            lowest=min(counts),
            highest=max(counts),
        )
    ]

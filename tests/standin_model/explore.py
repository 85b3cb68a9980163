"""Explore all states that can be reached, breadth first, and say how one that must not be was reached."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.standin_model.world import (
    Rules,
    State,
    ViolationError,
    at_rest,
    canonical,
    check,
    first,
    is_in_charge,
    is_somebody_due,
    moves,
    quiet_round,
    what_lasts,
)

_REPORTED = 100_000
_STEMS = 10_000
ROUNDS = 16
"""Within so many quiet rounds somebody scales, or `get clusters` shows why nobody does."""


@dataclass
class Found:
    """What an exploration came to. `broken`: the invariant that does not hold, `path` how that came; empty: all hold.

    `is_whole`: every state that can be reached was looked at.
    """

    states: int = 0
    steps: int = 0
    depth: int = 0
    broken: str = ""
    path: list[str] = field(default_factory=list)
    is_whole: bool = False


def explore(
    faults: int,
    rules: Rules | None = None,
    *,
    begin: Callable[[int], State] = first,
    most: int | None = None,
    is_traced: bool = True,
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Look at every state that at most `faults` faults after `begin` lead to, `most` states at most (None: all).

    States are known by their 64-bit hashes: among 20 million, two are taken for one with a probability of 1 in 90,000.
    `is_traced`: keep how each state was reached, which takes most of the memory.
    """
    rules = rules or Rules()
    start = canonical(begin(faults)._replace(scale=int(rules.touches)), rules)
    came_from: dict[State, tuple[State, str]] = {}
    seen: set[int] = {hash(start)}
    recovers = _Recovery(rules)
    found, frontier = Found(states=1), [start]
    while frontier:
        progress(found)
        following: list[State] = []
        for state in frontier:
            try:
                check(state)
                recovers.check(state)
                for what, moved in moves(state, rules):
                    found.steps += 1
                    after = canonical(moved, rules)
                    if (mark := hash(after)) not in seen:
                        seen.add(mark)
                        if is_traced:
                            came_from[after] = (state, what)
                        following.append(after)
            except ViolationError as error:
                found.broken, found.path = str(error), _path(came_from, state)
                found.states = len(seen)
                return found
            if most is not None and len(seen) >= most:
                found.states = len(seen)
                return found
        frontier = following
        found.depth += bool(frontier)
        found.states = len(seen)
    found.is_whole = True
    return found


def walk(
    faults: int,
    rules: Rules | None = None,
    *,
    begin: Callable[[int], State] = first,
    seed: int = 1,
    most: int = 100_000,
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Look at states on random walks from `begin` on, each to where nothing new follows, until `most` were met.

    Where all states are too many, breadth first stays near the beginning; walks reach any depth. `depth`: the length
    of the longest.
    """
    rules = rules or Rules()
    start = canonical(begin(faults)._replace(scale=int(rules.touches)), rules)
    chosen, recovers, found = random.Random(seed), _Recovery(rules), Found()
    seen: set[int] = set()
    stems: list[tuple[State, tuple[str, ...]]] = [(start, ())]
    """Where a walk may begin: states on earlier walks, with the way there."""
    while found.states < most:
        state, path = chosen.choice(stems)
        while found.states < most:
            try:
                check(state)
                recovers.check(state)
                following = [(what, canonical(moved, rules)) for what, moved in moves(state, rules)]
            except ViolationError as error:
                found.broken, found.path = str(error), list(path)
                return found
            found.steps += len(following)
            new = [each for each in following if hash(each[1]) not in seen]
            if not new:
                break
            what, state = chosen.choice(new)
            path = (*path, what)
            seen.add(hash(state))
            found.states, found.depth = len(seen), max(found.depth, len(path))
            if len(stems) < _STEMS or chosen.random() < _STEMS / found.states:
                _put(chosen, stems, (state, path))
            if found.states % _REPORTED == 0:
                progress(found)
    return found


def _put(
    chosen: random.Random, stems: list[tuple[State, tuple[str, ...]]], stem: tuple[State, tuple[str, ...]]
) -> None:
    if len(stems) < _STEMS:
        stems.append(stem)
    else:
        stems[chosen.randrange(_STEMS)] = stem


def _path(came_from: dict[State, tuple[State, str]], state: State) -> list[str]:
    path: list[str] = []
    while (before := came_from.get(state)) is not None:
        state, what = before
        path.append(what)
    return path[::-1]


class _Recovery:
    """Checks that from a state on, without further faults, somebody scales in the end, or it is shown why nobody does.

    Writes that fail when the faults end fail for ever: nothing may depend on their end.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._good: set[State] = set()
        self._looked_at: set[tuple[object, ...]] = set()

    def check(self, state: State) -> None:
        if not is_somebody_due(state):
            return
        if (lasting := what_lasts(state)) in self._looked_at:
            return
        self._looked_at.add(lasting)
        state, passed = at_rest(state, self._rules), list[State]()
        for _ in range(ROUNDS):
            if state in self._good:
                break
            state = quiet_round(state, self._rules)
            passed.append(state)
            if is_in_charge(state, self._rules) and is_in_charge(quiet_round(state, self._rules), self._rules):
                break
        else:
            raise ViolationError("nobody scales, nobody ever will, and `get clusters` does not show why")
        self._good.update(passed)

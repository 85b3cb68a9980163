"""Explore the stand-in's protocol: all states that can be reached, or random walks (`tests.kit.exploring`)."""

from collections.abc import Callable

from tests.kit import exploring
from tests.kit.exploring import Found, ViolationError, World
from tests.standin_model.world import (
    Rules,
    State,
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

ROUNDS = 16
"""Within so many quiet rounds somebody scales, or `get clusters` shows why nobody does."""


def world(faults: int, rules: Rules | None, begin: Callable[[int], State]) -> World[State]:
    """The states that at most `faults` faults after `begin` lead to."""
    rules = rules or Rules()
    recovers = _Recovery(rules)

    def holds(state: State) -> None:
        check(state, rules)
        recovers.check(state)

    return World(
        canonical(begin(faults)._replace(scale=int(rules.touches)), rules),
        lambda state: ((what, canonical(moved, rules)) for what, moved in moves(state, rules)),
        holds,
    )


def explore(
    faults: int,
    rules: Rules | None = None,
    *,
    begin: Callable[[int], State] = first,
    most: int | None = None,
    is_traced: bool = True,
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Look at every state that at most `faults` faults after `begin` lead to, `most` states at most (None: all)."""
    return exploring.explore(world(faults, rules, begin), most=most, is_traced=is_traced, progress=progress)


def walk(
    faults: int,
    rules: Rules | None = None,
    *,
    begin: Callable[[int], State] = first,
    seed: int = 1,
    most: int = 100_000,
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Look at states on random walks from `begin` on, until `most` were met."""
    return exploring.walk(world(faults, rules, begin), seed=seed, most=most, progress=progress)


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

"""Explore all states of a model that can be reached, breadth first or by random walks, and say how one that must not
be was reached.
"""

import argparse
import gc
import random
import sys
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)

_REPORTED = 100_000
_STEMS = 10_000


class ViolationError(Exception):
    """An invariant does not hold; the text says which."""


@dataclass(frozen=True)
class World(Generic[S]):
    """A model: where it starts, what can happen in a state, and what must hold in each.

    `moves`: names of what can happen, each with the state after it. `check` raises ViolationError.
    """

    start: S
    moves: Callable[[S], Iterable[tuple[str, S]]]
    check: Callable[[S], None]


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
    world: World[S],
    *,
    most: int | None = None,
    is_traced: bool = True,
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Look at every state that can be reached, `most` states at most (None: all).

    States are known by their 64-bit hashes: among 20 million, two are taken for one with a probability of 1 in 90,000.
    `is_traced`: keep how each state was reached, which takes most of the memory.
    """
    came_from: dict[S, tuple[S, str]] = {}
    seen: set[int] = {hash(world.start)}
    found, frontier = Found(states=1), [world.start]
    while frontier:
        progress(found)
        following: list[S] = []
        for state in frontier:
            try:
                world.check(state)
                for what, after in world.moves(state):
                    found.steps += 1
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
    world: World[S], *, seed: int = 1, most: int = 100_000, progress: Callable[[Found], None] = lambda found: None
) -> Found:
    """Look at states on random walks from the start on, each to where nothing new follows, until `most` were met.

    Where all states are too many, breadth first stays near the beginning; walks reach any depth. `depth`: the length
    of the longest.
    """
    chosen, found = random.Random(seed), Found()
    seen: set[int] = set()
    stems: list[tuple[S, tuple[str, ...]]] = [(world.start, ())]
    """Where a walk may begin: states on earlier walks, with the way there."""
    while found.states < most:
        state, path = chosen.choice(stems)
        while found.states < most:
            try:
                world.check(state)
                following = list(world.moves(state))
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


def options(prog: str, about: str | None, mutations: Iterable[str]) -> argparse.ArgumentParser:
    """The options of every model's command line."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--most", type=int, help="end after so many states")
    parser.add_argument("--without", choices=sorted(mutations), help="switch a mechanism off")
    parser.add_argument("--walks", type=int, metavar="STATES", help="random walks, until so many states were met")
    parser.add_argument("--seed", type=int, default=1, help="of the random walks (default 1)")
    return parser


def run(world: World[S], arguments: argparse.Namespace, what: str, *, is_traced: bool = True) -> int:
    """Explore as the options ask, and print what was looked at; the exit code is 1 where an invariant does not hold
    (with `--without`: where all still hold).
    """
    gc.disable()  # millions of tuples, none of which is part of a cycle
    begun = time.monotonic()

    def progress(found: Found) -> None:
        taken = time.monotonic() - begun
        print(f"depth {found.depth}: {found.states:,} states, {taken:.0f} s", file=sys.stderr, flush=True)

    if arguments.walks:
        found = walk(world, seed=arguments.seed, most=arguments.walks, progress=progress)
    else:
        found = explore(world, most=arguments.most, is_traced=is_traced, progress=progress)
    whole = "all" if found.is_whole else "not all"
    print(
        f"{what}: {found.states:,} states ({whole} that can be reached), {found.steps:,} steps, depth {found.depth}, "
        f"{time.monotonic() - begun:.0f} s"
    )
    if found.broken:
        print(f"BROKEN: {found.broken}", *(f"  {step}" for step in found.path), sep="\n")
    else:
        print("every invariant holds")
    return int(bool(found.broken) is not bool(arguments.without))


def _put(chosen: random.Random, stems: list[tuple[S, tuple[str, ...]]], stem: tuple[S, tuple[str, ...]]) -> None:
    if len(stems) < _STEMS:
        stems.append(stem)
    else:
        stems[chosen.randrange(_STEMS)] = stem


def _path(came_from: dict[S, tuple[S, str]], state: S) -> list[str]:
    path: list[str] = []
    while (before := came_from.get(state)) is not None:
        state, what = before
        path.append(what)
    return path[::-1]

"""The faults: each takes a running group of deciders, harms it, and leaves it to the harness to be whole again."""

import asyncio
import random
from collections.abc import Awaitable, Callable

from tests.kafka.chaos.group import SESSION_S, Group

Fault = Callable[[Group, random.Random], Awaitable[None]]

REACH_S = 30.0
"""How long a decider with an armed step may take to get there; the step may not come in a short slice of the log."""


async def kill(group: Group, rng: random.Random) -> None:
    """kill -9 at a random moment, in recovery or in a take."""
    await asyncio.sleep(rng.uniform(0.0, 2.5))
    group.pick(rng).kill()


async def terminate(group: Group, rng: random.Random) -> None:
    """SIGTERM: drain, checkpoint, leave, in time."""
    await asyncio.sleep(rng.uniform(0.0, 1.5))
    await group.terminate(group.pick(rng))


async def pause(group: Group, rng: random.Random) -> None:
    """SIGSTOP for longer than the session, then SIGCONT: the worker comes back as a ghost."""
    await asyncio.sleep(rng.uniform(0.0, 1.5))
    worker = group.pick(rng)
    worker.pause()
    await asyncio.sleep(SESSION_S + rng.uniform(0.5, 3.0))
    worker.resume()


async def join_and_leave(group: Group, rng: random.Random) -> None:
    """A second worker joins, works, and leaves in order or is killed."""
    second = group.start("joiner")
    await asyncio.sleep(rng.uniform(1.5, 5.0))
    if rng.random() < 0.5:
        second.kill()
        group.forget("joiner")
    else:
        await group.terminate(second)
        group.forget("joiner")


async def broker_killed(group: Group, rng: random.Random) -> None:
    """kill -9 of the broker, and a restart some seconds later."""
    await asyncio.sleep(rng.uniform(0.0, 1.5))
    await asyncio.to_thread(group.broker.kill)
    await asyncio.sleep(rng.uniform(0.0, 3.0))
    await asyncio.to_thread(group.broker.start)


async def broker_paused(group: Group, rng: random.Random) -> None:
    """The broker is stopped for less or more time than the session."""
    await asyncio.sleep(rng.uniform(0.0, 1.5))
    group.broker.pause()
    await asyncio.sleep(rng.uniform(1.0, 2 * SESSION_S))
    group.broker.resume()


def at_step(step: str) -> Fault:
    """kill -9 at a marked step."""

    async def crash(group: Group, rng: random.Random) -> None:
        worker = group.pick(rng)
        armed = f"{step}*{rng.randrange(1, 4)}"
        await group.terminate(worker)
        worker = group.start(worker.name, crash_at=armed)
        await group.wait_until_ended(worker, REACH_S)
        worker.kill()

    return crash


def checkpoint_row(group: Group, rng: random.Random) -> Awaitable[None]:
    """kill -9 between any two rows of a checkpoint."""
    return at_step(f"checkpoint-row:{rng.choice((1, 2, 3, 5, 8, 20, 50))}")(group, rng)


FAULTS: dict[str, tuple[int, Fault]] = {
    "kill": (6, kill),
    "kill before publish": (2, at_step("before-publish")),
    "kill after publish": (2, at_step("after-publish")),
    "kill in checkpoint": (4, checkpoint_row),
    "kill before commit": (1, at_step("before-commit")),
    "terminate": (2, terminate),
    "pause": (2, pause),
    "join and leave": (2, join_and_leave),
    "broker killed": (1, broker_killed),
    "broker paused": (1, broker_paused),
}
"""Name → how often relative to the others, and what it does."""

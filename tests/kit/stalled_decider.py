"""A decider in which `FLEETHPA_STALL` makes something stand still or slow: `python -m tests.kit.stalled_decider`.

`recovery`: the recovery service ends by itself, as after a time-out inside it; `fetch`: a fetch never comes back;
`ticks`: nothing is appended any more; `loop`: the event loop hangs in a call; `slow`: an evaluation takes EVALUATION_S.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from faust.tables import recovery

from fleethpa.cli.main import main
from streams.decider import pace, strict
from streams.decider.app import Ticker
from streams.decider.batches import Batches
from streams.state import processing

ENVIRONMENT = "FLEETHPA_STALL"
TAKES = 3
HUNG_S = 600.0
EVALUATION_S = 0.1
FETCH_HANGS = "a fetch hangs"


def stall_recovery() -> None:
    """End the recovery service in the middle of the first recovery; the rest of the worker stays up."""

    async def stop(*_: Any) -> None:
        raise recovery.ServiceStopped

    recovery.Recovery._build_highwaters = stop


def stall_fetch() -> None:
    """Let no fetch come back after the first take, and say when one hangs."""

    async def hang(*_: Any, **__: Any) -> None:
        print(FETCH_HANGS, flush=True)
        await asyncio.Event().wait()

    def stop() -> None:
        strict.StrictConsumer._getmany = hang

    after_takes(stop, 1)


def stall_ticks() -> None:
    """Append no tick after the first takes."""

    async def nothing(_: Ticker) -> None:
        return None

    def stop() -> None:
        Ticker.tick = nothing  # type: ignore[method-assign, assignment]

    after_takes(stop)


def stall_loop() -> None:
    """Stand still in a call after the first takes."""
    after_takes(lambda: time.sleep(HUNG_S))  # the injected stall itself


def slow_down() -> None:
    """Let each evaluation take as long as on a processor with a hundred times as much to do, and look for that sooner:
    what a decider does about it takes minutes otherwise.
    """
    pace.BEHIND_MS, pace.CAUGHT_UP_MS, pace.FALLING_MS, pace.LOOK_EVERY_MS = 3_000, 1_500, 400, 2_000
    evaluate = vars(processing)["evaluate"]

    def slowly(*arguments: Any) -> Any:
        time.sleep(EVALUATION_S)  # the injected slowness itself
        return evaluate(*arguments)

    vars(processing)["evaluate"] = slowly


def after_takes(stop: Callable[[], None], takes: int = TAKES) -> None:
    """Do this at the end of the last of the first takes."""
    process, left = Batches.process, takes

    async def counted(self: Batches, records: Sequence[Any], generation: int) -> None:
        nonlocal left
        await process(self, records, generation)
        left -= 1
        if left == 0:
            stop()

    Batches.process = counted  # type: ignore[method-assign]


STALLS = {"recovery": stall_recovery, "fetch": stall_fetch, "ticks": stall_ticks, "loop": stall_loop, "slow": slow_down}

if __name__ == "__main__":
    STALLS[os.environ[ENVIRONMENT]]()
    main()

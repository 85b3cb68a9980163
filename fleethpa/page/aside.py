"""An event loop in a thread of its own, for work that takes long: who waits for other answers is not held up by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop


class Aside:
    """A thread with an event loop, which is started when it is first needed."""

    def __init__(self) -> None:
        self._started: tuple[threading.Thread, Loop] | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread and return its result, or raise its error. Whoever is cancelled cancels it."""
        if self._started is None:
            self._started = _start()
        _, loop = self._started
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    async def close(self) -> None:
        """End the thread; what still runs there is cancelled. It may be started again."""
        started, self._started = self._started, None
        if started is not None:
            thread, loop = started
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)


def _start() -> tuple[threading.Thread, Loop]:
    found: Future[Loop] = Future()

    def serve() -> None:
        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            found.set_result(loop)
            loop.run_forever()

    # A daemon: it must not keep a process that was told to end.
    thread = threading.Thread(target=serve, name="state of the fleet", daemon=True)
    thread.start()
    return thread, found.result()

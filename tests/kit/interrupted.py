"""A program whose pool of processes works until it is interrupted: each task prints a line and then waits."""

import asyncio
import os
import sys
import threading

from streams.history.parallel import ReplayPool


def wait(number: int) -> None:
    """Say that the task has begun, and never end it."""
    os.write(1, f"{number}\n".encode())  # in one piece, beside the line of another process
    threading.Event().wait()


async def work() -> None:
    """Begin two tasks in two processes, behind which two more wait."""
    async for _ in ReplayPool(wait, 2).run(range(4)):
        pass


if __name__ == "__main__":
    try:
        asyncio.run(work())
    except KeyboardInterrupt:
        sys.exit(130)

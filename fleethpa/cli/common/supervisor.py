"""Child processes that are kept running: a crash-only part that ends is started again."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runtime import ending

STOP_S: Final = 8.0
"""How long a child may take to end after SIGTERM."""
_FIRST_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 10.0
_SETTLED_S: Final = 30.0
_DIE_WITH_PARENT: Final = 1
"""prctl(PR_SET_PDEATHSIG)."""


@dataclass
class Child:
    """A process and its log file; `restarts` counts how often it was started again."""

    name: str
    arguments: Sequence[str]
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    restarts: int = 0
    last_exit: int | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 while it does not run."""
        return self.process.pid if self.process is not None and self.process.returncode is None else 0

    def tail(self, lines: int = 5) -> str:
        """The last lines of its log."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Supervisor:
    """Starts children, starts them again when they end, and ends them all."""

    def __init__(self, on_exit: Callable[[Child], None] | None = None) -> None:
        self.children: list[Child] = []
        self._keepers: list[asyncio.Task[None]] = []
        self._ending = False
        self._on_exit = on_exit

    async def start(self, child: Child) -> None:
        """Start a child and keep it running."""
        self.children.append(child)
        await self._spawn(child)
        self._keepers.append(asyncio.create_task(self._keep(child), name=f"keep {child.name}"))

    async def stop(self) -> None:
        """End all children: SIGTERM, and SIGKILL for one that does not heed it."""
        self._ending = True
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        await asyncio.gather(*(self._end(child) for child in self.children))

    async def _spawn(self, child: Child) -> None:
        child.log.parent.mkdir(parents=True, exist_ok=True)
        with child.log.open("ab") as log:
            child.process = await asyncio.create_subprocess_exec(
                *child.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | dict(child.environ),
                # Ctrl-C in the terminal is ours to handle, in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    async def _keep(self, child: Child) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._ending:
            started = time.monotonic()
            assert child.process is not None
            child.last_exit = await child.process.wait()
            if self._on_exit:
                self._on_exit(child)
            pause_s = _FIRST_PAUSE_S if time.monotonic() - started > _SETTLED_S else min(pause_s * 2, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)
            child.restarts += 1
            await self._spawn(child)

    async def _end(self, child: Child) -> None:
        process = child.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(ending.left_s(STOP_S)):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _die_with_parent() -> None:
    """Ask the kernel to end this child when its parent is gone, however that ended."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)

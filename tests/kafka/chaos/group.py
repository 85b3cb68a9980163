"""A group of deciders that is harmed and made whole again, and what is learnt on the way."""

import asyncio
import random
import re
import time
from collections import Counter
from pathlib import Path

from schemas.connection import KafkaSettings
from streams.decider.tail import Exit
from tests.kafka.broker import KafkaBroker
from tests.kit.decider_process import Decider

SESSION_S = 4.0
HARMLESS = (-9, -15, 143, 0, Exit.FENCED, Exit.STALLED)
"""Ways to end that a supervisor answers with a restart. SIGTERM ends one that has hardly begun with -15 or 143."""

_REREAD = re.compile(r"folded (\d+) records again; (\d+) decisions were there")


class Worker(Decider):
    """A named decider."""

    def __init__(self, name: str, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.name = name


class Group:
    """Workers by name on one broker, each with its output in a file.

    Args:
        static: whether workers are static members.
        module: what a worker runs.
    """

    def __init__(self, broker: KafkaBroker, folder: Path, *, static: bool, module: str) -> None:
        self.broker = broker
        self.settings = KafkaSettings(bootstrap_servers=broker.bootstrap)
        self.workers: dict[str, Worker] = {}
        self.exits: Counter[int] = Counter()
        self.terminations_s: list[float] = []
        """How long each SIGTERM took."""
        self._folder = folder
        self._static = static
        self._module = module

    def start(self, name: str, crash_at: str = "") -> Worker:
        """Start a worker."""
        worker = Worker(
            name,
            self.settings.bootstrap_servers,
            self._folder / f"{name}.txt",
            "--playback",
            instance_id=name if self._static else "",
            crash_at=crash_at,
            module=self._module,
            session_timeout_s=SESSION_S,
        )
        self.workers[name] = worker
        return worker

    def pick(self, rng: random.Random) -> Worker:
        """Any running worker."""
        self.heal()
        return self.workers[rng.choice(sorted(self.workers))]

    def heal(self) -> None:
        """Restart what has ended.

        Raises:
            AssertionError: a worker ended in a way that a restart must not hide.
        """
        for name, worker in list(self.workers.items()):
            if worker.ended:
                self._note_exit(worker)
                self.start(name)

    def forget(self, name: str) -> None:
        """A worker that is not started again."""
        self._note_exit(self.workers.pop(name))

    async def terminate(self, worker: Worker) -> None:
        """SIGTERM, and wait."""
        begun = time.monotonic()
        await asyncio.to_thread(worker.terminate, 120)
        self.terminations_s.append(time.monotonic() - begun)

    async def wait_until_ended(self, worker: Worker, timeout_s: float) -> bool:
        """Whether it ended by itself in time."""
        deadline = time.monotonic() + timeout_s
        while not worker.ended and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        return worker.ended

    def stop(self) -> None:
        """End all."""
        for worker in self.workers.values():
            worker.resume()
            worker.kill()

    def reread(self) -> tuple[int, int]:
        """Records folded again and decisions found standing so far, from what the workers printed."""
        texts = [path.read_text(errors="replace") for path in sorted(self._folder.glob("*.txt"))]
        found = [(int(records), int(stood)) for text in texts for records, stood in _REREAD.findall(text)]
        return sum(records for records, _ in found), sum(stood for _, stood in found)

    def _note_exit(self, worker: Worker) -> None:
        code = int(worker.process.returncode)
        self.exits[code] += 1
        if code not in HARMLESS:
            raise AssertionError(f"worker {worker.name} ended with {code}:\n{worker.tail()}")

"""SIGTERM: every process ends within 5 s, whatever is away. All processes of a case run side by side."""

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import orjson
import pytest

from runtime import ending
from schemas.topics import LOG
from streams.decider.tail import Exit
from tests.kafka.fleet import Part
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 5.0
NAMESPACE = "{apiVersion: v1, kind: Namespace, metadata: {name: fleethpa-system}}\n"
WEB = ("--web-port", "0")
PROCESSES = {
    "ingest": ("run", "ingest", *WEB),
    "decider": ("run", "decider", *WEB),
    "observer": ("run", "observer", *WEB),
    "reconciler": ("run", "reconciler", *WEB),
    "agent": ("run", "agent", "--incarnation", "1", "--local-clock", *WEB),
    "router": ("run", "router", *WEB),
    "scheduler": ("run", "scheduler", "--every", "1s", *WEB),
    "archive": ("admin", "archive", "--to", "archive", *WEB),
    "page": ("page", "--port", "0"),
    "all": ("run", "all", *WEB),
}
IN_CLUSTERS = ("observer", "reconciler", "agent")
HANGS = """
import asyncio, threading
from fleethpa.processes.parts import run_parts
from fleethpa.frame.session import Session
from runtime import ending
from runtime.log import set_up_logging

async def part(stop):
    print("is running", flush=True)
    await asyncio.to_thread(threading.Event().wait)

ending.CANCELLED_S, ending.ENDED_S = 0.1, 0.3
set_up_logging("info")
run_parts(Session(), {"part": part})
"""
READY = ("is running", "The page is at", "fleethpa decider: http://")


class World:
    """A broker, a cluster, and processes that use them; each is a process that can be made to stand still."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._parts: list[Part] = []
        manifests, kubeconfig = folder / "manifests.yaml", folder / "kubeconfig"
        manifests.write_text(NAMESPACE)
        files = ("--manifests", str(manifests), "--kubeconfig", str(kubeconfig))
        self.broker = self._part("broker", "tests.kit.simulated", "broker", "--topics", LOG)
        self.cluster = self._part("cluster", "tests.kit.simulated", "cluster", *files)
        self._kubeconfig = str(kubeconfig)

    async def ready(self, names: Sequence[str]) -> list[Part]:
        """Start processes of fleethpa, and wait until they work."""
        await until_printed([self.broker, self.cluster], "bootstrap", "kubeconfig")
        brokers = orjson.loads(self.broker.output.read_bytes())["bootstrap"]
        parts = [self.start(name, brokers) for name in names]
        await until_printed(parts, *READY)
        return parts

    def start(self, name: str, brokers: str) -> Part:
        """Start a process of fleethpa."""
        common = ("--brokers", brokers, "--kubeconfig", self._kubeconfig)
        return self._part(name, "fleethpa", *PROCESSES[name], *common)

    def _part(self, name: str, module: str, *arguments: str) -> Part:
        environ = {"PYTHONPATH": str(ROOT), "HOME": str(self._folder), "PYTHONUNBUFFERED": "1"}
        part = Part(name, arguments, self._folder, environ, cwd=self._folder, module=module)
        self._parts.append(part)
        part.start()
        return part

    def close(self) -> None:
        """End all that still runs."""
        for part in self._parts:
            part.kill()


class SilentBroker:
    """Accepts connections and answers nothing."""

    async def __aenter__(self) -> "SilentBroker":
        self.asked, self._writers = asyncio.Event(), list[asyncio.StreamWriter]()
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.asked.set()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


async def until_printed(parts: Sequence[Part], *texts: str) -> None:
    """Wait until each has printed one of these texts."""
    async with asyncio.timeout(PATIENCE_S):
        for part in parts:
            while not any(text in part.tail() for text in texts):
                assert not part.ended, part.tail()
                await asyncio.sleep(0.05)


def stand_still(part: Part) -> None:
    """Stop a process: its connections stay, and nothing answers."""
    part.signal(signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(part.running.pid, os.WUNTRACED)[1])


async def exit_codes(parts: Sequence[Part]) -> dict[str, int]:
    """SIGTERM to all at once: each must end in time. The exit codes that are not 0."""
    took_s: dict[str, float] = {}
    begun = time.monotonic()
    for part in parts:
        part.signal(signal.SIGTERM)
    while len(took_s) < len(parts) and time.monotonic() - begun < 3 * ENDS_WITHIN_S:
        took_s |= {part.name: time.monotonic() - begun for part in parts if part.ended and part.name not in took_s}
        await asyncio.sleep(0.02)
    late = [part for part in parts if took_s.get(part.name, math.inf) > ENDS_WITHIN_S]
    assert late == [], "\n".join(f"{took_s.get(part.name)} s: {part.tail()}" for part in late)
    assert "Traceback" not in (printed := "\n".join(part.tail() for part in parts)), printed
    return {part.name: part.running.returncode for part in parts if part.running.returncode}


@pytest.mark.slow  # many processes; the fast tier has the other kills and ends
@pytest.mark.parametrize("alone", [False, True], ids=["each", "all in one"])
async def test_every_process_ends_soon_while_a_broker_that_was_reached_does_not_answer(
    world: World, alone: bool
) -> None:
    # Not side by side: the embedded broker refuses members of one group that join while others are being assigned.
    parts = await world.ready([name for name in PROCESSES if (name == "all") == alone])
    stand_still(world.broker)
    codes = await exit_codes(parts)
    # The archive ends with an error if a request fails before it notices the signal: what it has is on disk.
    assert codes.pop("archive", 0) in (0, 3)
    # The decider may still have to write something, which a silent broker does not take, or not.
    assert codes in ({}, {} if alone else {"decider": Exit.STALLED})


@pytest.mark.slow
async def test_every_process_ends_soon_that_starts_while_the_broker_does_not_answer(world: World) -> None:
    await until_printed([world.cluster], "kubeconfig")
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):
        brokers = {name: await stack.enter_async_context(SilentBroker()) for name in PROCESSES}
        parts = [world.start(name, broker.address) for name, broker in brokers.items()]
        for broker in brokers.values():
            await broker.asked.wait()
        # One that still waits for a broker to accept it has no handler of its own, and ends by the signal.
        codes = await exit_codes(parts)
        assert codes in ({"decider": 128 + signal.SIGTERM}, {"decider": -signal.SIGTERM})


@pytest.mark.slow
async def test_processes_end_soon_while_an_api_server_does_not_answer(world: World) -> None:
    parts = await world.ready(IN_CLUSTERS)
    stand_still(world.cluster)
    assert await exit_codes(parts) == {}


def test_a_process_that_hangs_is_ended_and_its_log_names_what_hung() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HANGS], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "is running\n"
            process.terminate()
            _, logged = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == ending.DID_NOT_END
    last = orjson.loads(logged.splitlines()[-1])
    assert last["message"] == "the process has not ended 0.3 s after it was to end, and is ended now"
    assert any("threading.py" in where for where in last["threads"].values()), last

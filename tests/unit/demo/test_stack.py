"""The stack of `make dev` and `make demo`, as far as it can be seen without starting it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleethpa.frame.configuration import find
from fleethpa.frame.errors import USAGE, CommandError
from fleethpa.lab.demo.stack import Stack, StackPlan
from streams.archive.layout import Lock
from tests.patience import PATIENCE_S


def test_a_second_stack_in_the_same_folder_is_refused_before_it_overwrites_anything(tmp_path: Path) -> None:
    running = Lock(tmp_path)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("of the first")

    async def second() -> None:
        async with Stack(StackPlan(tmp_path)):
            pytest.fail("it started")

    with pytest.raises(CommandError, match="another stack runs in") as refused:
        asyncio.run(second())
    running.release()
    assert (refused.value.code, kubeconfig.read_text()) == (USAGE, "of the first")
    assert "--dir DIR" in refused.value.text()


def test_a_folder_that_cannot_be_written_is_an_error_of_its_option(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()

    async def begun() -> None:
        async with Stack(StackPlan(tmp_path)):
            pytest.fail("it started")

    with pytest.raises(CommandError, match=f"--dir {tmp_path} cannot be used: Is a directory") as refused:
        asyncio.run(begun())
    assert refused.value.code == USAGE


class _OnePart(Stack):
    """A stack of one process that does nothing."""

    async def _write_settings(self) -> None:
        pass

    def _commands(self) -> dict[str, Sequence[str]]:
        return {"decider": [sys.executable, "-c", "import signal; signal.pause()"]}


async def test_a_part_that_is_started_again_is_found_by_its_new_process(tmp_path: Path) -> None:
    environ = {"FLEETHPA_RUNTIME_DIR": str(tmp_path)}

    def found() -> int:
        stack = find(environ)
        return 0 if stack is None else stack.processes["decider"]

    async with asyncio.timeout(PATIENCE_S), _OnePart(StackPlan(tmp_path, brokers="none:1", environ=environ)) as stack:
        first = stack.children["decider"].pid
        assert found() == first
        os.kill(first, signal.SIGKILL)
        while found() == first:
            await asyncio.sleep(0.01)  # between two looks; nothing waits for the time itself
        assert found() == stack.children["decider"].pid

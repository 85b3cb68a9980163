"""Verbs that a server runs in processes of their own, run in this one: starting a process costs more than a verb."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any
from unittest import mock

from click.testing import Result

from fleethpa.frame.errors import own_command
from tests.kit.cli import Cli


class Ended:
    """A process that has ended, as the caller of `asyncio.create_subprocess_exec` sees it."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.returncode = code
        self.stdout = _read_of(out)
        self.stderr = _read_of(err)

    async def wait(self) -> int:
        return self.returncode


def _read_of(output: bytes) -> asyncio.StreamReader:
    stream = asyncio.StreamReader()
    stream.feed_data(output)
    stream.feed_eof()
    return stream


def verbs_here(monkeypatch: Any) -> None:
    """For the rest of the test a process of this program's own command is a run of the command line with the same
    arguments and in the same environment, in a thread of this process, one after the other.
    """
    cli, turn = Cli(monkeypatch), asyncio.Lock()

    def run(arguments: tuple[str, ...], env: Mapping[str, str]) -> Result:
        with mock.patch.dict(os.environ, env, clear=True):
            return cli(*arguments)

    async def started(*command: str, env: Mapping[str, str], **_: Any) -> Ended:
        own = own_command()
        assert [*command[: len(own)]] == own
        async with turn:
            found = await asyncio.to_thread(run, command[len(own) :], env)
        return Ended(found.exit_code, found.stdout_bytes, found.stderr_bytes)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)

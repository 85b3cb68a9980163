"""Ctrl-C while several processes work: all of them end at once, and without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.kit.documented import ROOT
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(
    "send", [pytest.param(os.killpg, id="at a terminal"), pytest.param(os.kill, id="to the first alone")]
)
def test_an_interrupted_pool_ends_with_its_processes_and_prints_nothing(send: Callable[[int, int], None]) -> None:
    command = [sys.executable, "-m", "tests.kit.interrupted"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            assert sorted(process.stdout.readline() for _ in range(2)) == [b"0\n", b"1\n"]
            send(process.pid, signal.SIGINT)
            rest, said = process.communicate(timeout=PATIENCE_S)  # stdout ends when the last process has ended
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, rest, said) == (130, b"", b"")

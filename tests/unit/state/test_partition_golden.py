"""The bytes of decisions are pinned: for this engine, on any Python, under any hash seed.

After a change that is meant to give other bytes (a new engine): `python -m tests.golden_partition`.
"""

import os
import shutil
import subprocess
import sys
from functools import cache

import pytest

from tests.golden_partition import GOLDEN, decisions_of, read_golden

PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")


@pytest.mark.parametrize("kind", GOLDEN)
def test_decisions_are_the_golden_bytes(kind: str) -> None:
    records, decisions = read_golden(kind)
    assert decisions_of(records) == decisions
    assert len(decisions) > 100
    assert any(b'"sameAs"' in decision for decision in decisions)
    assert any(b'"kind":"completion"' in decision for decision in decisions)
    assert any(b"RemovalBudget" in decision for decision in decisions) == bool(kind)


@pytest.mark.parametrize("seed", ["0", "1", "4242"])
def test_another_hash_seed_gives_the_same_bytes(seed: str) -> None:
    assert _digest(sys.executable, seed) == _digest_here()


@pytest.mark.parametrize("python", PYTHONS)
def test_another_python_gives_the_same_bytes(python: str) -> None:
    executable = shutil.which(python)
    if executable is None:
        pytest.skip(f"no {python} on the PATH")
    probe = subprocess.run([executable, "-c", "import msgspec, orjson, cramjam"], capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"{executable} lacks msgspec, orjson or cramjam: pip install them there to run this test")
    assert _digest(executable, "7") == _digest_here()


def _digest(executable: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
    command = [executable, "-m", "tests.golden_partition", "--digest"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment, text=True)
    return done.stdout.strip()


@cache
def _digest_here() -> str:
    return _digest(sys.executable, "random")

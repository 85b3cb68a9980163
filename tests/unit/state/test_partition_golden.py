"""The bytes of decisions are pinned: for this engine, on any Python, under any hash seed.

After a change that is meant to give other bytes (a new engine): `python -m tests.kit.golden_partition`.
"""

import os
import subprocess
import sys
from functools import cache

import pytest

from tests.kit.golden_partition import GOLDEN, decisions_of, digest, read_golden
from tests.pythons import VERSIONS, environment_python


@pytest.mark.parametrize("kind", GOLDEN)
def test_decisions_are_the_golden_bytes(kind: str) -> None:
    records, decisions = read_golden(kind)
    assert decisions_of(records) == decisions
    assert len(decisions) > 100
    assert any(b'"kind":"completion"' in decision for decision in decisions)
    assert any(b"RemovalBudget" in decision for decision in decisions) == bool(kind)


@pytest.mark.parametrize(
    "seed", ["0", pytest.param("1", marks=pytest.mark.slow), pytest.param("4242", marks=pytest.mark.slow)]
)
def test_another_hash_seed_gives_the_same_bytes(seed: str) -> None:
    assert _digest(sys.executable, seed) == _digest_here()


@pytest.mark.slow  # `make test-pythons` does the same with those that it finds
@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_log_gives_the_same_bytes_on_every_python(version: str) -> None:
    """Of decisions and state rows, folded by a process of that version in the environment of `make test-pythons`."""
    executable = environment_python(version)
    if not executable.exists():
        pytest.skip(f"PYTHON {version} NOT TESTED: no {executable}; `make test-pythons` makes it")
    assert _digest(str(executable), "7") == _digest_here()


def _digest(executable: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()}
    command = [executable, "-m", "tests.kit.golden_partition", "--digest"]
    done = subprocess.run(command, capture_output=True, check=True, env=environment, text=True)
    return done.stdout.strip()


@cache
def _digest_here() -> str:
    return digest()

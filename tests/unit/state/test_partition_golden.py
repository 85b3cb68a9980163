"""The bytes of decisions are pinned: for this engine, on any Python, under any hash seed.

After a change that is meant to give other bytes (a new engine): `python -m tests.kit.golden_partition`.
"""

import os
import subprocess
import sys
from functools import cache

import orjson
import pytest

from schemas.decisions import Decision, MetricDecision
from schemas.observed import PodSet
from tests.kit.brakes import World
from tests.kit.golden_partition import GOLDEN, decisions_of, digest, read_golden
from tests.kit.partition import make_pod
from tests.pythons import VERSIONS, environment_python


@pytest.mark.parametrize("kind", GOLDEN)
def test_decisions_are_the_golden_bytes(kind: str) -> None:
    records, decisions = read_golden(kind)
    assert decisions_of(records) == decisions
    assert len(decisions) > 100
    assert any(b'"kind":"completion"' in decision for decision in decisions)
    assert any(b"RemovalBudget" in decision for decision in decisions) == bool(kind)


ELSEWHERE = {
    "engine": "there is one engine",
    "origin": "tests/unit/state/test_central_takeover.py",
    "minReplicas": "below",
    "refused": "tests/unit/state/test_central_takeover.py",
    "showsRefusal": "tests/unit/state/test_central_takeover.py",
    "rules": "tests/unit/state/test_cluster_version.py",
    "podsIgnored": "below",
}
"""Fields that no golden log gives another value than their default, and where one is tried."""


def test_each_field_of_a_decision_and_of_its_metrics_is_filled_in_a_golden_log() -> None:
    decisions = [orjson.loads(value) for kind in GOLDEN for value in read_golden(kind)[1]]
    filled = {field for each in decisions for field in each}
    filled |= {field for each in decisions for metric in each.get("metrics", ()) for field in metric}
    declared = {*Decision.__struct_encode_fields__, *MetricDecision.__struct_encode_fields__}
    missing = declared - filled
    assert missing == ELSEWHERE.keys(), (
        "a field is filled by `record` in streams/state/steps.py or `_completion` in streams/state/processing.py; "
        "then `python -m tests.kit.golden_partition`; say in ELSEWHERE where one is tried that no golden log has"
    )


def test_a_decision_has_the_minimum_of_its_spec_and_the_pods_that_ended() -> None:
    world = World("web")
    world.put("web", minReplicas=3)
    world.log.add(PodSet(pod=make_pod("web-0", "web", phase="Failed")))
    made = world.period(50)["web"]
    assert (made["minReplicas"], made["metrics"][0]["podsUsed"], made["metrics"][0]["podsIgnored"]) == (3, 9, 1)


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

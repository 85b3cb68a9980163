"""Upstream's compiled code as a function: cases in, the same cases with its answers out."""

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import orjson

from schemas.kubernetes.shape import Json
from tests.kubernetes.binaries import CONTROLLER, built

BATCH = 500
"""Cases for one run of the program; as many runs at once as there are cores."""


def answered(cases: Sequence[Json]) -> list[Json]:
    """Return the cases with upstream's answers.

    Raises:
        BuildError: the program cannot be built.
        CalledProcessError: it could not read a case.
    """
    batches = [cases[start : start + BATCH] for start in range(0, len(cases), BATCH)]
    built(CONTROLLER)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [case for batch in pool.map(_answered, batches) for case in batch]


def _answered(cases: Sequence[Json]) -> list[Json]:
    lines = b"\n".join(map(orjson.dumps, cases))
    # What the testing package says at its end is nobody's concern; what a case broke is.
    done = subprocess.run([built(CONTROLLER) / "controller"], input=lines, capture_output=True, check=False)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, stderr=done.stderr[-3_000:].decode())
    return [orjson.loads(line) for line in done.stdout.splitlines()]

"""Upstream's compiled code as a function: cases in, the same cases with its answers out."""

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import orjson

from schemas.kubernetes.shape import Json
from tests.kubernetes.binaries import Build, built

BATCH = 500
"""Cases for one run of the program; as many runs at once as there are cores."""


class UnreadableCaseError(Exception):
    """The program could not read a case; the text is why, and how the case begins."""


def answered(cases: Sequence[Json], build: Build) -> list[Json]:
    """Return the cases with the answers of a build of upstream's code.

    Where a case ends that code, its only answer is `panic`, the text of that.

    Raises:
        BuildError: the program cannot be built.
        UnreadableCaseError: the program could not read a case.
    """
    program = built(build) / "controller"
    # What selectors are matched against is the first line of their cases, and of each run.
    first, rest = (cases[:1], cases[1:]) if "labelSets" in cases[0] else ([], cases)
    batches = [[*first, *rest[start : start + BATCH]] for start in range(0, len(rest), BATCH)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        answers = pool.map(partial(_answered, program), batches)
        return [*first, *(case for batch in answers for case in batch[len(first) :])]


def _answered(program: Path, cases: Sequence[Json]) -> list[Json]:
    lines = b"\n".join(map(orjson.dumps, cases))
    # What the testing package says at its end is nobody's concern; what a case broke is.
    done = subprocess.run([program], input=lines, capture_output=True, check=False)
    if done.returncode:
        raise UnreadableCaseError(done.stderr.decode().partition("\n\n")[0])
    return [orjson.loads(line) for line in done.stdout.splitlines()]

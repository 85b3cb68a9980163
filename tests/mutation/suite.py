"""What must notice a fault: upstream's answers first (they are fast), then the unit tables."""

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conformance import calculatorcases, metricsclientcases, scenarios
from tests.conformance.api import API_CHECKS

DATA = Path(__file__).parents[1] / "conformance" / "data"
UNIT = Path(__file__).parents[1] / "unit"

CORE_TABLES = (
    "test_core_explained",
    "test_core_edges",
    "test_core_boundaries",
    "test_python_traps",
    "test_core_decide",
    "test_core_metrics",
    "test_core_normalize",
)
CLIENT_TABLES = ("test_core_metricsclient", "test_core_explained", "test_python_traps")
QUANTITY_TABLES = ("test_quantity", "test_core_explained", "test_python_traps")

Json = dict[str, Any]
Check = Callable[[], bool]
"""Checks whether all answers are right."""


def group(module: str) -> str:
    """Name the checks that a module shares with others."""
    return {"schemas.kubernetes.quantity": "quantity", "streams.hpa.observation": "client"}.get(module, "core")


def checks(group: str) -> Iterator[Check]:
    """Give the checks of a group, fastest first."""
    if group == "quantity":
        yield lambda: all(not found for found in API_CHECKS["quantity"](cases("api-quantity")))
        yield lambda: tables(QUANTITY_TABLES)
    elif group == "client":
        yield lambda: equal(metricsclientcases, "metrics-client", 1)
        yield lambda: tables(CLIENT_TABLES)
    else:
        yield lambda: equal(calculatorcases, "calculator", 10)
        yield lambda: equal(scenarios, "controller-boundary", 10)
        yield lambda: equal(scenarios, "controller-random", 10)
        yield lambda: equal(calculatorcases, "calculator", 1)
        yield lambda: equal(scenarios, "controller-boundary", 1)
        yield lambda: equal(scenarios, "controller-random", 1)
        yield lambda: tables(CORE_TABLES)


def equal(kind: Any, name: str, every: int) -> bool:
    """Compare every n-th case of a file with upstream's answer."""
    return all(not found for _, found in kind.check(cases(name)[::every]))


def cases(name: str) -> list[Json]:
    """Read a file of cases anew: checks may keep what they are given."""
    return [orjson.loads(line) for line in _lines(name)]


_READ: dict[str, list[bytes]] = {}


def _lines(name: str) -> list[bytes]:
    if name not in _READ:
        with gzip.open(DATA / f"{name}.jsonl.gz") as file:
            _READ[name] = list(file)
    return _READ[name]


def tables(names: tuple[str, ...]) -> bool:
    """Run unit tests in this process, so that they meet the changed functions."""
    files = [str(UNIT / f"{name}.py") for name in names if (UNIT / f"{name}.py").exists()]
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return pytest.main([*options, *files]) == pytest.ExitCode.OK

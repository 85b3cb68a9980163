"""The import contracts cover every room: the floors are exhaustive, and each leaf has a contract of its own."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import PACKAGES

ROOT = Path(__file__).parents[3]
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
FLOORS = {each["containers"][0]: each for each in CONTRACTS if "containers" in each}
"""Package → the contract of its rooms."""
LEAVES = FLOORS["reconciler"]["layers"][0].split(" | ")
"""Rooms of the reconciler that nothing of it imports. They do not import each other: they are on one floor."""


@pytest.mark.parametrize("package", [each for each in PACKAGES if each not in ("schemas", "runtime")])
def test_a_room_that_is_on_no_floor_fails(package: str) -> None:
    assert FLOORS[package]["exhaustive"]


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_leaf_of_the_reconciler_has_a_contract_that_forbids_every_other_room_to_import_it(leaf: str) -> None:
    found = [each for each in CONTRACTS if each.get("forbidden_modules") == [f"reconciler.{leaf}"]]
    assert len(found) == 1, f"pyproject.toml needs a contract of type forbidden for reconciler.{leaf}"
    rooms = {path.parent.name for path in (ROOT / "reconciler").glob("*/__init__.py")} - set(LEAVES)
    others = {*PACKAGES, *(f"reconciler.{room}" for room in rooms)} - {"reconciler"}
    assert others <= set(found[0]["source_modules"])

"""One name means one thing: public types of the product. A file's name is unique in its folder only."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("schemas", "runtime", "streams", "reconciler", "fleethpa")


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def public_types(module: Path) -> Iterator[str]:
    """Classes and aliases of types: names that begin with a capital and are not constants."""
    for node in ast.parse(module.read_text()).body:
        match node:
            case ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                if name[0].isupper() and not name.isupper():
                    yield name


def test_a_public_type_name_occurs_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for name in public_types(module):
            places[name].append(str(module.relative_to(ROOT)))
    # A variable of a type is no type of its own, however often it is declared.
    assert {name: found for name, found in places.items() if len(found) > 1 and len(name) > 1} == {}

"""One name means one thing: public types and files of the product."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def test_a_file_name_occurs_once_except_for_verbs() -> None:
    """A verb's module has the verb's name, which may be that of what it works on."""
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        if not module.name.startswith("__") and module.parent != ROOT / "fleethpa/cli":
            places[module.name].append(str(module.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}

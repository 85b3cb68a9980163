"""One name means one thing: public types of the product. A file's name is unique in its folder only."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("schemas", "runtime", "streams", "reconciler", "fleethpa")
_DEFINED = re.compile(r"^(?:class (?=[A-Z]\w*[(:])|(?=[A-Z]\w* = ))(?P<name>\w+)", re.MULTILINE)


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((ROOT / room).rglob("*.py"))


def public_types(module: Path) -> Iterator[str]:
    """Classes and aliases of types: names that begin with a capital and are not constants."""
    for found in _DEFINED.finditer(module.read_text()):
        if not found["name"].isupper():
            yield found["name"]


def test_a_public_type_name_occurs_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        for name in public_types(module):
            places[name].append(str(module.relative_to(ROOT)))
    # A variable of a type is no type of its own, however often it is declared.
    assert {name: found for name, found in places.items() if len(found) > 1 and len(name) > 1} == {}

"""What must not grow: the kernel's imports, private names of other people's libraries, and features woven into others.

Those of the kernel are its bounds. Each other number is today's: a change that lowers one lowers it here, too; one that
raises it says why in its commit. The goals are 50 modules for the kernel, no private name, and a feature in one file
and at most two places.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

from tests.tiers import PACKAGES

ROOT = Path(__file__).parents[3]
KERNEL = "streams.state.partition"
MOST_MODULES, MOST_LINES = 68, 14_150
WOVEN = {"FleetHPA": 48, "CapacityGroup": 36}
"""How many product files name a feature beside those of its own (`OWN`, of their paths below the package: one package
has a name that would fit).
"""
OWN = re.compile(r"across|fleet|capacity|ceiling|whole", re.IGNORECASE)
OF_TUPLES = {"_asdict", "_replace", "_fields", "_make"}
"""Public for all that they begin with an underscore: `collections.namedtuple`."""
PRIVATE = Path(__file__).parent / "data" / "private-names.txt"


@cache
def sources() -> dict[Path, str]:
    """The product's modules."""
    return {path: path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}


def kernel() -> list[Path]:
    """The files of all modules that the kernel imports, directly or not, and its own."""
    graph = grimp.build_graph(*PACKAGES)
    names = sorted({KERNEL, *graph.find_upstream_modules(KERNEL)})
    paths = [ROOT / Path(*name.split(".")) for name in names]
    return [path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py" for path in paths]


def test_the_kernel_imports_no_more_than_its_bounds() -> None:
    files = kernel()
    lines = sum(len(sources()[file].splitlines()) for file in files)
    advice = (
        "what only a leaf needs belongs into the leaf (a limit of size, too: `ELSEWHERE` in tests/limitsreference.py); "
        "what the kernel does not need is attached to it (streams/attachments.py)"
    )
    assert len(files) <= MOST_MODULES, f"{len(files)} modules: {advice}"
    assert lines <= MOST_LINES, f"{lines:,} lines: {advice}"


def private_names() -> Iterator[str]:
    """`module: _name` for each private attribute that product code reads of an object of somebody else's class."""
    own, used = set(OF_TUPLES), list[tuple[Path, str]]()
    for path, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            own.update(_defined(node))
            if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
                used.append((path, node.attr))
    yield from (f"{path.relative_to(ROOT)}: {name}" for path, name in used if name not in own)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _defined(node: ast.AST) -> Iterator[str]:
    """The names that a node defines in our own classes and modules."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
        yield node.attr
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def test_no_further_private_name_of_a_library_is_used() -> None:
    listed = PRIVATE.read_text().splitlines()
    found = sorted(set(private_names()))
    assert found == listed, "tests/unit/docs/data/private-names.txt lists them; it only ever gets shorter"


def test_no_further_file_names_a_feature_of_another() -> None:
    others = [text for path, text in sources().items() if not OWN.search("/".join(path.relative_to(ROOT).parts[1:]))]
    for feature, most in WOVEN.items():
        found = sum(feature in text for text in others)
        advice = "name it in a file of its own (OWN) alone; a docstring says what is meant in other words"
        assert found <= most, f"{found} files name {feature}, and {most} did: {advice}"

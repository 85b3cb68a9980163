"""Strict field validation: fields that a manifest must not have, or has twice, in the API server's words.

Source: k8s.io/apimachinery/pkg/runtime (NewStrictDecodingError), sigs.k8s.io/json (strict.go); the suggestions for
near misses are our own.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from schemas.kubernetes.hpa import unknown_fields
from schemas.kubernetes.hpashapes import HPA_V1, HPA_V2
from schemas.kubernetes.shape import ListOf, Shape, Struct

MOST: Final = 100
"""Most errors of one object, as upstream's decoder has it."""

_NEAR: Final = 0.7
_VERSIONS: Final = {"autoscaling/v2": HPA_V2, "autoscaling/v1": HPA_V1}


@dataclass(frozen=True, slots=True)
class StrictError:
    """A field that is unknown or duplicate.

    Attributes:
        kind: `unknown` or `duplicate`.
        path: the field, such as `spec.metrics[0].resource`.
        hint: what was probably meant, without brackets; may be empty.
    """

    kind: str
    path: str
    hint: str = ""

    @property
    def string(self) -> str:
        """The error as upstream words it, with the hint behind it."""
        hint = f" ({self.hint})" if self.hint else ""
        return f'{self.kind} field "{self.path}"{hint}'


def strict_errors(manifest: Mapping[str, Any], duplicates: Sequence[str] = ()) -> list[StrictError]:
    """Give the unknown fields of an HPA manifest, and the duplicate ones that its reader noted.

    Raises:
        ManifestError: another kind or version, whose fields are not known.
    """
    found = [StrictError("unknown", path, _hint(path, siblings)) for path, siblings in unknown_fields(manifest)]
    return [*found, *(StrictError("duplicate", path) for path in duplicates)][:MOST]


def _hint(path: str, siblings: tuple[str, ...]) -> str:
    parent, _, name = path.rpartition(".")
    folded = {each.lower(): each for each in siblings}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=_NEAR)
    if near:
        return f'did you mean "{folded[near[0]]}"?'
    for version, places in _places().items():
        if parent in places.get(name, ()):
            return f"it is a field of {version}"
    belongs = _places()["autoscaling/v2"].get(name, ())
    # A name as common as `name` belongs to so many places that none is a hint.
    return f"it belongs in {' or '.join(belongs)}" if 0 < len(belongs) <= 2 else ""


@cache
def _places() -> dict[str, dict[str, tuple[str, ...]]]:
    """By version and field name: the paths of the objects that have such a field."""
    return {version: _by_name(shape) for version, shape in _VERSIONS.items()}


def _by_name(shape: Struct) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for path, name in _walk(shape, ""):
        if not path.startswith("status"):
            found[name] = (*found.get(name, ()), path)
    return found


def _walk(shape: Shape, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(shape, ListOf):
        yield from _walk(shape.item, f"{path}[]")
    elif isinstance(shape, Struct):
        for each in shape.fields:
            yield path, each.name
            yield from _walk(each.shape, f"{path}.{each.name}" if path else each.name)

"""Validation cases whose input lost an explicit empty `policies` list on its way into the file.

Upstream distinguishes `policies: []` (refused) from no `policies` (completed with the defaults); the JSON form that the
files are written in leaves both out. Upstream's answer shows which one it was given, so the list can be put back where
the answer asks for it, and everything else must then be equal.
"""

import copy
from collections.abc import Callable, Iterator
from itertools import combinations

from schemas.kubernetes.shape import Json
from tests.conformance.compare import differences

EMPTY_LIST = "explicit empty policies list, which the JSON form leaves out"

_REFUSED = "must specify at least one Policy"
_PREFIX, _SUFFIX = "spec.behavior.", ".policies"


def restored(case: Json, upstream: Json) -> Iterator[Json]:
    """Give the case as upstream may have seen it; nothing where its answer mentions no missing list.

    In `in` the answer names every direction whose list was empty. Of `old` only `generation` and the rules that skip
    what has not changed can tell, so every choice of the same directions is given.
    """
    lost = [each for each in _refused(upstream) if _lacks_policies(case.get("in"), each)]
    if not lost:
        return
    of_old = [each for each in lost if _lacks_policies(case.get("old"), each)]
    for count in range(len(of_old) + 1):
        for directions in combinations(of_old, count):
            changed = copy.deepcopy(case)
            _put_back(changed["in"], lost)
            if directions:
                _put_back(changed["old"], directions)
            yield changed


def explain(case: Json, upstream: Json, answer: Callable[[Json], Json]) -> str | None:
    """Name the class of a validation case that differs unchanged, None when putting the lists back is not enough."""
    equal = (not any(differences(upstream, answer(each))) for each in restored(case, upstream))
    return EMPTY_LIST if any(equal) else None


def _refused(upstream: Json) -> list[str]:
    """Name the directions (`scaleUp`, `scaleDown`) that upstream found without a policy."""
    errors = upstream.get("errors") or ()
    fields = [error["field"] for error in errors if error["detail"] == _REFUSED]
    return [field.removeprefix(_PREFIX).removesuffix(_SUFFIX) for field in fields]


def _lacks_policies(manifest: Json | None, direction: str) -> bool:
    rules = _behavior(manifest).get(direction)
    return isinstance(rules, dict) and "policies" not in rules


def _behavior(manifest: Json | None) -> Json:
    return ((manifest or {}).get("spec") or {}).get("behavior") or {}


def _put_back(manifest: Json, directions: list[str] | tuple[str, ...]) -> None:
    for direction in directions:
        _behavior(manifest)[direction]["policies"] = []

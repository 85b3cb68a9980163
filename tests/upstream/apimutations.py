"""Recorded cases of the API, changed: parts are exchanged for those that another case has at the same place, left out,
or replaced by odd values of the same type. Selectors, as text, are also made from nothing.
"""

import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from schemas.kubernetes.shape import Json
from tests.upstream.values import INT32_MAX, INT32_MIN, REQUESTS, SELECTORS, TARGETS, TOLERANCES

_TEXTS = (
    *("", "a", "x.y", "UPPER", "a b", "a/b", "a/b/c", "%", "%s", "..", ".", "-a", "a-", "é", "v1", "apps/v1", "/v1"),
    *("apps/", "Max", "Min", "Disabled", "max", "Pods", "Percent", "Utilization", "Value", "AverageValue", "Resource"),
    *(
        "External",
        "Object",
        "ContainerResource",
        "cpu",
        "memory",
        "CPU",
        "requests.cpu",
        "acme.io/widget",
        "hugepages-2Mi",
    ),
    *(
        "a" * 63,
        "a" * 64,
        "a" * 253,
        "a" * 254,
        "a.b-c/d",
        "In",
        "NotIn",
        "Exists",
        "DoesNotExist",
        "1",
        "01",
        "a_b",
        "a\n",
    ),
)
_NUMBERS = (0, 1, -1, 2, 100, 101, 1800, 1801, 3600, 3601, 15, INT32_MAX, INT32_MIN, INT32_MAX - 1)
_QUANTITIES = (*TARGETS, *TOLERANCES, *REQUESTS, "-1m", "-0", "00.5", "+1", "1E3", "1e-3")
_QUANTITY_KEYS = frozenset({"averageValue", "value", "tolerance", "cpu", "memory"})
_FIXED = frozenset(
    {
        *("apiVersion", "kind", "annotations", "creationTimestamp", "lastTransitionTime", "lastScaleTime"),
        *("items", "timestamp", "window", "windowSeconds"),
    }
)
"""Neither left out nor replaced by odd values: what decides how a case is read, texts that are objects or times."""
_OF_ANSWERS = frozenset({"metadata", "describedObject", "metric", "name", "usage", "value", "containers", "metricName"})
"""Not left out of the answer of a metrics API, each of which has them."""

Place = tuple[str, ...]


class Pool:
    """What the recorded cases of a file, without their answers, have at each place: indices of lists do not count."""

    def __init__(self, cases: Sequence[Json]) -> None:
        self.cases = cases
        self._at: defaultdict[Place, list[Any]] = defaultdict(list)
        for case in self.cases:
            for holder, key, place in _places(case, ()):
                self._at[place].append(holder[key])

    def changed(self, chance: random.Random) -> Json:
        """Return a case with some changes."""
        made = copy.deepcopy(chance.choice(self.cases))
        for _ in range(chance.choice((1, 1, 2, 3, 5))):
            places = [each for each in _places(made, ()) if _is_free(each[2])]
            if places:
                self._change(chance, *chance.choice(places))
        return made

    def _change(self, chance: random.Random, holder: Any, key: Any, place: Place) -> None:
        match chance.randrange(10):
            case 0 | 1 | 2 | 3 | 4:
                holder[key] = copy.deepcopy(chance.choice(self._at[place]))
            case 5 | 6:
                kept = _FIXED | _OF_ANSWERS if place[0] == "response" else _FIXED
                if isinstance(key, str) and key not in kept:
                    del holder[key]
            case _:
                if place[-1] not in _FIXED and "annotations" not in place:
                    holder[key] = _odd(chance, holder[key], str(key))


def _is_free(place: Place) -> bool:
    """Tell whether a place may change: not a field of the case itself, the version of its manifest, or a generation,
    which the API server alone counts. The selector of a metric is read before its API is asked.
    """
    return (
        len(place) > 1 and place[1:] != ("apiVersion",) and place[-1] != "generation" and place[0] != "metricSelector"
    )


def _odd(chance: random.Random, value: Any, key: str) -> Any:
    if isinstance(value, str):
        return chance.choice(_QUANTITIES if key in _QUANTITY_KEYS else _TEXTS)
    if isinstance(value, int) and not isinstance(value, bool):
        return chance.choice(_NUMBERS)
    if isinstance(value, list) and value:
        return chance.choice(([], value + copy.deepcopy(value[:1]), value[::-1]))
    return value


def _places(value: Any, place: Place) -> Iterator[tuple[Any, Any, Place]]:
    """Yield all places inside: what holds each, its key there, and where that is."""
    pairs: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in pairs:
        here = (*place, key if isinstance(key, str) else "[]")
        yield value, key, here
        yield from _places(each, here)


def selector_text(chance: random.Random) -> str:
    """Return a text that may be a selector: of its words in any order, mostly in one that could be right."""
    keys = ("app", "tier", "n", "a.b/c", "track", "x", "in", "notin", "A", "a_b.c", "-a", "a/b/c", "a" * 64, "é")
    values = (
        "x",
        "y",
        "web",
        "5",
        "10",
        "-3",
        "abc",
        "canary",
        "",
        "in",
        "v" * 63,
        "v" * 64,
        "a b",
        "-x",
        "9223372036854775808",
    )

    def requirement() -> str:
        key, value = (
            chance.choice(keys[: chance.choice((5, 5, 14))]),
            chance.choice(values[: chance.choice((8, 8, 15))]),
        )
        several = ",".join(chance.choice(values[:9]) for _ in range(chance.randint(0, 3)))
        return chance.choice(
            (
                *(
                    f"{key}={value}",
                    f"{key}=={value}",
                    f"{key}!={value}",
                    key,
                    f"!{key}",
                    f"{key}>{value}",
                    f"{key}<{value}",
                ),
                *(f"{key} in ({several})", f"{key} notin ({several})", f"{key} in({several})", f" {key} = {value} "),
            )
        )

    if chance.random() < 0.15:
        words = (
            *keys[:8],
            *values[:8],
            "(",
            ")",
            ",",
            "=",
            "==",
            "!=",
            "!",
            ">",
            "<",
            "in",
            "notin",
            " ",
            "\t",
            "\n",
            "=<",
            "~",
        )
        return chance.choice(("", " ")).join(chance.choice(words) for _ in range(chance.randint(0, 7)))
    if chance.random() < 0.05:
        return chance.choice(SELECTORS)
    return chance.choice((",", ",", ", ", " ,", ",,")).join(requirement() for _ in range(chance.choice((1, 1, 2, 3))))

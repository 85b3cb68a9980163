"""Values that are worth trying: ordinary ones, and those on and next to the bounds of what carries them."""

import random
from collections.abc import Sequence
from typing import Any, TypeVar

INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)

T = TypeVar("T")

SELECTORS = (
    *("app=x", "app=x", "app=x", "app=x", "app", "app==x", "app in (x,y)", "app notin (y)", "app!=y", "!tier"),
    *("app=x,tier", "tier=z", "app=y", "app=", "app in ()", "app in (,x)", "app in (x,x)", "x.io/app=x", " app = x "),
    *("", " ", "cheddar cheese", "app in (x", "app=x,", ",", "=", "app>1", "app=x=y", "n>3", "n<3", "n>x", "-a=b"),
    *("app=x\t", "app=x;tier=y", "app notin (x),tier", "app,!tier", "App=x", "app=-", "a/b/c=d", "app in(x)"),
)
"""Selectors of a scale target, as text: most select the pods, some nothing, some are refused."""

POD_LABELS: Sequence[dict[str, str]] = (
    *({"app": "x"}, {"app": "x", "tier": "z"}, {"app": "y"}, {}, {"app": ""}, {"app": "x", "n": "5"}, {"n": "03"}),
    {"x.io/app": "x", "app": "x"},
)

METRIC_SELECTORS: Sequence[Any] = (
    # No empty list or map inside, which the JSON of an object leaves out, and one wrong label at most: of several
    # upstream names any.
    *(None, None, None, {}, {"matchLabels": {"q": "a"}}, {"matchLabels": {"verb": "GET", "host": "h"}}),
    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["b", "a"]}]},
    {"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["a", "a"]}], "matchLabels": {"z": "1", "a": ""}},
    {"matchExpressions": [{"key": "k", "operator": "Exists"}, {"key": "l", "operator": "DoesNotExist"}]},
    # Refused by upstream.
    {"matchExpressions": [{"key": "k", "operator": "Exists", "values": ["a"]}]},
    {"matchExpressions": [{"key": "k", "operator": "DoesNotExist", "values": ["a", "b"]}]},
    {"matchExpressions": [{"key": "k", "operator": "In"}]},
    {"matchExpressions": [{"key": "k", "operator": "Bogus"}]},
    {"matchExpressions": [{"key": "k", "operator": ""}]},
    {"matchExpressions": [{"key": "-k", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["not a value"]}]},
    {"matchLabels": {"not a key": "a"}},
    {"matchLabels": {"k": "not a value"}},
    {"matchLabels": {"a/b/c": "d", "K": "v"}},
    {"matchLabels": {"k": "v" * 64}},
)

REQUESTS = (
    *("100m", "100m", "100m", "250m", "1", "2", "1500m", "33m", "7m", "1m", "100Mi", "100Mi", "1Gi", "100M", "1000000"),
    *("0", "0.1m", "0.5", "1e3", "1E2", "1u", "1n", "999999n", "1.5Gi", "1Ki", "3e-1", "0.0001", "-100m", "-1"),
    *(
        "9223372036854775807m",
        "9223372036854775807",
        "9223372036854775",
        "1e30",
        "-1e30",
        "8Ei",
        "16Ei",
        "4611686018427387904m",
    ),
)

TARGETS = (
    *("1", "1", "100m", "10", "500m", "30", "1k", "100Mi", "1500m", "1m", "33m", "2500m", "0.1", "1e3", "0.3333"),
    *("0", "0.1m", "1n", "-1", "-100m", "1e30", "9223372036854775807m", "9223372036854775807", "4Ei", "1e18", "1.0001"),
)

TOLERANCES = (
    *("0", "100m", "0.1", "50m", "10m", "1m", "0.05", "200m", "0.25", "0.5", "1", "900m", "2", "0.01", "0.3", "0.7"),
    *("1u", "1n", "0.33333333333333333", "1e-3", "100e-3", "1e30", "1Ki", "0.1000000000000000055511151231257827"),
)


def pick(chance: random.Random, *weighted: tuple[float, T]) -> T:
    """Return one of the values, by their weights."""
    return chance.choices([value for _, value in weighted], [weight for weight, _ in weighted])[0]


def near(chance: random.Random, value: int, low: int = INT32_MIN, high: int = INT32_MAX) -> int:
    """Return a value beside this one, within the bounds."""
    return max(low, min(high, value + chance.choice((-2, -1, -1, 0, 0, 0, 1, 1, 2))))


def replicas(chance: random.Random) -> int:
    """Return a number of replicas: small mostly, seldom at the edge of 32 bits, never negative."""
    return pick(
        chance,
        (60, chance.randint(1, 20)),
        (15, chance.randint(20, 1_000)),
        (10, 0),
        (3, chance.randint(1_000, 2_000_000)),
        (2, chance.choice((INT32_MAX, INT32_MAX - 1, 2**30, 2**30 + 1, 1_500_000_000))),
    )


def int64(value: float) -> int:
    """Return the nearest number that 64 bits hold."""
    return max(INT64_MIN, min(INT64_MAX, int(value)))


def huge(chance: random.Random) -> int:
    """Return a number of up to 64 bits, of either sign, mostly at the edge of a type."""
    edges = (
        INT64_MAX,
        INT64_MIN,
        2**62,
        2**53,
        2**53 + 1,
        2**31,
        2**31 * 1000,
        INT64_MAX // 2,
        INT64_MAX // 1000,
        2**32,
    )
    return int64(chance.choice((1, 1, -1)) * (chance.choice(edges) + chance.choice((-1, 0, 0, 1))))


def maybe(chance: random.Random, probability: float) -> bool:
    """Return true so often."""
    return chance.random() < probability

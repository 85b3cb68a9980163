"""A CapacityGroup as it crosses topics: a ceiling that many HPAs share, and the two messages about it."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from schemas.codec import in_words
from schemas.kubernetes.quantity import Quantity, QuantityError, parse_quantity
from schemas.kubernetes.selectors import Selector, SelectorError, label_selector
from schemas.limits import Count, Positive, TimeMs
from schemas.observed import EntryBody
from schemas.settings import parse_price

CAPACITY: Final = "@capacity"
"""Stands in place of a cluster in the key of a report to a CapacityGroup, `@capacity/name`. No cluster can be called
so.
"""
UNITS_ANNOTATION: Final = "fleethpa.io/units"
"""Annotation of an HPA: how many units one replica uses, such as `gpu=2,license=1`."""
MOST_USE: Final = 2**53
"""The most that a limit or a replica's use of it may be."""

Use = Annotated[int, Meta(ge=0, le=MOST_USE)]
LimitKind = Literal["replicas", "units", "cost"]
WhenUnknown = Literal["Hold", "Open"]
_SCALES: Final[Mapping[LimitKind, int]] = {"replicas": 1, "units": 1_000, "cost": 1_000_000}


class CapacityLimit(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a group may have. `count`: replicas, thousandths of a unit (`name`), or millionths of the currency of the
    setting `price`, per hour.
    """

    kind: LimitKind = "replicas"
    name: str = ""
    count: Use

    def number(self, count: int | None = None) -> Decimal:
        """Return a count in the limit's unit, by default the limit itself."""
        return Decimal(self.count if count is None else count) / _SCALES[self.kind]

    def text(self, count: int | None = None) -> str:
        """Return a count with the limit's unit, by default the limit itself: `500 replicas`, `64 gpu`, `40/h`."""
        shown = f"{self.number(count).normalize():f}"
        if self.kind == "cost":
            return f"{shown}/h"
        return f"{shown} {self.name or ('replica' if shown == '1' else 'replicas')}"


class CapacityPriority(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Who comes first: the HPAs in `namespaces` (names or globs; none: of no namespace) that the selector matches have
    this priority. Labels are written by whoever may edit an HPA; the namespaces are named by the group's owner.
    """

    selector: dict[str, Any]
    namespaces: list[str] = []
    value: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)]


class CapacitySpec(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A ceiling over the HPAs whose labels `selector` matches, in `namespaces` (names or globs; none: of no namespace,
    since whoever may label an HPA would be of it) and `clusters` (names or globs; none: all).

    Of `priorities` the first that matches counts, else 0. `whenUnknown`: what a member does without a fresh allotment:
    add nothing, or add what it wants.
    """

    selector: dict[str, Any]
    limit: CapacityLimit
    namespaces: list[str] = []
    clusters: list[str] = []
    priorities: list[CapacityPriority] = []
    when_unknown: WhenUnknown = "Hold"


class CapacityGroupSet(EntryBody, frozen=True, kw_only=True, tag="capacityGroup"):
    """A CapacityGroup was created or changed, or (no `spec`) deleted; ingest copies it into every partition.

    `revision`: another one with each change; messages about the group name it. `statedBy`, `proven`: as of `Command`.
    """

    name: str
    revision: TimeMs
    spec: CapacitySpec | None = None
    author: str = ""
    reason: str = ""
    stated_by: str = ""
    proven: bool = False


class CapacityReport(EntryBody, frozen=True, kw_only=True, tag="capacityReport"):
    """What an HPA (`cluster`, `namespace`, `name`) reports to CapacityGroup `group`.

    `obeys`: number of the newest allotment that it has (0: none); `hasEnded`: the time of that is over. `has`: its
    replicas, or those of the write in flight; `most`: what it may have at most, its allotment included; `wants`: what
    it would have if the group held nothing back. `weight`: what one replica uses of the limit. `at`: log offset of its
    partition, by which older reports are known. `hasLeft`: it is of the group no longer.
    """

    group: str
    cluster: str
    namespace: str
    name: str
    revision: TimeMs
    at: Annotated[int, Meta(ge=0)]
    obeys: Count = 0
    has_ended: bool = False
    has: Count = 0
    most: Count = 0
    wants: Count = 0
    weight: Use = 0
    priority: int = 0
    has_left: bool = False


class CapacityAllotment(EntryBody, frozen=True, kw_only=True, tag="capacityAllotment"):
    """The most replicas that CapacityGroup `group` lets HPA `name` of the record's namespace have, until `until`.

    Of one `revision` the highest `number` counts. `used`: what all members may use of the limit; `share`: this one.
    """

    group: str
    name: str
    revision: TimeMs
    number: Positive
    replicas: Count
    until: TimeMs
    used: int
    share: int


class _LabelExpression(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    operator: str
    values: list[str] | None = None


class _LabelSelector(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_LabelExpression] | None = None


def _compiled(selector: Mapping[str, Any]) -> Selector:
    try:
        return label_selector(msgspec.to_builtins(msgspec.convert(selector, _LabelSelector)))
    except msgspec.ValidationError as error:
        raise SelectorError(in_words(error)) from error


class CapacityMatch:
    """A spec, its selectors compiled. Raises SelectorError: a selector cannot be read."""

    __slots__ = ("_priorities", "_selector", "spec")

    def __init__(self, spec: CapacitySpec) -> None:
        self.spec = spec
        self._selector = _compiled(spec.selector)
        self._priorities = [(each.namespaces, _compiled(each.selector), each.value) for each in spec.priorities]

    def priority(self, cluster: str, namespace: str, labels: Mapping[str, str]) -> int | None:
        """Return the priority of an HPA of this cluster and namespace with these labels; None: it is not of the
        group.
        """
        if not _is_named(namespace, self.spec.namespaces):
            return None
        in_cluster = not self.spec.clusters or _is_named(cluster, self.spec.clusters)
        if not in_cluster or not self._selector.matches(labels):
            return None
        for namespaces, selector, value in self._priorities:
            if _is_named(namespace, namespaces) and selector.matches(labels):
                return value
        return 0


def _is_named(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)


def parse_units(text: str) -> dict[str, int]:
    """Read how many units a replica uses, such as `gpu=2,license=0.5`, in thousandths, rounded up.

    Raises ValueError: it is not of that form, or a number is negative or too large.
    """
    units = {}
    for part in text.split(","):
        name, sign, number = part.strip().partition("=")
        if not (name and sign):
            raise ValueError(f"{part[:40]!r} is not NAME=NUMBER, such as gpu=2")
        units[name] = milli_units(number)
    return units


def milli_units(text: str) -> int:
    """Read a quantity in thousandths, rounded up. Raises ValueError: it is no quantity, negative or too large."""
    try:
        quantity = parse_quantity(text)
    except QuantityError as error:
        raise ValueError(f"{text[:40]!r} is not a quantity") from error
    if quantity.sign() < 0 or quantity.cmp(_MOST_UNITS) > 0:
        raise ValueError(f"{text[:40]!r} is not between 0 and {_MOST_UNITS}")
    return quantity.milli_value()


_MOST_UNITS: Final[Quantity] = parse_quantity("9e12")


def micro_price(text: str) -> int:
    """Read a price in millionths, rounded up. Raises ValueError: it is not a price."""
    return -int(-parse_price(text) * 1_000_000 // 1)

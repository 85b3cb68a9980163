"""What holds for whole clusters or partitions: settings with their budgets, the engine, resets, restarts."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field, structs

from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.kubernetes.quantity import Quantity, QuantityError, parse_quantity
from schemas.limits import MAX_TIME_MS, MOST_REPLICAS, Positive, TimeMs
from schemas.observed import EntryBody, MetricType, Mode
from schemas.topics import MAX_PARTITIONS

OFF: Final = "off"
SHORTEST_MS: Final = 60_000
LONGEST_MS: Final = 3_600_000
"""No budget looks back further than this; state rows keep what was removed for as long."""
EVERY_NAMESPACE: Final = "*"
"""Means every namespace of the cluster that has no budget of its own; each of them gets a budget of this size."""
_FORM: Final = re.compile(r"([0-9]{1,10})(%?)/([0-9a-z.]{1,20})(,then=hold)?", re.ASCII)


class Budget(Struct, frozen=True):
    """How many replicas may be removed (or added) within a sliding window.

    `percent` of the most replicas that the scope had within the window, or `count` replicas; the other one is None.
    Less than 1 counts as 1. `text`: as the setting was written. `holds`: once it is used up and cuts a removal, no
    further one is made until somebody resumes, whatever the window then has room for.
    """

    text: str
    percent: int | None
    count: int | None
    window_ms: int
    holds: bool = False

    def allowed(self, base: int) -> int:
        """Return the replicas that may go within a window, for a scope that had `base` replicas at most."""
        return max(1, base * self.percent // 100 if self.percent is not None else self.count or 0)


def parse_budget(text: str, *, whole_cluster: bool = False, additions: bool = False) -> Budget | None:
    """Read a budget; None: `off`.

    Args:
        text: such as `30%/10m`, `5/10m` or `30%/10m,then=hold`.
        additions: it bounds additions, which are never held for good: a load that rises must find replicas again.
        whole_cluster: it is a cluster's, whose namespaces may be in several partitions of the log: only a percentage
            can be kept in each of them alone (docs/decisions/0011-brakes.md).

    Raises:
        ValueError: the text is not a budget; the message says what is expected.
    """
    if text == OFF:
        return None
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"budget {text[:40]!r} cannot be read; write it as 30%/10m, 5/10m, 30%/10m,then=hold or off")
    number, is_percent = int(form[1]), bool(form[2])
    window_ms = parse_duration_ms(form[3])
    if not SHORTEST_MS <= window_ms <= LONGEST_MS:
        raise ValueError(f"budget {text[:40]!r}: the window must be from 1m to 1h")
    if is_percent and not 1 <= number <= 100:
        raise ValueError(f"budget {text[:40]!r}: the percentage must be from 1 to 100")
    if not is_percent and not 1 <= number <= MOST_REPLICAS:
        raise ValueError(f"budget {text[:40]!r}: the number of replicas must be from 1 to {MOST_REPLICAS}")
    if whole_cluster and not is_percent:
        raise ValueError(f"budget {text[:40]!r}: the budget of a whole cluster must be a percentage, such as 30%/10m")
    if additions and form[4]:
        raise ValueError(f"budget {text[:40]!r}: only a removal budget may say then=hold")
    return Budget(text, number if is_percent else None, None if is_percent else number, window_ms, bool(form[4]))


_PRICE: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def parse_price(text: str) -> Decimal:
    """Read what a replica costs per hour. Raises ValueError: it is not a number such as 0.04."""
    if not _PRICE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is not a price per replica-hour, such as 0.04")
    return Decimal(text)


_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def parse_cluster_uid(text: str) -> str:
    """Read the UID of a cluster. Raises ValueError: it is not a UID as API servers make them."""
    if not _UID.fullmatch(text):
        raise ValueError("expected a UID such as 4f1c2e0a-6d1b-4c58-9a70-3b1d5f0e8c21")
    return text


PeriodMs = Annotated[int, Meta(ge=100, le=MAX_TIME_MS)]
"""A time between two evaluations, in milliseconds."""


class ClusterSettings(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Everything that changes decisions in a cluster; None: unchanged. `*` as cluster is the default for all.

    What each does, and what holds without it, is in `SETTING_TEXTS`; its effect in
    `streams.state.clustersettings.effective`. `nativeEvidence`: with `nativeController: present`, what showed that a
    native controller runs. The plural budgets, `namespaces` and `sources` are maps, whose members are settings of their
    own for those who write them.
    """

    sync_period_ms: PeriodMs | None = None
    min_sync_period_ms: PeriodMs | None = None
    tolerance: str | None = None
    downscale_stabilization_ms: TimeMs | None = None
    cpu_initialization_period_ms: TimeMs | None = None
    initial_readiness_delay_ms: TimeMs | None = None
    sources: dict[MetricType, Literal["api", "samples"]] | None = None
    sample_age_limit_ms: Annotated[int, Meta(ge=1, le=MAX_TIME_MS)] | None = None
    default_mode: Mode | None = None
    namespaces: dict[str, Mode] | None = None
    frozen: bool | None = None
    native_controller: Literal["absent", "present", "unknown"] | None = None
    max_step: Positive | None = None
    hold_on_overflow: bool | None = None
    native_evidence: str | None = None
    status_every_ms: TimeMs | None = None
    removal_budget: str | None = None
    removal_budgets: dict[str, str] | None = None
    addition_budget: str | None = None
    addition_budgets: dict[str, str] | None = None
    partial_view: bool | None = None
    evaluate_on: Literal["period", "sample"] | None = None
    evaluate_floor_ms: PeriodMs | None = None
    rules: str | None = None
    gates: str | None = None
    price: str | None = None
    cluster_uid: str | None = None
    managed_by: Annotated[str, Meta(max_length=512)] | None = None


SETTING_TEXTS: Final[Mapping[str, str]] = {
    "sync_period_ms": "time between two evaluations of an HPA [15s]",
    "min_sync_period_ms": "the shortest sync period that an HPA may state by its annotation [the sync period]",
    "tolerance": "how far a metric may be from its target without a change [0.1]",
    "downscale_stabilization_ms": "window of recommendations before a scale-down [5m]",
    "cpu_initialization_period_ms": "how long CPU samples of a new pod may be skipped [5m]",
    "initial_readiness_delay_ms": "how long a pod that was never ready counts as starting [30s]",
    "sources": "for metrics of TYPE: api asks the metrics APIs, samples waits for pushed ones [api]",
    "sample_age_limit_ms": "age from which a pushed sample is not used [2m]",
    "default_mode": "mode of HPAs that have none of their own: off, shadow or enforce [shadow]",
    "namespaces": "mode of the HPAs of a namespace",
    "frozen": "nothing is written in the cluster; set for all (*), in no cluster at all [false]",
    "native_controller": "absent is the proof that nothing else acts on the cluster's HPAs [unknown]",
    "max_step": "the most replicas that one write may change [no limit]",
    "hold_on_overflow": "a count that comes of an overflow is not written [true]",
    "native_evidence": "what showed that a native controller runs",
    "status_every_ms": "how often a status with nothing but new metric values is written [0: with each evaluation]",
    "removal_budget": "what may be removed in a window, as 30%/10m; 30%/10m,then=hold pauses removals after it [off]",
    "removal_budgets": "the same in a namespace; NAME *: in each that has none of its own",
    "addition_budget": "the same for additions, without then=hold [off]",
    "addition_budgets": "the same in a namespace; NAME *: in each that has none of its own",
    "partial_view": "hold scale-downs in a namespace whose pods or metrics vanish or fall together [false]",
    "evaluate_on": "sample: evaluate also as soon as a pushed sample moves a metric past its tolerance [period]",
    "evaluate_floor_ms": "with evaluate-on=sample: the least time between two evaluations [1s]",
    "rules": "decide as this version of Kubernetes, such as 1.33 [the cluster's own]",
    "gates": "feature gates of its controller manager that cannot be read, as HPAScaleToZero=true",
    "price": "what a replica costs per hour, such as 0.04; no decision depends on it",
    "cluster_uid": "UID of the cluster's namespace kube-system; an API server that shows another one is refused [any]",
    "managed_by": "the object of the hub's API that states the settings, as ClusterConfig/east",
}
"""Field → what it does, with what holds without it in brackets."""


class SettingsSet(EntryBody, frozen=True, kw_only=True, tag="settings"):
    """Settings of a cluster (`*`: all) were changed; ingest copies it into every partition.

    `unset`: names of settings, such as `maxStep`, to remove; they are removed before `settings` are
    added. A cluster without any setting of its own has no entry. `proven`: as of `Command`.
    """

    cluster: str
    settings: ClusterSettings
    author: str = ""
    reason: str = ""
    unset: list[str] = field(default_factory=list)
    proven: bool = False


SETTING_NAMES: Final = dict(
    zip(ClusterSettings.__struct_encode_fields__, ClusterSettings.__struct_fields__, strict=True)
)
"""Settings as `SettingsSet.unset` names them, and their fields."""


class EngineSet(EntryBody, frozen=True, kw_only=True, tag="engine"):
    """From here on this engine makes the decisions; `partitions` records the partition count, never changed later."""

    engine: Positive
    partitions: Annotated[int, Meta(ge=0, le=MAX_PARTITIONS)] = 0
    author: str = ""
    reason: str = ""


class WatermarkReset(EntryBody, frozen=True, kw_only=True):
    """The source topic was deleted and created again: forget which of its offsets have been seen."""

    topic: str
    source_partition: Annotated[int, Meta(ge=0, le=MAX_PARTITIONS)]
    author: str = ""
    reason: str = ""


class LogTimeSet(EntryBody, frozen=True, kw_only=True, tag="logTime"):
    """From the next record on, log time is `time` (Unix ms): a broker's clock was wrong. Where that changes log time,
    windows and scale events start empty.
    """

    time: TimeMs
    author: str = ""
    reason: str = ""


class Restart(EntryBody, frozen=True, kw_only=True):
    """Memory was lost here: windows and scale events start empty, as after a restart of upstream's controller."""

    reason: str
    author: str = ""


def merge(older: ClusterSettings, newer: ClusterSettings) -> ClusterSettings:
    """Replace the settings that `newer` sets; the others stay."""
    stated = {name: value for name in newer.__struct_fields__ if (value := getattr(newer, name)) is not None}
    return structs.replace(older, **stated)


def apply_settings(known: dict[str, ClusterSettings], body: SettingsSet) -> None:
    """Apply a change of a cluster's settings; a cluster without any setting left has no entry."""
    held = known.get(body.cluster, ClusterSettings())
    if body.unset:
        held = structs.replace(held, **{SETTING_NAMES[name]: None for name in body.unset if name in SETTING_NAMES})
    held = merge(held, body.settings)
    if body.unset and held == ClusterSettings():
        known.pop(body.cluster, None)
    else:
        known[body.cluster] = held


MAPS: Final = ("sources", "namespaces", "removal_budgets", "addition_budgets")
"""Settings that are maps, of which a cluster may have some members and take the others from `*`."""


def parse_tolerance(text: str) -> Quantity:
    """Read a tolerance, such as 0.1 or 100m. Raises ValueError if it is not a number, or negative."""
    try:
        tolerance = parse_quantity(text)
    except QuantityError as error:
        raise ValueError("expected a number such as 0.1") from error
    if tolerance.sign() < 0:
        raise ValueError("expected a number such as 0.1, not below 0")
    return tolerance


READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "tolerance": parse_tolerance,
    "price": parse_price,
    "cluster_uid": parse_cluster_uid,
    "removal_budget": partial(parse_budget, whole_cluster=True),
    "addition_budget": partial(parse_budget, whole_cluster=True, additions=True),
    "removal_budgets": parse_budget,
    "addition_budgets": partial(parse_budget, additions=True),
}
"""The parser of each setting that is a text, and of the members of those that are maps of texts; it raises ValueError.
Parsers of settings that name rules are added in `streams.state.clustersettings.TEXT_READERS`.
"""


def settings_of(known: Mapping[str, ClusterSettings], cluster: str) -> ClusterSettings:
    """The settings of a cluster: its own, else those of `*`. Maps are put together member by member.

    A frozen fleet is frozen everywhere, whatever a cluster says.
    """
    shared, own = known.get(EVERY_CLUSTER, ClusterSettings()), known.get(cluster, ClusterSettings())
    maps: dict[str, Any] = {name: {**(getattr(shared, name) or {}), **(getattr(own, name) or {})} for name in MAPS}
    merged = merge(shared, own)
    frozen = shared.frozen or merged.frozen
    return structs.replace(merged, frozen=frozen, **{name: members or None for name, members in maps.items()})

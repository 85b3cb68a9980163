"""Settings of a cluster at a moment of the log: its own, else those of `*`, else the defaults of upstream's flags.

Its HPAs are decided by the rules of the version that the settings pin, else of the version that its observer reported.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from msgspec import Struct

from schemas.capacity import micro_price
from schemas.kubernetes.quantity import parse_quantity
from schemas.observed import Mode
from schemas.settings import READERS, ClusterSettings, settings_of
from streams.hpa.autoscaler import ControllerSettings
from streams.hpa.rules import (
    CURRENT_TEXT,
    OLDEST,
    UnknownRulesError,
    known_gates,
    minor_of,
    parse_gates,
    rules_named,
    rules_of,
    rules_text,
)

T = TypeVar("T")
DEFAULT_SYNC_PERIOD_MS = 15_000
DEFAULT_SAMPLE_AGE_LIMIT_MS = 120_000
DEFAULT_SAMPLE_FLOOR_MS = 1_000
_STATED = "the settings say so (native-controller=present)"


class Effective(Struct, frozen=True):
    """The settings of one cluster, complete."""

    controller: ControllerSettings
    sync_period_ms: int
    """How often an HPA is evaluated: the cluster's setting, or what the HPA states (`streams.state.ownperiod`)."""
    asked_every_ms: int
    """How often an observer asks for metrics: the cluster's setting, or the shortest sync period in the namespace."""
    sample_age_limit_ms: int
    sources: dict[str, str]
    default_mode: Mode
    namespaces: dict[str, Mode]
    native_absent: bool
    native_evidence: str
    """What showed or states that a native controller runs; empty: nothing does."""
    stated: ClusterSettings
    """As they were written: a limit of its own reads its setting here, and knows what holds without it."""
    sample_floor_ms: int | None = None
    """An HPA is evaluated also when a pushed sample moves its metric, this long after the evaluation before or later;
    None: once per sync period only.
    """
    rules: str = ""
    """The rules that decide, as a record names them (`streams.hpa.rules.rules_text`); empty: those of v1.37."""
    price: int = 0
    """What a replica costs per hour, in millionths; 0: none is set."""
    too_old: str = ""
    """The version that its observer reported, where its rules are not known since it is older than every known one, and
    none is pinned: its HPAs must not write. Empty: they may.
    """


def effective(known: dict[str, ClusterSettings], cluster: str, kubernetes: str = "") -> Effective:
    """Return the effective settings of a cluster, whose observer reported this version; empty: none was reported."""
    own = settings_of(known, cluster)
    rules = _rules(own, kubernetes)
    return Effective(
        controller=_controller(own, rules),
        rules="" if rules == CURRENT_TEXT else rules,
        too_old="" if own.rules or minor_of(rules) >= OLDEST else f"1.{minor_of(rules)}",
        sync_period_ms=_or(own.sync_period_ms, DEFAULT_SYNC_PERIOD_MS),
        asked_every_ms=_or(own.sync_period_ms, DEFAULT_SYNC_PERIOD_MS),
        sample_age_limit_ms=_or(own.sample_age_limit_ms, DEFAULT_SAMPLE_AGE_LIMIT_MS),
        sources={str(kind): source for kind, source in (own.sources or {}).items()},
        default_mode=own.default_mode or "shadow",
        namespaces=own.namespaces or {},
        native_absent=own.native_controller == "absent",
        native_evidence=(own.native_evidence or _STATED) if own.native_controller == "present" else "",
        stated=own,
        price=read_or(0, own.price, micro_price),
        sample_floor_ms=_or(own.evaluate_floor_ms, DEFAULT_SAMPLE_FLOOR_MS) if own.evaluate_on == "sample" else None,
    )


TEXT_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    **READERS,
    "rules": lambda text: rules_of(minor_of(text)),
    "gates": parse_gates,
}
"""The parser of each setting that is a text, and of the members of those that are maps of texts; it raises ValueError.
The command line and ingest both refuse by it.
"""


def read_or(default: T, text: str | None, read: Callable[[str], T]) -> T:
    """Read a setting that is a text; ingest lets only valid ones pass, and another one must not stop the partition."""
    try:
        return default if text is None else read(text)
    except ValueError:
        return default


def _rules(own: ClusterSettings, kubernetes: str) -> str:
    """Name the rules that decide; ingest lets only valid settings pass, and others must not stop the partition.

    Gates that were reported are those of the cluster's version: a pinned one has its own defaults.
    """
    version, _, reported = (own.rules or kubernetes).partition(" ")
    try:
        gates = {**known_gates(reported), **known_gates(own.gates or "")}
        return rules_text(version or CURRENT_TEXT, gates)
    except UnknownRulesError:
        return CURRENT_TEXT


def _controller(own: ClusterSettings, rules: str) -> ControllerSettings:
    base = ControllerSettings()
    return ControllerSettings(
        rules=rules_named(rules),
        tolerance=read_or(base.tolerance, own.tolerance, _tolerance),
        downscale_stabilization_ms=_or(own.downscale_stabilization_ms, base.downscale_stabilization_ms),
        cpu_initialization_period_ms=_or(own.cpu_initialization_period_ms, base.cpu_initialization_period_ms),
        initial_readiness_delay_ms=_or(own.initial_readiness_delay_ms, base.initial_readiness_delay_ms),
    )


def _tolerance(text: str) -> float:
    """Read a tolerance as the controller's flag is read: the double nearest to the decimal text."""
    try:
        return float(text)
    except ValueError:
        return parse_quantity(text).as_float()


def _or(value: int | None, default: int) -> int:
    return default if value is None else value

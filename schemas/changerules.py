"""Limits that a setting of a cluster puts on each change of replicas, as pure rules, with what they exempt.

The decider asks them when an evaluation wants a change (`streams.state.limits.bysetting`), and the reconciler once more
just before it writes, with the settings of then (`reconciler.core.writeplan`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from schemas.constraints import cuts
from schemas.settings import ClusterSettings


class ScaleChange(NamedTuple):
    """A change of replicas that is wanted. `low`, `high`: minReplicas and maxReplicas. `constraints`: what of the HPA
    itself has bounded it so far, what replaced the metrics, and which limits, named as in `constraintsApplied` of a
    decision.
    """

    cluster: str
    current: int
    wanted: int
    low: int
    high: int
    constraints: Sequence[str] = ()

    @property
    def is_cut(self) -> bool:
        """Whether a limit has left a part of what was wanted: the next decisions go on from there."""
        return any(cuts(name) for name in self.constraints)

    @property
    def size(self) -> int:
        """How many replicas it adds or removes."""
        return abs(self.wanted - self.current)


class ChangeRule(ABC):
    """One of them."""

    name: ClassVar[str] = ""
    """As in `schemas.constraints`."""
    setting: ClassVar[str] = ""
    """The field of `ClusterSettings` that sets it; the rule bounds nothing where that is None or false."""

    @abstractmethod
    def most(self, value: Any, change: ScaleChange) -> int | None:
        """Return how many replicas the change may add or remove; 0: it is not made; None: it is not bounded, or exempt.

        One that may leave a part of a change says so in `schemas.constraints` (`cuts`). The change is what the limits
        before this one have left of the wanted one; for the reconciler, what all of them have. So a rule against small
        changes exempts those that waiting makes no larger, by the constraints and bounds of the change.
        """

    @abstractmethod
    def refusal(self, value: Any, change: ScaleChange) -> str:
        """Return why a change that is larger than that is not made."""

    def stops(self, value: Any, cluster: str) -> str:
        """Return why nothing at all is written while the setting has this value; empty: that depends on the change."""
        return ""


class Frozen(ChangeRule):
    """A cluster that is frozen is not written at all."""

    name = "Frozen"
    setting = "frozen"

    def most(self, value: bool, change: ScaleChange) -> int:
        return 0

    def refusal(self, value: bool, change: ScaleChange) -> str:
        return self.stops(value, change.cluster)

    def stops(self, value: bool, cluster: str) -> str:
        return f"cluster {cluster} is frozen"


class MaxStep(ChangeRule):
    """One write changes no more replicas than the setting says."""

    name = "MaxStep"
    setting = "max_step"

    def most(self, value: int, change: ScaleChange) -> int:
        return value

    def refusal(self, value: int, change: ScaleChange) -> str:
        return f"a step from {change.current} to {change.wanted} is larger than the cluster's maxStep {value}"


CHANGE_RULES: Final[Mapping[str, ChangeRule]] = {each.name: each for each in (Frozen(), MaxStep())}
"""Name → rule. The decider's order is that of `streams.attachments`."""


def refused_by_rule(
    settings: ClusterSettings, change: ScaleChange, rules: Iterable[ChangeRule] = CHANGE_RULES.values()
) -> str:
    """Return why a change is not to be made by a cluster's settings; empty: it may be."""
    for rule in rules:
        value = getattr(settings, rule.setting)
        most = rule.most(value, change) if value else None
        if most is not None and change.size > most:
            return rule.refusal(value, change)
    return ""

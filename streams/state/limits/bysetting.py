"""A limit that one setting of the cluster sets, and that the reconciler checks once more by the same rule."""

from typing import Any, NamedTuple

from schemas.changerules import CHANGE_RULES, ScaleChange
from schemas.constraints import CONSTRAINTS
from streams.state.limits.limit import LimitedWrite, WriteLimit
from streams.state.records import constraints
from streams.state.subject import Observed, Subject


class RuleInputs(NamedTuple):
    """The setting's value, and what of the HPA a rule may exempt."""

    value: Any
    cluster: str
    low: int
    high: int


class SettingLimit(WriteLimit):
    """A rule of `schemas.changerules`, by its name. Raises LookupError: a table that names limits lacks it."""

    def __init__(self, name: str) -> None:
        for table, where in ((CHANGE_RULES, "schemas/changerules.py"), (CONSTRAINTS, "schemas/constraints.py")):
            if name not in table:
                raise LookupError(f"{name} is in LIMITS of streams/attachments.py, and not in {where}")
        self.rule = CHANGE_RULES[name]
        self.name = name  # type: ignore[misc]  # one class for several limits
        self.settings = (self.rule.setting,)  # type: ignore[misc]

    def inputs(self, subject: Subject, observed: Observed) -> RuleInputs | None:
        value = getattr(subject.settings.stated, self.rule.setting)
        bounds = subject.autoscaler
        inputs = RuleInputs(value, subject.namespace.cluster, bounds.min_replicas, bounds.max_replicas)
        return inputs if value else None

    def apply(self, inputs: RuleInputs, write: LimitedWrite) -> LimitedWrite:
        value, cluster, low, high = inputs
        current, wanted = write.pending.current_replicas, write.pending.desired_replicas
        met = (*constraints(write.evaluation), write.replaced_by, *write.constraints)
        change = ScaleChange(cluster, current, wanted, low, high, met)
        most = self.rule.most(value, change)
        if most is None or change.size <= most:
            return write
        return write.cut(self.name, most, "") if most else write.blocked(self.name, self.rule.refusal(value, change))

    def stops(self, inputs: RuleInputs) -> str:
        why = self.rule.stops(inputs.value, inputs.cluster)
        return f"{why}; what the metrics ask for is recorded, and changes are not written" if why else ""

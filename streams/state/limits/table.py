"""fleethpa's own limits, in the order in which they are asked, and the one way in which they are asked."""

from collections.abc import Callable
from typing import Any

from streams.hpa.evaluation import Evaluation, Pending
from streams.hpa.observation import SeenPods
from streams.state.inputs import NamedInputs
from streams.state.limits.budgets import BudgetLimit
from streams.state.limits.bysetting import SettingLimit
from streams.state.limits.capacitygroups import CapacityGroups
from streams.state.limits.limit import AnnotatedLimit, LimitedWrite, WriteLimit
from streams.state.limits.overflow import Overflow
from streams.state.limits.partialview import PartialView
from streams.state.limits.paused import Paused
from streams.state.limits.scaledownblock import ScaleDownBlock
from streams.state.subject import Subject

BLOCKING: tuple[WriteLimit, ...] = (SettingLimit("Frozen"), Paused(), PartialView(), Overflow(), ScaleDownBlock())
"""Those that block a whole write: each that does is named."""
CUTTING: tuple[WriteLimit, ...] = (
    SettingLimit("MaxStep"),
    BudgetLimit("removal"),
    BudgetLimit("addition"),
    CapacityGroups(),
)
"""Those that may leave a part of one, as `schemas.constraints` says (`cuts`): they are asked while something is left to
write, each about what the one before has left.
"""
LIMITS = (*BLOCKING, *CUTTING)
ANNOTATED = tuple(each for each in LIMITS if isinstance(each, AnnotatedLimit))
"""Those that an annotation of the HPA sets."""


def limited(
    given: Callable[[WriteLimit], Any], evaluation: Evaluation, pending: Pending, replaced_by: str
) -> LimitedWrite:
    """Ask the limits about a wanted write.

    `given`: what a limit reads; None: it does not bound the write. `replaced_by`: what has taken the place of the
    metrics; empty: nothing has.
    """
    write = LimitedWrite(pending, evaluation, replaced_by=replaced_by)
    for limit in LIMITS:
        if write.held and limit in CUTTING:
            break
        if (inputs := given(limit)) is not None:
            write = limit.apply(inputs, write)
    return write


def limits_now(subject: Subject, pods: SeenPods) -> NamedInputs:
    """Return what all limits read of an HPA at this record."""
    given = [(limit.name, limit.inputs(subject, pods)) for limit in LIMITS]
    return NamedInputs(tuple([each for each in given if each[1] is not None]))


def stopped(inputs: NamedInputs) -> list[tuple[str, str]]:
    """Name the limits because of which something is not written now, whatever the metrics ask for, and what."""
    said = [(limit.name, limit.stops(known)) for limit in LIMITS if (known := inputs.of(limit.name)) is not None]
    return [each for each in said if each[1]]


def depends_on_others(inputs: NamedInputs) -> bool:
    """Return whether what the limits leave depends on other HPAs, too."""
    return any(limit.reads_others and inputs.of(limit.name) is not None for limit in LIMITS)

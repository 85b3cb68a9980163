"""Everything that is attached to the kernel of the state: one line for each, in the order in which it is asked.

Readers ask the same limits and replacements about other inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streams.across import capacity, fleet
from streams.across.capacitygroups import CapacityAccount, CapacityGroups
from streams.across.fleethpa import FleetHpa
from streams.across.fleetshare import FleetShare, FleetShareAccount
from streams.state.limits.budgets import BudgetAccount, BudgetLimit
from streams.state.limits.bysetting import SettingLimit
from streams.state.limits.limit import AnnotatedLimit, WriteLimit
from streams.state.limits.overflow import Overflow
from streams.state.limits.partialview import PartialView, ViewAccount
from streams.state.limits.paused import Paused
from streams.state.limits.scaledownblock import ScaleDownBlock
from streams.state.replacements.fallback import FallbackAccount, FallbackReplicas
from streams.state.replacements.override import Overridden
from streams.state.replacements.replacement import Replacement
from streams.state.subject import HpaAccount, SubjectKind

if TYPE_CHECKING:
    from streams.state.fold import Handler

LIMITS: tuple[WriteLimit, ...] = (
    SettingLimit("Frozen"),
    Paused(),
    PartialView(),
    Overflow(),
    ScaleDownBlock(),
    SettingLimit("MaxStep"),
    BudgetLimit("removal"),
    BudgetLimit("addition"),
    CapacityGroups(),
)
"""fleethpa's own limits on a write of `/scale`: first those that block a whole write."""
ANNOTATED = tuple(each for each in LIMITS if isinstance(each, AnnotatedLimit))
"""Those that an annotation of the HPA sets."""
REPLACEMENTS: tuple[Replacement, ...] = (FallbackReplicas(), Overridden(), FleetShare())
"""What may take the place of the metrics; a later one replaces an earlier one."""
ACCOUNTS: tuple[HpaAccount, ...] = (
    ViewAccount(),
    BudgetAccount(),
    CapacityAccount(),
    FallbackAccount(),
    FleetShareAccount(),
)
"""What limits and replacements keep in rows, and report to other partitions."""
KINDS: tuple[SubjectKind, ...] = (FleetHpa(),)
"""What an HPA may be beside one of a cluster."""
HANDLERS: Mapping[str, Handler] = {
    "report": fleet.fold_report,
    "allotment": fleet.fold_allotment,
    "capacity_group": capacity.fold_group,
    "capacity_report": capacity.fold_report,
    "capacity_allotment": capacity.fold_allotment,
}
"""What folds entries that the kernel does not know, by the names in `schemas.entries.KINDS`."""

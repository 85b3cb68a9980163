"""The records that a command or a process is about to write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.entries import Body
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import ABSENT, AutoscalerDeleted, AutoscalerSet, Mode

if TYPE_CHECKING:
    from fleethpa.fleet.views import HpaView


@dataclass(frozen=True)
class PlannedRecord:
    """One record to write: about a namespace (`namespace` set) or to the settings, and how it is shown to the user.

    `also`: further entries of the same record, so that all of them are in the log or none.
    """

    subject: str
    body: Body
    cluster: str
    namespace: str = ""
    also: tuple[Body, ...] = ()

    @property
    def bodies(self) -> tuple[Body, ...]:
        """All entries of the record, in their order."""
        return (self.body, *self.also)


def central_record(
    hpa: HpaId, words: str, body: Json, author: str, reason: str, mode: Mode | None = None, *, over: HpaView | None
) -> PlannedRecord:
    """The record that makes a central HPA this object.

    Args:
        words: what the user is shown after the HPA's name.
        over: the HPA as it was read; where it is another one by now, the record is refused. None: there is none.
    """
    entry = AutoscalerSet(
        hpa=body, origin="central", mode=mode, author=author, reason=reason, changes=version_read(over)
    )
    return PlannedRecord(f"hpa {hpa} {words}", entry, hpa.cluster, hpa.namespace)


def version_read(view: HpaView | None) -> str:
    """The version that a record names which changes an HPA as it was read; None: there was none."""
    return ABSENT if view is None else view.version


def deleted_record(hpa: HpaId, author: str, reason: str) -> PlannedRecord:
    """The record that deletes a central HPA."""
    entry = AutoscalerDeleted(name=hpa.name, origin="central", author=author, reason=reason)
    return PlannedRecord(f"hpa {hpa} deleted", entry, hpa.cluster, hpa.namespace)

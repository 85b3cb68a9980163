"""Results of looking at a part: what is right, what is wrong and which command helps; as lines, documents and a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK
from fleethpa.cli.common.nextsteps import hinted
from fleethpa.cli.common.session import Session
from fleethpa.cli.output.formats import Listing
from fleethpa.cli.output.table import Column, paint
from fleethpa.cli.output.words import counted
from runtime.jsonlog import clean

_STYLES: Final = {"ok": "green", "warning": "yellow", "failure": "red"}


@dataclass(frozen=True)
class CheckResult:
    """One result. `next_step`: the command that helps; empty: none is needed."""

    level: Literal["ok", "warning", "failure"]
    area: str
    subject: str
    message: str
    next_step: str = ""


def tell_sum(session: Session, found: list[CheckResult]) -> int:
    """Count them on stderr; the exit code."""
    counts = {level: sum(each.level == level for each in found) for level in ("warning", "failure")}
    session.note(f"{counted(counts['failure'], 'failure')}, {counted(counts['warning'], 'warning')}")
    return ANSWER_IS_NO if counts["failure"] else OK


def line(session: Session, check: CheckResult) -> str:
    """A check for people."""
    level = paint(f"{check.level:<8}", _STYLES[check.level], color=session.color)
    step = f"\n{'':<19} Next: {clean(check.next_step)}" if check.next_step else ""
    rest = clean(f"{check.area:<10} {check.subject}  {check.message}")
    return hinted(f"{level} {rest}{step}", session.options)


def listing(found: list[CheckResult]) -> Listing[CheckResult]:
    """Checks for machines."""
    columns: tuple[Column[CheckResult], ...] = (
        Column("LEVEL", lambda c: c.level),
        Column("MESSAGE", lambda c: c.message),
    )
    return Listing(kind="Check", items=found, columns=columns, document=_document, name=lambda c: f"check/{c.area}")


def _document(check: CheckResult) -> dict[str, Any]:
    return {
        "level": check.level,
        "area": check.area,
        "subject": check.subject,
        "message": check.message,
        "nextStep": check.next_step,
    }

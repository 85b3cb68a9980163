"""Errors that say what to do next."""

from __future__ import annotations


class NextStepError(Exception):
    """Why something cannot go on: `what` says it, and `next_step` what to do, or the command to run; may be empty."""

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.next_step = what, next_step

    def __str__(self) -> str:
        return f"{self.what}. Next: {self.next_step}" if self.next_step else self.what

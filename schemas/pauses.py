"""Pauses and overrides: which stop a change, and what is left of them after a command."""

from collections.abc import Mapping
from typing import Final, Literal, TypeVar

from schemas.observed import Command

P = TypeVar("P")


ScalingDirection = Literal["scaleUp", "scaleDown"]


def is_in_force(until_ms: int, now_ms: int) -> bool:
    """Whether a pause has not ended by itself; one without an end (0) never does."""
    return not until_ms or now_ms < until_ms


OVERRIDE: Final = "override"
"""The kind of an override among the pauses of an HPA. It stops nothing, and a `resume` does not end it."""


def pauses_after(known: Mapping[str, P], command: Command, pause: P) -> dict[str, P]:
    """The pauses of a scope by kind after a `pause` or `override`, which adds `pause`, or what ends one."""
    if command.command == "pause":
        return {**known, command.pause_kind: pause}
    if command.command == "override":
        others = {kind: each for kind, each in known.items() if kind != OVERRIDE}
        return others if command.replicas is None else {**others, OVERRIDE: pause}
    return {kind: each for kind, each in known.items() if kind == OVERRIDE or command.pause_kind not in ("all", kind)}


def stopping_kinds(direction: ScalingDirection) -> tuple[str, str]:
    """The kinds of pauses that stop changes in a direction while they are in force."""
    return "all", direction

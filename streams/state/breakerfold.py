"""What guardrails pause: the fold of the breaker's entries and of those that end its pauses, and the words for them.

Pauses of guardrails stand beside those of persons, in a map of their own, so that neither can replace or end the other.
"""

from collections.abc import Mapping
from typing import Final

from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.guardrailstanding import MOST_PAUSES
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.state.rows import Pause

_MINUTE_MS: Final = 60_000

GuardrailPauses = dict[str, dict[str, Pause]]
"""Cluster -> guardrail -> its pause."""


def after_breaker(known: GuardrailPauses, body: BreakerCommand, now_ms: int) -> GuardrailPauses:
    """Give the pauses after an entry of the breaker. Those that have ended by themselves are forgotten.

    A pause that waits for a person stays as it is, whatever the breaker says.
    """
    kept = {
        cluster: left
        for cluster, pauses in known.items()
        if (left := {name: pause for name, pause in pauses.items() if _holds(pause, now_ms)})
    }
    own = kept.get(body.cluster, {})
    standing = own.get(body.guardrail)
    if standing is not None and not standing.until_ms:
        return kept
    own = {name: pause for name, pause in own.items() if name != body.guardrail}
    if body.command == "pause" and (standing is not None or sum(map(len, kept.values())) < MOST_PAUSES):
        own[body.guardrail] = Pause(body.until, "", trip_reason(body), now_ms)
    return {cluster: pauses for cluster, pauses in {**kept, body.cluster: own}.items() if pauses}


def after_person(known: GuardrailPauses, body: GuardrailResume) -> GuardrailPauses:
    """Give the pauses after a person has ended those of a cluster, or of all."""
    return {} if body.cluster == EVERY_CLUSTER else {name: each for name, each in known.items() if name != body.cluster}


def guardrail_in_force(known: Mapping[str, Mapping[str, Pause]], cluster: str, now_ms: int) -> str:
    """Say which guardrail stops scale-downs of a cluster now: of several the one that does so longest; empty: none."""
    standing = [(name, pause) for name, pause in known.get(cluster, {}).items() if _holds(pause, now_ms)]
    if not standing:
        return ""
    waiting = [each for each in standing if not each[1].until_ms]
    name, pause = min(waiting) if waiting else max(standing, key=lambda each: (each[1].until_ms, each[0]))
    until = f"until {rfc3339_seconds(pause.until_ms)}" if pause.until_ms else "until a person resumes"
    return f"scale-downs paused by guardrail {name} {until}: {pause.reason}"


def _holds(pause: Pause, now_ms: int) -> bool:
    return not pause.until_ms or now_ms < pause.until_ms


def trip_reason(body: BreakerCommand) -> str:
    """Say why a guardrail tripped."""
    return f"{body.removed} of {body.replicas} replicas removed within {body.window_ms // _MINUTE_MS} min"

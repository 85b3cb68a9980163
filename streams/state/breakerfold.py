"""What guardrails pause: the fold of the breaker's entries and of those that end its pauses, and the words for them.

Pauses of guardrails stand beside those of persons, in a map of their own, so that neither can replace or end the other.
"""

from collections.abc import Mapping
from typing import Final

from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.guardrailstanding import MOST_PAUSES
from schemas.keys import EVERY_CLUSTER, namespace_key
from schemas.kubernetes.gotimes import rfc3339_seconds
from streams.state.rows import Pause

_MINUTE_MS: Final = 60_000

GuardrailPauses = dict[str, dict[str, Pause]]
"""Cluster, or `cluster/namespace` -> guardrail -> its pause."""


def after_breaker(known: GuardrailPauses, body: BreakerCommand, now_ms: int) -> GuardrailPauses:
    """Give the pauses after an entry of the breaker. Those that have ended by themselves are forgotten.

    A pause that waits for a person stays as it is, whatever the breaker says.
    """
    kept = in_force(known, now_ms)
    scope = namespace_key(body.cluster, body.namespace) if body.namespace else body.cluster
    own = kept.get(scope, {})
    standing = own.get(body.guardrail)
    if standing is not None and not standing.until_ms:
        return kept
    own = {name: pause for name, pause in own.items() if name != body.guardrail}
    if body.command == "pause" and (standing is not None or sum(map(len, kept.values())) < MOST_PAUSES):
        own[body.guardrail] = Pause(body.until, "", trip_reason(body), now_ms)
    return {name: pauses for name, pauses in {**kept, scope: own}.items() if pauses}


def in_force(known: Mapping[str, Mapping[str, Pause]], now_ms: int) -> dict[str, dict[str, Pause]]:
    """Give the pauses that have not ended by themselves."""
    return {
        scope: left
        for scope, pauses in known.items()
        if (left := {name: pause for name, pause in pauses.items() if _holds(pause, now_ms)})
    }


def after_person(known: GuardrailPauses, body: GuardrailResume) -> GuardrailPauses:
    """Give the pauses after a person has ended those of a namespace, of a cluster and its namespaces, or all."""
    if body.cluster == EVERY_CLUSTER:
        return {}
    if body.namespace:
        ended = {namespace_key(body.cluster, body.namespace)}
    else:
        ended = {scope for scope in known if scope.partition("/")[0] == body.cluster}
    return {scope: pauses for scope, pauses in known.items() if scope not in ended}


def guardrail_in_force(known: Mapping[str, Mapping[str, Pause]], cluster: str, now_ms: int, namespace: str = "") -> str:
    """Say which guardrail stops scale-downs of a cluster now: of several the one that does so longest; empty: none.

    Args:
        namespace: what pauses this namespace alone counts, too, if nothing pauses the cluster.
    """
    whole = _longest(known.get(cluster, {}), now_ms, "scale-downs")
    if whole or not namespace:
        return whole
    return _longest(known.get(namespace_key(cluster, namespace), {}), now_ms, f"scale-downs of namespace {namespace}")


def guarded_namespaces(known: Mapping[str, Mapping[str, Pause]], cluster: str, now_ms: int) -> dict[str, str]:
    """Say which namespaces of a cluster guardrails pause alone now, and which guardrail does: texts by name."""
    names = sorted(scope.partition("/")[2] for scope in known if scope.startswith(f"{cluster}/"))
    texts = {name: guardrail_in_force({**known, cluster: {}}, cluster, now_ms, name) for name in names}
    return {name: text for name, text in texts.items() if text}


def _longest(pauses: Mapping[str, Pause], now_ms: int, what: str) -> str:
    standing = [(name, pause) for name, pause in pauses.items() if _holds(pause, now_ms)]
    if not standing:
        return ""
    waiting = [each for each in standing if not each[1].until_ms]
    name, pause = min(waiting) if waiting else max(standing, key=lambda each: (each[1].until_ms, each[0]))
    until = f"until {rfc3339_seconds(pause.until_ms)}" if pause.until_ms else "until a person resumes"
    return f"{what} paused by guardrail {name} {until}: {pause.reason}"


def _holds(pause: Pause, now_ms: int) -> bool:
    return not pause.until_ms or now_ms < pause.until_ms


def trip_reason(body: BreakerCommand) -> str:
    """Say why a guardrail tripped."""
    return f"{body.removed} of {body.replicas} replicas removed within {body.window_ms // _MINUTE_MS} min"

"""Which pauses of guardrails stand, from the topics that say so. The log has the truth; this is for those who follow it
from outside the log: routers and the breaker itself.

The two topics are read independently of each other, so what ends a pause may be read before it or long after it: times
decide. In whatever order they are read, the outcome is that of the log (`streams.state.breakerfold`).
"""

from typing import Final, NamedTuple

from msgspec import Struct

from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.keys import EVERY_CLUSTER

MOST_PAUSES: Final = 1_000
"""What is kept of them, so that a false breaker can fill neither a row nor a process; more are passed over."""
_NEVER: Final = -1


class StandingPause(NamedTuple):
    """A pause of a guardrail. `namespace`: of which alone; empty: of the whole cluster. `until_ms` 0: it waits for a
    person. `since_ms`: time of the record that says so.
    """

    cluster: str
    namespace: str
    guardrail: str
    until_ms: int
    since_ms: int


class _Said(Struct):
    """What the breaker said of one guardrail and cluster or namespace, as far as it can still matter: the last pause
    that waits for a person, which only a person ends, and the last one that ends by itself, unless the breaker did.
    """

    waits_ms: int = _NEVER
    until_ms: int = 0
    since_ms: int = _NEVER


class GuardrailStanding:
    """Folds the breaker's entries and those of persons that end its pauses, with the times of their records."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str, str], _Said] = {}
        self._resumed_ms: dict[tuple[str, str], int] = {}

    def take(self, body: BreakerCommand, time_ms: int) -> None:
        """Apply an entry of the breaker. What it says after a pause that waits for a person counts only if a person
        has ended that one in between, which may be read later.
        """
        key = body.cluster, body.namespace, body.guardrail
        if key not in self._said:
            if body.command != "pause" or not self._has_room(time_ms):
                return
            self._said[key] = _Said()
        said = self._said[key]
        if body.command == "resume":
            said.since_ms = _NEVER
        elif body.until:
            said.until_ms, said.since_ms = body.until, time_ms
        else:
            said.waits_ms = time_ms

    def resume(self, body: GuardrailResume, time_ms: int) -> None:
        """A person ended what guardrails paused until then."""
        scope = body.cluster, body.namespace
        self._resumed_ms[scope] = max(time_ms, self._resumed_ms.get(scope, _NEVER))

    def in_force(self, now_ms: int, cluster: str | None = None) -> list[StandingPause]:
        """The pauses in force, of one cluster or (None) of all, by cluster and name."""
        keys = sorted(key for key in self._said if cluster in (None, key[0]))
        return [pause for key in keys if (pause := self._pause(key, now_ms)) is not None]

    def _pause(self, key: tuple[str, str, str], now_ms: int) -> StandingPause | None:
        said = self._said[key]
        scopes = {(EVERY_CLUSTER, ""), (key[0], ""), key[:2]}
        resumed_ms = max(self._resumed_ms.get(scope, _NEVER) for scope in scopes)
        if said.waits_ms > resumed_ms:
            return StandingPause(*key, 0, said.waits_ms)
        if said.since_ms > resumed_ms and now_ms < said.until_ms:
            return StandingPause(*key, said.until_ms, said.since_ms)
        return None

    def _has_room(self, now_ms: int) -> bool:
        if len(self._said) >= MOST_PAUSES:
            self._said = {key: said for key, said in self._said.items() if self._pause(key, now_ms) is not None}
        return len(self._said) < MOST_PAUSES

"""Which pauses of guardrails stand, from the topics that say so. The log has the truth; this is for those who follow it
from outside the log: routers and the breaker itself.

The two topics are read independently of each other, so what ends a pause may be read before it: times decide.
"""

from typing import NamedTuple

from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.keys import EVERY_CLUSTER


class StandingPause(NamedTuple):
    """A pause of a guardrail. `until_ms` 0: it waits for a person. `since_ms`: time of the record that began it."""

    cluster: str
    guardrail: str
    until_ms: int
    since_ms: int


class GuardrailStanding:
    """Folds the breaker's entries and those of persons that end its pauses, with the times of their records."""

    def __init__(self) -> None:
        self._pauses: dict[tuple[str, str], StandingPause] = {}
        self._resumed_ms: dict[str, int] = {}

    def take(self, body: BreakerCommand, time_ms: int) -> None:
        """Apply an entry of the breaker; a pause that waits for a person stays as it is."""
        key = body.cluster, body.guardrail
        known = self._pauses.get(key)
        if known is not None and not known.until_ms and not self._is_ended(known, time_ms):
            return
        if body.command == "pause":
            self._pauses[key] = StandingPause(*key, body.until, time_ms)
        else:
            self._pauses.pop(key, None)

    def resume(self, body: GuardrailResume, time_ms: int) -> None:
        """A person ended what guardrails paused until then."""
        self._resumed_ms[body.cluster] = max(time_ms, self._resumed_ms.get(body.cluster, 0))

    def knows_resume_after(self, cluster: str, time_ms: int) -> bool:
        """Whether a person ended the pauses of a cluster at this time or later."""
        return time_ms <= max(self._resumed_ms.get(cluster, 0), self._resumed_ms.get(EVERY_CLUSTER, 0))

    def in_force(self, now_ms: int, cluster: str | None = None) -> list[StandingPause]:
        """The pauses in force, of one cluster or (None) of all, by cluster and name."""
        return [
            pause
            for key, pause in sorted(self._pauses.items())
            if cluster in (None, key[0]) and not self._is_ended(pause, now_ms)
        ]

    def _is_ended(self, pause: StandingPause, now_ms: int) -> bool:
        return self.knows_resume_after(pause.cluster, pause.since_ms) or 0 < pause.until_ms <= now_ms

"""How often an agent may report one thing: what goes into the log, or is computed, for each report. No I/O.

What deciders store has limits of its own (`streams/state/held.py`), for every source alike.
"""

from typing import NamedTuple

from schemas.agents import AgentTopics
from streams.ingest.pieces import Refusal

SHOWN_S = 600.0
"""For so long the reports of an agent tell of what was refused of it."""


class Rate(NamedTuple):
    """So many at once, and so many a second after that."""

    burst: int
    per_s: float


HPA = Rate(100, 3.0)
"""Reports on one HPA, and outcomes of its writes. Each change of an HPA brings an evaluation, whose recommendation a
decider keeps for as long as the stabilization window, an hour at most.
"""
CLUSTER = Rate(30, 1.0)
"""What ingest copies into every log partition; an agent reports it every ten seconds."""
COPIED_BYTES = Rate(64 * 1024, 1_024.0)
"""Bytes of that: with each log partition the quota of an agent counts once more for them."""
SAMPLES = Rate(15_000, 500.0)
"""Pushed samples of one row of a namespace: a decider keeps since its last checkpoint which ones it took."""
_PRUNED_FROM = 50_000


class Rates:
    """Counts by key. Times are seconds: those at which the brokers appended the records, where they tell them, so that
    what waited for ingest is not taken for a flood.
    """

    def __init__(self) -> None:
        self._levels: dict[int, tuple[float, float, float]] = {}
        """Hash of the key → how full it was, when, and how much flows off per second."""
        self._pruned_at = _PRUNED_FROM

    def take(self, rate: Rate, key: tuple[str | int, ...], at_s: float, what: str, count: int = 1) -> None:
        """Count `count` more.

        Raises:
            Refusal: `overRate`; nothing is counted then.
        """
        hashed = hash(key)
        level = self._level(hashed, at_s)
        if level + count > rate.burst:
            raise Refusal(
                "overRate", f"{what}: more than {rate.burst} at once and {rate.per_s:g} per second after that"
            )
        if hashed not in self._levels and len(self._levels) >= self._pruned_at:
            self._levels = {each: at for each, at in self._levels.items() if self._level(each, at_s) > 0}
            self._pruned_at = max(_PRUNED_FROM, 2 * len(self._levels))
        self._levels[hashed] = level + count, at_s, rate.per_s

    def _level(self, hashed: int, at_s: float) -> float:
        level, since_s, per_s = self._levels.get(hashed, (0.0, at_s, 0.0))
        return max(0.0, level - per_s * max(0.0, at_s - since_s))


class RefusedLately:
    """What was refused of an agent lately."""

    def __init__(self) -> None:
        self.count, self.text = 0, ""
        self.first_ms = 0
        self.last_s = float("-inf")

    def note(self, refusals: list[Refusal], time_ms: int, now_s: float) -> None:
        """Note what is refused of a record."""
        if now_s - self.last_s > SHOWN_S:
            self.count, self.first_ms = 0, time_ms
        self.count += len(refusals)
        self.text, self.last_s = refusals[-1].text, now_s


class AgentRates:
    """How often each agent reports, and what was refused of it; forgotten when ingest restarts, and when another worker
    has read the topic meanwhile.
    """

    def __init__(self) -> None:
        self._rates: dict[AgentTopics, Rates] = {}
        self._refused: dict[AgentTopics, RefusedLately] = {}

    def forget(self, keep: set[AgentTopics]) -> None:
        """Forget all agents but these."""
        for known in (self._rates, self._refused):
            for gone in known.keys() - keep:
                del known[gone]

    def begin(self, agent: AgentTopics) -> None:
        """Begin anew for an agent: records of it were read elsewhere."""
        self._rates.pop(agent, None)

    def rates(self, agent: AgentTopics) -> Rates:
        """How often an agent reports."""
        return self._rates.setdefault(agent, Rates())

    def refused(self, agent: AgentTopics) -> RefusedLately:
        """What was refused of an agent lately."""
        return self._refused.setdefault(agent, RefusedLately())

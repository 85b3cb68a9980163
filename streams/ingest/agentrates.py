"""How often an agent may report one thing: what deciders compute or keep for a while of each report."""

from typing import NamedTuple

from streams.ingest.pieces import Refusal


class Rate(NamedTuple):
    """So many at once, and so many a second after that."""

    burst: int
    per_s: float


HPA = Rate(100, 3.0)
"""Reports on one HPA, and outcomes of its writes. Each change of an HPA brings an evaluation, whose recommendation a
decider keeps for as long as the stabilization window, an hour at most.
"""
CLUSTER = Rate(30, 1.0)
"""What ingest copies into every log partition; an agent says it every ten seconds."""
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

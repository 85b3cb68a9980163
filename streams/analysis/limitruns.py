"""fleethpa's own limits with other settings or annotations over the recorded past: what each would have held back,
when, how long.

The log is folded once more with the other settings in force from the beginning, so what a limit keeps (the window of a
budget, the view of a namespace) is what it would have been. What clusters did is taken as recorded: a removal that a
limit would have held was made all the same, so after the first one the figures say how often it would have spoken, not
what would have become of the replicas.
"""

from contextlib import aclosing
from typing import NamedTuple

from msgspec import Struct, structs

from schemas.codec import encode
from schemas.constraints import is_limit
from schemas.entries import WHOLE_PARTITION_KEY
from schemas.settings import SettingsSet
from streams.analysis.answer import answer
from streams.analysis.capacityruns import HeldSpans
from streams.attachments import ANNOTATED
from streams.history.evaluations import Evaluated, events
from streams.history.parallel import reported
from streams.history.past import Past
from streams.state.answers import FoldedEntry, read_record
from streams.state.inputs import EvaluationInputs

_OF_SETTINGS = b'"settings"'
"""Stands in each log record that changes settings."""
_REPORTED_EVERY = 1_000
"""Log records."""


class TriedLimits(NamedTuple):
    """A log partition whose past is tried. `window`: from a log time to before another. `changes`: of settings.
    `annotations`: name and text of those of HPAs that set limits; an empty text is without it. `clusters`: those whose
    HPAs are tried; empty: all.
    """

    past: Past
    number: int
    window: tuple[int, int]
    changes: tuple[SettingsSet, ...]
    annotations: tuple[tuple[str, str], ...] = ()
    clusters: frozenset[str] = frozenset()


class HeldBack(Struct, frozen=True, kw_only=True, rename="camel"):
    """What one limit held back of one HPA: how often, how long in all and at most, since when first (Unix ms), and the
    most replicas that a write was short of. `minutes` 0: it began with the last evaluation, so nobody knows how long.
    """

    limit: str
    hpa: str
    times: int
    minutes: float
    longest_minutes: float
    first_ms: int
    most_replicas: int


class LimitEffects(Struct, frozen=True):
    """What the limits held back in a partition; `enforced`, `others`: HPAs that were evaluated in mode enforce in the
    window, and those that never were, whose writes no limit bounds. `annotated`: those of either that the tried
    annotations could be of. `until_ms`: log time of the last evaluation.
    """

    held: list[HeldBack]
    enforced: list[str]
    others: list[str]
    annotated: list[str]
    until_ms: int


class _Held:
    """One limit and one HPA."""

    def __init__(self) -> None:
        self.spans, self.first_ms, self.most, self.times = HeldSpans(), 0, 0, 0


class _Effects:
    """What has been held back so far."""

    def __init__(self, task: TriedLimits) -> None:
        self._annotations, self._clusters = dict(task.annotations), task.clusters
        self.annotated: set[str] = set()
        self.held: dict[tuple[str, str], _Held] = {}
        self.modes: dict[str, bool] = {}
        self.until_ms = 0

    def add(self, inputs: EvaluationInputs) -> None:
        hpa, now_ms = str(inputs.hpa), inputs.now_ms
        self.until_ms = max(self.until_ms, now_ms)
        if self._clusters and inputs.hpa.cluster not in self._clusters:
            return
        inputs = self._annotated(inputs)
        self.modes[hpa] = self.modes.get(hpa, False) or inputs.mode == "enforce"
        if inputs.mode != "enforce":
            self._see(hpa, frozenset(), 0, now_ms)
            return
        answered = answer(inputs)
        wanted = answered.evaluation.desired_replicas
        short = 0 if wanted is None else abs(wanted - answered.final)
        self._see(hpa, frozenset(filter(is_limit, answered.constraints)) if short else frozenset(), short, now_ms)

    def _annotated(self, inputs: EvaluationInputs) -> EvaluationInputs:
        """Return the inputs as with the tried annotations, as far as the HPA's spec lets it have them."""
        for limit in ANNOTATED:
            text = self._annotations.get(limit.annotation)
            if text is None or (text and limit.refuses(text, inputs.spec)):
                continue
            self.annotated.add(str(inputs.hpa))
            known = (
                inputs.limits.with_one(limit.name, limit.stated(text)) if text else inputs.limits.without(limit.name)
            )
            inputs = structs.replace(inputs, limits=known)
        return inputs

    def _see(self, hpa: str, names: frozenset[str], short: int, now_ms: int) -> None:
        for name in sorted(names):
            held = self.held.setdefault((name, hpa), _Held())
            held.first_ms = held.first_ms or now_ms
            held.most = max(held.most, short)
            held.times += held.spans.begin_ms is None
        for (name, known), held in self.held.items():
            if known == hpa:
                held.spans.see(name in names, now_ms)

    def result(self) -> LimitEffects:
        for held in self.held.values():
            held.spans.see(False, self.until_ms)
        return LimitEffects(
            held=[_held_back(name, hpa, each) for (name, hpa), each in sorted(self.held.items())],
            enforced=sorted(hpa for hpa, is_enforced in self.modes.items() if is_enforced),
            others=sorted(hpa for hpa, is_enforced in self.modes.items() if not is_enforced),
            annotated=sorted(self.annotated),
            until_ms=self.until_ms,
        )


def _held_back(name: str, hpa: str, held: _Held) -> HeldBack:
    begin_ms, end_ms = held.spans.longest
    return HeldBack(
        limit=name,
        hpa=hpa,
        times=held.times,
        minutes=held.spans.minutes,
        longest_minutes=(end_ms - begin_ms) / 60_000,
        first_ms=held.first_ms,
        most_replicas=held.most,
    )


async def limit_effects(task: TriedLimits) -> LimitEffects:
    """Fold a partition with the tried settings, and say what its limits held back in the window.

    Raises LogGoneError: the log does not reach back to the start.
    """
    begin_ms, end_ms = task.window
    partition = await task.past.restored(task.number, before_ms=begin_ms)
    effects, tried = _Effects(task), _Tried(task.changes)
    async with aclosing(task.past.following(partition, until_ms=end_ms)) as records:
        async for record in records:
            offset, time_ms, value = record.plain
            if offset % _REPORTED_EVERY == 0:
                reported(_REPORTED_EVERY, 0)
            value = tried.in_record(task.number, offset, value)
            for each in events(partition, [(offset, time_ms, value)], lambda _: True):
                if isinstance(each, Evaluated) and each.inputs.now_ms >= begin_ms:
                    effects.add(each.inputs)
    return effects.result()


class _Tried:
    """The settings that are tried, put into the log: at its begin, and again after each change of settings there."""

    def __init__(self, changes: tuple[SettingsSet, ...]) -> None:
        self._entries = [FoldedEntry(key=WHOLE_PARTITION_KEY, body=each) for each in changes]
        self._is_in_force = False

    def in_record(self, number: int, offset: int, value: bytes) -> bytes:
        """Return a log record with the settings at its end, where it needs them.

        Raises LogError: it is not a log record.
        """
        if self._is_in_force and _OF_SETTINGS not in value:
            return value
        self._is_in_force = True
        record = read_record(number, offset, value)
        return encode(structs.replace(record, entries=[*record.entries, *self._entries]))

"""A changed spec on the last hour of an HPA, fast enough to be drawn while a slider is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from fleethpa.changes.specs import changed_spec, checked
from fleethpa.fleet.views import HpaView
from fleethpa.page.hpapast import LastUsed
from fleethpa.questions.backtests import BacktestRequest, run
from fleethpa.show.html import scale, step_path
from fleethpa.show.words import relative_change
from schemas.keys import HpaId
from schemas.kubernetes.metricspecs import metric_name
from streams.analysis.backtest import Backtest
from streams.analysis.measures import Moment
from streams.history.evaluations import HpaEvent, events_by_hpa
from streams.history.past import Past

WINDOW_MS: Final = 3_600_000
FRESH_MS: Final = 60_000
"""A recording that ends this long ago is read anew."""
RECORDINGS: Final = 4
WIDTH: Final = 720
HEIGHT: Final = 200
MOST_WINDOWS_S: Final = {"scaleUp": 600, "scaleDown": 1_800}
MOST_PERCENT: Final = 150


class Control(NamedTuple):
    """A slider: the field as `--set` names it, with its unit, its value, the deployed value, and its ends."""

    name: str
    unit: str
    value: int
    deployed: int
    least: int
    most: int

    @property
    def setting(self) -> str:
        """As `--set` takes it."""
        return f"{self.name}={self.value}{'%' if self.unit == '%' else ''}"


class Ghost(NamedTuple):
    """What a changed spec would have done: SVG paths of both counts, the highest count, and a verdict in words."""

    recorded: str
    candidate: str
    most: int
    since_ms: int
    until_ms: int
    verdict: str
    settings: Sequence[str]
    body: Mapping[str, Any]


def controls(spec: Mapping[str, Any], asked: Mapping[str, str], down_window_s: int) -> list[Control]:
    """The sliders of a spec.

    `asked`: values by field, from the URL; those that are not numbers are ignored. `down_window_s`: the scale-down
    window of a spec that names none.
    """
    return [
        Control(name, unit, _asked(asked.get(name, ""), value, least, most), value, least, most)
        for name, unit, value, least, most in _fields(spec, down_window_s)
    ]


def _fields(spec: Mapping[str, Any], down_window_s: int) -> Iterator[tuple[str, str, int, int, int]]:
    most = int(spec["maxReplicas"])
    yield "minReplicas", "", int(spec.get("minReplicas") or 1), 1, most
    yield "maxReplicas", "", most, 1, max(2 * most, most + 10)
    for metric in spec.get("metrics") or ():
        percent = ((metric.get("resource") or {}).get("target") or {}).get("averageUtilization")
        if percent is not None:
            yield metric_name(metric), "%", int(percent), 5, max(MOST_PERCENT, int(percent))
    for direction, unnamed in (("scaleUp", 0), ("scaleDown", down_window_s)):
        window = ((spec.get("behavior") or {}).get(direction) or {}).get("stabilizationWindowSeconds", unnamed)
        most = max(MOST_WINDOWS_S[direction], int(window))
        yield f"{direction}.stabilizationWindowSeconds", "s", int(window), 0, most


def _asked(text: str, value: int, least: int, most: int) -> int:
    return min(most, max(least, int(text))) if text.isascii() and text.isdigit() and len(text) < 10 else value


class Recordings:
    """The last hours of the HPAs that were tried last."""

    def __init__(self) -> None:
        self._kept = LastUsed[HpaId, tuple[int, list[HpaEvent]]](RECORDINGS)

    async def of(self, past: Past, hpa: HpaId, now_ms: int) -> list[HpaEvent]:
        """Return what became of an HPA in the last hour. Raises CommandError: the log cannot be read."""
        read_ms, events = self._kept.get(hpa, (0, []))
        if not read_ms or now_ms - read_ms > FRESH_MS:
            read_ms, events = now_ms, []
            async with aclosing(events_by_hpa(past, {hpa}, (max(0, now_ms - WINDOW_MS), now_ms + 1))) as parts:
                async for part in parts:
                    events += part.get(hpa, [])
        return self._kept.keep(hpa, (read_ms, events))[1]


async def ghost(view: HpaView, sliders: Sequence[Control], events: list[HpaEvent]) -> Ghost:
    """Try a spec. Raises CommandError: it is not valid, or cannot be tried on what was recorded."""
    settings = tuple(each.setting for each in sliders if each.value != each.deployed)
    body = view.hpa | {"spec": checked(view.hpa, changed_spec(view.spec, settings), "the sliders")}
    request = BacktestRequest(view.id, body, view.spec)
    # Pure work of up to a second: other answers do not wait for it.
    (result,) = await asyncio.to_thread(run, [request], {view.id: events}, "closed")
    return drawn(result, settings, body)


def drawn(result: Backtest, settings: Sequence[str], body: Mapping[str, Any]) -> Ghost:
    """A backtest as a picture and a sentence."""
    most = max(1, *(each.replicas for each in (*result.recorded_moments, *result.candidate_moments)))
    x = scale(result.since_ms, max(result.until_ms, result.since_ms + 1), 0, WIDTH)
    y = scale(0, most, HEIGHT - 1, 8)

    def path(moments: Sequence[Moment]) -> str:
        return step_path([(each.time_ms, each.replicas) for each in moments], x, y, result.until_ms)

    return Ghost(
        path(result.recorded_moments),
        path(result.candidate_moments),
        most,
        result.since_ms,
        result.until_ms,
        _verdict(result, settings),
        settings,
        body,
    )


def _verdict(result: Backtest, settings: Sequence[str]) -> str:
    """Return what would have been different, in one sentence."""
    if not settings:
        return "This is the spec that is deployed: move a slider."
    before, after = result.recorded, result.candidate_at_recorded_target or result.candidate
    more = after.replica_hours - before.replica_hours
    change = relative_change(before.replica_hours, after.replica_hours, 0)
    share = f" ({change})" if change else ""
    hours = f"{abs(more):.2f} replica-hours {'more' if more > 0 else 'less'}{share}"
    cost = hours if round(abs(more), 2) else "as many replica-hours"
    above = f"{after.above_target_minutes:.0f} min above target instead of {before.above_target_minutes:.0f}"
    return f"{', '.join(settings)} would have cost {cost}, with {above}."

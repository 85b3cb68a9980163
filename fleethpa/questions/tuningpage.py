"""What `tune` found as text, document, manifest and HTML file: the proposal, its evidence, what it cannot know."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from fleethpa.show.formats import to_yaml
from fleethpa.show.html import html_document, items, table
from fleethpa.show.times import rfc3339, span
from streams.analysis.closedloop import UNKNOWN
from streams.analysis.revisions import differences
from streams.analysis.tuning.recording import WORTH_RELIEF

if TYPE_CHECKING:
    from schemas.keys import HpaId
    from schemas.kubernetes.shape import Json
    from streams.analysis.tuning.recording import CurvePoint, Side, Tuning


_MOST_POINTS: Final = 12
_DAY_MIN: Final = 1440


class Tuned(NamedTuple):
    """One HPA: what was found, or why nothing could be (`refused`)."""

    id: HpaId
    hpa: Json
    found: Tuning | None
    refused: str = ""


def _percent(value: float) -> str:
    return f"{value * 100:.2f} %"


def _worst(value: float) -> str:
    return f"{value:.2f}"


def page(tuned: Tuned) -> list[str]:
    """The text of one HPA."""
    found = tuned.found
    if found is None:
        return [f"{tuned.id}: no proposal", f"  {tuned.refused}"]
    lines = [
        f"{found.hpa}   {rfc3339(found.since_ms)} … {rfc3339(found.until_ms)}   {found.evaluations:,} evaluations, "
        f"chosen until {rfc3339(found.split_ms)}, scored from there",
        f"objective: {found.objective}; overload is counted beyond {found.capacity}; {found.tried} specs tried, "
        f"{found.withdrawn} withdrawn after a check in the closed loop",
        f"load: {found.metric}, {_cycle(found)}; pods take load after {found.start_up.ms / 1000:.0f}s "
        f"({found.start_up.how})",
        *[f"bound: {text}" for text in found.bounds],
    ]
    if not found.changed:
        return [*lines, f"no change proposed: {found.why}", *relief_hint(found), *_table(found), *_curve(found)]
    changes = [f"  {text}" for text in differing(found)]
    return [*lines, headline(found), *changes, *_table(found), *_curve(found)]


def headline(found: Tuning) -> str:
    """What kind of proposal it is: one that costs more says so, and for what."""
    if not found.costs_more:
        return "proposed:"
    return (
        f"proposed, at {found.more_cost:.1%} more replica-hours: in overload for "
        f"{_of_a_day(found.overload_share(0))} as deployed, {_of_a_day(found.overload_share(1))} with the proposal"
    )


def relief_hint(found: Tuning) -> list[str]:
    """Where nothing is proposed and pods were in overload: what can be asked instead."""
    share = found.overload_share(0)
    if found.objective == "safety" or share < WORTH_RELIEF:
        return []
    return [
        f"the deployed spec was in overload for {_of_a_day(share)}; --objective safety searches a spec that spares at "
        "least half of that, at more cost where that must be"
    ]


def _of_a_day(share: float) -> str:
    return f"{_percent(share)} of the time ({share * _DAY_MIN:.1f} minutes of a day)"


def differing(found: Tuning) -> list[str]:
    """What the proposal changes in the deployed spec."""
    return differences(found.deployed, found.spec)


def _cycle(found: Tuning) -> str:
    return f"repeats every {span(found.cycle_ms // 60_000 * 60_000)}" if found.cycle_ms else "no cycle seen"


def sides(found: Tuning) -> list[tuple[str, ...]]:
    """Measures of the deployed spec and the proposal, on the unseen part and on the part it was chosen on."""
    four: tuple[Side, ...] = (*found.unseen, *found.chosen_on)
    return [
        ("replica-hours", *(f"{side.replica_hours:,.2f}" for side in four)),
        ("time in overload", *(_percent(side.overload_share) for side in four)),
        ("missing, mean over time", *(_percent(side.overload) for side in four)),
        ("worst overload (ratio)", *(_worst(side.worst) for side in four)),
        ("scale events", *(str(side.scale_events) for side in four)),
        ("replica-hours / oracle's", *(_ratio(side) for side in four)),
        ("slack", *(_percent(side.scores.slack) for side in four)),
        ("instability", *(_percent(side.scores.instability) for side in four)),
    ]


def _table(found: Tuning) -> list[str]:
    rows: list[tuple[str, ...]] = [("", "deployed", "proposed", "deployed", "proposed"), *sides(found)]
    widths = [max(len(row[at]) for row in rows) for at in range(5)]
    head = f"{'':<{widths[0]}}  {'unseen part':>{widths[1] + widths[2] + 2}}  "
    head += f"{'part it was chosen on':>{widths[3] + widths[4] + 2}}"
    texts = [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{row[at]:>{widths[at]}}" for at in range(1, 5))]).rstrip()
        for row in rows
    ]
    return [head.rstrip(), *texts]


def _ratio(side: Side) -> str:
    return "-" if side.scores.oracle_ratio is None else f"{side.scores.oracle_ratio:.2f}"


def _curve(found: Tuning) -> list[str]:
    """Cost against overload among the specs tried; where the deployed spec and the proposal are."""
    named = dict.fromkeys(_thinned(found.curve), "")
    if found.changed:
        named[found.proposed_point] = "proposed"
    named[found.deployed_point] = "deployed"
    lines = ["cost against overload, on the part it was chosen on (compact model):"]
    for point, text in sorted(named.items(), key=lambda each: (each[0].replica_hours, each[0].overload_share)):
        lines.append(
            f"  {point.replica_hours:>10,.2f} replica-hours  {_percent(point.overload_share):>8} of the time  "
            f"target {point.target:g} %, min {point.min_replicas}, window {point.window_seconds}s  {text}".rstrip()
        )
    return lines


def _thinned(points: Sequence[CurvePoint]) -> list[CurvePoint]:
    if len(points) <= _MOST_POINTS:
        return list(points)
    step = (len(points) - 1) / (_MOST_POINTS - 1)
    return [points[round(step * number)] for number in range(_MOST_POINTS)]


def ranking(found: Sequence[Tuned]) -> list[str]:
    """Several HPAs: where most is to gain, and where the risk is."""
    if len(found) < 2:
        return []
    tunings = [each.found for each in found if each.found is not None and each.found.changed]
    tunings.sort(key=lambda each: -each.saved)
    kept = sum(each.found is not None and not each.found.changed for each in found)
    refused = sum(each.found is None for each in found)
    lines = [f"{len(found)} HPAs: {len(tunings)} proposals, {kept} without change, {refused} that cannot be tuned"]
    for number, each in enumerate(tunings, 1):
        was, own = each.unseen
        risk = "; ".join(text.partition(": ")[0] for text in each.bounds) or "none bound it"
        change = f"{abs(each.saved):,.2f} replica-hours {'more than' if each.saved < 0 else 'less of'}"
        lines.append(
            f"  {number}. {each.hpa}: {change} {was.replica_hours:,.2f}, overload "
            f"{_percent(was.overload_share)} → {_percent(own.overload_share)}, worst {_worst(own.worst)}; risk: {risk}"
        )
    return [*lines, ""]


def caution() -> list[str]:
    """The closing lines of every report."""
    return [
        "A proposal cannot know:",
        "  - whether the future is like the past: loads, releases and dependencies change",
        "  - what the capacity of a pod really is: no latency is in the log",
        *[f"  - {text}" for text in UNKNOWN],
    ]


def manifest(tuned: Tuned) -> dict[str, Any] | None:
    """A manifest that `apply` takes; None: nothing is proposed."""
    found = tuned.found
    if found is None or not found.changed:
        return None
    kept = ("name", "namespace", "labels", "annotations")
    metadata = {name: tuned.hpa["metadata"][name] for name in kept if tuned.hpa["metadata"].get(name)}
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return head | {"metadata": metadata, "spec": found.spec}


def document(tuned: Tuned) -> dict[str, Any]:
    """One HPA for machine formats."""
    hpa, found = tuned.id, tuned.found
    made: dict[str, Any] = {"cluster": hpa.cluster, "namespace": hpa.namespace, "name": hpa.name}
    if found is None:
        return made | {"refused": tuned.refused}
    names = ("deployed", "proposed")
    return made | {
        "objective": found.objective,
        "since": rfc3339(found.since_ms),
        "until": rfc3339(found.until_ms),
        "scoredFrom": rfc3339(found.split_ms),
        "evaluations": found.evaluations,
        "changed": found.changed,
        "costsMore": found.costs_more,
        "why": found.why,
        "changes": differing(found),
        "manifest": manifest(tuned),
        "metric": found.metric,
        "capacity": found.capacity,
        "cycleSeconds": None if found.cycle_ms is None else found.cycle_ms / 1000,
        "startUp": msgspec.to_builtins(found.start_up),
        "unseen": {name: msgspec.to_builtins(side) for name, side in zip(names, found.unseen, strict=True)},
        "chosenOn": {name: msgspec.to_builtins(side) for name, side in zip(names, found.chosen_on, strict=True)},
        "curve": {
            "points": msgspec.to_builtins(found.curve),
            "deployed": msgspec.to_builtins(found.deployed_point),
            "proposed": msgspec.to_builtins(found.proposed_point),
        },
        "bounds": found.bounds,
        "specsTried": found.tried,
        "withdrawn": found.withdrawn,
        "unknown": [text.strip(" -") for text in caution()[1:]],
    }


_WIDTH: Final = 960
_HEIGHT: Final = 300
_LEFT: Final = 64
_BOTTOM: Final = 40
_TOP: Final = 14
_RIGHT: Final = 20


def report(found: Sequence[Tuned]) -> str:
    """Return the whole page: the ranking, where there are several, and each HPA."""
    ranked = items(ranking(found)[1:]) if len(found) > 1 else ""
    return html_document("Tune", [ranked, *map(_section, found), f"<p>{escape(caution()[0])}</p>", items(_cautions())])


def _cautions() -> list[str]:
    return [text.strip(" -") for text in caution()[1:]]


def _section(tuned: Tuned) -> str:
    head = f"<section>\n<h2>{escape(str(tuned.id))}</h2>\n"
    found = tuned.found
    if found is None:
        return f"{head}<p>No proposal: {escape(tuned.refused)}</p>\n</section>\n"
    proposal = manifest(tuned)
    stated = (
        f"<p>{escape(headline(found).capitalize())}</p>{items(differing(found))}"
        if proposal is not None
        else f"<p>No change proposed: {escape(found.why)}</p>\n{items(relief_hint(found))}"
    )
    whole = "" if proposal is None else f"<p>The manifest:</p>\n<pre>{escape(to_yaml(proposal))}</pre>\n"
    return (
        f"{head}<p>{rfc3339(found.since_ms)} … {rfc3339(found.until_ms)}, {found.evaluations:,} evaluations; "
        f"chosen until {rfc3339(found.split_ms)}, scored from there. "
        f"Overload is counted beyond {escape(found.capacity)}.</p>\n"
        f"{stated}{items(found.bounds)}{table(_rows(found))}\n{curve(found)}\n{whole}</section>\n"
    )


def _rows(found: Tuning) -> list[tuple[str, ...]]:
    head = ("", "unseen: deployed", "unseen: proposed", "chosen on: deployed", "chosen on: proposed")
    return [head, *sides(found)]


def curve(found: Tuning) -> str:
    """Cost against overload among the specs that were tried, and where the deployed one and the proposal are."""
    points = [*found.curve, found.deployed_point, found.proposed_point]
    least, most = (pick(point.replica_hours for point in points) for pick in (min, max))
    worst = max([0.0005, *(point.overload_share for point in points)])

    def at(point: CurvePoint) -> tuple[float, float]:
        wide = (point.replica_hours - least) / ((most - least) or 1.0)
        return (
            _LEFT + 10 + wide * (_WIDTH - _LEFT - _RIGHT - 20),
            _TOP + (1 - point.overload_share / worst) * (_HEIGHT - _TOP - _BOTTOM),
        )

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(at, found.curve))
    marks = [_mark(at(point), "tried", 3, _reported(point)) for point in found.curve]
    marks.append(_mark(at(found.deployed_point), "deployed", 7, f"deployed: {_reported(found.deployed_point)}"))
    if found.changed:
        marks.append(_mark(at(found.proposed_point), "proposed", 7, f"proposed: {_reported(found.proposed_point)}"))
    axes = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share:.2%}</text>'
        for share in (0.0, worst / 2, worst)
        for y in (_TOP + (1 - share / worst) * (_HEIGHT - _TOP - _BOTTOM),)
    )
    axes += "".join(
        f'<text x="{x}" y="{_HEIGHT - 22}" text-anchor="{anchor}">{hours:,.2f}</text>'
        for x, anchor, hours in ((_LEFT + 10, "start", least), (_WIDTH - _RIGHT - 10, "end", most))
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="cost against overload of the specs tried">'
        f'{axes}<polyline class="grid" fill="none" points="{line}"/>{"".join(marks)}'
        f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle">replica-hours</text></svg>\n'
        '<p class="key"><span><i style="color:var(--recorded)"></i>deployed</span>'
        '<span><i style="color:var(--candidate)"></i>proposed</span>'
        "<span>small: tried; upwards: share of the time in overload, on the part it was chosen on</span></p>"
    )


def _mark(at: tuple[float, float], name: str, size: int, text: str) -> str:
    return f'<circle class="{name}" cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{size}"><title>{escape(text)}</title></circle>'


def _reported(point: CurvePoint) -> str:
    return (
        f"target {point.target:g} %, min {point.min_replicas}, window {point.window_seconds}s: "
        f"{point.replica_hours:,.2f} replica-hours, {point.overload_share:.2%} of the time in overload"
    )

"""What `tune` found as one HTML file: the proposal, its evidence, and the curve of cost against overload."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from fleethpa.cli.output.formats import to_yaml
from fleethpa.cli.output.htmlreport import document, items, table
from fleethpa.cli.output.times import rfc3339
from fleethpa.cli.output.tuningpage import Tuned, caution, differing, headline, manifest, ranking, relief_hint, sides

if TYPE_CHECKING:
    from streams.analysis.tuning.results import CurvePoint, Tuning

_WIDTH: Final = 960
_HEIGHT: Final = 300
_LEFT: Final = 64
_BOTTOM: Final = 40
_TOP: Final = 14
_RIGHT: Final = 20


def report(found: Sequence[Tuned]) -> str:
    """Return the whole page: the ranking, where there are several, and each HPA."""
    ranked = items(ranking(found)[1:]) if len(found) > 1 else ""
    return document("Tune", [ranked, *map(_section, found), f"<p>{escape(caution()[0])}</p>", items(_cautions())])


def _cautions() -> list[str]:
    return [text.strip(" -") for text in caution()[1:]]


def _section(tuned: Tuned) -> str:
    head = f"<section>\n<h2>{escape(str(tuned.id))}</h2>\n"
    found = tuned.found
    if found is None:
        return f"{head}<p>No proposal: {escape(tuned.refused)}</p>\n</section>\n"
    proposal = manifest(tuned)
    said = (
        f"<p>{escape(headline(found).capitalize())}</p>{items(differing(found))}"
        if proposal is not None
        else f"<p>No change proposed: {escape(found.why)}</p>\n{items(relief_hint(found))}"
    )
    whole = "" if proposal is None else f"<p>The manifest:</p>\n<pre>{escape(to_yaml(proposal))}</pre>\n"
    return (
        f"{head}<p>{rfc3339(found.since_ms)} … {rfc3339(found.until_ms)}, {found.evaluations:,} evaluations; "
        f"chosen until {rfc3339(found.split_ms)}, scored from there. "
        f"Overload is counted beyond {escape(found.capacity)}.</p>\n"
        f"{said}{items(found.bounds)}{table(_rows(found))}\n{curve(found)}\n{whole}</section>\n"
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
    marks = [_mark(at(point), "tried", 3, _told(point)) for point in found.curve]
    marks.append(_mark(at(found.deployed_point), "deployed", 7, f"deployed: {_told(found.deployed_point)}"))
    if found.changed:
        marks.append(_mark(at(found.proposed_point), "proposed", 7, f"proposed: {_told(found.proposed_point)}"))
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


def _told(point: CurvePoint) -> str:
    return (
        f"target {point.target:g} %, min {point.min_replicas}, window {point.window_seconds}s: "
        f"{point.replica_hours:,.2f} replica-hours, {point.overload_share:.2%} of the time in overload"
    )

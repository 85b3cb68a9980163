"""HPAs as a table with kubectl's columns and ours, and as documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fleethpa.cli.kubectl.hpacolumns import targets
from fleethpa.cli.kubectl.values import reference
from fleethpa.cli.output import words
from fleethpa.cli.output.formats import Listing
from fleethpa.cli.output.possible import possible
from fleethpa.cli.output.table import Column, too_wide
from fleethpa.cli.output.times import age, rfc3339
from schemas.kubernetes.gotimes import parse_time_ms

if TYPE_CHECKING:
    from fleethpa.cli.common.views import HpaView
    from streams.state.moves import Fight

    Problems = Callable[[HpaView], list[str]]


def hpa_listing(
    views: list[HpaView],
    now_ms: int,
    *,
    namespaces: bool,
    left_out: frozenset[str] = frozenset(),
    problems: Problems,
) -> Listing[HpaView]:
    """HPAs for every format; `now_ms`: what ages refer to.

    `left_out`: headers of columns that are not shown. `problems`: what PROBLEM says of an HPA.
    """
    return Listing(
        kind="Hpa",
        items=views,
        columns=[column for column in _columns(now_ms, namespaces, problems) if column.header not in left_out],
        document=_document,
        name=lambda view: f"hpa/{view.id}",
        style=_style,
    )


def beyond(
    views: list[HpaView], now_ms: int, width: int | None, *, namespaces: bool, problems: Problems
) -> frozenset[str]:
    """Headers of the columns to leave out of the table where a line may have no more than `width` characters."""
    columns = [column for column in _columns(now_ms, namespaces, problems) if not column.wide]
    return too_wide(views, columns, width) if width is not None else frozenset()


def visible(view: HpaView) -> tuple[str, ...]:
    """What a row says, but for what changes with time alone."""
    shown = _columns(0, True, lambda view: [each.text for each in view.problems])
    return tuple(column.cell(view) for column in shown if column.header not in ("AGE", "STALE", "LAST SCALE"))


def _style(view: HpaView) -> str:
    if view.at_max:
        return "red"
    if view.problems:
        return "yellow"
    return "dim" if view.mode != "enforce" else ""


def _mode_text(view: HpaView) -> str:
    """The mode, and what keeps it from having its effect."""
    if view.refused:
        return f"{view.mode} (refused)"
    return f"{view.mode} (paused)" if view.paused else view.mode


def _columns(now_ms: int, namespaces: bool, problems: Problems) -> list[Column[HpaView]]:
    first: list[Column[HpaView]] = [Column("NAMESPACE", lambda v: v.id.namespace)] if namespaces else []
    return [
        *first,
        Column("NAME", lambda v: v.id.name),
        Column("CLUSTER", lambda v: v.id.cluster),
        Column("REFERENCE", lambda v: reference(v.hpa), dispensable=4),
        Column("TARGETS", lambda v: targets(possible(v.hpa))),
        Column("MINPODS", lambda v: str(v.spec.get("minReplicas", "<unset>")), dispensable=2),
        Column("MAXPODS", lambda v: str(v.spec.get("maxReplicas", 0)), dispensable=1),
        Column("REPLICAS", lambda v: str(v.status.get("currentReplicas", 0))),
        Column("MODE", _mode_text),
        Column("DESIRED", lambda v: str(v.status.get("desiredReplicas", 0)), wide=True),
        Column("LAST SCALE", lambda v: _since(v.status.get("lastScaleTime"), now_ms), wide=True),
        Column(
            "WINNER", lambda v: words.short(v.decision.decision.selected_metric if v.decision else "") or "-", wide=True
        ),
        Column("LIMITED", lambda v: (words.held_by(v.decision.decision) if v.decision else "") or "-", wide=True),
        Column("STALE", lambda v: _stale(v, now_ms), wide=True),
        Column("AGE", lambda v: _since((v.hpa.get("metadata") or {}).get("creationTimestamp"), now_ms), dispensable=3),
        Column("PROBLEM", lambda v: "; ".join(problems(v)) or "-"),
    ]


def _since(text: str | None, now_ms: int) -> str:
    return age(max(0, now_ms - parse_time_ms(text))) if text else "<unknown>"


def _stale(view: HpaView, now_ms: int) -> str:
    """Age of the oldest sample that the newest evaluation used."""
    if view.decision is None:
        return "-"
    times = [metric.newest for metric in view.decision.decision.metrics if metric.newest is not None]
    return age(max(0, now_ms - min(times))) if times else "-"


def _fight(fight: Fight | None) -> dict[str, Any] | None:
    if fight is None:
        return None
    return {
        "writers": list(fight.writers),
        "turns": fight.turns,
        "since": rfc3339(fight.since),
        "until": rfc3339(fight.until),
        "lowest": fight.lowest,
        "highest": fight.highest,
    }


def _document(view: HpaView) -> dict[str, Any]:
    """An HPA as JSON: the object as kubectl has it, and what fleethpa knows beside."""
    return {
        "cluster": view.id.cluster,
        "mode": view.mode,
        "origin": view.origin,
        "paused": view.paused,
        "refused": view.refused,
        "problems": [problem.text for problem in view.problems],
        "lastDecision": view.last_decision,
        "moves": [
            {"time": rfc3339(move.time_ms), "from": move.before, "to": move.after, "by": move.writer}
            for move in view.moves
        ],
        "fight": _fight(view.fight),
        "metadata": view.hpa.get("metadata") or {},
        "spec": view.spec,
        "status": view.status,
    }

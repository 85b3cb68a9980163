"""HPAs (with kubectl's columns and ours) and clusters as tables and documents.

An average over 0 pods is the smallest integer. The status keeps it, as upstream's does; tables say `<unknown>`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from fleethpa.fleet.decisionfinding import short_id
from fleethpa.fleet.troubles import AWAY, ClusterView
from fleethpa.fleet.views import HpaView
from fleethpa.show import words
from fleethpa.show.formats import Listing
from fleethpa.show.kubectl import reference, targets
from fleethpa.show.text import Column, age, rfc3339, too_wide
from fleethpa.show.words import one_line
from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_API_VERSION, FLEET_KIND
from streams.hpa.rules import CURRENT_TEXT, NEWEST, OLDEST, UnknownRulesError, known_gates, minor_of, rules_text
from streams.state.clustersettings import effective
from streams.state.fights import Fight


def cluster_listing(views: list[ClusterView], now_ms: int) -> Listing[ClusterView]:
    """Clusters for every format. `now_ms`: what ages refer to, the reader's clock: it goes on when the log does not."""
    return Listing(
        kind="Cluster",
        items=views,
        columns=_columns(now_ms),
        document=_document,
        name=lambda view: f"cluster/{view.name}",
        style=_cluster_style,
    )


def _cluster_style(view: ClusterView) -> str:
    if view.hidden:
        return "red"
    return "yellow" if _problem_text(view) != "-" or view.problems or not is_known_up(view) else ""


def is_known_up(view: ClusterView) -> bool:
    """Whether the cluster is known to be observed now: nothing is said of one that is not."""
    return cluster_state(view) not in ("unknown", "silent", "away", "gone")


def _columns(now_ms: int) -> list[Column[ClusterView]]:
    return [
        Column("NAME", lambda c: c.name),
        Column("STATE", cluster_state),
        Column("REPORTED", lambda c: "never" if c.reported_ms is None else age(max(0, now_ms - c.reported_ms))),
        Column("NAMESPACES", lambda c: str(c.namespaces)),
        Column("HPAS", lambda c: str(c.hpas)),
        Column("ENFORCE", lambda c: str(c.modes.get("enforce", 0))),
        Column("SHADOW", lambda c: str(c.modes.get("shadow", 0))),
        Column("OFF", lambda c: str(c.modes.get("off", 0))),
        Column("KUBERNETES", _kubernetes, wide=True),
        Column("GATES", _gates, wide=True),
        Column("BY", lambda c: f"agent {c.agent.incarnation}" if c.agent and c.has_agent else "hub", wide=True),
        Column("NATIVE CONTROLLER", lambda c: c.settings.native_controller or "unknown"),
        Column("PROBLEMS", _problem_text),
    ]


def cluster_state(cluster: ClusterView) -> str:
    """`up`, `gone` (it left the fleet), `silent` (its observer), `away` (its API server gives no answers), `stand-in`
    (not in the hub's hands), `frozen`, `paused` or `unknown` (never observed, or nothing comes into the log).
    """
    if cluster.has_left:
        return "gone"
    if cluster.reported_ms is None or cluster.is_cut_off:
        return "unknown"
    kinds = {trouble.kind for trouble in cluster.troubles}
    if "left" in kinds:
        return "gone"
    if "observerSilent" in kinds:
        return "silent"
    if kinds & AWAY:
        return "away"
    if "standIn" in kinds:
        return "stand-in"
    return "frozen" if cluster.settings.frozen else "paused" if cluster.pauses else "up"


def _kubernetes(cluster: ClusterView) -> str:
    """Its version, and where that is not the same, the version by whose rules its HPAs are decided."""
    rules, version = decided_as(cluster), cluster.kubernetes.partition(" ")[0] or "unknown"
    try:
        is_own = rules == rules_text(version, {})
    except UnknownRulesError:
        is_own = False
    return version if is_own else f"{version}, decided as {rules}"


def _gates(cluster: ClusterView) -> str:
    """Those of its feature gates that differ from its version's defaults, of those that change decisions."""
    version, _, gates = cluster.kubernetes.partition(" ")
    if not gates:
        return "not read"
    try:
        return rules_text(version, known_gates(gates)).partition(" ")[2] or "default"
    except UnknownRulesError:
        return gates


def decided_as(cluster: ClusterView) -> str:
    """The rules that decide its HPAs: a known version and the feature gates that differ from its defaults."""
    rules = effective({cluster.name: cluster.settings}, cluster.name, cluster.kubernetes).rules or CURRENT_TEXT
    version, _, gates = rules.partition(" ")
    return f"1.{min(max(minor_of(version), OLDEST), NEWEST)} {gates}".rstrip()


def _problem_text(cluster: ClusterView) -> str:
    texts = [trouble.text for trouble in cluster.troubles]
    if not cluster.reports:  # they name all of it, each cause once
        texts += [f"{watch}: {one_line(text)}" for watch, text in sorted(cluster.problems.items())]
    return "; ".join([*(text for text, _ in cluster.pauses), *texts]) or "-"


def _document(cluster: ClusterView) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "state": cluster_state(cluster),
        "reported": None if cluster.reported_ms is None else rfc3339(cluster.reported_ms),
        "kubernetes": cluster.kubernetes.partition(" ")[0],
        "gates": known_gates(cluster.kubernetes.partition(" ")[2]) or None,
        "rules": decided_as(cluster),
        "namespaces": cluster.namespaces,
        "hpas": cluster.hpas,
        "hands": [
            {"time": rfc3339(time_ms), "holder": holder, "generation": generation}
            for time_ms, holder, generation in (cluster.hands.changes if cluster.hands is not None else ())
        ],
        "agent": cluster.agent.incarnation if cluster.agent and cluster.has_agent else None,
        "modes": dict(cluster.modes),
        "paused": cluster.paused,
        "problems": dict(cluster.problems),
        "troubles": [
            {
                "kind": trouble.kind,
                "since": None if trouble.since_ms is None else rfc3339(trouble.since_ms),
                "text": trouble.text,
                "nextStep": trouble.next_step,
            }
            for trouble in cluster.troubles
        ],
        "settings": msgspec.to_builtins(cluster.settings),
    }


_IMPOSSIBLE: Final = {"averageValue": f"{-(2**63)}m", "value": f"{-(2**63)}m", "averageUtilization": -(2**31)}


def possible(hpa: Json) -> Json:
    """The HPA for people to read: a current metric with a value that cannot be has none."""
    status = hpa.get("status") or {}
    metrics = status.get("currentMetrics") or []
    if not any(_is_impossible(source) for metric in metrics for source in metric.values()):
        return hpa
    shown = [{name: source for name, source in metric.items() if not _is_impossible(source)} for metric in metrics]
    return hpa | {"status": status | {"currentMetrics": shown}}


def _is_impossible(source: Any) -> bool:
    current = source.get("current") if isinstance(source, dict) else None
    return current is not None and any(current.get(name) == value for name, value in _IMPOSSIBLE.items())


Problems = Callable[[HpaView], list[str]]


def hpa_listing(
    views: list[HpaView], now_ms: int, *, namespaces: bool, left_out: frozenset[str] = frozenset(), problems: Problems
) -> Listing[HpaView]:
    """HPAs for every format; `now_ms`: what ages refer to.

    `left_out`: headers of columns that are not shown. `problems`: what PROBLEM says of an HPA.
    """
    return Listing(
        kind="Hpa",
        items=views,
        columns=[column for column in _hpa_columns(now_ms, namespaces, problems) if column.header not in left_out],
        document=_hpa_document,
        name=lambda view: f"hpa/{view.id}",
        style=_style,
    )


def beyond(
    views: list[HpaView], now_ms: int, width: int | None, *, namespaces: bool, problems: Problems
) -> frozenset[str]:
    """Headers of the columns to leave out of the table where a line may have no more than `width` characters."""
    columns = [column for column in _hpa_columns(now_ms, namespaces, problems) if not column.wide]
    return too_wide(views, columns, width) if width is not None else frozenset()


def visible(view: HpaView) -> tuple[str, ...]:
    """Return what a row says, but for what changes with time alone, as the ID of the newest evaluation does."""
    shown = _hpa_columns(0, True, lambda view: [each.text for each in view.problems])
    return tuple(
        column.cell(view) for column in shown if column.header not in ("AGE", "STALE", "LAST SCALE", "DECISION")
    )


def _style(view: HpaView) -> str:
    if view.is_saturated:
        return "red"
    if view.problems:
        return "yellow"
    return "dim" if view.mode != "enforce" else ""


def _mode_text(view: HpaView) -> str:
    """The mode, and what keeps it from having its effect."""
    if view.refused:
        return f"{view.mode} (refused)"
    if view.paused:
        return f"{view.mode} (paused)"
    return f"{view.mode} (override)" if view.override is not None else view.mode


def has_old_values(view: HpaView) -> bool:
    """Whether current values of metrics are shown that are only the last that were known."""
    return view.is_past and any((possible(view.hpa).get("status") or {}).get("currentMetrics") or ())


def _targets(view: HpaView) -> str:
    """Current and target values as kubectl shows them, and that the current ones are old."""
    return targets(possible(view.hpa)) + (" (last known)" if has_old_values(view) else "")


def _hpa_columns(now_ms: int, namespaces: bool, problems: Problems) -> list[Column[HpaView]]:
    first: list[Column[HpaView]] = [Column("NAMESPACE", lambda v: v.id.namespace)] if namespaces else []
    return [
        *first,
        Column("NAME", lambda v: v.id.name),
        Column("CLUSTER", lambda v: v.id.cluster),
        Column("REFERENCE", lambda v: reference(v.hpa), dispensable=4),
        Column("TARGETS", _targets),
        Column("MINPODS", lambda v: str(v.spec.get("minReplicas", "<unset>")), dispensable=2),
        Column("MAXPODS", lambda v: str(v.spec.get("maxReplicas", 0)), dispensable=1),
        Column("REPLICAS", lambda v: "?" if v.has is None else str(v.has)),
        Column("WANTS", lambda v: "?" if v.wants is None else str(v.wants)),
        Column("MODE", _mode_text),
        Column("DESIRED", lambda v: str(v.status.get("desiredReplicas", 0)), wide=True),
        Column("LAST SCALE", lambda v: _since(v.status.get("lastScaleTime"), now_ms), wide=True),
        Column(
            "WINNER", lambda v: words.short(v.decision.decision.selected_metric if v.decision else "") or "-", wide=True
        ),
        Column("LIMITED", lambda v: (words.held_by(v.decision.decision) if v.decision else "") or "-", wide=True),
        Column("STALE", lambda v: _stale(v, now_ms), wide=True),
        Column("DECISION", short_decision, wide=True),
        Column("AGE", lambda v: _since((v.hpa.get("metadata") or {}).get("creationTimestamp"), now_ms), dispensable=3),
        Column("PROBLEM", lambda v: "; ".join(problems(v)) or "-"),
    ]


def newest_decision(view: HpaView) -> str:
    """The ID of its newest recorded evaluation; empty: none was read (`decided`)."""
    return view.decision.decision.id if view.decision else ""


def short_decision(view: HpaView) -> str:
    """The same in a table: its short ID; `-`: none was read."""
    return short_id(newest_decision(view)) if view.decision else "-"


def _since(text: str | None, now_ms: int) -> str:
    return age(max(0, now_ms - parse_time_ms(text))) if text else "<unknown>"


def _stale(view: HpaView, now_ms: int) -> str:
    """Age of the oldest sample that the newest evaluation used."""
    if view.decision is None:
        return "-"
    times = [metric.newest for metric in view.decision.decision.metrics if metric.newest is not None]
    return age(max(0, now_ms - min(times))) if times else "-"


def _fight(fight: Fight | None) -> dict[str, Any] | None:
    times = {} if fight is None else {"since": rfc3339(fight.since), "until": rfc3339(fight.until)}
    return None if fight is None else msgspec.to_builtins(fight) | times


def _hpa_document(view: HpaView) -> dict[str, Any]:
    """An HPA as JSON: the object as kubectl has it, and what fleethpa knows beside."""
    spec = view.spec if view.fleet is None else view.spec | view.fleet.fields()
    return {
        "apiVersion": "autoscaling/v2" if view.fleet is None else FLEET_API_VERSION,
        "kind": "HorizontalPodAutoscaler" if view.fleet is None else FLEET_KIND,
        "cluster": view.id.cluster,
        "mode": view.mode,
        "origin": view.origin,
        "paused": view.paused,
        "refused": view.refused,
        "override": "" if view.override is None else view.override.text,
        "wants": view.wants,
        "saturated": view.is_saturated,
        "problems": [problem.text for problem in view.problems],
        "lastDecision": newest_decision(view),
        "moves": [
            {"time": rfc3339(move.time_ms), "from": move.before, "to": move.after, "by": move.writer}
            for move in view.moves
        ],
        "fight": _fight(view.fight),
        "metadata": view.hpa.get("metadata") or {},
        "spec": spec,
        "status": view.status,
    } | ({} if view.fleet_hpa is None else {"belongsTo": str(view.fleet_hpa)})

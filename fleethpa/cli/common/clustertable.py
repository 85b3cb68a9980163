"""Clusters as a table and as documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from fleethpa.cli.output.errortexts import one_line
from fleethpa.cli.output.formats import Listing
from fleethpa.cli.output.table import Column
from fleethpa.cli.output.times import age, rfc3339

if TYPE_CHECKING:
    from fleethpa.cli.common.views import ClusterView


def cluster_listing(views: list[ClusterView]) -> Listing[ClusterView]:
    """Clusters for every format."""
    return Listing(
        kind="Cluster",
        items=views,
        columns=_columns(),
        document=_document,
        name=lambda view: f"cluster/{view.name}",
        style=lambda view: "red" if view.hidden else "yellow" if _problem_text(view) != "-" or view.problems else "",
    )


def _columns() -> list[Column[ClusterView]]:
    return [
        Column("NAME", lambda c: c.name),
        Column("STATE", _state),
        Column("HEARD", lambda c: "never" if c.heard_ms is None else age(max(0, c.clock_ms - c.heard_ms))),
        Column("NAMESPACES", lambda c: str(c.namespaces)),
        Column("HPAS", lambda c: str(c.hpas)),
        Column("ENFORCE", lambda c: str(c.modes.get("enforce", 0))),
        Column("SHADOW", lambda c: str(c.modes.get("shadow", 0))),
        Column("OFF", lambda c: str(c.modes.get("off", 0))),
        Column("BY", _by, wide=True),
        Column("NATIVE CONTROLLER", lambda c: c.settings.native_controller or "unknown"),
        Column("PROBLEMS", _problem_text),
    ]


def _state(cluster: ClusterView) -> str:
    """`up`, `gone` (it left the fleet), `silent` (its observer), `away` (its API server), `stand-in` (not in the hub's
    hands), `frozen`, `paused` or `unknown` (never observed, or nothing comes into the log).
    """
    if cluster.has_left:
        return "gone"
    if cluster.heard_ms is None or cluster.is_cut_off:
        return "unknown"
    kinds = {trouble.kind for trouble in cluster.troubles}
    if "left" in kinds:
        return "gone"
    if "observerSilent" in kinds:
        return "silent"
    if "apiServerAway" in kinds:
        return "away"
    if "standIn" in kinds:
        return "stand-in"
    return "frozen" if cluster.settings.frozen else "paused" if cluster.pauses else "up"


def _by(cluster: ClusterView) -> str:
    """Who observes and writes it: its agent, with its incarnation, or the hub."""
    if cluster.agent is None or cluster.agent.left:
        return "hub"
    return f"agent {cluster.agent.incarnation}"


def _problem_text(cluster: ClusterView) -> str:
    texts = [trouble.text for trouble in cluster.troubles]
    if not cluster.reports:  # they name all of it, each cause once
        texts += [f"{watch}: {one_line(text)}" for watch, text in sorted(cluster.problems.items())]
    return "; ".join([*cluster.pauses, *cluster.guarded, *texts]) or "-"


def _document(cluster: ClusterView) -> dict[str, Any]:
    return {
        "name": cluster.name,
        "state": _state(cluster),
        "heard": None if cluster.heard_ms is None else rfc3339(cluster.heard_ms),
        "namespaces": cluster.namespaces,
        "hpas": cluster.hpas,
        "hands": [
            {"time": rfc3339(time_ms), "holder": holder, "generation": generation}
            for time_ms, holder, generation in (cluster.hands.changes if cluster.hands is not None else ())
        ],
        "agent": None if cluster.agent is None or cluster.agent.left else cluster.agent.incarnation,
        "modes": dict(cluster.modes),
        "paused": "; ".join(filter(None, (cluster.paused, cluster.guardrail, *cluster.guarded))),
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

"""What a FleetHPA could do without one of its clusters: the report."""

from __future__ import annotations

from typing import Any

import msgspec

from fleethpa.fleet.views import HpaView
from fleethpa.show.report import Grid, Notes, QuestionReport, Section, verdict
from fleethpa.show.words import counted
from schemas.decisions import Decision
from schemas.observed import FleetSpec
from streams.analysis.wholes import WithoutCluster, without_cluster

_UNKNOWN = (
    "whether the load of the cluster goes to the others: that is for whoever routes it",
    "how long pods take to start where replicas are added",
)


def away_report(view: HpaView, fleet: FleetSpec, decision: Decision, away: str) -> QuestionReport:
    """Say what the others could have, by the newest decision of the whole. `away`: one of its clusters."""
    clusters: dict[str, dict[str, Any]] = decision.observed.get("clusters", {})
    had = {name: int(each.get("replicas", 0)) for name, each in clusters.items()}
    needed = decision.final_desired_replicas
    maximum: int = view.spec["maxReplicas"]

    def without(*, is_spilled: bool) -> WithoutCluster:
        gone = {
            name: 0 if is_spilled else int(each.get("allotted", had[name]))
            for name, each in clusters.items()
            if each.get("away") and name != away
        }
        caps = {name: int(each["room"]) for name, each in clusters.items() if "room" in each}
        return without_cluster(fleet, away, maximum, needed, had, is_spilled=is_spilled, caps=caps, gone=gone)

    keep, spill = without(is_spilled=False), without(is_spilled=True)
    policy = "Spill" if fleet.away_spill_after_ms else "Keep"
    document = {
        "namespace": view.id.namespace,
        "name": view.id.name,
        "decision": decision.id,
        "away": away,
        "policy": policy,
        "maxReplicas": maximum,
        "replicas": had,
        "keep": msgspec.to_builtins(keep),
        "spill": msgspec.to_builtins(spill),
    }
    kept, spilled = ("KEEP", "SPILL") if policy == "Keep" else ("AT FIRST", "SPILLED")
    rows = [
        ("CLUSTER", "NOW", kept, spilled),
        *[(name, *(str(found.get(name, "away")) for found in (had, keep.shares, spill.shares))) for name in had],
    ]
    return QuestionReport(
        "What if a cluster is away",
        "ClusterAway",
        document,
        [
            verdict(_verdict(away, maximum, keep, spill, fleet)),
            Section(str(view.id), f"decision {decision.id}", [Grid(rows, numbers=True)]),
        ],
        [],
        [Notes("This cannot know:", _UNKNOWN)],
    )


def _verdict(away: str, maximum: int, keep: WithoutCluster, spill: WithoutCluster, fleet: FleetSpec) -> str:
    """The answer in words."""
    reached = sum(keep.shares.values())
    begin = f"The load of all clusters takes {counted(keep.needed, 'replica')} now; without {away} the others "
    if not keep.missing:
        return f"{begin}have room for all of them."
    why = f"maxReplicas {maximum} counts what {away} had" if spill.missing < keep.missing else f"maxReplicas {maximum}"
    text = f"{begin}could have {reached}: {keep.missing} are missing ({why})."
    after_s = fleet.away_spill_after_ms // 1000
    when = f"After {after_s}s (whenAway Spill)" if after_s else "With whenAway Spill"
    if spill.missing == keep.missing:
        return f"{text} {when} that stays so."
    return f"{text} {when} they could have {sum(spill.shares.values())}."

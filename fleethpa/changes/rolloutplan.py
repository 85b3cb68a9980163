"""What `fleethpa rollout` would do: which HPAs change, in which waves, and what prevents it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleethpa.changes.manifests import Input, checked_hpa
from fleethpa.changes.rollouts import RolloutMark, part_of, rollouts_in, waves_of
from fleethpa.changes.schedules import renewed
from fleethpa.changes.versions import rules_in, version_errors
from fleethpa.changes.writing import Concern
from fleethpa.frame.errors import ANSWER_IS_NO, CommandError, usage
from fleethpa.show.times import span
from fleethpa.show.words import counted, listed
from schemas.keys import HpaId
from schemas.kubernetes.hpa import semantically_equal_spec
from schemas.kubernetes.shape import Json
from streams.analysis.revisions import differences

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState


@dataclass
class RolloutPlan:
    """What a rollout would change: the new part of each HPA, those that have it already, and clusters without it.
    `scheduled`: those of the changed ones that keep a schedule of their own.
    """

    parts: dict[HpaId, Json] = field(default_factory=dict)
    unchanged: list[HpaId] = field(default_factory=list)
    missing: list[HpaId] = field(default_factory=list)
    scheduled: list[HpaId] = field(default_factory=list)
    waves: list[list[str]] = field(default_factory=list)


def rollout_plan(
    state: FleetState, read: Input, clusters: Sequence[str], namespace: str | None, sizes: str
) -> RolloutPlan:
    """Say which HPAs a rollout would change, and in which waves. `clusters`: all that are meant, in their order.

    Raises CommandError: a manifest is not valid, or would move an HPA to another target (exit 2).
    """
    plan = RolloutPlan()
    for manifest in read.hpas:
        body = checked_hpa(manifest, namespace)
        metadata = body["metadata"]
        part = part_of(metadata.get("labels") or {}, metadata.get("annotations") or {}, body["spec"])
        for cluster in clusters:
            hpa = HpaId(cluster, metadata["namespace"], manifest.name)
            view = state.hpas.get(hpa)
            if view is None or view.origin != "central":
                plan.missing.append(hpa)
            elif view.spec.get("scaleTargetRef") != part["spec"]["scaleTargetRef"]:
                raise usage(
                    f"{hpa}: a rollout does not change what an HPA scales",
                    cause="Its spec.scaleTargetRef differs from the manifest's.",
                    next_step="fleethpa apply -f …",
                )
            elif semantically_equal_spec(view.spec, part["spec"]):
                plan.unchanged.append(hpa)
            elif errors := version_errors(part["spec"], rules_in(state, hpa.cluster), view.spec):
                raise usage(f"{hpa} would be invalid in its cluster", cause="\n".join(errors))
            else:
                plan.parts[hpa] = part
                plan.scheduled += [hpa] if renewed(view.hpa, body) is not None else []
    changed = {hpa.cluster for hpa in plan.parts}
    plan.waves = waves_of([name for name in clusters if name in changed], sizes) if changed else []
    return plan


def check_others(state: FleetState, plan: RolloutPlan, now_ms: int) -> None:
    """Check that no other rollout is changing these HPAs. Raises CommandError: one is (exit 1)."""
    for other in rollouts_in(state).values():
        held = [hpa for hpa in other.running() if hpa in plan.parts]
        if held and other.state(now_ms) in ("watching", "waiting", "reverting"):
            raise CommandError(
                f"rollout {other.id} by {other.plan.author} is changing {listed(list(map(str, held)))}",
                cause=f"It is in wave {other.wave} of {len(other.plan.waves)}.",
                next_step=f"fleethpa rollout status {other.id}, or to end it: fleethpa rollout abort {other.id}",
                code=ANSWER_IS_NO,
            )


def concerns(state: FleetState, plan: RolloutPlan, mark: RolloutMark) -> list[Concern]:
    """Say what a rollout would do, for the confirmation."""
    changes = {"; ".join(differences(state.hpas[hpa].spec, part["spec"])) for hpa, part in plan.parts.items()}
    reported = sorted(changes)[0] + (f" (and {len(changes) - 1} other changes)" if len(changes) > 1 else "")
    clusters = counted(sum(map(len, plan.waves)), "cluster")
    return [
        Concern(f"rollout changes {counted(len(plan.parts), 'HPA')} in {clusters}: {reported}"),
        Concern(
            f"{counted(len(plan.waves), 'wave')} of {span(mark.wait_ms)} each; reverted if {' or '.join(mark.fail_if)}"
        ),
        *_schedule_concerns(plan),
    ]


def _schedule_concerns(plan: RolloutPlan) -> list[Concern]:
    if not plan.scheduled:
        return []
    hpas = listed([str(hpa) for hpa in plan.scheduled])
    return [Concern(f"schedules are kept ({hpas}): the manifest holds until the last wave is over, then their rules")]

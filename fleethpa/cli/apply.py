"""`fleethpa apply -f`: central HPAs from unmodified manifests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from fleethpa.cli.common.failures import ANSWER_IS_NO, OK, USAGE, CommandError, usage
from fleethpa.cli.common.manifestfiles import (
    FieldValidation,
    Input,
    Manifest,
    read_input,
    validate_option,
    warn_about_fields,
)
from fleethpa.cli.common.selection import DEFAULT_NAMESPACE, cluster_globs
from fleethpa.cli.common.session import Session, command_options
from fleethpa.cli.common.writing import Write, confirm, dry_run, write_all, write_options
from schemas.keys import HpaId

if TYPE_CHECKING:
    from fleethpa.cli.common.views import FleetState, HpaView


@dataclass
class Plan:
    """What an apply would do: records to write, what stays as it is, and what is refused."""

    writes: list[Write] = field(default_factory=list)
    unchanged: list[HpaId] = field(default_factory=list)
    problems: list[CommandError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@click.command()
@click.option("-f", "--filename", "filenames", multiple=True, required=True, metavar="FILE|DIR|-", help="Manifests.")
@click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters to apply to; may be left out where there is one.")
@click.option("-n", "--namespace", help="Namespace of manifests that name none [default: default].")
@validate_option
@click.option("--mode", type=click.Choice(["off", "shadow", "enforce"]), help="Set the HPA's mode with it.")
@write_options
@command_options()
def apply(
    session: Session,
    /,
    filenames: tuple[str, ...],
    clusters: str | None,
    namespace: str | None,
    validate: FieldValidation,
    mode: Any,
    **written: Any,
) -> int:
    """Create or change central HPAs from autoscaling/v2, v1 or v2beta2 manifests.

    Other objects in the input are left alone, but a target's manifest that sets spec.replicas is warned about.
    """
    read = read_input(filenames, validate)
    warn_about_fields(session, read)
    if not read.hpas:
        kinds = sorted({str(other.body["kind"]) for other in read.others})
        found = f"There are only {', '.join(kinds)}." if kinds else "The input is empty."
        raise usage(f"-f {' '.join(filenames)}: no HorizontalPodAutoscaler there", cause=found)

    async def work() -> int:
        from fleethpa.cli.common.fleetstate import fleet_now
        from fleethpa.cli.common.writer import open_writer

        state = await fleet_now(session)
        targets = _clusters(state, clusters, session.config.contexts)
        plan = _plan(session, read, state, targets, namespace, mode, written["reason"])
        code = _tell(session, plan)
        if written["dry_run"]:
            return max(code, dry_run(session, plan.writes))
        if not plan.writes:
            return code
        confirm({write.cluster for write in plan.writes}, written["yes"], "apply")
        async with open_writer(session.config) as writer:
            code = max(code, await write_all(session, writer, plan.writes, written["wait"]))
        _say_mode(session, plan, mode)
        return code

    return session.run(work())


def _clusters(state: FleetState, globs: str | None, contexts: tuple[str, ...]) -> list[str]:
    from fleethpa.cli.common.finding import matching_clusters

    named = cluster_globs(globs)
    found = matching_clusters(state, named, contexts)
    if named or len(found) == 1:
        return found
    if not found:
        raise usage("no cluster is known", cause="Nothing has been heard of one.", next_step="fleethpa run observer")
    listed = ", ".join(found)
    raise usage("apply to which clusters?", cause=f"There are {listed}.", next_step=f"add -C {found[0]}, or -C '*'")


def _tell(session: Session, plan: Plan) -> int:
    for warning in plan.warnings:
        session.warn(warning)
    for hpa in plan.unchanged:
        session.out(f"hpa {hpa} unchanged")
    for problem in plan.problems:
        session.tell(problem)
    return max((problem.code for problem in plan.problems), default=OK)


def _say_mode(session: Session, plan: Plan, mode: str | None) -> None:
    created = [write for write in plan.writes if write.subject.endswith("created")]
    if created and mode is None:
        name = created[0].subject.split()[1]
        session.note(f"Its mode is its namespace's or cluster's. Next: fleethpa get hpa {name}")


# --- planning ---------------------------------------------------------------------------------------------------------


def _plan(
    session: Session,
    read: Input,
    state: FleetState,
    clusters: list[str],
    namespace: str | None,
    mode: Any,
    reason: str,
) -> Plan:
    plan = Plan()
    for manifest in read.hpas:
        scope = manifest.namespace or namespace or DEFAULT_NAMESPACE
        if namespace and manifest.namespace not in ("", namespace):
            cause = f"It says {manifest.namespace}, -n says {namespace}."
            plan.problems.append(usage(f"{manifest.source}: the namespaces do not match", cause=cause))
            continue
        body = _checked(manifest, scope, plan)
        if body is None:
            continue
        _warn_fixed_replicas(read, body, scope, plan)
        for cluster in clusters:
            _plan_one(session, plan, state, HpaId(cluster, scope, manifest.name), body, mode, reason)
    return plan


def _checked(manifest: Manifest, namespace: str, plan: Plan) -> dict[str, Any] | None:
    from fleethpa.cli.common.manifestfiles import check_hpa

    body, errors = check_hpa(manifest, namespace)
    if not errors:
        return body
    name = manifest.name or "<unnamed>"
    lines = "\n".join(f"* {error}" for error in errors) if len(errors) > 1 else errors[0]
    what = f'The HorizontalPodAutoscaler "{name}" is invalid ({manifest.source})'
    plan.problems.append(CommandError(what, cause=lines, code=USAGE))
    return None


def _warn_fixed_replicas(read: Input, body: dict[str, Any], namespace: str, plan: Plan) -> None:
    target = (body.get("spec") or {}).get("scaleTargetRef") or {}
    fixed = read.fixed_replicas(str(target.get("kind")), str(target.get("name")), namespace)
    if fixed is not None:
        plan.warnings.append(
            f"{fixed.source}: {target.get('kind')}/{target.get('name')} sets spec.replicas, so every `kubectl apply` "
            "of it resets the count that the HPA has set; take spec.replicas out of the manifest"
        )


def _plan_one(
    session: Session, plan: Plan, state: FleetState, hpa: HpaId, body: dict[str, Any], mode: Any, reason: str
) -> None:
    from schemas.autoscalers import AutoscalerSet

    rival = None if mode in ("shadow", "off") else next(rivals_of(state, hpa, body), None)
    if rival is not None:
        plan.problems.append(
            CommandError(
                f"{hpa}: {rival} owns {target_text(body)}",
                cause="Both would write the same scale subresource.",
                next_step=f"fleethpa apply … --mode shadow   |   fleethpa adopt {hpa}",
                code=ANSWER_IS_NO,
            )
        )
        return
    before = state.hpas.get(hpa)
    held = before if before is not None and before.origin == "central" else None
    changes = _changes(held, body)
    if held is not None and not changes and mode in (None, held.mode):
        plan.unchanged.append(hpa)
        return
    subject = f"hpa {hpa} created" if held is None else f"hpa {hpa} configured" + (f" ({changes})" if changes else "")
    set_ = AutoscalerSet(hpa=body, origin="central", mode=mode, author=session.config.author, reason=reason)
    plan.writes.append(Write(subject, set_, hpa.cluster, hpa.namespace))


def rivals_of(state: FleetState, hpa: HpaId, body: dict[str, Any]) -> Iterator[str]:
    """What else drives the target of an HPA in its cluster, in words."""
    wanted = _target(body)
    for view in state.hpas.values():
        same_place = view.id.namespace_key == hpa.namespace_key
        if same_place and _target(view.hpa) == wanted and (view.origin == "cluster" or view.id != hpa):
            owner = "kube-controller-manager" if view.origin == "cluster" else "fleethpa"
            yield f'{"native" if view.origin == "cluster" else "central"} HPA "{view.id.name}" ({owner})'
    for rival in state.rivals(hpa.cluster, hpa.namespace):
        target = rival.get("target") or {}
        if (target.get("group", ""), target.get("kind"), target.get("name")) == wanted:
            yield f'{rival.get("kind")} "{rival.get("name")}"'


def _target(body: dict[str, Any]) -> tuple[str, Any, Any]:
    target = (body.get("spec") or {}).get("scaleTargetRef") or {}
    group = str(target.get("apiVersion") or "").rpartition("/")[0]
    return group, target.get("kind"), target.get("name")


def target_text(body: dict[str, Any]) -> str:
    """`Deployment/checkout`."""
    _, kind, name = _target(body)
    return f"{kind}/{name}"


def _changes(before: HpaView | None, body: dict[str, Any]) -> str:
    if before is None:
        return ""
    old, new = before.spec, body.get("spec") or {}
    texts = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            both = isinstance(old.get(name), int) and isinstance(new.get(name), int)
            texts.append(f"{name} {old[name]}→{new[name]}" if both else name)
    return ", ".join(texts)

"""FleetHPA manifests: an HPA of the FleetHPA, and the clusters among which it is divided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, structs

from fleethpa.changes.manifests import HPA_KIND, FileManifest, check_hpa
from fleethpa.changes.records import PlannedRecord, deleted_record, version_read
from fleethpa.changes.specs import changed_spec, checked
from fleethpa.fleet.finding import unknown_cluster
from fleethpa.fleet.state import has_own
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import parse_duration_ms
from schemas.keys import FLEET, HpaId
from schemas.kubernetes.hpa import manifest_of, semantically_equal_spec
from schemas.kubernetes.shape import Json
from schemas.limits import FLEET_CLUSTERS, MAX_WEIGHT
from schemas.observed import FLEET_API_VERSION, AutoscalerSet, FleetCluster, FleetSpec, Mode
from streams.across.contradiction import contradiction
from streams.across.division import UNLIMITED, Strategy
from streams.analysis.fleethpas import bounded
from streams.analysis.revisions import differences

_OWN: Final = ("clusters", "placement", "whenAway")
"""Fields of a FleetHPA's spec that an HPA has not."""

AWAY_SPILL_AFTER: Final = "2m"
"""When what a cluster has counts no longer under the policy Spill, unless the manifest says so."""

_DOCS: Final = "docs/across-clusters.md lists the fields that are there"

_Replicas = Annotated[int, Meta(ge=0, le=UNLIMITED)]


class _Cluster(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=253)]
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    min_replicas: _Replicas = 0
    max_replicas: _Replicas | None = None


class _Placement(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    strategy: Strategy = "Weighted"
    rebalance_after: str = "5m"
    spill_after: str | None = None


class _WhenAway(Struct, frozen=True, forbid_unknown_fields=True):
    policy: Literal["Keep", "Spill"] = "Keep"
    after: str | None = None


class _Own(Struct, frozen=True, rename="camel"):
    clusters: Annotated[list[_Cluster], Meta(min_length=1, max_length=FLEET_CLUSTERS.most)]
    placement: _Placement = _Placement()
    when_away: _WhenAway = _WhenAway()


@dataclass(frozen=True)
class FleetManifest:
    """A FleetHPA. `body`: the HPA of the FleetHPA, defaulted and checked. `fleet`: the fields that an HPA has not."""

    source: str
    body: dict[str, Any]
    fleet: FleetSpec

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"


def fleet_manifest(manifest: FileManifest, namespace: str) -> FleetManifest:
    """Read a FleetHPA; one that names no namespace is of `namespace`.

    Raises CommandError: a field is missing, unknown, out of its range, or contradicts another (exit 2).
    """
    spec = manifest.body.get("spec")
    if manifest.body.get("apiVersion") != FLEET_API_VERSION or not isinstance(spec, dict):
        raise _invalid(manifest, f"apiVersion has to be {FLEET_API_VERSION}, and spec an object")
    whole = {name: value for name, value in spec.items() if name not in _OWN}
    as_hpa = manifest.body | {"apiVersion": "autoscaling/v2", "kind": HPA_KIND, "spec": whole}
    body, errors = check_hpa(FileManifest(manifest.source, as_hpa, manifest.duplicates, manifest.validate), namespace)
    if errors:
        raise _invalid(manifest, "\n".join(errors))
    try:
        own = msgspec.convert({name: spec[name] for name in _OWN if name in spec}, _Own)
    except msgspec.ValidationError as error:
        raise _invalid(manifest, str(error).replace("`$.", "`spec.").replace("`$`", "`spec`")) from error
    fleet = _fleet(manifest, own, body["spec"]["maxReplicas"])
    if problem := contradiction(fleet.clusters, body["spec"]["minReplicas"], body["spec"]["maxReplicas"]):
        raise _invalid(manifest, problem)
    return FleetManifest(manifest.source, body, fleet)


def _fleet(manifest: FileManifest, own: _Own, most: int) -> FleetSpec:
    """`most`: what a cluster may have that has no maximum of its own."""

    def milliseconds(text: str, field: str) -> int:
        return parse_duration_ms(text, f"{manifest.source}: spec.{field}")

    def spill_after_ms(text: str, field: str) -> int:
        if not (after_ms := milliseconds(text, field)):
            raise _invalid(manifest, f"spec.{field} has to be longer than 0")
        return after_ms

    placement, away = own.placement, own.when_away
    if away.policy == "Keep" and away.after is not None:
        raise _invalid(manifest, "spec.whenAway.after goes only with the policy Spill: Keep moves nothing at any time")
    spill_after, away_after = placement.spill_after, away.after or AWAY_SPILL_AFTER
    return FleetSpec(
        clusters=[
            FleetCluster(
                name=each.name,
                weight=each.weight,
                min_replicas=each.min_replicas,
                max_replicas=most if each.max_replicas is None else each.max_replicas,
            )
            for each in own.clusters
        ],
        strategy=placement.strategy,
        rebalance_after_ms=milliseconds(placement.rebalance_after, "placement.rebalanceAfter"),
        spill_after_ms=0 if spill_after is None else spill_after_ms(spill_after, "placement.spillAfter"),
        away_spill_after_ms=0 if away.policy == "Keep" else spill_after_ms(away_after, "whenAway.after"),
    )


def members_of(state: FleetState, fleet_hpa: HpaId) -> list[HpaId]:
    """The HPAs in the clusters of a FleetHPA, as far as they are known."""
    namesakes = [hpa for hpa, view in state.hpas.items() if view.revision and hpa._replace(cluster=FLEET) == fleet_hpa]
    return sorted([hpa for hpa in namesakes if hpa != fleet_hpa])


def present_manifest(view: HpaView, fleet: FleetSpec, settings: tuple[str, ...] = ()) -> FleetManifest:
    """The manifest of a FleetHPA that is there, with `--set`.

    Raises CommandError: a change is none, or contradicts the bounds of the clusters (exit 2).
    """
    source = f"--set on {view.id}"
    spec = checked(view.hpa, changed_spec(view.spec, settings), source) if settings else view.spec
    clusters = bounded(fleet.clusters, view.spec["maxReplicas"], spec["maxReplicas"])
    if problem := contradiction(clusters, spec["minReplicas"], spec["maxReplicas"]):
        raise usage(f"{source}: the changed FleetHPA is invalid", cause=problem)
    metadata = view.id._asdict() | {"labels": view.labels, "annotations": view.annotations}
    return FleetManifest(str(view.id), manifest_of(metadata, spec), structs.replace(fleet, clusters=clusters))


def unknown_member(manifest: FleetManifest, state: FleetState, contexts: Iterable[str]) -> CommandError | None:
    """The error for a FleetHPA that names a cluster that is not known; None: it names none."""
    metadata = manifest.body["metadata"]
    whole = HpaId(FLEET, metadata["namespace"], metadata["name"])
    return unknown_cluster(
        f"FleetHPA {whole}",
        [each.name for each in manifest.fleet.clusters],
        {*state.clusters, *contexts},
        later="take {name} out of spec.clusters, and add it again when it is listed by fleethpa get clusters",
    )


def fleet_records(
    manifest: FleetManifest, state: FleetState, revision: int, mode: Mode | None, author: str, reason: str
) -> list[PlannedRecord]:
    """The records that make a FleetHPA this one: the whole, its HPA in each cluster, and none in clusters that left.

    Args:
        revision: another one than that of any `apply` before.
        mode: of the whole; None: it stays. An HPA that joins enforces, as it wants only what the whole allots; one that
            belongs to the whole already keeps its mode. Where the cluster has an HPA of its own, both are in shadow
            with the whole.
    """
    namespace, name = manifest.body["metadata"]["namespace"], manifest.body["metadata"]["name"]
    fleet_hpa = HpaId(FLEET, namespace, name)
    fleet = manifest.fleet

    def words(hpa: HpaId) -> str:
        return "configured" if hpa in state.hpas and state.hpas[hpa].origin == "central" else "created"

    body = AutoscalerSet(
        hpa=manifest.body,
        origin="central",
        mode=mode,
        author=author,
        reason=reason,
        fleet=fleet,
        revision=revision,
        changes=version_read(state.hpas.get(fleet_hpa)),
    )
    records = [PlannedRecord(f"fleethpa {fleet_hpa} {words(fleet_hpa)}", body, FLEET, namespace)]
    for each in fleet.clusters:
        hpa = fleet_hpa._replace(cluster=each.name)
        joined = hpa not in state.hpas or state.hpas[hpa].fleet_hpa is None
        member_mode = _member_mode(state, fleet_hpa, each.name, mode, joined=joined)
        own = structs.replace(body, mode=member_mode)
        records.append(_member_record(hpa, words(hpa), own, each, state.hpas.get(hpa)))
    names = {each.name for each in fleet.clusters}
    left = [hpa for hpa in members_of(state, fleet_hpa) if hpa.cluster not in names]
    return records + [deleted_record(hpa, author, reason) for hpa in left]


def _member_mode(state: FleetState, fleet_hpa: HpaId, cluster: str, mode: Mode | None, *, joined: bool) -> Mode | None:
    """The mode that the HPA in a cluster gets with an `apply`; None: it stays."""
    known = state.hpas.get(fleet_hpa)
    fleet_mode = mode or (known.mode if known is not None else None)
    if fleet_mode in ("shadow", "enforce") and has_own(state, fleet_hpa, cluster):
        return fleet_mode
    return "enforce" if joined else None


def _member_record(
    hpa: HpaId, words: str, whole: AutoscalerSet, member: FleetCluster, known: HpaView | None
) -> PlannedRecord:
    """The record that makes an HPA the member of a whole. `whole`: with the mode that it gets. `known`: the HPA as it
    is; None: there is none.
    """
    bounds = {"minReplicas": max(1, member.min_replicas), "maxReplicas": max(1, member.max_replicas)}
    spec = whole.hpa["spec"] | bounds
    body = structs.replace(whole, hpa=whole.hpa | {"spec": spec}, fleet=None, changes=version_read(known))
    subject = f"hpa {hpa} {words}"
    if body.mode is None and known is not None and known.mode != "enforce" and not known.refused:
        subject += f" (mode {known.mode}: it takes no share)"
    return PlannedRecord(subject, body, hpa.cluster, hpa.namespace)


def fleet_hpa_from(fleet_hpa: HpaId, objects: Mapping[str, Json]) -> FleetManifest:
    """Make a FleetHPA of the HPAs that clusters have by themselves, so that none of them changes its replicas.

    Its bounds are the sums of theirs, and each cluster keeps its own. The weights are their present replicas.

    Args:
        objects: by cluster, defaulted, with their status.

    Raises CommandError: they ask for different things, or are no FleetHPA together (exit 1).
    """
    first, *others = objects
    for other in others:
        one, two = _unbounded(objects[first]["spec"]), _unbounded(objects[other]["spec"])
        if not semantically_equal_spec(one, two):
            raise CommandError(
                f"the HPAs of {first} and {other} are not made one: their specs differ beyond their bounds",
                cause=f"{first} to {other}: {'; '.join(differences(one, two))}.",
                next_step=f"give both the same, or make a manifest and fleethpa apply -f it ({_DOCS})",
            )
    members = [_present_member(name, each) for name, each in sorted(objects.items())]
    bounds = {
        "minReplicas": sum([each.min_replicas for each in members]),
        "maxReplicas": min(UNLIMITED, sum([each.max_replicas for each in members])),
    }
    own = objects[first]["metadata"]
    metadata = {"namespace": fleet_hpa.namespace, "name": fleet_hpa.name}
    metadata |= {part: own[part] for part in ("labels", "annotations") if own.get(part)}
    hpa = {"apiVersion": "autoscaling/v2", "kind": HPA_KIND, "metadata": metadata}
    body, errors = check_hpa(
        FileManifest(str(fleet_hpa), hpa | {"spec": objects[first]["spec"] | bounds}), fleet_hpa.namespace
    )
    if errors:
        raise CommandError(f"{fleet_hpa} is not made", cause="\n".join(errors), next_step=_DOCS)
    return FleetManifest(str(fleet_hpa), body, FleetSpec(clusters=members))


def _present_member(name: str, hpa: Json) -> FleetCluster:
    spec, has = hpa["spec"], (hpa.get("status") or {}).get("currentReplicas") or 1
    weight = min(max(1, has), MAX_WEIGHT)
    least, most = spec.get("minReplicas", 1), spec["maxReplicas"]
    return FleetCluster(name=name, weight=weight, min_replicas=least, max_replicas=most)


def _unbounded(spec: Json) -> Json:
    return spec | {"minReplicas": 1, "maxReplicas": 1}


def _invalid(manifest: FileManifest, cause: str) -> CommandError:
    return usage(
        f'The FleetHPA "{manifest.name or "<unnamed>"}" is invalid ({manifest.source})', cause=cause, next_step=_DOCS
    )

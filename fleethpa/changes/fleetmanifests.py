"""FleetHPA manifests: an HPA of the whole, and the clusters among which it is divided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from fleethpa.changes.manifests import HPA_KIND, FileManifest, check_hpa
from fleethpa.frame.errors import CommandError, usage
from fleethpa.frame.options import parse_duration_ms
from schemas.limits import FLEET_CLUSTERS
from streams.across.division import MAX_WEIGHT, UNLIMITED, FleetMember, Placement, Strategy, contradiction

FLEET_KIND: Final = "FleetHPA"
API_VERSION: Final = "fleethpa.io/v1alpha1"
_OWN: Final = ("clusters", "placement", "whenAway")
"""Fields of a FleetHPA's spec that an HPA has not."""

_Replicas = Annotated[int, Meta(ge=0, le=UNLIMITED)]


class _Cluster(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=253)]
    weight: Annotated[int, Meta(ge=1, le=MAX_WEIGHT)] = 1
    min_replicas: _Replicas = 0
    max_replicas: _Replicas | None = None


class _Placement(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    strategy: Strategy = "Weighted"
    rebalance_after: str = "5m"


class _WhenAway(Struct, frozen=True, forbid_unknown_fields=True):
    policy: Literal["Keep"] = "Keep"


class _Own(Struct, frozen=True, rename="camel"):
    clusters: Annotated[list[_Cluster], Meta(min_length=1, max_length=FLEET_CLUSTERS.most)]
    placement: _Placement = _Placement()
    when_away: _WhenAway = _WhenAway()


@dataclass(frozen=True)
class FleetManifest:
    """A FleetHPA. `body`: the HPA of the whole, defaulted and checked."""

    source: str
    body: dict[str, Any]
    members: tuple[FleetMember, ...]
    placement: Placement

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.body['metadata']['namespace']}/{self.body['metadata']['name']}"


def fleet_manifest(manifest: FileManifest, namespace: str) -> FleetManifest:
    """Read a FleetHPA; one that names no namespace is of `namespace`.

    Raises CommandError: a field is missing, unknown, out of its range, or contradicts another (exit 2).
    """
    spec = manifest.body.get("spec")
    if manifest.body.get("apiVersion") != API_VERSION or not isinstance(spec, dict):
        raise _invalid(manifest, f"apiVersion has to be {API_VERSION}, and spec an object")
    whole = {name: value for name, value in spec.items() if name not in _OWN}
    as_hpa = manifest.body | {"apiVersion": "autoscaling/v2", "kind": HPA_KIND, "spec": whole}
    body, errors = check_hpa(FileManifest(manifest.source, as_hpa, manifest.duplicates, manifest.validate), namespace)
    if errors:
        raise _invalid(manifest, "\n".join(errors))
    try:
        own = msgspec.convert({name: spec[name] for name in _OWN if name in spec}, _Own)
    except msgspec.ValidationError as error:
        raise _invalid(manifest, str(error).replace("`$.", "`spec.").replace("`$`", "`spec`")) from error
    members = tuple(
        [
            FleetMember(
                each.name,
                each.weight,
                each.min_replicas,
                body["spec"]["maxReplicas"] if each.max_replicas is None else each.max_replicas,
            )
            for each in own.clusters
        ]
    )
    if problem := contradiction(members, body["spec"]["minReplicas"], body["spec"]["maxReplicas"]):
        raise _invalid(manifest, problem)
    after_ms = parse_duration_ms(own.placement.rebalance_after, f"{manifest.source}: spec.placement.rebalanceAfter")
    return FleetManifest(manifest.source, body, members, Placement(own.placement.strategy, after_ms))


def _invalid(manifest: FileManifest, cause: str) -> CommandError:
    return usage(
        f'The FleetHPA "{manifest.name or "<unnamed>"}" is invalid ({manifest.source})',
        cause=cause,
        next_step="docs/across-clusters.md lists the fields that are there",
    )

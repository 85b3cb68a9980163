"""The kinds of the group `fleethpa.io` as the hub's API server gives them. Pure.

The API server has checked an object against its CustomResourceDefinition; what reads it here refuses what that cannot
say, and what an older definition let pass.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.shape import Json
from schemas.limits import TEXT, shortened
from schemas.observed import Mode

GROUP: Final = "fleethpa.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
FINALIZER: Final = "fleethpa.io/hub"
RESTORED_ANNOTATION: Final = "fleethpa.io/restored"
"""`accept`: an object that is older than the log knows it is meant."""
RESERVED: Final = ("*", "@fleet")
"""Names that no cluster has."""

_Glob = Annotated[str, Meta(min_length=1, max_length=253)]
_Globs = Annotated[list[_Glob], Meta(max_length=256)]
_Reason = Annotated[str, Meta(max_length=400)]
_Name = Annotated[str, Meta(min_length=1, max_length=253)]
_Direction = Literal["All", "ScaleUp", "ScaleDown"]


class _Spec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    pass


class CentralHpaSpec(_Spec, frozen=True, kw_only=True):
    """`clusters`: names or globs; `clusterSelector`: labels of ClusterConfigs. `namespace`, `name`: of the HPA in the
    members; empty: those of the object. `template`: the spec of an autoscaling/v2 HPA.
    """

    template: dict[str, Any]
    clusters: _Globs = []
    cluster_selector: dict[str, Any] | None = None
    namespace: str = ""
    name: str = ""
    mode: Mode | None = None


class PauseSpec(_Spec, frozen=True, kw_only=True):
    """`hpa`: of this HPA alone. `until`: RFC 3339; empty: until the object is deleted."""

    clusters: Annotated[list[_Glob], Meta(min_length=1, max_length=256)]
    namespace: str = ""
    hpa: str = ""
    direction: _Direction = "All"
    reason: _Reason = ""
    until: datetime | None = None


class ClusterPauseSpec(_Spec, frozen=True, kw_only=True):
    """`clusters`: names or globs; `*` alone: all there are and will be."""

    clusters: Annotated[list[_Glob], Meta(min_length=1, max_length=256)]
    direction: _Direction = "All"
    reason: _Reason = ""
    until: datetime | None = None


class OverrideSpec(_Spec, frozen=True, kw_only=True):
    """The replicas that an HPA wants in place of what its metrics ask for, until `until` (RFC 3339)."""

    clusters: Annotated[list[_Glob], Meta(min_length=1, max_length=256)]
    hpa: _Name
    replicas: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    until: datetime
    namespace: str = ""
    reason: _Reason = ""


class ScheduleTarget(_Spec, frozen=True, kw_only=True):
    """A CentralHPA in the namespace of the Schedule."""

    name: _Name
    kind: Literal["CentralHPA"] = "CentralHPA"


class ScheduleSpec(_Spec, frozen=True, kw_only=True):
    """`rules`: as `fleethpa schedule create --rule` takes them; the last one that applies counts."""

    target: ScheduleTarget
    rules: Annotated[list[str], Meta(min_length=1, max_length=64)]
    time_zone: str = "UTC"


class ClusterConfigSpec(_Spec, frozen=True, kw_only=True):
    """Settings of the member cluster that the object is called after, as `fleethpa settings` names them."""

    settings: dict[str, str] = {}


class FleetAccessSpec(_Spec, frozen=True, kw_only=True):
    """The reach of objects in some namespaces of the hub; all are names or globs. `memberNamespaces`: None: the
    namespace of the same name. `maxMode`: of HPAs there.
    """

    namespaces: Annotated[list[_Glob], Meta(min_length=1, max_length=256)]
    clusters: Annotated[list[_Glob], Meta(min_length=1, max_length=256)]
    member_namespaces: _Globs | None = None
    max_mode: Mode = "enforce"


class ManifestSpec(Struct, frozen=True):
    """The spec of a kind that `apply -f` reads: it is checked there."""


class HubKind(NamedTuple):
    """One kind. `spec`: the type of its spec. `scales`: its objects make HPAs, whose state they show."""

    name: str
    plural: str
    spec: type[Struct]
    namespaced: bool = True
    scales: bool = False

    @property
    def api_version(self) -> str:
        """Its group and version."""
        return API_VERSION

    @property
    def path(self) -> str:
        """Where all objects of the kind are listed."""
        return f"/apis/{API_VERSION}/{self.plural}"

    def path_of(self, namespace: str, name: str) -> str:
        """Where one object is."""
        place = f"namespaces/{namespace}/" if self.namespaced else ""
        return f"/apis/{API_VERSION}/{place}{self.plural}/{name}"


KINDS: Final = (
    HubKind("FleetAccess", "fleetaccesses", FleetAccessSpec, namespaced=False),
    HubKind("ClusterConfig", "clusterconfigs", ClusterConfigSpec, namespaced=False),
    HubKind("ClusterPause", "clusterpauses", ClusterPauseSpec, namespaced=False),
    HubKind("CentralHPA", "centralhpas", CentralHpaSpec, scales=True),
    HubKind("FleetHPA", "fleethpas", ManifestSpec, scales=True),
    HubKind("CapacityGroup", "capacitygroups", ManifestSpec),
    HubKind("Pause", "pauses", PauseSpec),
    HubKind("Override", "overrides", OverrideSpec),
    HubKind("Schedule", "schedules", ScheduleSpec),
)
"""In the order in which they are written: who may, settings, pauses, and then what scales."""
BY_NAME: Final = {kind.name: kind for kind in KINDS}


class HubObject(NamedTuple):
    """An object of the hub's API. `spec`: None where it cannot be read, which `problem` says in words."""

    kind: HubKind
    body: Json
    spec: Any = None
    problem: str = ""

    @property
    def metadata(self) -> Json:
        """Its metadata."""
        metadata: Json = self.body["metadata"]
        return metadata

    @property
    def namespace(self) -> str:
        """Its namespace in the hub; empty: it has none."""
        return str(self.metadata.get("namespace") or "")

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.metadata["name"])

    @property
    def key(self) -> str:
        """Its name in the log: `CentralHPA/shop/web`, `ClusterConfig/east`."""
        return "/".join(filter(None, (self.kind.name, self.namespace, self.name)))

    @property
    def uid(self) -> str:
        """Its uid."""
        return str(self.metadata.get("uid") or "")

    @property
    def generation(self) -> int:
        """Rises with each change of its spec."""
        return int(self.metadata.get("generation") or 0)

    @property
    def is_ending(self) -> bool:
        """Whether somebody has deleted it, and it waits for its finalizer."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def has_finalizer(self) -> bool:
        """Whether it cannot go before the log has its end."""
        return FINALIZER in (self.metadata.get("finalizers") or ())

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations."""
        annotations: dict[str, str] = self.metadata.get("annotations") or {}
        return annotations

    @property
    def created(self) -> tuple[str, str]:
        """Its place among objects that state the same: the older one comes first."""
        return str(self.metadata.get("creationTimestamp") or ""), self.uid

    @property
    def path(self) -> str:
        """Where it is in the API."""
        return self.kind.path_of(self.namespace, self.name)


def hub_object(kind: HubKind, body: Json) -> HubObject:
    """Read an object of a kind."""
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return HubObject(kind, body, problem="spec has to be an object")
    try:
        return HubObject(kind, body, msgspec.convert(spec, kind.spec))
    except msgspec.ValidationError as error:
        return HubObject(kind, body, problem=str(error).replace("`$.", "`spec.").replace("`$`", "`spec`"))


def until_ms(until: datetime | None) -> int:
    """When something ends (Unix ms); 0: never by itself."""
    return 0 if until is None else round(until.timestamp() * 1000)


def is_spec_field(fields: Any) -> bool:
    """Whether the fields of a manager (`fieldsV1`) are in the spec."""
    return isinstance(fields, dict) and "f:spec" in fields


class Author(NamedTuple):
    """Who wrote the spec of an object last. `proven`: the API server wrote down whom it had authenticated."""

    name: str
    proven: bool = False


AUTHOR_ANNOTATION: Final = "fleethpa.io/author"


def author_of(item: HubObject, stamped_since_ms: int | None) -> Author:
    """The author of an object.

    Args:
        stamped_since_ms: since when the admission policies have written and protected the annotation; None: they do
            not.
    """
    managers = [
        each
        for each in item.metadata.get("managedFields") or ()
        if is_spec_field(each.get("fieldsV1")) and not each.get("subresource")
    ]
    newest = max(managers, key=lambda each: str(each.get("time") or ""), default=None)
    name = item.annotations.get(AUTHOR_ANNOTATION, "")
    written_ms = parse_time_ms(str(newest.get("time"))) if newest is not None and newest.get("time") else None
    if name and stamped_since_ms is not None and written_ms is not None and written_ms > stamped_since_ms:
        return Author(shortened(name, TEXT), proven=True)
    return Author(shortened(str(newest.get("manager") or ""), TEXT) if newest is not None else "")

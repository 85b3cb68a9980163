"""The hub as write verbs with `--hub` see it: its API server, the objects there, and which of them a name means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from fleethpa.changes.writing import Concern, WriteOptions
from fleethpa.fleet.finding import Ref, Selection
from fleethpa.fleet.views import object_command
from fleethpa.frame.errors import CommandError, not_found, usage
from fleethpa.frame.session import Session
from fleethpa.hub.access import covers
from fleethpa.hub.exporting import object_of
from fleethpa.hub.kinds import AUTHOR_ANNOTATION, BY_NAME, HubKind, HubObject, OverrideSpec, PauseSpec, hub_object
from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.client import ClusterClient
from schemas.keys import EVERY_CLUSTER, FLEET
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_KIND

FIELD_MANAGER: Final = "fleethpa-cli"
"""As whom the API server notes which fields of an object these verbs have set."""


class HubChange(NamedTuple):
    """One object to be applied (`body`) or, without a body, to be deleted. `uid`: of the one that is meant.
    `generation`: of the one that was read; 0: whatever is there, it becomes this.
    """

    kind: HubKind
    namespace: str
    name: str
    body: Json | None = None
    uid: str = ""
    generation: int = 0

    @property
    def key(self) -> str:
        """Its name, as `HubObject.key`."""
        return "/".join(filter(None, (self.kind.name, self.namespace, self.name)))


@dataclass
class HubSession:
    """The session of a write verb with the API server of the hub. `concerns`: what the user is asked to confirm before
    anything changes; `problems`: the errors that do not keep the rest from being done.
    """

    session: Session
    client: ClusterClient
    options: WriteOptions
    concerns: list[Concern] = field(default_factory=list)
    problems: list[CommandError] = field(default_factory=list)

    def home(self, namespace: str) -> str:
        """The namespace of the hub for what is about a namespace of members."""
        return self.session.config.hub_namespace or namespace

    async def listed(self, kind: str, home: str = "") -> list[HubObject]:
        """All objects of a kind in a namespace of the hub, those that are being deleted left out."""
        page = await self.client.get_page(BY_NAME[kind].path_of(home, "").rstrip("/"))
        objects = [hub_object(BY_NAME[kind], item) for item in page.items]
        return [item for item in objects if not item.is_ending]

    async def cluster_wide(self, kind: str, name: str) -> HubObject | None:
        """A cluster-wide object; None: it is not there."""
        try:
            return hub_object(BY_NAME[kind], await self.client.get(BY_NAME[kind].path_of("", name)))
        except ClusterError as error:
            if isinstance(error, ApiError) and error.reason == "NotFound":
                return None
            raise


# --- what is meant ----------------------------------------------------------------------------------------------------


def asked_clusters(cluster: str | None, globs: Sequence[str], name: str) -> list[str]:
    """The clusters that a name means, as names or globs. Raises CommandError: -C excludes the one of the name."""
    if cluster is None:
        return list(globs) or [EVERY_CLUSTER]
    if globs and not any(fnmatchcase(cluster, glob) for glob in globs):
        raise usage(f"-C {','.join(globs)} does not mean cluster {cluster} of {name}")
    return [cluster]


def stated_clusters(item: HubObject) -> list[str]:
    """The clusters that an object is about, as names or globs."""
    spec = item.body.get("spec") or {}
    if spec.get("clusterSelector") is not None:
        return [EVERY_CLUSTER]
    clusters = [each["name"] if isinstance(each, dict) else each for each in spec.get("clusters") or ()]
    return [str(each) for each in clusters]


def is_within(item: HubObject, asked: Sequence[str]) -> bool:
    """Whether all clusters of an object are meant."""
    return all(covers(asked, each) for each in stated_clusters(item))


def overlaps(item: HubObject, asked: Sequence[str]) -> bool:
    """Whether an object is about a cluster that is meant, as far as names and globs show it."""
    stated = stated_clusters(item)
    return any(fnmatchcase(one, other) or fnmatchcase(other, one) for one in stated for other in asked)


def hpa_of(item: HubObject) -> tuple[str, str]:
    """Namespace and name in the members of the HPA that an object makes, pauses or overrides."""
    spec = item.spec
    namespace = getattr(spec, "namespace", "") or item.namespace
    if isinstance(spec, PauseSpec | OverrideSpec):
        return namespace, spec.hpa
    return namespace, getattr(spec, "name", "") or item.name


def parts(hub: HubSession, objects: Iterable[HubObject], asked: Sequence[str]) -> list[HubObject]:
    """Those of which all clusters are meant; one of which only a part is meant is a problem that names it."""
    whole = []
    for item in objects:
        if is_within(item, asked):
            whole.append(item)
        elif overlaps(item, asked):
            hub.problems.append(
                usage(
                    f"{item.key} is about further clusters than {', '.join(asked)}",
                    cause=f"It is about {', '.join(stated_clusters(item))}, and would change for all of them.",
                    next_step=f"{kubectl(hub, 'edit', item.key)}, or name no cluster",
                )
            )
    return whole


def kubectl(hub: HubSession, verb: str, key: str) -> str:
    """The command of kubectl about an object of the hub."""
    return object_command(verb, key).replace("kubectl ", f"kubectl --context {hub.session.config.hub} ", 1)


async def makers(
    hub: HubSession, ref: Ref, namespace: str, globs: Sequence[str], kinds: Sequence[str]
) -> list[HubObject]:
    """The objects that make the HPAs of a name. Raises CommandError: there is none (exit 4)."""
    place, home = (ref.namespace or namespace, ref.name), hub.home(ref.namespace or namespace)
    clusters = asked_clusters(None if ref.cluster == FLEET else ref.cluster, globs, str(ref))
    wanted = [kind for kind in kinds if ref.cluster != FLEET or kind == FLEET_KIND]
    known = [item for kind in wanted for item in await hub.listed(kind, home)]
    before = len(hub.problems)
    objects = parts(hub, (item for item in known if hpa_of(item) == place), clusters)
    if not objects and len(hub.problems) == before:
        raise not_found(
            f"no {' or '.join(wanted)} in namespace {home} of the hub makes {'/'.join(place)} in {', '.join(clusters)}",
            cause="An HPA that no object makes belongs to the log, and is changed there.",
            next_step=f"kubectl --context {hub.session.config.hub} get centralhpas -n {home}",
        )
    return objects


def refs_of(selection: Selection) -> list[Ref]:
    """The names of a selection. Raises CommandError: it is of labels or of all namespaces (exit 2)."""
    if selection.labels is not None or selection.namespace is None:
        step = "name the HPAs, or use kubectl with -l"
        raise usage("-l and -A are not there with --hub", cause="Objects are changed by their names.", next_step=step)
    return list(selection.refs)


# --- what is ours -----------------------------------------------------------------------------------------------------


def own_fields(item: HubObject) -> Json:
    """The part of an object that these verbs have set: server-side apply takes away what is left out of it."""
    fields: Json = {}
    for each in item.metadata.get("managedFields") or ():
        is_ours = each.get("manager") == FIELD_MANAGER and each.get("operation") == "Apply"
        if is_ours and not each.get("subresource"):
            fields = _owned(item.body, each.get("fieldsV1") or {})
    ((fields.get("metadata") or {}).get("annotations") or {}).pop(AUTHOR_ANNOTATION, None)  # of the API server
    return {name: fields[name] for name in ("metadata", "spec") if name in fields}


def _owned(value: Json, fields: Json) -> Json:
    part: Json = {}
    for field_, below in fields.items():
        name = field_.removeprefix("f:")
        if not field_.startswith("f:") or name not in value:
            continue
        is_map = isinstance(value[name], dict) and any(each.startswith("f:") for each in below)
        part[name] = _owned(value[name], below) if is_map else value[name]
    return part


def changed(item: HubObject, spec: Json) -> HubChange:
    """Set fields of an object, and keep those that these verbs have set before, in the version that was read."""
    body = own_fields(item)
    head = (body.get("metadata") or {}) | {"resourceVersion": item.metadata["resourceVersion"]}
    changed_body = object_of(item.kind.name, item.name, (body.get("spec") or {}) | spec, item.namespace)
    changed_body["metadata"] |= head
    return HubChange(item.kind, item.namespace, item.name, changed_body, item.uid, item.generation)


def to_delete(item: HubObject) -> HubChange:
    """Delete an object, and no other of its name."""
    return HubChange(item.kind, item.namespace, item.name, uid=item.uid)


def to_apply(body: Json, home: str = "") -> HubChange:
    """Apply an object. In a namespace of the hub that is not that of its HPA it names this, and is called after it."""
    kind, head = BY_NAME[body["kind"]], body["metadata"]
    namespace = head.get("namespace", "")
    if home and namespace != home:
        body = body | {"spec": body["spec"] | {"namespace": namespace}}
        body["metadata"] = head | {"namespace": home, "name": f"{head['name']}-{namespace}"}
    return HubChange(kind, body["metadata"].get("namespace", ""), body["metadata"]["name"], body)

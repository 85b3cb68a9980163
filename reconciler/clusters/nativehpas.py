"""Every request about objects of kind HorizontalPodAutoscaler in a member cluster, and the paths of what they scale."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from reconciler.clusters.answers import ApiError, ClusterError, UnreachableError, reading, version_of
from reconciler.clusters.client import REQUEST_TIMEOUT_S, ClusterClient
from reconciler.core.objects import DERIVED_KINDS
from reconciler.core.statuses import HpaAnswer, LiveHpa, body_of, live_hpa, written
from schemas.kubernetes.shape import HPA_HEAD, Json, JsonView

# --- paths of kinds ---------------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

KNOWN_FOR_S = 300.0
UNKNOWN_FOR_S = 15.0


@dataclass(frozen=True)
class Resource:
    """A namespaced resource of the API; `scale`: it has the scale subresource."""

    group: str
    version: str
    plural: str
    kind: str
    scale: bool = False

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Path of the collection (of all namespaces without one), an object or its subresource."""
        base = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = [f"namespaces/{namespace}"] if namespace else []
        return "/".join([base, *inside, self.plural, *filter(None, (name, subresource))])

    @property
    def qualified(self) -> str:
        """Plural and group, such as `ingresses.networking.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class UnknownKindError(ApiError):
    """The API server does not know the kind, so no request can be made; worded as apimachinery's `NoKindMatchError`."""

    def __init__(self, kind: str, group: str) -> None:
        super().__init__(404, f'no matches for kind "{kind}" in group "{group}"')


class Discovery:
    """The resources of one cluster, by kind and group; each answer is kept for some minutes."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._groups: dict[str, tuple[float, dict[str, Resource]]] = {}

    async def resource(self, kind: str, group: str) -> Resource:
        """The resource of a kind; among versions the one with the scale subresource, else the preferred one.

        Raises UnknownKindError: the cluster has no such resource. Raises ClusterError: the API server cannot be asked.
        """
        if plural := DERIVED_KINDS.get((group, kind)):
            return Resource(group, "v1", plural, kind, scale=True)
        until, kinds = self._groups.get(group, (0.0, {}))
        if time.monotonic() >= until or (kind not in kinds and until - time.monotonic() > UNKNOWN_FOR_S):
            kinds = await self._discover(group)
            lasts = KNOWN_FOR_S if kind in kinds else UNKNOWN_FOR_S
            self._groups[group] = (time.monotonic() + lasts, kinds)
        if kind not in kinds:
            raise UnknownKindError(kind, group)
        return kinds[kind]

    async def of_metric(self, group_kind: str) -> Resource:
        """The resource of what an Object metric describes. Raises ClusterError: as `resource`, with upstream's text."""
        kind, _, group = group_kind.partition(".")
        try:
            return await self.resource(kind, group)
        except UnknownKindError as error:
            raise ClusterError(f"unable to map kind {group_kind} to resource: {error}") from error

    async def served(
        self, kind: str, group: str, *, look_every_s: float, failed: Callable[[ClusterError], None] = lambda error: None
    ) -> Resource:
        """The resource of a kind; waits until the cluster has one. `failed`: called with what prevents a look."""
        while True:
            try:
                return await self.resource(kind, group)
            except UnknownKindError as error:
                log.debug("no such kind yet", extra={"cluster": self._client.name, "error": str(error)})
            except ClusterError as error:
                log.info("a kind cannot be looked up", extra={"cluster": self._client.name, "error": str(error)})
                failed(error)
            await asyncio.sleep(look_every_s)

    async def versions(self, group: str) -> list[str]:
        """Versions of an API group, the preferred one first; none where the group is not served."""
        try:
            answer = await self._client.get(f"/apis/{group}")
        except ClusterError as error:
            if error.is_missing:
                return []
            raise
        with reading(f"the answer to /apis/{group} cannot be read"):
            names = [str(each["version"]) for each in answer.get("versions") or ()]
            preferred = (answer.get("preferredVersion") or {}).get("version")
        return sorted(names, key=lambda name: name != preferred)

    async def _discover(self, group: str) -> dict[str, Resource]:
        kinds: dict[str, Resource] = {}
        for version in await self.versions(group) if group else ["v1"]:
            base = f"/apis/{group}/{version}" if group else f"/api/{version}"
            answer = await self._client.get(base)
            with reading(f"the answer to {base} cannot be read"):
                listed = answer.get("resources") or ()
                scaled = {each["name"].partition("/")[0] for each in listed if each["name"].endswith("/scale")}
                for each in listed:
                    resource = Resource(group, version, each["name"], each["kind"], each["name"] in scaled)
                    if (
                        "/" not in each["name"]
                        and each.get("namespaced")
                        and _better(resource, kinds.get(each["kind"]))
                    ):
                        kinds[each["kind"]] = resource
        # Upstream finds each kind in lower case, too. Source: client-go restmapper.NewDiscoveryRESTMapper v0.37.1.
        return {kind.lower(): resource for kind, resource in kinds.items()} | kinds


def _better(resource: Resource, known: Resource | None) -> bool:
    return known is None or (resource.scale and not known.scale)


# --- native HPAs ------------------------------------------------------------------------------------------------------

_PAGE = 500


def hpa_path(namespace: str, name: str = "") -> str:
    """Path of a native HPA, of those of a namespace, or (both empty) of all."""
    scope = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/autoscaling/v2{scope}/horizontalpodautoscalers" + (f"/{name}" if name else "")


class NativeHpas:
    """Reads and changes the HPA objects of one cluster.

    Every method raises ClusterError where the API server refuses or does not answer. An object that is not there is
    no error where its absence is an answer.
    """

    def __init__(self, client: ClusterClient, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """`timeout_s`: for each request."""
        self._client, self._timeout_s = client, timeout_s

    async def listed(self, namespace: str = "", *, label: str = "") -> list[Json]:
        """All HPAs of a namespace or (empty) of the cluster, those with the label `label=true` if it is given.

        The list is consistent: as no resource version is asked for, it does not come from a cache that lags.
        """
        query: dict[str, Any] = {"limit": _PAGE} | ({"labelSelector": f"{label}=true"} if label else {})
        items: list[Json] = []
        while True:
            path = f"{hpa_path(namespace)}?{urlencode(query)}"
            page = await self._client.get_object(path, timeout_s=self._timeout_s)
            with reading("the list of native HPAs cannot be read"):
                items += [HPA_HEAD | each for each in page.get("items") or ()]
            if not (token := page["metadata"].get("continue")):
                return items
            query["continue"] = token

    async def get(self, namespace: str, name: str) -> Json | None:
        """One HPA; None: there is none of this name."""
        try:
            return await self._client.get_object(hpa_path(namespace, name), timeout_s=self._timeout_s)
        except ClusterError as error:
            if error.is_missing:
                return None
            raise

    async def create(self, hpa: JsonView, *, dry_run: bool = False) -> Json:
        """Create an HPA; with `dry_run` only learn whether quotas, webhooks and policies let it pass."""
        path = hpa_path(hpa["metadata"]["namespace"]) + ("?dryRun=All" if dry_run else "")
        return await self._client.request("POST", path, body=hpa, timeout_s=self._timeout_s)

    async def replace(self, hpa: JsonView) -> Json:
        """Replace an HPA, on condition of the resource version in it."""
        return await self._client.put(_path_of(hpa), hpa, timeout_s=self._timeout_s)

    async def replace_status(self, hpa: JsonView) -> Json:
        """Replace the status of an HPA, on condition of the resource version in it."""
        return await self._client.put(f"{_path_of(hpa)}/status", hpa, timeout_s=self._timeout_s)

    async def delete(self, namespace: str, name: str, **preconditions: str) -> None:
        """Delete an HPA; one that has gone already is as good.

        Args:
            preconditions: `uid` and `resourceVersion` that it must have: a newer one of the same name stays.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self._client.request("DELETE", hpa_path(namespace, name), body=body, timeout_s=self._timeout_s)
        except ClusterError as error:
            if not error.is_missing:
                raise

    async def live(self, namespace: str, name: str) -> LiveHpa:
        """An HPA as it is kept for the next write of its status."""
        try:
            return live_hpa(await self._client.get_as(HpaAnswer, hpa_path(namespace, name)))
        except ValueError as error:
            raise _no_hpa(error) from error

    async def show(self, namespace: str, name: str, hpa: LiveHpa) -> LiveHpa:
        """Write the status of an HPA that is kept; return it with its new resource version."""
        try:
            path = f"{hpa_path(namespace, name)}/status"
            return written(hpa, version_of(await self._client.put_bytes(path, body_of(hpa)), path))
        except ValueError as error:
            raise _no_hpa(error) from error


def _no_hpa(error: ValueError) -> UnreachableError:
    return UnreachableError(f"the answer is not an HPA: {error}")


def _path_of(hpa: JsonView) -> str:
    return hpa_path(hpa["metadata"]["namespace"], hpa["metadata"]["name"])

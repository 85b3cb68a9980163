"""The native HPAs of one member cluster: every request of fleethpa about objects of kind HorizontalPodAutoscaler."""

from typing import Any
from urllib.parse import urlencode

from reconciler.clusters.answers import ClusterError, UnreachableError, reading
from reconciler.clusters.client import REQUEST_TIMEOUT_S, ClusterClient
from reconciler.core.livehpas import HpaAnswer, LiveHpa, VersionAnswer, body_of, live_hpa, written
from reconciler.core.objects import HPA_HEAD
from schemas.kubernetes.shape import Json, JsonView

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
        """Write the status of an HPA that is kept; gives it with its new resource version."""
        try:
            answer = await self._client.put_as(VersionAnswer, f"{hpa_path(namespace, name)}/status", body_of(hpa))
            return written(hpa, answer)
        except ValueError as error:
            raise _no_hpa(error) from error


def _no_hpa(error: ValueError) -> UnreachableError:
    return UnreachableError(f"the answer is not an HPA: {error}")


def _path_of(hpa: JsonView) -> str:
    return hpa_path(hpa["metadata"]["namespace"], hpa["metadata"]["name"])

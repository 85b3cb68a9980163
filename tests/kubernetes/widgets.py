"""The operator of the tests' custom resource: it makes a Deployment for each Widget, which shows its count."""

import asyncio
import logging
from typing import Any

from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.client import ClusterClient
from tests.kubernetes.workloads import WIDGETS, deployment

Json = dict[str, Any]

_EVERY_S = 0.5
_GROUP = WIDGETS.partition(".")[2]

log = logging.getLogger(__name__)


async def operate(client: ClusterClient) -> None:
    """Bring Deployments in line with Widgets, and the Widgets' status in line with the Deployments, until cancelled."""
    while True:
        try:
            for item in (await client.get(f"/apis/{_GROUP}/v1/widgets"))["items"]:
                await _reconcile(client, item)
        except ClusterError as error:
            log.info("widgets not reconciled: %s", error)  # before the CRD is there, and in outages
        await asyncio.sleep(_EVERY_S)


async def _reconcile(client: ClusterClient, item: Json) -> None:
    namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
    wanted = item["spec"]["replicas"]
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    try:
        made = await client.get(f"{deployments}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise
        owner = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": name, "uid": item["metadata"]["uid"]}
        owned = deployment(name, wanted)
        owned["metadata"] |= {"namespace": namespace, "ownerReferences": [owner | {"controller": True}]}
        made = await client.request("POST", deployments, body=owned)
    if made["spec"]["replicas"] != wanted:
        made = await client.merge_patch(f"{deployments}/{name}", {"spec": {"replicas": wanted}})
    status = {"replicas": (made.get("status") or {}).get("replicas", 0), "selector": f"app={name}"}
    if item.get("status") != status:
        path = f"/apis/{_GROUP}/v1/namespaces/{namespace}/widgets/{name}/status"
        await client.merge_patch(path, {"status": status})

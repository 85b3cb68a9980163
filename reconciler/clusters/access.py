"""Whether the API server of a cluster would allow something: asked before, so that nothing has to be refused."""

from typing import Any, Final

from reconciler.clusters.client import ClusterClient

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def may(client: ClusterClient, **spec: dict[str, str]) -> bool:
    """Ask about `resourceAttributes` or `nonResourceAttributes`, as a SelfSubjectAccessReview has them.

    Raises ClusterError: the review itself got no answer, or is refused.
    """
    body: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = await client.request("POST", REVIEWS, body=body)
    return bool((answer.get("status") or {}).get("allowed"))

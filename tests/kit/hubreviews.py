"""Stands for the hub's API server where it says who somebody is and what they may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reconciler.clusters.answers import UnreachableError
from schemas.kubernetes.shape import Json

GRANTS = (
    {"namespaces": ["shop"], "clusters": ["east"]},
    {"namespaces": ["p*"], "clusters": ["*"], "memberNamespaces": ["pay-*"]},
)


class ReviewingCluster:
    """Stands for the client of the hub's API server. It knows three tokens, each the name of its owner: `anna`, who may
    see what the namespace `shop` may, `ben`, who may see nothing, and `root`.

    Args:
        grants: the specs of the FleetAccesses.
    """

    def __init__(self, grants: Sequence[dict[str, Any]] = GRANTS) -> None:
        self.asked: list[str] = []
        self.rights: set[tuple[str, str, str]] = {("anna", "centralhpas", "shop")}
        self.is_away = False
        self._grants = grants

    async def request(self, method: str, path: str, *, body: Json) -> Json:
        """Answer a review."""
        self.asked.append(path.rpartition("/")[2])
        if self.is_away:
            raise UnreachableError("no answer")
        if path.endswith("tokenreviews"):
            name = body["spec"]["token"]
            is_known = name in ("anna", "ben", "root")
            user = {"username": name, "groups": ["team"]}
            return {"status": {"authenticated": is_known, "user": user if is_known else {}}}
        spec = body["spec"]
        place = spec["resourceAttributes"].get("namespace", "")
        allowed = spec["user"] == "root" or (spec["user"], spec["resourceAttributes"]["resource"], place) in self.rights
        return {"status": {"allowed": allowed}}

    async def get_object(self, path: str) -> Json:
        """Answer a list."""
        if path.endswith("/namespaces"):
            return {"items": [{"metadata": {"name": name}} for name in ("shop", "pay", "kube-system")]}
        return {"items": [{"metadata": {"name": str(n)}, "spec": spec} for n, spec in enumerate(self._grants)]}

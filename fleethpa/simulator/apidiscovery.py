"""Paths of the API server that name no resource: health, version, discovery, OpenAPI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fleethpa.simulator import resources
from fleethpa.simulator.apistatus import UnknownGroupError, not_served
from schemas.kubernetes.jsontypes import Json

HEALTH: Final = ("/healthz", "/livez", "/readyz")
OPEN: Final = (*HEALTH, "/version")
"""Paths that need no token."""


def document(path: str, metrics_entries: Callable[[str], list[Json]]) -> Json | str:
    """Return what a path shows; `metrics_entries` lists the metrics of a metrics API group.

    Raises:
        StatusError: 404.
    """
    parts = path.strip("/").split("/")
    found: Json | str | None = None
    if path in HEALTH:
        found = "ok"
    elif path == "/apis":
        # A metrics API without metrics is as good as not installed; kubectl takes an empty list for a failure.
        empty = [group for group in resources.METRICS_GROUPS if not metrics_entries(group)]
        found = {"kind": "APIGroupList", "apiVersion": "v1", "groups": resources.groups(empty)}
    elif parts[0] in _FIXED and len(parts) == 1:
        found = _FIXED[parts[0]]()
    elif parts[0] == "apis" and len(parts) == 2:
        found = resources.group(parts[1])
    elif parts[0] == "apis":
        extra = metrics_entries(parts[1]) if parts[1] in resources.METRICS_GROUPS else []
        found = resources.resource_list(parts[1], parts[2], extra)
    elif parts[0] == "api" and len(parts) == 2:
        found = resources.resource_list("", parts[1])
    elif parts[:2] == ["openapi", "v3"]:
        found = _openapi(parts[2:])
    if found is None and parts[0] == "apis" and not resources.has_group(parts[1]):
        raise UnknownGroupError
    if found is None:
        raise not_served()
    return found


def _version() -> Json:
    major, minor, _ = resources.VERSION.removeprefix("v").split(".")
    return {"major": major, "minor": minor, "gitVersion": f"{resources.VERSION}+simulated", "platform": "linux/amd64"}


def _core() -> Json:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


_FIXED: dict[str, Callable[[], Json]] = {"version": _version, "api": _core}


def _openapi(parts: list[str]) -> Json | None:
    if not parts:
        return resources.openapi_index()
    if parts[0] == "api" and len(parts) == 2:
        return resources.openapi("", parts[1])
    return resources.openapi(parts[1], parts[2]) if len(parts) == 3 else None

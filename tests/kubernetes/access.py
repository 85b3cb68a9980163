"""What a user asked an API server for, from its audit log, in the words of access control."""

from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]
Permission = tuple[str, str, str]
"""API group, resource (with its subresource, as in a Role) and verb."""

_BY_METRIC = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io"})
"""Groups whose resources are called after metrics, so that a Role names them all by `*`."""


def granted(roles: Iterable[Mapping[str, Any]]) -> set[Permission]:
    """What the rules of Roles and ClusterRoles allow."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role.get("rules") or ()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(events: Iterable[Json]) -> set[Permission]:
    """What the requests of an audit log needed; discovery and access reviews, which everybody may ask for, left out."""
    return {permission for event in events if (permission := _permission(event)) is not None}


def refused(events: Iterable[Json]) -> list[str]:
    """The requests that access control refused: verb and path."""
    return [f"{event['verb']} {event['requestURI']}" for event in events if event["responseStatus"]["code"] == 403]


def _permission(event: Json) -> Permission | None:
    about = event.get("objectRef")
    if about is None or "resource" not in about or about.get("apiGroup") == "authorization.k8s.io":
        return None
    group, resource = about.get("apiGroup", ""), about["resource"]
    if group in _BY_METRIC:
        return group, "*", event["verb"]
    return group, resource + (f"/{about['subresource']}" if about.get("subresource") else ""), event["verb"]

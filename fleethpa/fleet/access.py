"""What a member cluster allows this user: its API server is asked about each permission that fleethpa needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.manifests import custom_rules, enforcing_rules, observing_rules, rule_lines
from reconciler.core.objects import DERIVED_KINDS, target_of

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient, ClusterConfig

OPTIONAL_GROUPS: Final = ("custom.metrics.k8s.io", "external.metrics.k8s.io", "keda.sh")
"""Without these fleethpa works; what needs them does not."""
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Permission:
    """One verb on one resource (`deployments/scale`). `optional`: only what needs it goes without."""

    group: str
    resource: str
    verb: str

    @property
    def optional(self) -> bool:
        """Whether fleethpa works without it."""
        return self.group in OPTIONAL_GROUPS

    def __str__(self) -> str:
        name, slash, sub = self.resource.partition("/")
        return f"{self.verb} {name}{f'.{self.group}' if self.group else ''}{slash}{sub}"


@dataclass(frozen=True)
class Access:
    """What one cluster answered. `error`: why it did not. `denied`: which of the asked permissions are lacking."""

    cluster: str
    version: str = ""
    asked: int = 0
    denied: tuple[Permission, ...] = ()
    error: str = ""

    @property
    def missing_rules(self) -> list[str]:
        """The rules that give what is lacking, as lines to paste below `rules:`."""
        return rule_lines(map(str, self.denied))

    @property
    def custom(self) -> list[str]:
        """Custom resources for which something is lacking, as `widgets.example.com`."""
        known = {(each.group, each.resource) for each in wanted(enforce=True)}
        lacking = [each for each in self.denied if (each.group, each.resource) not in known]
        return list(dict.fromkeys(f"{each.resource.partition('/')[0]}.{each.group}" for each in lacking))

    @property
    def usable(self) -> bool:
        """Whether fleethpa can do its work there."""
        return not self.error and all(each.optional for each in self.denied)


def wanted(*, enforce: bool) -> list[Permission]:
    """The permissions of `fleethpa clusters rbac`."""
    return _permissions(observing_rules() + (enforcing_rules() if enforce else []))


def wanted_custom(resource: str, *, enforce: bool) -> list[Permission]:
    """The permissions for a custom resource that is scaled (`widgets.example.com`)."""
    return _permissions(custom_rules(resource, enforce=enforce))


def _permissions(rules: Iterable[dict[str, Any]]) -> list[Permission]:
    return [
        Permission(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


async def review(
    cluster: ClusterConfig, permissions: Sequence[Permission], namespace: str = "", *, enforce: bool = False
) -> Access:
    """Ask a cluster for its version, about these permissions and those for the custom resources that HPAs scale."""
    from reconciler.clusters.client import ClusterClient

    client, gate = ClusterClient(cluster), asyncio.Semaphore(_AT_ONCE)

    async def allowed(each: Permission) -> bool:
        async with gate:
            return await _allowed(client, each, namespace)

    try:
        version = str((await client.get("/version")).get("gitVersion", ""))
        custom = await _custom_resources(client, namespace)
        permissions = [*permissions, *(each for name in custom for each in wanted_custom(name, enforce=enforce))]
        answers = await asyncio.gather(*map(allowed, permissions))
    except ClusterError as error:
        return Access(cluster.name, error=str(error) or type(error).__name__)
    finally:
        await client.close()
    denied = tuple(each for each, yes in zip(permissions, answers, strict=True) if not yes)
    return Access(cluster.name, version, len(permissions), denied)


async def _custom_resources(client: ClusterClient, namespace: str) -> list[str]:
    """The custom resources that HPAs scale, as `widgets.example.com`; none where HPAs may not be listed."""
    from reconciler.clusters.discovery import Discovery
    from reconciler.clusters.nativehpas import NativeHpas

    try:
        hpas = await NativeHpas(client).listed(namespace)
    except ApiError:
        return []
    kinds = {(target.group, target.kind) for target in map(target_of, hpas)} - set(DERIVED_KINDS)
    discovery, found = Discovery(client), []
    for group, kind in sorted(kinds):
        try:
            found.append((await discovery.resource(kind, group)).qualified)
        except ApiError:
            continue  # no such kind: the HPA's own AbleToScale condition says so
    return found


async def _allowed(client: ClusterClient, each: Permission, namespace: str) -> bool:
    name, _, sub = each.resource.partition("/")
    attributes = {"group": each.group, "resource": name, "verb": each.verb}
    attributes |= ({"subresource": sub} if sub else {}) | ({"namespace": namespace} if namespace else {})
    return await client.may(resourceAttributes=attributes)

"""Which namespaces of the hub may act where: FleetAccess objects, folded. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, get_args

from fleethpa.hub.kinds import FleetAccessSpec, HubObject
from schemas.observed import Mode

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
"""From doing nothing to writing."""
_WILD: Final = frozenset("*?[")


class FleetAccesses:
    """The sum of all FleetAccess objects; without one nothing is allowed."""

    def __init__(self, objects: Iterable[HubObject] = ()) -> None:
        self._grants: list[FleetAccessSpec] = [
            item.spec for item in objects if isinstance(item.spec, FleetAccessSpec) and not item.is_ending
        ]

    def allows(self, hub_namespace: str, cluster: str, namespace: str) -> bool:
        """Whether objects of a namespace of the hub may be about a namespace of a member cluster. `cluster` and
        `namespace` may be globs: then all that they can mean has to be allowed by one FleetAccess.
        """
        return any(_grants(each, hub_namespace, cluster, namespace) for each in self._grants)

    def max_mode(self, hub_namespace: str, cluster: str, namespace: str) -> Mode:
        """The highest mode that HPAs of a namespace of the hub may have in a namespace of a member cluster."""
        modes = [each.max_mode for each in self._grants if _grants(each, hub_namespace, cluster, namespace)]
        return max(modes, key=MODES.index, default="off")

    def hub_namespaces(self, cluster: str, namespace: str, known: Iterable[str]) -> list[str]:
        """Which of some namespaces of the hub may act on a namespace of a member cluster."""
        return [each for each in known if self.allows(each, cluster, namespace)]


def _grants(grant: FleetAccessSpec, hub_namespace: str, cluster: str, namespace: str) -> bool:
    return (
        covers(grant.namespaces, hub_namespace)
        and covers(grant.clusters, cluster)
        and (
            namespace == hub_namespace
            if grant.member_namespaces is None
            else covers(grant.member_namespaces, namespace)
        )
    )


def covers(granted: Iterable[str], wanted: str) -> bool:
    """Whether some globs mean everything that a name or a glob can mean, each by itself."""
    return any(_covers(each, wanted) for each in granted)


def _covers(granted: str, wanted: str) -> bool:
    """Whether a glob means everything that another one, or a name, can mean. Of two globs it is known only where they
    are equal, or the first is `*` or a beginning with `*`.
    """
    if granted in ("*", wanted):
        return True
    if not _WILD & set(wanted):
        return fnmatchcase(wanted, granted)
    begin, star, rest = granted.partition("*")
    is_prefix = bool(star) and not rest and not _WILD & set(begin)
    return is_prefix and wanted.startswith(begin)

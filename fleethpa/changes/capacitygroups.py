"""CapacityGroup manifests: a ceiling that many HPAs share, which HPAs these are, and who comes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from fleethpa.changes.manifests import read_input
from fleethpa.frame.errors import usage
from schemas.keys import HpaId
from schemas.kubernetes.selectors import Selector, SelectorError, label_selector
from schemas.observed import FLEET_API_VERSION
from streams.across.division import UNLIMITED

CAPACITY_KIND: Final = "CapacityGroup"
MOST_PRIORITIES: Final = 64
_Name = Annotated[str, Meta(min_length=1, max_length=253)]


class _Selects(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []

    def compiled(self) -> Selector:
        """Compile it. Raises SelectorError: as `label_selector`."""
        return label_selector({"matchLabels": self.match_labels, "matchExpressions": self.match_expressions})


class _Limit(Struct, frozen=True, forbid_unknown_fields=True):
    replicas: Annotated[int, Meta(ge=0, le=UNLIMITED)]


class _Priority(Struct, frozen=True, forbid_unknown_fields=True):
    selector: _Selects
    value: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)]


class _GroupSpec(Struct, frozen=True, forbid_unknown_fields=True):
    selector: _Selects
    limit: _Limit
    clusters: Annotated[list[_Name], Meta(max_length=64)] = []
    priorities: Annotated[list[_Priority], Meta(max_length=MOST_PRIORITIES)] = []


class _Metadata(Struct, frozen=True):
    name: _Name


class _Manifest(Struct, frozen=True):
    metadata: _Metadata
    spec: _GroupSpec


@dataclass(frozen=True)
class CapacityGroup:
    """A ceiling. `clusters`: globs; empty: all. `priorities`: the first that matches an HPA's labels counts, else 0."""

    name: str
    replicas: int
    selector: Selector
    clusters: tuple[str, ...]
    priorities: tuple[tuple[Selector, int], ...]

    def priority(self, hpa: HpaId, labels: Mapping[str, str]) -> int | None:
        """The priority of an HPA with these labels; None: it is not of the group."""
        in_cluster = not self.clusters or any(fnmatchcase(hpa.cluster, glob) for glob in self.clusters)
        if not in_cluster or not self.selector.matches(labels):
            return None
        return next((value for selector, value in self.priorities if selector.matches(labels)), 0)


def read_capacity_group(path: str) -> CapacityGroup:
    """Read the one CapacityGroup of a file, or of standard input (`-`).

    Raises CommandError: there is not exactly one, or a field of it is missing, unknown or wrong (exit 2).
    """
    found = [each for each in read_input((path,)).others if each.body["kind"] == CAPACITY_KIND]
    if len(found) != 1:
        count = "no CapacityGroup" if not found else f"{len(found)} CapacityGroups"
        raise usage(f"-f {path}: {count} found", cause="One is tested at a time.")
    manifest = found[0]
    what = f'The CapacityGroup "{manifest.name or "<unnamed>"}" is invalid ({manifest.source})'
    documented = "docs/across-clusters.md lists the fields that are there"
    if manifest.duplicates:
        raise usage(what, cause=f"{manifest.duplicates[0]} is given twice", next_step=documented)
    if manifest.body.get("apiVersion") != FLEET_API_VERSION:
        raise usage(what, cause=f"apiVersion has to be {FLEET_API_VERSION}", next_step=documented)
    try:
        read = msgspec.convert(manifest.body, _Manifest)
        spec = read.spec
        priorities = tuple([(each.selector.compiled(), each.value) for each in spec.priorities])
        selector = spec.selector.compiled()
    except msgspec.ValidationError as error:
        raise usage(what, cause=str(error).replace("`$.", "`"), next_step=documented) from error
    except SelectorError as error:
        raise usage(what, cause=f"a selector cannot be read: {error}", next_step=documented) from error
    return CapacityGroup(read.metadata.name, spec.limit.replicas, selector, tuple(spec.clusters), priorities)

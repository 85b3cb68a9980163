"""CapacityGroup manifests: a ceiling that many HPAs share, which HPAs these are, and who comes first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from fleethpa.changes.manifests import FileManifest, Input, read_input
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import Concern
from fleethpa.fleet.capacity import CAPACITY_KIND, members_of_group
from fleethpa.fleet.finding import unknown_cluster
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, usage
from fleethpa.show.words import counted, listed
from schemas import limits
from schemas.capacity import (
    CapacityGroupSet,
    CapacityLimit,
    CapacityMatch,
    CapacityPriority,
    CapacitySpec,
    WhenUnknown,
    micro_price,
    milli_units,
)
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.selectors import SelectorError
from schemas.observed import FLEET_API_VERSION
from streams.across.capacity import SETTLES_MS
from streams.across.division import UNLIMITED
from streams.state.acrossrows import GroupRow
from streams.state.clustersettings import effective
from streams.state.namespacerows import encoded_size

_Name = Annotated[str, Meta(min_length=1, max_length=253)]


class _Limit(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    replicas: Annotated[int, Meta(ge=0, le=UNLIMITED)] | None = None
    units: _Name | None = None
    count: int | float | str | None = None
    cost_per_hour: int | float | str | None = None

    def read(self) -> CapacityLimit:
        """Return the limit. Raises ValueError: none is given, or more than one."""
        given = [each for each in (self.replicas, self.units, self.cost_per_hour) if each is not None]
        if len(given) != 1 or (self.units is None) != (self.count is None):
            raise ValueError("limit needs one of replicas, units with count, and costPerHour")
        if self.replicas is not None:
            return CapacityLimit(count=self.replicas)
        if self.units is not None:
            return CapacityLimit(kind="units", name=self.units, count=milli_units(str(self.count)))
        return CapacityLimit(kind="cost", count=micro_price(str(self.cost_per_hour)))


class _Priority(Struct, frozen=True, forbid_unknown_fields=True):
    selector: dict[str, Any]
    namespaces: Annotated[list[_Name], Meta(min_length=1, max_length=limits.CAPACITY_CLUSTERS.most)]
    value: Annotated[int, Meta(ge=-1_000_000_000, le=1_000_000_000)]


class _GroupSpec(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    selector: dict[str, Any]
    limit: _Limit
    namespaces: Annotated[list[_Name], Meta(min_length=1, max_length=limits.CAPACITY_CLUSTERS.most)]
    clusters: Annotated[list[_Name], Meta(max_length=limits.CAPACITY_CLUSTERS.most)] = []
    priorities: Annotated[list[_Priority], Meta(max_length=limits.CAPACITY_PRIORITIES.most)] = []
    when_unknown: WhenUnknown = "Hold"


class _Metadata(Struct, frozen=True):
    name: _Name


class _Manifest(Struct, frozen=True):
    metadata: _Metadata
    spec: _GroupSpec


class CapacityGroup(Struct, frozen=True):
    """A ceiling as its manifest has it, and its selectors compiled."""

    name: str
    spec: CapacitySpec
    match: CapacityMatch


def read_capacity_group(path: str) -> CapacityGroup:
    """Read the one CapacityGroup of a file, or of standard input (`-`).

    Raises CommandError: there is not exactly one, or as `capacity_groups` (exit 2).
    """
    groups = capacity_groups(read_input((path,)))
    if len(groups) != 1:
        count = "no CapacityGroup" if not groups else f"{len(groups)} CapacityGroups"
        raise usage(f"-f {path}: {count} found", cause="One is tested at a time.")
    return groups[0]


def capacity_groups(read: Input) -> list[CapacityGroup]:
    """Read the CapacityGroups of an input.

    Raises CommandError: a field of one is missing, unknown or wrong, or a name is there twice (exit 2).
    """
    groups = [capacity_group(each) for each in read.of_kind(CAPACITY_KIND)]
    names = [each.name for each in groups]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise usage(f"CapacityGroup {twice[0]} is given twice", cause="A CapacityGroup is of no namespace.")
    return groups


def capacity_group(manifest: FileManifest) -> CapacityGroup:
    """Read a CapacityGroup. Raises CommandError: a field is missing, unknown or wrong (exit 2)."""
    if manifest.duplicates:
        raise _invalid(manifest, f"{manifest.duplicates[0]} is given twice")
    if manifest.body.get("apiVersion") != FLEET_API_VERSION:
        raise _invalid(manifest, f"apiVersion has to be {FLEET_API_VERSION}")
    try:
        read = msgspec.convert(manifest.body, _Manifest)
        spec = CapacitySpec(
            selector=read.spec.selector,
            limit=read.spec.limit.read(),
            namespaces=read.spec.namespaces,
            clusters=read.spec.clusters,
            priorities=[
                CapacityPriority(selector=each.selector, namespaces=each.namespaces, value=each.value)
                for each in read.spec.priorities
            ],
            when_unknown=read.spec.when_unknown,
        )
        return CapacityGroup(read.metadata.name, spec, CapacityMatch(spec))
    except msgspec.ValidationError as error:
        raise _invalid(manifest, str(error).replace("`$.", "`")) from error
    except SelectorError as error:
        raise _invalid(manifest, f"a selector cannot be read: {error}") from error
    except ValueError as error:
        raise _invalid(manifest, f"spec.limit: {error}") from error


def _invalid(manifest: FileManifest, cause: str) -> CommandError:
    what = f'The CapacityGroup "{manifest.name or "<unnamed>"}" is invalid ({manifest.source})'
    return usage(what, cause=cause, next_step="docs/across-clusters.md lists the fields that are there")


# --- changes ----------------------------------------------------------------------------------------------------------


def refused_groups(groups: Sequence[CapacityGroup], state: FleetState) -> dict[str, CommandError]:
    """Return the CapacityGroups that are not applied, by name: those that name a cluster that is not known, and those
    for which log partitions have no room (`limits.ALL_GROUPS`, where the fold would refuse them).
    """
    problems = {}
    sizes = {name: encoded_size(row) for name, row in state.capacity_groups.items()}
    for group in groups:
        known = state.capacity_groups.get(group.name)
        had = () if known is None else known.spec.clusters
        names = [each for each in group.spec.clusters if not set(each) & set("*?[")]
        later = "write its name with a *, such as {name}*"
        problem = unknown_cluster(f"CapacityGroup {group.name}", names, state.clusters, later=later, kept=had)
        size, before = encoded_size(GroupRow(state.clock_ms, group.spec, state.clock_ms)), sizes.get(group.name, 0)
        if problem is None and size > before and sum(sizes.values()) - before + size > limits.ALL_GROUPS.most:
            problem = CommandError(
                f"CapacityGroup {group.name} is not applied: there is no room for its spec",
                cause=f"The specs of all {len(sizes)} CapacityGroups have at most {limits.ALL_GROUPS.most:,} "
                f"{limits.ALL_GROUPS.unit}; they take {sum(sizes.values()):,}, and this one {size:,}.",
                next_step="fleethpa get capacitygroups, then fleethpa capacity delete NAME",
            )
        if problem is None:
            sizes[group.name] = size
        else:
            problems[group.name] = problem
    return problems


def applied_groups(
    groups: Sequence[CapacityGroup], state: FleetState, revision: int, author: str, reason: str
) -> list[PlannedRecord]:
    """Return the records that put CapacityGroups in force; none for one that is in force as it is, everywhere."""
    records = []
    for number, group in enumerate(groups):
        known = state.capacity_groups.get(group.name)
        if known is not None and known.spec == group.spec and group.name not in state.scattered_groups:
            continue
        body = CapacityGroupSet(
            name=group.name, revision=revision + number, spec=group.spec, author=author, reason=reason
        )
        words = "created" if known is None else "configured"
        records.append(PlannedRecord(f"capacitygroup {group.name} {words}", body, EVERY_CLUSTER))
    return records


def deleted_groups(names: Sequence[str], revision: int, author: str, reason: str) -> list[PlannedRecord]:
    """Return the records that delete CapacityGroups."""
    return [
        PlannedRecord(
            f"capacitygroup {name} deleted",
            CapacityGroupSet(name=name, revision=revision + number, author=author, reason=reason),
            EVERY_CLUSTER,
        )
        for number, name in enumerate(names)
    ]


def group_concerns(writes: Sequence[PlannedRecord], state: FleetState) -> Iterator[Concern]:
    """Return how many HPAs a change of CapacityGroups reaches, and what it does to them at once."""
    for write in writes:
        if not isinstance(body := write.body, CapacityGroupSet):
            continue
        if body.spec is None:
            count = len(members_of_group(state.hpas, CapacityMatch(state.capacity_groups[body.name].spec)))
            yield Concern(f"CapacityGroup {body.name} no longer bounds what {counted(count, 'HPA')} may add.")
            continue
        hpas = members_of_group(state.hpas, CapacityMatch(body.spec))
        text = f"CapacityGroup {body.name} bounds what {counted(len(hpas), 'HPA')} may add, to {body.spec.limit.text()}"
        if body.spec.limit.kind == "replicas":
            have = sum([state.hpas[each].status.get("currentReplicas", 0) for each in hpas])
            text += f"; they have {have:,}"
        if body.name not in state.capacity_groups and body.spec.when_unknown == "Hold":
            text += f". For the first {SETTLES_MS // 1000} s they add nothing"
        yield Concern(f"{text}.")
        unpriced = sorted({each.cluster for each in hpas if not effective(state.settings, each.cluster).price})
        if body.spec.limit.kind == "cost" and unpriced:
            named = listed(unpriced)
            yield Concern(
                f"The setting `price` is not there for {named}: HPAs in clusters without it are not bounded. "
                f"Next: fleethpa settings {unpriced[0]} price=0.04/h",
                harmful=True,
            )

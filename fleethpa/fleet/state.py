"""The state of the fleet as read verbs show it: the fold of the log, now or as of `--at`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final

from fleethpa.fleet.hung import SignsOfLife, hung_archiver, hung_processes, unanswered
from fleethpa.fleet.troubles import INGEST_EVERY_MS, ClusterView, HungProcess, cut_off, since
from fleethpa.fleet.views import FleetState, HpaView, MemberView, object_command, resume_command
from fleethpa.frame.errors import CommandError, not_found, unreachable, usage
from fleethpa.frame.session import Session
from fleethpa.show.text import clock, dated, span, time_of_day
from fleethpa.show.words import counted, listed
from runtime.log import wall_clock_ms, without_cycle_search
from schemas.keys import EVERY_CLUSTER, FLEET, HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import ABSENT
from schemas.pauses import OVERRIDE, is_in_force
from schemas.settings import settings_of
from streams.across.division import caps_of
from streams.across.fleet import away, spilled, unreached
from streams.across.fleetsettings import fleet_settings
from streams.analysis.fleetwords import differences_in_words
from streams.annotations import OWN_ANNOTATIONS, own_annotations
from streams.archive.layout import ArchiveError
from streams.state.acrossrows import FleetRow
from streams.state.guards import effective_mode, pause_scopes
from streams.state.hpastate import Hpa, version_of
from streams.state.ledger import CoreError
from streams.state.limits.budgets import is_exempt
from streams.state.moves import Move
from streams.state.namespace import Namespace
from streams.state.needs import Blocked
from streams.state.partitionrow import PartitionRow, ServedRow
from streams.state.replacements.override import override_in_force
from streams.state.rowcodec import decode_row, partition_key
from streams.state.rows import DirectoryKey, HpaRow, Pause

if TYPE_CHECKING:
    from streams.history.past import Folded, Past
    from streams.history.recorded import Recorded
    from streams.state.partitionstate import State


LIVE_GAP_MS: Final = 15_000
"""Log that is being written ends this close to the present: ingest appends to every partition within 5 s."""


async def fleet_now(session: Session) -> FleetState:
    """Read the state from the source that `--from` names. Raises CommandError: the source cannot be read."""
    async with session.past() as past:
        return await read_state(past)


async def read_state(
    past: Past, partitions: Iterable[int] | None = None, *, known: Sequence[Folded] | None = None
) -> FleetState:
    """Read the state of all partitions, or of some, as of `past.at_ms` or (None) as of now.

    `known`: what was folded of them for this already.

    Raises CommandError: the log does not hold that time (exit 2 or 4). Raises ArchiveError, CoreError: the source
    cannot be read now.
    """
    with without_cycle_search():
        state = await _state_of(past, known if known is not None else await _folded(past, partitions))
    for name, cluster in state.clusters.items():
        if text := cut_off(name, cluster.clock_ms, cluster.troubles):
            _put(state, name, cut_off=text)
        if cluster.served is None:
            _put(state, name, is_unserved=True)
    if partitions is None:
        _find_incomplete(state)
    _find_twins(state)
    _find_two_names(state)
    await _find_hung(state, past)
    # An archiver that hangs or was cut off leaves an archive as of then.
    is_over = not past.now_ms() and (bool(state.hung) or not past.is_live())
    for cluster in state.clusters.values():
        cluster.is_over = is_over
    state.short_ms = {} if past.now_ms() else _short_partitions(state)
    state.hpas = {
        hpa: replace(view, is_past=True) if state.is_known_of_before(view) else view for hpa, view in state.hpas.items()
    }
    state.remarks = (*_remarks(past, state), *_short_remark(past, state), *await _too_late(past, state))
    for text in state.remarks:
        past.remark(text)
    return state


async def _folded(past: Past, partitions: Iterable[int] | None) -> list[Folded]:
    try:
        return await past.fleet(partitions)
    except (ArchiveError, CoreError) as error:
        from streams.history.past import LogGoneError

        if isinstance(error, LogGoneError) and past.at_ms is None and past.now_ms():
            cause = (
                "The log records after the last checkpoint of the decider expired or were deleted. A decider that runs "
                "writes another one within a minute; one that starts now ends with 78."
            )
            raise unreachable(str(error), cause=cause, next_step="see docs/operations.md#recovery") from error
        if past.at_ms is None:
            raise
        raise usage(str(error), next_step="fleethpa audit verify") from error


async def _state_of(past: Past, folded: Sequence[Folded]) -> FleetState:
    clock_ms = max((each.partition.clock_ms for each in folded), default=0)
    behind = [each.partition.number for each in folded if each.behind]
    ends = {number: await past.last_ms(number) for number in behind}
    if past.at_ms is not None and all(each.partition.applied_offset < 0 for each in folded):
        older = "name a later time, or an archive that was begun earlier: --from DIR"
        what, begins_ms = f"the log has no record as old as {dated(past.at_ms)}", await past.first_ms(0)
        cause = f"It begins at {dated(begins_ms)}." if begins_ms is not None else "It is empty."
        raise not_found(what, cause=cause, next_step=older)
    state = _state(folded, clock_ms, ends, has_end=not past.now_ms())
    for number in behind:  # while a decider catches up, it ticks at the end of the log, which is not folded yet
        state.decided_ms[number] = max(state.decided_ms[number], await past.ticked_ms(number))
    return state


def partitions_about(cluster: str | None, partition: int) -> list[int] | None:
    """Return the log partitions whose state says how an HPA is: its own; None: all, as the HPA is over clusters, whose
    reports are in any partition, or its cluster is not known.
    """
    return None if cluster in (None, FLEET) else [partition]


async def look_for_trouble(past: Past, about: Recorded | None = None) -> None:
    """Remark on what keeps the present from being known, for a question that reads no state.

    `about`: a decision of the HPA in question; None: the question is about all.
    """
    partitions = None if about is None else partitions_about(about.hpa.cluster, about.partition)
    if past.now_ms():
        # A question may not need this: that it cannot be read does not end the question.
        with suppress(ArchiveError, CoreError, CommandError):
            await read_state(past, partitions)
    for each in await _hung_archiver(past):
        past.remark(each.text)


async def _hung_archiver(past: Past) -> tuple[HungProcess, ...]:
    """The process that writes the archive which is read, if it hangs. Of what else wrote to it nothing is known, as an
    archive ends anywhere.
    """
    if past.now_ms() or past.at_ms is not None:
        return ()
    return tuple(hung_archiver(wall_clock_ms(), await past.signs_of_life()))


async def _find_hung(state: FleetState, past: Past) -> None:
    """Name the processes that hang, and clear their HPAs of what follows from that."""
    state.hung = await _hung_archiver(past)
    if not (now_ms := past.now_ms()):
        return
    is_present = past.at_ms is None
    signs = SignsOfLife(state.ingested_ms, state.decided_ms, await past.signs_of_life() if is_present else {})
    now_ms = now_ms if is_present else state.end_ms
    state.hung = tuple(hung_processes(now_ms, signs, state.clusters.values(), state.quiet_ms))
    if state.is_last_known:
        for cluster in state.clusters.values():
            cluster.is_cut_off = True
    for each in state.hung if is_present else ():
        if each.process == "ingest":
            why = f"ingest hangs{since(each.since_ms, now_ms)}"
            state.hpas = {hpa: replace(view, unfed=why) for hpa, view in state.hpas.items()}
    # A FleetHPA is in no cluster; while processes hang, it lacks the reports of its members.
    for name, cluster in [*state.clusters.items(), (FLEET, ClusterView(FLEET))]:
        if unanswered(state.hung, cluster):
            _put(state, name, is_unanswered=True)


def _find_incomplete(state: FleetState) -> None:
    """Name the FleetHPAs of which only a part has the newest spec: the records of an `apply` or `delete` go to several
    partitions, and some may not have arrived; and `adopt` and `release` go from cluster to cluster.
    """
    parts: dict[HpaId, dict[str, int]] = {}
    for hpa, view in state.hpas.items():
        if view.fleet_hpa is not None:
            parts.setdefault(view.fleet_hpa, {})[hpa.cluster] = view.revision
    for hpa, view in state.hpas.items():
        text = ""
        if view.fleet is not None:
            revisions, names = parts.get(hpa, {}), [each.name for each in view.fleet.clusters]
            wrong = [name for name in names if revisions.get(name) != view.revision] + sorted(
                revisions.keys() - set(names)
            )
            if view.mode == "enforce" and (own := [name for name in names if has_own(state, hpa, name)]):
                text = (
                    f"{listed(own)} {'has an HPA of its' if len(own) == 1 else 'have HPAs of their'} own: a release or "
                    f"an adopt has not ended. Next: fleethpa release {hpa}, or to keep it "
                    f"fleethpa adopt {hpa} -C {','.join(names)}"
                )
            elif wrong:
                text = (
                    f"{listed(wrong)} {'has' if len(wrong) == 1 else 'have'} another spec of it or none. "
                    f"Next: fleethpa get hpa {hpa} -o yaml | fleethpa apply -f -"
                )
        elif view.fleet_hpa is not None and view.fleet_hpa not in state.hpas:
            text = f"FleetHPA {view.fleet_hpa}, which allots its share, is not there. Next: apply its manifest again"
        if text:
            state.hpas[hpa] = replace(view, incomplete=text)


def _find_twins(state: FleetState) -> None:
    """Name the newer of HPAs that drive one target and stop each other: followed for each, two hints that name the
    other one would delete both.
    """
    groups: dict[tuple[str, str, str, str], list[HpaView]] = {}
    for view in state.hpas.values():
        if view.refused and (target := view.spec.get("scaleTargetRef")):
            key = (view.id.cluster, view.id.namespace, target.get("kind", ""), target.get("name", ""))
            groups.setdefault(key, []).append(view)
    for (cluster, namespace, kind, name), views in groups.items():
        if len({view.origin for view in views}) != 1 or len(views) < 2:
            continue
        *kept, newest = sorted(views, key=lambda view: (_created(view), view.id.name))
        delete = f"kubectl --context {cluster} delete hpa {newest.id.name} -n {namespace}"
        command = f"fleethpa delete {newest.id}" if newest.origin == "central" else delete
        text = (
            f"HPAs {listed(view.id.name for view in kept)} and {newest.id.name} drive {kind}/{name}, so neither is "
            f"enforced: {newest.id.name} is the newer one. Next: {command}"
        )
        state.hpas |= {view.id: replace(view, twin=text) for view in views}


def _created(view: HpaView) -> str:
    return str((view.hpa.get("metadata") or {}).get("creationTimestamp") or "")


def has_own(state: FleetState, fleet_hpa: HpaId, cluster: str) -> bool:
    """Whether a cluster of a FleetHPA has an HPA of its name that the cluster's own controller sees."""
    namespace = state.namespaces.get((cluster, fleet_hpa.namespace))
    return namespace is not None and DirectoryKey(fleet_hpa.name, "cluster") in namespace.directory


def _put(state: FleetState, cluster: str, **changes: Any) -> None:
    """Change the views of a cluster's HPAs."""
    state.hpas = {hpa: replace(view, **changes) if hpa.cluster == cluster else view for hpa, view in state.hpas.items()}


def _remarks(past: Past, state: FleetState) -> Iterator[str]:
    if past.rows_gone:
        lost = ", ".join(sorted(past.rows_gone)[:3])
        yield (
            f"{len(past.rows_gone)} state rows are gone from the changelog ({lost}): what they held is not shown. "
            "Next: fleethpa admin topics check"
        )
    yield from (each.text for each in state.hung)
    yield from away_remarks(state)
    if state.paused:
        yield f"all clusters are paused ({state.paused}): replicas are not written. Next: fleethpa resume --all"
    processes = {each.process for each in state.hung}
    if state.is_cut_off and "ingest" not in processes:
        yield (
            f"nothing has come into the log{since(state.newest_ms or None, state.end_ms)}: what is shown may be old. "
            "Next: fleethpa doctor"
        )
    if state.end_ms > state.clock_ms and not processes & {"ingest", "decider"}:
        yield (
            f"the decider is {span(state.end_ms - state.clock_ms)} behind the log: shown as of "
            f"{time_of_day(state.clock_ms, state.end_ms)}. Next: fleethpa doctor"
        )
    if state.slowed:
        yield f"the decider was behind: {state.slowed}. Next: fleethpa doctor"


def _find_two_names(state: FleetState) -> None:
    """Note of clusters that are observed now that another one, before them by name, has the same objects: the API
    server gives each object a uid of its own.
    """
    gone = {"observerSilent", "left"}
    now = {name for name, each in state.clusters.items() if not any(trouble.kind in gone for trouble in each.troubles)}
    first: dict[tuple[str, str, str], str] = {}
    for view in state.hpas.values():
        cluster, namespace, name = view.id
        uid = str((view.hpa.get("metadata") or {}).get("uid") or "")
        if view.origin != "cluster" or not uid or cluster not in now:
            continue
        other = first.setdefault((uid, namespace, name), cluster)
        if other != cluster and not state.clusters[cluster].two_names:
            state.clusters[cluster].two_names = (
                f"it is cluster {other} under another name, or a copy of it: HPA {namespace}/{name} has one uid in "
                "both, so that two decide about one object; the setting cluster-uid states which cluster a name means"
            )


def away_remarks(state: FleetState) -> Iterator[str]:
    """Yield which clusters' API servers do not answer, in which something is not watched, and which are observed under
    two names: of the first all is shown as it was last known, of the second what is not watched.
    """
    troubles = {
        name: trouble for name, cluster in state.clusters.items() for trouble in cluster.troubles if trouble.is_away
    }
    if troubles:
        name, first = next(iter(troubles.items()))
        others = f" (and {listed(list(troubles)[1:], 3)})" if len(troubles) > 1 else ""
        hpas = counted(sum(hpa.cluster in troubles for hpa in state.hpas), "HPA")
        yield f"cluster {name}{others}: {first.text}; {hpas} shown as last known. Next: {first.next_step}"
    for name, cluster in state.clusters.items():
        named = [each for each in cluster.troubles if each.is_named_first and not each.is_away]
        blind = [each for each in named if each.blinds] if name not in troubles else []
        if blind:
            more = f" (and {len(blind) - 1} more)" if blind[1:] else ""
            shown = "what depends on it is shown as last known"
            yield f"cluster {name}: {blind[0].text}{more}; {shown}. Next: {blind[0].next_step}"
        yield from (f"cluster {name}: {each.text}. Next: {each.next_step}" for each in named if not each.blinds)


async def _too_late(past: Past, state: FleetState) -> list[str]:
    """Whether the source ends before the moment that is asked for, and not only the last record before it is older."""
    at_ms, gap_ms = past.at_ms, LIVE_GAP_MS if past.is_live() else 0
    if at_ms is None or at_ms - state.clock_ms <= gap_ms:
        return []
    if max([await past.last_ms(number) for number in range(await past.partitions())]) > at_ms:
        return []
    return [f"{past.name} ends at {dated(state.clock_ms)}, before {dated(at_ms)}: shown as of its end"]


def _short_partitions(state: FleetState) -> dict[int, int]:
    """The partitions that an archive has less of than of others, as one has whose archiver was cut off → their ends."""
    clocks = {number: row.clock_ms for number, row in state.folded.items() if row.clock_ms}
    return {number: ms for number, ms in clocks.items() if state.clock_ms - ms > state.quiet_ms}


def _short_remark(past: Past, state: FleetState) -> Iterator[str]:
    if state.short_ms:
        ends = time_of_day(min(state.short_ms.values()), state.clock_ms)
        yield (
            f"{past.name}: log partition {listed(map(str, state.short_ms))} ends at {ends}, and the newest at "
            f"{time_of_day(state.clock_ms, state.clock_ms)}: what is of it is shown as of then"
        )


def _state(folded: Sequence[Folded], clock_ms: int, ends: Mapping[int, int], *, has_end: bool = False) -> FleetState:
    """Put the partitions together. `ends`: timestamps of the newest log records of those that were not folded to it.
    `has_end`: the log ends, as that of an archive, which may have less of one partition than of another.
    """
    state = FleetState(clock_ms=clock_ms, end_ms=max([clock_ms, *ends.values()]))
    partitions = [each.partition.state for each in folded]
    for each in folded:
        _add_progress(state, each, ends)
    for part in partitions:
        state.settings |= part.row.settings
        state.capacity_groups |= part.row.groups
        state.capacity_members |= {name: each.members for name, each in part.row.ceilings.items()}
        state.namespaces |= {(each.cluster, each.name): each for each in part.namespaces.values()}
    hpas = [(part, hpa) for part in partitions for hpa in part.hpas.values()]
    state.forgotten |= {hpa.id for _, hpa in hpas if not hpa.row.is_live}
    views = [_view(part, hpa) for part, hpa in hpas if hpa.row.is_live]
    state.hpas = {view.id: view for view in sorted(views, key=attrgetter("id"))}
    state.scattered_groups = _scattered_groups(partitions)
    # Where a decider catches up, some partitions are folded less far: what their reports say later is not known yet.
    known = [each.partition for each in folded if each.behind or (has_end and each.partition.applied_offset >= 0)]
    reached_ms = min((each.clock_ms for each in known), default=clock_ms)
    state.clusters = _clusters(state, partitions, reached_ms)
    state.paused = _paused_cluster(partitions, EVERY_CLUSTER, state.clock_ms)
    return state


def _add_progress(state: FleetState, folded: Folded, ends: Mapping[int, int]) -> None:
    """Add how far decider and ingest have come in a partition."""
    number, now = folded.partition.number, folded.partition.state.row
    stored = folded.stored.get(partition_key(number))
    row = decode_row(partition_key(number), stored) if stored else None
    state.decided_ms[number], state.every[number], state.folded[number] = now.ticked_ms, now.every, now
    if isinstance(row, PartitionRow):
        state.partitions[number] = row
        state.decided_ms[number] = max(now.ticked_ms, row.clock_ms)
    # Where the decider does not work, only ingest has appended what was not folded.
    state.ingested_ms[number] = ends.get(number, now.ingested_ms)


def _scattered_groups(partitions: Sequence[State]) -> set[str]:
    """The CapacityGroups of which not every partition has the same revision."""
    revisions = {(name, row.revision) for part in partitions for name, row in part.row.groups.items()}
    return {
        name
        for name, revision in revisions
        if any(name not in part.row.groups or part.row.groups[name].revision != revision for part in partitions)
    }


def _view(part: State, hpa: Hpa) -> HpaView:
    from streams.state.ownperiod import own_period  # with all that decides turns, for those with a state

    row, clock_ms = hpa.row, part.row.clock_ms
    namespace, settings = part.namespaces[hpa.id.namespace_key], part.settings_of(hpa)
    in_force, period = effective_mode(namespace, hpa, settings), own_period(part, hpa)
    (_, own), *wider = pause_scopes(namespace, hpa.id.name, part.row, is_exempt=is_exempt(hpa))
    pauses = tuple(_pauses(hpa.id, [("", own), *wider], clock_ms))
    briefly = (_paused(scope, known, clock_ms, _briefly) for scope, known in [("", own), *wider])
    return HpaView(
        id=hpa.id,
        hpa=_object(row) | {"status": row.shown_status},
        mode=in_force.mode,
        origin=row.origin,
        differing=() if row.fleet is None else _differing(part, row.fleet),
        partition=part.row.number,
        version=version_of(row) if row.origin == "central" else ABSENT,
        last_decision=row.last_decision,
        paused="; ".join(text for text, _ in pauses),
        pauses=pauses,
        paused_briefly=next(filter(None, briefly), ""),
        held=row.paused,
        refused=in_force.refused,
        override=override_in_force(own, clock_ms),
        author=row.author,
        reason=row.change_reason,
        moves=tuple(Move(*move) for move in row.moves),
        wants=row.wants,
        blocked=Blocked(*row.blocked) if row.blocked else None,
        clock_ms=clock_ms,
        is_writing=row.pending is not None,
        revision=row.revision,
        own_period_ms=period.period_ms,
        period_notice=period.notice,
        fleet=None if row.fleet is None else row.fleet.spec,
        members=() if row.fleet is None else tuple(_members(row.fleet, clock_ms, settings.sync_period_ms)),
    )


def _differing(part: State, fleet: FleetRow) -> tuple[str, ...]:
    return tuple(differences_in_words(fleet_settings(part.row.settings, list(fleet.accounts))))


def _members(fleet: FleetRow, clock_ms: int, period_ms: int) -> Iterator[MemberView]:
    gone, left = away(fleet, clock_ms, period_ms), spilled(fleet, clock_ms, period_ms)
    rooms, problems = caps_of(fleet.rooms), dict(unreached(fleet, clock_ms, period_ms))
    for each in fleet.spec.clusters:
        account, part = fleet.accounts[each.name], fleet.parts.get(each.name)
        yield MemberView(
            cluster=each,
            share=fleet.shares.get(each.name),
            has=None if account.report is None else account.report.replicas,
            may_have=account.counted,
            reported_ms=0 if part is None else part.taken_ms,
            is_away=each.name in gone,
            is_spilled=each.name in left,
            room=rooms.get(each.name),
            problem=problems.get(each.name, ""),
        )


def _object(row: HpaRow) -> Json:
    """The object as it was published last. A change of fleethpa's own annotations alone is no change of the stored
    object, which is that of the newest spec.
    """
    hpa: Json = row.hpa_object()
    metadata = hpa["metadata"]
    old = metadata.get("annotations") or {}
    if row.annotations != own_annotations(metadata):
        annotations = {name: value for name, value in old.items() if name not in OWN_ANNOTATIONS} | {**row.annotations}
        metadata.pop("annotations", None)
        metadata |= {"annotations": annotations} if annotations else {}
    return hpa


def _pauses(hpa: HpaId, scopes: Iterable[tuple[str, Mapping[str, Pause]]], now_ms: int) -> Iterator[tuple[str, str]]:
    """The pauses of an HPA; `scopes` as of `pause_scopes`."""
    ends = (hpa, hpa[:2], hpa[:1], (EVERY_CLUSTER,))
    for (scope, known), end in zip(scopes, ends, strict=True):
        if in_force := _in_force(known, now_ms):
            kind, pause = in_force
            ended = object_command("delete", pause.stated_by) if pause.stated_by else resume_command(*end)
            yield pause_text(scope, kind, pause, now_ms), ended


def _in_force(known: Mapping[str, Pause], now_ms: int) -> tuple[str, Pause] | None:
    """The first pause of a person that is in force, with its kind."""
    in_force = (
        (kind, pause) for kind, pause in known.items() if kind != OVERRIDE and is_in_force(pause.until_ms, now_ms)
    )
    return next(in_force, None)


def _paused(
    scope: str, known: Mapping[str, Pause], now_ms: int, shown: Callable[[str, str, Pause, int], str] | None = None
) -> str:
    """The same in words; empty: none."""
    in_force = _in_force(known, now_ms)
    return (shown or pause_text)(scope, *in_force, now_ms) if in_force is not None else ""


def _paused_cluster(partitions: Iterable[State], cluster: str, now_ms: int) -> str:
    """As `_paused`, of a whole cluster or of all."""
    return next(filter(None, (_paused("", part.row.pauses.get(cluster, {}), now_ms) for part in partitions)), "")


def _briefly(scope: str, kind: str, pause: Pause, now_ms: int) -> str:
    """A pause in a narrow column: `cluster paused by anna until 08:30`."""
    where = scope if scope.startswith("all ") else scope.partition(" ")[0]
    what = " ".join(filter(None, (where, "" if kind == "all" else kind, "paused")))
    by = f" by {pause.author}" if pause.author else ""
    return f"{what}{by}{f' until {clock(pause.until_ms, now_ms)}' if pause.until_ms else ''}"


def pause_text(scope: str, kind: str, pause: Pause, now_ms: int) -> str:
    """A pause in words, without how long ago it began: HPAs whose pause reads alike are shown together."""
    parts = [
        "both directions" if kind == "all" else kind,
        f"by {pause.author}" if pause.author else "",
        f"since {time_of_day(pause.since_ms, now_ms)}" if pause.since_ms else "",
    ]
    parts += [f"until {time_of_day(pause.until_ms, now_ms)}" if pause.until_ms else "", f"for {scope}" if scope else ""]
    parts += [f"stated by {pause.stated_by}" if pause.stated_by else ""]
    text = ", ".join(part for part in parts if part)
    return f"{text}: {pause.reason}" if pause.reason else text


def _clusters(state: FleetState, partitions: Sequence[State], reached_ms: int) -> dict[str, ClusterView]:
    """The clusters; `reached_ms`: up to when all partitions are folded."""
    # Silence counts from the newest record in the log: without ingest no report of an observer or reconciler arrives.
    clock_ms, is_cut_off = min(reached_ms, state.newest_ms + INGEST_EVERY_MS), state.is_cut_off
    reported = dict(sorted(_received(partitions, state.namespaces.values()), key=itemgetter(1)))
    agents = {name: agent for part in partitions for name, agent in part.row.agents.items()}
    names = {hpa.cluster for hpa in state.hpas} | {cluster for cluster, _ in state.namespaces} | reported.keys()
    names |= state.settings.keys() | {name for name, agent in agents.items() if not agent.left}
    clusters = {
        name: ClusterView(
            name,
            clock_ms=clock_ms,
            is_cut_off=is_cut_off,
            reported_ms=reported.get(name),
            agent=agents.get(name),
            settings=settings_of(state.settings, name),
            paused=_paused_cluster(partitions, name, state.clock_ms),
        )
        for name in sorted(names - {EVERY_CLUSTER, FLEET})  # the whole of a FleetHPA is in no cluster
    }
    for hpa in state.hpas.values():
        if (cluster := clusters.get(hpa.id.cluster)) is not None:
            cluster.hpas += 1
            cluster.modes[hpa.mode] = cluster.modes.get(hpa.mode, 0) + 1
    observed = {(hpa.cluster, hpa.namespace) for hpa in state.hpas}  # of others no heartbeat need come
    for namespace in state.namespaces.values():
        if (cluster := clusters.get(namespace.cluster)) is not None:
            _take_namespace(cluster, namespace)
            if (namespace.cluster, namespace.name) in observed:
                beats = [watch.beat_ms for watch in namespace.watches.values()]
                cluster.beat_ms = max([cluster.beat_ms, *beats])
    for part in partitions:
        _add_reports(clusters, part.row)
    return clusters


def _take_namespace(cluster: ClusterView, namespace: Namespace) -> None:
    cluster.namespaces += 1
    for watch, reported in namespace.watches.items():
        if reported.problem:
            cluster.problems[f"{namespace.name}/{watch}"] = reported.problem
    cluster.refused |= {f"{what} in namespace {namespace.name}": row for what, row in namespace.held.refused.items()}


def _add_reports(clusters: Mapping[str, ClusterView], row: PartitionRow) -> None:
    """Add the reports of observers and reconcilers on whole clusters."""
    for report in row.reports.values():
        if (cluster := clusters.get(report.cluster)) is not None:
            cluster.reports.append(report)
    for name, cluster in clusters.items():
        cluster.refused |= row.refused.get(name, {})
        cluster.hands = row.transfers.get(name, cluster.hands)
        if (version := row.kubernetes.get(name)) is not None:
            cluster.kubernetes = version.version
        served = row.served.get(name)
        if served is not None and (cluster.served or ServedRow()).reported_ms <= served.reported_ms:
            cluster.served = served


def _received(partitions: Iterable[State], namespaces: Iterable[Namespace]) -> Iterator[tuple[str, int]]:
    for part in partitions:
        for key, session in part.row.sessions.items():
            yield key.partition("/")[0], session.reported_ms
        for report in part.row.reports.values():
            yield report.cluster, report.reported_ms
    for namespace in namespaces:
        for reported in namespace.watches.values():
            yield namespace.cluster, reported.reported_ms

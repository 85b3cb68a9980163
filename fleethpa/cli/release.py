"""`fleethpa release`: HPAs go back to the native controller of their cluster.

Up to 20 HPAs at a time take these steps. In brackets: who scales if the run is killed after the step.

1. *Try* a dry run on the API server; an HPA that it would refuse is reported and left out. (The central HPA.)
2. *Stop*: pause the central HPA for a minute and wait for its last write. (The central HPA, after the minute.)
3. *Create* the native HPA from the present spec, with the time of its last scaling and the condition ScaledToZero, and
   report it to the log, so that the central HPA is refused from then on. (The native controller.)
4. *Wait* for the native controller's first status, which comes within one of its sync periods. If none comes, nothing
   would scale: the native HPA is deleted again and the central one continues. (The native controller.)
5. *End* the central HPA. (The native controller.)

Two controllers never scale the same target; between steps 2 and 4 neither does, for some seconds and one sync period of
the native controller. The next run continues where one ended. No step changes the replicas.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from fleethpa.changes.handover import (
    LOOK_EVERY_S,
    NativeHpas,
    Place,
    batches,
    deletion_of,
    has_agent,
    native_hpas,
    place_options,
    rest,
    until_reported,
)
from fleethpa.changes.release import MARK, ReleasePlan, carried_status, concerns, manifest_to_create, release_plan
from fleethpa.changes.writing import PlannedRecord, confirm, show, write_all, write_options
from fleethpa.fleet.state import fleet_now, read_state
from fleethpa.frame.errors import ANSWER_IS_NO, OK, UNREACHABLE, CommandError, not_found
from fleethpa.frame.options import parse_duration_ms
from fleethpa.frame.session import Session, command_options
from fleethpa.show.words import counted
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command
from streams.state.clustersettings import effective

if TYPE_CHECKING:
    from fleethpa.fleet.views import FleetState, HpaView
    from fleethpa.frame.writer import Writer
    from schemas.entries import Body

STOPPED_MS: Final = 60_000
"""For how long the central HPA is paused: what a release that was killed leaves behind ends by itself."""
REQUEST_S: Final = 5.0
"""How long a request to the API server may take."""
_ENDED_S: Final = 30.0
"""How long a last write may take: longer than it takes to expire."""


@click.command()
@click.option(
    "--include-held",
    is_flag=True,
    help="Also release HPAs that fleethpa does not scale now (paused, frozen, shadow, off, refused).",
)
@click.option(
    "--native-wait",
    default="60s",
    show_default=True,
    metavar="DURATION",
    help="How long to wait for the first status of the native controller.",
)
@write_options
@command_options()
@place_options("release")
def release(session: Session, /, place: Place, include_held: bool, native_wait: str, **written: Any) -> int:
    """Give HPAs back to their cluster's own controller: create native HPAs of the present specs, end the central ones.

    An HPA that fleethpa does not scale now (paused, frozen, shadow or off) is left out, since the native controller
    would scale it at once; --include-held releases it, too. The change itself moves no replica. A run that was
    interrupted is continued by the next one. The way back is fleethpa adopt.
    """
    wait_s = parse_duration_ms(native_wait, "--native-wait") / 1000
    return session.run(_release(session, place, include_held, wait_s, written))


async def _release(session: Session, place: Place, include_held: bool, native_s: float, written: dict[str, Any]) -> int:
    async with native_hpas(session, place.cluster) as api:
        state = await fleet_now(session)
        views = [view for hpa, view in state.hpas.items() if place.holds(hpa) and view.origin == "central"]
        if not views:
            _nothing_to_release(session, state, place)
            return OK
        _check_controller(state, place.cluster)
        natives = await api.listed(Place(place.cluster, place.namespace))
        plan = release_plan(state, views, natives, include_held)
        await _try(api, plan)
        for problem in plan.problems:
            session.report(problem)
        code = ANSWER_IS_NO if plan.problems else OK
        if not plan.released:
            return code
        listed = concerns(plan, place)
        if written["dry_run"]:
            show(session, listed)
            _describe(session, plan)
            return code
        confirm(session, listed, written["yes"], f"release {place}")
        hand = _HandOver(session, api, plan, written, native_s, by_agent=has_agent(state, place.cluster))
        async with session.writer() as writer:
            for batch in batches(plan.released):
                if (ended := await hand.over(writer, batch)) != OK:
                    return ended
        session.note(f"Next: kubectl --context {place.cluster} get hpa{_scope(place)}")
        return code


def _scope(place: Place) -> str:
    return f" -n {place.namespace}" if place.namespace else " -A"


def _nothing_to_release(session: Session, state: FleetState, place: Place) -> None:
    known = [view for hpa, view in state.hpas.items() if place.holds(hpa)]
    if not known:
        raise not_found(f"no HPA is known in {place}", next_step="fleethpa get hpa -A")
    session.out(f"{place}: nothing to release ({counted(len(known), 'HPA')}, all of the cluster's own)")


def _check_controller(state: FleetState, cluster: str) -> None:
    """See that somebody will scale what is released.

    Raises CommandError: it was set or proven that the cluster has no native controller (exit 1).
    """
    if effective(state.settings, cluster).native_absent:
        raise CommandError(
            f"cluster {cluster} has no native HPA controller, so nothing would scale what is released",
            cause="It was proven, or set, that the controller is switched off. Switch it on first.",
            next_step=f"switch it on, then fleethpa clusters prove-native-absent {cluster}, which records that it runs",
            code=ANSWER_IS_NO,
        )


async def _try(api: NativeHpas, plan: ReleasePlan) -> None:
    """Leave out what the API server would refuse to create."""
    for view in list(plan.released):
        if view.id in plan.natives:
            continue
        refused = await api.try_to_create(view.id, manifest_to_create(view))
        if refused:
            plan.released.remove(view)
            cause = f"The API server would refuse it: {refused}."
            step = f"fleethpa history {view.id} --revision N -o yaml | kubectl create --dry-run=server -f -"
            plan.problems.append(CommandError(f"{view.id} cannot be released", cause=cause, next_step=step))


def _describe(session: Session, plan: ReleasePlan) -> None:
    for view in plan.released:
        first = "the native HPA is there already" if view.id in plan.natives else "create the native HPA"
        session.out(f"hpa {view.id}: {first}, wait for its first status, end the central HPA (dry run)")


# --- doing ------------------------------------------------------------------------------------------------------------


class _HandOver:
    """Steps 2 to 5 for one group of HPAs after another."""

    def __init__(
        self,
        session: Session,
        api: NativeHpas,
        plan: ReleasePlan,
        written: dict[str, Any],
        native_s: float,
        *,
        by_agent: bool,
    ) -> None:
        """`by_agent`: only the cluster's agent may tell the log what was created there."""
        self._by_agent = by_agent
        self._session, self._api, self._plan, self._native_s = session, api, plan, native_s
        self._wait: str = written["wait"]
        self._author = session.config.author
        self._reason: str = written["reason"] or "released to the cluster"
        self._stopped: set[HpaId] = set()

    async def over(self, writer: Writer, views: Sequence[HpaView]) -> int:
        """Release some HPAs; returns the exit code.

        Raises CommandError: a step failed; the HPAs are as the module says for a crash there.
        """
        stopped_at = time.monotonic()
        if (code := await self._stop(writer, views)) != OK:
            return code
        natives: dict[HpaId, Json] = {}
        try:
            await self._create(views, natives, stopped_at)
        finally:
            # Also of a group of which only some could be created.
            code = await self._report(writer, [view for view in views if view.id in natives], natives)
        if code != OK:
            return code
        unseen = await self._unseen(natives)
        ended = [self._ended(view) for view in views if view.id not in unseen]
        if ended:
            code = await write_all(self._session, writer, ended, self._wait, must_arrive=True)
            resumed = [self._resumed(view.id, self._reason) for view in views if view.id not in unseen]
            code = max(code, await self._record(writer, resumed))
        if unseen:
            await self._take_back(writer, unseen, natives)
            raise self._no_controller(unseen)
        return code

    async def _report(self, writer: Writer, views: Sequence[HpaView], natives: Mapping[HpaId, Json]) -> int:
        """See that the log knows the native HPAs, so that the central ones are refused."""
        if not self._by_agent:
            return await self._record(writer, [self._created(view, natives) for view in views])
        late = await until_reported(self._session, {view.id: natives[view.id]["metadata"]["uid"] for view in views})
        if late:
            await self._take_back(writer, [view.id for view in views], natives)
            raise CommandError(
                f"the agent of cluster {late[0].cluster} has not reported the native HPA {late[0]}",
                cause="The native HPAs of this group were deleted again, and the central ones go on.",
                next_step=f"fleethpa get clusters {late[0].cluster}",
                code=UNREACHABLE,
            )
        return OK

    async def _stop(self, writer: Writer, views: Sequence[HpaView]) -> int:
        """Pause those that write, and wait until no write of them is on its way any more."""
        writing = [view for view in views if view.id not in self._plan.natives and not self._is_held(view)]
        code = await self._record(writer, [self._pause(view) for view in writing])
        self._stopped |= {view.id for view in writing}
        ends = time.monotonic() + _ENDED_S
        partitions, meant = {view.partition for view in views}, {view.id for view in views}
        while code == OK:
            open_ = await self._still_writing(partitions, meant)
            if not open_:
                break
            if time.monotonic() > ends:
                raise CommandError(
                    f"the last write of {open_[0]} has not ended",
                    cause="Nothing was created. The central HPAs continue within a minute.",
                    next_step=f"fleethpa status {open_[0]}",
                    code=UNREACHABLE,
                )
            await rest(LOOK_EVERY_S)
        return code

    def _is_held(self, view: HpaView) -> bool:
        return any(text.startswith(f"{view.id} ") for text in self._plan.held)

    def _pause(self, view: HpaView) -> PlannedRecord:
        # Log time and this machine's may differ.
        until = max(self._session.now_ms(), view.clock_ms) + STOPPED_MS
        body = Command(
            command="pause", name=view.id.name, until=until, author=self._author, reason=f"{MARK}: {self._reason}"
        )
        return _about(view.id, f"hpa {view.id} paused for a minute", body)

    async def _still_writing(self, partitions: set[int], meant: set[HpaId]) -> list[HpaId]:
        async with self._session.past() as past:
            state = await read_state(past, sorted(partitions))
        return [hpa for hpa, view in state.hpas.items() if hpa in meant and view.is_writing]

    async def _create(self, views: Sequence[HpaView], natives: dict[HpaId, Json], stopped_at: float) -> None:
        for view in views:
            native = self._plan.natives.get(view.id)
            if native is None:
                if time.monotonic() - stopped_at > STOPPED_MS / 1000 - 2 * REQUEST_S:
                    raise CommandError(
                        f"{view.id} is not released: the pause of its central HPA is nearly over",
                        cause="The steps before took too long.",
                        next_step="release again",
                        code=UNREACHABLE,
                    )
                native = await self._api.create(view.id, manifest_to_create(view))
            natives[view.id] = native
            if carried := carried_status(view):
                await self._api.carry_status(view.id, native, carried)

    def _created(self, view: HpaView, natives: Mapping[HpaId, Json]) -> PlannedRecord:
        body = AutoscalerSet(hpa=natives[view.id], author=self._author, reason=self._reason)
        return _about(view.id, f"native HPA {view.id} created", body)

    async def _unseen(self, natives: Mapping[HpaId, Json]) -> list[HpaId]:
        """Wait for the native controller's first status of each; returns those that got none in time."""
        open_ = list(natives)
        ends = time.monotonic() + self._native_s
        while True:
            open_ = [hpa for hpa in open_ if not _is_looked_after(await self._api.get(hpa))]
            if not open_ or time.monotonic() >= ends:
                return open_
            await rest(LOOK_EVERY_S)

    def _ended(self, view: HpaView) -> PlannedRecord:
        """The record that ends the central HPA; from then on fleethpa decides beside the native one."""
        name, author, reason = view.id.name, self._author, self._reason
        deleted = AutoscalerDeleted(name=name, origin="central", author=author, reason=reason)
        return _about(
            view.id,
            f"hpa {view.id} released",
            deleted,
            Command(command="mode", name=name, mode="shadow", author=author, reason=reason),
        )

    def _resumed(self, hpa: HpaId, reason: str) -> PlannedRecord:
        return _about(
            hpa, f"hpa {hpa} resumed", Command(command="resume", name=hpa.name, author=self._author, reason=reason)
        )

    async def _take_back(self, writer: Writer, unseen: Sequence[HpaId], natives: Mapping[HpaId, Json]) -> None:
        reason = "no native controller looked at it"
        writes = []
        for hpa in unseen:
            if hpa in self._plan.kept:
                continue
            await self._api.delete(hpa, natives[hpa])
            if not self._by_agent:
                deleted = deletion_of(natives[hpa], self._author, reason)
                writes.append(_about(hpa, f"native HPA {hpa} deleted again", deleted))
            if hpa in self._stopped:
                writes.append(self._resumed(hpa, reason))
        await self._record(writer, writes)

    def _no_controller(self, unseen: Sequence[HpaId]) -> CommandError:
        first, kept = unseen[0], self._plan.kept.intersection(unseen)
        return CommandError(
            f"the native controller of cluster {first.cluster} has not looked at "
            f"{first if len(unseen) == 1 else counted(len(unseen), 'HPA')} within {self._native_s:g} s",
            cause="Nothing would have scaled, so the native HPAs were deleted again and the central ones continue."
            + (" But a native HPA that was there before stays where the central one would not scale." * bool(kept)),
            next_step=f"fleethpa run observer --contexts {first.cluster} --prove-native-absent",
            code=ANSWER_IS_NO,
        )

    async def _record(self, writer: Writer, writes: Sequence[PlannedRecord]) -> int:
        """Put a step into the log that is not worth a line on the terminal."""
        if not writes:
            return OK
        return await write_all(self._session, writer, writes, self._wait, must_arrive=True, silent=True)


def _about(hpa: HpaId, subject: str, body: Body, *also: Body) -> PlannedRecord:
    return PlannedRecord(subject, body, hpa.cluster, hpa.namespace, also)


def _is_looked_after(native: Json | None) -> bool:
    """Whether the native controller has evaluated an HPA: `carried_status` writes neither of these."""
    status = (native or {}).get("status") or {}
    seen = {each["type"] for each in status.get("conditions") or ()}
    return bool(status.get("observedGeneration")) or "AbleToScale" in seen

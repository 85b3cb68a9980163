"""The steps by which HPAs go back to the native controller of their cluster, for `fleethpa release`.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from fleethpa.changes import handover
from fleethpa.changes.handoverplans import (
    MARK,
    ReleasePlan,
    carried_status,
    concerns,
    manifest_to_create,
    native_differences,
    release_plan,
    with_status,
)
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.writing import rest
from fleethpa.fleet.state import read_state
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import OK, UNREACHABLE, CommandError
from fleethpa.show.words import counted, listed
from reconciler.clusters.answers import ApiError
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command
from streams.state.clustersettings import effective

if TYPE_CHECKING:
    from reconciler.clusters.nativehpas import NativeHpas

STOPPED_MS: Final = 60_000
"""For how long the central HPA is paused: what a release that was killed leaves behind ends by itself."""
REQUEST_S: Final = 5.0
"""How long a request to the API server may take."""
_CONFLICTS: Final = 3
_ENDED_S: Final = 30.0
"""How long a last write may take: longer than it takes to expire."""


# --- planning ---------------------------------------------------------------------------------------------------------


async def planned(
    state: FleetState,
    place: handover.Place,
    views: Sequence[HpaView],
    hpas: NativeHpas,
    include_held: bool,
    fleet_hpa: HpaId | None = None,
) -> ReleasePlan:
    """Return what can be released in a cluster, as its API server has tried it. Raises as `_check_controller`."""
    _check_controller(state, place.cluster)
    natives = await handover.native_objects(hpas, handover.Place(place.cluster, place.namespace))
    plan = release_plan(state, views, natives, include_held, fleet_hpa)
    await _try(hpas, plan)
    plan.concerns = concerns(plan, place, native_differences(state, place.cluster))
    return plan


def _check_controller(state: FleetState, cluster: str) -> None:
    """See that somebody will scale what is released.

    Raises CommandError: it was set or proven that the cluster has no native controller (exit 1).
    """
    if effective(state.settings, cluster).native_absent:
        raise CommandError(
            f"cluster {cluster} has no native HPA controller, so nothing would scale what is released",
            cause="It was proven, or set, that the controller is switched off. Switch it on first.",
            next_step=f"switch it on, then fleethpa admin clusters prove-native-absent {cluster}",
        )


async def _try(hpas: NativeHpas, plan: ReleasePlan) -> None:
    """Leave out what the API server would refuse to create, webhooks and quotas included."""
    for hpa, view in list(plan.moved.items()):
        if hpa in plan.natives:
            continue
        try:
            with handover.asking(hpa.cluster, f"release {hpa}"):
                await hpas.create(manifest_to_create(view), dry_run=True)
        except CommandError as error:
            if not isinstance(error.__cause__, ApiError):
                raise
            del plan.moved[hpa]
            cause = f"The API server would refuse it: {error.__cause__}."
            step = f"fleethpa history {hpa} --revision N -o yaml | kubectl create --dry-run=server -f -"
            plan.problems.append(CommandError(f"{hpa} cannot be released", cause=cause, next_step=step))


# --- doing ------------------------------------------------------------------------------------------------------------


class ReleaseSteps(handover.HandOver["HpaView"]):
    """Steps 2 to 5 of the module's docstring. What moves are central HPAs."""

    verb, because = "release", "released to the cluster"

    def __init__(self, *common: Any, plan: ReleasePlan, native_s: float) -> None:
        """`native_s`: how long to wait for the first status of the native controller."""
        super().__init__(*common)
        self.plan, self._native_s = plan, native_s
        self._stopped: set[HpaId] = set()

    def described(self, plan: handover.Plan[HpaView]) -> Iterator[str]:
        for hpa in plan.moved:
            first = "the native HPA is there already" if hpa in self.plan.natives else "create the native HPA"
            yield f"hpa {hpa}: {first}, wait for its first status, end the central HPA"

    def afterwards(self) -> Iterator[str]:
        where = f"-n {self.place.namespace}" if self.place.namespace else "-A"
        yield f"Next: kubectl --context {self.place.cluster} get hpa {where}"

    async def move(self, group: Mapping[HpaId, HpaView]) -> int:
        stopped_at = time.monotonic()
        if (code := await self._stop(group)) != OK:
            return code
        natives: dict[HpaId, Json] = {}
        try:
            await self._create(group, natives, stopped_at)
        finally:
            # Also of a group of which only some could be created.
            code = await self._report(natives)
        if code != OK:
            return code
        unseen = await self._unseen(natives)
        ended = [hpa for hpa in group if hpa not in unseen]
        if ended:
            code = await self.record([self._ended(hpa) for hpa in ended])
            resumed = [self._resumed(hpa, self.reason) for hpa in ended]
            code = max(code, await self.record(resumed, silent=True))
        if unseen:
            await self._delete_natives(unseen, natives)
            raise self._no_controller(unseen)
        return code

    async def _report(self, natives: Mapping[HpaId, Json]) -> int:
        """See that the log knows the native HPAs, so that the central ones are refused."""
        if not self.by_agent:
            return await self.record([self._created(hpa, native) for hpa, native in natives.items()], silent=True)
        uids = {hpa: native["metadata"]["uid"] for hpa, native in natives.items()}
        late = await handover.until_reported(self.session, uids)
        if late:
            await self._delete_natives(list(natives), natives)
            raise CommandError(
                f"the agent of cluster {late[0].cluster} has not reported the native HPA {late[0]}",
                cause=self._deleted_natives(natives),
                next_step=f"fleethpa get clusters {late[0].cluster}",
                code=UNREACHABLE,
            )
        return OK

    async def _stop(self, group: Mapping[HpaId, HpaView]) -> int:
        """Pause those that write, and wait until no write of them is on its way any more."""
        writing = [view for hpa, view in group.items() if hpa not in self.plan.natives and hpa not in self.plan.held]
        code = await self.record([self._pause(view) for view in writing], silent=True)
        self._stopped |= {view.id for view in writing}
        ends = time.monotonic() + _ENDED_S
        while code == OK and (open_ := await self._still_writing(group)):
            if time.monotonic() > ends:
                raise CommandError(
                    f"the last write of {open_[0]} has not ended",
                    cause="Nothing was created. The central HPAs continue within a minute.",
                    next_step=f"fleethpa status {open_[0]}",
                    code=UNREACHABLE,
                )
            await rest(handover.LOOK_EVERY_S)
        return code

    def _pause(self, view: HpaView) -> PlannedRecord:
        # Log time and this machine's may differ.
        until = max(self.session.now_ms(), view.clock_ms) + STOPPED_MS
        body = Command(
            command="pause", name=view.id.name, until=until, author=self.author, reason=f"{MARK}: {self.reason}"
        )
        return handover.about(view.id, f"hpa {view.id} paused for a minute", body)

    async def _still_writing(self, group: Mapping[HpaId, HpaView]) -> list[HpaId]:
        async with self.session.past() as past:
            state = await read_state(past, sorted({view.partition for view in group.values()}))
        return [hpa for hpa, view in state.hpas.items() if hpa in group and view.is_writing]

    async def _create(self, group: Mapping[HpaId, HpaView], natives: dict[HpaId, Json], stopped_at: float) -> None:
        """Create the native HPAs that are not there yet; all of them end up in `natives`."""
        for hpa, view in group.items():
            native = self.plan.natives.get(hpa)
            if native is None:
                if time.monotonic() - stopped_at > STOPPED_MS / 1000 - 2 * REQUEST_S:
                    raise CommandError(
                        f"{hpa} is not released: the pause of its central HPA is nearly over",
                        cause="The steps before took too long.",
                        next_step="release again",
                        code=UNREACHABLE,
                    )
                with handover.asking(hpa.cluster, f"create the native HPA {hpa}"):
                    native = await self.hpas.create(manifest_to_create(view))
            natives[hpa] = native
            if carried := carried_status(view):
                with handover.asking(hpa.cluster, f"write the status of the native HPA {hpa}"):
                    await self._carry_status(native, carried)

    async def _carry_status(self, native: Json, carried: Json) -> None:
        """Write the past that its controller must know into a native HPA's status; what that has written stays."""
        for left in reversed(range(_CONFLICTS)):
            try:
                await self.hpas.replace_status(with_status(native, carried))
                return
            except ApiError as error:
                newest = await self.hpas.get(native["metadata"]["namespace"], native["metadata"]["name"])
                if newest is None or not error.is_conflict or not left:
                    raise
                native = newest

    def _created(self, hpa: HpaId, native: Json) -> PlannedRecord:
        body = AutoscalerSet(hpa=native, author=self.author, reason=self.reason)
        return handover.about(hpa, f"native HPA {hpa} created", body)

    async def _unseen(self, natives: Mapping[HpaId, Json]) -> list[HpaId]:
        """Wait for the native controller's first status of each; return those that got none in time."""
        open_ = list(natives)
        ends = time.monotonic() + self._native_s
        while True:
            with handover.asking(self.place.cluster, "read the native HPAs"):
                open_ = [hpa for hpa in open_ if not _is_looked_after(await self.hpas.get(hpa.namespace, hpa.name))]
            if not open_ or time.monotonic() >= ends:
                return open_
            await rest(handover.LOOK_EVERY_S)

    def _ended(self, hpa: HpaId) -> PlannedRecord:
        """The record that ends the central HPA; from then on fleethpa decides beside the native one."""
        deleted = AutoscalerDeleted(name=hpa.name, origin="central", author=self.author, reason=self.reason)
        shadow = Command(command="mode", name=hpa.name, mode="shadow", author=self.author, reason=self.reason)
        return handover.about(hpa, f"hpa {hpa} released", deleted, shadow)

    def _resumed(self, hpa: HpaId, reason: str) -> PlannedRecord:
        body = Command(command="resume", name=hpa.name, author=self.author, reason=reason)
        return handover.about(hpa, f"hpa {hpa} resumed", body)

    async def _delete_natives(self, unseen: Sequence[HpaId], natives: Mapping[HpaId, Json]) -> None:
        """Delete native HPAs again, so that the central ones continue."""
        reason = "no native controller looked at it"
        writes = []
        for hpa in unseen:
            if hpa in self.plan.kept:
                continue
            uid = natives[hpa]["metadata"]["uid"]
            await self.delete(hpa, uid)
            if not self.by_agent:
                writes.append(self.deletion(hpa, uid, reason))
            if hpa in self._stopped:
                writes.append(self._resumed(hpa, reason))
        await self.record(writes, silent=True)

    def _deleted_natives(self, hpas: Collection[HpaId]) -> str:
        """Return what became of native HPAs that `_delete_natives` was called for, in words."""
        kept = [str(hpa) for hpa in hpas if hpa in self.plan.kept]
        texts = []
        if len(kept) < len(hpas):
            texts.append("The native HPAs that fleethpa created were deleted again, and the central ones continue.")
        if kept:
            texts.append(
                f"Not deleted, since fleethpa did not create it or would not scale in its place: {listed(kept)}."
            )
        return " ".join(texts)

    def _no_controller(self, unseen: Sequence[HpaId]) -> CommandError:
        first = unseen[0]
        return CommandError(
            f"the native controller of cluster {first.cluster} has not looked at "
            f"{first if len(unseen) == 1 else counted(len(unseen), 'HPA')} within {self._native_s:g} s",
            cause=f"Nothing would have scaled. {self._deleted_natives(unseen)}",
            next_step=f"fleethpa run observer --contexts {first.cluster} --kubeconfig FILE --prove-native-absent",
        )


def _is_looked_after(native: Json | None) -> bool:
    """Whether the native controller has evaluated an HPA: `carried_status` writes neither of these."""
    status = (native or {}).get("status") or {}
    seen = {each["type"] for each in status.get("conditions") or ()}
    return bool(status.get("observedGeneration")) or "AbleToScale" in seen

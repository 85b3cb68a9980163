"""Issue a command for a scope of HPAs: what would be refused is left out, what it will not do is said beforehand."""

from __future__ import annotations

from collections.abc import Iterator

from fleethpa.changes.foresight import Present, concerns, refusal_errors
from fleethpa.changes.records import PlannedRecord
from fleethpa.changes.settings import Scope, writes_of
from fleethpa.changes.writing import Concern, WriteOptions, change
from fleethpa.fleet.state import fleet_now, has_own
from fleethpa.fleet.views import FleetState, resume_command
from fleethpa.frame.errors import OK, CommandError, usage
from fleethpa.frame.options import parse_duration_ms
from fleethpa.frame.session import Session
from fleethpa.show.text import LATEST_MS
from fleethpa.show.words import listed
from schemas.keys import HpaId
from schemas.observed import Command


def until_ms(session: Session, lasting: str) -> int:
    """When `--for` ends. Raises CommandError (exit 2): it cannot be read, is zero, or is too long."""
    lasting_ms = parse_duration_ms(lasting, "--for")
    until = session.now_ms() + lasting_ms
    if not lasting_ms or until > LATEST_MS:
        raise usage(f"--for {lasting} cannot be used", cause="It must be a time such as 30m or 2h.")
    return until


def pause_command(
    session: Session, lasting: str | None, scale_in: bool, scale_out: bool, reason: str
) -> tuple[Command, str]:
    """Return what `pause` asks for, and in words. Raises CommandError: its options contradict each other (exit 2)."""
    if scale_in and scale_out:
        raise usage(
            "--scale-in and --scale-out exclude each other", cause="Without either, both directions are paused."
        )
    words = "paused" + (" for scale-in" if scale_in else " for scale-out" if scale_out else "")
    command = Command(
        command="pause",
        pause_kind="scaleDown" if scale_in else "scaleUp" if scale_out else "all",
        until=0 if lasting is None else until_ms(session, lasting),
        author=session.config.author,
        reason=reason,
    )
    return command, words + (f" for {lasting}" if lasting else "")


def override_command(
    session: Session, scope: Scope, replicas: int | None, lasting: str | None, end: bool, reason: str
) -> tuple[Command, str]:
    """Return what `override` asks for, and in words; one without replicas ends an override.

    Raises CommandError: its options contradict each other, or no HPA is named (exit 2).
    """
    if not scope.names or scope.everything:
        raise usage("an override is of HPAs that are named", next_step="fleethpa override NAME --replicas N --for 2h")
    if end == (replicas is not None) or end == (lasting is not None):
        raise usage(
            "--replicas and --for belong together, and exclude --end",
            next_step="fleethpa override NAME --replicas N --for 2h, or fleethpa override NAME --end",
        )
    author = session.config.author
    if lasting is None or replicas is None:
        return Command(command="override", author=author, reason=reason), "override ended"
    until = until_ms(session, lasting)
    command = Command(command="override", replicas=replicas, until=until, author=author, reason=reason)
    return command, f"overridden to {replicas} replicas for {lasting}"


async def issue(session: Session, scope: Scope, command: Command, words: str, options: WriteOptions) -> int:
    scope.check(command.command)
    code, concerns = OK, list[Concern]()
    state = None if scope.everything and command.command != "mode" else await fleet_now(session)
    writes = writes_of(state, session.config.contexts, scope, command, words)
    if command.command == "override":
        for text in _overridden(state or FleetState(), command, writes):
            session.warn(text)
    elif command.command != "pause":
        code, writes, concerns = await _looked_ahead(session, state, scope, command, writes)
    elif scope.everything and not command.reason.strip():  # it may be a slip
        concerns.append(Concern("every cluster would be paused, and no --reason says why", harmful=True))
    return await change(session, command.command, writes, concerns, options, code=code, state=state)


def _overridden(state: FleetState, command: Command, writes: list[PlannedRecord]) -> Iterator[str]:
    """Warnings about an override: what it cannot do as it was asked for, and what it ends."""
    for write in writes:
        view = state.hpas[HpaId(write.cluster, write.namespace, command.name or write.body.name)]  # type: ignore[union-attr]
        if command.replicas is None:
            if view.override is None:
                known = "had no override when it was last known" if state.is_last_known else "has no override"
                yield f"hpa {view.id} {known}"
            continue
        least, most = view.spec.get("minReplicas", 1), view.spec.get("maxReplicas", 0)
        if not least <= command.replicas <= most:
            yield f"hpa {view.id}: minReplicas {least} and maxReplicas {most} bound the override"
        if view.fleet_hpa is not None:
            yield (
                f"hpa {view.id} has the share that FleetHPA {view.fleet_hpa} allots, so an override has no effect. "
                f"Next: fleethpa override {view.fleet_hpa} --replicas N --for 2h"
            )
        if view.mode != "enforce":
            yield f"hpa {view.id} is in mode {view.mode}, in which an override has no effect"
        if view.paused:
            yield f"hpa {view.id} is paused, which holds the override: {view.paused}"


def _beside_own(state: FleetState, writes: list[PlannedRecord]) -> list[tuple[PlannedRecord, CommandError]]:
    """The FleetHPAs whose clusters have HPAs of their own: enforced, they would allot shares that no HPA wants."""
    problems = []
    for write in writes:
        view = state.hpas.get(HpaId(write.cluster, write.namespace, getattr(write.body, "name", "")))
        if view is None or view.fleet is None:
            continue
        names = [each.name for each in view.fleet.clusters]
        if own := [each for each in names if has_own(state, view.id, each)]:
            problem = CommandError(
                f"{view.id} cannot be enforced, and keeps its mode: {listed(own)} "
                f"{'has an HPA of its' if len(own) == 1 else 'have HPAs of their'} own",
                cause="Beside an HPA that a cluster has of its own, the shares of the FleetHPA would have no effect.",
                next_step=f"fleethpa shadow-report {view.id}, then fleethpa adopt {view.id} -C {','.join(names)}",
            )
            problems.append((write, problem))
    return problems


async def _looked_ahead(
    session: Session, state: FleetState | None, scope: Scope, command: Command, writes: list[PlannedRecord]
) -> tuple[int, list[PlannedRecord], list[Concern]]:
    """Leave out what would be refused, and say what has to be agreed to; with the exit code so far."""
    async with session.past() as past:
        present = Present(await past.fleet())
    if command.command == "resume":
        for (text, end), hpas in _still_paused(state or await fleet_now(session), present, writes).items():
            session.warn(f"{listed(map(str, hpas))} stays paused: {text}. Next: {end}")
    code = OK
    if state is not None and command.mode == "enforce":
        beside = _beside_own(state, writes)
        code = session.report(*(problem for _, problem in beside))
        held = [write for write, _ in beside]
        writes = [write for write in writes if write not in held]
    foresight = present.foresee(writes)
    touched = foresight.touched(writes)
    refused = foresight.refusals(touched) if command.mode == "enforce" else {}
    if not refused:
        return code, writes, concerns(command.command, foresight, writes)
    if scope.names:
        # Of HPAs that are named, those that would be refused keep their mode.
        writes = [write for write in writes if not refused.keys() & set(foresight.touched([write]))]
        foresight = present.foresee(writes)
    elif len(refused) == len(touched):
        writes = []
    what = "cannot be enforced, and nothing was changed" if scope.names or not writes else "will be refused for now"
    code = session.report(*refusal_errors(refused, what))
    return code, writes, concerns(command.command, foresight, writes)


def _still_paused(
    state: FleetState, present: Present, writes: list[PlannedRecord]
) -> dict[tuple[str, str], list[HpaId]]:
    """The pauses that a resume does not end, with their commands, and the HPAs that they hold. A pause of all clusters
    is named anyway.
    """
    ended = {resume_command(write.cluster, write.namespace, getattr(write.body, "name", "")) for write in writes}
    pauses: dict[tuple[str, str], list[HpaId]] = {}
    for hpa in present.foresee(writes).touched(writes):
        for text, end in state.hpas[hpa].pauses if hpa in state.hpas else ():
            if end not in ended and not end.endswith(" --all"):
                pauses.setdefault((text, end), []).append(hpa)
    return pauses

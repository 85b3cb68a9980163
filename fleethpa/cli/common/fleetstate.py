"""The state of the fleet as read verbs show it: state rows, and what the log and the decisions say since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from fleethpa.cli.common.decisionreading import Recorded
from fleethpa.cli.common.readers import Reader
from fleethpa.cli.common.session import Session
from fleethpa.cli.common.shownstatus import object_of, status_of, with_ending
from fleethpa.cli.common.views import ClusterView, FleetState, HpaView
from fleethpa.cli.output.times import rfc3339
from schemas.autoscalers import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command, Mode
from schemas.codec import WireError, decode
from schemas.decisions import Decision
from schemas.entries import LogRecord
from schemas.keys import HpaId, split_namespace_key
from schemas.settings import ClusterSettings, SettingsSet
from streams.state.clustersettings import merge, take_settings
from streams.state.foldhpas import paused_by
from streams.state.moves import KEPT_MOVES, Move, moved
from streams.state.rows import HpaRow, NamespaceRow, PartitionRow, Pause, decode_row, row_kind

ALL: Final = "*"


async def fleet_now(session: Session) -> FleetState:
    """Read the state from where the command line says.

    Raises:
        CommandError: the source cannot be read.
    """
    async with session.reader() as reader:
        return await read_state(reader)


async def read_state(reader: Reader) -> FleetState:
    """Read rows, then what came after them.

    Raises:
        CommandError: the source cannot be read.
    """
    rows = _decoded(await reader.rows())
    partitions = {row.number: row for row in rows if isinstance(row, PartitionRow)}

    def enough(partition: int, decisions: list[Recorded]) -> bool:
        row = partitions.get(partition)
        return row is not None and bool(decisions) and decisions[0].decision.seq <= row.seq

    tails = await reader.tail(enough)
    builder = _Builder(rows, partitions)
    for number in tails:
        first = partitions[number].offset + 1 if number in partitions else 0
        async for record in reader.log(number, first):
            builder.take_log(record.timestamp_ms, record.value)
    for decisions in tails.values():
        builder.take_decisions(decisions)
    return builder.state()


def _decoded(rows: Mapping[bytes, bytes]) -> list[HpaRow | NamespaceRow | PartitionRow]:
    return [decode_row(key, value) for key, value in rows.items() if row_kind(key)[0] in "hnp" and value]


class _Builder:
    """Puts rows, log entries and decisions together."""

    def __init__(
        self, rows: Iterable[HpaRow | NamespaceRow | PartitionRow], partitions: Mapping[int, PartitionRow]
    ) -> None:
        self.partitions = partitions
        self.clock_ms = max((row.clock_ms for row in partitions.values()), default=0)
        self.hpas = {row.id: row for row in rows if isinstance(row, HpaRow)}
        self.namespaces = [row for row in rows if isinstance(row, NamespaceRow)]
        self.objects: dict[HpaId, AutoscalerSet | None] = {}
        self.lists: dict[str, tuple[str, set[str]]] = {}
        self.newest: dict[HpaId, Recorded] = {}
        self.moves: dict[HpaId, list[Move]] = {hpa: [Move(*m) for m in row.moves] for hpa, row in self.hpas.items()}
        self.pauses = _pauses(partitions.values(), self.namespaces)
        self.modes = _modes(self.namespaces)
        self.settings: dict[str, ClusterSettings] = {}
        for row in partitions.values():
            self.settings |= row.settings

    def take_log(self, timestamp_ms: int, value: bytes) -> None:
        """Note what users and clusters said since the rows were written."""
        self.clock_ms = max(self.clock_ms, timestamp_ms)
        if not any(word in value for word in (b'"autoscaler', b'"command"', b'"settings"')):
            return
        try:
            record = decode(value, LogRecord)
        except WireError:
            return  # the decider skips such a record too
        for entry in record.entries:
            self._take_entry(entry.key, entry.body, timestamp_ms)

    def _take_entry(self, key: str, body: Any, now_ms: int) -> None:
        if isinstance(body, SettingsSet):
            take_settings(self.settings, body)
        elif isinstance(body, Command):
            self._take_command(key, body, now_ms)
        elif isinstance(body, AutoscalerSet):
            if not body.renewed:
                self._take_object(key, body)
        elif isinstance(body, AutoscalerList):
            self._take_list(key, body)
        elif isinstance(body, AutoscalerDeleted):
            self._take_deletion(key, body)

    def _take_list(self, key: str, body: AutoscalerList) -> None:
        """Note a chunk of a full list; after the last one, what it did not name is gone."""
        begun, named = self.lists.pop(key, ("", set())) if body.chunk else (body.list_id, set[str]())
        for hpa in body.hpas:
            self._take_object(key, AutoscalerSet(hpa=hpa))
            named.add(hpa["metadata"]["name"])
        if begun != body.list_id:
            return
        if body.chunk < body.chunks - 1:
            self.lists[key] = begun, named
            return
        known = {each.name for each in (*self.hpas, *self.objects) if each.namespace_key == key}
        for name in known - named:
            self._take_deletion(key, AutoscalerDeleted(name=name, origin="cluster"))

    def _take_object(self, key: str, change: AutoscalerSet) -> None:
        cluster, namespace = split_namespace_key(key)
        hpa = HpaId(cluster, namespace, change.hpa["metadata"]["name"])
        row = self.hpas.get(hpa)
        # A cluster's HPA that bears the name of a central one is not shown in its place.
        if change.origin == "central" or row is None or row.origin == "cluster":
            self.objects[hpa] = change

    def _take_deletion(self, key: str, deletion: AutoscalerDeleted) -> None:
        cluster, namespace = split_namespace_key(key)
        hpa = HpaId(cluster, namespace, deletion.name)
        known = self.objects.get(hpa) or self.hpas.get(hpa)
        # Once adopted, the cluster's own HPA goes and the central one of the same name stays.
        if known is None or known.origin == deletion.origin:
            self.objects[hpa] = None

    def _take_command(self, key: str, command: Command, now_ms: int) -> None:
        scope = command.cluster or ALL if key == ALL else f"{key}/{command.name}" if command.name else key
        if command.command == "mode" and command.mode:
            self.modes[scope] = command.mode
        elif command.command != "mode":
            self.pauses[scope] = paused_by(self.pauses.get(scope, {}), command, now_ms)

    def take_decisions(self, decisions: Iterable[Recorded]) -> None:
        """Note the newest evaluation of each HPA."""
        for recorded in decisions:
            self.clock_ms = max(self.clock_ms, recorded.time_ms)
            self._take_move(recorded)
            held = self.newest.get(recorded.hpa)
            if recorded.decision.kind == "evaluation" or held is None:
                self.newest[recorded.hpa] = recorded
            elif recorded.decision.status:
                merged = with_ending(held.decision, recorded.decision)
                self.newest[recorded.hpa] = replace(held, decision=merged)

    def _take_move(self, recorded: Recorded) -> None:
        change = recorded.decision.observed.get("change")
        known = self.moves.setdefault(recorded.hpa, [])
        # A short record repeats what an earlier full one saw; a row has what came before it.
        if change and not recorded.short and (not known or known[-1].time_ms < recorded.time_ms):
            known.append(moved(recorded.time_ms, change))

    def state(self) -> FleetState:
        state = FleetState(clock_ms=self.clock_ms, settings=dict(self.settings), partitions=dict(self.partitions))
        for hpa in sorted(set(self.hpas) | set(self.newest) | set(self.objects)):
            view = self._view(hpa)
            if view is not None:
                state.hpas[hpa] = view
        for row in self.namespaces:
            if row.part == 0:
                state.namespaces[row.cluster, row.namespace] = row
        state.clusters = _clusters(self, state)
        return state

    def _view(self, hpa: HpaId) -> HpaView | None:
        row, newest = self.hpas.get(hpa), self.newest.get(hpa)
        change = self.objects.get(hpa)
        if hpa in self.objects and change is None:
            return None
        if row is not None and (row.deleted or row.gone) and change is None:
            return None
        body = change.hpa if change is not None else row.hpa_object() if row is not None else None
        if body is None:
            if newest is None:
                return None
            body = object_of(newest.decision)
        decision = newest.decision if newest else None
        status = status_of(row, decision)
        return HpaView(
            id=hpa,
            hpa={"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"} | body | {"status": status},
            mode=self._mode(hpa, row, decision),
            origin=change.origin if change else row.origin if row else decision.origin if decision else "cluster",
            partition=newest.partition if newest else -1,
            decision=newest,
            paused=self._paused(hpa),
            refused=decision.refused if decision else row.refused if row else "",
            author=(change.author if change else "") or (row.author if row else ""),
            reason=(change.reason if change else "") or (row.change_reason if row else ""),
            moves=tuple(self.moves.get(hpa, ())[-KEPT_MOVES:]),
            clock_ms=self.clock_ms,
        )

    def _mode(self, hpa: HpaId, row: HpaRow | None, decision: Decision | None) -> Mode:
        if str(hpa) in self.modes:
            return self.modes[str(hpa)]
        return decision.mode if decision else row.mode if row else "shadow"

    def in_force(self, pause: Pause) -> bool:
        """Whether a pause has not expired."""
        return not pause.until_ms or pause.until_ms > self.clock_ms

    def _paused(self, hpa: HpaId) -> str:
        for scope in (str(hpa), hpa.namespace_key, hpa.cluster, ALL):
            for kind, pause in self.pauses.get(scope, {}).items():
                if self.in_force(pause):
                    return pause_text(scope if scope != str(hpa) else "", kind, pause)
        return ""


def pause_text(scope: str, kind: str, pause: Pause) -> str:
    """A pause in words."""
    parts = [
        kind,
        f"by {pause.author}" if pause.author else "",
        f"since {rfc3339(pause.since_ms)}" if pause.since_ms else "",
    ]
    parts += [f"until {rfc3339(pause.until_ms)}" if pause.until_ms else "", f"for {scope}" if scope else ""]
    text = ", ".join(part for part in parts if part)
    return f"{text}: {pause.reason}" if pause.reason else text


def _pauses(partitions: Iterable[PartitionRow], namespaces: Iterable[NamespaceRow]) -> dict[str, dict[str, Pause]]:
    found: dict[str, dict[str, Pause]] = {}
    for row in partitions:
        for scope, pauses in row.pauses.items():
            found[scope] = dict(pauses)
    for namespace in namespaces:
        for name, (_, pauses) in namespace.commands.items():
            if pauses:
                found[_scope(namespace, name)] = dict(pauses)
    return found


def _modes(namespaces: Iterable[NamespaceRow]) -> dict[str, Mode]:
    return {
        _scope(row, name): mode for row in namespaces for name, (mode, _) in row.commands.items() if mode is not None
    }


def _scope(row: NamespaceRow, name: str) -> str:
    key = f"{row.cluster}/{row.namespace}"
    return f"{key}/{name}" if name else key


def _clusters(builder: _Builder, state: FleetState) -> dict[str, ClusterView]:
    found: dict[str, ClusterView] = {}

    def view(name: str) -> ClusterView:
        return found.setdefault(name, ClusterView(name, clock_ms=builder.clock_ms))

    for hpa, hpa_view in state.hpas.items():
        cluster = view(hpa.cluster)
        cluster.hpas += 1
        cluster.modes[hpa_view.mode] = cluster.modes.get(hpa_view.mode, 0) + 1
    for (name, namespace), row in state.namespaces.items():
        cluster = view(name)
        cluster.namespaces += 1
        for watch, word in row.watches.items():
            if word.problem:
                cluster.problems[f"{namespace}/{watch}"] = word.problem
    for name, heard_ms in _heard(builder.partitions.values(), state.namespaces.values()):
        cluster = view(name)
        cluster.heard_ms = max(cluster.heard_ms or 0, heard_ms)
    for name in builder.settings:
        if name != ALL:
            view(name)
    nothing = ClusterSettings()
    for name, cluster in found.items():
        cluster.settings = merge(builder.settings.get(ALL, nothing), builder.settings.get(name, nothing))
    for name, cluster in found.items():
        pauses = [pause_text("", kind, p) for kind, p in builder.pauses.get(name, {}).items() if builder.in_force(p)]
        cluster.paused = pauses[0] if pauses else ""
    return dict(sorted(found.items()))


def _heard(partitions: Iterable[PartitionRow], namespaces: Iterable[NamespaceRow]) -> Iterator[tuple[str, int]]:
    for row in partitions:
        for key, session in row.sessions.items():
            yield key.partition("/")[0], session.heard_ms
    for namespace in namespaces:
        for word in namespace.watches.values():
            yield namespace.cluster, word.heard_ms

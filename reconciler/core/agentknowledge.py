"""What an agent knows of its cluster's settings and central HPAs, folded from the records of its topic. No I/O."""

from typing import NamedTuple

from schemas.agents import AgentKnowledge, CentralHpa, KnownPause
from schemas.kubernetes.jsontypes import Json
from schemas.settings import SettingsSet

HpaName = tuple[str, str]
"""Namespace and name."""


class Learnt(NamedTuple):
    """What is new: HPAs by name (None: gone), and whether the settings were replaced."""

    hpas: dict[HpaName, Json | None]
    has_settings: bool = False


_NOTHING = Learnt({})


class KnowledgeFold:
    """Keeps the newest snapshot and the changes since. `is_complete`: a whole snapshot has come."""

    def __init__(self) -> None:
        self.is_complete = False
        self.settings: list[SettingsSet] = []
        self.hpas: dict[HpaName, Json] = {}
        self.pauses: list[KnownPause] = []
        self._parts: dict[int, AgentKnowledge] = {}
        self._since: list[AgentKnowledge] = []
        """Changes that came between the parts of a snapshot: they are newer than those parts."""

    @property
    def has_no_native(self) -> bool:
        """Whether the settings say that no native HPA controller runs; the cluster's come after those of all."""
        known = [each.settings.native_controller for each in self.settings if each.settings.native_controller]
        return known[-1:] == ["absent"]

    def take(self, record: AgentKnowledge) -> Learnt:
        """Take a record in."""
        if not record.snapshot:
            self._since.append(record)
            return self._change(record)
        if record.chunk == 0 or any(part.snapshot != record.snapshot for part in self._parts.values()):
            self._parts, self._since = {}, []
        self._parts[record.chunk] = record
        if len(self._parts) < record.chunks:
            return _NOTHING
        return self._replace()

    def _replace(self) -> Learnt:
        parts = [self._parts[number] for number in sorted(self._parts)]
        settings = [entry for part in parts for entry in part.settings]
        for each in (*parts, *self._since):
            self.pauses = self.pauses if each.pauses is None else each.pauses
        found = {(each.namespace, each.name): each.hpa for part in parts for each in part.hpas}
        for change in self._since:
            _apply(found, change.hpas)
            settings = change.settings or settings
        before, self.hpas = self.hpas, found
        had_settings, self.settings = self.settings, settings
        new = not self.is_complete
        self.is_complete, self._parts, self._since = True, {}, []
        changed: dict[HpaName, Json | None] = dict.fromkeys(before.keys() - found.keys())
        changed |= {name: hpa for name, hpa in found.items() if before.get(name) != hpa}
        return Learnt(changed, new or settings != had_settings)

    def _change(self, record: AgentKnowledge) -> Learnt:
        _apply(self.hpas, record.hpas)
        if record.settings:
            self.settings = record.settings
        if record.pauses is not None:
            self.pauses = record.pauses
        changed = {(each.namespace, each.name): None if each.deleted else each.hpa for each in record.hpas}
        return Learnt(changed, bool(record.settings))


def _apply(known: dict[HpaName, Json], changes: list[CentralHpa]) -> None:
    for each in changes:
        if each.deleted:
            known.pop((each.namespace, each.name), None)
        else:
            known[each.namespace, each.name] = each.hpa

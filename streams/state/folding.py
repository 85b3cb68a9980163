"""The entry that is being folded and where, and which of the observers of its cluster counts."""

from schemas import limits
from schemas.entries import Source
from schemas.keys import supersedes
from schemas.observed import Heartbeat
from streams.state.namespace import Namespace
from streams.state.partitionrow import ObserverSession, VersionRow
from streams.state.partitionstate import State
from streams.state.rows import WatchRow

VERSION_KEPT_MS = 60_000
"""How long a reported version of a cluster counts before another one is taken (log time)."""
SILENCE_MS = 30_000
"""After this much silence of the observer session that is followed, another one takes over; a later session of the same
instance does at once.
"""
MAX_PROBLEM_CHARACTERS = 1_000
_NO_NAMESPACE = Namespace("", "")
_BEGINS_WITH_LIST = ("pods", "autoscalers")


class Folding:
    """The entry that is being folded, and where."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.now_ms = state.now_ms
        self.index = 0
        self.source: Source | None = None
        self.namespace = _NO_NAMESPACE
        """Of the newest entry that is about a namespace; what is about a whole cluster does not use it."""

    def position(self) -> str:
        """Source position of the entry, `topic-partition@offset`; empty for one without source."""
        source = self.source
        return "" if source is None else f"{source.topic}-{source.partition}@{source.offset}"

    def place(self) -> str:
        """Place of the entry in the log."""
        return f"{self.state.offset}.{self.index}"

    # --- observer sessions ------------------------------------------------------------------------------------------

    def follows(self, watch: str, session: str, starts_list: bool = False, in_list: bool = False) -> bool:
        """Return whether an entry of this session counts; an entry without a session always does."""
        if not session:
            return True
        namespace, sessions = self.namespace, self.state.row.sessions
        key = f"{namespace.cluster}/{watch}"
        known = sessions.get(key)
        if known is not None and known.session != session:
            has_ended = self.now_ms - known.reported_ms > SILENCE_MS or supersedes(session, known.session)
            if not has_ended or (watch in _BEGINS_WITH_LIST and not starts_list):
                sessions[key] = ObserverSession(known.session, known.reported_ms, known.ignored + 1)
                return False
        ignored = known.ignored if known is not None else 0
        sessions[key] = ObserverSession(session, self.now_ms, ignored)
        return watch not in _BEGINS_WITH_LIST or self._has_list(watch, session, starts_list, in_list)

    def _has_list(self, watch: str, session: str, starts_list: bool, in_list: bool) -> bool:
        """Whether a session's changes count in a namespace: it began a full list there, or was the first session."""
        namespace = self.namespace
        held = namespace.listed.get(watch, "")
        if held == session:
            return True
        if starts_list or (not held and not in_list):
            namespace.touch()
            namespace.listed[watch] = session
            return True
        namespace.count_ignored(f"{watch} of a session that has not begun with a full list")
        return False

    def heartbeat(self, body: Heartbeat) -> None:
        """Store what the followed session still watches; a session that watches nothing is followed no longer."""
        sessions, namespace = self.state.row.sessions, self.namespace
        for watch in sorted({*body.watches, *body.problems}):
            key = f"{namespace.cluster}/{watch}"
            known = sessions.get(key)
            if known is None or known.session != body.session:
                continue
            sessions[key] = ObserverSession(body.session, self.now_ms, known.ignored)
            problem, reason, reported_ms = body.problems.get(watch, "")[:MAX_PROBLEM_CHARACTERS], "", self.now_ms
            if problem:
                before, reason = namespace.watches.get(watch, WatchRow(body.session)), body.reasons.get(watch, "")
                reported_ms = before.reported_ms if before.session == body.session else self.now_ms
            namespace.touch()
            namespace.watches[watch] = WatchRow(body.session, reported_ms, problem, reason, self.now_ms)
        if not body.watches and not body.problems:
            self._release(body.session)
        elif body.kubernetes and body.kubernetes != self.state.version_of(namespace.cluster):
            self._take_version(body)

    def _take_version(self, body: Heartbeat) -> None:
        """Store the version of the cluster, as the session that is followed reports it: other rules may decide now.

        It looks at all HPAs of the cluster, so that a session whose heartbeats contradict each other is not followed
        in each of them.
        """
        state, cluster = self.state, self.namespace.cluster
        followed, known = state.row.sessions.get(f"{cluster}/autoscalers"), state.row.kubernetes.get(cluster)
        is_too_soon = known is not None and state.now_ms - known.since_ms < VERSION_KEPT_MS
        if followed is not None and followed.session == body.session and not is_too_soon:
            row = VersionRow(body.kubernetes, state.now_ms)
            state.put_bounded(limits.ALL_VERSIONS, state.row.kubernetes, cluster, [row])
            state.settings_changed(cluster)

    def _release(self, session: str) -> None:
        sessions, prefix = self.state.row.sessions, f"{self.namespace.cluster}/"
        for key, known in sessions.items():
            if key.startswith(prefix) and known.session == session:
                sessions[key] = ObserverSession(session, self.now_ms - SILENCE_MS - 1, known.ignored)

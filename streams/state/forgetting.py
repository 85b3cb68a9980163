"""What the fold forgets: what is too old to be read, each minute of log time, and the rest at the first record of each
hour.

When is a function of the log alone, so every fold forgets the same at the same record, after any checkpoints.
After a gap in the log of `LONG_MS` or more nothing is forgotten until the next hour: nothing could be reported
during it.
"""

from collections.abc import Iterable

from schemas import limits
from schemas.agents import agent_of_reports
from streams.state.answers import REMEMBERED_MS
from streams.state.foldhpas import delete_hpa
from streams.state.folding import Folding
from streams.state.guards import in_force
from streams.state.hpastate import Hpa
from streams.state.namespace import EXPIRY_SLOTS, Namespace
from streams.state.namespacerows import answer_size, encoded_size, limit_of_arrival
from streams.state.partitionstate import State
from streams.state.rowcodec import hpa_key, namespace_row_keys
from streams.state.rows import SIDES
from streams.state.subject import accounts_of

SWEEP_MS = 3_600_000
"""One hour of log time: the interval of these checks, and how long most things are kept."""
REPORT_KEPT_MS = SWEEP_MS
"""An observer that has been silent for this long is forgotten."""
TOMBSTONE_KEPT_MS = SWEEP_MS
REFUSED_KEPT_MS = SWEEP_MS
SCALE_KEPT_MS = SWEEP_MS
IDLE_KEPT_MS = SWEEP_MS
LONG_MS = 30 * 24 * SWEEP_MS
"""How long is kept what only a person or a departed source could give again: a cluster that is not reported any more,
commands for an HPA that does not exist, what came without an observer's session. No topic keeps such records longer.
"""


def expire(state: State, before_ms: int) -> None:
    """Drop what is too old, of each namespace once a minute of log time; `before_ms`: that of the record before."""
    before, now = before_ms // 1000, state.now_ms // 1000
    if before == now:
        return
    slots = {second % EXPIRY_SLOTS for second in range(max(before, now - EXPIRY_SLOTS) + 1, now + 1)}
    for namespace in [each for each in state.namespaces.values() if each.expiry_slot in slots]:
        _expire(state.namespace(namespace.cluster, namespace.name))


def _expire(namespace: Namespace) -> None:
    """Drop answers, samples and times of arrival that no later evaluation can read, as of this record."""
    oldest_ms = namespace.now_ms - REMEMBERED_MS
    for query, row in list(namespace.answers.items()):
        if row.time_ms < oldest_ms:
            del namespace.answers[query]
            namespace.gives_back(limits.NAMESPACE_ANSWERS, answer_size(row))
    for key, samples in list(namespace.series.items()):
        for name in [name for name, sample in samples.items() if sample.time_ms < oldest_ms]:
            namespace.drop_sample(key, name)
    for question in [key for key, arrival in namespace.arrivals.items() if arrival.started_ms < oldest_ms]:
        del namespace.arrivals[question]
        namespace.gives_back(limit_of_arrival(question), encoded_size(question))


def forget(fold: Folding) -> None:
    """Forget what cannot count any more; called before the entries of a record."""
    state = fold.state
    _forget_in_partition(state)
    _forget_clusters(fold)
    for hpa in [hpa for hpa in state.hpas.values() if _is_past(state, hpa)]:
        del state.hpas[hpa.id]
        for account in accounts_of(state):
            account.forgotten(state, hpa.id)
        state.index.remove(hpa_key(state.row.number, hpa.id).decode())
    hpas: dict[str, list[Hpa]] = {}
    for hpa in state.hpas.values():
        hpas.setdefault(f"{hpa.id.cluster}/{hpa.id.namespace}", []).append(hpa)
    for key, namespace in list(state.namespaces.items()):
        state.namespace(namespace.cluster, namespace.name)  # begins the record there
        if not namespace.is_known:
            if key not in hpas:
                del state.namespaces[key]
            continue
        _forget_scales(state, namespace)
        _forget_commands(state, namespace)
        if _is_idle(state, namespace):
            _remove(state, namespace, hpas.get(key, ()))
    state.usage = {each.cluster: each.held.cluster for each in state.namespaces.values()}


def _is_past(state: State, hpa: Hpa) -> bool:
    if not hpa.row.gone:
        return False
    longer_ms = max((account.tombstone_kept_ms(hpa) for account in accounts_of(state)), default=0)
    return state.now_ms - hpa.row.gone_ms >= TOMBSTONE_KEPT_MS + longer_ms


def _forget_in_partition(state: State) -> None:
    row, now_ms = state.row, state.now_ms
    forget_reports(state)
    row.pauses = in_force(row.pauses, now_ms)
    state.recount()
    for cluster, served in list(row.served.items()):
        # The last one stays: without any, decisions say that no reconciler ever reported.
        if now_ms - served.reported_ms >= LONG_MS and len(row.served) > 1:
            state.drop_bounded(limits.ALL_PROBLEMS, row.served, cluster)
    for cluster, refused in list(row.refused.items()):
        row.refused[cluster] = {what: each for what, each in refused.items() if now_ms - each.last_ms < REFUSED_KEPT_MS}
        if not row.refused[cluster]:
            del row.refused[cluster]


def forget_reports(state: State, cluster: str = "") -> None:
    """Remove the reports of observers (of one cluster, if named) that have been silent for long."""
    for key, known in list(state.row.reports.items()):
        if cluster in ("", known.cluster) and state.now_ms - known.reported_ms > REPORT_KEPT_MS:
            state.drop_bounded(limits.ALL_REPORTS, state.row.reports, key)


def forget_watermarks(state: State, cluster: str) -> None:
    """Remove the watermarks of the reports of a cluster's agents."""
    for key in list(state.row.watermarks):
        agent = agent_of_reports(key.rpartition("-")[0])
        if agent is not None and agent.cluster == cluster:
            del state.row.watermarks[key]


def _forget_clusters(fold: Folding) -> None:
    """Forget sessions and agents that have long been silent or away, and the HPAs that they were the last to report."""
    state, row = fold.state, fold.state.row
    old = {key for key, known in row.sessions.items() if state.now_ms - known.reported_ms >= LONG_MS}
    followed = {key.rpartition("/")[0] for key in row.sessions if key not in old}
    unwatched = {cluster for cluster, _, watch in (key.rpartition("/") for key in old) if watch == "autoscalers"}
    _forget_native(fold, unwatched | (_forget_agents(state) - followed))
    for key in old:
        del row.sessions[key]
    for cluster in [each for each in row.kubernetes if each not in followed]:
        state.drop_bounded(limits.ALL_VERSIONS, row.kubernetes, cluster)
    for cluster, control in list(row.transfers.items()):
        newest_ms = max((each[0] for each in control.changes), default=0)
        if cluster not in followed and state.now_ms - newest_ms >= LONG_MS:
            state.drop_bounded(limits.ALL_TRANSFERS, row.transfers, cluster)


def _forget_agents(state: State) -> set[str]:
    """Forget the agents that left long ago; returns their clusters."""
    agents = state.row.agents
    left = {name for name, agent in agents.items() if agent.left and state.now_ms - agent.left_ms >= LONG_MS}
    for cluster in left:
        del agents[cluster]
        forget_watermarks(state, cluster)
    return left


def _forget_native(fold: Folding, clusters: set[str]) -> None:
    """Forget the HPAs that live in these clusters, in each namespace that an observer has listed."""
    state = fold.state
    for namespace in [each for each in state.namespaces.values() if each.cluster in clusters]:
        fold.namespace = state.namespace(namespace.cluster, namespace.name)
        if namespace.listed.get("autoscalers"):
            for name in sorted(key.name for key in namespace.directory if key.origin == "cluster"):
                delete_hpa(fold, name, "cluster")


def _forget_scales(state: State, namespace: Namespace) -> None:
    """Forget the scales that no HPA names and that were not seen for an hour."""
    old = [
        target
        for target, scale in namespace.scales.items()
        if target not in namespace.by_target
        and state.now_ms - scale.seen_ms >= (SCALE_KEPT_MS if scale.session else LONG_MS)
    ]
    for target in old:
        namespace.drop_scale(target)


def _forget_commands(state: State, namespace: Namespace) -> None:
    """Forget pauses that have ended, and the commands for names that have long had no HPA."""
    names = {name for name in namespace.commands if name and namespace.shown(name) is None}
    unused = {name: namespace.unused.get(name, state.now_ms) for name in sorted(names)}
    for name, (mode, pauses) in list(namespace.commands.items()):
        kept = (mode, in_force({"": pauses}, state.now_ms).get("", {}))
        is_old = state.now_ms - unused.get(name, state.now_ms) >= LONG_MS
        if is_old or kept != (mode, pauses):
            namespace.put_command(name, (None, {}) if is_old else kept)
    unused = {name: since_ms for name, since_ms in unused.items() if name in namespace.commands}
    if unused != namespace.unused:
        namespace.touch()
        namespace.unused = unused


def _is_idle(state: State, namespace: Namespace) -> bool:
    """Return whether a namespace has had no HPA and no news for long; notes since when."""
    if namespace.directory or namespace.commands:
        return False
    if namespace.idle_ms:
        return state.now_ms - namespace.idle_ms >= (IDLE_KEPT_MS if namespace.listed else LONG_MS)
    namespace.touch()
    namespace.idle_ms = state.now_ms
    return False


def _remove(state: State, namespace: Namespace, hpas: Iterable[Hpa]) -> None:
    """Remove a namespace; tombstones are entered into what comes in its place."""
    state.drop_namespace(namespace)
    for side in SIDES:
        state.index.remove_from(namespace_row_keys(state.row.number, namespace, side))
    for hpa in hpas:
        hpa.watched = ()
        state.add(hpa)

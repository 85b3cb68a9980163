"""What keeps fleethpa from doing its work: every part examined, each trouble with the command that comes next."""

from __future__ import annotations

import shlex
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, to_builtins

from fleethpa.fleet.hung import SignsOfLife
from fleethpa.fleet.logtimes import log_time_problem
from fleethpa.fleet.members import KnownMembers, are_found, look_up_members
from fleethpa.fleet.state import read_state
from fleethpa.fleet.troubles import ClusterView, ask_api_server, since
from fleethpa.fleet.views import FleetState, HpaView, Problem, by_cause
from fleethpa.frame.errors import ANSWER_IS_NO, OK, CommandError
from fleethpa.frame.session import Session
from fleethpa.frame.sources import client_settings
from fleethpa.show.formats import Listing
from fleethpa.show.text import paint, span
from fleethpa.show.words import counted, one_line
from reconciler.clusters.manifests import Access, review, wanted
from schemas.agents import AgentTopics
from streams.state.ledger import CoreError, UnknownEngineError

if TYPE_CHECKING:
    from fleethpa.fleet.backlogs import Unread


_STYLES: Final = {"ok": "green", "warning": "yellow", "failure": "red"}


class CheckResult(Struct, frozen=True, rename="camel"):
    """One result. `next_step`: the command that helps; empty: none is needed."""

    level: Literal["ok", "warning", "failure"]
    area: str
    subject: str
    message: str
    next_step: str = ""


def report_sum(session: Session, results: list[CheckResult]) -> int:
    """Count them on stderr; the exit code."""
    counts = {level: sum(each.level == level for each in results) for level in ("warning", "failure")}
    session.note(f"{counted(counts['failure'], 'failure')}, {counted(counts['warning'], 'warning')}")
    return ANSWER_IS_NO if counts["failure"] else OK


def lines(session: Session, check: CheckResult) -> list[str]:
    """A check for people, and what to run next."""
    level = paint(f"{check.level:<8}", _STYLES[check.level], color=session.color)
    step = [f"{'':<19} Next: {check.next_step}"] if check.next_step else []
    return [f"{level} {check.area:<10} {check.subject}  {check.message}", *step]


def listing(results: list[CheckResult]) -> Listing[CheckResult]:
    """Checks for machines."""
    return Listing(kind="Check", items=results, document=to_builtins)


AREAS: Final = ("kafka", "topics", "log", "clusters", "hpas", "access")
"""What is looked at, in order; `access` asks the member clusters of the kubeconfig."""
BEHIND_MS: Final = 60_000
"""The decider writes a checkpoint every 30 s of log time; ingest takes records within a second."""
SHOWN: Final = 20


async def examine(session: Session, areas: tuple[str, ...], options: Mapping[str, Any]) -> AsyncIterator[CheckResult]:
    """Check the areas, in order; without Kafka only at the member clusters.

    `options`: which clusters those are, as `look_up_members` takes them.
    """
    state: FleetState | None = None
    if set(areas) - {"access"}:
        read, state = await _read(session)
        checks = [read]
        if state is not None:
            if session.source == "kafka":
                checks += await _topics(session) if "topics" in areas else []
                checks += await _processes(session, state) if "log" in areas else []
            else:
                checks += _hung(state)
            checks += [*_clusters(state), *_hpas(state)]
        for check in checks:
            if state is None or check.area in areas:
                yield check
    if "access" in areas:
        async for check in _access(session, state, options):
            yield check


async def _read(session: Session) -> tuple[CheckResult, FleetState | None]:
    """Whether the state can be read; and the state, None where it cannot."""
    began = time.monotonic()
    try:
        async with session.past(remarks=False) as past:
            state, partitions = await read_state(past), await past.partitions()
    except CommandError as error:
        source = session.config.servers if session.source == "kafka" else session.source
        return CheckResult("failure", "kafka", source, error.what, error.next_step), None
    except CoreError as error:
        newer = isinstance(error, UnknownEngineError)
        step = "run a newer release of fleethpa" if newer else "fleethpa audit verify"
        return CheckResult("failure", "log", "fold", str(error), step), None
    took = span(round((time.monotonic() - began) * 1000))
    return CheckResult("ok", "kafka", past.name, f"{partitions} partitions, read in {took}"), state


async def _processes(session: Session, state: FleetState) -> list[CheckResult]:
    """Which processes hang, by the same rules as in every read verb, which are behind, and which keep up."""
    checks, names = _hung(state), {each.process for each in state.hung}
    checks += [await _ingest(session, state)] if "ingest" not in names else []
    checks += _decider(state) if "decider" not in names else []
    has_agents = any(cluster.has_agent for cluster in state.clusters.values())
    checks += _log_time(session, state)
    checks += [await _router(session, state)] if has_agents and "router" not in names else []
    checks += await _unread_agents(session, state) if "ingest" not in names else []
    return checks


def _hung(state: FleetState) -> list[CheckResult]:
    """The processes that hang, without those of clusters, which are found with the clusters."""
    hung = [each for each in state.hung if each.process not in ("observer", "reconciler", "agent")]
    both = "fleethpa run ingest, and fleethpa run decider"
    steps = [both if each.next_step == "fleethpa doctor" else each.next_step for each in hung]
    return [
        CheckResult("failure", "log", each.process, each.what, step) for each, step in zip(hung, steps, strict=True)
    ]


async def _ingest(session: Session, state: FleetState) -> CheckResult:
    """Whether ingest carries what is written to the public topics into the log in time."""
    if not (state.ingested_ms and all(state.ingested_ms.values())):  # one that never ran does not hang
        return CheckResult("failure", "log", "ingest", "it has never written to the log", "fleethpa run ingest")
    waiting, now_ms = await _waiting(session, "ingest"), _present_ms(session, state)
    if isinstance(waiting, CheckResult):
        return waiting
    if waiting is not None and waiting.oldest_ms and now_ms - waiting.oldest_ms > BEHIND_MS:
        text = f"is behind: {counted(waiting.records, 'record')} waiting, the oldest{since(waiting.oldest_ms, now_ms)}"
        return CheckResult("failure", "log", "ingest", text, "fleethpa run ingest")
    return CheckResult("ok", "log", "ingest", f"appended last {_age(max(0, now_ms - state.newest_ms))} ago")


def _decider(state: FleetState) -> Iterator[CheckResult]:
    """Whether deciders write the state of every log partition."""
    step, known = "fleethpa run decider", list(state.partitions.values())
    behind = [row for row in known if state.end_ms - row.clock_ms > BEHIND_MS]
    if not known:
        yield CheckResult("failure", "log", "decider", "it has never written its state", step)
    for row in behind:
        lag = f"log partition {row.number} was last decided {_age(state.end_ms - row.clock_ms)} before its end"
        yield CheckResult("failure", "log", "decider", lag, step)
    if state.slowed:
        step = "see docs/operations.md#a-decider-that-is-behind"
        yield CheckResult("warning", "log", "decider", f"was behind: {state.slowed}", step)
    is_fed = all(each.process != "ingest" for each in state.hung)
    if known and not behind and is_fed and not state.slowed:
        yield CheckResult("ok", "log", "decider", f"keeps up with {len(known)} log partitions")


def _log_time(session: Session, state: FleetState) -> Iterator[CheckResult]:
    """Whether log time and the newest timestamps agree with each other and with this machine's clock."""
    for each in [state.folded[number] for number in sorted(state.folded)]:
        if text := log_time_problem(each, session.now_ms()):
            yield CheckResult(
                "failure", "log", "log time", f"log partition {each.number}: {text}", "fleethpa admin topics log-time"
            )


async def _router(session: Session, state: FleetState) -> CheckResult:
    """Whether routers read the decisions in time."""
    waiting, now_ms, step = await _waiting(session, "router"), _present_ms(session, state), "fleethpa run router"
    if isinstance(waiting, CheckResult):
        return waiting
    if waiting is None:
        return CheckResult("failure", "log", "router", "there are agents, and no router has ever run", step)
    if waiting.oldest_ms and now_ms - waiting.oldest_ms > state.quiet_ms:
        text = (
            f"is behind: {counted(waiting.records, 'decision')} waiting, the oldest{since(waiting.oldest_ms, now_ms)}; "
            "where the topic of an agent takes no records, /readyz of the router names it"
        )
        return CheckResult("failure", "log", "router", text, step)
    return CheckResult("ok", "log", "router", "keeps up with the decisions")


async def _unread_agents(session: Session, state: FleetState) -> list[CheckResult]:
    """Whether agents of which nothing comes write nonetheless, so that it is ingest that does not read them."""
    from aiokafka.errors import KafkaError

    from fleethpa.fleet.backlogs import unread_reports

    silent = [
        AgentTopics(each.name, each.agent.incarnation)
        for each in state.clusters.values()
        if each.agent is not None and each.has_agent and any(trouble.is_of_silence for trouble in each.troubles)
    ]
    if not silent:
        return []
    step = "fleethpa admin topics acls ingest, and /readyz of ingest, which names what it may not read"
    try:
        unread = await unread_reports(client_settings(session.config), silent)
    except (KafkaError, OSError) as error:
        text = f"whether it reads silent agents cannot be asked: {error!r}"
        return [CheckResult("warning", "log", "ingest", text, "fleethpa admin topics acls operator")]
    texts = [
        f"cluster {each.cluster}: {counted(unread[each.cluster], 'record')} of its agent wait unread in {each.reports}"
        for each in silent
        if each.cluster in unread
    ]
    return [CheckResult("failure", "log", "ingest", text, step) for text in texts]


def _present_ms(session: Session, state: FleetState) -> int:
    """The present by the newest sign of a process: this machine's clock may be another one than theirs."""
    return SignsOfLife(state.ingested_ms, state.decided_ms, {}).present_ms(session.now_ms(), state.quiet_ms)


async def _waiting(session: Session, process: Literal["ingest", "router"]) -> Unread | CheckResult | None:
    """Return what a process has not read yet; None: it has never read anything. A warning where this user may not
    ask.
    """
    from aiokafka.errors import KafkaError

    from fleethpa.fleet.backlogs import unread

    try:
        return await unread(client_settings(session.config), process)
    except (KafkaError, OSError) as error:
        text = f"how far it has read cannot be asked: {error!r}"
        return CheckResult("warning", "log", process, text, "fleethpa admin topics acls operator")


async def _topics(session: Session) -> list[CheckResult]:
    from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

    from runtime.topicadmin import TopicError, check_topics

    try:
        _, gaps = await check_topics(client_settings(session.config))
    except IncompatibleBrokerVersion:
        # Every Apache Kafka that fleethpa supports describes its topics; the embedded broker cannot.
        return [CheckResult("ok", "topics", "settings", "not looked at: the embedded broker does not report them")]
    except (KafkaError, TopicError, OSError) as error:
        return [
            CheckResult(
                "warning", "topics", "settings", f"cannot be read: {error!r}", "fleethpa admin topics acls operator"
            )
        ]
    if not gaps:
        return [CheckResult("ok", "topics", "settings", "as fleethpa needs them")]
    step = "fleethpa admin topics check --fix --dry-run"
    return [
        CheckResult("failure", "topics", one.topic, f"{one.what} is {one.found}, wanted {one.wanted}", step)
        for one in gaps
    ]


def _clusters(state: FleetState) -> Iterator[CheckResult]:
    if not state.clusters:
        yield CheckResult("warning", "clusters", "-", "none has reported", "fleethpa run observer --kubeconfig FILE")
    for cluster in state.clusters.values():
        checks = list(_cluster(cluster))
        held = f"{counted(cluster.hpas, 'HPA')} in {counted(cluster.namespaces, 'namespace')}"
        # What is wrong with a cluster is not followed by a line that calls it healthy.
        yield from checks or [
            _unknown(state, cluster.name, held) if cluster.is_cut_off else _reporting(cluster.name, held)
        ]


def _reporting(name: str, held: str) -> CheckResult:
    return CheckResult("ok", "clusters", name, f"reporting, {held}")


def _unknown(state: FleetState, name: str, held: str) -> CheckResult:
    """Of a cluster whose reports do not come into the log, or are not followed there."""
    is_ingested = not state.is_cut_off and all(each.process != "ingest" for each in state.hung)
    why = "no decider follows the log" if is_ingested else "no report comes into the log"
    step = "fleethpa run decider" if is_ingested else "fleethpa run ingest"
    return CheckResult("warning", "clusters", name, f"not known now, as {why}: {held}", step)


def _cluster(cluster: ClusterView) -> Iterator[CheckResult]:
    name, troubles = cluster.name, cluster.troubles
    for trouble in troubles:
        level: Literal["failure", "warning"] = "failure" if trouble.is_grave else "warning"
        yield CheckResult(level, "clusters", name, trouble.text, trouble.next_step)
    if cluster.settings.frozen:
        yield CheckResult(
            "warning", "clusters", name, "is frozen: nothing is written there", f"fleethpa settings {name}"
        )
    if cluster.paused:
        yield CheckResult("warning", "clusters", name, f"is paused: {cluster.paused}", f"fleethpa resume -C {name}")
    if not cluster.reports:  # they name all of it, each cause once
        for watch, text in sorted(cluster.problems.items()):
            step = f"fleethpa get clusters {name}"
            yield CheckResult("warning", "clusters", name, f"{watch}: {one_line(text)}", step)


def _hpas(state: FleetState) -> Iterator[CheckResult]:
    own, shared = by_cause(state.hpas.values())
    for group in shared:
        step, *others = dict.fromkeys(
            [_hpa_step(view, [each for each in view.problems if each.cause == group.text]) for view in group.views]
        )
        is_of_each = others and not step.startswith("fleethpa explain")
        step += ", and so for each of them" if is_of_each else ""
        yield CheckResult("warning", "hpas", group.name, group.text, step)
    troubled = [(hpa, problems) for hpa, problems in own.items() if problems]
    for hpa, problems in troubled[:SHOWN]:
        text = ", ".join(problem.text for problem in problems)
        yield CheckResult("warning", "hpas", str(hpa), text, _hpa_step(state.hpas[hpa], problems))
    if len(troubled) > SHOWN:
        more = f"{len(troubled) - SHOWN} more have problems"
        yield CheckResult("warning", "hpas", "-", more, "fleethpa get hpa -A --problem -o wide")
    modes = {mode: sum(view.mode == mode for view in state.hpas.values()) for mode in ("enforce", "shadow", "off")}
    listed = ", ".join(f"{count} {mode}" for mode, count in modes.items() if count)
    held = counted(len(state.hpas), "HPA") + (" when last known" if state.is_last_known else "")
    yield CheckResult("ok", "hpas", "-", held + (f": {listed}" if listed else ""))


def _hpa_step(view: HpaView, problems: Sequence[Problem]) -> str:
    """Return what comes next for these problems of an HPA: ingest is started where nothing comes in, a pause is ended,
    and anything else, with or without a pause, is explained.
    """
    if view.unfed and all(view.unfed in each.text for each in problems):  # its decisions cannot know why
        return "fleethpa run ingest"
    is_paused = all(each.label == "paused" for each in problems)
    if view.twin and any(each.text == view.twin for each in problems):
        return view.twin.rpartition("Next: ")[2]
    if is_paused:
        return view.pauses[0][1]
    labels = {each.label for each in problems}
    if labels == {"flapping"}:
        return f"fleethpa tune {view.id}"
    if labels == {"saturated"}:
        return f"fleethpa backtest {view.id} --set maxReplicas={view.wants}"
    return f"fleethpa explain {view.id}"


async def _access(session: Session, state: FleetState | None, options: Mapping[str, Any]) -> AsyncIterator[CheckResult]:
    if session.source != "kafka":
        yield CheckResult("ok", "access", "-", "not asked: an archive is of the past, and clusters are as they are now")
        return
    if not (session.config.kubeconfig or are_found(options) or options.get("in_cluster")):
        yield CheckResult("ok", "access", "-", "not checked: no kubeconfig is given (--kubeconfig FILE)")
        return
    enforced = {view.id.cluster for view in state.hpas.values() if view.mode == "enforce"} if state else set()
    members = await look_up_members(session, options)
    for check in finding_checks(members):
        yield check
    for cluster in members.clusters:
        enforce = cluster.name in enforced
        yield access_check(await review(cluster, wanted(enforce=enforce), enforce=enforce), enforce=enforce)


def finding_checks(members: KnownMembers) -> list[CheckResult]:
    """Return what keeps clusters from being found."""
    return [
        CheckResult("failure", "access", where, why, _inventory_step(where, members.folder))
        for where, why in sorted(members.unreadable.items())
    ]


def _inventory_step(where: str, folder: str) -> str:
    """Return what grants the reading of a collection, or shows a file of `folder` or an object; empty for two that name
    one cluster, whose trouble says what to mend.
    """
    name, _, source = where.rpartition(" in ")
    path = source.partition("?")[0].split("/")
    if "namespaces" not in path:
        return f"kubectl --kubeconfig {shlex.quote(f'{folder}/{name}')} config view" if source == "folder" else ""
    namespace, resource = path[path.index("namespaces") + 1], path[-1]
    if name:
        return f"kubectl -n {namespace} describe {resource} {name}"
    return f"fleethpa admin clusters rbac --{resource}-in {namespace} | kubectl apply -f -"


def access_check(access: Access, *, enforce: bool, namespace: str = "") -> CheckResult:
    """Return what a cluster's answers mean."""
    if access.error:
        step = "" if access.is_refused else ask_api_server(access.cluster)  # a refusal says what to mend
        return CheckResult("failure", "access", access.cluster, access.error, step)
    if not access.denied:
        work = "observe and enforce" if enforce else "observe"
        may = f"{access.version}: may {work} ({access.asked} permissions)"
        return CheckResult("ok", "access", access.cluster, may + (f"; cluster-uid={access.uid}" if access.uid else ""))
    scope = "".join(f" --for {each}" for each in access.custom) + (f" --namespace {namespace}" if namespace else "")
    enforcing = " --enforce" if enforce else ""
    rbac = f"fleethpa admin clusters rbac{enforcing}{scope} | kubectl --context {access.cluster} apply -f -"
    denied = f"{access.version}: may not {', '.join(map(str, access.denied))}"
    return CheckResult("warning" if access.usable else "failure", "access", access.cluster, denied, rbac)


def _age(ms: int) -> str:
    return span(ms // 1000 * 1000)

"""What keeps fleethpa from doing its work: every part looked at, each trouble with the command that comes next."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from fleethpa.cli.common.failures import CommandError
from fleethpa.cli.common.findings import Check
from fleethpa.cli.output.times import span
from fleethpa.cli.output.words import counted

if TYPE_CHECKING:
    from fleethpa.cli.common.access import Access
    from fleethpa.cli.common.session import Session
    from fleethpa.cli.common.views import ClusterView, FleetState

AREAS: Final = ("kafka", "topics", "log", "clusters", "hpas", "access")
"""What is looked at, in order; `access` asks the member clusters of the kubeconfig."""
QUIET_MS: Final = 15_000
"""Ingest appends a tick a second to every partition of the log."""
BEHIND_MS: Final = 60_000
"""The decider writes a checkpoint every 15 s of log time."""
SHOWN: Final = 20


async def examine(session: Session, areas: tuple[str, ...]) -> AsyncIterator[Check]:
    """Look at the areas, in order; without Kafka only at the member clusters."""
    from fleethpa.cli.common.fleetstate import read_state

    state: FleetState | None = None
    if set(areas) - {"access"}:
        began = time.monotonic()
        try:
            async with session.past() as past:
                state = await read_state(past)
        except CommandError as error:
            asked = session.config.servers if session.source == "kafka" else session.source
            yield Check("failure", "kafka", asked, error.what, error.next_step)
        else:
            took = span(round((time.monotonic() - began) * 1000))
            checks = [Check("ok", "kafka", past.name, f"{await past.partitions()} partitions, read in {took}")]
            if session.source == "kafka":
                checks += await _topics(session) if "topics" in areas else []
                checks += _log(state, session.now_ms())
            checks += [*_clusters(state), *_hpas(state)]
            for check in checks:
                if check.area in areas:
                    yield check
    if "access" in areas:
        async for check in _access(session, state):
            yield check


async def _topics(session: Session) -> list[Check]:
    from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

    from fleethpa.cli.common.brokerconnection import client_settings
    from runtime.topicadmin import check_beside

    try:
        _, found = await check_beside(client_settings(session.config))
    except IncompatibleBrokerVersion:
        # Every Apache Kafka that fleethpa supports describes its topics; the embedded broker cannot.
        return [Check("ok", "topics", "settings", "not looked at: the embedded broker does not report them")]
    except (KafkaError, OSError) as error:
        return [Check("warning", "topics", "settings", f"cannot be read: {error!r}", "fleethpa topics acls operator")]
    if not found:
        return [Check("ok", "topics", "settings", "as fleethpa needs them")]
    step = "fleethpa topics check --fix --dry-run"
    return [
        Check("failure", "topics", one.topic, f"{one.what} is {one.found}, wanted {one.wanted}", step) for one in found
    ]


def _log(state: FleetState, now_ms: int) -> Iterator[Check]:
    from schemas.decisions import ENGINE

    quiet_ms = now_ms - state.end_ms
    if not state.end_ms:
        yield Check("failure", "log", "ingest", "the log is empty", "fleethpa run ingest")
    elif quiet_ms > QUIET_MS:
        yield Check("failure", "log", "ingest", f"the newest log record is {_age(quiet_ms)} old", "fleethpa run ingest")
    else:
        yield Check("ok", "log", "ingest", f"the newest log record is {_age(max(0, quiet_ms))} old")
    known = list(state.partitions.values())
    if not known:
        yield Check("failure", "log", "decider", "it has never written its state", "fleethpa run decider")
    behind = [row for row in known if state.end_ms - row.clock_ms > BEHIND_MS]
    for row in behind:
        lag = f"log partition {row.number} was last decided {_age(state.end_ms - row.clock_ms)} before its end"
        yield Check("failure", "log", "decider", lag, "fleethpa run decider")
    if known and not behind:
        yield Check("ok", "log", "decider", f"keeps up with {len(known)} log partitions")
    newer = {row.engine for row in known if row.engine > ENGINE}
    if newer:
        message = f"the log is decided by engine {max(newer)}, this release has {ENGINE}"
        yield Check("failure", "log", "engine", message, "run a newer release of fleethpa")


def _clusters(state: FleetState) -> Iterator[Check]:
    if not state.clusters:
        yield Check("warning", "clusters", "-", "none has been heard of", "fleethpa run observer --kubeconfig FILE")
    for cluster in state.clusters.values():
        yield from _cluster(cluster)


def _cluster(cluster: ClusterView) -> Iterator[Check]:
    from fleethpa.cli.output.errortexts import one_line

    step = f"fleethpa get clusters {cluster.name}"
    if cluster.heard_ms is None or cluster.silent:
        when = "never" if cluster.heard_ms is None else f"not for {_age(cluster.clock_ms - cluster.heard_ms)}"
        yield Check("failure", "clusters", cluster.name, f"its observer was heard {when}", "fleethpa run observer")
        return
    if cluster.settings.frozen:
        yield Check(
            "warning",
            "clusters",
            cluster.name,
            "is frozen: nothing is written there",
            f"fleethpa settings {cluster.name}",
        )
    if cluster.paused:
        yield Check(
            "warning", "clusters", cluster.name, f"is paused: {cluster.paused}", f"fleethpa resume -C {cluster.name}"
        )
    for watch, text in sorted(cluster.problems.items()):
        yield Check("warning", "clusters", cluster.name, f"{watch}: {one_line(text)}", step)
    held = f"{counted(cluster.hpas, 'HPA')} in {counted(cluster.namespaces, 'namespace')}"
    yield Check("ok", "clusters", cluster.name, f"heard, {held}")


def _hpas(state: FleetState) -> Iterator[Check]:
    troubled = [(view, found) for view in state.hpas.values() if (found := view.problems)]
    for view, found in troubled[:SHOWN]:
        said = ", ".join(f"refused: {view.refused}" if each == "refused" else each for each in found)
        yield Check("warning", "hpas", str(view.id), said, f"fleethpa explain {view.id}")
    if len(troubled) > SHOWN:
        more = f"{len(troubled) - SHOWN} more have problems"
        yield Check("warning", "hpas", "-", more, "fleethpa get hpa -A --problem -o wide")
    modes = {mode: sum(view.mode == mode for view in state.hpas.values()) for mode in ("enforce", "shadow", "off")}
    listed = ", ".join(f"{count} {mode}" for mode, count in modes.items() if count)
    yield Check("ok", "hpas", "-", counted(len(state.hpas), "HPA") + (f": {listed}" if listed else ""))


async def _access(session: Session, state: FleetState | None) -> AsyncIterator[Check]:
    from fleethpa.cli.common.access import review, wanted
    from fleethpa.cli.common.parts import member_clusters

    if not session.config.kubeconfig:
        yield Check("ok", "access", "-", "not looked at: no kubeconfig is named (--kubeconfig FILE)")
        return
    enforced = {view.id.cluster for view in state.hpas.values() if view.mode == "enforce"} if state else set()
    for cluster in member_clusters(session.config):
        enforce = cluster.name in enforced
        yield access_check(await review(cluster, wanted(enforce=enforce), enforce=enforce), enforce=enforce)


def access_check(found: Access, *, enforce: bool, namespace: str = "") -> Check:
    """What a cluster's answers mean."""
    if found.error:
        return Check("failure", "access", found.cluster, found.error, "check --kubeconfig")
    if not found.denied:
        work = "observe and enforce" if enforce else "observe"
        return Check("ok", "access", found.cluster, f"{found.version}: may {work} ({found.asked} permissions)")
    scope = "".join(f" --for {each}" for each in found.custom) + (f" --namespace {namespace}" if namespace else "")
    rbac = (
        f"fleethpa clusters rbac{' --enforce' if enforce else ''}{scope} | kubectl --context {found.cluster} apply -f -"
    )
    lacking = f"{found.version}: may not {', '.join(map(str, found.denied))}"
    return Check("warning" if found.usable else "failure", "access", found.cluster, lacking, rbac)


def _age(ms: int) -> str:
    return span(ms // 1000 * 1000)

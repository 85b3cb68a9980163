"""Which process of fleethpa hangs or does not run, each by what it alone does; what follows from that is not named.

Ingest and decider are known by their own records in the log, observer, reconciler and agent by their reports in it.
While ingest hangs no report arrives, so that nothing is concluded from the silence of these. Router, scheduler
and archiver write nothing to it while nothing happens, and are known by their heartbeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from fleethpa.fleet.troubles import ClusterTrouble, ClusterView, HungProcess, Kind, Process, silent_words, since
from fleethpa.show.words import listed
from schemas.topics import QuietProcess

REPORT_DUE_MS: Final = 12_000
"""Observers and reconcilers report every 10 s, or more often."""
MOST_SIGN_DUE_MS: Final = 15_000
"""Router, scheduler and archiver send a heartbeat every 5 s."""
SHOWN: Final = 3


@dataclass(frozen=True)
class SignsOfLife:
    """When processes worked last (Unix milliseconds, by their own clocks).

    `ingested_ms`: log partition → when ingest last appended to it; 0: never. `decided_ms`: log partition → when a
    decider last worked on it; 0: never. `quiet_ms`: of those that write nothing while nothing happens.
    """

    ingested_ms: Mapping[int, int]
    decided_ms: Mapping[int, int]
    quiet_ms: Mapping[QuietProcess, int]

    def newest_ms(self, now_ms: int) -> int:
        """The newest of all. A heartbeat has the time of its process alone: one that is ahead of the log and of the
        reader's clock, `now_ms`, too, says nothing about the others.
        """
        beats_ms = [each for each in self.quiet_ms.values() if each <= now_ms]
        return max((*self.ingested_ms.values(), *self.decided_ms.values(), *beats_ms), default=0)

    def present_ms(self, now_ms: int, quiet_ms: int) -> int:
        """The present by the newest sign: the reader's clock may be another one. Where no process gives any, `now_ms`,
        the present of the reader.
        """
        newest_ms = self.newest_ms(now_ms)
        return now_ms if now_ms - newest_ms > quiet_ms else newest_ms


def hung_processes(
    now_ms: int, signs: SignsOfLife, clusters: Iterable[ClusterView], quiet_ms: int
) -> list[HungProcess]:
    """Return the processes that hang or do not run; one that never ran is not among them.

    Args:
        now_ms: the moment that is looked at, on the reader's clock.
        signs: what is known of the processes.
        clusters: with their troubles.
        quiet_ms: after how much silence a process hangs.
    """
    hung = _of_flow(signs.present_ms(now_ms, quiet_ms), signs, clusters, quiet_ms)
    return [*hung, *_without_signs(signs.quiet_ms, signs.newest_ms(now_ms), min(MOST_SIGN_DUE_MS, quiet_ms))]


def _of_flow(present_ms: int, signs: SignsOfLife, clusters: Iterable[ClusterView], quiet_ms: int) -> list[HungProcess]:
    """Those on the way from a sample to a write."""
    ingested_ms, decided_ms = signs.ingested_ms, signs.decided_ms
    quiet = _quiet(present_ms - quiet_ms, ingested_ms)
    still = _quiet(present_ms - quiet_ms, decided_ms)
    if quiet and still and quiet == still and len(quiet) == len(ingested_ms):
        since_ms = max(*(ingested_ms[number] for number in quiet), *(decided_ms[number] for number in still))
        text = f"neither ingest nor the decider has written to the log{since(since_ms, present_ms)}"
        follows = "what is shown is as of then (or the clock of this machine is ahead)"
        return [HungProcess("ingest", since_ms, f"{text}: {follows}", "fleethpa doctor")]
    hung = [*_of_log("ingest", quiet, ingested_ms, present_ms), *_of_log("decider", still, decided_ms, present_ms)]
    # Without ingest no report arrives, so the silence of others has this cause.
    return hung if quiet else [*hung, *_of_clusters(list(clusters), present_ms)]


def _quiet(before_ms: int, times_ms: Mapping[int, int]) -> list[int]:
    return [number for number, then_ms in sorted(times_ms.items()) if 0 < then_ms < before_ms]


_LOG_TEXTS: Final[Mapping[Process, tuple[str, str]]] = {
    "ingest": ("ingest hangs or does not run: nothing has come into", "what is shown may be old"),
    # Where an agent stands in, the cluster's own controller scales meanwhile.
    "decider": (
        "the decider hangs or does not run: nothing was decided in",
        "what is shown of its HPAs is as of then, and fleethpa scales none of them",
    ),
}


def _of_log(
    process: Process, partitions: list[int], times_ms: Mapping[int, int], present_ms: int
) -> Iterator[HungProcess]:
    if not partitions:
        return
    since_ms = max(times_ms[number] for number in partitions)
    what, follows = _LOG_TEXTS[process]
    where = "the log" if len(partitions) == len(times_ms) else f"log partition {listed(map(str, partitions), SHOWN)}"
    yield _hung(process, since_ms, f"{what} {where}{since(since_ms, present_ms)}, {follows}")


def _hung(process: Process, since_ms: int, what: str) -> HungProcess:
    step = "fleethpa admin archive --to DIR" if process == "archiver" else f"fleethpa run {process}"
    return HungProcess(process, since_ms, what, step)


_PART_OF_AGENT: Final = "the reconciler in the agent"
_CLUSTER_TEXTS: Final[tuple[tuple[Process, str, str], ...]] = (
    ("observer", "the observer", "pods and metrics there are as last known"),
    ("reconciler", "the reconciler", "nothing is written there"),
    # Where it is a stand-in, the cluster's own controller may scale meanwhile.
    ("agent", "the agent", "pods and metrics there are as last known, and what is decided is not written there"),
    ("agent", _PART_OF_AGENT, "what is decided is not written there"),
)


def _of_clusters(clusters: list[ClusterView], present_ms: int) -> Iterator[HungProcess]:
    """Silent observers, reconcilers and agents; one process serves many clusters, so those of a kind share a line."""
    silent: dict[str, dict[str, ClusterTrouble]] = {who: {} for _, who, _ in _CLUSTER_TEXTS}
    for cluster in clusters:
        for who, trouble in _silent(cluster):
            silent[who][cluster.name] = trouble
    for process, who, follows in _CLUSTER_TEXTS:
        if troubles := silent[who]:
            since_ms = max(each.since_ms or 0 for each in troubles.values())
            of = listed(list(troubles), SHOWN)
            # What else the agent reports comes over the same topic.
            words = silent_words("reconciler" if who == _PART_OF_AGENT else process)
            what = f"{who} of {of} {words}: no report{since(since_ms, present_ms)}"
            # The log of an agent is in its cluster; the others' processes are the hub's.
            step = next(iter(troubles.values())).next_step if process == "agent" else f"fleethpa run {process}"
            yield HungProcess(process, since_ms, f"{what}, {follows}", step)


def _silent(cluster: ClusterView) -> Iterator[tuple[str, ClusterTrouble]]:
    """Which processes of a cluster are silent, as `_CLUSTER_TEXTS` names them, and the trouble that this is."""
    troubles = {each.kind: each for each in cluster.troubles if each.since_ms is not None}
    observer, reconciler = troubles.get("observerSilent"), troubles.get("reconcilerSilent")
    if cluster.has_agent:
        # Nothing was ever heard of one that has not served: it need not be there yet, or is one of before.
        if cluster.served is None:
            return
        if trouble := observer or reconciler:
            # Both parts report every few seconds: where the observing one went on for longer, it does not hang.
            goes_on = observer is None and (cluster.reported_ms or 0) - (trouble.since_ms or 0) > REPORT_DUE_MS
            if goes_on:
                yield _PART_OF_AGENT, trouble
            else:  # of one process, the newest report of either part is the last sign of life
                yield "the agent", replace(trouble, since_ms=max(trouble.since_ms or 0, cluster.reported_ms or 0))
        return
    # One that reports, if only on none of its namespaces, runs: that is a trouble of the cluster.
    if observer is not None and (observer.since_ms or 0) >= (cluster.reported_ms or 0):
        yield "the observer", observer
    if reconciler is not None:
        yield "the reconciler", reconciler


_WITHOUT: Final[Mapping[QuietProcess, str]] = {
    "router": "agents get no decisions",
    "scheduler": "no schedule changes a spec",
    "archiver": "what is newer is in no archive",
    "hub": "what changes in the hub's API does not reach the log",
}


def hung_archiver(now_ms: int, quiet_ms: Mapping[QuietProcess, int]) -> list[HungProcess]:
    """Return the process that writes the archive which is read, if it hangs, by the clock of this machine."""
    return list(_without_signs(quiet_ms, now_ms, MOST_SIGN_DUE_MS))


def _without_signs(quiet_ms: Mapping[QuietProcess, int], present_ms: int, due_ms: int) -> Iterator[HungProcess]:
    for process, then_ms in quiet_ms.items():
        if present_ms - then_ms > due_ms:
            # A heartbeat states its process' own time, and nobody else's. It is all that is known of the process.
            text = f"the {process} hangs, does not run, may not commit heartbeats, or its clock is behind: no heartbeat"
            yield _hung(process, then_ms, f"{text}{since(then_ms, present_ms)}; without it {_WITHOUT[process]}")


_SILENT: Final[Mapping[Kind, frozenset[Process]]] = {
    "observerSilent": frozenset({"observer", "agent"}),
    "reconcilerSilent": frozenset({"reconciler", "agent"}),
}


def is_of_hung(trouble: ClusterTrouble, hung: Iterable[HungProcess]) -> bool:
    """Return whether a trouble of a cluster is the silence of a process that hangs, which every view names already."""
    processes = _SILENT.get(trouble.kind, frozenset())
    return trouble.since_ms is not None and any(each.process in processes for each in hung)


def unanswered(hung: Iterable[HungProcess], cluster: ClusterView) -> bool:
    """Whether outcomes of writes to a cluster cannot come, so that a missing one is not a problem of its HPA."""
    hung = list(hung)
    if any(each.stops_deciding for each in hung):
        return True
    if cluster.has_agent and any(each.process == "router" for each in hung):  # its agent gets no decisions
        return True
    return cluster.served is not None and cluster.clock_ms - cluster.served.reported_ms > REPORT_DUE_MS

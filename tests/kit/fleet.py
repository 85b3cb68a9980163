"""A FleetHPA over simulated clusters, each in a log partition of its own, and the messages between them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from schemas.answers import Answers
from schemas.entries import Body, Outcome
from schemas.keys import FLEET
from schemas.observed import AutoscalerDeleted, AutoscalerSet, Command, FleetCluster, FleetSpec, PodList
from schemas.settings import Restart
from streams.decider.rebuild import Tail, continue_chain
from streams.decider.tail import TailHead
from streams.partition import Partition
from streams.state.partitionstate import Message
from streams.state.rows import HpaRow
from tests.kit.partition import START_MS, LogBuilder, cpu_answer, make_hpa, make_pod, scale

NAME, NAMESPACE = "web", "shop"
PERIOD_MS = 15_000


def everything_arrives(message: Message) -> list[Message]:
    """Deliver each message once."""
    return [message]


class Fleet:
    """The whole and its clusters. `deliver` says what becomes of a message: it is lost, arrives, or arrives again."""

    whole = FLEET
    """Where what decides over the clusters lives."""

    def __init__(self, replicas: Mapping[str, int], maximum: int, *, applied: bool = True, **fleet: Any) -> None:
        """`applied`: begin with the FleetHPA; else each cluster has an HPA of its own, in shadow."""
        self.replicas = dict(replicas)
        self.maximum = maximum
        self.logs = {name: LogBuilder(number) for number, name in enumerate([self.whole, *replicas])}
        self.deliver: Callable[[Message], list[Message]] = everything_arrives
        self.waiting: list[Message] = []
        self.decided: dict[str, list[dict[str, Any]]] = {name: [] for name in self.logs}
        self.away: set[str] = set()
        self.refusing: set[str] = set()
        """Clusters whose API server refuses writes."""
        self.nodes: dict[str, int] = {}
        """For how many pods a cluster has nodes; the others wait."""
        self.most = self.total
        self.revision = 0
        self.applied_at: dict[str, int] = {}
        """Which record of each log has the newest spec."""
        self.lists = 0
        for name in replicas:
            self.add(name, scale(NAME, replicas[name]))
            self._report_pods(name)
            if not applied:
                self.add(name, AutoscalerSet(hpa=make_hpa(NAME, f"native-{name}", minReplicas=1, maxReplicas=maximum)))
        if applied:
            self.apply(**fleet)

    @property
    def total(self) -> int:
        return sum(self.replicas.values())

    def apply(
        self,
        weights: Mapping[str, int] | None = None,
        mode: str = "enforce",
        minimum: int = 1,
        spec: Mapping[str, Any] | None = None,
        maxima: Mapping[str, int] | None = None,
        **fleet: Any,
    ) -> None:
        """Apply the FleetHPA, as the verb does. `spec`: fields of an HPA. `maxima`: of clusters that have one."""
        self.revision += 1
        weights = weights or dict.fromkeys(self.replicas, 1)
        most = dict.fromkeys(weights, self.maximum) | dict(maxima or {})
        clusters = [FleetCluster(name=each, weight=weights[each], max_replicas=most[each]) for each in weights]
        division = FleetSpec(clusters=clusters, **fleet)
        hpa = make_hpa(NAME, minReplicas=minimum, maxReplicas=self.maximum, **(spec or {}))
        whole = AutoscalerSet(hpa=hpa, origin="central", fleet=division, revision=self.revision)
        self.applied_at[FLEET] = len(self.logs[FLEET].records)
        self.add(FLEET, whole, Command(command="mode", name=NAME, mode=mode))  # type: ignore[arg-type]
        for each in weights:
            self.add(each, AutoscalerSet(hpa=hpa, origin="central", mode="enforce", revision=self.revision))

    def natively(self, replicas: Mapping[str, int]) -> None:
        """The clusters' own controllers scale."""
        for name, wanted in replicas.items():
            self.replicas[name] = wanted
            self.add(name, scale(NAME, wanted))
            self._report_pods(name)

    def adopt(self, **fleet: Any) -> None:
        """Apply the FleetHPA, and delete the clusters' own HPAs."""
        self.apply(**fleet)
        for name in self.replicas:
            self.add(name, AutoscalerDeleted(name=NAME, origin="cluster", uid=f"native-{name}"))

    def delete(self) -> None:
        for name in self.logs:
            self.add(name, AutoscalerDeleted(name=NAME, origin="central"))

    def add(self, name: str, *bodies: Body) -> None:
        """Append one record to the log of a cluster, carry out what it wants, and deliver what it says to others."""
        log = self.logs[name]
        made = log.add(*[log.entry(body, f"{name}/{NAMESPACE}") for body in bodies])
        self.waiting += [copy for each in log.partition.pop_messages() for copy in self.deliver(each)]
        for decision in made:
            self.decided[name].append(decision)
            if decision.get("wants") is not None:
                self._write(name, decision)

    def lose(self, name: str, kept: int) -> None:
        """Lose the state of a partition and its log but for the spec and the newest `kept` records, and rebuild it."""
        log, first = self.logs[name], self.applied_at[name]
        tail = Tail(TailHead(log.partition.seq, ""), frozenset())
        log.partition = Partition.empty(log.partition.number)
        rest = log.records[max(first + 1, len(log.records) - kept) :]
        log.partition.apply(len(log.records) - len(rest) - 1, *log.records[first][1:])
        for record in rest:
            log.partition.apply(*record)
        log.partition.pop_messages()  # they were sent long ago, or never
        continue_chain(log.partition, tail)
        log.add(Restart(reason="state was lost"))

    def _write(self, name: str, decision: dict[str, Any]) -> None:
        if name in self.refusing:
            has, text = self.replicas[name], "admission webhook denied the request"
            failed = Outcome(
                decision=decision["id"], name=NAME, uid=decision["uid"], result="failed", error=text, spec_replicas=has
            )
            return self.add(name, failed)
        self.replicas[name] = wanted = decision["wants"]
        self.most = max(self.most, self.total)
        outcome = Outcome(
            decision=decision["id"],
            name=NAME,
            uid=decision["uid"],
            result="applied",
            spec_replicas=wanted,
            status_replicas=wanted,
        )
        self.add(name, outcome)
        self._report_pods(name)

    def _report_pods(self, name: str) -> None:
        self.lists += 1
        waits: dict[str, Any] = {"phase": "Pending", "start": None, "ready": None, "ready_at": None}
        pods = [
            make_pod(f"{NAME}-{number}", NAME, **({} if number < self._running(name) else waits))
            for number in range(self.replicas[name])
        ]
        self.add(name, PodList(list_id=f"list-{self.lists}", pods=pods))

    def _running(self, name: str) -> int:
        return min(self.replicas[name], self.nodes.get(name, self.replicas[name]))

    def grow(self, name: str, nodes: int) -> None:
        """Give a cluster nodes for so many pods."""
        self.nodes[name] = nodes
        self._report_pods(name)

    def deliver_waiting(self) -> None:
        """Deliver what is on its way, and what comes of it."""
        while self.waiting:
            each = self.waiting.pop(0)
            log = self.logs.get(each.cluster)
            if log is not None and each.cluster not in self.away:
                self.add(each.cluster, each.body)

    def period(self, load: Mapping[str, int]) -> None:
        """One sync period. `load`: milli-CPU that all pods of a cluster use together; a pod requests 100, target 50."""
        for log in self.logs.values():
            log.now_ms += PERIOD_MS
        for name in sorted(self.replicas):
            if name not in self.away:
                self.measure(name, load[name])
        self.deliver_waiting()
        for name in self.logs:
            if name not in self.away:
                for _ in range(8):
                    self.logs[name].now_ms += 1_000
                    self.add(name)
        for log in self.logs.values():
            log.now_ms = max(each.now_ms for each in self.logs.values()) - 8_000
        self.deliver_waiting()

    def measure(self, name: str, load: int) -> None:
        """Answer for a cluster whose pods use `load` together."""
        each = load // max(1, self._running(name))
        usage = {f"{NAME}-{number}": each for number in range(self._running(name))}
        self.add(name, Answers(items=[cpu_answer(NAME, usage, self.logs[name].now_ms)]))

    def seconds(self, count: int, load: Mapping[str, int], phases: Mapping[str, int]) -> Iterator[int]:
        """Let log time pass by the second; each cluster is measured at its own second of the period. Gives each second
        after which the whole has been evaluated.
        """
        for second in range(count):
            before = len(self.decided[self.whole])
            for log in self.logs.values():
                log.now_ms += 1_000
            for name, phase in phases.items():
                if (self.logs[name].now_ms - START_MS) % PERIOD_MS == 1_000 * phase:
                    self.measure(name, load[name])
                self.add(name)
            self.add(self.whole)
            self.deliver_waiting()
            if len(self.decided[self.whole]) > before:
                yield second

    def last(self, name: str = FLEET) -> dict[str, Any]:
        """The newest full evaluation of the whole, or of a cluster's HPA."""
        made = [each for each in self.decided[name] if "observed" in each and each.get("kind") != "completion"]
        return made[-1]

    def row(self, name: str) -> HpaRow:
        """What a partition stores of its HPA."""
        (hpa,) = self.logs[name].partition.state.hpas.values()
        return hpa.row

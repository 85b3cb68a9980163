"""A fleet in memory for the command line: a real partition machine over a hand-made log, and its past."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any, Literal

from click.testing import CliRunner, Result

from fleethpa.frame.writer import Fate, SentRecord
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord, Outcome
from schemas.observed import AutoscalerList, Container, Heartbeat, Pod, PodList, ScaleSet, Target
from schemas.settings import ClusterSettings, SettingsSet
from streams.archive.layout import DECISIONS, LOG, ArchivedRecord, archived_record
from streams.history.recorded import Recorded, in_sequence
from streams.partition import Partition
from streams.state.rowcodec import merge_rows
from tests.kit.memorypast import MemoryPast

START_MS = 1_795_269_600_000
SETTINGS = ClusterSettings(sync_period_ms=15_000, default_mode="enforce", native_controller="absent")


def hpa(name: str = "checkout", namespace: str = "shop", **spec: Any) -> dict[str, Any]:
    """A defaulted HPA of a Deployment of the same name."""
    target = {"type": "Utilization", "averageUtilization": 60}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": {"app": name},
            "creationTimestamp": "2026-11-21T09:00:00Z",
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 2,
            "maxReplicas": 20,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        }
        | spec,
    }


class Fleet:
    """One log partition, its state rows and its decisions."""

    def __init__(self) -> None:
        self.partition = Partition.empty(0)
        self.now_ms = START_MS
        self.log: list[tuple[int, int, bytes]] = []
        self.values: list[bytes] = []
        self.rows: dict[bytes, bytes] = {}
        self.cluster, self.namespace = "east", "shop"
        self.cpu_request = "500m"

    @property
    def key(self) -> str:
        return f"{self.cluster}/{self.namespace}"

    def append(
        self, *bodies: Body, key: str | None = None, after_ms: int = 100, by: Literal["", "ingest"] = "", every: int = 1
    ) -> None:
        """Append one log record and fold it; without bodies a tick, or (`by`) an empty record of ingest."""
        self.now_ms += after_ms
        entries = [Entry(key=key or self.key, body=body) for body in bodies]
        value, offset = encode(LogRecord(v=1, entries=entries, by=by, every=every)), len(self.log)
        self.log.append((offset, self.now_ms, value))
        self.values += [record.value for record in self.partition.apply(offset, self.now_ms, value)]

    def settle(self, replicas: int = 3, usage_milli: int = 300) -> None:
        """Settings, an HPA, its scale, pods and metrics: one evaluation of `checkout`."""
        self.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
        self.append(AutoscalerList(list_id="a", hpas=[hpa()], session="s"))
        self.observe(replicas, usage_milli)

    def observe(
        self, replicas: int, usage_milli: int, *, error: str | None = None, unmeasured: Sequence[Pod] = ()
    ) -> None:
        """What an observer sends: pods, scale, metrics, a heartbeat. `unmeasured`: further pods, without metrics."""
        pods = [self._pod(number) for number in range(replicas)]
        usages = [
            PodUsage(pod.name, self.now_ms, 15_000, [("main", {"cpu": usage_milli, "memory": 1_000})]) for pod in pods
        ]
        answer = MetricAnswer(
            api="resource", selector="app=checkout", pods=in_columns([] if error else usages), error=error
        )
        scale = ScaleSet(
            target=Target(group="apps", kind="Deployment", name="checkout"),
            spec_replicas=replicas,
            status_replicas=replicas,
            selector="app=checkout",
            resource_version="7",
            session="s",
        )
        listed = PodList(list_id=f"p{self.now_ms}", pods=[*pods, *unmeasured], session="s")
        self.append(listed, scale, Answers(items=[answer], session="s"))
        self.append(Heartbeat(session="s", watches=["pods", "autoscalers", "scales"]))

    def _pod(self, number: int) -> Pod:
        started = START_MS - 3_600_000
        return Pod(
            name=f"checkout-{number}",
            labels={"app": "checkout"},
            start=started,
            ready="True",
            ready_at=started + 1_000,
            containers=[Container(name="main", requests={"cpu": self.cpu_request})],
        )

    def applied(self, replicas: int) -> None:
        """The reconciler's outcome of the newest wanted write."""
        wanted = [r for r in self.decisions() if r.decision.wants is not None][-1].decision
        self.append(
            Outcome(
                decision=wanted.id,
                name=wanted.name,
                uid=wanted.uid,
                result="applied",
                spec_replicas=replicas,
                status_replicas=replicas,
                selector="app=checkout",
                resource_version="8",
            )
        )

    def checkpoint(self) -> None:
        """Write the state rows."""
        merge_rows(self.rows, self.partition.checkpoint())

    def decisions(self) -> list[Recorded]:
        """Every decision made."""
        return in_sequence(0, enumerate(self.values))

    def as_topics(self) -> dict[tuple[str, int], list[ArchivedRecord]]:
        """Both topics, as `tests.kit.archive.write_archive` takes them."""
        log = [archived_record(offset, time_ms, b"", (), value) for offset, time_ms, value in self.log]
        made = [archived_record(each.offset, each.time_ms, b"", (), each.value) for each in self.decisions()]
        return {(LOG, 0): log, (DECISIONS, 0): made}

    def past(self, at_ms: int | None = None) -> FleetPast:
        return FleetPast(self, at_ms)


class FleetPast(MemoryPast):
    """The past of a fleet in memory: one partition."""

    def __init__(self, fleet: Fleet, at_ms: int | None = None, *, live: bool = False) -> None:
        log = [archived_record(offset, time_ms, b"", (), value) for offset, time_ms, value in fleet.log]
        decisions = [archived_record(offset, 0, b"", (), value) for offset, value in enumerate(fleet.values)]
        super().__init__({(LOG, 0): log, (DECISIONS, 0): decisions}, dict(fleet.rows), at_ms=at_ms, live=live)

    def without_oldest(self, count: int) -> FleetPast:
        """The same after its oldest decisions have expired."""
        self.made = {**self.made, (DECISIONS, 0): self.made[DECISIONS, 0][count:]}
        return self

    async def follow(self) -> AsyncGenerator[Recorded, None]:
        """As if all that was decided were new."""
        for recorded in (await self.tail(lambda *_: True))[0]:
            yield recorded


class Cli:
    """Runs commands in process, with a fleet in memory where one is given."""

    def __init__(self, monkeypatch: Any, fleet: Fleet | None = None) -> None:
        self.fleet = fleet
        for name in (
            "COLUMNS",
            "FLEETHPA_BROKERS",
            "FLEETHPA_CONFIG",
            "NO_COLOR",
            "FLEETHPA_KAFKA_CONFIG",
            "KUBECONFIG",
        ):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("USER", "anna")
        if "FLEETHPA_RUNTIME_DIR" not in os.environ:
            monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", os.devnull)  # not the stack that may run beside the tests
        if fleet is not None:

            @asynccontextmanager
            async def opened(source: str, config: Any, at_ms: int | None = None) -> AsyncIterator[FleetPast]:
                yield fleet.past(at_ms)

            monkeypatch.setattr("fleethpa.frame.sources.open_past", opened)

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        """Run; the result's exit code is that of the process."""
        import sys

        import click

        from fleethpa.cli.main import run

        @click.command(
            context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
        )
        @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
        def entry(rest: tuple[str, ...]) -> None:
            sys.exit(run(list(rest)))

        return CliRunner().invoke(entry, ["--", *arguments], input=stdin, catch_exceptions=False)


class Broker:
    """Stands for the writer: keeps what it is given and returns what became of it."""

    def __init__(self) -> None:
        self.partitions = 4
        self.written: list[tuple[str, str, Body]] = []
        self.state, self.reason = "logged", ""

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        self.written += [(cluster, namespace, body) for body in bodies]
        return SentRecord(subject, "fleethpa.autoscalers", 0, len(self.written) - 1)

    async def fates(self, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        return [Fate(pending, self.state, self.reason) for pending in waiting]


def table_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a printed table by header. Columns begin where their headers do."""
    head, *lines = text.splitlines()
    begins = [found.start() for found in re.finditer(r"(?<!\S)\S+(?: \S+)*", head)]
    spans = list(pairwise([*begins, None]))
    return [{head[begin:end].strip(): line[begin:end].strip() for begin, end in spans} for line in lines]

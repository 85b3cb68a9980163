"""A source that observers poll is attached by one file and its line in a table: here from outside of the package."""

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

import fleethpa.cli.run  # so that each test puts back the module without the toy
from fleethpa.fleet.polledsources import POLLED_SOURCES, FileReader, SourceKind, polled_sources
from fleethpa.fleet.troubles import ClusterView
from fleethpa.frame.errors import CommandError
from fleethpa.lab.simulator.cluster import write_kubeconfig
from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient, clusters_of
from reconciler.observer.clusterobserver import ClusterObserver
from reconciler.observer.clusterview import ObserverConfig, ObserverMetrics
from reconciler.observer.metricpolls import Phases
from reconciler.observer.polledsource import OpenSource, PolledSource, SourceContext
from reconciler.observer.troubles import problem_of
from schemas.answers import Answers, MetricAnswer, Query
from schemas.connection import KafkaSettings
from schemas.entries import WHOLE_PARTITION_KEY, Body
from schemas.keys import SessionName
from schemas.observed import AutoscalerList, ClusterReport, Heartbeat
from schemas.settings import SettingsSet
from streams.state.partitionrow import ReportRow
from tests.clireference import reference
from tests.kit.cli import SETTINGS, Cli, Fleet, hpa
from tests.kit.clusters import FaultyCluster
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import deployment

OF_QUEUE = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_depth", "selector": {}},
        "target": {"type": "AverageValue", "averageValue": "100"},
    },
}


class Toy:
    """Answers every External metric by what its file says of the cluster: a number, or that it is away."""

    def __init__(self, text: str, context: SourceContext) -> None:
        self.text, self.context = text, context

    def answers(self, query: Query) -> bool:
        return query.api == "external"

    async def ask(self, namespace: str, asked: Sequence[Query]) -> list[MetricAnswer]:
        problem = problem_of(ClusterError("nobody is there")) if self.text == "away" else None
        self.context.note(namespace, problem)
        if problem is not None:
            return [structs.replace(query, error=problem.text) for query in asked]
        return [structs.replace(query, items=[(int(self.text), self.context.clock())]) for query in asked]

    async def close(self) -> None: ...


def read_toy(path: str, read: FileReader) -> OpenSource:
    by_cluster = dict(line.split() for line in read(path).splitlines())

    def opened(context: SourceContext) -> PolledSource | None:
        return Toy(by_cluster[context.cluster], context) if context.cluster in by_cluster else None

    return opened


TOY = SourceKind(
    help="What the toy says of each cluster.",
    docs="docs/toy.md",
    read=read_toy,
    title="its toy",
    check="fleethpa toy try {cluster}",
)


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its line were in the table when the verbs were imported."""
    monkeypatch.setitem(POLLED_SOURCES, "toy", TOY)
    monkeypatch.delitem(sys.modules, "fleethpa.cli.run", raising=False)
    monkeypatch.delattr(fleethpa.cli, "run", raising=False)


class Kept:
    """The reports of an observer, as far as they are told."""

    def __init__(self) -> None:
        self.bodies: asyncio.Queue[Body] = asyncio.Queue()

    async def put(self, topic: str, cluster: str, namespace: str, bodies: list[Body]) -> None:
        for body in bodies:
            self.bodies.put_nowait(body)

    async def beat(self, cluster: str, namespaces: Sequence[str], body: Heartbeat) -> None: ...


async def reported(folder: Path, said: str, kind: type, wanted: str) -> Any:
    """The first report of a kind with a text in it, of a cluster with an HPA of a queue. `said`: the toy's file."""
    (folder / "toy").write_text(said)
    polled = polled_sources({"toy": str(folder / "toy")})
    config = ObserverConfig(kafka=KafkaSettings(bootstrap_servers="-"), clusters=(), polled=polled)
    kept = Kept()
    async with FaultyCluster("east", sample_ms=1_000) as cluster, asyncio.timeout(PATIENCE_S):
        cluster.apply(deployment("checkout"))
        cluster.apply(hpa(metrics=[OF_QUEUE]))
        client = ClusterClient(next(iter(clusters_of(str(write_kubeconfig(folder / "kubeconfig", [cluster]))))))
        observer = ClusterObserver(
            client,
            config,
            kept,
            ObserverMetrics(CollectorRegistry()),
            session=SessionName("a", time.time_ns()),
            phases=Phases("a"),
            sync_period_ms=lambda stated: 1_000,
            note=lambda *_: None,
            native_absent_since_ms=lambda: None,
            may_be_preceded=lambda: False,
        )
        running = asyncio.create_task(observer.run())
        try:
            while True:
                body = await kept.bodies.get()
                if isinstance(body, kind) and wanted in repr(body):
                    return body
        finally:
            running.cancel()
            await asyncio.wait([running])
            await client.close()


@pytest.mark.usefixtures("attached")
async def test_an_hpa_is_decided_by_the_answers_of_a_source_that_is_attached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers: Answers = await reported(tmp_path, "east 610000", Answers, "queue_depth")
    fleet = Fleet()
    fleet.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
    fleet.append(AutoscalerList(list_id="a", hpas=[hpa(metrics=[OF_QUEUE])], session="s"))
    fleet.observe(3, 300)
    fleet.append(structs.replace(answers, session="s"))
    fleet.now_ms += 15_000
    fleet.observe(3, 300)
    explained = (await asyncio.to_thread(Cli(monkeypatch, fleet), "explain", "east/shop/checkout")).stdout
    metric = next(line for line in explained.splitlines() if line.startswith("queue_depth"))
    assert metric.split()[1] == "7"
    assert metric.endswith("◀ winner")


@pytest.mark.usefixtures("attached")
async def test_that_it_cannot_be_asked_is_a_trouble_of_its_name(tmp_path: Path) -> None:
    report: ClusterReport = await reported(tmp_path, "east away", ClusterReport, "nobody is there")
    row = ReportRow("east", "o", "s", report.troubles[0].since, troubles=report.troubles)
    view = ClusterView("east", clock_ms=row.reported_ms, modes={}, reported_ms=row.reported_ms, reports=[row])
    (trouble,) = (each for each in view.troubles if each.kind == "metricsFailing")
    assert trouble.text.startswith("its toy fails")
    assert trouble.text.endswith("nobody is there")
    assert trouble.next_step == "fleethpa toy try east"


@pytest.mark.usefixtures("attached")
async def test_where_it_has_nothing_for_a_cluster_the_metrics_apis_are_asked(tmp_path: Path) -> None:
    answers: Answers = await reported(tmp_path, "west 5", Answers, "queue_depth")
    assert "the server could not find the metric queue_depth" in repr(answers)


@pytest.mark.usefixtures("attached")
def test_its_option_is_in_help_and_reference_and_an_error_about_its_file_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Cli(monkeypatch, Fleet())
    for part in ("observer", "agent", "all"):
        assert "--toy FILE What the toy says of each cluster." in " ".join(run("run", part, "--help").stdout.split())
    assert reference().count("`--toy FILE`") == 3
    (tmp_path / "toy").write_text("east\n")
    with pytest.raises(CommandError, match=r"--toy .* cannot be used") as refused:
        polled_sources({"toy": str(tmp_path / "toy")})
    assert refused.value.next_step == "see docs/toy.md for its fields"


@pytest.mark.parametrize("name", POLLED_SOURCES)
def test_each_source_has_a_page_which_the_site_shows(name: str) -> None:
    root, docs = Path(__file__).parents[3], POLLED_SOURCES[name].docs
    assert (root / docs).is_file()
    assert f"- {docs}\n" in (root / "mkdocs.yml").read_text()


def test_without_its_line_there_is_no_such_option(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Cli(monkeypatch, Fleet())
    assert "--toy" not in run("run", "observer", "--help").stdout
    assert run("run", "observer", "--toy", "file").exit_code == 2
    assert polled_sources({"toy": "file"}) == {}

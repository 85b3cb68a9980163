"""Clusters that come and go while observer and reconciler run: nothing else notices."""

import asyncio
from pathlib import Path

import pytest
import yaml

from fleethpa.lab.simulator.cluster import kubeconfig
from reconciler.apply.process import Reconciler, ReconcilerConfig
from reconciler.clusters import clusterfinder
from reconciler.clusters.clusterfinder import ClusterSources
from reconciler.observer.clusterview import ObserverConfig
from reconciler.observer.process import Observer
from runtime.kafkaclients import running_producer
from runtime.records import Publisher
from schemas.entries import Outcome
from schemas.observed import AutoscalerList, AutoscalerSet, ClusterReport, Heartbeat, ScaleSet, Serving
from schemas.topics import SPECS
from tests.kit.clusters import FaultyCluster
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, rig, running

HPAS = "/horizontalpodautoscalers"


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusterfinder, "LOOK_S", 0.1)


def put(folder: Path, sim: FaultyCluster) -> None:
    """Write a cluster's kubeconfig as tools do: aside, then renamed."""
    aside = folder / ".new"
    aside.write_text(yaml.safe_dump(kubeconfig([sim])))
    aside.rename(folder / f"{sim.name}.yaml")


def observer(made: Rig, sources: ClusterSources) -> Observer:
    config = ObserverConfig(
        kafka=made.kafka, clusters=(), found=sources, sync_period_ms=1_000, heartbeat_ms=500, watch_s=30
    )
    return Observer(config)


def reports(made: Rig, cluster: str) -> list[ClusterReport]:
    return [each for each in made.topics.of(ClusterReport) if each.cluster == cluster]


def has_stopped(made: Rig, cluster: str) -> bool:
    """Whether the newest report says that its observer stopped; none yet: no."""
    return any(each.stopped for each in reports(made, cluster)[-1:])


async def test_a_cluster_of_a_folder_comes_and_goes_and_the_other_notices_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    async with rig(tmp_path, ("east", "west")) as made:
        topics, sims = made.topics, made.sims
        for sim in sims.values():
            sim.apply(deployment("web", 2))
            sim.apply(hpa("web"))
        put(folder, sims["east"])
        async with running(observer(made, ClusterSources(folder=str(folder))), asyncio.Event()):
            await topics.until(lambda: topics.of(AutoscalerList, "east"), "east is observed")
            assert not topics.of(AutoscalerList, "west")
            session = (await topics.until(lambda: reports(made, "east"), "its report"))[-1].session

            put(folder, sims["west"])
            await topics.until(lambda: topics.of(AutoscalerList, "west"), "west has come")

            (folder / "west.yaml").unlink()
            await topics.until(lambda: has_stopped(made, "west"), "west has left")
            [trouble] = reports(made, "west")[-1].troubles
            assert (trouble.part, trouble.error) == ("membership", "file west.yaml no longer names it")
            shutdown_report = Heartbeat(session=session)
            await topics.until(lambda: topics.of(Heartbeat, "west")[-1:] == [shutdown_report], "west's last report")

            beats = len(topics.of(Heartbeat, "east"))
            await topics.until(lambda: len(topics.of(Heartbeat, "east")) > beats + 1, "east is still observed")
            assert {each.session for each in reports(made, "east")} == {session}
            assert not any(each.stopped or each.troubles for each in reports(made, "east"))
            # Its list may be published again, at a phase of the clock, but its API was asked for it only once.
            assert sum(each.verb == "list" and HPAS in each.path for each in sims["east"].api.audit) == 1
            asked = len(sims["west"].api.audit)
            await topics.until(lambda: len(topics.of(Heartbeat, "east")) > beats + 4, "time passes")
            assert len(sims["west"].api.audit) == asked

            put(folder, sims["west"])
            lists = len(topics.of(AutoscalerList, "west"))
            await topics.until(lambda: len(topics.of(AutoscalerList, "west")) > lists, "west is back")
            await topics.until(lambda: not has_stopped(made, "west"), "and its report says so")


async def test_a_cluster_that_joins_brings_the_central_hpas_that_it_had_before(tmp_path: Path) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    async with rig(tmp_path, ("east", "west")) as made:
        topics, sims = made.topics, made.sims
        sims["west"].apply(deployment("web", 2))
        put(folder, sims["east"])
        async with running(observer(made, ClusterSources(folder=str(folder))), asyncio.Event()):
            async with running_producer(made.kafka) as producer:
                central = AutoscalerSet(hpa=hpa("web"), origin="central", author="me")
                await Publisher(producer).send(SPECS, "west", NAMESPACE, [central], 1)
            await topics.until(lambda: reports(made, "east"), "east is observed")
            put(folder, sims["west"])
            await topics.until(lambda: topics.of(ScaleSet, "west"), "the scale of the HPA's target")


async def test_a_file_that_is_half_written_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    async with rig(tmp_path) as made:
        made.sims["east"].apply(hpa("web"))
        put(folder, made.sims["east"])
        part = observer(made, ClusterSources(folder=str(folder)))
        async with running(part, asyncio.Event()):
            await made.topics.until(lambda: made.topics.of(AutoscalerList, "east"), "east is observed")
            (folder / "east.yaml").write_text("contexts: [")
            await made.topics.until(lambda: any("not YAML" in each for each in part.health.notes()), "the mistake")
            beats = len(made.topics.of(Heartbeat, "east"))
            await made.topics.until(lambda: len(made.topics.of(Heartbeat, "east")) > beats + 2, "it is still observed")
            put(folder, made.sims["east"])
            await made.topics.until(lambda: not part.health.notes(), "the mistake is mended")
            assert not any(each.stopped for each in reports(made, "east"))


async def test_a_kubeconfig_that_would_run_a_command_is_a_trouble_of_its_cluster(tmp_path: Path) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    async with rig(tmp_path) as made:
        document = kubeconfig([made.sims["east"]])
        ran = tmp_path / "ran"
        document["users"][0]["user"] = {"exec": {"apiVersion": "v1", "command": "touch", "args": [str(ran)]}}
        (folder / "east.yaml").write_text(yaml.safe_dump(document))
        async with running(observer(made, ClusterSources(folder=str(folder))), asyncio.Event()):
            reported = await made.topics.until(
                lambda: [each for report in reports(made, "east") for each in report.troubles], "the refusal"
            )
        assert "file east.yaml: user.exec.command 'touch' is not one of the plugins" in reported[-1].error
        assert "name it in --found-exec-plugins" in reported[-1].error
        assert not made.sims["east"].api.audit
        assert not ran.exists()


@pytest.mark.slow
async def test_a_reconciler_serves_a_cluster_from_when_it_comes_until_it_goes(tmp_path: Path) -> None:
    folder = tmp_path / "clusters"
    folder.mkdir()
    async with rig(tmp_path, ("east", "west")) as made:
        topics, sims = made.topics, made.sims
        for sim in sims.values():
            sim.apply(deployment("web", 2))
            sim.apply(hpa("web"))
        put(folder, sims["east"])
        config = ReconcilerConfig(
            kafka=made.kafka, clusters=(), found=ClusterSources(folder=str(folder)), heartbeat_ms=300
        )

        def served() -> list[str]:
            reported = topics.of(Serving)
            return list(reported[-1].clusters) if reported else []

        async with running(Reconciler(config), asyncio.Event()):
            await topics.until(lambda: served() == ["east"], "east is served")
            put(folder, sims["west"])
            await topics.until(lambda: served() == ["east", "west"], "west is served")
            wanted = await made.decider.wants(sims["west"], "web", 4)
            ended = await topics.until(lambda: topics.of(Outcome, "west"), "an outcome")
            assert (ended[-1].decision, ended[-1].result) == (wanted.id, "applied")

            (folder / "west.yaml").unlink()
            await topics.until(lambda: served() == ["east"], "west is no longer served")
            await made.decider.wants(sims["west"], "web", 6)
            wanted = await made.decider.wants(sims["east"], "web", 5)
            ended = await topics.until(lambda: topics.of(Outcome, "east"), "east continues")
            assert (ended[-1].decision, ended[-1].result) == (wanted.id, "applied")
            live = sims["west"].store.get(("deployments.apps", "shop", "web"))
            assert live is not None
            assert live["spec"]["replicas"] == 4

"""What an observer reports when it crashed, and when a cluster goes away, forbids, or contradicts a proof."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleethpa.lab.simulator.requests import FieldWriter
from fleethpa.lab.simulator.resources import by_kind
from reconciler.observer import clusterobserver
from reconciler.observer.clusterview import ObserverConfig
from reconciler.observer.process import Observer
from reconciler.observer.reflector import WatchLimits
from runtime.kafkaclients import running_producer
from runtime.log import wall_clock_ms
from runtime.records import Publisher
from schemas.keys import supersedes
from schemas.observed import AutoscalerList, ClusterReport, Heartbeat, ObserverTrouble, PodList, ScaleSet
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import SETTINGS
from tests.kit.clusters import Denial, Fault, cluster_uid
from tests.pipeline.cluster_rig import NAMESPACE, Rig, deployment, hpa, observed, rig, widget

HPA = by_kind("autoscaling/v2", "HorizontalPodAutoscaler")


def reports(made: Rig) -> list[ClusterReport]:
    return made.topics.of(ClusterReport)


def troubles(made: Rig) -> dict[str, ObserverTrouble]:
    """The troubles of the newest report, by part."""
    found = reports(made)
    return {each.part: each for each in found[-1].troubles} if found else {}


async def until_all_is_well(made: Rig) -> None:
    count = len(reports(made))
    await made.topics.until(lambda: len(reports(made)) > count and not troubles(made), "a report without troubles", 40)


async def test_a_scale_that_its_deployment_shows_is_no_trouble_although_a_read_of_it_failed(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(hpa("web"))
        sim.add_fault(Fault(method="GET", path="/deployments/web/scale", action="drop"))
        async with observed(made):
            await made.topics.until(lambda: "scales" in troubles(made), "a read that failed", 30)
            sim.apply(deployment("web", 2))
            await until_all_is_well(made)


async def test_at_the_start_scales_are_those_that_the_list_of_their_parents_shows_and_none_is_read(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as made:
        made.sims["east"].apply(deployment("web", 2))
        made.sims["east"].apply(hpa("web"))
        made.sims["east"].deny([Denial(resource="deployments/scale")])
        async with observed(made):
            (reported, *_) = await made.topics.until(lambda: made.topics.of(ScaleSet), "the scale")
            known = len(reports(made))
            await made.topics.until(lambda: len(reports(made)) > known, "the next report")
            assert (reported.spec_replicas, reported.error) == (2, None)
            assert "scaleReads/Deployment.apps" not in troubles(made)


@pytest.mark.slow
async def test_a_scale_that_was_forbidden_once_is_read_again_although_its_deployment_shows_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        no_reads = Denial(resource="deployments/scale")
        sim.deny([Denial(resource="deployments"), no_reads])
        async with observed(made):
            await made.topics.until(lambda: "scaleReads/Deployment.apps" in troubles(made), "a read that was refused")
            sim.deny([no_reads])
            await made.topics.until(lambda: "scales/Deployment.apps" not in troubles(made), "the deployments are seen")
            sim.deny([])
            await until_all_is_well(made)


async def test_an_observer_that_crashed_is_superseded_by_its_next_start_which_sends_full_lists(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        made.sims["east"].apply(deployment("web", 2))
        made.sims["east"].apply(hpa("web"))
        config = ObserverConfig(kafka=made.kafka, clusters=made.clusters, heartbeat_ms=500, instance="node-1")
        crashed = asyncio.create_task(Observer(config).run(asyncio.Event()))
        await made.topics.until(lambda: made.topics.of(Heartbeat) and reports(made), "its heartbeat and its report")
        crashed.cancel()
        await asyncio.gather(crashed, return_exceptions=True)
        first = reports(made)[-1]
        assert (first.cluster, first.instance, first.stopped) == ("east", "node-1", False)
        async with observed(made, instance="node-1"):

            def listed(kind: Any) -> list[str]:
                return [body.session for body in made.topics.of(kind) if body.session != first.session]

            for kind in (AutoscalerList, PodList):
                sessions = await made.topics.until(partial(listed, kind), f"{kind.__name__} of the next session")
                assert supersedes(sessions[0], first.session)
        last = await made.topics.until(lambda: reports(made)[-1].stopped and reports(made)[-1], "the last report")
        assert not last.troubles
        assert not [beat for beat in made.topics.of(Heartbeat) if beat.session == first.session and not beat.watches]


async def test_the_trouble_of_a_metrics_api_ends_with_the_last_hpa_that_asks_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        for name in ("web", "api"):
            sim.apply(deployment(name, 2))
            sim.apply(hpa(name))
        sim.add_fault(Fault(path="metrics.k8s.io", status=503, message="the metrics server is down"))
        async with observed(made):
            await made.topics.until(lambda: troubles(made).get("metrics.k8s.io"), "the metrics API's trouble")
            for name in ("web", "api"):
                sim.writes.delete(HPA, NAMESPACE, name, {})
            await until_all_is_well(made)


async def test_the_trouble_of_a_metrics_api_ends_when_all_metrics_are_pushed(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        sim.add_fault(Fault(path="metrics.k8s.io", status=503, message="the metrics server is down"))
        async with observed(made):
            await made.topics.until(lambda: troubles(made).get("metrics.k8s.io"), "the metrics API's trouble")
            async with running_producer(made.kafka) as producer:
                pushed = SettingsSet(cluster="east", settings=ClusterSettings(sources={"Resource": "samples"}))
                await Publisher(producer).send(SETTINGS, "", "", [pushed], wall_clock_ms())
            await until_all_is_well(made)


async def test_what_another_cluster_than_the_stated_one_shows_does_not_get_into_the_log(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        await state_uid(made, "4f1c2e0a-6d1b-4c58-9a70-3b1d5f0e8c21")
        async with observed(made):
            await made.topics.until(lambda: troubles(made).get("apiServer"), "the trouble")
            assert {part: each.reason for part, each in troubles(made).items()} == {"apiServer": "identity"}
            assert not made.topics.of(AutoscalerList)
            await state_uid(made, cluster_uid(sim))
            await until_all_is_well(made)
            await made.topics.until(lambda: made.topics.of(AutoscalerList), "the list")


async def state_uid(made: Rig, uid: str) -> None:
    async with running_producer(made.kafka) as pen:
        stated = SettingsSet(cluster="east", settings=ClusterSettings(cluster_uid=uid))
        await Publisher(pen).send(SETTINGS, "", "", [stated], wall_clock_ms())


@pytest.mark.slow
async def test_an_api_server_that_is_away_is_distinguished_from_a_metrics_api_that_fails(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with observed(made) as part:
            await until_all_is_well(made)
            begun_ms = wall_clock_ms()
            fault = sim.add_fault(Fault(path="metrics.k8s.io", status=503, message="the metrics server is down"))
            await made.topics.until(lambda: troubles(made).get("metrics.k8s.io"), "the metrics API's trouble")
            failing = troubles(made)["metrics.k8s.io"]
            assert (failing.reason, failing.error, failing.namespaces) == ("failing", "the metrics server is down", [])
            assert begun_ms <= failing.since <= wall_clock_ms()
            assert not made.topics.of(Heartbeat)[-1].problems
            sim.clear_faults(fault)
            await until_all_is_well(made)

            await sim.stop_api(abort=True)
            await made.topics.until(lambda: "apiServer" in troubles(made), "the API server is away", 40)
            assert troubles(made).keys() == {"apiServer"}
            assert troubles(made)["apiServer"].reason == "unreachable"
            beat = await made.topics.until(
                lambda: next((b for b in made.topics.of(Heartbeat)[-1:] if len(b.problems) == 3), None), "its problems"
            )
            assert set(beat.reasons.values()) == {"unreachable"}
            up = "fleethpa_cluster_up"
            assert part.health.registry.get_sample_value(up, {"cluster": "east"}) == 0
            await sim.start_api()
            await until_all_is_well(made)
            assert part.health.registry.get_sample_value(up, {"cluster": "east"}) == 1


async def test_credentials_that_hold_no_longer_are_one_trouble_which_names_no_right(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with observed(made):
            await until_all_is_well(made)
            fault = sim.add_fault(Fault(path="/", status=401, message="Unauthorized"))
            sim.store.end_watches()
            refused = await made.topics.until(lambda: troubles(made).get("apiServer"), "the refusal of everything")
            assert (refused.reason, refused.error, refused.rights) == ("forbidden", "Unauthorized", [])
            assert {each.error for each in troubles(made).values()} == {"Unauthorized"}
            assert not any(each.rights for each in troubles(made).values())
            sim.clear_faults(fault)
            await until_all_is_well(made)


async def test_polls_move_the_time_of_the_last_sync_though_no_watch_has_news(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        made.sims["east"].apply(deployment("web", 2))
        made.sims["east"].apply(hpa("web"))

        def synced() -> float:
            found = part.health.registry.get_sample_value(
                "fleethpa_cluster_last_sync_timestamp_seconds", {"cluster": "east"}
            )
            return found or 0.0

        async with observed(made) as part:
            await until_all_is_well(made)
            made.sims["east"].add_fault(Fault(path="watch=true|/version", action="hang"))
            before = synced()
            await made.topics.until(lambda: synced() > before + 3, "a later sync")


async def test_rights_that_are_revoked_while_watches_stay_open_become_troubles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusterobserver, "WatchLimits", partial(WatchLimits, check_s=0.5))
    monkeypatch.setattr("reconciler.observer.reflector.CONFIRM_S", 0.1)
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with observed(made):
            await until_all_is_well(made)
            # Metrics first: once the scale of its target may not be read, no question about an HPA's pods is asked.
            sim.deny([Denial(resource="pods")])
            wanted = {"pods", "metrics.k8s.io"}
            await made.topics.until(lambda: wanted <= troubles(made).keys(), "pods and metrics that are forbidden", 40)
            sim.deny([Denial()])
            wanted |= {"autoscalers", "scales/Deployment.apps"}
            await made.topics.until(lambda: wanted <= troubles(made).keys(), "all that is forbidden", 40)
            found = troubles(made)
            assert {each.reason for each in found.values()} == {"forbidden"}
            assert found["pods"].rights == ["list pods", "watch pods"]
            assert found["scales/Deployment.apps"].rights == ["list deployments.apps", "watch deployments.apps"]
            sim.deny([])
            await until_all_is_well(made)


async def test_an_observer_that_finds_everything_forbidden_sees_within_seconds_when_it_no_longer_is(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        sim.deny([Denial()])  # a fresh API server, before it knows its roles
        async with observed(made):
            await made.topics.until(lambda: "pods" in troubles(made), "the report of a cluster that shows nothing")
            assert not made.topics.of(Heartbeat)
            sim.deny([])
            await made.topics.until(lambda: made.topics.of(AutoscalerList), "the HPAs", 15)
            await until_all_is_well(made)


@pytest.mark.slow
async def test_missing_rights_for_a_custom_resource_are_named_and_looked_at_a_few_times_not_all_the_time(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        for namespace in ("shop", "vault", "other"):
            sim.apply(deployment("web", 1, namespace=namespace))
        sim.apply(widget("gear", 2))
        sim.apply(hpa("gear", scaleTargetRef={"apiVersion": "example.com/v1", "kind": "Widget", "name": "gear"}))
        sim.deny([Denial(resource="widgets"), Denial(resource="widgets/scale")])
        async with observed(made):
            parts = {"scales/Widget.example.com", "scaleReads/Widget.example.com"}
            await made.topics.until(lambda: parts <= troubles(made).keys(), "both troubles")
            rights = [right for part in sorted(parts, reverse=True) for right in troubles(made)[part].rights]
            assert rights == ["list widgets.example.com", "watch widgets.example.com", "get widgets.example.com/scale"]
            beats = len(made.topics.of(Heartbeat))
            await made.topics.until(lambda: len(made.topics.of(Heartbeat)) > beats + 24, "some twelve seconds", 40)
            lists = [each.path for each in sim.api.audit if "/widgets" in each.path and "/scale" not in each.path]
            reads = [each.path for each in sim.api.audit if "/widgets/gear/scale" in each.path]
            # At the start, after 2 s and 6 s more: the cluster and the one namespace that needs it. Then each minute.
            assert len(lists) <= 7, lists
            assert len(reads) <= 4, reads


@pytest.mark.parametrize("runs", [pytest.param(True, id="it runs"), pytest.param(False, id="somebody else wrote it")])
async def test_what_was_written_in_the_native_controllers_name_after_its_absence_was_proven_is_for_a_canary_to_decide(
    tmp_path: Path, runs: bool
) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        native = FieldWriter("kube-controller-manager", subresource="status")

        def native_writes(namespace: str, name: str, replicas: int) -> None:
            live = sim.store.get(("horizontalpodautoscalers.autoscaling", namespace, name))
            assert live is not None
            status = {"currentReplicas": replicas, "desiredReplicas": replicas, "observedGeneration": 1}
            sim.writes.update(HPA, namespace, name, live | {"status": status}, native)

        async def native_controller() -> None:
            while True:
                for canary in sim.store.listing("horizontalpodautoscalers.autoscaling", "default"):
                    if not (canary.get("status") or {}).get("observedGeneration"):
                        native_writes("default", canary["metadata"]["name"], 1)
                await asyncio.sleep(0.1)

        native_writes(NAMESPACE, "web", 1)
        async with running_producer(made.kafka) as pen:
            # Managed fields tell seconds: what was written in the second of the proof came before it.
            absent = SettingsSet(cluster="east", settings=ClusterSettings(native_controller="absent"))
            await Publisher(pen).send(SETTINGS, "", "", [absent], wall_clock_ms())
        async with observed(made, canary_wait_s=1.0):
            controller = asyncio.create_task(native_controller()) if runs else None
            await until_all_is_well(made)
            assert len(made.topics.of(SettingsSet)) == 1, "what came before the proof does not count"
            await asyncio.sleep(1.1 - wall_clock_ms() % 1_000 / 1_000)
            native_writes(NAMESPACE, "web", 2)
            if controller is not None:
                [verdict] = await made.topics.until(lambda: made.topics.of(SettingsSet)[1:], "the withdrawn proof")
                assert (verdict.cluster, verdict.settings.native_controller) == ("east", "present")
                assert verdict.settings.native_evidence.startswith("it wrote the status of HPA shop/web at 20")
                controller.cancel()
            else:
                found = await made.topics.until(
                    lambda: [each for each in troubles(made).values() if "canary showed" in each.error], "the trouble"
                )
                assert found[0].part == "nativeEvidence"
                assert found[0].error.startswith("it wrote the status of HPA shop/web at 20")
                assert len(made.topics.of(SettingsSet)) == 1, "the proof is there"


async def test_a_canary_that_cannot_be_made_is_tried_again_and_never_takes_a_proof_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.observer.nativecontroller.FIRST_PAUSE_S", 0.2)
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        fault = sim.add_fault(Fault(method="POST", path="horizontalpodautoscalers", status=500, message="not today"))
        async with observed(made, prove_native_absent=True, canary_wait_s=1.0):
            await made.topics.until(lambda: "canary" in troubles(made), "the trouble of the canary")
            assert not made.topics.of(SettingsSet)
            sim.clear_faults(fault)
            [reported] = await made.topics.until(lambda: made.topics.of(SettingsSet), "the verdict")
            assert reported.settings.native_controller == "absent"
            await until_all_is_well(made)
        assert not sim.store.listing("horizontalpodautoscalers.autoscaling", "default")

"""The observer against simulated clusters and the embedded broker."""

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fleethpa.lab.simulator.requests import FieldWriter
from fleethpa.lab.simulator.resources import by_kind
from reconciler.observer.httpconnections import HttpConnection
from reconciler.observer.scaleobserver import BURST_S
from reconciler.prometheus.connections import PromConnection, PromConnections
from reconciler.prometheus.poller import open_prometheus
from reconciler.prometheus.promrules import parse_rules
from runtime import kafkaclients
from runtime.log import wall_clock_ms
from runtime.records import Publisher
from schemas.answers import Answers, MetricAnswer
from schemas.codec import encode
from schemas.entries import Body
from schemas.observed import (
    AutoscalerDeleted,
    AutoscalerList,
    AutoscalerSet,
    Heartbeat,
    PodDeleted,
    PodList,
    PodSet,
    ScaleSet,
)
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import SETTINGS, SPECS
from tests.kit.answers import pods_of
from tests.kit.clusters import Denial, Fault
from tests.kit.prometheus import FakePrometheus
from tests.patience import PATIENCE_S
from tests.pipeline.cluster_rig import NAMESPACE, RARELY_MS, Json, Rig, deployment, hpa, observed, rig, widget

EXTERNAL = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "5"}},
}


def delete(made: Rig, api_version: str, kind: str, name: str, cluster: str = "east") -> None:
    made.sims[cluster].writes.delete(by_kind(api_version, kind), NAMESPACE, name, {})


def pods_now(made: Rig, namespace: str = NAMESPACE) -> set[str]:
    """The pods of a namespace as a reader of the topic folds them."""
    pods: set[str] = set()
    for _, _, inside, body in made.topics.entries:
        if inside != namespace:
            continue
        if isinstance(body, PodList):
            pods = {pod.name for pod in body.pods} if body.chunk == 0 else pods | {pod.name for pod in body.pods}
        elif isinstance(body, PodSet):
            pods.add(body.pod.name)
        elif isinstance(body, PodDeleted):
            pods.discard(body.name)
    return pods


def live_pods(made: Rig, cluster: str = "east") -> set[str]:
    return {pod["metadata"]["name"] for pod in made.sims[cluster].store.listing("pods", NAMESPACE)}


def scales(made: Rig, name: str) -> list[ScaleSet]:
    return [body for body in made.topics.of(ScaleSet) if body.target.name == name]


def answered(made: Rig, api: str) -> list[MetricAnswer]:
    return [item for body in made.topics.of(Answers) for item in body.items if item.api == api]


async def test_a_cluster_is_reported_whole_and_then_as_it_changes(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim = made.sims["east"]
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        sim.apply(deployment("other", 1, namespace="elsewhere"))
        topics = made.topics
        async with observed(made):
            listed = await topics.until(lambda: topics.of(AutoscalerList), "the list of HPAs")
            assert [each["metadata"]["name"] for each in listed[0].hpas] == ["web"]
            assert listed[0].hpas[0]["kind"] == "HorizontalPodAutoscaler"
            assert list(listed[0].managers) == ["web"]
            await topics.until(lambda: pods_now(made) == live_pods(made) and len(live_pods(made)) == 2, "both pods")
            first = (await topics.until(lambda: scales(made, "web"), "the scale"))[0]
            assert (first.spec_replicas, first.selector, first.error) == (2, "app=web", None)
            await topics.until(lambda: any(a.pods for a in answered(made, "resource")), "usages of pods")
            beat = (await topics.until(lambda: topics.of(Heartbeat), "a heartbeat"))[-1]
            assert beat.watches == ["pods", "autoscalers", "scales"]
            await topics.until(
                lambda: any(each.kubernetes.startswith("v1.37") for each in topics.of(Heartbeat)), "the version"
            )

            sim.apply(deployment("web", 4), manager="kubectl-edit")
            changed = await topics.until(
                lambda: next((s for s in scales(made, "web") if s.spec_replicas == 4), None), "the new count"
            )
            assert changed.manager == "kubectl-edit"
            await topics.until(lambda: len(pods_now(made)) == 4, "four pods")
            sim.apply(hpa("web", high=7), manager="argocd-controller")
            edited = await topics.until(lambda: topics.of(AutoscalerSet), "the changed HPA")
            assert edited[-1].manager == "argocd-controller"
            assert edited[-1].manager_time > 0
            delete(made, "autoscaling/v2", "HorizontalPodAutoscaler", "web")
            gone = await topics.until(lambda: topics.of(AutoscalerDeleted), "the deleted HPA")
            assert gone[0].uid == listed[0].hpas[0]["metadata"]["uid"]
        assert not pods_now(made, "elsewhere")  # no HPA there: nothing is published of it
        sessions = {getattr(body, "session", None) for _, _, _, body in topics.entries}
        assert len(sessions) == 1


async def test_an_observer_that_stops_reports_it_so_that_another_is_followed_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        made.sims["east"].apply(hpa("web"))
        async with observed(made):
            await made.topics.until(lambda: made.topics.of(Heartbeat), "a heartbeat")
        last = await made.topics.until(
            lambda: next((beat for beat in made.topics.of(Heartbeat) if not beat.watches), None), "the shutdown report"
        )
        assert last.session == made.topics.of(Heartbeat)[0].session


async def test_a_target_that_is_not_there_is_reported_in_the_servers_words_until_it_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(hpa("late"))
        odd = hpa("odd", scaleTargetRef={"apiVersion": "acme.io/v1", "kind": "Rocket", "name": "odd"})
        sim.apply(odd)
        async with observed(made):
            missing = (await topics.until(lambda: scales(made, "late"), "the missing target"))[0]
            assert missing.error == 'deployments.apps "late" not found'
            unknown = (await topics.until(lambda: scales(made, "odd"), "the unknown kind"))[0]
            assert unknown.error == 'no matches for kind "Rocket" in group "acme.io"'
            sim.apply(deployment("late", 3))
            await topics.until(lambda: scales(made, "late")[-1].spec_replicas == 3, "the target, once made")
            delete(made, "apps/v1", "Deployment", "late")
            await topics.until(lambda: scales(made, "late")[-1].error == missing.error, "the target, deleted")


async def test_the_scale_of_a_custom_resource_is_read_when_it_changes(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(widget("gear", 2))
        sim.apply(hpa("gear", scaleTargetRef={"apiVersion": "example.com/v1", "kind": "Widget", "name": "gear"}))
        async with observed(made):
            await topics.until(
                lambda: scales(made, "gear") and scales(made, "gear")[-1].spec_replicas == 2, "its scale"
            )
            sim.apply(widget("gear", 5))
            reported = await topics.until(
                lambda: next((s for s in scales(made, "gear") if s.spec_replicas == 5), None), "its new scale"
            )
        assert reported.selector == "app=gear"
        assert reported.target.group == "example.com"


async def test_a_burst_of_changes_of_a_custom_resource_is_few_reads_of_its_scale(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(widget("gear", 2))
        sim.apply(hpa("gear", scaleTargetRef={"apiVersion": "example.com/v1", "kind": "Widget", "name": "gear"}))
        async with observed(made):
            await topics.until(lambda: scales(made, "gear"), "its scale")

            def reads() -> int:
                return sum("widgets/gear/scale" in each.path for each in sim.api.audit)

            before, begun = reads(), time.monotonic()
            for number in range(30):
                sim.apply(widget("gear", 3 + number))
                await asyncio.sleep(0.01)  # events of their own, as a busy operator makes them
            await topics.until(lambda: scales(made, "gear")[-1].spec_replicas == 32, "the last scale")
            # One at once, then at most one in this time, however slow the machine is.
            assert reads() - before <= 2 + (time.monotonic() - begun) / BURST_S


async def test_a_list_after_410_heals_missed_deletes_and_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 3))
        sim.apply(hpa("web"))
        async with observed(made):
            await topics.until(lambda: len(pods_now(made)) == 3, "three pods")
            await sim.stop_api(abort=True)
            sim.apply(deployment("web", 1))
            async with asyncio.timeout(PATIENCE_S):
                while len(live_pods(made)) > 1:
                    await asyncio.sleep(0.05)
            sim.store.compact()  # the deletions are history that a watch cannot ask for any more
            await sim.start_api()
            await topics.until(lambda: pods_now(made) == live_pods(made), "the deletes, by a full list")
            await topics.until(lambda: scales(made, "web")[-1].spec_replicas == 1, "the scale")


async def test_expired_watches_list_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with observed(made) as part:
            await topics.until(lambda: len(pods_now(made)) == 2, "two pods")
            before = len(topics.of(AutoscalerList))
            sim.expire_watches()
            await topics.until(lambda: len(topics.of(AutoscalerList)) > before, "a new full list")
            labels = {"cluster": "east", "resource": "pods", "reason": "410"}
            value = partial(part.health.registry.get_sample_value, "fleethpa_watch_restarts_total", labels)
            await topics.until(value, "the watch of pods begins again, too")
            assert value() == 1


async def test_a_forbidden_namespace_is_a_visible_problem_and_the_others_go_on(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        for namespace in ("shop", "vault"):
            sim.apply(deployment("web", 2, namespace=namespace))
            sim.apply(hpa("web", namespace=namespace))
        # Neither the whole cluster nor the pods of one namespace may be seen.
        sim.deny([Denial(namespace="", resource="pods"), Denial(namespace="vault", resource="pods")])
        async with observed(made):
            await topics.until(lambda: len(pods_now(made, "shop")) == 2, "pods of the allowed namespace")

            def beats() -> list[Heartbeat]:
                return [beat for beat in topics.of(Heartbeat, namespace="vault") if "pods" in beat.problems]

            reported = (await topics.until(beats, "the problem in the heartbeat"))[-1]
            assert "forbidden" in reported.problems["pods"]
            fine = topics.of(Heartbeat, namespace="shop")[-1]
            assert not fine.problems


async def test_metrics_of_all_apis_are_asked_for_and_errors_reported_in_the_servers_words(tmp_path: Path) -> None:
    simulation = "load: 100\nmetrics:\n  - {type: Pods, name: rps}\n  - {type: External, name: queue}"
    pods = {
        "type": "Pods",
        "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "5"}},
    }
    lost = {"type": "External", "external": EXTERNAL["external"] | {"metric": {"name": "lost"}}}  # type: ignore[operator]
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2, simulation=simulation))
        sim.apply(hpa("web", metrics=[pods, EXTERNAL, lost]))
        async with observed(made):
            await topics.until(lambda: any(a.pods for a in answered(made, "pods")), "values of pods")
            await topics.until(lambda: any(a.items for a in answered(made, "external")), "an external series")
            failed = await topics.until(
                lambda: next((a for a in answered(made, "external") if a.metric == "lost" and a.error), None),
                "the error",
            )
            assert "lost" in str(failed.error)
            sim.add_fault(Fault(path="custom.metrics.k8s.io", status=503, message="backend is gone"))
            await topics.until(
                lambda: [a for a in answered(made, "pods") if a.error == "backend is gone"], "the API's own text"
            )


async def test_a_metric_that_is_added_is_asked_for_at_once_and_not_at_each_status(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2, simulation="load: 100\nmetrics:\n  - {type: External, name: queue}"))
        first = sim.apply(hpa("web"))
        async with observed(made, sync_period_ms=RARELY_MS) as part:
            await topics.until(lambda: answered(made, "resource"), "the first answer")
            polls, ask = [], part._clusters["east"]._begin_poll

            async def asked(namespace: str) -> None:
                polls.append(namespace)
                await ask(namespace)

            part._clusters["east"]._begin_poll = asked  # type: ignore[method-assign]
            sim.apply(first | {"status": {"currentReplicas": 2, "desiredReplicas": 2}})
            sim.apply(hpa("web", metrics=[*hpa("web")["spec"]["metrics"], EXTERNAL]))
            await topics.until(lambda: answered(made, "external"), "the answer for the new metric")
            assert polls == [NAMESPACE]


async def test_of_targets_that_no_hpa_scales_any_more_nothing_is_kept(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        async with observed(made, sync_period_ms=RARELY_MS) as part:
            state = part._clusters["east"]._state.namespace(NAMESPACE)
            await topics.until(lambda: answered(made, "resource"), "its metrics are asked for at once")
            assert list(state.asked.values()) == ["app=web"]
            delete(made, "autoscaling/v2", "HorizontalPodAutoscaler", "web")
            await topics.until(lambda: not state.scales, "the HPA is gone")
            assert not state.asked
            answers = len(answered(made, "resource"))
            sim.apply(hpa("web"))
            await topics.until(lambda: len(answered(made, "resource")) > answers, "one that comes back does not wait")


async def test_of_the_statuses_that_fleethpa_writes_those_with_new_metric_values_only_are_not_reported(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        kind, own = by_kind("autoscaling/v2", "HorizontalPodAutoscaler"), FieldWriter("fleethpa", subresource="status")
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))

        def write(replicas: int, metric: int, writer: FieldWriter) -> None:
            live = sim.store.get(("horizontalpodautoscalers.autoscaling", NAMESPACE, "web"))
            assert live is not None
            value = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": metric}}}
            status = {"currentReplicas": replicas, "desiredReplicas": replicas, "currentMetrics": [value]}
            sim.writes.update(kind, NAMESPACE, "web", live | {"status": status}, writer)

        def reported() -> list[tuple[int, int]]:
            statuses = [body.hpa["status"] for body in topics.of(AutoscalerSet)]
            return [
                (status["desiredReplicas"], status["currentMetrics"][0]["resource"]["current"]["averageUtilization"])
                for status in statuses
            ]

        async with observed(made, sync_period_ms=RARELY_MS):
            await topics.until(lambda: topics.of(AutoscalerList), "the HPA")
            for replicas, metric in ((2, 40), (2, 41), (2, 42), (3, 43), (3, 44)):
                write(replicas, metric, own)
            sim.apply(hpa("web", high=12))
            await topics.until(lambda: topics.of(AutoscalerSet)[-1:] and reported()[-1] == (3, 44), "the changed spec")
        assert reported() == [(2, 40), (3, 43), (3, 44)]


async def test_what_is_pushed_is_not_asked_for_until_it_no_longer_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2, simulation="load: 100\nmetrics:\n  - {type: External, name: queue}"))
        sim.apply(hpa("web", metrics=[*hpa("web")["spec"]["metrics"], EXTERNAL]))

        def asked() -> list[set[str]]:
            return [{item.api for item in body.items} for body in topics.of(Answers)]

        async def say(entry: SettingsSet) -> None:
            async with kafkaclients.running_producer(made.kafka) as pen:
                await Publisher(pen).send(SETTINGS, "", "", [entry], wall_clock_ms())

        async with observed(made):
            await topics.until(lambda: asked()[-1:] == [{"resource", "external"}], "an answer to both")
            await say(SettingsSet(cluster="east", settings=ClusterSettings(sources={"Resource": "samples"})))
            await topics.until(lambda: asked()[-2:] == [{"external"}] * 2, "answers to one only")
            await say(SettingsSet(cluster="east", settings=ClusterSettings(), unset=["sources"]))
            await topics.until(lambda: asked()[-1:] == [{"resource", "external"}], "an answer to both again")


async def test_two_targets_of_a_namespace_share_one_list_of_usages(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        for name in ("web", "api"):
            sim.apply(deployment(name, 2))
            sim.apply(hpa(name))
        async with observed(made):
            await topics.until(lambda: len(topics.of(Answers)) >= 3, "three polls")
        last = topics.of(Answers)[-1]
        by_selector = {item.selector: set(pods_of(item.pods)) for item in last.items}
        assert set(by_selector) == {"app=web", "app=api"}
        assert all(pod.startswith("web-") for pod in by_selector["app=web"])


async def test_a_central_hpa_makes_its_target_and_metrics_known(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        async with observed(made):
            await _apply_central(made, hpa("central", "web"))
            await topics.until(lambda: scales(made, "web"), "the scale")
            await topics.until(lambda: len(pods_now(made)) == 2, "the pods")
            await topics.until(lambda: any(a.pods for a in answered(made, "resource")), "usages")


async def test_an_observer_that_starts_knows_the_central_hpas_of_before(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        await _apply_central(made, hpa("central", "web"))
        async with observed(made):
            await topics.until(lambda: any(a.pods for a in answered(made, "resource")), "usages")


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"spec": 5}, id="a spec that is none"),
        pytest.param({"spec": {"metrics": [{"type": "Pods"}]}}, id="a metric without its source"),
        pytest.param(
            {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": 7}}}, id="a number"
        ),
        pytest.param({"apiVersion": "autoscaling/v9"}, id="a version that nobody knows"),
    ],
)
async def test_a_central_hpa_that_ingest_rejects_is_passed_over_and_one_of_an_older_version_is_read_as_v2(
    tmp_path: Path, broken: Json
) -> None:
    v1 = {"apiVersion": "autoscaling/v1", "spec": {"targetCPUUtilizationPercentage": 50, "metrics": None}}
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        async with observed(made):
            await _apply_central(made, _merged(hpa("broken", "web"), broken))
            await _apply_central(made, _merged(hpa("central", "web"), v1))
            await topics.until(lambda: any(a.pods for a in answered(made, "resource")), "usages")


def _merged(base: Json, change: Json) -> Json:
    both = {key: _merged(base[key], value) for key, value in change.items() if _is_object(base.get(key), value)}
    return {key: value for key, value in (base | change | both).items() if value is not None}


def _is_object(left: Any, right: Any) -> bool:
    return isinstance(left, dict) and isinstance(right, dict)


async def test_settings_that_ingest_rejects_do_not_end_an_observer(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web"))
        entry = {"kind": "settings", "cluster": "east", "settings": {"syncPeriodMs": 0}}
        async with kafkaclients.running_producer(made.kafka) as producer:
            record = {"v": 1, "cluster": "east", "namespace": "", "entries": [entry]}
            await producer.send_and_wait(SETTINGS, encode(record))
        async with observed(made):
            await topics.until(lambda: any(a.pods for a in answered(made, "resource")), "usages")


async def test_a_cluster_hpa_behind_a_central_one_of_its_name_is_reported_when_that_goes(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        sim, topics = made.sims["east"], made.topics
        sim.apply(deployment("web", 2))
        sim.apply(hpa("web", high=7))

        def reported() -> list[AutoscalerSet]:
            return [body for body in topics.of(AutoscalerSet) if body.origin == "cluster"]

        async with observed(made):
            await topics.until(lambda: topics.of(AutoscalerList), "the list of HPAs")
            await _apply_central(made, hpa("web", high=3))
            await _write_central(made, AutoscalerDeleted(name="web", origin="central"))
            found = await topics.until(reported, "the cluster's HPA, whole")
        assert [body.hpa["spec"]["maxReplicas"] for body in found] == [7]


async def _apply_central(made: Rig, manifest: Json) -> None:
    await _write_central(made, AutoscalerSet(hpa=manifest, origin="central", author="me"))


async def _write_central(made: Rig, body: AutoscalerSet | AutoscalerDeleted) -> None:
    await write_public(made, SPECS, body)


async def write_public(made: Rig, topic: str, body: Body) -> None:
    async with kafkaclients.running_producer(made.kafka) as producer:
        await Publisher(producer).send(topic, "east", NAMESPACE, [body], 1)


async def test_a_dead_cluster_does_not_keep_others_from_being_reported(tmp_path: Path) -> None:
    async with rig(tmp_path, ("east", "west")) as made:
        for sim in made.sims.values():
            sim.apply(deployment("web", 2))
            sim.apply(hpa("web"))
        number = made.sims["east"].add_fault(Fault(action="hang"))
        topics = made.topics
        async with observed(made):
            await topics.until(lambda: topics.of(Answers, "west"), "west, while east hangs")
            assert not topics.of(AutoscalerList, "east")
            made.sims["east"].clear_faults(number)
            await topics.until(lambda: topics.of(AutoscalerList, "east"), "east, once it answers", 40)


async def test_the_canary_proves_that_no_native_controller_runs(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        topics = made.topics
        async with observed(made, prove_native_absent=True, canary_wait_s=1.0):
            reported = (await topics.until(lambda: topics.of(SettingsSet), "the verdict"))[0]
        assert (reported.cluster, reported.settings.native_controller) == ("east", "absent")
        assert not made.sims["east"].store.listing("horizontalpodautoscalers.autoscaling", "default")
        assert not topics.of(AutoscalerSet)


async def test_a_prometheus_is_asked_in_place_of_a_metrics_api(tmp_path: Path) -> None:
    rules = "externalRules: [{seriesQuery: queue, metricsQuery: <<.Series>>, resources: {namespaced: false}}]"
    async with rig(tmp_path) as made, FakePrometheus().served() as prometheus:
        prometheus.names, prometheus.results = {"queue": ["queue"]}, {"queue": [({"name": "orders"}, 7.5)]}
        reached = HttpConnection(prometheus.url)
        connection = PromConnection(reached, parse_rules(rules, "rules.yaml"), frozenset({"external"}))
        made.sims["east"].apply(deployment("web"))
        made.sims["east"].apply(hpa("web", metrics=[EXTERNAL, *hpa("web")["spec"]["metrics"]]))
        async with observed(made, polled={"prometheus": open_prometheus(PromConnections({"*": connection}))}):
            await made.topics.until(lambda: any(each.pods for each in answered(made, "resource")), "usages of pods")
            (first, *_) = await made.topics.until(lambda: answered(made, "external"), "the queue")
        assert (first.error, first.items, first.asked) == (None, [(7_500, 1_000_250)], "queue")

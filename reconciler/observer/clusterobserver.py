"""Observe one cluster: pods, HPAs and scale parents by watches, metrics by polls, everything out as public records."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial

from reconciler.clusters.answers import ClusterError, reading
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.nativehpas import Discovery, Resource, hpa_path
from reconciler.core.metricanswers import queries, within_limits
from reconciler.core.objects import (
    FIELD_MANAGER,
    SCALED_OBJECT,
    KeptHpa,
    asking_of,
    hpa_body,
    hpa_reports_the_same,
    is_canary,
    is_status_of,
    kept_hpa,
    pod_body,
    reported_hpa,
)
from reconciler.observer.clusterversion import ClusterVersion
from reconciler.observer.clusterview import ApiServer, ClusterState, ObserverConfig, ObserverMetrics
from reconciler.observer.metricpolls import METRICS_APIS, MetricsPoller, Phases, Timetable
from reconciler.observer.nativecontroller import Canary, NativeWatch, NoteCanary, native_status_write
from reconciler.observer.observertopics import (
    ReportPublisher,
    after_own_start,
    answer_records,
    autoscaler_lists,
    pod_lists,
)
from reconciler.observer.polledsource import OpenSource, PolledSource, SourceContext, divide
from reconciler.observer.reflector import Listener, Mirror, Watching, WatchLimits
from reconciler.observer.scaleobserver import ScaleWatcher
from reconciler.observer.troubles import ReadProblem, Troubles
from schemas.answers import Answers, MetricAnswer, Query
from schemas.entries import Body
from schemas.inforce import report_every_ms
from schemas.keys import SessionName
from schemas.kubernetes.shape import Json
from schemas.observed import (
    CANARY_PART,
    CONFLICTING_PART,
    MEMBERSHIP_PART,
    NATIVE_EVIDENCE_PART,
    AutoscalerDeleted,
    AutoscalerSet,
    ClusterReport,
    Heartbeat,
    Pod,
    PodDeleted,
    PodSet,
    ScaleSet,
)
from schemas.syncperiods import StatedPeriod
from schemas.topics import AUTOSCALERS, PODS, SAMPLES, SCALES

log = logging.getLogger(__name__)

LOOK_FOR_KEDA_S = 300.0
PODS_RESOURCE = Resource("", "v1", "pods", "Pod")
SOON_S = 0.2


class ClusterObserver:
    """One observer session of one cluster."""

    def __init__(
        self,
        client: ClusterClient,
        config: ObserverConfig,
        reports: ReportPublisher,
        metrics: ObserverMetrics,
        *,
        session: SessionName,
        phases: Phases,
        sync_period_ms: Callable[[Collection[StatedPeriod]], int],
        pushed: Callable[[], Collection[str]] = tuple,
        note: Callable[[str, str | None], None],
        native_absent_since_ms: Callable[[], int | None],
        started_ms: int | None = None,
        may_be_preceded: Callable[[], bool] = lambda: True,
        is_stand_ins: Callable[[Json], bool] = lambda hpa: False,
    ) -> None:
        """Args:
        phases: those of all clusters that the process observes.
        sync_period_ms: how often metrics are asked for in a namespace, by the periods that its HPAs state.
        pushed: metric types that need not be asked for.
        native_absent_since_ms: since when the native controller counts as absent, or None if it does not.
        started_ms: when the session began; None: at its epoch.
        may_be_preceded: whether another session of this cluster may have been followed when this one began.
        is_stand_ins: whether an HPA is one that the stand-in made; such HPAs are not reported.
        """
        self.name = client.name
        self.session = str(session)
        self._started_ms = session.epoch // 1_000_000 if started_ms is None else started_ms
        self._pushed, self._may_be_preceded, self._sync_period_ms = pushed, may_be_preceded, sync_period_ms
        self._client, self._config, self._reports, self._metrics = client, config, reports, metrics
        self._is_stand_ins = is_stand_ins
        self._report_due = asyncio.Event()
        self._troubles = Troubles(config.clock, self._report_due.set)
        self._state, self._note = ClusterState(self._troubles), note
        self._lists = 0
        self._version = ClusterVersion(client)
        self._soon: set[str] = set()
        self._central: asyncio.Queue[tuple[str, str, Json | None]] = asyncio.Queue()
        self._watching = Watching(client, metrics, WatchLimits(config.list_limit, config.watch_s))
        self.native = NativeWatch(
            client.name,
            self.canary,
            note=partial(self._problem, NATIVE_EVIDENCE_PART, ""),
            absent_since_ms=native_absent_since_ms,
            clock=config.clock,
        )
        self._api = ApiServer(client, self._troubles, metrics)
        client.on_answer = self._api.answered
        self._discovery = Discovery(client)
        self._poller = MetricsPoller(
            client,
            self._discovery,
            metrics=metrics,
            troubles=self._troubles,
            timeout_s=config.metrics_timeout_s,
            at_once=config.metrics_at_once,
            answers=self._api.answers,
            rules=lambda: self._version.rules,
        )
        opened = [self._open(name, source) for name, source in config.polled.items()]
        self._sources = [source for source in opened if source is not None]
        self._scales = ScaleWatcher(
            self._watching, self._discovery, self._state, self._report_scale, session=self.session, mirror=self._mirror
        )
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._asked_ms: dict[str, int] = {}
        """When metrics were asked for last, by namespace."""
        self._phases, self._timetable = phases, Timetable(client.name, config.clock, phases)
        self._timetable.add_kind("poll", self._begin_poll, self._asked_every_ms)
        self._timetable.add_kind("check", self._scales.check, lambda namespace: config.heartbeat_ms)
        self._timetable.add_kind("resend", self._resend, lambda namespace: config.reread_ms)

    async def run(self) -> None:
        """Observe until cancelled; an unreachable cluster is retried without limit."""
        noted = partial(self._problem, "autoscalers")
        hpas = Listener(self._hpas_listed, self._hpa_changed, noted, self._hpa_listed)
        # A raw pod is ten times as large as what is needed of it, and a cluster may have a hundred thousand.
        pods = Listener(self._pods_listed, self._pod_changed, partial(self._problem, "pods"), _pod_of)
        async with AsyncExitStack() as stack:
            for source in self._sources:
                stack.push_async_callback(source.close)
            group = self._group = await stack.enter_async_context(asyncio.TaskGroup())
            work = [self._scales.run(group), self._timetable.run(), self._api.watch(), self._report()]
            work += [self._version.follow(), self._follow_scaled_objects(), self._follow_central()]
            work += [self._mirror(hpa_path, hpas), self._mirror(PODS_RESOURCE.path, pods)]
            for each in (*work, after_own_start(self.resend_all, self._may_be_preceded)):
                group.create_task(each)

    async def _mirror(
        self, path: Callable[[str], str], listener: Listener, wanted: Callable[[], set[str]] | None = None
    ) -> None:
        """Mirror a collection; where the whole cluster is forbidden, in `wanted` namespaces (None: all there are)."""

        async def seen_namespaces() -> list[str]:
            return await self._seen_namespaces() if wanted is None else sorted(wanted())

        await Mirror(
            self._watching,
            path,
            listener,
            namespaces=self._config.namespaces,
            seen_namespaces=seen_namespaces,
            wanted=wanted or set,
        ).run()

    async def _seen_namespaces(self) -> list[str]:
        """Namespaces that exist, or where that is forbidden those that central HPAs name."""
        try:
            answer = await self._client.get("/api/v1/namespaces")
            with reading("the list of namespaces cannot be read"):
                return [item["metadata"]["name"] for item in answer.get("items") or ()]
        except ClusterError as error:
            log.info("namespaces cannot be listed", extra={"cluster": self.name, "error": str(error)})
            return list(self._state.namespaces)

    # --- HPAs ---------------------------------------------------------------------------------------------------------

    def central(self, namespace: str, name: str, hpa: Json | None) -> None:
        """A central HPA of this cluster was applied, or deleted (None)."""
        self._central.put_nowait((namespace, name, hpa))

    async def _follow_central(self) -> None:
        while True:
            namespace, name, hpa = await self._central.get()
            self._state.set_central(namespace, name, None if hpa is None else asking_of(hpa))
            native = self._state.namespace(namespace).hpas.get(name)
            if hpa is None and native is not None:
                # Behind a central one of its name it was known as another autoscaler only: report all of it.
                body = self._set(reported_hpa(native), native)
                await self._reports.put(AUTOSCALERS, self.name, namespace, [body])
            await self._hpas_changed(namespace)

    def _hpa_listed(self, item: Json) -> tuple[str, str, KeptHpa] | None:
        """Return what is kept of an item of a list; None: fleethpa's own."""
        if is_canary(item) or self._is_stand_ins(item):
            return None
        self.native.wrote(native_status_write(item, self._config.clock()))
        return item["metadata"]["namespace"], item["metadata"]["name"], kept_hpa(item)

    async def _hpas_listed(self, scope: str, items: list[tuple[str, str, KeptHpa] | None]) -> None:
        for namespace in sorted(self._state.replace_hpas(scope, filter(None, items))):
            await self._send_hpas(namespace)
            await self._hpas_changed(namespace)

    async def _hpa_changed(self, kind: str, item: Json) -> None:
        if is_canary(item) or self._is_stand_ins(item):
            return
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        known = self._state.namespace(namespace).hpas
        before, now = known.get(name), None
        body: Body
        if kind == "DELETED":
            known.pop(name, None)
            body = AutoscalerDeleted(name=name, uid=item["metadata"].get("uid", ""), session=self.session)
        else:
            own = is_status_of(item, FIELD_MANAGER)
            now = known[name] = kept_hpa(item, before)
            self.native.wrote(native_status_write(item, self._config.clock()))
            if hpa_reports_the_same(before, now, own_status=own):
                return
            body = self._set(hpa_body(item), now)
        await self._reports.put(AUTOSCALERS, self.name, namespace, [body])
        if (now and now.spec) != (before and before.spec):
            await self._hpas_changed(namespace)
            self._ask_soon(namespace)
        else:
            self._periods_changed(namespace)

    def _set(self, body: Json, hpa: KeptHpa) -> AutoscalerSet:
        manager, when = hpa.manager
        return AutoscalerSet(hpa=body, session=self.session, manager=manager, manager_time=when)

    async def _hpas_changed(self, namespace: str) -> None:
        state = self._state.namespace(namespace)
        self._phases.count(self.name, namespace, len(state.hpas) + len(state.central))
        await self._scales.follow(namespace, state.targets())
        self._periods_changed(namespace)
        if state.active:
            if not self._timetable.has(namespace):
                await self._send_pods(namespace)
                await self._beat([namespace])
                self._timetable.add(namespace, at_once=("check",))
        elif self._timetable.has(namespace):
            self._stop_polling(namespace)
        self._metrics.namespaces.labels(self.name).set(len(self._timetable))

    def _periods_changed(self, namespace: str) -> None:
        """Ask for metrics as often as HPAs want that may state other sync periods than before; soon, if the last
        answers are older than the period is now.
        """
        state = self._state.namespace(namespace)
        if (stated := state.stated_periods()) == state.periods:
            return
        state.periods = stated
        self._timetable.hasten((namespace,))
        asked_ms, every_ms = self._asked_ms.get(namespace), self._asked_every_ms(namespace)
        if asked_ms is not None and self._config.clock() - asked_ms >= every_ms < self._sync_period_ms(()):
            self._ask_soon(namespace)

    def settings_changed(self) -> None:
        """Ask for metrics as often as by the settings of the cluster, which may allow shorter periods than before."""
        self._timetable.hasten(self._state.active())

    def _asked_every_ms(self, namespace: str) -> int:
        return self._sync_period_ms(self._state.namespace(namespace).periods)

    def _stop_polling(self, namespace: str) -> None:
        """Nothing is asked for a namespace any more, so that nothing is known of what its answers showed."""
        self._timetable.remove(namespace)
        self._asked_ms.pop(namespace, None)
        self._poller.forget(namespace)
        if (poll := self._polls.pop(namespace, None)) is not None:
            poll.cancel()
        for part in (*METRICS_APIS, *self._config.polled):
            self._troubles.forget(part, namespace)

    async def _send_hpas(self, namespace: str) -> None:
        state = self._state.namespace(namespace)
        managers = {name: hpa.manager for name, hpa in state.hpas.items()}
        hpas, conflicting = list(map(reported_hpa, state.hpas.values())), list(state.conflicting.values())
        lists = autoscaler_lists(hpas, conflicting, self._list_id(), self.session, managers)
        await self._reports.put(AUTOSCALERS, self.name, namespace, list(lists))

    # --- other autoscalers: KEDA's ScaledObjects drive targets, too ---------------------------------------------------

    async def _follow_scaled_objects(self) -> None:
        """Report the ScaledObjects of every namespace; nothing else is asked where KEDA is not installed."""
        resource = await self._discovery.served(SCALED_OBJECT, "keda.sh", look_every_s=LOOK_FOR_KEDA_S)
        noted = partial(self._problem, CONFLICTING_PART)
        await self._mirror(resource.path, Listener(self._scaled_objects_listed, self._scaled_object_changed, noted))

    async def _scaled_objects_listed(self, scope: str, items: list[Json]) -> None:
        for namespace in self._state.replace_scaled_objects(scope, items):
            await self._send_hpas(namespace)

    async def _scaled_object_changed(self, kind: str, item: Json) -> None:
        if self._state.set_scaled_object(item, is_there=kind != "DELETED"):
            await self._send_hpas(item["metadata"]["namespace"])

    # --- pods ---------------------------------------------------------------------------------------------------------

    async def _pods_listed(self, scope: str, pods: list[tuple[str, Pod]]) -> None:
        for namespace in sorted(self._state.replace_pods(scope, pods)):
            await self._send_pods(namespace)

    async def _pod_changed(self, kind: str, item: Json) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        body: Body
        if kind == "DELETED":
            if self._state.namespace(namespace).pods.pop(name, None) is None:
                return
            body = PodDeleted(name=name, session=self.session)
        else:
            pod = pod_body(item)
            if not self._state.set_pod(namespace, pod):
                return
            body = PodSet(pod=pod, session=self.session)
        if self._reports_pods(namespace):
            await self._reports.put(PODS, self.name, namespace, [body])

    async def _send_pods(self, namespace: str) -> None:
        if self._reports_pods(namespace) and self._state.pods_known(namespace):
            pods = list(self._state.namespace(namespace).pods.values())
            await self._reports.put(PODS, self.name, namespace, list(pod_lists(pods, self._list_id(), self.session)))

    def _reports_pods(self, namespace: str) -> bool:
        return self._config.all_pods or self._state.namespace(namespace).active

    def _list_id(self) -> str:
        self._lists += 1
        return f"{self.session}-{self._lists}"

    # --- scales -------------------------------------------------------------------------------------------------------

    async def _report_scale(self, namespace: str, scale: ScaleSet) -> None:
        await self._reports.put(SCALES, self.name, namespace, [scale])
        asked = self._state.namespace(namespace).asked
        if scale.error is None and asked.get(scale.target) != scale.selector:
            # Its metrics were not asked for like this: a new HPA is not to wait for its phase.
            asked[scale.target] = scale.selector
            self._ask_soon(namespace)

    def _ask_soon(self, namespace: str) -> None:
        if namespace not in self._soon:
            self._soon.add(namespace)
            self._group.create_task(self._poll_soon(namespace))

    def ask_all_soon(self) -> None:
        """Ask for the metrics of all namespaces: some that were pushed are no longer."""
        for namespace in self._state.active():
            self._ask_soon(namespace)

    async def _poll_soon(self, namespace: str) -> None:
        await asyncio.sleep(SOON_S)  # the targets of a namespace become known together: one poll for all of them
        self._soon.discard(namespace)
        await self._begin_poll(namespace)

    # --- what recurs --------------------------------------------------------------------------------------------------

    async def _beat(self, namespaces: Iterable[str]) -> None:
        for names, beat in self._state.heartbeats(namespaces, self.session, self._version.text):
            await self._reports.beat(self.name, names, beat)

    async def resend_all(self) -> None:
        """Full lists of every namespace, now."""
        for namespace in self._state.active():
            await self._resend(namespace)

    def record_membership(self, trouble: str) -> None:
        """Record what is wrong with the cluster according to the object that names it; empty: nothing."""
        self._problem(MEMBERSHIP_PART, "", ReadProblem("failing", trouble) if trouble else None)

    async def shutdown_report(self) -> None:
        """Report that this session watches nothing any more, so that another one is followed at once."""
        await self._reports.beat(self.name, self._state.active(), Heartbeat(session=self.session))
        await self._reports.put(SCALES, "", "", [self._cluster_report(stopped=True)])

    async def _resend(self, namespace: str) -> None:
        """Publish everything again: to repair losses, and as the beginning of a session that took over."""
        await self._send_hpas(namespace)
        await self._send_pods(namespace)
        await self._scales.resend(namespace)

    async def _begin_poll(self, namespace: str) -> None:
        running = self._polls.get(namespace)
        if running is not None and not running.done():
            self._metrics.polls_late.labels(self.name).inc()
            return
        self._polls[namespace] = self._group.create_task(self._poll(namespace))
        self._asked_ms[namespace] = self._config.clock()

    async def _poll(self, namespace: str) -> None:
        state = self._state.namespace(namespace)
        # Also without questions: what is asked no longer has no trouble any more.
        answers = await self._ask(namespace, queries(state.all_hpas(), state.selectors(), self._pushed()))
        if not answers:
            return
        bodies: list[Body] = [Answers(items=items, session=self.session) for items in answer_records(answers)]
        await self._reports.put(SAMPLES, self.name, namespace, bodies)

    async def _ask(self, namespace: str, asked: Sequence[Query]) -> list[MetricAnswer]:
        """Ask the metrics APIs, and the sources that are asked in place of some of them."""
        if not self._sources:
            return await self._poller.ask(namespace, asked)
        of_apis, shares = divide(asked, self._sources)
        asking = [source.ask(namespace, share) for source, share in shares]
        of_these, *others = await asyncio.gather(self._poller.ask(namespace, of_apis), *asking)
        of_sources = [within_limits(answer) for answers in others for answer in answers]
        self._metrics.answered(self.name, of_sources)
        return of_these + of_sources

    def _open(self, name: str, source: OpenSource) -> PolledSource | None:
        return source(
            SourceContext(
                cluster=self.name,
                pods=self._state.known_pods,
                resource_of=self._discovery.of_metric,
                period_ms=self._asked_every_ms,
                clock=self._config.clock,
                note=partial(self._troubles.record, name),
            )
        )

    def _report_every_ms(self) -> int:
        return report_every_ms(self._sync_period_ms(()), self._config.heartbeat_ms)

    async def _report(self) -> None:
        """Heartbeats, and reports on the whole cluster: with them, and when a trouble begins or ends."""
        clock, loop = self._config.clock, asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            if loop.time() >= due_s:
                await self._beat(self._state.active())
                due_s = loop.time() + self._phases.until_report_ms(self._report_every_ms(), clock()) / 1000
            await self._reports.put(SCALES, "", "", [self._cluster_report()])
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._report_due.wait()
                    await asyncio.sleep(SOON_S)  # what breaks together is one report
            self._report_due.clear()

    def _cluster_report(self, *, stopped: bool = False) -> ClusterReport:
        return ClusterReport(
            cluster=self.name,
            session=self.session,
            instance=self._config.instance,
            started=self._started_ms,
            troubles=self._troubles.report(),
            stopped=stopped,
        )

    def canary(self, note: NoteCanary | None = None) -> Canary:
        """A proof of whether a native controller runs. `note`: takes what prevents it; None: it becomes a trouble."""
        config = self._config
        noted = note or partial(self._problem, CANARY_PART, "")
        return Canary(self._client, config.canary_namespace, config.canary_wait_s, noted)

    def _problem(self, watch: str, namespace: str, problem: ReadProblem | None) -> None:
        """A watch cannot be held in a scope (empty: the cluster), and why; None: it can again."""
        self._troubles.record(watch, namespace, problem)
        self._note(f"{self.name}/{namespace or '*'} {watch}", None if problem is None else problem.text)


def _pod_of(item: Json) -> tuple[str, Pod]:
    return item["metadata"]["namespace"], pod_body(item)

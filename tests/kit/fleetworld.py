"""A fleet behind HTTP servers that answer as API servers do, at low cost: `python -m tests.kit.fleetworld`.

One process is all clusters; the first element of the path names the cluster. Answers are put together from texts, not
from objects. Pods start, become ready and go; workloads follow what is written to `/scale`; load follows a recorded
trace. It also reads the decisions topic, since it alone knows when it gave which sample.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote

import orjson
from aiokafka import TopicPartition

from runtime.kafkaclients import FETCH_MIN_BYTES, UNHURRIED_MS, reader, running_producer
from runtime.records import Publisher
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.observed import Point, Samples
from tests.kit import fleetmetrics
from tests.kit.fleetstats import Stats, quantiles

TRACES = Path(__file__).parents[1] / "data" / "traces"
HPAS_PER_NAMESPACE = 10
REQUEST_MILLI, TARGET_PERCENT = 250, 60
LEAST_MAX_REPLICAS = 20
READY_AFTER_MS = 10_000
CHURN_PER_HOUR = 0.02
ROLLING_SHARE, ROLLING_S = 0.05, 300
"""So large a share of the workloads is rolled out anew, one pod after the other, in each such time."""
STEP_FACTOR = 2.5
PUSH_TURNS = 10


def rfc3339(time_ms: int) -> str:
    """Write a time as Kubernetes does."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ms / 1000))


def rfc3339_ms(time_ms: int) -> str:
    """Write the time of a sample with its milliseconds, so that a decision says which one it used."""
    return f"{rfc3339(time_ms)[:-1]}.{time_ms % 1000:03d}Z"


def load_trace() -> list[float]:
    """Give a recorded load, one value per second, with a mean of 1."""
    values = [float(line) for line in (TRACES / "autothrottle-diurnal.txt").read_text().split()]
    mean = sum(values) / len(values)
    return [value / mean for value in values]


def managed_fields(status_manager: str = "", when: str = "") -> str:
    """Metadata that says who wrote what of an HPA, as long as an API server has it."""
    behavior = '"f:behavior":{"f:scaleDown":{"f:policies":{},"f:selectPolicy":{}},"f:scaleUp":{"f:policies":{}}}'
    entries = [
        '{"manager":"kubectl-client-side-apply","operation":"Update","apiVersion":"autoscaling/v2","time":'
        '"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{' + behavior + ',"f:maxReplicas":{},'
        '"f:metrics":{},"f:minReplicas":{},"f:scaleTargetRef":{}}}}'
    ]
    if status_manager:
        conditions = ",".join(
            f'"k:{{\\"type\\":\\"{kind}\\"}}":{{".":{{}},"f:lastTransitionTime":{{}},"f:message":{{}},"f:reason":{{}},'
            '"f:status":{},"f:type":{}}'
            for kind in ("AbleToScale", "ScalingActive", "ScalingLimited")
        )
        entries.append(
            f'{{"manager":"{status_manager}","operation":"Update","apiVersion":"autoscaling/v2","time":"{when}",'
            '"fieldsType":"FieldsV1","fieldsV1":{"f:status":{"f:conditions":{".":{},' + conditions + "},"
            '"f:currentMetrics":{},"f:currentReplicas":{},"f:desiredReplicas":{},"f:lastScaleTime":{}}},'
            '"subresource":"status"}'
        )
    return f',"managedFields":[{",".join(entries)}]'


class Workload:
    """A Deployment with its pods and its HPA."""

    __slots__ = (
        "born",
        "cluster",
        "demand",
        "hpa_managers",
        "hpa_status",
        "index",
        "metric",
        "most",
        "name",
        "namespace",
        "phase",
        "pods",
        "replicas",
        "version",
    )

    def __init__(
        self, index: int, cluster: str, namespace: str, replicas: int, chance: random.Random, metric: str
    ) -> None:
        self.index, self.cluster, self.namespace, self.name = index, cluster, namespace, f"app-{index:06d}"
        self.metric = metric
        self.replicas, self.born, self.version, self.hpa_status = replicas, 0, 1, b"{}"
        self.hpa_managers = managed_fields()
        self.most = max(LEAST_MAX_REPLICAS, 4 * replicas)
        self.pods: dict[str, int] = {}
        """Name -> when it started, Unix ms."""
        self.demand = replicas * REQUEST_MILLI * TARGET_PERCENT / 100 * chance.uniform(0.9, 1.1)
        self.phase = chance.randrange(3_600)

    @property
    def uid(self) -> str:
        """The uid of the HPA."""
        return f"00000000-0000-4000-8000-{self.index:012d}"

    def new_pod(self, now_ms: int) -> str:
        """Add a pod; gives its name."""
        self.born += 1
        name = f"{self.name}-6f7d9c{self.index % 977:04x}-{self.born:05x}"
        self.pods[name] = now_ms
        return name

    def deployment(self) -> bytes:
        """The Deployment's JSON."""
        return (
            f'{{"metadata":{{"name":"{self.name}","namespace":"{self.namespace}","uid":"d-{self.name}",'
            f'"resourceVersion":"{self.version}","generation":1,"labels":{{"app":"{self.name}"}}}},'
            f'"spec":{{"replicas":{self.replicas},"selector":{{"matchLabels":{{"app":"{self.name}"}}}}}},'
            f'"status":{{"observedGeneration":1,"replicas":{len(self.pods)},"readyReplicas":{len(self.pods)}}}}}'
        ).encode()

    def scale(self) -> bytes:
        """The scale's JSON."""
        return (
            f'{{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{{"name":"{self.name}","namespace":'
            f'"{self.namespace}","uid":"d-{self.name}","resourceVersion":"{self.version}"}},"spec":{{"replicas":'
            f'{self.replicas}}},"status":{{"replicas":{len(self.pods)},"selector":"app={self.name}"}}}}'
        ).encode()

    def hpa(self) -> bytes:
        """The HPA's JSON."""
        return (
            f'{{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{{"name":"{self.name}",'
            f'"namespace":"{self.namespace}","uid":"{self.uid}","resourceVersion":'
            f'"{self.version}","creationTimestamp":"2026-01-01T00:00:00Z"{self.hpa_managers}}},"spec":{{"scaleTargetRef":{{"kind":'
            f'"Deployment","name":"{self.name}","apiVersion":"apps/v1"}},"minReplicas":2,"maxReplicas":{self.most},"metrics":'
            f"[{self.metric}],"
            '"behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"selectPolicy":"Max","policies":[{"type":"Pods",'
            '"value":4,"periodSeconds":15},{"type":"Percent","value":100,"periodSeconds":15}]},"scaleDown":'
            '{"selectPolicy":"Max","policies":[{"type":"Percent","value":100,"periodSeconds":15}]}}},"status":'
        ).encode() + (self.hpa_status + b"}")

    def pod(self, name: str, now_ms: int, *, deleting: bool = False) -> bytes:
        """A pod's JSON, as long as that of a small real one."""
        started_ms = self.pods.get(name, now_ms)
        start, ready = rfc3339(started_ms), now_ms - started_ms >= READY_AFTER_MS
        since, word = rfc3339(started_ms + READY_AFTER_MS) if ready else start, "True" if ready else "False"
        gone = f'"deletionTimestamp":"{rfc3339(now_ms)}",' if deleting else ""
        return (
            f'{{"metadata":{{"name":"{name}","generateName":"{self.name}-6f7d9c-","namespace":"{self.namespace}",'
            f'"uid":"{name}","resourceVersion":"{self.version}",{gone}"creationTimestamp":"{start}","labels":{{"app":'
            f'"{self.name}","pod-template-hash":"6f7d9c"}},"annotations":{{"cni.projectcalico.org/podIP":"10.0.0.1/32"}},'
            f'"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"{self.name}-6f7d9c","uid":'
            f'"r-{self.name}","controller":true,"blockOwnerDeletion":true}}],"managedFields":[{{"manager":'
            f'"kube-controller-manager","operation":"Update","apiVersion":"v1","time":"{start}","fieldsType":"FieldsV1",'
            '"fieldsV1":{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}}},'
            '"f:spec":{"f:containers":{"k:{\\"name\\":\\"main\\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}},'
            '"f:dnsPolicy":{},"f:restartPolicy":{}}}}]},"spec":{"volumes":[{"name":"kube-api-access","projected":'
            '{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}}],"defaultMode":420}}],'
            '"containers":[{"name":"main","image":"registry.example.com/shop/app:v1","resources":{"limits":{"memory":'
            f'"512Mi"}},"requests":{{"cpu":"{REQUEST_MILLI}m","memory":"256Mi"}}}},"volumeMounts":[{{"name":'
            '"kube-api-access","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],'
            '"imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst","nodeName":"node-1",'
            '"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute",'
            '"tolerationSeconds":300}]},"status":{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True",'
            f'"lastTransitionTime":"{start}"}},{{"type":"Initialized","status":"True","lastTransitionTime":"{start}"}},'
            f'{{"type":"ContainersReady","status":"{word}","lastTransitionTime":"{since}"}},{{"type":"Ready","status":'
            f'"{word}","lastTransitionTime":"{since}"}}],"hostIP":"10.1.0.1","podIP":"10.0.0.1","startTime":"{start}",'
            '"containerStatuses":[{"name":"main","ready":true,"restartCount":0,"image":"registry.example.com/shop/app:v1"'
            f',"started":true,"state":{{"running":{{"startedAt":"{start}"}}}}}}],"qosClass":"Burstable"}}}}'
        ).encode()


class World:
    """All clusters, and what was asked of them."""

    def __init__(
        self, hpas: int, clusters: int, pods: int, source: fleetmetrics.MetricsFrom = "resource", seed: int = 1
    ) -> None:
        metric = fleetmetrics.hpa_metric(source, REQUEST_MILLI, TARGET_PERCENT)
        self.random = random.Random(seed)
        self.trace = load_trace()
        self.begun_ms = int(time.time() * 1000)
        self.clusters = [f"c{number}" for number in range(clusters)]
        self.by_cluster: dict[str, list[Workload]] = {name: [] for name in self.clusters}
        self.by_namespace: dict[tuple[str, str], list[Workload]] = {}
        self.by_name: dict[tuple[str, str], Workload] = {}
        self.watches: dict[tuple[str, str], list[asyncio.Transport]] = {}
        self.version = 1
        self.stats = Stats()
        self.stepped: dict[int, int] = {}
        """Workload -> its replicas when the step began."""
        self.step_ms = 0
        self.step_writes: dict[int, int] = {}
        """Workload -> time of its last write since the step."""
        self.first_writes: dict[int, int] = {}
        """Workload -> time of its first write since the step."""
        self.pending_ready: list[tuple[int, Workload, str]] = []
        for index in range(hpas):
            place = index // HPAS_PER_NAMESPACE
            cluster, namespace = self.clusters[place % clusters], f"ns-{place // clusters:05d}"
            made = Workload(index, cluster, namespace, pods, self.random, metric)
            for _ in range(pods):
                made.new_pod(self.begun_ms - 3_600_000)
            self.by_cluster[cluster].append(made)
            self.by_namespace.setdefault((cluster, namespace), []).append(made)
            self.by_name[cluster, made.name] = made
        self.all = list(self.by_name.values())

    # --- what happens -------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Let pods come and go, second by second, for ever."""
        rolling: list[tuple[int, Workload]] = []
        while True:
            await asyncio.sleep(1.0)
            now_ms = int(time.time() * 1000)
            self._become_ready(now_ms)
            pods = sum(len(each.pods) for each in self.random.sample(self.all, min(len(self.all), 200)))
            per_s = pods / max(min(len(self.all), 200), 1) * len(self.all) * CHURN_PER_HOUR / 3600
            for _ in range(int(per_s) + (self.random.random() < per_s % 1)):
                self._replace(self.random.choice(self.all), now_ms)
            share = len(self.all) * ROLLING_SHARE / ROLLING_S
            for _ in range(int(share) + (self.random.random() < share % 1)):
                one = self.random.choice(self.all)
                rolling += [(now_ms + number * 2_000, one) for number in range(len(one.pods))]
            due, rolling = [each for each in rolling if each[0] <= now_ms], [r for r in rolling if r[0] > now_ms]
            for _, one in due:
                self._replace(one, now_ms)

    def _become_ready(self, now_ms: int) -> None:
        due = [each for each in self.pending_ready if each[0] <= now_ms]
        self.pending_ready = [each for each in self.pending_ready if each[0] > now_ms]
        for _, one, name in due:
            if name in one.pods:
                self._report(one, "pods", b"MODIFIED", one.pod(name, now_ms))

    def _replace(self, one: Workload, now_ms: int) -> None:
        if one.pods:
            self._remove_pod(one, now_ms)
            self._add_pod(one, now_ms)

    def _add_pod(self, one: Workload, now_ms: int) -> None:
        name = one.new_pod(now_ms)
        self._report(one, "pods", b"ADDED", one.pod(name, now_ms))
        self.pending_ready.append((now_ms + READY_AFTER_MS, one, name))

    def _remove_pod(self, one: Workload, now_ms: int) -> None:
        name = next(iter(one.pods))
        gone = one.pod(name, now_ms, deleting=True)
        del one.pods[name]
        self._report(one, "pods", b"DELETED", gone)

    def _report(self, one: Workload, kind: str, event: bytes, body: bytes) -> None:
        self.version += 1
        one.version = self.version
        line = b'{"type":"%s","object":%s}\n' % (event, body)
        chunk = b"%x\r\n%s\r\n" % (len(line), line)
        for transport in self.watches.get((one.cluster, kind), ()):
            if not transport.is_closing():
                transport.write(chunk)
                self.stats.bytes_out["watch"] += len(chunk)

    def put_scale(self, one: Workload, replicas: int) -> None:
        """A write of `/scale`: pods follow at once, and are ready later."""
        now_ms = int(time.time() * 1000)
        self.stats.write(one.uid, now_ms, replicas)
        if one.index in self.stepped:
            self.step_writes[one.index] = now_ms
            self.first_writes.setdefault(one.index, now_ms)
        one.replicas = replicas
        while len(one.pods) < replicas:
            self._add_pod(one, now_ms)
        while len(one.pods) > replicas:
            self._remove_pod(one, now_ms)
        self.version += 1
        one.version = self.version
        self._report(one, "deployments", b"MODIFIED", one.deployment())

    def step(self, count: int) -> None:
        """Raise the load of so many workloads at once."""
        chosen = self.random.sample(self.all, min(count, len(self.all)))
        self.step_ms, self.step_writes, self.first_writes = int(time.time() * 1000), {}, {}
        self.stepped = {one.index: one.replicas for one in chosen}
        for one in chosen:
            one.demand *= STEP_FACTOR

    # --- answers ------------------------------------------------------------------------------------------------------

    def spread(self, one: Workload, now_ms: int) -> tuple[list[str], float]:
        """The ready pods of a workload, and the load of each, in milli cores."""
        ready = [name for name, started in one.pods.items() if now_ms - started >= READY_AFTER_MS]
        load = self.trace[((now_ms - self.begun_ms) // 1000 + one.phase) % len(self.trace)]
        return ready, one.demand * load / max(1, len(ready))

    def samples(self, cluster: str, namespace: str) -> Samples:
        """The same load as pushed samples."""
        now_ms = int(time.time() * 1000)
        return Samples(
            points=[
                Point(type="Resource", metric="cpu", pod=name, milli=round(milli), time=now_ms)
                for one in self.by_namespace[cluster, namespace]
                for ready, milli in (self.spread(one, now_ms),)
                for name in ready
            ]
        )

    def usage(self, cluster: str, namespace: str) -> bytes:
        """PodMetrics of a namespace: the load of each workload, spread over its ready pods. Windows are as those of
        metrics-server: of each pod another one, each time.
        """
        now_ms = int(time.time() * 1000)
        stamp, items = rfc3339_ms(now_ms), []
        for one in self.by_namespace.get((cluster, namespace), ()):
            ready, milli = self.spread(one, now_ms)
            micro = round(milli * 1_000_000)
            labels = f'{{"app":"{one.name}","pod-template-hash":"6f7d9c"}}'
            head = f'"namespace":"{namespace}","labels":{labels}}},"timestamp":"{stamp}"'
            tail = f's","containers":[{{"name":"main","usage":{{"cpu":"{micro}n","memory":"204800Ki"}}}}]}}'
            windows = [14_800 + (now_ms + 7_919 * number) % 400 for number in range(len(ready))]
            items += [
                f'{{"metadata":{{"name":"{name}",{head},"window":"{window_ms / 1000}{tail}'
                for name, window_ms in zip(ready, windows, strict=True)
            ]
        return (
            '{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":['
            + ",".join(items)
            + "]}"
        ).encode()

    def custom(self, cluster: str, namespace: str, selector: str) -> bytes:
        """The Pods metric of one workload, from the custom metrics API."""
        now_ms = int(time.time() * 1000)
        ready, milli = self.spread(self.by_name[cluster, selector.removeprefix("app=")], now_ms)
        return fleetmetrics.custom_values(namespace, dict.fromkeys(ready, milli), rfc3339_ms(now_ms))

    def queried(self, cluster: str, body: bytes) -> bytes:
        """The same metric of all pods of a namespace, from a Prometheus."""
        now_ms = int(time.time() * 1000)
        loads: dict[str, float] = {}
        for one in self.by_namespace[cluster, fleetmetrics.queried_namespace(body)]:
            ready, milli = self.spread(one, now_ms)
            loads |= dict.fromkeys(ready, milli)
        return fleetmetrics.vector(loads, now_ms)

    def page(self, cluster: str, kind: str, query: dict[str, list[str]]) -> bytes:
        """A page of a list; the token is the number of the next item."""
        now_ms = int(time.time() * 1000)
        limit, begin = int(query.get("limit", ["500"])[0]), int(query.get("continue", ["0"])[0])
        known = self.by_cluster.get(cluster, [])
        found: list[bytes] = []
        at = begin
        for at in range(begin, len(known)):
            one = known[at]
            if kind == "pods":
                found += [one.pod(name, now_ms) for name in one.pods]
            else:
                found.append(one.deployment() if kind == "deployments" else one.hpa())
            if len(found) >= limit:
                break
        more = f',"continue":"{at + 1}"' if at + 1 < len(known) else ""
        return b'{"metadata":{"resourceVersion":"%d"%s},"items":[%s]}' % (self.version, more.encode(), b",".join(found))


class Server(asyncio.Protocol):
    """One connection: HTTP/1.1, as much of it as clients of an API server use."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].decode("latin-1").split("\r\n")
            lengths = [line.partition(":")[2] for line in head if line.lower().startswith("content-length:")]
            size = int(lengths[0]) if lengths else 0
            if len(self.data) < end + 4 + size:
                return
            body, self.data = self.data[end + 4 : end + 4 + size], self.data[end + 4 + size :]
            method, target, _ = head[0].split(" ", 2)
            self._answer(method, target, body)

    def _answer(self, method: str, target: str, body: bytes) -> None:
        path, _, asked = target.partition("?")
        parts, query = [unquote(part) for part in path.strip("/").split("/")], parse_qs(asked)
        status, found, kind = self._found(method, parts, query, body)
        self.world.stats.requests[f"{method} {kind}"] += 1
        if body:
            self.world.stats.bytes_in[kind] += len(body)
        if status:
            self.world.stats.bytes_out[kind] += len(found)
            head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            self.transport.write(head % (status, len(found)) + found)

    def _found(self, method: str, parts: list[str], query: dict[str, list[str]], body: bytes) -> tuple[int, bytes, str]:
        """Status, body and kind of an answer; status 0: a watch has begun."""
        world, cluster = self.world, parts[0]
        if cluster == "_bench":
            return self._control(parts[1:])
        kind = parts[-1]
        if (measured := self._measured(parts, query, body)) is not None:
            return 200, measured, "metrics"
        if kind in ("pods", "deployments", "horizontalpodautoscalers") and "namespaces" not in parts:
            if "watch" in query:
                self._watch(cluster, kind)
                return 0, b"", f"watch {kind}"
            return 200, world.page(cluster, kind, query), f"list {kind}"
        if kind == "scale":
            return 200, self._scale(world.by_name[cluster, parts[-2]], body if method == "PUT" else None), "scale"
        if "horizontalpodautoscalers" in parts:
            one = world.by_name[cluster, parts[parts.index("horizontalpodautoscalers") + 1]]
            if kind == "status" and method == "PUT":
                status = orjson.loads(body).get("status") or {}
                shown = {
                    "currentMetrics": status.pop("currentMetrics", None),
                    "conditions": status.pop("conditions", None),
                }
                one.hpa_status = orjson.dumps(status | shown)  # in the order of an API server
                one.hpa_managers = managed_fields(query["fieldManager"][0], rfc3339(int(time.time() * 1000)))
                world._report(one, "horizontalpodautoscalers", b"MODIFIED", one.hpa())
            return 200, one.hpa(), "hpa"
        if "events" in parts:
            return 201 if method == "POST" else 200, body or b"{}", "events"
        if kind == "version":
            return 200, b'{"major":"1","minor":"37"}', "other"
        if kind == "namespaces":
            return 200, self._namespaces(cluster), "other"
        return 404, _missing(), "other"

    def _scale(self, one: Workload, put: bytes | None) -> bytes:
        if put is not None:
            self.world.put_scale(one, int(orjson.loads(put)["spec"]["replicas"]))
        return one.scale()

    def _namespaces(self, cluster: str) -> bytes:
        names = sorted({namespace for where, namespace in self.world.by_namespace if where == cluster})
        items = ",".join(f'{{"metadata":{{"name":"{name}"}}}}' for name in names)
        return f'{{"metadata":{{"resourceVersion":"1"}},"items":[{items}]}}'.encode()

    def _measured(self, parts: list[str], query: dict[str, list[str]], body: bytes) -> bytes | None:
        """The answer of a metrics API or of the Prometheus; None: another API is asked."""
        world, cluster, kind = self.world, parts[0], parts[-1]
        if "metrics.k8s.io" in parts and kind == "pods":
            return world.usage(cluster, parts[-2])
        if parts[1:2] == ["prom"]:
            return world.queried(cluster, body) if kind == "query" else _SERIES
        if kind == fleetmetrics.METRIC:
            return world.custom(cluster, parts[-4], query["labelSelector"][0])
        return fleetmetrics.CUSTOM_GROUP if kind == "custom.metrics.k8s.io" else None

    def _control(self, parts: list[str]) -> tuple[int, bytes, str]:
        world = self.world
        match parts:
            case ["known"]:
                return 200, orjson.dumps({"known": len(world.stats.known)}), "bench"
            case ["stats"]:
                return 200, orjson.dumps(world.stats.reported()), "bench"
            case ["reset"]:
                world.stats.reset()
            case ["step", count]:
                world.step(int(count))
            case ["stepped"]:
                first = quantiles([when - world.step_ms for when in world.first_writes.values()])
                last = quantiles([when - world.step_ms for when in world.step_writes.values()])
                found = {"stepped": len(world.stepped), "first_write_ms": first, "last_write_ms": last}
                return 200, orjson.dumps(found), "bench"
        return 200, b"{}", "bench"

    def _watch(self, cluster: str, kind: str) -> None:
        watches = self.world.watches.setdefault((cluster, kind), [])
        watches[:] = [each for each in watches if not each.is_closing()]
        watches.append(self.transport)
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")


_SERIES = orjson.dumps({"status": "success", "data": [fleetmetrics.METRIC]})


def _missing() -> bytes:
    return (
        b'{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,'
        b'"message":"the server could not find the requested resource"}'
    )


async def read_decisions(world: World, brokers: str, partitions: int) -> None:
    """Count decisions as they come, until cancelled."""
    numbers = [TopicPartition(topics.DECISIONS, number) for number in range(partitions)]
    settings = KafkaSettings(bootstrap_servers=brokers)
    slow = {"fetch_max_wait_ms": UNHURRIED_MS, "fetch_min_bytes": FETCH_MIN_BYTES}
    async with reader(settings, numbers, **slow) as consumer:
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    world.stats.decision(dict(record.headers), record.timestamp, record.value)


async def push_samples(world: World, brokers: str, every_s: float) -> None:
    """Push the load of every pod so often, until cancelled: a tenth of the namespaces at a time."""
    places = list(world.by_namespace)
    async with running_producer(KafkaSettings(bootstrap_servers=brokers), compression_type="lz4") as producer:
        publisher = Publisher(producer, waits_for_room=True)
        turn, next_s = 0, time.monotonic()
        while True:
            await asyncio.gather(
                *(
                    publisher.send(topics.SAMPLES, *place, [world.samples(*place)], int(time.time() * 1000))
                    for place in places[turn % PUSH_TURNS :: PUSH_TURNS]
                )
            )
            turn, next_s = turn + 1, max(next_s + every_s / PUSH_TURNS, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())


def options(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.kit.fleetworld", description=__doc__)
    parser.add_argument("--hpas", type=int, required=True)
    parser.add_argument("--clusters", type=int, required=True)
    parser.add_argument("--pods", type=int, default=5)
    parser.add_argument("--push-seconds", type=float, default=0.0, help="also push each pod's load so often")
    parser.add_argument("--metrics-from", default="resource")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    return parser.parse_args(arguments)


async def main(given: argparse.Namespace) -> None:
    """Serve until ended; the port is the one line on stdout."""
    world = World(given.hpas, given.clusters, given.pods, given.metrics_from)
    server = await asyncio.get_running_loop().create_server(lambda: Server(world), "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    async with asyncio.TaskGroup() as group:
        group.create_task(world.live())
        group.create_task(read_decisions(world, given.brokers, given.partitions))
        if given.push_seconds:
            group.create_task(push_samples(world, given.brokers, given.push_seconds))


def kubeconfig(port: int, clusters: int) -> Iterator[str]:
    """Lines of a kubeconfig with a context per cluster."""
    yield "apiVersion: v1\nkind: Config\ncurrent-context: c0\nclusters:"
    for number in range(clusters):
        yield f"- name: c{number}\n  cluster:\n    server: http://127.0.0.1:{port}/c{number}"
    yield "users:\n- name: bench\n  user: {}\ncontexts:"
    for number in range(clusters):
        yield f"- name: c{number}\n  context:\n    cluster: c{number}\n    user: bench"


if __name__ == "__main__":
    asyncio.run(main(options(sys.argv[1:])))

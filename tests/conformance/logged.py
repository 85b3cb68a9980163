"""Scenarios of the controller as a log: what the fold decides of them must be what upstream did.

Every tick is one record at its time. What a log cannot say ends the telling (`UntoldError`): two metrics that ask one
question and are answered differently, an answer without a single sample, a status write that fails.
"""

from collections.abc import Iterator
from typing import Any

import orjson

from schemas.answers import Answers, MetricAnswer, query_of
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord, Outcome, Source
from schemas.keys import HpaId
from schemas.kubernetes.shape import parse_group_version
from schemas.observed import AutoscalerDeleted, AutoscalerSet, PodList, ScaleSet, Target
from schemas.settings import ClusterSettings, Restart, SettingsSet
from streams.partition import Partition
from streams.state.rowcodec import merge_rows
from streams.state.rows import HpaRow
from tests.conformance.caseinputs import EPOCH_MS
from tests.conformance.reported import UntoldError, answer_of, hpa_of, pod_of
from tests.conformance.scenarios import EMPTY_STATUS, MAPPED_KINDS, MAX_ATTEMPTS

Json = dict[str, Any]

CLUSTER, KEY = "eu", "eu/ns"
GAP_MS = 200_000
"""Records are never further apart: a larger step of log time acts as a restart."""
OTHER_METRIC = {"metric": {"name": "unanswered"}, "target": {"type": "Value", "value": "1"}}


class LoggedScenario:
    """A scenario and the partition that its records are folded into.

    `asked`: the HPAs that the next record may evaluate; it stands in for the schedule, whose answers to wait for the
    scenarios do not have. `restored`: the partition is written and read back after each record.
    """

    def __init__(self, case: Json, mode: str, asked: set[str], *, restored: bool) -> None:
        self.case, self.mode, self.asked, self.restored = case, mode, asked, restored
        self.name = case["hpa"]["metadata"]["name"]
        self.spec, self.generation = case["hpa"]["spec"], case["hpa"]["metadata"].get("generation", 0)
        self.status: Json = case["hpa"].get("status") or EMPTY_STATUS
        self.exists, self.births = False, 0
        self.others: dict[str, str] = {}
        self.shown: Json | None = None
        """Status of the last decision, None where it was a short one, which has none."""
        self.partition, self.rows = Partition.empty(0), dict[bytes, bytes]()
        self.now_ms = EPOCH_MS + case["ticks"][0]["in"]["t"]
        self._add([self._settings()])
        self._add([self._born(case["hpa"].get("status"))])

    # --- the log ----------------------------------------------------------------------------------------------------

    def _add(self, bodies: list[Body], *asked: str) -> list[Json]:
        """Append one record now and give what it decides of the scenario's HPA."""
        self.asked.clear()
        self.asked.update(asked)
        known = self.partition.state.hpas
        self.partition.state.ready_or_due.update(
            name for each in asked if (name := HpaId(CLUSTER, "ns", each)) in known
        )
        offset = self.partition.applied_offset + 1
        entries = [
            Entry(
                key=WHOLE_PARTITION_KEY if isinstance(body, SettingsSet | Restart) else KEY,
                body=body,
                source=Source(topic="t", partition=0, offset=offset, index=index, time=self.now_ms),
            )
            for index, body in enumerate(bodies)
        ]
        made = self.partition.apply(offset, self.now_ms, encode(LogRecord(v=1, entries=entries)))
        if self.restored:
            merge_rows(self.rows, self.partition.checkpoint())
            self.partition = Partition.restore(0, self.rows)
        decisions = [orjson.loads(each.value) for each in made]
        return [each for each in decisions if each["name"] == self.name]

    def _wait_until(self, time_ms: int) -> None:
        while time_ms - self.now_ms > GAP_MS:
            self.now_ms += GAP_MS
            self._add([])
        self.now_ms = time_ms

    # --- one tick ---------------------------------------------------------------------------------------------------

    def tick(self, given: Json) -> Json:
        """Tell what a tick brings and give what was decided, in the file's notation but for status and gauge."""
        self.shown = None
        if "statusUpdateError" in given:
            raise UntoldError("a status write that fails")
        self._wait_until(EPOCH_MS + given["t"])
        self._add([*self._restart(given), *self._pods(given), *self._others(given)], *self.others)
        decided = self._add([*self._object(given), *self._scale(given), *self._answers(given)], self.name)
        if not self.exists:
            return {"deleted": True, "action": "", "errorLabel": ""} if self._hpa().row.gone else {"kept": True}
        (decision,) = decided
        return self._out(decision, given)

    def take_native_status(self, status: Json) -> None:
        """Tell what the native controller made of the tick."""
        self.status = status
        if self.exists:
            self._add([self._manifest(status)])

    def own_status(self) -> Json:
        """Give the status that the decisions so far show."""
        row: HpaRow = self._hpa().row
        return row.native_status if (own := row.own_status) is None else own

    def memory(self) -> Json:
        """Give the memory in the file's notation."""
        history = self._hpa().row.history
        return {
            "recommendations": [[count, time - EPOCH_MS] for count, time in history.recommendations],
            "scaleUpEvents": [[size, time - EPOCH_MS, int(old)] for size, time, old in history.scale_up_events],
            "scaleDownEvents": [[size, time - EPOCH_MS, int(old)] for size, time, old in history.scale_down_events],
        }

    def _hpa(self) -> Any:
        return self.partition.state.hpas[HpaId(CLUSTER, "ns", self.name)]

    def _out(self, decision: Json, given: Json) -> Json:
        out: Json = {}
        if decision.get("wants") is not None:
            decision = self._write(decision, given, out)
        self.shown = decision.get("status")
        labels = decision.get("labels", {})
        out["action"], out["errorLabel"] = labels.get("action", "none"), labels.get("error", "none")
        shown = {
            "metricResults": labels.get("metrics"),
            "events": decision.get("events"),
            "error": decision.get("error"),
        }
        return out | {key: value for key, value in shown.items() if value}

    def _write(self, decision: Json, given: Json, out: Json) -> Json:
        """Answer a wanted write as the scenario does, after a writer's retries, and give its completion."""
        replies, error, attempts = given.get("scaleUpdate") or [], None, 0
        for attempts in range(1, MAX_ATTEMPTS + 1):
            reply = replies[attempts - 1] if attempts <= len(replies) else {}
            error = reply.get("conflict", reply.get("error"))
            if "conflict" not in reply:
                break
        wanted = decision["wants"]
        out["scaleAttempts"] = [wanted] * attempts
        if error is None:
            out["scaledTo"] = wanted
        outcome = Outcome(
            decision=decision["id"],
            name=self.name,
            uid=decision["uid"],
            result="applied" if error is None else "failed",
            error=error or "",
        )
        (completion,) = self._add([outcome])
        return completion

    # --- what a tick brings -----------------------------------------------------------------------------------------

    def _settings(self) -> Body:
        controller = self.case["controller"]
        settings = ClusterSettings(
            default_mode="enforce" if self.mode == "enforce" else "shadow",
            native_controller="absent" if self.mode == "enforce" else "present",
            sync_period_ms=100,
            hold_on_overflow=False,
            tolerance=repr(float(controller["tolerance"])),
            downscale_stabilization_ms=controller["downscaleStabilizationMs"],
            cpu_initialization_period_ms=controller["cpuInitializationPeriodMs"],
            initial_readiness_delay_ms=controller["initialReadinessDelayMs"],
        )
        return SettingsSet(cluster="*", settings=settings)

    def _born(self, status: Json | None) -> Body:
        self.exists, self.births = True, self.births + 1
        return self._manifest(status)

    def _manifest(self, status: Json | None) -> Body:
        metadata = {**self.case["hpa"]["metadata"], "uid": f"uid-{self.births}", "generation": self.generation}
        return AutoscalerSet(hpa=hpa_of(metadata, self.spec) | ({"status": status} if status else {}))

    def _restart(self, given: Json) -> Iterator[Body]:
        if given.get("restart"):
            yield Restart(reason="the scenario says so")

    def _object(self, given: Json) -> Iterator[Body]:
        if self.exists and (given.get("hpaDeleted") or given.get("hpaRecreated")):
            self.exists = False
            yield AutoscalerDeleted(name=self.name)
        if given.get("hpaRecreated"):
            self.generation = 1
            self.status = EMPTY_STATUS
            yield self._born(None)
        if "hpaEdit" in given:
            self.spec = given["hpaEdit"]
            if self.exists:
                self.generation += 1
                yield self._manifest(self.status)

    def _pods(self, given: Json) -> Iterator[Body]:
        if "pods" in given:
            pods = [pod_of(pod, self.case) for pod in given["pods"]]
            yield PodList(list_id=str(self.now_ms), pods=pods)

    def _others(self, given: Json) -> Iterator[Body]:
        """Other HPAs: evaluated before, each with a target of its own, and failing for lack of an answer."""
        listed = {other["name"]: other["selector"] for other in given.get("otherHpas") or ()}
        yield from [AutoscalerDeleted(name=name) for name in self.others if name not in listed]
        for name, selector in listed.items():
            target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"of-{name}"}
            spec = {
                "scaleTargetRef": target,
                "maxReplicas": 9,
                "metrics": [{"type": "External", "external": OTHER_METRIC}],
            }
            if name not in self.others:
                metadata = {"name": name, "namespace": "ns", "uid": f"{name}-{self.now_ms}", "generation": 1}
                yield AutoscalerSet(hpa=hpa_of(metadata, spec))
            shown = Target(kind="Deployment", name=f"of-{name}", group="apps")
            yield ScaleSet(target=shown, spec_replicas=1, status_replicas=1, selector=selector)
        self.others = listed

    def _scale(self, given: Json) -> Iterator[Body]:
        reference = self.spec["scaleTargetRef"]
        group, error = parse_group_version(reference.get("apiVersion", ""))
        target = Target(kind=reference["kind"], name=reference["name"], group=group)
        if error:
            return
        if (group, target.kind) not in MAPPED_KINDS:
            yield ScaleSet(target=target, error=f'no matches for kind "{target.kind}" in group "{group}"')
        elif "scaleError" in given:
            yield ScaleSet(target=target, error=given["scaleError"])
        elif "scale" in given:
            scale = given["scale"]
            yield ScaleSet(
                target=target,
                spec_replicas=scale.get("spec", 0),
                status_replicas=scale.get("status", 0),
                selector=scale.get("selector", ""),
            )

    def _answers(self, given: Json) -> Iterator[Body]:
        selector = (given.get("scale") or {}).get("selector", "")
        answers: dict[Any, MetricAnswer] = {}
        for metric, answer in zip(self.spec.get("metrics") or (), given.get("metrics") or (), strict=False):
            reported = answer_of(metric, answer, selector) if answer else None
            if reported is not None and answers.setdefault(query_of(reported), reported) != reported:
                raise UntoldError("two answers to one question")
        if answers:
            yield Answers(items=list(answers.values()))

"""A recorded day: 20 HPAs in 2 clusters, in log time, the same bytes each time; what happens in it is written here.

Cluster `east` is scaled by fleethpa. Cluster `north` has a native controller, which fleethpa accompanies in shadow, and
two HPAs that were moved into fleethpa.
"""

from __future__ import annotations

import math
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from fleethpa.lab.demo.dayworld import PERIOD_MS, DayApp, DayWorld
from fleethpa.lab.simulator.model import PodProfile
from fleethpa.rollouts.marks import RolloutMark, digest, marked, part_of
from fleethpa.rollouts.wavedrive import condition_met, gates_of
from schemas.decisions import ENGINE
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json
from schemas.observed import AutoscalerSet, Command
from schemas.settings import ClusterSettings, EngineSet, SettingsSet
from streams.analysis.measures import EvaluatedMoment, condensed, moment_of, wave_measures
from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import ArchivedRecord
from streams.history.recorded import DecisionSequence
from streams.hpa.autoscaler import ControllerSettings

START_MS: Final = 1_767_571_200_000
"""2026-01-05T00:00:00Z, a Monday."""
HOUR_MS: Final = 3_600_000
HOURS: Final = 24
PARTITIONS: Final = 4
SEGMENT_MS: Final = 6 * HOUR_MS
BATCH_BUDGET: Final = "25%/10m"
"""The removal budget of namespace `batch` of `east`."""
AWAY: Final = (9 * HOUR_MS + 40 * 60_000, 10 * HOUR_MS + 5 * 60_000)
"""From when until when the metrics API of `east` has no metrics of namespace `web`."""
PAUSED_MS, PAUSE_MS = 11 * HOUR_MS, 20 * 60_000
COLLAPSE_H: Final = (14.0, 14.5)
"""Hours between which hardly any work arrives at namespace `batch` of `east`."""
WAVES_MS: Final = (16 * HOUR_MS, 16 * HOUR_MS + 40 * 60_000)
WAVE_MS: Final = 30 * 60_000
ROLLOUT_ID: Final = "8-is-enough"
SHARED_SPEC: Final = {"target": 75, "most": 8}
"""What the rollout changes of the HPAs of namespace `web` that are in both clusters."""


@dataclass(frozen=True)
class DayLoad:
    """Units per second over a day: `low` at night, `peak` at hour `peak_h`, with noise.

    `noise`: share by which it differs from one minute to the next; `bumps`: (from hour, to hour, factor).
    """

    low: float
    peak: float
    peak_h: float = 12.0
    noise: float = 0.05
    seed: str = ""
    bumps: tuple[tuple[float, float, float], ...] = ()

    def at(self, elapsed_s: float) -> float:
        hour = elapsed_s / 3_600
        hill = math.exp(-(((hour - self.peak_h + 12) % 24 - 12) ** 2) / 18)
        factor = math.prod(factor for begin, end, factor in self.bumps if begin <= hour < end)
        dice = zlib.crc32(f"{self.seed}@{int(elapsed_s // 60)}".encode()) / 0x7FFFFFFF - 1.0
        return max(0.0, (self.low + (self.peak - self.low) * hill) * factor * (1 + self.noise * dice))


def spec(name: str, *, target: int = 60, least: int = 2, most: int = 20, **behavior: Any) -> Json:
    """A defaulted spec on cpu utilization. `down_s`: the stabilization window of scale-downs."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
    body: Json = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": least,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": cpu}],
    }
    if "down_s" in behavior:
        percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
        up = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max"}
        body["behavior"] = {
            "scaleUp": up | {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, percent]},
            "scaleDown": {
                "stabilizationWindowSeconds": behavior["down_s"],
                "selectPolicy": "Max",
                "policies": [percent],
            },
        }
    return body


def apps() -> list[DayApp]:
    """The workloads of both clusters."""

    def app(where: str, low: float, peak: float, peak_h: float = 12.0, **more: Any) -> DayApp:
        cluster, namespace, name = where.split("/")
        load = DayLoad(low, peak, peak_h, more.pop("noise", 0.05), where, more.pop("bumps", ()))
        kept = {key: more.pop(key) for key in ("native", "replicas", "native_settings") if key in more}
        profile = PodProfile(schedule_ms=1_000, ready_ms=20_000, stop_ms=5_000, noise=0.03)
        return DayApp(HpaId(cluster, namespace, name), spec(name, **more), load, profile, **kept)

    collapse = ((*COLLAPSE_H, 0.05),)
    impatient = ControllerSettings(downscale_stabilization_ms=60_000)
    return [
        app("east/web/checkout", 90, 700, 10.0),
        app("east/web/search", 80, 420, 10.0, target=40),
        app("east/web/api", 60, 260, least=12, most=30, replicas=12),
        app("east/web/gateway", 150, 420, noise=0.35, down_s=0),
        app("east/data/stream", 200, 500, 13.0, target=30, most=40),
        app("east/data/index", 60, 240, 3.0, target=35),
        app("east/data/etl", 40, 90, bumps=((2, 2.5, 8.0), (8, 8.5, 8.0), (20, 20.5, 8.0))),
        app("east/batch/reports", 240, 1_150, 14.0, most=40, down_s=60, bumps=collapse),
        app("east/batch/mailer", 200, 900, 14.0, most=40, down_s=60, bumps=collapse),
        app("east/batch/export", 180, 800, 14.0, most=40, down_s=60, bumps=collapse),
        app("north/web/checkout", 90, 900, 17.0),
        app("north/web/search", 80, 800, 17.0),
        app("north/shop/cart", 100, 600, native=True),
        app("north/shop/catalog", 120, 480, 11.0, native=True),
        app("north/shop/offers", 90, 300, 19.0, native=True),
        app("north/media/thumbs", 80, 520, 15.0, native=True),
        app("north/media/transcode", 100, 700, 2.0, native=True),
        app("north/pay/ledger", 80, 360, native=True),
        app("north/pay/fraud", 70, 300, 18.0, native=True),
        app("north/pay/invoice", 60, 400, 9.0, noise=0.3, native=True, native_settings=impatient),
    ]


class RecordedDay:
    """The day, hour by hour, into an archive."""

    def __init__(self, archiver: Archiver) -> None:
        self._archiver = archiver
        self.world = DayWorld(apps(), PARTITIONS, START_MS, archiver.append)
        self.rollout = DayRollout(self.world)

    @property
    def records(self) -> dict[str, int]:
        """How many records the archive holds, by topic."""
        return self._archiver.records()

    @property
    def _elapsed_ms(self) -> int:
        return self.world.now_ms - START_MS

    def run(self, report: Callable[[int], None], hours: float = HOURS) -> None:
        """Live through the day; `report` gets each hour that is over."""
        self._begin()
        for period in range(1, round(hours * HOUR_MS) // PERIOD_MS + 1):
            self._events()
            self.world.live(self._advance_rollout)
            if period * PERIOD_MS % HOUR_MS == 0:
                self._archiver.flush()
                report(period * PERIOD_MS // HOUR_MS)
        self._archiver.finish()

    def _begin(self) -> None:
        self.world.broadcast(
            EngineSet(engine=ENGINE, partitions=PARTITIONS, author="anna", reason="first start"),
            SettingsSet(cluster="*", settings=ClusterSettings(sync_period_ms=PERIOD_MS), author="anna"),
            SettingsSet(
                cluster="east",
                settings=ClusterSettings(
                    default_mode="enforce", native_controller="absent", removal_budgets={"batch": BATCH_BUDGET}
                ),
                author="anna",
                reason="no controller manager scales there",
            ),
            SettingsSet(
                cluster="north",
                settings=ClusterSettings(default_mode="shadow", native_controller="present"),
                author="anna",
                reason="first in shadow",
            ),
        )
        self.world.begin()

    def _events(self) -> None:
        """What happens besides load, at the begin of a period."""
        elapsed_ms, world = self._elapsed_ms, self.world
        is_away = AWAY[0] <= elapsed_ms < AWAY[1]
        world.metrics_error = (
            {("east", "web"): "the server is currently unable to handle the request"} if is_away else {}
        )
        if elapsed_ms == PAUSED_MS:
            until = world.now_ms + PAUSE_MS
            world.add("east/data", Command(command="pause", name="etl", until=until, author="ben", reason="INC-17"))
        self.rollout.advance(elapsed_ms)

    def _advance_rollout(self, decided: Sequence[tuple[int, ArchivedRecord]]) -> None:
        """What follows from the decisions of a period: the measures of the rollout."""
        for number, record in decided:
            self.rollout.add_decision(number, record)


class DayRollout:
    """A rollout of which the second wave has too few replicas, so that both waves get their earlier spec again."""

    def __init__(self, world: DayWorld) -> None:
        self._world = world
        self._hpas = [HpaId(cluster, "web", name) for cluster in ("east", "north") for name in ("checkout", "search")]
        self._sequences = [DecisionSequence(self._hpas.__contains__) for _ in range(PARTITIONS)]
        self._moments: dict[HpaId, list[EvaluatedMoment]] = {}
        self._marks: dict[HpaId, RolloutMark] = {}
        self.reverted = ""

    def advance(self, elapsed_ms: int) -> None:
        """Begin a wave, or judge the one whose time is over."""
        if elapsed_ms in WAVES_MS:
            self._begin(WAVES_MS.index(elapsed_ms) + 1)
        elif elapsed_ms - WAVE_MS in WAVES_MS:
            self._judge(WAVES_MS.index(elapsed_ms - WAVE_MS) + 1)

    def add_decision(self, number: int, record: ArchivedRecord) -> None:
        """Add a decision: those of the wave that runs are measured."""
        recorded = self._sequences[number].next_decision(number, record.offset, record.value)
        if recorded is not None and recorded.hpa in self._marks and recorded.decision.kind == "evaluation":
            self._moments.setdefault(recorded.hpa, []).append(moment_of(recorded.decision, recorded.time_ms))

    def _wave(self, number: int) -> list[HpaId]:
        return [hpa for hpa in self._hpas if hpa.cluster == ("east", "north")[number - 1]]

    def _begin(self, wave: int) -> None:
        self._moments.clear()
        specs = {f"web/{name}": spec(name, **SHARED_SPEC) for name in ("checkout", "search")}
        for hpa in self._wave(wave):
            living = self._world.apps[hpa]
            new = part_of({}, {}, specs[f"web/{hpa.name}"])
            mark = RolloutMark(
                id=ROLLOUT_ID,
                waves=[["east"], ["north"]],
                hpas=sorted(specs),
                wave=wave,
                begun_ms=self._world.now_ms,
                wait_ms=WAVE_MS,
                fail_if=["at_max>50%"],
                spec_digest={named: digest(each) for named, each in specs.items()},
                replicas=living.workload.replicas,
                author="ines",
                reason="SAVE-4",
                previous=part_of({}, {}, living.app.spec),
            )
            self._marks[hpa] = mark
            self._write(hpa, marked(hpa, new, mark), f"rollout {ROLLOUT_ID} wave {wave}/2: SAVE-4")

    def _judge(self, wave: int) -> None:
        marks = {hpa: self._marks[hpa] for hpa in self._wave(wave)}
        moments = {hpa: condensed(self._moments[hpa]) for hpa in marks}
        now = wave_measures(moments, {hpa: mark.replicas for hpa, mark in marks.items()})
        before = wave_measures({}, {})
        met = [condition_met(gate, before, now) for gate in gates_of(marks[min(marks)]) if gate.holds(before, now)]
        if not met:
            return
        self.reverted = f"wave {wave}: {'; '.join(met)}"
        for hpa, mark in self._marks.items():
            assert mark.previous is not None
            ended = msgspec.structs.replace(mark, previous=None, reverted=self.reverted)
            self._write(hpa, marked(hpa, mark.previous, ended), f"rollout {ROLLOUT_ID} reverted: {self.reverted}")

    def _write(self, hpa: HpaId, body: Json, reason: str) -> None:
        self._world.add(hpa.namespace_key, AutoscalerSet(hpa=body, origin="central", author="ines", reason=reason))


def write_day(folder: Path, report: Callable[[int], None], hours: float = HOURS) -> RecordedDay:
    """Write the archive of the day into `folder`/archive.

    What an earlier run wrote is replaced. `hours`: only so many of the day. Raises OSError: it cannot be written.
    """
    root = folder / "archive"
    if (root / "archive.json").exists():
        shutil.rmtree(root)
    day = RecordedDay(Archiver(root, PARTITIONS, SegmentLimits(segment_ms=SEGMENT_MS)))
    day.run(report, hours)
    return day

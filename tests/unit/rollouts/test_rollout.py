"""`rollout`: waves over a fleet in memory, judged by what the decider really decides; killed, resumed, aborted."""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from click.testing import Result

from fleethpa.changes.schedules import made, with_schedule
from fleethpa.frame.errors import CommandError
from fleethpa.frame.options import WAVE_MEASURES, parse_fail_if
from fleethpa.frame.writer import Fate, SentRecord
from fleethpa.rollouts.marks import in_order, waves_of
from schemas.entries import WHOLE_PARTITION_KEY, Body, Outcome
from schemas.keys import HpaId
from schemas.kubernetes.hpa import hpa_from_manifest
from schemas.observed import AutoscalerSet, Command
from schemas.settings import SettingsSet
from streams.analysis.measures import EvaluatedMoment, WaveMeasures, wave_measures
from tests.kit.cli import SETTINGS, Cli, Fleet, FleetPast, hpa
from tests.kit.published import fits
from tests.laws import one_of

CLUSTERS = tuple(f"c{number:02}" for number in range(6))
AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
REST = 10
"""Replicas that the load asks for at 60 %."""


class Killed(BaseException):
    """The command ends here, as by SIGKILL."""


class Waves:
    """Six clusters with one central HPA each; time passes while a command sleeps."""

    partitions = 1

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        self.fleet, self.counts = Fleet(), dict.fromkeys(CLUSTERS, REST)
        self.tmp_path, self.writes, self.kill_at, self.rounds, self._seen = tmp_path, 0, 0, 0, 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.fleet.append(SettingsSet(cluster="*", settings=SETTINGS), key=WHOLE_PARTITION_KEY)
        for name in CLUSTERS:
            self.fleet.append(AutoscalerSet(hpa=_central(), origin="central", mode="enforce"), key=f"{name}/shop")
        for _ in range(3):
            self.time_passes()
        monkeypatch.setattr("fleethpa.frame.session.Session.now_ms", lambda session: self.fleet.now_ms)
        monkeypatch.setattr("fleethpa.rollouts.wavedrive.rest", self.sleep)
        self.cli = Cli(monkeypatch, self.fleet)
        monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))

        @asynccontextmanager
        async def opened(config: Any) -> AsyncIterator["Waves"]:
            yield self

        monkeypatch.setattr("fleethpa.frame.writer.open_writer", opened)

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        self.writes += 1
        if self.writes == self.kill_at:
            raise Killed
        self.fleet.append(*bodies, key=f"{cluster}/{namespace}")
        self._apply()
        return SentRecord(subject, "fleethpa.autoscalers", 0, 0)

    async def fates(self, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        return [Fate(pending, "logged") for pending in waiting]

    async def sleep(self, seconds: float) -> None:
        self.rounds += 1
        self.meanwhile()
        self.time_passes()

    def time_passes(self) -> None:
        """One sync period: what is wanted is applied, and every cluster is observed under the same load."""
        self._apply()
        self.fleet.append(after_ms=15_000)
        for name in CLUSTERS:
            self.fleet.cluster = name
            self.fleet.observe(self.counts[name], 300 * REST // self.counts[name])
        self._apply()

    def _apply(self) -> None:
        wanted = [each.decision for each in self.fleet.decisions()[self._seen :] if each.decision.wants is not None]
        self._seen = len(self.fleet.values)
        for decision in wanted:
            self.counts[decision.cluster] = count = decision.wants or 0
            done = Outcome(
                decision=decision.id,
                name=decision.name,
                uid=decision.uid,
                result="applied",
                spec_replicas=count,
                status_replicas=count,
                selector="app=checkout",
                resource_version="8",
            )
            self.fleet.append(done, key=f"{decision.cluster}/{decision.namespace}")

    def run(self, *arguments: str, **spec: Any) -> Result:
        self.fleet.checkpoint()
        manifest = hpa(behavior=AT_ONCE, **spec)
        for given in ("uid", "generation", "creationTimestamp"):
            del manifest["metadata"][given]
        if arguments[0].startswith("-"):
            arguments = ("-f", "-", "-C", "c*", "--wait", "45s", *arguments)
        asks = () if arguments[0] == "status" else ("--yes",)
        return self.cli("rollout", *arguments, *asks, stdin=json.dumps(manifest))

    def begin(self, *options: str, target: int = 50) -> Result:
        """Roll a utilization target out, in waves of 1, 2 and 6 clusters."""
        return self.run("--reason", "PAY-1", *options, metrics=_metrics(target))

    def targets(self) -> dict[str, int]:
        found = {}
        for name in CLUSTERS:
            spec = self.fleet.partition.state.hpas[HpaId(name, "shop", "checkout")].row.hpa_object()["spec"]
            found[name] = spec["metrics"][0]["resource"]["target"]["averageUtilization"]
        return found

    def known(self) -> dict[str, Any]:
        self.fleet.checkpoint()
        (found,) = fits("RolloutList", self.cli("rollout", "status", "-o", "json").stdout)["items"]
        fits("Rollout", self.cli("rollout", "status", found["id"], "-o", "json").stdout)
        assert isinstance(found, dict)
        return found


def _central(**spec: Any) -> dict[str, Any]:
    """As ingest puts it into the log."""
    return hpa_from_manifest(hpa(behavior=AT_ONCE, **spec), namespace_default="shop")


def _metrics(target: int) -> list[dict[str, Any]]:
    asked = {"type": "Utilization", "averageUtilization": target}
    return [{"type": "Resource", "resource": {"name": "cpu", "target": asked}}]


@pytest.fixture
def waves(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Waves:
    return Waves(monkeypatch, tmp_path)


# --- going out --------------------------------------------------------------------------------------------------------


def test_a_spec_that_fares_well_reaches_every_cluster_in_waves(waves: Waves) -> None:
    result = waves.begin()
    assert result.exit_code == 0, result.output
    lines = [line for line in result.stdout.splitlines() if line.startswith(("wave", "rollout"))]
    assert [line.split(":")[0] for line in lines] == [
        lines[0],
        *("wave 1/3 begins", "wave 1/3 passed", "wave 2/3 begins", "wave 2/3 passed", "wave 3/3 begins"),
        *("wave 3/3 passed", lines[-1]),
    ]
    assert "wave 2/3 begins: 1 cluster (c01)" in lines
    assert lines[-1].endswith("is complete")
    assert set(waves.targets().values()) == {50}
    assert waves.known()["state"] == "complete"


def test_a_bad_spec_is_reverted_after_the_first_wave(waves: Waves) -> None:
    result = waves.begin(target=600)
    assert result.exit_code == 1
    assert "wave 1/3 failed: replicas_removed>30% (it is 80)" in result.stdout
    assert set(waves.targets().values()) == {60}
    assert {name: count for name, count in waves.counts.items() if count != REST}.keys() == {"c00"}
    assert waves.rounds < 3, "it does not wait for the end of the wave"
    for _ in range(4):
        waves.time_passes()
    assert set(waves.counts.values()) == {REST}
    assert waves.known()["state"] == "reverted"


def test_history_names_the_rollout_its_wave_and_why_it_was_reverted(waves: Waves) -> None:
    waves.begin(target=600)
    id_ = waves.known()["id"]
    text = waves.cli("history", "c00/shop/checkout").stdout
    assert f"rollout {id_} wave 1/3: PAY-1" in text
    assert f"rollout {id_} reverted: wave 1: replicas_removed>30% (it is 80)" in text


@pytest.mark.parametrize(
    ("condition", "spec", "stated"),
    [
        ("recommended_removal>10%", {"target": 600}, "recommended_removal>10%"),
        ("scale_events>0", {"target": 50}, "scale_events>0 (it is 1)"),
        ("scale_events>+0", {"target": 50}, "scale_events>+0 (it is 1, 0 before)"),
    ],
)
def test_conditions_are_on_the_waves_own_hpas(waves: Waves, condition: str, spec: dict[str, Any], stated: str) -> None:
    result = waves.begin("--fail-if", condition, **spec)
    assert (result.exit_code, stated in result.stdout) == (1, True), result.output
    assert set(waves.targets().values()) == {60}


def test_at_max_is_judged_at_the_end_of_the_wave(waves: Waves) -> None:
    result = waves.run("--fail-if", "at_max>+50%", metrics=_metrics(20))
    assert result.exit_code == 1
    assert "at_max>+50% (it is 100, 0 before)" in result.stdout
    assert waves.rounds >= 3


def test_a_dry_run_shows_the_waves_and_writes_nothing(waves: Waves) -> None:
    result = waves.begin("--dry-run", "--wave", "50%,100%", "-C", "c05,c*")
    assert result.exit_code == 0
    assert "wave 1/2: c05, c00, c01 (dry run)" in result.stdout
    assert "rollout changes 6 HPAs in 6 clusters: cpu 60%→50%" in result.stderr
    assert waves.writes == 0


def test_what_has_the_spec_already_takes_no_part(waves: Waves) -> None:
    assert waves.begin("-C", "c00,c01,c02,c03").exit_code == 0
    result = waves.begin("--dry-run")
    assert "rollout changes 2 HPAs in 2 clusters" in result.stderr
    assert waves.begin().exit_code == 0
    assert "nothing to roll out: 6 HPAs unchanged" in waves.begin().stdout


def test_no_wave_begins_while_no_decider_would_show_how_it_fares(waves: Waves, monkeypatch: pytest.MonkeyPatch) -> None:
    waves.fleet.checkpoint()
    for _ in range(12):
        waves.fleet.append(after_ms=5_000, by="ingest")
    monkeypatch.setattr(waves.fleet, "checkpoint", lambda: None)  # a decider that hangs makes none
    monkeypatch.setattr(FleetPast, "now_ms", lambda _: waves.fleet.now_ms)
    result = waves.begin()
    assert (result.exit_code, waves.writes) == (1, 0), result.output
    assert "Error: wave 1/3 does not begin: the decider hangs or does not run" in result.stderr
    assert "was changed by" not in result.stderr
    shown = waves.run("status")
    assert shown.exit_code == 5
    assert "There was no rollout when it was last known." in shown.stderr


def test_an_hpa_without_decisions_stops_it_and_reverts_nothing(waves: Waves) -> None:
    waves.fleet.append(Command(command="mode", name="checkout", mode="off"), key="c00/shop")
    result = waves.begin()
    assert result.exit_code == 1
    assert "1 of 1 HPA of wave 1 have no decision under the new spec" in result.stderr
    assert waves.targets()["c00"] == 50


# --- killed, resumed, aborted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kill_at", one_of(3, range(1, 7)))
def test_killed_before_any_record_it_is_resumed_by_another(waves: Waves, kill_at: int) -> None:
    waves.kill_at = kill_at
    with pytest.raises(Killed):
        waves.begin()
    if kill_at == 1:
        assert set(waves.targets().values()) == {60}
        return
    known = waves.known()
    result = waves.run("resume", known["id"], "--author", "bob")
    assert result.exit_code == 0, result.output
    assert set(waves.targets().values()) == {50}
    assert waves.known()["author"] == "anna"


def test_a_bad_wave_that_nobody_watched_is_judged_by_what_was_recorded(waves: Waves) -> None:
    def killed() -> None:
        raise Killed

    waves.meanwhile = killed
    with pytest.raises(Killed):
        waves.begin("--fail-if", "at_max>+50%", target=20)
    for _ in range(5):
        waves.time_passes()
    known = waves.known()
    assert (known["state"], known["wave"]) == ("waiting", 1)
    shown = waves.cli("rollout", "status", known["id"])
    assert "100% at maxReplicas" in shown.stdout
    assert f"fleethpa rollout resume {known['id']}" in shown.stderr
    waves.meanwhile = lambda: None
    result = waves.run("resume", known["id"])
    assert "wave 1/3 failed: at_max>+50% (it is 100, 0 before)" in result.stdout
    assert set(waves.targets().values()) == {60}


def test_another_person_aborts_it_and_the_command_ends(waves: Waves) -> None:
    aborted, by = list[Result](), ("--author", "bob", "--reason", "incident 7")

    def meanwhile() -> None:
        waves.meanwhile = lambda: None
        aborted.append(_apart(lambda: waves.run("abort", waves.known()["id"], *by)))

    waves.meanwhile = meanwhile
    result = waves.begin()
    assert aborted[0].exit_code == 0, aborted[0].output
    assert result.exit_code == 1
    assert "it was reverted (aborted by bob: incident 7)" in result.stderr
    assert set(waves.targets().values()) == {60}


def _apart(work: Callable[[], Result]) -> Result:
    """In another thread, as a command has an event loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _taken_by_an_object(waves: Waves, cluster: str) -> None:
    """An object of the hub's API makes an HPA from now on, with the spec and the marks that it has."""
    body = waves.fleet.partition.state.hpas[HpaId(cluster, "shop", "checkout")].row.hpa_object()
    owner = {"object": "CentralHPA/shop/checkout", "uid": "u", "generation": 1}
    marks = body["metadata"].get("annotations") or {}
    body["metadata"]["annotations"] = marks | {"fleethpa.io/object": json.dumps(owner)}
    waves.fleet.append(AutoscalerSet(hpa=body, origin="central"), key=f"{cluster}/shop")


@pytest.mark.parametrize("verb", ["resume", "abort"])
def test_what_an_object_of_the_hubs_api_makes_by_now_is_named_and_left_alone(waves: Waves, verb: str) -> None:
    waves.kill_at = 2
    with pytest.raises(Killed):
        waves.begin()
    _taken_by_an_object(waves, "c00" if verb == "abort" else "c05")
    before = waves.targets()
    result = waves.run(verb, waves.known()["id"])
    assert result.exit_code == 1
    assert "CentralHPA/shop/checkout of the hub's API states it" in result.stderr
    assert waves.targets() == before


def test_a_wave_that_meets_an_object_of_the_hubs_api_does_not_begin(waves: Waves) -> None:
    def meanwhile() -> None:
        waves.meanwhile = lambda: None
        _taken_by_an_object(waves, "c01")

    waves.meanwhile = meanwhile
    result = waves.begin()
    assert result.exit_code == 1
    assert "hpa c01/shop/checkout" in result.stderr
    assert "CentralHPA/shop/checkout of the hub's API states it" in result.stderr
    assert {name for name, target in waves.targets().items() if target == 50} == {"c00"}


def test_an_hpa_that_somebody_changes_stops_it_and_stays_as_it_is(waves: Waves) -> None:
    def meanwhile() -> None:
        changed = _central(metrics=_metrics(70))
        waves.fleet.append(AutoscalerSet(hpa=changed, origin="central", author="eva"), key="c00/shop")

    waves.meanwhile = meanwhile
    result = waves.begin()
    assert result.exit_code == 1
    assert "c00/shop/checkout was changed by eva" in result.stderr
    assert waves.targets()["c00"] == 70


def test_two_rollouts_do_not_work_on_one_hpa(waves: Waves) -> None:
    waves.kill_at = 3
    with pytest.raises(Killed):
        waves.begin()
    other = waves.begin(target=55)
    assert other.exit_code == 1
    assert "by anna is changing c00/shop/checkout" in other.stderr


def test_a_complete_rollout_can_still_be_taken_back(waves: Waves) -> None:
    assert waves.begin().exit_code == 0
    assert waves.run("abort", waves.known()["id"]).exit_code == 0
    assert set(waves.targets().values()) == {60}
    assert "nothing to revert" in waves.run("abort", waves.known()["id"]).stdout
    assert "was reverted" in waves.run("resume", waves.known()["id"]).stderr


def test_labels_and_annotations_come_and_go_with_the_spec(waves: Waves) -> None:
    waves.begin(target=600)
    metadata = waves.fleet.partition.state.hpas[HpaId("c00", "shop", "checkout")].row.hpa_object()["metadata"]
    assert metadata["labels"] == {"app": "checkout"}
    assert set(metadata["annotations"]) == {"fleethpa.io/rollout"}


def test_schedules_outlast_a_rollout_and_reach_no_other_hpa(waves: Waves) -> None:
    """One HPA has a schedule; the manifest has none. A resumed rollout reads the manifest from that HPA's object."""
    held = _central()
    schedule = made(held, ("daily 07:00-20:00 minReplicas=3", "Mon 07:00-09:00 cpu=55%"), "UTC")
    scheduled = AutoscalerSet(hpa=with_schedule(held, schedule, held["spec"]), origin="central")
    waves.fleet.append(scheduled, key="c00/shop")

    assert "schedules are kept (c00/shop/checkout)" in waves.begin("--dry-run").output
    waves.kill_at = 2
    with pytest.raises(Killed):
        waves.begin()
    assert waves.run("resume", waves.known()["id"]).exit_code == 0

    assert set(waves.targets().values()) == {50}
    listed = fits("ScheduleList", waves.cli("schedule", "list", "-A", "-o", "json").stdout)["items"]
    assert [(each["cluster"], each["rules"]) for each in listed] == [("c00", schedule.rules)]
    assert listed[0]["otherwise"] == [schedule.otherwise[0], "cpu=50%"]


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        (("status", "abcdef"), 4, "no rollout abcdef"),
        (("-C", "nosuch"), 4, "no cluster matches 'nosuch'"),
        (("--wave", "3,1"), 2, "each wave is at least as large"),
        (("--wave", "1,50%"), 2, "leaves out 3 of 6 clusters"),
        (("--wave", "0"), 2, "is not a number of clusters"),
        (("--fail-if", "replicas_removed>30"), 2, "Write 30%."),
        (("--fail-if", "cost>30%"), 2, "'cost' is not a measure"),
        (("--wait", "soon"), 2, "is not a duration"),
        (("-n", "other"), 2, "the namespaces do not match"),
    ],
)
def test_wrong_invocations(waves: Waves, arguments: tuple[str, ...], code: int, stated: str) -> None:
    result = (waves.run if arguments[0] == "status" else waves.begin)(*arguments)
    assert (result.exit_code, stated in result.stderr) == (code, True), result.stderr


def test_a_rollout_changes_only_central_hpas_and_not_their_target(waves: Waves) -> None:
    waves.fleet.append(AutoscalerSet(hpa=hpa("web")), key="c00/shop")
    named = hpa("web", maxReplicas=3)
    del named["metadata"]["uid"]
    result = waves.cli("rollout", "-f", "-", "-C", "c00", "--yes", stdin=json.dumps(named))
    assert result.exit_code == 4
    assert "Error: no central HPA to roll out: c00/shop/web belongs to its cluster" in result.stderr
    assert "Next: fleethpa adopt c00/shop/web" in result.stderr
    moved = waves.run("-C", "c00", scaleTargetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
    assert "does not change what an HPA scales" in moved.stderr


def test_a_rollout_names_what_takes_no_part_why_and_what_to_do(waves: Waves) -> None:
    waves.fleet.append(
        AutoscalerSet(hpa=hpa_from_manifest(hpa("web"), namespace_default="shop"), origin="central", mode="enforce"),
        key="c01/shop",
    )
    waves.fleet.append(AutoscalerSet(hpa=hpa("web")), key="c00/shop")
    named = hpa("web", maxReplicas=3)
    del named["metadata"]["uid"]

    def begin(clusters: str) -> Result:
        waves.fleet.checkpoint()
        return waves.cli("rollout", "-f", "-", "-C", clusters, "--dry-run", stdin=json.dumps(named))

    some = begin("c00,c01,c02")
    assert some.exit_code == 0, some.stderr
    assert "c00/shop/web belongs to its cluster, and takes no part. Next: fleethpa adopt c00/shop/web" in some.stderr
    assert "c02/shop/web does not exist, and takes no part. Next: fleethpa apply -f FILE -C c02" in some.stderr

    none = begin("c00,c02,c03")
    assert none.exit_code == 4
    assert "Error: no central HPA to roll out: c00/shop/web belongs to its cluster; " in none.stderr
    assert "c02/shop/web, c03/shop/web do not exist" in none.stderr
    assert "takes no part" not in none.stderr

    missing = begin("c02")
    assert missing.exit_code == 4
    assert "Error: no central HPA to roll out: c02/shop/web does not exist" in missing.stderr
    assert "Next: fleethpa apply -f FILE -C c02" in missing.stderr


def test_a_paused_hpa_loses_no_replicas_by_it(waves: Waves) -> None:
    """What is only recommended is no removal."""
    waves.fleet.append(Command(command="pause", name="checkout"), key="c00/shop")
    assert "wave 1/1 passed: 0% of the replicas removed" in waves.begin("-C", "c00", "--wave", "1", target=600).stdout


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text", "sizes"),
    [
        (12, "1,25%,100%", [1, 2, 9]),
        (3, "1,25%,100%", [1, 2]),
        (1, "1,25%,100%", [1]),
        (10, "1%,100%", [1, 9]),
        (5, "2,4,5", [2, 2, 1]),
        (5, "100", [5]),
    ],
)
def test_waves_count_all_clusters_so_far(count: int, text: str, sizes: list[int]) -> None:
    found = waves_of([str(number) for number in range(count)], text)
    assert [len(wave) for wave in found] == sizes
    assert [name for wave in found for name in wave] == [str(number) for number in range(count)]


def test_clusters_go_in_the_order_of_the_globs() -> None:
    assert in_order(["prod-b", "canary", "prod-a"], ["canary", "prod-*"]) == ["canary", "prod-a", "prod-b"]


def _moment(
    before: int, replicas: int, proposal: int | None = 4, *, at_max: bool = False, failing: bool = False
) -> Any:
    return EvaluatedMoment(0, before, replicas, proposal, at_max, failing)


def test_measures_of_a_wave() -> None:
    one, two, three = (HpaId(name, "n", "h") for name in "abc")
    moments = {
        one: [_moment(10, 6, 2), _moment(6, 8, 8), _moment(8, 8, 9, at_max=True)],
        two: [_moment(10, 10, 12), _moment(10, 10, None, failing=True)],
    }
    assert wave_measures(moments, {one: 10, two: 10, three: 20}) == WaveMeasures(
        hpas=3,
        unevaluated=1,
        replicas_removed=10.0,
        recommended_removal=20.0,
        at_max=100 / 3,
        failing=100 / 3,
        scale_events=2 / 3,
        direction_flips=1 / 3,
    )


def test_measures_of_nothing_are_zero() -> None:
    assert wave_measures({}, {}).replicas_removed == 0.0


@pytest.mark.parametrize(
    ("text", "before", "now", "met"),
    [
        ("replicas_removed>30%", 50.0, 31.0, True),
        ("replicas_removed>30%", 0.0, 30.0, False),
        ("at_max>+20%", 10.0, 31.0, True),
        ("at_max>+20%", 10.0, 29.0, False),
        ("scale_events>2", 0.0, 2.5, True),
        ("scale_events>+50%", 2.0, 2.9, False),
        ("scale_events>+50%", 2.0, 3.1, True),
    ],
)
def test_conditions_on_waves(text: str, before: float, now: float, met: bool) -> None:
    gate = parse_fail_if(text, WAVE_MEASURES)

    def measures(value: float) -> WaveMeasures:
        fields: dict[str, Any] = dict.fromkeys(WaveMeasures.__struct_fields__, 0) | {gate.field: value}
        return WaveMeasures(**fields)

    assert gate.holds(measures(before), measures(now)) is met


def test_a_share_is_given_in_percent() -> None:
    with pytest.raises(CommandError, match="is a percentage"):
        parse_fail_if("failing>3", WAVE_MEASURES)

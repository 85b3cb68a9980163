"""One wanted write against simulated clusters and the embedded broker: what it ends as, and what stops it."""

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from reconciler.agents.standin.evidence import is_for_want_of_rights
from schemas.agents import AgentSet
from schemas.codec import encode
from schemas.entries import Outcome, PublicRecord
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet
from schemas.topics import SETTINGS
from tests.kit.clusters import Denial, Fault, cluster_uid
from tests.pipeline.cluster_rig import Rig, deployment, hpa
from tests.pipeline.reconciler.reconciler_kit import App, asked, outcome, taken

pytestmark = pytest.mark.asyncio(loop_scope="module")

_OTHER = "4f1c2e0a-6d1b-4c58-9a70-3b1d5f0e8c21"


async def test_a_wanted_write_is_written_and_reported(app: App) -> None:
    reported = await app.ends()
    assert (reported.result, reported.spec_replicas, reported.attempts, reported.error) == ("applied", 5, 1, "")
    assert reported.resource_version
    assert app.replicas == 5
    assert asked(app.sim, "update", app.scale)[0].manager == "fleethpa"


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [
        pytest.param({"method": "PUT", "status": 409, "remaining": 2}, 3, id="two conflicts, then it goes through"),
        pytest.param({"status": 429, "retry_after_s": 1, "remaining": 1}, 2, id="429 waits as long as it asks for"),
        pytest.param({"status": 500, "remaining": 2}, 3, id="an error on the server passes"),
        pytest.param({"status": 503, "remaining": 1}, 2, id="an unavailable server comes back"),
        # The HTTP client itself repeats a GET once on a connection that it had kept.
        pytest.param({"action": "drop", "remaining": 2}, 2, id="a dropped connection is tried again"),
        # On a busy machine a further request may take as long as one that hangs.
        pytest.param({"action": "hang", "remaining": 1}, 2, id="a hung request is given up and tried again"),
        pytest.param(
            {"method": "PUT", "action": "drop", "after": True, "remaining": 1},
            2,
            id="a write whose answer was lost is found applied",
        ),
    ],
)
async def test_trouble_that_passes_ends_as_applied(app: App, fault: dict[str, Any], attempts: int) -> None:
    app.sim.add_fault(Fault(path=app.scale, **fault))
    reported = await app.ends()
    assert reported.result == "applied"
    action = fault.get("action")
    assert action == "hang" or reported.attempts <= attempts
    assert action == "drop" or reported.attempts >= attempts
    assert app.replicas == 5


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        pytest.param({"method": "PUT", "status": 409, "message": "modified"}, "modified", id="conflicts without end"),
        pytest.param({"status": 503, "message": "down"}, "down", id="unavailable longer than the time to live"),
        pytest.param({"action": "hang"}, "no answer within", id="hangs longer than the time to live"),
        pytest.param({"method": "PUT", "status": 422, "message": "bad"}, "bad", id="a write that is invalid"),
    ],
)
async def test_trouble_that_stays_ends_as_failed_with_its_text(app: App, fault: dict[str, Any], says: str) -> None:
    app.sim.add_fault(Fault(path=app.scale, **fault))
    reported = await app.ends(
        ttl_ms=3_000
    )  # long enough for a first attempt on a busy machine: without one it is `stale`
    assert reported.result == "failed"
    assert says in reported.error
    assert app.replicas == 2


async def test_a_proxy_that_answers_in_the_servers_place_is_trouble_and_no_end(app: App) -> None:
    app.sim.add_fault(Fault(path=app.scale, status=200, message="please log in"))
    ended = await app.ends(ttl_ms=3_000)
    assert ended.result == "failed"
    assert "not an object of Kubernetes" in ended.error
    assert "please log in" in ended.error
    app.sim.clear_faults()
    assert (await app.ends()).result == "applied"


async def test_a_forbidden_write_fails_with_the_servers_words(app: App) -> None:
    app.sim.deny([Denial(resource="deployments/scale", verb="update")])
    reported = await app.ends()
    assert reported.result == "failed"
    assert 'cannot update resource "deployments/scale"' in reported.error
    assert is_for_want_of_rights(reported.error)
    app.sim.deny([])
    assert (await app.ends()).result == "applied", "a permission that is back is used at once"


async def test_a_server_that_comes_back_with_older_resource_versions_is_read_anew_and_written_to(app: App) -> None:
    first = await app.ends(wants=5)
    # The server goes away between a read and its write, and its versions begin anew.
    number = app.sim.add_fault(Fault(path=app.scale, method="PUT", action="hang"))
    reads = len(asked(app.sim, "get", app.scale))
    decision = await app.made.decider.publish(await app.decided(wants=6, ttl_ms=30_000))
    await app.made.topics.until(lambda: len(asked(app.sim, "get", app.scale)) > reads, "the scale was read")
    await app.sim.restart_from_backup()
    app.sim.clear_faults(number)
    reported = await outcome(app.made, decision)
    assert reported.result == "applied", reported.error
    assert int(reported.resource_version) < int(first.resource_version)
    assert app.replicas == 6


async def test_a_deleted_target_fails_with_the_servers_words(app: App) -> None:
    decision = await app.decided()
    app.delete("apps/v1", "Deployment")
    reported = await app.ends(decision)
    assert (reported.result, reported.error) == ("failed", f'deployments.apps "{app.name}" not found')


async def test_replicas_changed_by_another_hand_are_left_alone(app: App) -> None:
    decision = await app.decided()
    app.sim.apply(deployment(app.name, 4), manager="kubectl")
    reported = await app.ends(decision)
    assert reported.result == "refused"
    assert "from 2 to 4" in reported.error
    assert app.replicas == 4


async def test_a_write_behind_a_read_is_a_conflict_and_ends_as_refused(app: App) -> None:
    # The replicas move between the read and the write: the resource version catches it, the second read sees it.
    number = app.sim.add_fault(Fault(path=app.scale, method="PUT", action="hang", after=False))
    decision = await app.made.decider.publish(await app.decided())
    await app.made.topics.until(lambda: asked(app.sim, "get", app.scale), "the scale was read")
    app.sim.apply(deployment(app.name, 3), manager="kubectl")
    app.sim.clear_faults(number)
    reported = await outcome(app.made, decision)
    assert reported.result == "refused"
    assert "from 2 to 3" in reported.error
    assert app.replicas == 3


async def test_a_deleted_hpa_is_not_acted_for(app: App) -> None:
    decision = await app.decided()
    app.delete("autoscaling/v2", "HorizontalPodAutoscaler")
    reported = await app.ends(decision)
    assert (reported.result, reported.error) == ("refused", "the HPA was deleted")


async def test_limits_are_the_live_ones(app: App) -> None:
    decision = await app.decided(wants=9)
    app.sim.apply(hpa(app.name, high=6))
    reported = await app.ends(decision)
    assert reported.result == "refused"
    assert "1 to 6" in reported.error


async def test_a_newer_decision_takes_an_older_ones_place(app: App) -> None:
    number = app.sim.add_fault(Fault(path=app.scale, method="GET", action="hang"))
    before = taken(app.made)
    older = await app.made.decider.publish(await app.decided(wants=5))
    newer = await app.made.decider.publish(await app.decided(wants=6))
    await app.made.topics.until(lambda: taken(app.made) == before + 2, "the newer decision was read")
    app.sim.clear_faults(number)
    assert (await outcome(app.made, newer)).result == "applied"
    assert (await outcome(app.made, older)).result == "superseded"
    assert app.replicas == 6


async def test_a_newer_decisions_write_is_no_other_hand_to_an_older_one_that_was_slow(app: App) -> None:
    hangs = Fault(path=app.scale, method="GET", action="hang", remaining=1)
    app.sim.add_fault(hangs)
    older = await app.made.decider.publish(await app.decided(wants=5))
    await app.made.topics.until(lambda: hangs.remaining == 0, "the older one's read hangs")
    newer = await app.made.decider.publish(await app.decided(wants=6))
    assert (await outcome(app.made, newer)).result == "applied"
    app.sim.clear_faults(hangs.number)
    reported = await outcome(app.made, older)
    assert (reported.result, reported.error) == ("superseded", "a newer decision took its place")
    assert app.replicas == 6


async def test_a_wish_past_its_time_to_live_is_stale(app: App) -> None:
    assert (await app.ends(ttl_ms=-1)).result == "stale"
    assert app.replicas == 2


# --- settings ---------------------------------------------------------------------------------------------------------


async def until_ends_as(app: App, result: str) -> Outcome:
    """Decide again until a write ends as `result`: settings are followed beside decisions."""
    while (reported := await app.ends(wants=3 if app.replicas != 3 else 4)).result != result:
        await app.made.topics.read()
    return reported


async def test_a_frozen_cluster_is_not_written_to_until_it_thaws(app: App) -> None:
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)))
    reported = await until_ends_as(app, "refused")
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(frozen=False)))
    assert reported.error == "cluster east is frozen"
    await until_ends_as(app, "applied")


async def test_a_pause_that_comes_after_the_decision_stops_its_write(app: App) -> None:
    pause = Command(command="pause", cluster="*", pause_kind="scaleUp" if app.replicas == 3 else "all")
    await _set(app.made, pause)
    reported = await until_ends_as(app, "refused")
    await _set(app.made, Command(command="resume", cluster="*"))
    assert "cluster east was paused after the decision" in reported.error
    await until_ends_as(app, "applied")


async def test_a_cluster_with_an_agent_is_the_agents_to_write(app: App) -> None:
    await _set(app.made, AgentSet(cluster="east", incarnation=1))
    reported = await until_ends_as(app, "refused")
    await _set(app.made, AgentSet(cluster="east", incarnation=1, left=True))
    assert reported.error == "cluster east has an agent, which alone writes there"
    await until_ends_as(app, "applied")


async def test_nothing_is_written_in_a_cluster_that_is_not_the_one_that_was_stated(app: App) -> None:
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(cluster_uid=_OTHER)))
    reported = await until_ends_as(app, "failed")
    replicas = app.replicas
    assert reported.error == (
        f"the settings of east state clusterUid {_OTHER}, and its namespace kube-system has UID {cluster_uid(app.sim)}"
    )
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(cluster_uid=cluster_uid(app.sim))))
    await until_ends_as(app, "applied")
    assert app.replicas != replicas
    await _set(app.made, SettingsSet(cluster="east", settings=ClusterSettings(), unset=["clusterUid"]))


async def _set(made: Rig, entry: SettingsSet | AgentSet | Command) -> None:
    record = PublicRecord(v=1, entries=[entry], time=1)
    producer = AIOKafkaProducer(bootstrap_servers=made.kafka.bootstrap_servers)
    await producer.start()
    await producer.send_and_wait(SETTINGS, encode(record), key=b"*", partition=0)
    await producer.stop()

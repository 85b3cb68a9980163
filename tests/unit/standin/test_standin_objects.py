"""What the stand-in keeps and writes: effective specs, policies, ConfigMaps, the objects of Kubernetes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from reconciler.agents.standin.effective import Keeper, KeptSpec, Policy, effective_spec, floor_now, policy_of
from reconciler.agents.standin.evidence import LONGEST_PROOF_MS, PROOF_MS
from reconciler.agents.standin.objects import (
    NOTICED_MS,
    PROOF_ANNOTATION,
    REASON_ANNOTATION,
    REASON_CHARACTERS,
    SHARD_BYTES,
    UNREPORTED_ANNOTATION,
    UNREPORTED_BYTES,
    acquired_ms,
    closed_body,
    is_scaled_to_zero,
    lease_body,
    lease_seen,
    native_body,
    native_seen,
    native_trouble,
    proof_ms_of,
    scaled_to_zero,
    store_bodies,
    stored,
    unreported,
    unreported_text,
    with_unreported,
)
from reconciler.agents.standin.protocol import HpaKey
from reconciler.core.fence import GENERATION_LABEL, STAND_IN, STORE_NAME, fence_manifests
from reconciler.core.lease import PROTOCOL
from reconciler.core.objects import STAND_IN_LABEL
from schemas.agentknowledge import KnownPause
from schemas.agents import STAND_IN_POLICY as POLICY
from schemas.decisions import Decision, InputPosition, MetricDecision, Step
from schemas.entries import ControlTransferred, LeftNative
from schemas.kubernetes.gotimes import rfc3339_seconds
from schemas.kubernetes.validation import validate_create
from schemas.observed import Mode, Origin

Json = dict[str, Any]
WEB = HpaKey("shop", "web")
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
SPEC: Json = {
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    "minReplicas": 2,
    "maxReplicas": 9,
    "metrics": [CPU],
}
KEPT = KeptSpec(namespace="shop", name="web", spec=SPEC, partition=3, position="3@70")


def hpa(policy: str | None = None) -> Json:
    annotations = {} if policy is None else {POLICY: policy}
    return {"metadata": {"name": "web", "namespace": "shop", "annotations": annotations}, "spec": SPEC}


def decision(
    name: str = "web", *, mode: Mode = "enforce", origin: Origin = "central", ratio: str = "1", replicas: int = 4
) -> Decision:
    return Decision(
        id="3-70-0",
        seq=1,
        prev="",
        cluster="east",
        namespace="shop",
        name=name,
        uid="u",
        time="2026-11-22T09:00:00Z",
        input=InputPosition(partition=3, offset=70, hash=""),
        mode=mode,
        origin=origin,
        current_replicas=replicas,
        metrics=[MetricDecision(type="Resource", name="cpu", ratio=ratio)],
    )


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        (None, Policy()),
        ("native", Policy()),
        ("hold", Policy("hold")),
        ("floor=12", Policy("floor", 12)),
        ("floor=peak-24h", Policy("floor")),
        ("floor=", None),
        ("floor=-1", None),
        ("Native", None),
    ],
)
def test_policies(text: str | None, policy: Policy | None) -> None:
    assert policy_of(hpa(text)) == policy


def _kept(*decisions: Decision, policy: str | None = None, pauses: tuple[KnownPause, ...] = (), **more: Any) -> Any:
    keeper = Keeper(more.pop("stored", {}))
    for each in decisions:
        keeper.decided(each, 1_000)
    hpas = {("shop", name): hpa(policy) for name in {each.name for each in decisions} | {"web"}}
    return keeper.kept(more.pop("hpas", hpas), pauses, is_frozen=more.pop("is_frozen", False))


def test_enforced_central_hpas_are_kept_with_their_position_in_the_log() -> None:
    assert _kept(decision()) == {WEB: KEPT}


@pytest.mark.parametrize(
    "found",
    [
        _kept(decision(mode="shadow")),
        _kept(decision(mode="off")),
        _kept(decision(origin="cluster")),
        _kept(decision(), is_frozen=True),
        _kept(decision(), policy="hold"),
        _kept(decision(), policy="no policy"),
        _kept(),
        _kept(decision(), hpas={}),
    ],
    ids=["shadow", "off", "not central", "frozen", "hold", "unreadable policy", "never decided", "deleted"],
)
def test_what_is_not_kept(found: Json) -> None:
    assert found == {}


def test_what_is_stored_holds_until_more_is_known() -> None:
    stored_before = {WEB: structs.replace(KEPT, spec={**SPEC, "maxReplicas": 5})}
    assert _kept(stored=stored_before, hpas=None) == stored_before
    assert _kept(stored=stored_before)[WEB] == KEPT  # the spec of now, the position of then


def test_the_most_urgent_come_first() -> None:
    found = _kept(decision("api", ratio="0.5"), decision("web", ratio="2.5"), decision("db", ratio="1.1"))
    assert [key.name for key in found] == ["web", "db", "api"]


def test_floors() -> None:
    assert _kept(decision(replicas=4), policy="floor=12")[WEB].floor == 12
    assert _kept(decision(replicas=4), decision(replicas=7), decision(), policy="floor=peak-24h")[WEB].floor == 7


def test_the_peaks_of_a_day_survive_a_restart_and_end_after_it() -> None:
    hour_ms, hpas = 3_600_000, {("shop", "web"): hpa("floor=peak-24h")}
    keeper = Keeper({})
    for hour, replicas in ((0, 9), (1, 5), (2, 6)):
        keeper.decided(decision(replicas=replicas), hour * hour_ms)
    kept = keeper.kept(hpas, (), is_frozen=False)
    assert (kept[WEB].floor, kept[WEB].peaks) == (9, {0: 9, 1: 5, 2: 6})
    again = Keeper(stored(store_bodies(kept, "home")))
    assert again.kept(hpas, (), is_frozen=False)[WEB].floor == 9
    again.decided(decision(replicas=4), 23 * hour_ms)
    assert again.kept(hpas, (), is_frozen=False)[WEB].floor == 9
    again.decided(decision(replicas=4), 24 * hour_ms)
    assert again.kept(hpas, (), is_frozen=False)[WEB].floor == 6


def test_peaks_are_kept_where_they_count_only() -> None:
    assert _kept(decision(), policy="floor=3")[WEB].peaks == {}
    assert _kept(decision())[WEB].peaks == {}


def _change(generation: int, natives: int = 0) -> ControlTransferred:
    left = [LeftNative(namespace="shop", name=f"web-{number}", last_scale=number) for number in range(natives)]
    return ControlTransferred(cluster="east", holder=STAND_IN, generation=generation, time=generation * 7, natives=left)


def _lease(*changes: ControlTransferred) -> Json:
    body = lease_body("home", STAND_IN, 3, "t", proof_ms=60_000, grace_ms=30_000, changes=changes)
    body["metadata"]["resourceVersion"] = "5"
    return body


def test_the_lease_names_the_changes_that_are_not_in_the_log_yet() -> None:
    changes = [_change(2, natives=3), _change(3)]
    lease = _lease(*changes)
    assert unreported(lease) == changes
    assert unreported(with_unreported(lease, changes[1:])) == changes[1:]
    done = with_unreported(lease, [])
    assert (unreported(done), done["metadata"]["annotations"]) == ([], _lease()["metadata"]["annotations"])
    lease["metadata"]["annotations"][UNREPORTED_ANNOTATION] = '[{"kind":'
    assert unreported(lease) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param([_change(2, 4_000), _change(3, 100)], [(2, 0), (3, 100)], id="the oldest says nothing of HPAs"),
        pytest.param([_change(2, 4_000), _change(3, 4_000)], [(2, 0), (3, 0)], id="nor do the others"),
    ],
)
def test_an_annotation_stays_small(changes: list[ControlTransferred], named: list[tuple[int, int]]) -> None:
    assert len(unreported_text(changes)) <= UNREPORTED_BYTES
    assert [(each.generation, len(each.natives)) for each in unreported(_lease(*changes))] == named


def test_the_newest_of_very_many_changes_are_named() -> None:
    found = unreported(_lease(*(_change(generation) for generation in range(1, 3_000))))
    assert found[-1].generation == 2_999
    assert 500 < len(found) < 2_999


PAUSE = KnownPause(kind="scaleDown", namespace="shop", name="web", until=50_000)


@pytest.mark.parametrize(
    ("pauses", "up", "down"),
    [
        ((), None, None),
        ((PAUSE,), None, 50_000),
        ((KnownPause(),), 0, 0),
        ((PAUSE, KnownPause(kind="scaleDown", namespace="shop", until=90_000)), None, 90_000),
        ((PAUSE, KnownPause(kind="scaleDown")), None, 0),
        ((KnownPause(namespace="other"), KnownPause(namespace="shop", name="api")), None, None),
    ],
)
def test_pauses_of_every_scope(pauses: tuple[KnownPause, ...], up: int | None, down: int | None) -> None:
    found = _kept(decision(), pauses=pauses)[WEB]
    assert (found.paused_up, found.paused_down) == (up, down)


def test_a_pause_in_force_disables_its_direction_and_one_that_has_ended_does_not() -> None:
    kept = structs.replace(KEPT, paused_down=50_000)
    assert effective_spec(kept, 49_999)["behavior"] == {"scaleDown": {"selectPolicy": "Disabled"}}
    assert effective_spec(kept, 50_000) == SPEC
    assert effective_spec(structs.replace(KEPT, paused_up=0), 1 << 50)["behavior"]["scaleUp"]


OVERRIDE = KnownPause(kind="override", namespace="shop", name="web", until=50_000, replicas=7)
_SCALE_UNREADABLE = structs.replace(decision(), steps=[])
_OF_A_FLEET = structs.replace(decision(), steps=[Step(step="allotment", in_=4, out=5)])


@pytest.mark.parametrize(
    ("made", "pauses", "found"),
    [
        pytest.param(decision(), (OVERRIDE,), (7, 50_000), id="in force"),
        pytest.param(_SCALE_UNREADABLE, (OVERRIDE,), (7, 50_000), id="whose scale could not be read"),
        pytest.param(decision(), (), (None, 0), id="ended"),
        pytest.param(decision(), (structs.replace(OVERRIDE, name="api"),), (None, 0), id="of another HPA"),
        pytest.param(_OF_A_FLEET, (OVERRIDE,), (None, 0), id="of an HPA that a FleetHPA gives its share"),
    ],
)
def test_an_override_is_kept_as_the_hub_knew_it_whatever_the_last_evaluation_saw(
    made: Decision, pauses: tuple[KnownPause, ...], found: tuple[int | None, int]
) -> None:
    kept = _kept(made, pauses=pauses)[WEB]
    assert (kept.override, kept.override_until) == found
    assert (kept.paused_up, kept.paused_down) == (None, None)
    if made is not _OF_A_FLEET:  # which only decisions show
        assert _kept(stored=stored(store_bodies({WEB: kept}, "home")), pauses=pauses)[WEB] == kept  # after a restart


BOTH_DISABLED = {"scaleUp": {"selectPolicy": "Disabled"}, "scaleDown": {"selectPolicy": "Disabled"}}


@pytest.mark.parametrize(
    ("changes", "bounds"),
    [
        pytest.param({"override": 7}, (7, 7), id="both bounds"),
        pytest.param({"override": 70}, (9, 9), id="not above maxReplicas"),
        pytest.param({"override": 1}, (2, 2), id="not below minReplicas"),
        pytest.param({"override": 7, "paused_up": 0}, (2, 7), id="scale-ups are paused: no bound lifts the replicas"),
        pytest.param({"override": 7, "paused_down": 0}, (7, 9), id="scale-downs are paused: no bound lowers them"),
        pytest.param({"override": 7, "paused_up": 0, "paused_down": 0}, (2, 9), id="all is paused"),
    ],
)
def test_an_override_in_force_bounds_the_native_hpa_as_far_as_no_pause_holds_it(
    changes: dict[str, Any], bounds: tuple[int, int]
) -> None:
    kept = structs.replace(KEPT, override_until=50_000, **changes)
    spec = effective_spec(kept, 49_999)
    assert (spec["minReplicas"], spec["maxReplicas"], spec["behavior"]) == (*bounds, BOTH_DISABLED)
    body = native_body(kept, 7, 49_999)
    assert validate_create(body) == []
    assert not native_seen(_listed(body, observedGeneration=1)).is_closed


def test_an_override_that_has_ended_leaves_the_spec_as_it_was() -> None:
    assert effective_spec(structs.replace(KEPT, override=7, override_until=50_000), 50_000) == SPEC


# --- objects ----------------------------------------------------------------------------------------------------------


def test_a_native_hpa_is_valid_and_bears_our_labels_only() -> None:
    body = native_body(KEPT, 7, 0)
    assert validate_create(body) == []
    assert body["metadata"]["labels"] == {STAND_IN_LABEL: "true", GENERATION_LABEL: "7"}
    assert "annotations" not in body["metadata"] or POLICY not in body["metadata"]["annotations"]


def _listed(body: Json, generation: int = 1, **status: Any) -> Json:
    metadata = body["metadata"] | {"uid": "u1", "resourceVersion": "9", "generation": generation}
    return body | {"metadata": metadata, "status": status}


def test_a_closed_native_hpa_has_ended_once_its_controller_has_seen_that() -> None:
    live = _listed(native_body(KEPT, 7, 0), observedGeneration=1)
    closed = _listed(closed_body(live, 8), 2, observedGeneration=1)
    assert validate_create(closed_body(live, 8) | {"metadata": {"name": "web", "namespace": "shop"}}) == []
    seen = [native_seen(each) for each in (live, closed, _listed(closed, 2, observedGeneration=2))]
    assert [(each.generation, each.is_closed, each.is_ended) for each in seen] == [
        (7, False, False),
        (8, True, False),
        (8, True, True),
    ]


def test_a_closed_native_hpa_without_a_target_has_ended() -> None:
    closed = closed_body(_listed(native_body(KEPT, 7, 0)), 8)
    assert native_seen(_listed(closed, 2, conditions=[{"type": "AbleToScale", "reason": "FailedGetScale"}])).is_ended


def test_an_hpa_whose_owner_paused_both_directions_is_not_taken_for_closed() -> None:
    paused = native_body(structs.replace(KEPT, paused_up=0, paused_down=0), 7, 0)
    assert not native_seen(_listed(paused, observedGeneration=1)).is_closed


def test_a_limit_does_not_move_a_closed_hpa() -> None:
    closed = closed_body(_listed(native_body(KEPT, 7, 0)), 8)["spec"]
    assert (closed["minReplicas"], closed["maxReplicas"]) == (1, 2_147_483_647)
    to_zero = _listed(native_body(structs.replace(KEPT, spec={**SPEC, "minReplicas": 0}), 7, 0))
    assert closed_body(to_zero, 8)["spec"]["minReplicas"] == 0


def test_a_lease_is_read_as_it_was_written() -> None:
    now = "2026-11-22T09:00:00.000000Z"
    body = lease_body("fleethpa-system", "stand-in", 7, now, proof_ms=60_000, grace_ms=30_000)
    body["metadata"] |= {"uid": "u1", "resourceVersion": "9"}
    seen = lease_seen(body)
    assert (seen.holder, seen.generation, seen.version, seen.uid, seen.protocol) == ("stand-in", 7, "9", "u1", PROTOCOL)
    body["metadata"]["annotations"]["fleethpa.io/protocol"] = "2x"
    assert lease_seen(body).protocol > PROTOCOL


def test_a_target_at_zero_is_marked() -> None:
    native = _listed(native_body(KEPT, 7, 0), conditions=[{"type": "AbleToScale", "status": "True"}])
    assert not is_scaled_to_zero(native)
    marked = scaled_to_zero(native, "2026-11-22T09:00:00Z")
    assert is_scaled_to_zero(marked)
    assert len(marked["status"]["conditions"]) == 2


# --- what is kept -----------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(st.tuples(st.text("ab-", min_size=1), st.text("cd.", min_size=1)), st.integers(0, 9), max_size=9)
)
def test_what_is_stored_comes_back(names: dict[tuple[str, str], int]) -> None:
    kept = {
        HpaKey(*key): structs.replace(KEPT, namespace=key[0], name=key[1], floor=floor) for key, floor in names.items()
    }
    for least in (1, 4):
        maps = store_bodies(kept, "fleethpa-system", least)
        assert len(maps) == least
        assert stored(maps) == kept


def test_large_fleets_are_split_below_the_limit_of_a_config_map() -> None:
    metrics = [CPU] * 10
    kept = {
        HpaKey("shop", f"hpa-{number}"): structs.replace(KEPT, name=f"hpa-{number}", spec={**SPEC, "metrics": metrics})
        for number in range(2_000)
    }
    maps = store_bodies(kept, "fleethpa-system")
    sizes = [sum(len(key) + len(text) for key, text in each["data"].items()) for each in maps]
    assert len(maps) > 1
    assert max(sizes) <= SHARD_BYTES
    assert stored(maps) == kept


def test_a_set_that_is_not_whole_does_not_count() -> None:
    kept = {WEB: KEPT}
    old, new = store_bodies(kept, "fleethpa-system", 1), store_bodies({}, "fleethpa-system", 2)
    assert stored([*old, new[0]]) == kept
    assert stored([*old, *new]) == {}
    old[0]["data"]["damaged"] = "{"
    assert stored(old) == kept


def test_of_a_set_that_lost_a_part_the_rest_counts_where_no_other_is_whole() -> None:
    kept = {HpaKey("shop", name): structs.replace(KEPT, name=name) for name in map(str, range(20))}
    rest = store_bodies(kept, "fleethpa-system", 4)[1:]
    assert 0 < len(stored(rest)) < len(kept)
    assert stored(rest).items() < kept.items()
    assert stored([*store_bodies(kept, "fleethpa-system", 1), *rest]) == kept


@pytest.mark.parametrize("spec", [{}, {"scaleTargetRef": None}, {"scaleTargetRef": {"kind": "Deployment"}}])
def test_an_entry_that_names_no_target_is_passed_over(spec: dict[str, Any]) -> None:
    damaged = structs.replace(KEPT, name="other", spec=spec)
    assert stored(store_bodies({WEB: KEPT, damaged.key: damaged}, "fleethpa-system")) == {WEB: KEPT}


def test_the_fence_is_bound_to_the_lease_and_refuses_where_that_is_gone() -> None:
    documents = fence_manifests(home="fleethpa-system", service_account="fleethpa")
    assert [each["kind"].removeprefix("ValidatingAdmissionPolicy") for each in documents] == ["", "Binding"] * 3
    for binding in documents[1:4:2]:
        assert binding["spec"]["paramRef"] == {
            "name": "fleethpa-hub",
            "namespace": "fleethpa-system",
            "parameterNotFoundAction": "Deny",
        }


def test_the_fence_lets_an_agent_write_those_configmaps_alone_that_hold_its_specs() -> None:
    policy, binding = fence_manifests(home="fleethpa-system", service_account="fleethpa")[4:]
    assert policy["spec"]["validations"][0]["expression"] == f"request.name.startsWith('{STORE_NAME}')"
    assert all(each["metadata"]["name"].startswith(STORE_NAME) for each in store_bodies({WEB: KEPT}, "home", 4))
    # It needs no Lease: there is one rule, whoever is in charge.
    assert "paramKind" not in policy["spec"]
    assert "paramRef" not in binding["spec"]


@pytest.mark.parametrize(
    ("text", "found_ms"),
    [
        ("120000", 120_000),
        ("0", PROOF_MS),
        ("soon", PROOF_MS),
        ("\u00b2", PROOF_MS),
        pytest.param("9" * 15, LONGEST_PROOF_MS, id="nobody makes the hand-back wait for ever"),
        pytest.param("9" * 5_000, PROOF_MS, id="more digits than can be read"),
    ],
)
def test_how_long_the_hub_must_show_life_is_bounded_whatever_the_lease_says(text: str, found_ms: int) -> None:
    assert proof_ms_of({"metadata": {"annotations": {PROOF_ANNOTATION: text}}}) == found_ms
    assert proof_ms_of({"metadata": {}}) == proof_ms_of(None) == PROOF_MS


@pytest.mark.parametrize(
    ("text", "found_ms"),
    [("1970-01-01T00:00:02.500000Z", 2_500), ("1970-01-01T00:00:02Z", 2_000), ("", None), (None, None), ("now", None)],
)
def test_since_when_the_holder_has_the_lease(text: str | None, found_ms: int | None) -> None:
    assert acquired_ms({"spec": {"acquireTime": text}}) == found_ms


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"floor": None}, None),
        ({"floor": 4}, 4),
        ({"floor": 4_000}, SPEC["maxReplicas"]),
        ({"floor": 4, "paused_up": 0}, None),
        ({"floor": 4, "paused_up": 2_000}, None),
        ({"floor": 4, "paused_up": 1_000}, 4),
        ({"floor": 4, "paused_down": 0}, 4),
        ({"floor": 4, "override": 6, "override_until": 2_000}, 6),
        ({"floor": 4, "override": 3, "override_until": 2_000}, 3),
        ({"floor": 4, "override": 6, "override_until": 1_000}, 4),
        ({"floor": 4, "override": 6, "paused_up": 0}, None),
    ],
)
def test_a_floor_is_not_above_the_maximum_and_waits_for_the_end_of_a_pause(
    changes: dict[str, Any], found: int | None
) -> None:
    assert floor_now(structs.replace(KEPT, **changes), now_ms=1_000) == found


_CREATED_MS = 1_795_269_600_000


@pytest.mark.parametrize(
    ("status", "age_ms", "trouble"),
    [
        pytest.param({}, NOTICED_MS - 1, "", id="it was created a moment ago"),
        pytest.param({}, NOTICED_MS, "no native HPA controller has evaluated it", id="no controller runs"),
        pytest.param({"observedGeneration": 1}, 10 * NOTICED_MS, "", id="it was evaluated"),
        pytest.param(
            {
                "observedGeneration": 1,
                "conditions": [
                    {"type": "AbleToScale", "status": "False", "reason": "FailedUpdateScale", "message": "no"}
                ],
            },
            0,
            "no",
            id="its controller cannot write the scale",
        ),
        pytest.param(
            {"observedGeneration": 1, "conditions": [{"type": "ScalingActive", "status": "False", "message": "no"}]},
            0,
            "",
            id="its metrics are missing, which would stop the hub, too",
        ),
    ],
)
def test_why_the_native_controller_does_not_scale(status: Json, age_ms: int, trouble: str) -> None:
    native = {"metadata": {"creationTimestamp": rfc3339_seconds(_CREATED_MS)}, "status": status}
    found = native_trouble(native, _CREATED_MS + age_ms)
    assert found.startswith(trouble)
    assert bool(found) is bool(trouble)


def test_the_reason_of_a_take_over_is_kept_in_the_lease_and_cut_where_it_is_long() -> None:
    given: Any = {"proof_ms": 1, "grace_ms": 1}
    body = lease_body("home", "stand-in", 3, "t", **given, reason="no right " * 1_000)
    body["metadata"]["resourceVersion"] = "1"
    assert lease_seen(body).reason == ("no right " * 1_000)[:REASON_CHARACTERS]
    assert REASON_ANNOTATION not in lease_body("home", "hub/main/1", 4, "t", **given)["metadata"]["annotations"]

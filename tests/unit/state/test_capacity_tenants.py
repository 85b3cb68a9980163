"""What a tenant writes on its own HPAs takes nothing of a CapacityGroup away from others."""

from typing import Any

import pytest

from schemas import limits
from schemas.capacity import CapacityLimit, CapacityMatch, CapacityPriority, CapacityReport, CapacitySpec
from schemas.limits import share_of
from schemas.observed import AutoscalerList
from streams.across.allotments import CapacityClaim, granted
from streams.across.capacity import SETTLES_MS, fold_report, replica_use
from streams.state.fold import EntryFold
from tests.kit.capacity import GROUP, LABELS, Ceiling
from tests.kit.fleet import NAME
from tests.kit.partition import make_hpa, scale

AT_REST, HIGH = {"east": 200, "west": 200}, {"east": 400, "west": 400}
TENANT = "tenant"


def _begun(maximum: int, **spec: Any) -> Ceiling:
    run = Ceiling({"east": 4, "west": 4}, maximum, **spec)
    run.rest(AT_REST)
    return run


def _tenant(run: Ceiling, namespace: str, replicas: int, **annotations: str) -> None:
    """An HPA in shadow, in its own namespace of cluster east, whose Deployment says so many replicas and has no pod."""
    hpa = make_hpa(NAME, "uid-of-the-tenant", minReplicas=1, maxReplicas=2_000_000)
    hpa["metadata"] |= {"namespace": namespace, "labels": dict(LABELS), "annotations": annotations}
    log = run.logs["east"]
    bodies = (AutoscalerList(list_id="t", hpas=[hpa], session="s"), scale(NAME, replicas, session="s"))
    for body in bodies:
        log.add(log.entry(body, f"east/{namespace}"))


@pytest.mark.parametrize("replicas", [1, 1_000_000])
@pytest.mark.parametrize("annotation", [{}, {"fleethpa.io/units": "cpu=9e8"}])
@pytest.mark.parametrize("spec", [{"namespaces": ["shop"]}, {"namespaces": ["*"]}], ids=["not of it", "of it"])
def test_a_scale_without_pods_takes_nothing_away(spec: Any, annotation: dict[str, str], replicas: int) -> None:
    limit = CapacityLimit(kind="units", name="cpu", count=1_600) if annotation else CapacityLimit(count=16)
    run = _begun(16, limit=limit, **spec)
    _tenant(run, TENANT, replicas, **annotation)
    for _ in range(8):
        run.period(HIGH)
    assert run.replicas == {"east": 8, "west": 8}


def test_a_group_is_of_no_namespace_that_it_does_not_name() -> None:
    run = _begun(8, namespaces=[])
    for _ in range(3):
        run.period(HIGH)
    assert run.total > 8, "it bounds nobody"


@pytest.mark.parametrize(
    ("annotation", "is_central", "use"),
    [
        ("cpu=9", True, 9_000),
        ("cpu=9", False, 400),
        ("cpu=0", False, 100),
        ("cpu=0.2", False, 200),
        ("license=9", True, 0),
        ("", False, 100),
    ],
)
def test_units_of_a_tenant_count_as_far_as_its_pods_request_them(annotation: str, is_central: bool, use: int) -> None:
    run = _begun(8)
    state = run.logs["east"].partition.state
    (hpa,) = state.hpas.values()
    pods = state.namespaces["east/shop"].membership.matching("app=web", state.settings("east").controller.rules)
    limit = CapacityLimit(kind="units", name="cpu", count=1)
    assert replica_use(annotation, limit, state.settings("east"), pods, is_central=is_central) == use
    assert hpa.row.origin == "central"


@pytest.mark.parametrize(
    ("namespaces", "priorities"),
    [(["shop"], {"shop": 10, "tenant": 0}), (["*"], {"shop": 10, "tenant": 10}), ([], {"shop": 0, "tenant": 0})],
)
def test_a_label_is_a_priority_only_in_the_namespaces_that_the_group_names(
    namespaces: list[str], priorities: dict[str, int]
) -> None:
    front = CapacityPriority(selector={"matchLabels": {"tier": "front"}}, namespaces=namespaces, value=10)
    spec = CapacitySpec(selector={}, limit=CapacityLimit(count=6), namespaces=["*"], priorities=[front])
    found = {name: CapacityMatch(spec).priority("east", name, {"tier": "front"}) for name in ("shop", "tenant")}
    assert found == priorities


@pytest.mark.parametrize("wants", [1_000_000, 12])
def test_an_hpa_that_wants_without_measure_leaves_others_of_its_namespace_their_part(wants: int) -> None:
    claims = [CapacityClaim("east/shop/greedy", 0, wants), CapacityClaim("east/shop/web", 0, 6)]
    assert granted(12, claims) == {"east/shop/greedy": 8, "east/shop/web": 4}


def test_a_namespace_that_wants_without_measure_leaves_others_their_part() -> None:
    tenants = [CapacityClaim(f"east/tenant/{number}", 0, 1_000_000) for number in range(50)]
    more = granted(12, [*tenants, CapacityClaim("east/shop/web", 0, 6)])
    assert more["east/shop/web"] >= 4
    assert sum(more.values()) == 12


def test_hpas_of_one_namespace_fill_neither_a_group_nor_all_groups() -> None:
    run = _begun(8)
    state = run.logs[run.whole].partition.state
    (revision,) = {each.revision for each in state.row.groups.values()}
    for number in range(2_000):
        name = f"hpa-{number}-" + "x" * 200
        fold_report(
            EntryFold(state),
            CapacityReport(group=GROUP, cluster="east", namespace=TENANT, name=name, revision=revision, at=number),
        )
    state.now_ms += SETTLES_MS
    filled = [key for key in state.row.ceilings[GROUP].members if key.startswith("east/tenant/")]
    assert sum([len(key) for key in filled]) <= share_of(limits.ALL_MEMBERS.most)
    assert len(filled) <= share_of(limits.CAPACITY_MEMBERS.most)
    report = CapacityReport(group=GROUP, cluster="east", namespace="payments", name="web", revision=revision, at=1)
    fold_report(EntryFold(state), report)
    assert "east/payments/web" in state.row.ceilings[GROUP].members

"""What an agent knows: snapshots in parts, changes between them, and never half of a snapshot."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.knowledge import KnowledgeFold, Learnt
from schemas.agentknowledge import AgentKnowledge, CentralHpa
from schemas.settings import ClusterSettings, SettingsSet

FROZEN = SettingsSet(cluster="east", settings=ClusterSettings(frozen=True))


def hpa(name: str, high: int = 5, **changes: Any) -> CentralHpa:
    named: dict[str, Any] = {"hpa": {"spec": {"maxReplicas": high}}} | changes
    return CentralHpa(namespace="shop", name=name, **named)


def part(name: str, chunk: int, chunks: int, *hpas: CentralHpa, settings: tuple[SettingsSet, ...] = ()) -> Any:
    return AgentKnowledge(
        v=1, cluster="east", time=1, snapshot=name, chunk=chunk, chunks=chunks, hpas=list(hpas), settings=list(settings)
    )


def change(*hpas: CentralHpa, settings: tuple[SettingsSet, ...] = ()) -> AgentKnowledge:
    return AgentKnowledge(v=1, cluster="east", time=1, hpas=list(hpas), settings=list(settings))


def test_a_snapshot_counts_once_all_its_parts_have_come() -> None:
    fold = KnowledgeFold()
    assert fold.add(part("s", 0, 2, hpa("web"), settings=(FROZEN,))) == Learnt({})
    assert (fold.is_complete, fold.hpas) == (False, {})
    learnt = fold.add(part("s", 1, 2, hpa("api")))
    assert (set(learnt.hpas), learnt.has_settings) == ({("shop", "web"), ("shop", "api")}, True)
    assert (fold.is_complete, fold.settings) == (True, [FROZEN])


def test_what_a_later_snapshot_does_not_name_is_gone() -> None:
    fold = KnowledgeFold()
    fold.add(part("s", 0, 1, hpa("web"), hpa("api"), settings=(FROZEN,)))
    learnt = fold.add(part("t", 0, 1, hpa("web", 9)))
    assert learnt == Learnt({("shop", "api"): None, ("shop", "web"): {"spec": {"maxReplicas": 9}}}, True)
    assert fold.settings == []


def test_an_equal_snapshot_brings_nothing_new_but_the_first_always_does() -> None:
    fold = KnowledgeFold()
    assert fold.add(part("s", 0, 1)) == Learnt({}, True)
    assert fold.add(part("t", 0, 1)) == Learnt({})


def test_half_a_snapshot_of_a_router_that_died_is_dropped() -> None:
    fold = KnowledgeFold()
    fold.add(part("s", 0, 2, hpa("old")))
    fold.add(part("t", 0, 2, hpa("web")))
    learnt = fold.add(part("t", 1, 2))
    assert list(learnt.hpas) == [("shop", "web")]


def test_a_change_between_two_parts_is_newer_than_both() -> None:
    fold = KnowledgeFold()
    fold.add(part("s", 0, 2, hpa("web", 5)))
    fold.add(change(hpa("web", 9), hpa("gone", deleted=True), settings=(FROZEN,)))
    fold.add(part("s", 1, 2, hpa("gone")))
    assert fold.hpas == {("shop", "web"): {"spec": {"maxReplicas": 9}}}
    assert fold.settings == [FROZEN]


@given(st.lists(st.tuples(st.sampled_from(["set", "delete", "snapshot"]), st.sampled_from("abc"), st.integers(1, 9))))
def test_it_always_knows_what_the_router_knew(steps: list[tuple[str, str, int]]) -> None:
    fold, known = KnowledgeFold(), dict[str, int]()
    for number, (step, name, high) in enumerate(steps):
        if step == "set":
            known[name] = high
            fold.add(change(hpa(name, high)))
        elif step == "delete":
            known.pop(name, None)
            fold.add(change(hpa(name, deleted=True)))
        else:
            for chunk, each in enumerate(known):
                fold.add(part(f"s{number}", chunk, len(known), hpa(each, known[each])))
    assert fold.hpas == {("shop", name): {"spec": {"maxReplicas": high}} for name, high in known.items()}

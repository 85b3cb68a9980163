"""Who is in charge of a cluster: each state of the Lease, and what follows from it."""

import pytest
from msgspec import structs

from reconciler.agents.standin.protocol import (
    CLOSING,
    CloseNative,
    CreateLease,
    CreateNative,
    DeleteNative,
    HpaKey,
    Judgement,
    NativeSeen,
    OpenNative,
    Renew,
    Request,
    Seen,
    SetHolder,
    agent_steps,
    hub_refusal,
    is_stand_in,
)
from reconciler.core.fence import STAND_IN
from reconciler.core.lease import PROTOCOL, SeenLease

HUB = "hub/eu/k1"
WEB, API = HpaKey("shop", "web"), HpaKey("shop", "api")
SILENT = Judgement(is_hub_silent=True, is_settled=True)
PROVEN = Judgement(is_hub_proven=True, is_settled=True)
CALM = Judgement(is_settled=True)
FRESH = Judgement()


def lease(holder: str, generation: int = 7) -> SeenLease:
    return SeenLease(holder, generation, "v1", "u1")


OPEN = NativeSeen(WEB, "n1", "r1", 7, "spec")
CLOSED = structs.replace(OPEN, is_closed=True)
ENDED = structs.replace(CLOSED, is_ended=True)
HELD = structs.replace(ENDED, is_deleting=True)
RENEW = Renew("v1", "u1")


def _steps(seen: Seen, judged: Judgement, remembered: int = 0) -> list[Request]:
    return agent_steps(seen, judged, hub=HUB, wanted={API: "other", WEB: "spec"}, remembered=remembered)


@pytest.mark.parametrize(
    ("seen", "judged", "steps"),
    [
        pytest.param(Seen(lease(HUB)), CALM, [RENEW], id="the hub lives"),
        pytest.param(Seen(lease(HUB)), PROVEN, [RENEW], id="the hub has lived for long"),
        pytest.param(Seen(lease("hub/us/k2")), CALM, [], id="another hub, and ours shows no life yet"),
        pytest.param(Seen(lease("hub/us/k2")), PROVEN, [SetHolder(CLOSING, 8, "v1", "u1")], id="another hub before"),
        pytest.param(Seen(lease(HUB)), SILENT, [SetHolder(STAND_IN, 8, "v1", "u1")], id="take-over"),
        pytest.param(
            Seen(lease(HUB), (OPEN,)), CALM, [RENEW, CloseNative(WEB, 7, "n1", "r1")], id="a late creation ends alone"
        ),
        pytest.param(Seen(lease(HUB), (CLOSED,)), CALM, [RENEW], id="one that is left is waited for"),
        pytest.param(Seen(lease(HUB), (ENDED,)), CALM, [RENEW, DeleteNative(WEB, "n1", "r1")], id="and deleted"),
        pytest.param(Seen(lease(HUB), (HELD,)), CALM, [RENEW], id="a finalizer keeps it"),
        pytest.param(Seen(lease(STAND_IN)), FRESH, [RENEW], id="nothing is created before the fence has followed"),
        pytest.param(
            Seen(lease(STAND_IN)), SILENT, [RENEW, CreateNative(API, 7), CreateNative(WEB, 7)], id="created in order"
        ),
        pytest.param(Seen(lease(STAND_IN), (OPEN,)), SILENT, [RENEW, CreateNative(API, 7)], id="the rest is created"),
        pytest.param(
            Seen(lease(STAND_IN), (structs.replace(CLOSED, generation=5),)),
            SILENT,
            [RENEW, CreateNative(API, 7), OpenNative(WEB, 7, "n1", "r1")],
            id="a hand-back was broken off",
        ),
        pytest.param(
            Seen(lease(STAND_IN), (structs.replace(OPEN, spec="old"),)),
            SILENT,
            [RENEW, CreateNative(API, 7), OpenNative(WEB, 7, "n1", "r1")],
            id="another spec",
        ),
        pytest.param(
            Seen(lease(STAND_IN), (HELD,)),
            SILENT,
            [RENEW, CreateNative(API, 7)],
            id="one that ends is not enabled again",
        ),
        pytest.param(Seen(lease(STAND_IN)), PROVEN, [SetHolder(CLOSING, 8, "v1", "u1")], id="hand-back"),
        pytest.param(Seen(lease(CLOSING), (OPEN,)), FRESH, [RENEW], id="creations may still come"),
        pytest.param(
            Seen(lease(CLOSING), (OPEN,)), CALM, [RENEW, CloseNative(WEB, 7, "n1", "r1")], id="first it is disabled"
        ),
        pytest.param(
            Seen(lease(CLOSING), (structs.replace(ENDED, generation=6),)),
            CALM,
            [RENEW, CloseNative(WEB, 7, "n1", "r1")],
            id="what an earlier closing disabled is disabled anew",
        ),
        pytest.param(Seen(lease(CLOSING), (CLOSED,)), CALM, [RENEW], id="a native write may still come"),
        pytest.param(
            Seen(lease(CLOSING), (ENDED,)), CALM, [RENEW, DeleteNative(WEB, "n1", "r1")], id="then it is deleted"
        ),
        pytest.param(Seen(lease(CLOSING)), FRESH, [RENEW], id="not before it has settled"),
        pytest.param(Seen(lease(CLOSING)), CALM, [SetHolder(HUB, 8, "v1", "u1")], id="the hub has it back"),
        pytest.param(
            Seen(lease(CLOSING), (CLOSED,)), SILENT, [SetHolder(STAND_IN, 8, "v1", "u1")], id="hub gone again"
        ),
        pytest.param(
            Seen(lease(CLOSING), (CLOSED,)),
            Judgement(is_settled=True, is_stuck=True),
            [SetHolder(HUB, 8, "v1", "u1")],
            id="the native controller does not answer",
        ),
        pytest.param(
            Seen(lease(CLOSING), (HELD,)),
            CALM,
            [SetHolder(HUB, 8, "v1", "u1")],
            id="what a finalizer keeps is not waited for",
        ),
        pytest.param(
            Seen(lease(CLOSING), (HELD, structs.replace(OPEN, key=API))),
            CALM,
            [RENEW, CloseNative(API, 7, "n1", "r1")],
            id="the others are waited for",
        ),
        pytest.param(
            Seen(lease(CLOSING), (structs.replace(HELD, is_closed=False, is_ended=False),)),
            CALM,
            [RENEW, CloseNative(WEB, 7, "n1", "r1")],
            id="one that was enabled again is disabled again",
        ),
        pytest.param(Seen(lease("")), CALM, [SetHolder(CLOSING, 8, "v1", "u1")], id="a holder that was removed"),
        pytest.param(Seen(lease("ada")), SILENT, [SetHolder(STAND_IN, 8, "v1", "u1")], id="an unknown one, hub silent"),
        pytest.param(Seen(lease("ada"), (OPEN,)), CALM, [SetHolder(STAND_IN, 8, "v1", "u1")], id="one beside HPAs"),
        pytest.param(Seen(None), CALM, [CreateLease(CLOSING, 1)], id="a cluster that has no Lease"),
        pytest.param(Seen(None, (OPEN,)), CALM, [CreateLease(STAND_IN, 8)], id="the Lease was deleted in a stand-in"),
        pytest.param(
            Seen(structs.replace(lease(HUB), protocol=PROTOCOL + 1)), SILENT, [], id="a newer version of the protocol"
        ),
    ],
)
def test_what_an_agent_does(seen: Seen, judged: Judgement, steps: list[Request]) -> None:
    assert _steps(seen, judged) == steps


def test_a_new_lease_has_a_generation_above_all_that_are_known() -> None:
    assert _steps(Seen(None), CALM, remembered=11) == [CreateLease(CLOSING, 12)]
    assert _steps(Seen(None, (structs.replace(OPEN, generation=30),)), CALM, 11) == [CreateLease(STAND_IN, 31)]


def test_what_is_no_longer_wanted_ends_as_in_a_hand_back() -> None:
    for native, step in (
        (OPEN, [CloseNative(WEB, 7, "n1", "r1")]),
        (CLOSED, []),
        (ENDED, [DeleteNative(WEB, "n1", "r1")]),
    ):
        seen = Seen(lease(STAND_IN), (native,))
        assert agent_steps(seen, SILENT, hub=HUB, wanted={}) == [RENEW, *step]


BY_STAND_IN = "(generation 7, holder stand-in)"


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (lease(HUB), ""),
        (None, "nobody is in charge of the cluster: its Lease is gone"),
        (lease(STAND_IN), "the cluster is in the hands of its stand-in (generation 7, holder stand-in)"),
        (lease(CLOSING), "the cluster is in the hands of its stand-in (generation 7, holder closing)"),
        (
            structs.replace(lease(STAND_IN), reason="no right"),
            f"the cluster is in the hands of its stand-in {BY_STAND_IN}, which took over because of this: no right",
        ),
        (lease("hub/us/k2"), "another hub is in charge of the cluster: hub/us/k2"),
        (
            structs.replace(lease(HUB), protocol=2),
            "the cluster's Lease follows version 2 of the protocol; this process knows 1",
        ),
    ],
)
def test_when_the_hub_may_write(seen: SeenLease | None, reason: str) -> None:
    assert hub_refusal(seen, hub=HUB) == reason


def test_only_the_stand_in_is_the_stand_in() -> None:
    found = [is_stand_in(each) for each in (None, lease(HUB), lease(CLOSING), lease(STAND_IN))]
    assert found == [False, False, False, True]


@pytest.mark.parametrize(
    ("seen", "judged", "steps"),
    [
        pytest.param(Seen(lease(HUB)), SILENT, [RENEW], id="a silent hub stays in charge"),
        pytest.param(Seen(lease(CLOSING)), SILENT, [SetHolder(HUB, 8, "v1", "u1")], id="it gets the cluster back"),
        pytest.param(
            Seen(lease(CLOSING), (CLOSED,)), CALM, [RENEW, DeleteNative(WEB, "n1", "r1")], id="nobody has to confirm"
        ),
        pytest.param(
            Seen(lease(CLOSING), (OPEN,)),
            Judgement(is_settled=True, is_stuck=True, is_hub_silent=True),
            [SetHolder(HUB, 8, "v1", "u1")],
            id="never back to a stand-in that nobody evaluates",
        ),
        pytest.param(Seen(None, (OPEN,)), CALM, [CreateLease(CLOSING, 8)], id="nor with a new Lease"),
        pytest.param(Seen(lease("ada"), (OPEN,)), CALM, [SetHolder(CLOSING, 8, "v1", "u1")], id="nor after an edit"),
    ],
)
def test_without_a_native_controller_the_hub_stays_in_charge(
    seen: Seen, judged: Judgement, steps: list[Request]
) -> None:
    assert agent_steps(seen, judged, hub=HUB, wanted={}, has_native_controller=False) == steps

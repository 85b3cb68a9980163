"""Short records are given back whole with the full record that they repeat."""

from msgspec import structs

from reconciler.core.inbox import KEPT_MS, FullRecords
from schemas.decisions import Decision, InputPosition, MetricDecision, ShortDecision, Step, expand
from schemas.keys import HpaId
from schemas.observed import Target

STATUS = {
    "currentReplicas": 3,
    "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "100m"}}}
    ],
}
NOWHERE = InputPosition(partition=0, offset=0, hash="")
FULL = Decision(
    id="0-1-u",
    seq=1,
    prev="",
    cluster="east",
    namespace="shop",
    name="web",
    uid="u",
    time="2026-11-21T12:00:00.000Z",
    input=InputPosition(partition=0, offset=1, hash=""),
    mode="enforce",
    metrics=[MetricDecision(type="Resource", name="cpu", value=100, utilization=50)],
    status=STATUS,
)


def short(of: str, seq: int = 2) -> ShortDecision:
    return ShortDecision(
        id=f"0-{seq}-u",
        seq=seq,
        prev="",
        same_as=of,
        time="2026-11-21T12:00:15.000Z",
        input=InputPosition(partition=0, offset=seq, hash=""),
        m=[(242, 121, 7, "2.0", "")],
    )


def test_a_short_record_has_the_status_of_its_own_values() -> None:
    known = FullRecords()
    assert known.repeated(short("0-1-u")) is None
    known.take(FULL, 0, 0)
    shown = known.repeated(short("0-1-u"))
    assert shown is not None
    whole = shown.whole()
    assert whole.status is not None
    values = whole.status["currentMetrics"][0]["resource"]["current"]
    assert (values, whole.time) == ({"averageValue": "242m", "averageUtilization": 121}, "2026-11-21T12:00:15.000Z")


def test_what_status_and_events_need_of_a_record_comes_back() -> None:
    full = structs.replace(
        FULL,
        prev="ab",
        steps=[Step(step="metrics", in_=3, out=7)],
        observed={"specReplicas": 3},
        labels={"action": "none"},
        constraints_applied=["Tolerance"],
        error="no metrics",
        origin="central",
        shows_refusal=True,
        scale_target_ref={"kind": "Deployment", "name": "web"},
        target=Target(kind="Deployment", name="web", group="apps"),
        events=[("Warning", "FailedGetScale", "no scale")],
    )
    known = FullRecords()
    known.take(full, 0, 0)
    shown = known.repeated(short(full.id))
    assert shown is not None
    unused = {"steps": [], "observed": {}, "labels": {}, "constraints_applied": [], "error": "", "spec_hash": ""}
    assert shown.whole() == structs.replace(expand(short(full.id), full), input=NOWHERE, **unused)
    assert (shown.hpa, shown.has_status, shown.has_events) == (HpaId("east", "shop", "web"), False, True)


def test_one_full_record_per_hpa_is_kept_the_newest() -> None:
    known = FullRecords()
    known.take(FULL, 0, 0)
    known.take(structs.replace(FULL, id="0-9-u", seq=9), 0, 0)
    assert known.repeated(short("0-1-u", 10)) is None
    assert known.repeated(short("0-9-u", 10)) is not None
    known.take(structs.replace(FULL, id="0-4-u", seq=4), 0, 0)  # read back while newer ones were read on
    assert known.repeated(short("0-9-u", 10)) is not None
    assert len(known) == 1


def test_what_no_short_record_repeats_is_not_kept() -> None:
    known = FullRecords()
    known.take(structs.replace(FULL, wants=5, status=None), 0, 0)
    known.take(structs.replace(FULL, kind="completion", completes="0-1-u"), 0, 0)
    assert len(known) == 0


def test_what_shows_nothing_is_not_kept_and_takes_the_place_of_what_did() -> None:
    known = FullRecords()
    assert known.take(FULL, 0, 0) is not None
    assert known.take(structs.replace(FULL, id="0-2-u", seq=2, mode="shadow"), 0, 0) is None
    assert (len(known), known.repeated(short("0-1-u")), known.repeated(short("0-2-u"))) == (0, None, None)


def test_a_record_that_wants_replicas_is_shown_without_being_kept() -> None:
    known = FullRecords()
    wanting = structs.replace(FULL, wants=5)
    shown = known.take(wanting, 0, 0)
    assert shown is not None
    assert (shown.whole(), len(known)) == (structs.replace(wanting, input=NOWHERE), 0)


def test_what_waits_shares_the_record_that_short_ones_repeat() -> None:
    known = FullRecords()
    known.take(FULL, 0, 0)
    first, second = known.repeated(short("0-1-u")), known.repeated(short("0-1-u", 3))
    assert first is not None
    assert second is not None
    assert first.full is second.full
    assert first.hpa is second.hpa


def test_records_of_partitions_that_were_given_up_and_of_hpas_that_are_gone_are_forgotten() -> None:
    known = FullRecords()
    known.take(FULL, 0, 0)
    known.take(structs.replace(FULL, id="1-1-v", name="api"), 1, 1_000)
    known.forget({1})
    assert (len(known), known.repeated(short("0-1-u")) is not None) == (1, True)
    known.take(structs.replace(FULL, id="2-1-w", name="cart"), 2, KEPT_MS + 1)
    assert (len(known), known.repeated(short("0-1-u"))) == (1, None)

"""Short records are given back whole with the full record that they repeat."""

from msgspec import structs

from reconciler.core.fullrecords import KEPT_MS, FullRecords
from schemas.decisions import Decision, InputPosition, MetricDecision, ShortDecision, Step, expand
from schemas.scales import Target

STATUS = {
    "currentReplicas": 3,
    "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "100m"}}}
    ],
}
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
        m=[(242, 121, 7, "2.0")],
    )


def test_a_short_record_has_the_status_of_its_own_values() -> None:
    known = FullRecords()
    assert known.whole(short("0-1-u")) is None
    known.take(FULL, 0, 0)
    whole = known.whole(short("0-1-u"))
    assert whole is not None
    assert whole.status is not None
    shown = whole.status["currentMetrics"][0]["resource"]["current"]
    assert (shown, whole.time) == ({"averageValue": "242m", "averageUtilization": 121}, "2026-11-21T12:00:15.000Z")


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
    whole = known.whole(short(full.id))
    unused = {"steps": [], "observed": {}, "labels": {}, "constraints_applied": [], "error": "", "spec_hash": ""}
    assert whole == structs.replace(expand(short(full.id), full), **unused)


def test_one_full_record_per_hpa_is_kept_the_newest() -> None:
    known = FullRecords()
    known.take(FULL, 0, 0)
    known.take(structs.replace(FULL, id="0-9-u", seq=9), 0, 0)
    assert known.whole(short("0-1-u", 10)) is None
    assert known.whole(short("0-9-u", 10)) is not None
    known.take(structs.replace(FULL, id="0-4-u", seq=4), 0, 0)  # read back while newer ones were read on
    assert known.whole(short("0-9-u", 10)) is not None
    assert len(known) == 1


def test_what_no_short_record_repeats_is_not_kept() -> None:
    known = FullRecords()
    known.take(structs.replace(FULL, wants=5, status=None), 0, 0)
    known.take(structs.replace(FULL, kind="completion", completes="0-1-u"), 0, 0)
    assert len(known) == 0


def test_records_of_partitions_that_were_given_up_and_of_hpas_that_are_gone_are_forgotten() -> None:
    known = FullRecords()
    known.take(FULL, 0, 0)
    known.take(structs.replace(FULL, id="1-1-v", name="api"), 1, 1_000)
    known.forget({1})
    assert (len(known), known.whole(short("0-1-u")) is not None) == (1, True)
    known.take(structs.replace(FULL, id="2-1-w", name="cart"), 2, KEPT_MS + 1)
    assert (len(known), known.whole(short("0-1-u"))) == (1, None)

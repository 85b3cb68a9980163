"""What answers of the metrics APIs become, and Go's number conversions."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.core.metricanswers import fill
from schemas.answers import MetricAnswer, MetricsApiName, Query, is_root_scoped, metric_query
from schemas.codec import decode, encode
from schemas.kubernetes.gotimes import ZERO_TIME_MS, parse_duration_ms, parse_time_ms, rfc3339_seconds
from schemas.kubernetes.textcolumns import parse_durations_ms
from streams.hpa import gofloat
from streams.hpa.observation import (
    ExternalSamples,
    MetricFailure,
    MetricReading,
    PodSamples,
    compile_answer,
    fetch_failure,
)

TIME = "2000-01-01T00:00:10Z"
TIME_MS = 946_684_810_000


def usage(pod: str, *containers: tuple[str, dict[str, str]]) -> dict[str, Any]:
    made = [{"name": name, "usage": values} for name, values in containers]
    return {"metadata": {"name": pod}, "timestamp": TIME, "window": "15s", "containers": made}


def read(api: MetricsApiName, body: dict[str, Any], resource: str = "", container: str = "") -> MetricReading:
    """Read an API's body as it is deployed: by the observer, over the wire, by the evaluation."""
    return compile_answer(decode(encode(fill(Query(api=api), body)), MetricAnswer), resource, container)


def resource_answer(body: dict[str, Any], resource: str, container: str) -> MetricReading:
    return read("resource", body, resource, container)


def pods_answer(body: dict[str, Any]) -> MetricReading:
    return read("pods", body)


def external_answer(body: dict[str, Any]) -> MetricReading:
    return read("external", body)


def object_list_answer(body: dict[str, Any]) -> MetricReading:
    return read("object", body)


def samples_of(answer: object) -> dict[str, tuple[int, int, int]]:
    assert isinstance(answer, PodSamples)
    return answer.samples


def test_a_pods_value_is_the_sum_of_its_containers() -> None:
    body = {"items": [usage("p0", ("a", {"cpu": "100m"}), ("b", {"cpu": "1500u"}))]}

    assert samples_of(resource_answer(body, "cpu", "")) == {"p0": (102, TIME_MS, 15_000)}


def test_an_item_without_a_window_covers_no_time() -> None:
    item = usage("p0", ("a", {"cpu": "100m"}))
    del item["window"]

    assert samples_of(resource_answer({"items": [item]}, "cpu", "")) == {"p0": (100, TIME_MS, 0)}


def test_r34_one_container_without_the_resource_makes_the_pod_missing() -> None:
    body = {"items": [usage("p0", ("a", {"cpu": "1"}), ("b", {"memory": "1"})), usage("p1", ("a", {"cpu": "1"}))]}

    assert list(samples_of(resource_answer(body, "cpu", ""))) == ["p1"]


def test_r35_a_pod_without_the_container_is_missing_and_the_others_are_used() -> None:
    body = {"items": [usage("p0", ("b", {"cpu": "1"})), usage("p1", ("a", {"cpu": "2"}), ("a", {"cpu": "9"}))]}

    assert samples_of(resource_answer(body, "cpu", "a")) == {"p1": (2000, TIME_MS, 15_000)}


def test_the_last_item_of_a_pod_wins_and_the_default_window_is_a_minute() -> None:
    items = [
        {"describedObject": {"name": "p0"}, "timestamp": TIME, "value": value, **window}
        for value, window in (("1", {"windowSeconds": 5}), ("2", {}))
    ]

    assert samples_of(pods_answer({"items": items})) == {"p0": (2000, TIME_MS, 60_000)}


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        pytest.param(5, 5000, id="a number"),
        pytest.param(0.25, 250, id="a number with a fraction"),
        pytest.param(" 5m ", 5, id="a text with spaces around it"),
    ],
)
def test_a_quantity_is_read_as_gos_decoder_reads_it(value: Any, milli: int) -> None:
    item = {"describedObject": {"name": "p0"}, "timestamp": TIME, "value": value}
    cpu = {"items": [usage("p0", ("a", {"cpu": value}))]}

    assert samples_of(pods_answer({"items": [item]})) == {"p0": (milli, TIME_MS, 60_000)}
    assert samples_of(resource_answer(cpu, "cpu", "")) == {"p0": (milli, TIME_MS, 15_000)}
    assert samples_of(resource_answer(cpu, "cpu", "a")) == {"p0": (milli, TIME_MS, 15_000)}


@pytest.mark.parametrize("value", [None, True, [], {}, "", "5x"])
def test_what_is_no_quantity_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="quantit"):
        external_answer({"items": [{"timestamp": TIME, "value": value}]})


def test_a_time_that_is_null_or_absent_is_gos_zero_time() -> None:
    items: list[dict[str, Any]] = [
        {"describedObject": {"name": "p0"}, "timestamp": None, "value": "1"},
        {"describedObject": {"name": "p1"}, "value": "1"},
    ]

    assert {sample[1] for sample in samples_of(pods_answer({"items": items})).values()} == {ZERO_TIME_MS}


def test_a_window_beyond_64_bit_of_nanoseconds_wraps() -> None:
    item = {"describedObject": {"name": "p0"}, "timestamp": TIME, "value": "1", "windowSeconds": 2**63 - 1}

    assert samples_of(pods_answer({"items": [item]})) == {"p0": (1000, TIME_MS, -1000)}


def test_every_external_series_is_read() -> None:
    later = "2000-01-01T00:00:11Z"
    items = [{"timestamp": time, "value": value} for time, value in ((later, "1"), (TIME, "-2500m"))]

    assert external_answer({"items": items}) == ExternalSamples((1000, -2500), TIME_MS, TIME_MS + 1000)


@pytest.mark.parametrize(
    ("read", "error"),
    [
        pytest.param(
            lambda body: resource_answer(body, "cpu", ""),
            "no metrics returned from resource metrics API",
            id="resource",
        ),
        pytest.param(pods_answer, "no metrics returned from custom metrics API", id="pods"),
        pytest.param(external_answer, "no metrics returned from external metrics API", id="external"),
        pytest.param(
            object_list_answer,
            "unable to fetch metrics from custom metrics API: "
            "the custom metrics API server returned 0 results when we asked for exactly one",
            id="object",
        ),
    ],
)
@pytest.mark.parametrize("body", [{"items": []}, {"items": None}, {}])
def test_an_answer_without_items_is_an_error_not_zero(
    read: Callable[[dict[str, Any]], object], error: str, body: dict[str, Any]
) -> None:
    assert read(body) == MetricFailure(error)


def test_a_refused_request_is_reported_with_the_apis_name() -> None:
    assert fetch_failure("external", "boom").error == "unable to fetch metrics from external metrics API: boom"


@pytest.mark.parametrize(
    ("described", "query"),
    [
        pytest.param(
            {"kind": "Namespace", "name": "other", "apiVersion": "v1"}, ("Namespace", "other", True), id="its own"
        ),
        pytest.param(
            {"kind": "Namespace", "name": "other", "apiVersion": "acme.io/v1"},
            ("Namespace.acme.io", "other", False),
            id="O13 only the core kind",
        ),
        pytest.param({"kind": "Service", "name": "svc", "apiVersion": "v1"}, ("Service", "svc", False), id="core"),
    ],
)
def test_which_object_is_asked_for(described: dict[str, str], query: tuple[str, str, bool]) -> None:
    made = metric_query({"type": "Object", "object": {"metric": {"name": "m"}, "describedObject": described}}, "app=x")

    assert made is not None
    assert (made.group_kind, made.object, is_root_scoped(made)) == query


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("15s", 15_000),
        ("12.345s", 12_345),
        ("1m30s", 90_000),
        ("0", 0),
        ("1h", 3_600_000),
        ("-1.5s", -1500),
        ("9us", 0),
        ("+2s", 2_000),
    ],
)
def test_durations_are_gos(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        pytest.param("-5s", -5000, id="a negative window"),
        pytest.param("1500μs", 1, id="micro as the Greek letter"),
        pytest.param("1500µs", 1, id="micro as the sign of its own"),
        pytest.param("9223372036854775807ns", 9_223_372_036_854, id="the longest"),
        pytest.param("-9223372036854775808ns", -9_223_372_036_854, id="the shortest"),
        pytest.param(".5h", 1_800_000, id="a fraction alone"),
        pytest.param("1.h", 3_600_000, id="a point without a fraction"),
        pytest.param("0.9999999999999999999999s", 1000, id="more digits than 63 bits hold, rounded as doubles are"),
    ],
)
def test_durations_at_gos_edges(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@given(st.lists(st.from_regex(r"[0-9]{0,4}(\.[0-9]{0,12})?[smu,]{1,2}", fullmatch=True)))
@example(["15.123s", "0s", "9.999999999s", "15s", "8.29s", "99999.9999s", "0.00099999s"])
@example(["1s,2s", "3"])
@example(["6057034081s", "1.5s"])
@example(["54087413844s"])
def test_durations_are_read_in_one_go_as_each_is(texts: list[str]) -> None:
    try:
        wanted = list(map(parse_duration_ms, texts))
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            parse_durations_ms(texts)
    else:
        assert parse_durations_ms(texts) == wanted


def test_a_duration_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond 64 bits"):
        parse_duration_ms("9223372036854775808ns")


@pytest.mark.parametrize(
    ("timestamp", "time_ms"),
    [
        pytest.param("2000-01-01T00:00:10.0006Z", TIME_MS, id="finer than a millisecond is cut off"),
        pytest.param("2000-01-01T00:00:10.9999Z", TIME_MS + 999, id="never rounded up"),
        pytest.param("2000-01-01T02:00:10+02:00", TIME_MS, id="another zone"),
        pytest.param(None, ZERO_TIME_MS, id="null is the zero time"),
        pytest.param("0001-01-01T00:00:00Z", ZERO_TIME_MS, id="the zero time written out"),
    ],
)
def test_the_time_of_a_sample_is_read_as_upstream_reads_it(timestamp: str | None, time_ms: int) -> None:
    item = {"describedObject": {"name": "p0"}, "timestamp": timestamp, "value": "1"}

    assert samples_of(pods_answer({"items": [item]})) == {"p0": (1000, time_ms, 60_000)}


def test_a_negative_window_of_a_pods_metrics_is_kept() -> None:
    item = usage("p0", ("a", {"cpu": "100m"})) | {"window": "-5s"}

    assert samples_of(resource_answer({"items": [item]}, "cpu", "")) == {"p0": (100, TIME_MS, -5000)}


@pytest.mark.parametrize("text", ["2000-01-01", "20000101T000000Z", "2000-W01-1T00:00:00Z", "2000-01-01 00:00:00Z", ""])
def test_other_forms_of_iso_8601_are_not_times(text: str) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time_ms(text)


def test_times_are_written_with_four_digits_of_the_year() -> None:
    assert rfc3339_seconds(ZERO_TIME_MS) == "0001-01-01T00:00:00Z"
    assert rfc3339_seconds(TIME_MS + 999) == TIME


@pytest.mark.parametrize("text", ["", "15", "s", "1 s", "1m 30s", "fast", "5x", "--5s", ".s", "1m5"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        parse_duration_ms(text)


def test_times_need_a_zone() -> None:
    assert parse_time_ms("2000-01-01T01:00:10.5+01:00") == TIME_MS + 500
    with pytest.raises(ValueError, match="RFC 3339"):
        parse_time_ms("2000-01-01T00:00:10")


@pytest.mark.parametrize(
    ("value", "int32", "ceil32"),
    [
        (1.5, 1, 2),
        (-1.5, -1, -1),
        (2147483647.0, 2147483647, 2147483647),
        (2147483647.5, 2147483647, -2147483648),
        (2147483648.0, -2147483648, -2147483648),
        (-2147483648.5, -2147483648, -2147483648),
        (-2147483649.0, -2147483648, -2147483648),
        (math.inf, -2147483648, -2147483648),
        (-math.inf, -2147483648, -2147483648),
        (math.nan, -2147483648, -2147483648),
    ],
)
def test_doubles_become_int32_as_on_amd64(value: float, int32: int, ceil32: int) -> None:
    assert (gofloat.int32(value), gofloat.ceil32(value)) == (int32, ceil32)


@pytest.mark.parametrize("value", [2.0**63, -(2.0**64), math.inf, math.nan])
def test_doubles_out_of_int64_become_its_minimum(value: float) -> None:
    assert gofloat.ceil64(value) == gofloat.MIN_INT64


def test_division_is_ieee() -> None:
    assert gofloat.divide(1.0, 0.0) == math.inf
    assert gofloat.divide(-1.0, 0.0) == -math.inf
    assert math.isnan(gofloat.divide(0.0, 0.0))
    assert gofloat.divide(1.0, 4.0) == 0.25


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3), (gofloat.MIN_INT64, -1, gofloat.MIN_INT64)],
)
def test_integer_division_cuts_toward_zero(dividend: int, divisor: int, quotient: int) -> None:
    assert gofloat.trunc_div(dividend, divisor) == quotient

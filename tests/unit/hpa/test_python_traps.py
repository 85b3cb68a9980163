"""Where Python computes or prints otherwise than Go does on amd64, by name."""

import math
from typing import Any

import pytest

from fleethpa.show import text as ages
from schemas.kubernetes.gotimes import parse_duration_ms, parse_time_ms, rfc3339_seconds
from schemas.kubernetes.hpa import semantically_equal_status
from schemas.kubernetes.quantity import format_milli, parse_milli, parse_quantity
from streams.hpa import gofloat
from streams.hpa.autoscaler import compile_autoscaler
from streams.hpa.calculator import bounds
from streams.hpa.metrics import action
from tests.kit.hpa import Controller, Group, behavior, calculate, external_metric, hpa, policy, resource, wanting, world

INF, NAN = math.inf, math.nan
MAX_INT32, MIN_INT32 = 2**31 - 1, -(2**31)
MAX_INT64, MIN_INT64 = 2**63 - 1, -(2**63)
BELOW_2_31 = math.nextafter(2.0**31, 0)
BELOW_2_63 = math.nextafter(2.0**63, 0)

# --- division: // goes down, Go goes toward zero ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient", "floored"),
    [
        pytest.param(-7, 2, -3, -4, id="negative dividend"),
        pytest.param(7, -2, -3, -4, id="negative divisor"),
        pytest.param(-7, -2, 3, 3, id="both"),
        pytest.param(7, 2, 3, 3, id="neither"),
        pytest.param(-1, 1000, 0, -1, id="less than one"),
        pytest.param(MIN_INT64, -1, MIN_INT64, 2**63, id="the one quotient that does not fit wraps"),
    ],
)
def test_division_truncates(dividend: int, divisor: int, quotient: int, floored: int) -> None:
    assert gofloat.trunc_div(dividend, divisor) == quotient
    assert dividend // divisor == floored


def test_a_negative_average_is_truncated() -> None:
    pods, answer = world(Group(1, -10), Group(1, -5))

    assert calculate(resource(average=1000), answer, current=2, pods=pods).value == -7


def test_a_negative_percentage_is_truncated() -> None:
    pods, answer = world(Group(1, -199, request_milli=1000))

    assert calculate(resource(percent=50), answer, current=1, pods=pods).value == -19


def test_milliseconds_before_the_epoch_belong_to_the_second_before() -> None:
    assert rfc3339_seconds(-1) == "1969-12-31T23:59:59Z"
    assert parse_time_ms("1969-12-31T23:59:59.999Z") == -1


def test_ages_are_cut_off_toward_zero() -> None:
    assert ages.human_duration(-1.5) == "0s"
    assert ages.human_duration(-2) == "<invalid>"


# --- rounding: round() goes to even, Go's code takes the ceiling ------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        pytest.param("0.0005", 1, id="half a thousandth goes up, round() gives 0"),
        pytest.param("0.0025", 3, id="two and a half too, round() gives 2"),
        pytest.param("0.0001", 1, id="a little never becomes none"),
        pytest.param("-0.0001", -1, id="nor below zero: away from it"),
        pytest.param("1.0001", 1001, id="up, not to the nearest"),
    ],
)
def test_quantities_round_up(text: str, milli: int) -> None:
    assert parse_milli(text) == milli


@pytest.mark.parametrize(
    ("usage", "proposal"), [pytest.param(112, 12, id="11.2"), pytest.param(125, 13, id="12.5: round() gives 12")]
)
def test_replicas_round_up(usage: int, proposal: int) -> None:
    pods, answer = world(Group(10, usage))

    assert calculate(resource(average=100), answer, current=10, pods=pods).proposal == proposal


@pytest.mark.parametrize(
    ("percent", "count", "up", "down"),
    [
        pytest.param(10, 100, 111, 90, id="100 times 1.1 is more than 110"),
        pytest.param(90, 10, 19, 0, id="10 times (1 - 0.9) is less than 1"),
        pytest.param(80, 5, 9, 0, id="5 times (1 - 0.8) too"),
        pytest.param(1, 3, 4, 2, id="a little is one"),
    ],
)
def test_percent_policies_follow_the_doubles(percent: int, count: int, up: int, down: int) -> None:
    rules = {"policies": [policy("Percent", percent, 60)]}
    controller = Controller(
        hpa([external_metric(average=1000)], low=0, behavior=behavior(rules, rules)), recommendations=()
    )

    limits = [controller.evaluate(count, wanting(desired)).normalization for desired in (1000, 0)]

    assert [each and each.rate_limit for each in limits] == [up, down]


# --- doubles out of range: int() raises or grows, amd64 gives the minimum ---------------------------------------------


@pytest.mark.parametrize(
    ("value", "cut", "up"),
    [
        pytest.param(0.5, 0, 1, id="a half"),
        pytest.param(-0.5, 0, 0, id="minus a half"),
        pytest.param(-1.5, -1, -1, id="minus one and a half"),
        pytest.param(2147483647.0, MAX_INT32, MAX_INT32, id="the largest"),
        pytest.param(2147483646.5, 2147483646, MAX_INT32, id="just below it"),
        pytest.param(BELOW_2_31, MAX_INT32, MIN_INT32, id="its ceiling does not fit, what is cut off does"),
        pytest.param(2147483648.0, MIN_INT32, MIN_INT32, id="one too many"),
        pytest.param(-2147483648.0, MIN_INT32, MIN_INT32, id="the smallest"),
        pytest.param(-2147483648.5, MIN_INT32, MIN_INT32, id="just below it"),
        pytest.param(-2147483647.5, -2147483647, -2147483647, id="just above it"),
        pytest.param(-2147483649.0, MIN_INT32, MIN_INT32, id="one too few"),
        pytest.param(3e9, MIN_INT32, MIN_INT32, id="three thousand million is not wrapped"),
        pytest.param(INF, MIN_INT32, MIN_INT32, id="infinity"),
        pytest.param(-INF, MIN_INT32, MIN_INT32, id="minus infinity"),
        pytest.param(NAN, MIN_INT32, MIN_INT32, id="no number"),
    ],
)
def test_doubles_become_int32_as_on_amd64(value: float, cut: int, up: int) -> None:
    assert (gofloat.int32(value), gofloat.ceil32(value)) == (cut, up)


@pytest.mark.parametrize(
    ("value", "up"),
    [
        pytest.param(1.5, 2, id="one and a half"),
        pytest.param(-1.5, -1, id="minus one and a half"),
        pytest.param(BELOW_2_63, 2**63 - 1024, id="the largest double below 2^63"),
        pytest.param(2.0**63, MIN_INT64, id="2^63, which MaxInt64 rounds to"),
        pytest.param(-(2.0**63), MIN_INT64, id="the smallest"),
        pytest.param(-(2.0**63) + 1024, MIN_INT64 + 1024, id="the double above it"),
        pytest.param(-1e19, MIN_INT64, id="too small"),
        pytest.param(INF, MIN_INT64, id="infinity"),
        pytest.param(NAN, MIN_INT64, id="no number"),
    ],
)
def test_doubles_become_int64_as_on_amd64(value: float, up: int) -> None:
    assert gofloat.ceil64(value) == up


# --- wrap-around: Python's integers grow ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "low32", "low64"),
    [
        pytest.param(2**31, MIN_INT32, 2**31, id="2^31"),
        pytest.param(-(2**31) - 1, MAX_INT32, -(2**31) - 1, id="-2^31 - 1"),
        pytest.param(2**32 + 5, 5, 2**32 + 5, id="2^32 + 5"),
        pytest.param(2**63, 0, MIN_INT64, id="2^63"),
        pytest.param(-(2**63) - 1, -1, MAX_INT64, id="-2^63 - 1"),
        pytest.param(2**64 + 3, 3, 3, id="2^64 + 3"),
        pytest.param(MAX_INT32, MAX_INT32, MAX_INT32, id="MaxInt32"),
        pytest.param(MIN_INT32, MIN_INT32, MIN_INT32, id="MinInt32"),
    ],
)
def test_integers_wrap(value: int, low32: int, low64: int) -> None:
    assert (gofloat.wrap32(value), gofloat.wrap64(value)) == (low32, low64)


def test_a_percentage_beyond_int32_wraps() -> None:
    pods, answer = world(Group(1, 30_000_000, request_milli=1))

    made = calculate(resource(percent=50), answer, current=1, pods=pods)

    assert made.value == -1_294_967_296
    assert made.wrapped


# --- division by zero and NaN: Python raises, IEEE 754 does not -------------------------------------------------------


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [
        pytest.param(1.0, 0.0, INF, id="one by zero"),
        pytest.param(-1.0, 0.0, -INF, id="minus one by zero"),
        pytest.param(1.0, -0.0, -INF, id="one by minus zero"),
        pytest.param(-1.0, -0.0, INF, id="minus one by minus zero"),
        pytest.param(INF, 0.0, INF, id="infinity by zero"),
        pytest.param(6.0, 4.0, 1.5, id="six by four"),
    ],
)
def test_division_by_zero_is_an_infinity(dividend: float, divisor: float, quotient: float) -> None:
    assert gofloat.divide(dividend, divisor) == quotient


@pytest.mark.parametrize(("dividend", "divisor"), [(0.0, 0.0), (-0.0, 0.0), (NAN, 0.0), (NAN, 2.0), (INF, INF)])
def test_zero_by_zero_is_no_number(dividend: float, divisor: float) -> None:
    assert math.isnan(gofloat.divide(dividend, divisor))


def test_no_number_is_never_within_tolerance() -> None:
    low, high = bounds(1e9, 1e9)

    assert not low <= NAN <= high


def test_bounds_of_the_tolerance_are_those_of_the_doubles() -> None:
    low, high = bounds(0.1, 0.1)

    assert (low, high) == (0.9, 1.1)
    assert high >= 55 / 50, "1.1 is within"
    assert not abs(1 - 55 / 50) <= 0.1, "the older form was false"


# --- order: dictionaries remember how they were filled ----------------------------------------------------------------


def test_the_order_of_keys_changes_no_label_selector_text() -> None:
    from schemas.kubernetes.selectors import print_label_selector

    one, other = {"b": "2", "a": "1"}, {"a": "1", "b": "2"}

    assert print_label_selector({"matchLabels": one}) == print_label_selector({"matchLabels": other})


def test_the_order_of_keys_changes_no_compiled_spec() -> None:
    metric = external_metric(average=1000)
    turned = {key: metric[key] for key in reversed(metric)}

    one, other = compile_autoscaler(hpa([metric])), compile_autoscaler(hpa([turned]))

    assert one == other


def test_the_order_of_keys_changes_no_status() -> None:
    controller = Controller(hpa([external_metric(average=1000)]))
    controller.sync(5, wanting(5))

    assert semantically_equal_status(controller.status, dict(reversed(controller.status.items())))


# --- text: what %v, %d and the suffixes print -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("milli", "decimal", "binary"),
    [
        pytest.param(0, "0", "0", id="zero"),
        pytest.param(1, "1m", "1m", id="a thousandth"),
        pytest.param(999, "999m", "999m", id="below one"),
        pytest.param(1_000, "1", "1", id="one"),
        pytest.param(1_500, "1500m", "1500m", id="one and a half, no 1.5"),
        pytest.param(1_000_000, "1k", "1k", id="a thousand: below 1024 binary prints decimal"),
        pytest.param(1_500_000, "1500", "1500", id="no 1.5k"),
        pytest.param(1_023_000, "1023", "1023", id="below the first binary suffix"),
        pytest.param(1_024_000, "1024", "1Ki", id="the first binary suffix"),
        pytest.param(-1_024_000, "-1024", "-1Ki", id="below zero"),
        pytest.param(1_536_000, "1536", "1536", id="no 1.5Ki"),
        pytest.param(10**18, "1P", "976562500000Ki", id="an integer, never 1e+15"),
        pytest.param(MIN_INT64, "-9223372036854775808m", "-9223372036854775808m", id="MinInt64"),
        pytest.param(MAX_INT64, "9223372036854775807m", "9223372036854775807m", id="MaxInt64"),
    ],
)
def test_milli_values_print_with_the_largest_suffix_that_keeps_them_whole(
    milli: int, decimal: str, binary: str
) -> None:
    assert (format_milli(milli), format_milli(milli, "BinarySI")) == (decimal, binary)


def test_numbers_in_messages_are_plain_decimals() -> None:
    made = Controller(hpa([external_metric(average=1000)], low=1_000_000, high=10_000_000)).evaluate(5, wanting(5))

    assert made.pending is not None
    assert made.pending.desired_replicas == 1_000_000
    done = Controller(hpa([external_metric(average=1000)], low=1_000_000, high=10_000_000)).sync(5, wanting(5))
    assert done.events[-1][2].startswith("New size: 1000000; "), "no 1e+06, no separators"


@pytest.mark.parametrize(
    ("text", "double"),
    [
        pytest.param("360m", 360 * 1e-3, id="a product, not the decimal text"),
        pytest.param("0.1", 1 * 1e-1, id="a tenth"),
        pytest.param("1e400", INF, id="too large"),
    ],
)
def test_quantities_become_doubles_by_multiplication(text: str, double: float) -> None:
    assert parse_quantity(text).as_float() == double


# --- bool is an int, and text is not bytes ----------------------------------------------------------------------------


def test_absent_is_not_zero() -> None:
    spec = hpa([resource(percent=50)])
    del spec["spec"]["minReplicas"]

    assert compile_autoscaler(spec).min_replicas == 1
    spec["spec"]["minReplicas"] = 0
    assert compile_autoscaler(spec).min_replicas == 0


def test_directions_of_equal_numbers_are_none() -> None:
    assert [action(*pair) for pair in ((2, 1), (1, 2), (1, 1))] == ["scale_up", "scale_down", "none"]


@pytest.mark.parametrize(
    ("text", "milli"),
    [("15s", 15_000), ("1m30s", 90_000), ("1.5h", 5_400_000), ("-2s", -2_000), ("0", 0), ("999us", 0), (".5s", 500)],
)
def test_durations_are_read_as_go_reads_them(text: str, milli: int) -> None:
    assert parse_duration_ms(text) == milli


@pytest.mark.parametrize("text", ["", "5", "s", "1 s", "1s ", "1d", "--1s", "\u0661s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        parse_duration_ms(text)


def test_digits_of_other_scripts_are_no_quantity() -> None:
    values: list[Any] = []
    for text in ("\u0661", "1\u00a0", "\uff11"):
        with pytest.raises(ValueError, match="quantities must match"):
            values.append(parse_quantity(text))
    assert values == []

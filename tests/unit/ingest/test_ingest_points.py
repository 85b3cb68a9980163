"""Values and times of samples: exact, or refused with a reason."""

import time
from decimal import ROUND_CEILING, Context, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.kubernetes.quantity import MAX_I64, MIN_I64
from schemas.limits import Refusal
from streams.ingest.checks import check_time, nanos_to_ms, time_to_ms, to_milli


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        pytest.param(610, 610_000, id="an integer counts whole"),
        pytest.param(-3, -3_000, id="a negative integer stays negative"),
        pytest.param(0.1, 100, id="a double counts as its shortest decimal"),
        pytest.param(0.335, 335, id="a double above its decimal is not rounded up for it"),
        pytest.param(1e-9, 1, id="less than a milli rounds away from zero"),
        pytest.param(-1e-9, -1, id="a negative one too"),
        pytest.param(-0.0, 0, id="negative zero is zero"),
        pytest.param("112.5", 112_500, id="a decimal text"),
        pytest.param("1.2345", 1_235, id="a fourth digit rounds up"),
        pytest.param("-1.2345", -1_235, id="away from zero below zero"),
        pytest.param("+5", 5_000, id="a plus sign is allowed"),
        pytest.param(".5", 500, id="no digit before the point"),
        pytest.param("5.", 5_000, id="no digit after the point"),
        pytest.param("1e3", 1_000_000, id="an exponent"),
        pytest.param("1E3", 1_000_000, id="E with digits is an exponent"),
        pytest.param("1E-4", 1, id="a small exponent rounds up"),
        pytest.param("112500m", 112_500, id="milli"),
        pytest.param("100u", 1, id="micro rounds up"),
        pytest.param("1n", 1, id="nano rounds up"),
        pytest.param("2k", 2_000_000, id="kilo"),
        pytest.param("2Gi", 2 * 2**30 * 1000, id="gibi"),
        pytest.param("1.5Ki", 1_536_000, id="a fraction of a binary unit"),
        pytest.param("9223372036854775807m", MAX_I64, id="the largest that fits"),
        pytest.param("-9223372036854775808m", MIN_I64, id="the smallest that fits"),
        pytest.param("0" * 400 + "7", 7_000, id="leading zeros do not matter"),
        pytest.param("0e99999", 0, id="zero to any power"),
    ],
)
def test_values_become_milli_units(value: object, milli: int) -> None:
    assert to_milli(value) == milli


@pytest.mark.parametrize(
    ("value", "code"),
    [
        pytest.param("NaN", "notANumber", id="NaN, as a stale marker arrives"),
        pytest.param("+Inf", "notANumber", id="infinity"),
        pytest.param("-Inf", "notANumber", id="negative infinity"),
        pytest.param(float("nan"), "notANumber", id="a NaN double"),
        pytest.param(float("inf"), "notANumber", id="an infinite double"),
        pytest.param("", "notANumber", id="an empty text"),
        pytest.param(".", "notANumber", id="no digit at all"),
        pytest.param("m", "notANumber", id="a suffix without digits"),
        pytest.param("12 ", "notANumber", id="a blank"),
        pytest.param("0x10", "notANumber", id="hexadecimal"),
        pytest.param("1_000", "notANumber", id="Python's own digits"),
        pytest.param("١٢", "notANumber", id="digits of another script"),
        pytest.param("1" * 1_100, "notANumber", id="longer than any number"),
        pytest.param(True, "notANumber", id="a boolean"),
        pytest.param(None, "notANumber", id="nothing"),
        pytest.param([1], "notANumber", id="a list"),
        pytest.param("1e2147483648", "notANumber", id="an absurd exponent"),
        pytest.param("-1e99999", "outOfRange", id="a huge negative"),
        pytest.param("9223372036854775808m", "outOfRange", id="one more than fits"),
        pytest.param(2**63 // 1000 + 1, "outOfRange", id="an integer that does not fit in milli units"),
        pytest.param(1e300, "outOfRange", id="a huge double"),
        pytest.param("1Ei", "outOfRange", id="an exbi in milli units does not fit"),
    ],
)
def test_impossible_values_are_refused(value: object, code: str) -> None:
    with pytest.raises(Refusal) as refused:
        to_milli(value)
    assert refused.value.code == code
    assert refused.value.text


def test_absurd_numbers_cost_nothing() -> None:
    started = time.perf_counter()
    for text in ("1e2147483648", "1e-999999", "1e999999", "9" * 512, "0." + "0" * 500 + "1"):
        try:
            to_milli(text)
        except Refusal:
            continue
    assert time.perf_counter() - started < 0.05


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**15), max_value=10**15, places=6))
def test_milli_is_the_smallest_magnitude_that_is_not_less(value: Decimal) -> None:
    wanted = Context(prec=60).multiply(abs(value), Decimal(1000)).to_integral_value(ROUND_CEILING)
    assert abs(to_milli(format(value, "f"))) == wanted


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12))
def test_a_double_and_its_text_are_the_same_value(value: float) -> None:
    assert to_milli(value) == to_milli(repr(value)) == -to_milli(-value)


@pytest.mark.parametrize(
    ("value", "time_ms"),
    [
        pytest.param(1_790_000_015_000, 1_790_000_015_000, id="integer milliseconds"),
        pytest.param("2026-09-21T14:13:35Z", 1_790_000_015_000, id="RFC 3339 in UTC"),
        pytest.param("2026-09-21T16:13:35+02:00", 1_790_000_015_000, id="RFC 3339 with an offset"),
        pytest.param("2026-09-21T14:13:35.123456789Z", 1_790_000_015_123, id="finer than a millisecond is cut off"),
        pytest.param("2026-09-21t14:13:35.5z", 1_790_000_015_500, id="lower case and a short fraction"),
    ],
)
def test_times(value: object, time_ms: int) -> None:
    assert time_to_ms(value, "ts") == time_ms


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("2026-09-21", id="a date without a time"),
        pytest.param("2026-13-01T00:00:00Z", id="a thirteenth month"),
        pytest.param("2026-09-21T14:13:35", id="no zone"),
        pytest.param(0, id="the epoch itself is no time of a sample"),
        pytest.param(-1, id="before the epoch"),
        pytest.param(253_402_300_800_000, id="beyond the year 9999"),
        pytest.param(1.5, id="a fraction"),
        pytest.param(True, id="a boolean"),
        pytest.param(None, id="nothing"),
    ],
)
def test_impossible_times_are_refused(value: object) -> None:
    with pytest.raises(Refusal, match="ts") as refused:
        time_to_ms(value, "ts")
    assert refused.value.code == "badTime"


def test_nanoseconds_are_cut_to_milliseconds() -> None:
    assert nanos_to_ms(1_790_000_015_000_999_999, "t") == 1_790_000_015_000
    assert check_time(1, "t") == 1

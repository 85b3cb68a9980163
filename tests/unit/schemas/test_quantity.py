"""Quantities: upstream's parsing, printing, rounding and overflow, and where Python's arithmetic is not Go's."""

import math
import time
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.kubernetes import quantity
from schemas.kubernetes.quantity import (
    MAX_I64,
    MIN_I64,
    Quantity,
    QuantityError,
    equal_quantity_text,
    format_milli,
    parse_milli,
    parse_quantity,
    wrap_i64,
)
from schemas.kubernetes.textcolumns import parse_millis

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def exact(text: str) -> Fraction:
    """Give the value of a well-formed text without a sign trick, before any rounding or cap."""
    for suffix, exponent in sorted({**DECIMAL, **BINARY}.items(), key=lambda each: -len(each[0])):
        if suffix and text.endswith(suffix):
            scale = Fraction(2) ** exponent if suffix in BINARY else Fraction(10) ** exponent
            return Fraction(text.removesuffix(suffix)) * scale
    return Fraction(text)


def value_of(parsed: Quantity) -> Fraction:
    return parsed.mantissa * Fraction(10) ** parsed.exponent


numbers = st.builds(
    lambda sign, whole, fraction: sign + str(whole) + (f".{fraction}" if fraction else ""),
    st.sampled_from(["", "-"]),
    st.integers(0, 10**15),
    st.text("0123456789", max_size=9),
)
texts = st.builds(str.__add__, numbers, st.sampled_from([*DECIMAL, *BINARY]))
# Small enough that a count of thousandths fits 64 bits.
modest = st.builds(str.__add__, st.integers(-(10**9), 10**9).map(str), st.sampled_from(["n", "u", "m", "", "k", "Ki"]))


@pytest.mark.parametrize(
    ("text", "shown", "milli", "value"),
    [
        pytest.param("0.1m", "100u", 1, 1, id="a little is never nothing"),
        pytest.param("1.2345", "1234500u", 1235, 2, id="rounds up, not to nearest"),
        pytest.param(
            "-1.5", "-1500m", -1500, -2, id="rounds away from zero: floor division would agree, truncation not"
        ),
        pytest.param("-1.0001", "-1000100u", -1001, -2, id="rounds negative milli away from zero"),
        pytest.param("-0.1m", "-100u", -1, -1, id="a little debt is a debt"),
        pytest.param("0.1n", "1n", 1, 1, id="nothing is smaller than a nano"),
        pytest.param("-0.1n", "-1n", 1, 1, id="dec form adds one after truncating: minus a nano is one"),
        pytest.param("9223372036854776", "9223372036854776", -9223372036854775616, 9223372036854776, id="x1000 wraps"),
        pytest.param("9223372036854776k", "9223372036854776k", 192000, wrap_i64(9223372036854776000), id="x10^6 wraps"),
        pytest.param(
            "9223372036854776G", "9223372036854776G", 0, wrap_i64(9223372036854776 * 10**9), id="x10^12 gives 0"
        ),
        pytest.param("1E", "1E", 0, 10**18, id="E alone is exa, and its milli value overflows to 0"),
        pytest.param("1E3", "1E3", 10**6, 1000, id="E with digits is an exponent"),
        pytest.param("1e-3", "1e-3", 1, 1, id="a negative exponent"),
        pytest.param("1.500", "1.500", 1500, 2, id="kept as typed: scale is a multiple of three"),
        pytest.param("1.000", "1", 1000, 1, id="not kept: digits end in three zeros"),
        pytest.param("0.606", "606m", 606, 1, id="not kept: first digit is zero"),
        pytest.param("+5", "+5", 5000, 5, id="a plus sign is kept"),
        pytest.param("005", "005", 5000, 5, id="leading zeros are kept"),
        pytest.param("-0", "0", 0, 0, id="no negative zero"),
        pytest.param("1000", "1k", 10**6, 1000, id="the largest suffix that fits"),
        pytest.param("2.5k", "2500", 2_500_000, 2500, id="whole numbers only"),
        pytest.param("1024Ki", "1Mi", 1024**2 * 1000, 1024**2, id="binary goes up by 1024"),
        pytest.param("1025Ki", "1025Ki", 1025 * 1024 * 1000, 1025 * 1024, id="binary stays where 1024 does not divide"),
        pytest.param("1000Ki", "1000Ki", 1_024_000_000, 1_024_000, id="not kept as typed but the same"),
        pytest.param("0.5Ki", "512", 512_000, 512, id="below 1024 prints decimal"),
        pytest.param(".0002Ki", "204800u", 205, 1, id="below one becomes decimal"),
        pytest.param("1.5Gi", "1536Mi", 1536 * 1024**2 * 1000, 1536 * 1024**2, id="a fraction of a binary suffix"),
        pytest.param(
            "16Ei", "9223372036854775807", -1000, MAX_I64, id="binary is capped at 64 bits, its milli value wraps"
        ),
        pytest.param("-16Ei", "-9223372036854775807", 1000, -MAX_I64, id="capped below too"),
        pytest.param("8Ki", "8Ki", 8_192_000, 8192, id="a multiple of eight is printed anew"),
        pytest.param("7000E", "7", 0, 0, id="beyond exa the suffix is lost, as upstream"),
        pytest.param(".", "0", 0, 0, id="no digit at all is zero on the fast path"),
        pytest.param("100000000000000000000000m", "100E", 200376420520689664, 7766279631452241920, id="dec form wraps"),
        pytest.param(
            "1234567890123456789e40",
            "12345678901234567890e39",
            wrap_i64(1234567890123456789 * 10**43),
            wrap_i64(1234567890123456789 * 10**40),
            id="however far it goes, the low 64 bits stay",
        ),
        pytest.param(
            "92233720368547758070m", "92233720368547758070m", -10, 92233720368547759, id="dec form at the edge"
        ),
    ],
)
def test_known_answers(text: str, shown: str, milli: int, value: int) -> None:
    parsed = parse_quantity(text)

    assert str(parsed) == shown
    assert (parsed.milli_value(), parsed.value()) == (milli, value)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("", quantity.FORMAT_ERROR, id="empty"),
        pytest.param("1 ", quantity.FORMAT_ERROR, id="a blank"),
        pytest.param("1\n", quantity.FORMAT_ERROR, id="a line end, which a $ in a pattern would let pass"),
        pytest.param("\N{ARABIC-INDIC DIGIT ONE}", quantity.FORMAT_ERROR, id="a digit that is not ASCII"),
        pytest.param("1_000", quantity.FORMAT_ERROR, id="an underscore, which int() would let pass"),
        pytest.param("1.2.3", quantity.FORMAT_ERROR, id="two points"),
        pytest.param("--1", quantity.SUFFIX_ERROR, id="two signs"),
        pytest.param("1K", quantity.SUFFIX_ERROR, id="kilo is a small k"),
        pytest.param("1e", quantity.SUFFIX_ERROR, id="an exponent without digits"),
        pytest.param("1e+", quantity.SUFFIX_ERROR, id="an exponent with only a sign"),
        pytest.param("1ee5", quantity.SUFFIX_ERROR, id="two exponents"),
        pytest.param("1e9223372036854775808", quantity.SUFFIX_ERROR, id="an exponent beyond 64 bits"),
        pytest.param("Pi", quantity.NUMERIC_ERROR, id="no digits off the fast path"),
        pytest.param("e-10", quantity.NUMERIC_ERROR, id="no digits before an exponent"),
        pytest.param(
            "1e100001", "quantity exponent 100001 is out of range: at most 100000 is accepted", id="too large"
        ),
        pytest.param(
            "1e-100001", "quantity exponent -100001 is out of range: at most 100000 is accepted", id="too small"
        ),
        pytest.param("1" * 1025, "quantity of 1025 characters is too long: at most 1024 are accepted", id="too long"),
    ],
)
def test_what_is_no_quantity_is_refused_with_a_reason(text: str, error: str) -> None:
    with pytest.raises(QuantityError) as raised:
        parse_quantity(text)
    assert str(raised.value) == error


@pytest.mark.parametrize("text", ["1e2147483648", "1e100000", "1e-100000", "9" * 1024 + "e100000", "9" * 1000 + "Ei"])
def test_hostile_texts_cost_nothing(text: str) -> None:
    started = time.process_time()
    try:
        parsed = parse_quantity(text)
    except QuantityError:
        parsed = parse_quantity("0")
    assert (parsed.milli_value(), parsed.value(), str(parsed), parsed.as_float(), parsed.cmp(parsed))[-1] == 0
    assert time.process_time() - started < 0.25


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("360m", 360 * 1e-3, id="a product of doubles"),
        pytest.param("0.36", 36 * 1e-2, id="from the digits typed"),
        pytest.param("1e400", math.inf, id="too large"),
        pytest.param("-1e400", -math.inf, id="too large and negative"),
        pytest.param("12345678901234567890e400", math.inf, id="too large in dec form"),
        pytest.param("1e308", 1e308, id="the largest power"),
        pytest.param("1e-9", 1e-9, id="the smallest power that parses exactly"),
        pytest.param("123456789012345678901234567890", 1.234567890123457e29, id="dec form goes through nanos"),
        pytest.param("16Ei", 2.0**63, id="capped"),
        pytest.param("9007199254740993", 9007199254740992.0, id="rounds half to even"),
    ],
)
def test_floats_are_upstreams_product(text: str, number: float) -> None:
    assert parse_quantity(text).as_float() == number


def test_zero_with_a_large_exponent_is_not_a_number() -> None:
    # 0 x 10^400 is 0 x Inf.
    assert math.isnan(parse_quantity("0e400").as_float())
    assert math.isnan(parse_quantity("0.0000000000000000000e400").as_float())
    assert parse_quantity("0e300").as_float() == 0


@given(st.integers(-323, 308))
def test_powers_of_ten_are_gos_table(exponent: int) -> None:
    assert quantity._pow10(exponent) == pytest.approx(float(f"1e{exponent}"), rel=1e-15, abs=5e-324)


@pytest.mark.parametrize(
    ("exponent", "power"),
    [
        pytest.param(-324, 0.0, id="below the table is zero"),
        pytest.param(309, math.inf, id="above the table is infinity"),
        pytest.param(-9, 1e-9, id="one division"),
        pytest.param(-33, 1e-32 / 10, id="two entries"),
        pytest.param(33, 1e32 * 10, id="two entries above one"),
    ],
)
def test_powers_of_ten_at_the_tables_edges(exponent: int, power: float) -> None:
    assert quantity._pow10(exponent) == power


@pytest.mark.parametrize(
    ("milli", "decimal", "binary"),
    [
        pytest.param(0, "0", "0", id="zero"),
        pytest.param(495, "495m", "495m", id="less than one"),
        pytest.param(1500, "1500m", "1500m", id="not whole"),
        pytest.param(20_000, "20", "20", id="whole"),
        pytest.param(1_000_000, "1k", "1k", id="below 1024 binary prints decimal"),
        pytest.param(-1_000_000, "-1k", "-1k", id="negative too"),
        pytest.param(1_023_000, "1023", "1023", id="just below 1024"),
        pytest.param(1_024_000, "1024", "1Ki", id="1024"),
        pytest.param(-1_024_000, "-1024", "-1Ki", id="minus 1024"),
        pytest.param(1_000_000_000, "1M", "1000000", id="whole, and no multiple of 1024"),
        pytest.param(1_048_576_000, "1048576", "1Mi", id="a mebi"),
        pytest.param(1_000_000_500, "1000000500m", "1000000500m", id="memory that is not whole"),
        pytest.param(MIN_I64, "-9223372036854775808m", "-9223372036854775808m", id="the smallest"),
        pytest.param(9 * 10**18, "9P", "8789062500000Ki", id="the largest suffix of a milli count"),
    ],
)
def test_milli_counts_print_canonically(milli: int, decimal: str, binary: str) -> None:
    assert (format_milli(milli), format_milli(milli, "BinarySI")) == (decimal, binary)


@pytest.mark.parametrize(("milli", "shown"), [(1500, "1500e-3"), (10**6, "1e3"), (10**4, "10"), (-(10**7), "-10e3")])
def test_exponents_print_in_threes(milli: int, shown: str) -> None:
    assert format_milli(milli, "DecimalExponent") == shown


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        pytest.param("0.4", "400m", 0, id="by value"),
        pytest.param("1Ki", "1024", 0, id="across formats"),
        pytest.param("1e100000", "1", 1, id="far apart costs nothing"),
        pytest.param("-1e100000", "1", -1, id="signs first"),
        pytest.param("-2", "-1", -1, id="negative numbers the other way round"),
        pytest.param("-100", "-1", -1, id="negative numbers of other length"),
        pytest.param("0", "0e100000", 0, id="zeros are equal"),
        pytest.param("0", "1n", -1, id="zero is not the least"),
        pytest.param("16Ei", "9223372036854775807", 0, id="what is capped equals the cap"),
        pytest.param("999", "1k", -1, id="next to each other"),
    ],
)
def test_comparison_is_exact(a: str, b: str, result: int) -> None:
    assert parse_quantity(a).cmp(parse_quantity(b)) == result
    assert parse_quantity(b).cmp(parse_quantity(a)) == -result
    assert equal_quantity_text(a, b) is (result == 0)


@pytest.mark.parametrize(
    ("a", "b", "shown"),
    [
        pytest.param("100m", "1", "1100m", id="aligned"),
        pytest.param("1", "100m", "1100m", id="aligned the other way"),
        pytest.param("0", "1Ki", "1Ki", id="zero takes the other's format"),
        pytest.param("1", "1Ki", "1025", id="else the first one's stays"),
        pytest.param("1Ki", "1", "1025", id="binary that 1024 does not divide has no suffix"),
        pytest.param("+5", "0", "5", id="a sum is printed anew"),
        pytest.param("9223372036854775807n", "1n", "9223372036854775808n", id="beyond 64 bits"),
        pytest.param("5e18", "5e18", "10e18", id="dec form keeps the format"),
        pytest.param("1e100", "1", "1" + "0" * 99 + "1", id="far apart"),
        pytest.param("12345678901234567890", "0", "12345678901234567890", id="a zero beside dec form"),
        pytest.param("0", "12345678901234567890", "12345678901234567890", id="zero and dec form"),
        pytest.param("-1", "1", "0", id="to zero"),
    ],
)
def test_sums(a: str, b: str, shown: str) -> None:
    assert str(parse_quantity(a).add(parse_quantity(b))) == shown


def test_sums_overflow_as_upstreams_do() -> None:
    large = parse_quantity("900000000000000000").add(parse_quantity("0"))
    total = large
    for _ in range(10):
        total = total.add(large)

    assert total.scale == 0
    assert total.value() == wrap_i64(11 * 9 * 10**17)
    assert total.milli_value() == wrap_i64(wrap_i64(11 * 9 * 10**17) * 1000)
    assert parse_quantity("4Ei").add(parse_quantity("-4Ei")).sign() == 0


def test_a_scale_beyond_every_power_multiplies_by_the_smallest_integer() -> None:
    # int64(10^20) is the minimum on amd64: an odd mantissa keeps it, an even one loses it.
    odd = Quantity(MAX_I64, 20, "DecimalSI").add(Quantity(2, 20, "DecimalSI"))
    assert odd.scale == -20
    assert odd.value() == wrap_i64(wrap_i64(MAX_I64 + 2) * MIN_I64) == MIN_I64


def test_a_sum_with_many_places_rounds_up() -> None:
    # A divisor beyond 64 bits divides exactly, a smaller one toward zero, and then one is added.
    many = parse_quantity("-1475626958G").add(parse_quantity("0e-25"))
    assert many.scale == 25
    assert (many.value(), many.milli_value()) == (-1475626958000000000, 112567896764129280)
    assert parse_quantity("-2.5").add(parse_quantity("0e-19")).value() == -2
    assert parse_quantity("-2.5").add(parse_quantity("0e-18")).value() == -1


@given(texts)
def test_what_is_printed_parses_to_the_same(text: str) -> None:
    shown = str(parse_quantity(text))

    assert str(parse_quantity(shown)) == shown


@given(texts)
def test_parsing_rounds_away_from_zero_to_nanos_and_caps_binary(text: str) -> None:
    parsed, whole = value_of(parse_quantity(text)), exact(text)

    nanos = abs(whole) * 10**9
    rounded = Fraction(-(-nanos.numerator // nanos.denominator), 10**9)
    if text.endswith("i"):
        rounded = min(rounded, Fraction(MAX_I64))
    assert parsed == (rounded if whole >= 0 else -rounded)


@given(modest)
def test_milli_is_the_value_times_1000_rounded_away_from_zero(text: str) -> None:
    milli = value_of(parse_quantity(text)) * 1000
    away = -(-abs(milli).numerator // abs(milli).denominator)

    assert parse_milli(text) == wrap_i64(away if milli >= 0 else -away)


@given(st.text("0123456789", max_size=14), st.sampled_from(["n", "Ki"]))
@example("", "n")
@example("99999999999", "Ki")
@example("٣", "n")
def test_usages_are_read_as_every_quantity_is(digits: str, suffix: str) -> None:
    def outcome(read: Callable[[str], int]) -> int | str:
        try:
            return read(digits + suffix)
        except QuantityError as error:
            return str(error)

    assert outcome(parse_milli) == outcome(lambda text: parse_quantity(text).milli_value())


@given(texts, texts)
def test_order_is_that_of_the_values(a: str, b: str) -> None:
    first, second = parse_quantity(a), parse_quantity(b)

    assert first.cmp(second) == (value_of(first) > value_of(second)) - (value_of(first) < value_of(second))


@given(texts, texts)
def test_sums_are_exact_and_commute(a: str, b: str) -> None:
    first, second = parse_quantity(a), parse_quantity(b)

    assert value_of(first.add(second)) == value_of(first) + value_of(second)
    assert first.add(second).cmp(second.add(first)) == 0


@given(st.integers(MIN_I64, MAX_I64), st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]))
def test_the_fast_printer_agrees_with_the_exact_one(milli: int, fmt: quantity.Format) -> None:
    assert format_milli(milli, fmt) == Quantity(milli, -3, fmt).canonical()


@given(st.integers(-(2**70), 2**70))
def test_wrapping_keeps_the_low_64_bits(number: int) -> None:
    assert MIN_I64 <= wrap_i64(number) <= MAX_I64
    assert (wrap_i64(number) - number) % 2**64 == 0


@given(st.text(max_size=12))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        parsed = parse_quantity(text)
    except QuantityError:
        return
    assert MIN_I64 <= parsed.milli_value() <= MAX_I64


@pytest.mark.parametrize(
    ("text", "fmt", "shown"),
    [
        pytest.param("+12345678901Ki", "BinarySI", "+12345678901Ki", id="eleven digits of kibi still are in int form"),
        pytest.param("+123456789013Ki", "BinarySI", "123456789013Ki", id="twelve are not, and lose what was typed"),
        pytest.param("0.005Ki", "BinarySI", "5120m", id="one or more stays binary, though it prints decimal"),
        pytest.param("0.0009Ki", "DecimalSI", "921600u", id="below one does not"),
        pytest.param("+123456789012345678", "DecimalSI", "+123456789012345678", id="18 digits"),
        pytest.param("+1234567890123456789", "DecimalSI", "1234567890123456789", id="19 digits"),
        pytest.param("+0.000000001", "DecimalSI", "1n", id="nine places"),
        pytest.param("1.0000000011", "DecimalSI", "1000000002n", id="ten places round up"),
    ],
)
def test_forms_at_their_edges(text: str, fmt: str, shown: str) -> None:
    parsed = parse_quantity(text)

    assert (parsed.format, str(parsed)) == (fmt, shown)


@pytest.mark.parametrize(
    ("exponent", "factor"),
    [
        pytest.param(18, 10**18, id="the largest power that is a 64-bit integer"),
        pytest.param(19, MIN_I64, id="the first that is not"),
    ],
)
def test_scaling_up_multiplies_by_a_64_bit_power(exponent: int, factor: int) -> None:
    total = Quantity(MAX_I64, exponent, "DecimalSI").add(Quantity(2, exponent, "DecimalSI"))

    assert total.value() == wrap_i64((MIN_I64 + 1) * factor)


def test_a_sum_leaves_int_form_only_when_it_must() -> None:
    lowest = Quantity(MIN_I64 + 1, 0, "DecimalSI").add(Quantity(-1, 0, "DecimalSI"))

    assert (lowest.scale, lowest.value(), lowest.milli_value()) == (None, MIN_I64, 0)
    assert lowest.add(Quantity(-1, 0, "DecimalSI")).scale == 0
    assert parse_quantity("12345678901234567890").add(parse_quantity("1")).scale == 9
    assert parse_quantity("5").add(parse_quantity("0.0000000000")).scale == 10


def test_the_smallest_power_of_ten_is_not_zero() -> None:
    assert quantity._pow10(-323) == 1e-323 > 0


COLUMN_TEXTS = (
    "1n",
    "1000001n",
    "0n",
    "12Ki",
    " 5n ",
    "²n",
    "1n,2n",
    "",
    "n",
    ",",
    "-3n",
    "1_0n",
    "1.5n",
    "250m",
    "9" * 12 + "Ki",
)


@given(st.lists(st.sampled_from(COLUMN_TEXTS), max_size=4))
@example(["1n,2n", "3Ki"])
@example(["9999999999Ki", "1Ki"])
@example(["99999999999n", "1n"])
def test_a_column_is_read_as_each_of_its_quantities_is(texts: list[str]) -> None:
    def outcome(read: Callable[[], list[int]]) -> list[int] | str:
        try:
            return read()
        except QuantityError as error:
            return str(error)

    assert outcome(lambda: parse_millis(texts)) == outcome(lambda: [parse_milli(text.strip()) for text in texts])


# --- from Kubernetes 1.38 on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown", "milli", "value"),
    [
        pytest.param("10P", "10P", MAX_I64, 10**16, id="thousandths beyond 64 bits end at the largest"),
        pytest.param("-10P", "-10P", MIN_I64, -(10**16), id="and below at the least"),
        pytest.param("1000E", "1e21", MAX_I64, MAX_I64, id="no suffix beyond exa: an exponent"),
        pytest.param("-1.0000000015", "-1000000002n", -1001, -2, id="negative in dec form: away from zero"),
        pytest.param("1000000000000000001", "1000000000000000001", MAX_I64, 10**18 + 1, id="19 digits in int form"),
        pytest.param("1" + "0" * 28 + "1", str(10**29 + 10), MAX_I64, MAX_I64, id="29 digits are kept"),
        pytest.param("8Ei", str(MAX_I64), MAX_I64, MAX_I64, id="binary is capped, as before"),
        pytest.param("-9223372036854775808", "-9223372036854775808", MIN_I64, MIN_I64, id="the least int64 itself"),
    ],
)
def test_a_saturating_quantity_ends_at_the_largest_number(text: str, shown: str, milli: int, value: int) -> None:
    parsed = parse_quantity(text, saturating=True)

    assert (str(parsed), parsed.milli_value(), parsed.value()) == (shown, milli, value)


@given(texts)
def test_a_saturating_count_of_thousandths_is_exact_or_at_an_end(text: str) -> None:
    exactly = value_of(parse_quantity(text, saturating=True)) * 1000
    rounded = math.ceil(exactly) if exactly > 0 else math.floor(exactly)

    assert parse_milli(text, saturating=True) == max(MIN_I64, min(rounded, MAX_I64))


@given(modest)
def test_plausible_quantities_are_the_same_in_all_versions(text: str) -> None:
    before, after = parse_quantity(text), parse_quantity(text, saturating=True)

    assert (str(before), before.milli_value(), before.as_float()) == (str(after), after.milli_value(), after.as_float())


def test_of_two_numbers_far_apart_the_finer_is_rounded_up_before_they_are_added() -> None:
    together = parse_quantity("1e100", saturating=True).add(parse_quantity("1n", saturating=True))

    assert value_of(together) == 10**100 + 10**71
    assert value_of(parse_quantity("1e100").add(parse_quantity("1n"))) == 10**100 + Fraction(1, 10**9)


def test_a_sum_beyond_exbibytes_is_printed_with_an_exponent_of_ten() -> None:
    half = parse_quantity("8Ei", saturating=True).add(parse_quantity("1", saturating=True))

    assert str(half) == "8Ei"
    for _ in range(7):
        half = half.add(half)
    assert str(half) == str(1024**7)

"""Mutants that no test can notice, each with the reason."""

# The names of mutants are longer than a line.
# ruff: noqa: E501

_NOTHING_ADDED = (
    "at a ratio of exactly 1 nothing is filled in, so the final ratio is 1 too, and that is within tolerance"
)
_LATER = "what changed the number is later than the cutoff, and the latest is taken"
_OTHER = "a write is wanted only of another count"
_SAME = "where both are equal, either way gives the same number"
_MODULO = "a change by 2**64 leaves the low 64 bits as they are"
_PAIRS = "both are made from the same list of pods"
_FORMAT = "what is neither BinarySI nor DecimalExponent prints as DecimalSI"
_BAND = "a final ratio of exactly 1 is within tolerance, and has been returned"
_NEVER_ZERO = "an exponent of 0 multiplies nothing and does not come here"
_HUGE = "from 10**309 on the double is infinite whatever the power"

EQUIVALENT: dict[str, str] = {
    "streams.hpa.calculator:_filled: ratio < 1.0 -> ratio <= 1.0": _NOTHING_ADDED,
    "streams.hpa.calculator:_filled: ratio > 1.0 -> ratio >= 1.0": _NOTHING_ADDED,
    "streams.hpa.calculator:_filled: final < 1.0 -> final <= 1.0": _BAND,
    "streams.hpa.calculator:_filled: final > 1.0 -> final >= 1.0": _BAND,
    "streams.hpa.calculator:_fallback: True -> False": _PAIRS,
    "streams.hpa.calculator:external_value: value > 0 -> value >= 0": "0 leaves no sum",
    "streams.hpa.calculator:_saturated_ceil: 2147483647.0 -> 2147483646.0": (
        "what lies between rounds up to the largest count by itself"
    ),
    "streams.hpa.calculator:_saturated_ceil: value > 2147483647.0 -> value >= 2147483647.0": _SAME,
    "streams.hpa.metrics:_status: 'DecimalSI' -> '~DecimalSI'": _FORMAT,
    "streams.hpa.normalize:_legacy: int32(max(2.0 * float(current), 4.0)) -> ceil32(max(2.0 * float(current), 4.0))": (
        "twice a count is a whole number"
    ),
    "streams.hpa.observation:request_table: 0 -> 1": "what a table with an error holds is not read",
    "streams.hpa.normalize:_legacy: replicas > stabilized -> replicas >= stabilized": _SAME,
    "streams.hpa.normalize:_extremes: replicas > highest -> replicas >= highest": (
        "what equals the highest is not below the lowest either"
    ),
    "streams.hpa.normalize:_extremes: replicas < lowest -> replicas <= lowest": _SAME,
    "streams.hpa.normalize:_extremes: 1 -> 2": "any slot below 0 is none",
    "streams.hpa.normalize:_with_behavior: each[1] > up_cutoff_ms -> each[1] >= up_cutoff_ms": _LATER,
    "streams.hpa.normalize:_with_behavior: each[1] > down_cutoff_ms -> each[1] >= down_cutoff_ms": _LATER,
    "streams.hpa.gofloat:trunc_div: divisor < 0 -> divisor <= 0": "the divisor is never 0",
    "streams.hpa.gofloat:trunc_div: 0 -> 1": "the divisor is never 0, and a dividend of 0 gives 0 whatever its sign",
    "streams.hpa.gofloat:wrap32: MIN_INT32 <= value <= MAX_INT32 -> MIN_INT32 < value <= MAX_INT32": (
        "the smallest integer wraps to itself"
    ),
    "streams.hpa.gofloat:wrap32: value + 2147483648 -> value - 2147483648": "a change by 2**32 leaves the low 32 bits",
    "streams.hpa.gofloat:ceil32: 2147483649.0 -> 2147483648.0": (
        "what lies between rounds up to the smallest integer, as what does not fit gives"
    ),
    "streams.hpa.gofloat:wrap64: value + 9223372036854775808 -> value - 9223372036854775808": _MODULO,
    "streams.hpa.gofloat:divide: 1.0 -> 2.0": "the sign is all that counts of what multiplies an infinity",
    "streams.hpa.gofloat:ceil64: -_TWO_TO_63 <= value < _TWO_TO_63 -> -_TWO_TO_63 < value < _TWO_TO_63": (
        "-2**63 gives the smallest integer, as does what does not fit"
    ),
    "streams.hpa.grouping:group: True -> False": _PAIRS,
    "streams.hpa.grouping:group: 0 -> 1": "requests are not read where there is no table of them",
    "streams.hpa.reconcile:_Run._want: desired > current -> desired >= current": _OTHER,
    "streams.hpa.reconcile:_Run._want: current > 0 -> current >= 0": _OTHER,
    "streams.hpa.normalize:_legacy: 1 -> 2": "any slot below 0 is none",
    "schemas.kubernetes.quantity:Quantity._dec_float: 400 -> 399": _HUGE,
    "schemas.kubernetes.quantity:Quantity._dec_float: 400 -> 401": _HUGE,
    "schemas.kubernetes.quantity:_low_bits: 64 -> 65": _MODULO,
    "schemas.kubernetes.quantity:_decimal_dec: surplus > 0 -> surplus >= 0": "without surplus it divides by one",
    "schemas.kubernetes.quantity:_pow10: exponent >= 0 -> exponent > 0": _NEVER_ZERO,
    "schemas.kubernetes.quantity:_pow10: 0 -> 1": _NEVER_ZERO,
    "schemas.kubernetes.quantity:_scale_i64: power < 0 -> power <= 0": "by a power of 0 both ways change nothing",
    "schemas.kubernetes.quantity:_scale_i64: 0 -> 1": "by a power of 0 both ways change nothing",
    "schemas.kubernetes.quantity:_scale_i64: 20 -> 19": "10**19 is beyond 64 bits, too",
    "schemas.kubernetes.quantity:_binary_dec: amount.cmp(_BINARY_MAXIMUM) > 0 -> amount.cmp(_BINARY_MAXIMUM) >= 0": _SAME,
    "schemas.kubernetes.quantity:_binary_dec: 'BinarySI' -> '~BinarySI'": "the format is set again where the amount is given",
    "schemas.kubernetes.quantity:format_milli: 1024 -> 1023": "1023 has no factor of 1000 or 1024, so both ways print it alike",
    "schemas.kubernetes.quantity:Quantity._scale_dec: surplus <= 0 -> surplus < 0": "without surplus both ways multiply by one",
}


def reason_of(name: str) -> str:
    """Say why a mutant is no fault; empty: it is one."""
    return EQUIVALENT.get(name, "")

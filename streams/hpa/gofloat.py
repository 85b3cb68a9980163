"""Go's integer and float conversions as they behave on amd64: wrapping, truncation, Inf and NaN.

The upstream controller computes with int32, int64 and float64. Equality with it, also where a value leaves its type, is
a property of these few functions; no other module of the core converts by hand.
Source: Go specification (integer overflow, conversions); out-of-range conversions as the amd64 instructions give them.
"""

import math

MAX_INT32 = 2**31 - 1
MIN_INT32 = -(2**31)
MAX_INT64 = 2**63 - 1
MIN_INT64 = -(2**63)
_TWO_TO_63 = 9223372036854775808.0


def wrap32(value: int) -> int:
    """Keep the low 32 bits of `value`, read as two's complement."""
    if MIN_INT32 <= value <= MAX_INT32:
        return value
    return ((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def saturated32(value: int) -> int:
    """Return the int32 that is nearest to `value`."""
    return max(MIN_INT32, min(value, MAX_INT32))


def wrap64(value: int) -> int:
    """Keep the low 64 bits of `value`, read as two's complement."""
    if MIN_INT64 <= value <= MAX_INT64:
        return value
    return ((value + 0x8000000000000000) & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def trunc_div(dividend: int, divisor: int) -> int:
    """Divide int64 rounding toward zero; the divisor is not 0. MinInt64 / -1 wraps to MinInt64."""
    if dividend >= 0 < divisor:
        return dividend // divisor
    quotient = abs(dividend) // abs(divisor)
    return wrap64(quotient if (dividend < 0) == (divisor < 0) else -quotient)


def divide(dividend: float, divisor: float) -> float:
    """Divide doubles as IEEE 754 does: x/0 is an infinity, 0/0 is NaN."""
    if divisor:
        return dividend / divisor
    if dividend == 0.0 or dividend != dividend:
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def int32(value: float) -> int:
    """Convert toward zero; what does not fit, Inf and NaN give MinInt32."""
    if -2147483649.0 < value < 2147483648.0:
        return int(value)
    return MIN_INT32


def ceil32(value: float) -> int:
    """int32(ceil(value)); what does not fit, Inf and NaN give MinInt32."""
    if -2147483649.0 < value <= 2147483647.0:
        return math.ceil(value)
    return MIN_INT32


def saturated_ceil32(value: float) -> int:
    """int32(ceil(value)), but MaxInt32 for what is larger than that; NaN gives MinInt32."""
    return MAX_INT32 if value > 2147483647.0 else ceil32(value)


def ceil64(value: float) -> int:
    """int64(ceil(value)); what does not fit, Inf and NaN give MinInt64."""
    if -_TWO_TO_63 <= value < _TWO_TO_63:
        return math.ceil(value)
    return MIN_INT64

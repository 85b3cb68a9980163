"""Mutants that no test can notice, each with the reason."""

_NOTHING_ADDED = (
    "at a ratio of exactly 1 nothing is filled in, so the final ratio is 1 too, and that is within tolerance"
)
_LATER = "what changed the number is later than the cutoff, and the latest is taken"
_OTHER = "a write is wanted only of another count"
_HUGE = "from 10**309 on the double is infinite whatever the power"

EQUIVALENT: dict[str, str] = {
    "streams.core.calculator:_filled: ratio < 1.0 -> ratio <= 1.0": _NOTHING_ADDED,
    "streams.core.calculator:_filled: ratio > 1.0 -> ratio >= 1.0": _NOTHING_ADDED,
    "streams.core.normalize:_with_behavior: each[1] > up_cutoff_ms -> each[1] >= up_cutoff_ms": _LATER,
    "streams.core.normalize:_with_behavior: each[1] > down_cutoff_ms -> each[1] >= down_cutoff_ms": _LATER,
    "streams.core.gofloat:trunc_div: divisor < 0 -> divisor <= 0": "the divisor is never 0",
    "streams.core.grouping:group: 0 -> 1": "requests are not read where there is no table of them",
    "streams.core.decide:_Run._want: desired > current -> desired >= current": _OTHER,
    "streams.core.decide:_Run._want: current > 0 -> current >= 0": _OTHER,
    "streams.core.normalize:_legacy: 1 -> 2": "any slot below 0 is none",
    "schemas.quantity:Quantity._dec_float: 400 -> 399": _HUGE,
    "schemas.quantity:Quantity._dec_float: 400 -> 401": _HUGE,
    "schemas.quantity:Quantity._scale_dec: surplus <= 0 -> surplus < 0": "without surplus both ways multiply by one",
}


def reason_of(name: str) -> str:
    """Say why a mutant is no fault; empty: it is one."""
    return EQUIVALENT.get(name, "")

"""Mutants that no test can notice, each with the reason."""

_NOTHING_ADDED = (
    "at a ratio of exactly 1 nothing is filled in, so the final ratio is 1 too, and that is within tolerance"
)
_HUGE = "from 10**309 on the double is infinite whatever the power"

EQUIVALENT: dict[str, str] = {
    "streams.core.calculator:_filled: ratio < 1.0 -> ratio <= 1.0": _NOTHING_ADDED,
    "streams.core.calculator:_filled: ratio > 1.0 -> ratio >= 1.0": _NOTHING_ADDED,
    "schemas.quantity:Quantity._dec_float: 400 -> 399": _HUGE,
    "schemas.quantity:Quantity._dec_float: 400 -> 401": _HUGE,
    "schemas.quantity:Quantity._scale_dec: surplus <= 0 -> surplus < 0": "without surplus both ways multiply by one",
}


def reason_of(name: str) -> str:
    """Say why a mutant is no fault; empty: it is one."""
    return EQUIVALENT.get(name, "")

"""Checks of what types cannot say: names, values and times as producers write them."""

import re
from functools import lru_cache

from schemas.kubernetes.gotimes import parse_time_ms
from schemas.kubernetes.names import dns_label_errors, dns_subdomain_errors
from schemas.kubernetes.quantity import MAX_I64, MIN_I64, QuantityError, parse_quantity
from schemas.limits import MAX_TIME_MS, NAME, Refusal

_CLUSTER = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?", re.ASCII)
_MAX_NAME = 253
"""Of any name. Longer texts never get into a cache: a client that may write a topic could fill the memory with them."""


def is_cluster(name: str) -> bool:
    """Whether a cluster can be called so: letters, digits, `-`, `_`, `.`; at most 253; no `/`, which parts keys."""
    return len(name) <= _MAX_NAME and _matches_cluster(name)


def is_object(name: str) -> bool:
    """Whether it is a DNS subdomain (RFC 1123), as pods and workloads are called."""
    return len(name) <= _MAX_NAME and not _subdomain_errors(name)


@lru_cache(maxsize=1_024)
def _matches_cluster(name: str) -> bool:
    return _CLUSTER.fullmatch(name) is not None


_label_errors = lru_cache(maxsize=16_384)(dns_label_errors)
_subdomain_errors = lru_cache(maxsize=65_536)(dns_subdomain_errors)


def check_cluster(name: str) -> str:
    """Return the name. Raises Refusal: `badName`."""
    if not is_cluster(name):
        raise Refusal(
            "badName", f"cluster {_shown(name)} must be 1-253 of letters, digits, '-', '_' and '.', no '/' or blank"
        )
    return name


def check_namespace(name: str) -> str:
    """Return a name that is a DNS label (RFC 1123), as of namespaces and containers. Raises Refusal: `badName`."""
    if len(name) > _MAX_NAME or _label_errors(name):
        raise Refusal("badName", f"namespace {_shown(name)} must be a DNS label: a-z, 0-9 and '-', at most 63")
    return name


def check_object(name: str, field: str) -> str:
    """Return the name, or raise `badName`."""
    if not is_object(name):
        raise Refusal("badName", f"{field} {_shown(name)} must be a DNS subdomain: a-z, 0-9, '-' and '.', at most 253")
    return name


def check_text(text: str, field: str, limit: int = NAME.most) -> str:
    """Return a free text that is not empty, not too long and printable, or raise `badName`."""
    if not text or len(text) > limit or not text.isprintable():
        raise Refusal("badName", f"{field} {_shown(text)} must be 1-{limit} printable characters")
    return text


def _shown(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "…")


_MOST_SHIFT = 30
"""A number with more zeros than this at its end, in milli units, does not fit 64 bit."""
_DIGIT = re.compile("[0-9]")
_NOT_FINITE = frozenset({"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})


def to_milli(value: object) -> int:
    """Turn a sample's value into milli units, rounded away from zero as `Quantity.MilliValue` does.

    A double counts as the shortest decimal that reads back as the same double (0.1 is 100 milli, not 101). A text is
    read as a quantity, and is not wrapped where it does not fit.

    Args:
        value: an int, a finite float, a decimal text (`"112.5"`, `"1e3"`) or a Kubernetes quantity (`"250m"`, `"2Gi"`).

    Raises:
        Refusal: `notANumber`, `outOfRange` (beyond signed 64 bit in milli units).
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Refusal("notANumber", f"value must be a number or a quantity text, got {type(value).__name__}")
    if isinstance(value, int):
        return _in_range(value * 1000, value)
    text = value if isinstance(value, str) else repr(value)
    if text.lower() in _NOT_FINITE:
        raise Refusal("notANumber", f"value is {text}, not a finite number (a stale marker ends a series)")
    return _text_to_milli(text)


def _text_to_milli(text: str) -> int:
    try:
        if not _DIGIT.search(text):  # which Kubernetes takes for 0
            raise QuantityError("it has no digit")
        quantity = parse_quantity(text)
    except QuantityError as error:
        shown = text if len(text) <= 40 else text[:40] + "…"
        raise Refusal(
            "notANumber", f"value {shown!r} is neither a number nor a Kubernetes quantity: {error}"
        ) from error
    size, shift = abs(quantity.mantissa), quantity.exponent + 3
    if not size:
        return 0
    if shift > _MOST_SHIFT:
        raise _out_of_range(text)
    milli = size * int(10**shift) if shift >= 0 else -(-size // int(10**-shift))
    return _in_range(milli if quantity.mantissa > 0 else -milli, text)


def _in_range(milli: int, shown: object) -> int:
    if not MIN_I64 <= milli <= MAX_I64:
        raise _out_of_range(shown)
    return milli


def _out_of_range(shown: object) -> Refusal:
    text = str(shown)
    return Refusal("outOfRange", f"value {text[:40]}{'…' if len(text) > 40 else ''} does not fit 64 bit in milli units")


def check_time(time_ms: int, field: str) -> int:
    """Return the time if it lies after the epoch and within the year 9999. Raises Refusal: `badTime`."""
    if not 0 < time_ms <= MAX_TIME_MS:
        raise Refusal("badTime", f"{field} is {time_ms}: expected milliseconds since 1970, up to the year 9999")
    return time_ms


def nanos_to_ms(nanos: int, field: str) -> int:
    """Whole milliseconds of a Unix time in nanoseconds."""
    return check_time(nanos // 1_000_000, field)


def time_to_ms(value: object, field: str) -> int:
    """Read a time: integer milliseconds since the epoch or RFC 3339 text (finer than a millisecond is cut off).

    Raises Refusal: `badTime`.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return check_time(value, field)
    if not isinstance(value, str):
        raise Refusal("badTime", f"{field} must be integer milliseconds or RFC 3339, got {str(value)[:40]!r}")
    try:
        # RFC 3339 allows small letters and a space between date and time, which some producers write.
        return check_time(parse_time_ms(value.upper().replace(" ", "T", 1)), field)
    except ValueError as error:
        raise Refusal("badTime", f"{field} must be integer milliseconds or RFC 3339, got {value[:40]!r}") from error


def check_chunk(list_id: str, chunk: int, chunks: int) -> None:
    """Check the numbering of a chunk of a full list, or raise a refusal."""
    check_text(list_id, "listId")
    check_range(chunk, "chunk", 0, chunks - 1)


def check_range(value: int, field: str, minimum: int, maximum: int) -> None:
    """Check that a number lies within its bounds. Raises Refusal: `outOfRange`."""
    if not minimum <= value <= maximum:
        raise Refusal("outOfRange", f"{field} is {value}, must be {minimum} to {maximum}")

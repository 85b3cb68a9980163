"""Kubernetes resource quantities, exact to the bit: parsing, printing, rounding, overflow.

A quantity is held as upstream holds it, because its arithmetic shows: as a 64-bit integer with a base-10
exponent (int form), or as a decimal of any length (dec form). Both wrap, round and print differently.

From Kubernetes 1.38 on a quantity saturates where it wrapped, and rounds away from zero in each form (`saturating`).

Source: k8s.io/apimachinery/pkg/api/resource v0.37.1 (quantity.go, amount.go, math.go, scale_int.go, suffix.go), and
v0.38.0-beta.0 of the same files for `saturating`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from typing import Literal

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

MAX_I64 = 2**63 - 1
MIN_I64 = -(2**63)

MAX_TEXT_LENGTH = 1024
"""Longest accepted text. Upstream has no limit; work on untrusted text must have one."""

MAX_EXPONENT = 100_000
"""Largest accepted magnitude of a written exponent. Upstream spends minutes on ``1e2147483648``."""

FORMAT_ERROR = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"  # upstream's text
)
SUFFIX_ERROR = "unable to parse quantity's suffix"
NUMERIC_ERROR = "unable to parse numeric part of quantity"

# Possessive quantifiers: what fails, fails in linear time.
_TEXT = re.compile(r"([+-]?)(0*+)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[+-]?[0-9]*+)")
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")

_NANO_DIGITS = 9
_I64_DIGITS = 18
_SURELY_I64_LENGTH = 12
"""Of a text whose value fits 64 bits, in any unit."""
_DECIMAL_SUFFIXES = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_BINARY_SUFFIXES = {0: "", 10: "Ki", 20: "Mi", 30: "Gi", 40: "Ti", 50: "Pi", 60: "Ei"}
_SUFFIXES: dict[str, tuple[int, Format]] = {
    **{text: (exponent, "BinarySI") for exponent, text in _BINARY_SUFFIXES.items()},
    **{text: (exponent, "DecimalSI") for exponent, text in _DECIMAL_SUFFIXES.items()},
}

_SIGNIFICANT_DIGITS = 29
_BINARY_SIGNIFICANT_DIGITS = 70
"""So many digits are kept of a saturating quantity, and the rest is rounded away from zero."""
_BEYOND_EXBI = 1024**7
"""No suffix stands for so many units."""
_MOST_APART = 29
"""Of two saturating quantities that are added, the finer one is rounded to so many places below the coarser one."""

# Upstream checks these powers of ten by dividing back after one multiplication, and hands out the wrapped
# product; every other power goes digit by digit and gives 0.
_WRAPPING_POWERS = frozenset({0, 1, 2, 3, 6, 9})


class QuantityError(ValueError):
    """A text is not a quantity, or one that costs too much to hold; the message is upstream's where it has one."""


def wrap_i64(number: int) -> int:
    """Keep the low 64 bits of a number, as a signed integer."""
    return ((number - MIN_I64) & 0xFFFF_FFFF_FFFF_FFFF) + MIN_I64


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """One quantity: ``mantissa * 10**exponent``.

    Attributes:
        mantissa: signed digits; within 64 bits in int form.
        exponent: base-10 exponent of the mantissa.
        format: how it prints.
        text: the text as typed where upstream keeps it, else empty.
        scale: in dec form the number of decimal places that upstream holds (negative: trailing zeros dropped);
            it decides what overflows. None in int form.
        saturating: it counts as from Kubernetes 1.38 on.
    """

    mantissa: int
    exponent: int
    format: Format
    text: str = ""
    scale: int | None = None
    saturating: bool = False

    def __str__(self) -> str:
        """Return the text of the JSON form: as typed where upstream keeps that, else canonical."""
        return self.text or self.canonical()

    def canonical(self) -> str:
        """Return the canonical text, which never depends on how the quantity was typed."""
        if self.mantissa == 0:
            return "0"
        units = self._binary_units() if self.format == "BinarySI" else None
        if units is None:
            return self._print_decimal()
        if self.saturating and not units % _BEYOND_EXBI:
            return replace(self, format="DecimalExponent")._print_decimal()
        return _print_binary(units)

    def sign(self) -> int:
        """Return -1, 0 or 1."""
        return _sign(self.mantissa)

    def value(self) -> int:
        """Return upstream's ``Value()``: rounded up to whole units; on overflow wrapped or 0, as upstream.

        A saturating one is rounded away from zero, and on overflow the largest or least 64-bit number.
        """
        return self._scaled(0)

    def milli_value(self) -> int:
        """Return upstream's ``MilliValue()``: rounded up to thousandths; else as ``value()``."""
        return self._scaled(3)

    def as_float(self) -> float:
        """Return upstream's ``AsApproximateFloat64()``: mantissa times a power of ten, as a product of doubles."""
        if self.saturating and self.mantissa == 0:
            return 0.0
        if self.scale is None:
            return _times_power(float(self.mantissa), self.exponent)
        return _times_power(self._dec_float(self.exponent + self.scale), -self.scale)

    def cmp(self, other: Quantity) -> int:
        """Compare by value: -1, 0 or 1. Formats and texts do not matter."""
        sign = self.sign()
        if sign == 0 or sign != other.sign():
            return _sign(sign - other.sign())
        # Far-apart numbers compare by the place of their first digit, without aligning them.
        places = self._first_place() - other._first_place()
        if places:
            return sign * _sign(places)
        mine, theirs, _ = _align(self, other)
        return _sign(mine - theirs)

    def add(self, other: Quantity) -> Quantity:
        """Add exactly. A zero takes the other's format; a sum beyond 64 bits goes over to dec form."""
        result = replace(self, text="", format=other.format if self.mantissa == 0 else self.format)
        if self.scale is None and other.scale is None:
            if other.mantissa == 0:
                return result
            if self.mantissa == 0:
                return replace(result, mantissa=other.mantissa, exponent=other.exponent)
        if self.saturating and 0 in (self.mantissa, other.mantissa):
            amount = other if self.mantissa == 0 else self
            return replace(result, mantissa=amount.mantissa, exponent=amount.exponent, scale=amount._dec_scale())
        mine, theirs, exponent = _align(self, other)
        result = replace(result, mantissa=mine + theirs, exponent=exponent)
        if self.scale is None and other.scale is None and all(_is_i64(n) for n in (mine, theirs, mine + theirs)):
            return result
        apart = self._dec_scale() - other._dec_scale()
        if self.saturating and abs(apart) > _MOST_APART:
            finer, coarser = (self, other) if apart > 0 else (other, self)
            mine, theirs, exponent = _align(coarser, finer._rounded(coarser._dec_scale() + _MOST_APART))
            return replace(result, mantissa=mine + theirs, exponent=exponent, scale=-exponent)
        return replace(result, scale=max(self._dec_scale(), other._dec_scale()))

    def _rounded(self, places: int) -> Quantity:
        """Round away from zero, to a power of ten of ``-places``."""
        units = _away_from_zero(self.mantissa, -places - self.exponent)
        return replace(self, mantissa=units, exponent=-places, scale=places)

    def _dec_scale(self) -> int:
        return -self.exponent if self.scale is None else self.scale

    def _first_place(self) -> int:
        return len(_digits(abs(self.mantissa))) + self.exponent

    def _binary_units(self) -> int | None:
        """Return the value if it prints with a binary suffix: whole, and 1024 or more in magnitude."""
        units, rest = divmod(self.mantissa * _ten_to(max(self.exponent, 0)), _ten_to(max(-self.exponent, 0)))
        return units if not rest and abs(units) >= 1024 else None

    def _print_decimal(self) -> str:
        mantissa, exponent = _without_zeros(self.mantissa, self.exponent)
        # Python's modulo is what is wanted here: the exponent goes down to a multiple of three.
        mantissa, exponent = mantissa * _ten_to(exponent % 3), exponent - exponent % 3
        if self.format == "DecimalExponent" or (self.saturating and exponent not in _DECIMAL_SUFFIXES):
            return _digits(mantissa) + (f"e{exponent}" if exponent else "")
        # An exponent beyond exa has no suffix and prints none: up to 1.37 upstream shows 7000E as 7.
        return _digits(mantissa) + _DECIMAL_SUFFIXES.get(exponent, "")

    def _scaled(self, places: int) -> int:
        if self.saturating:
            power = self.exponent + places
            exact = _away_from_zero(self.mantissa, -power) if power < 0 else self.mantissa * _ten_to(min(power, 20))
            return max(MIN_I64, min(exact, MAX_I64))
        if self.scale is None:
            return _scale_i64(self.mantissa, self.exponent + places)
        return self._scale_dec(self.scale, self.scale - places)

    def _scale_dec(self, scale: int, surplus: int) -> int:
        """Drop ``surplus`` of the decimal places that upstream holds. Source: scale_int.go, scaledValue."""
        zeros = self.exponent + scale
        if surplus <= 0:
            # The factor is a double made an integer: one that does not fit is the smallest integer on amd64.
            factor = _ten_to(-surplus) if -surplus <= _I64_DIGITS else MIN_I64
            return wrap_i64(_low_bits(self.mantissa, zeros) * factor)
        if self.mantissa > 0 or surplus > _I64_DIGITS:
            quotient, rest = divmod(self.mantissa, _ten_to(max(surplus - zeros, 0)))
            return wrap_i64(_low_bits(quotient, max(zeros - surplus, 0)) + bool(rest))
        # If the divisor fits, everything below 2**63 takes the 64-bit way, the very negative included, which wraps
        # first; its division goes toward zero and its rounding up, whatever the sign.
        unscaled, divisor = _low_bits(self.mantissa, zeros), _ten_to(surplus)
        quotient = abs(unscaled) // divisor
        return (quotient if unscaled > 0 else -quotient) + bool(unscaled % divisor)

    def _dec_float(self, zeros: int) -> float:
        try:
            return float(self.mantissa * _ten_to(min(zeros, 400)))
        except OverflowError:
            return float("inf") * self.sign()


def parse_quantity(text: str, *, saturating: bool = False) -> Quantity:
    """Parse a quantity as upstream's ``ParseQuantity`` does: up to Kubernetes 1.37, or (`saturating`) from 1.38 on.

    Raises QuantityError: with upstream's text; with a text of ours for what is too long or has too large an exponent.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise QuantityError(f"quantity of {len(text)} characters is too long: at most {MAX_TEXT_LENGTH} are accepted")
    match = _TEXT.fullmatch(text) if text else None
    if match is None:
        raise QuantityError(FORMAT_ERROR)
    sign, zeros, whole, fraction, suffix = match.groups(default="")
    exponent, fmt = _interpret_suffix(suffix)
    sign_factor = -1 if sign == "-" else 1
    digits = (whole or "0") + fraction
    dropped = 0
    if fmt == "BinarySI":
        fits = not fraction and 14 - len(digits) - exponent * 3 // 10 >= 0
        mantissa, scale = int(digits) << exponent, 0
        verbatim = int(digits) % 8 != 0
    else:
        scale = exponent - len(fraction)
        fits = len(digits) <= _I64_DIGITS + saturating and scale >= -_NANO_DIGITS
        mantissa = int(digits)
        verbatim = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0" and len(digits) <= _I64_DIGITS
    if fits and _is_i64(sign_factor * mantissa):
        return Quantity(sign_factor * mantissa, scale, fmt, text if verbatim else "", saturating=saturating)
    if not zeros + whole + fraction:
        raise QuantityError(NUMERIC_ERROR)
    if fmt == "BinarySI":
        if saturating:
            mantissa, dropped = _leading(digits, _BINARY_SIGNIFICANT_DIGITS)
            mantissa <<= exponent
        return _binary_dec(sign_factor, mantissa, dropped - len(fraction), saturating)
    if saturating:
        mantissa, dropped = _leading(digits, _SIGNIFICANT_DIGITS)
    return _decimal_dec(sign_factor, mantissa, scale + dropped, fmt, saturating)


def format_milli(milli: int, fmt: Format = "DecimalSI") -> str:
    """Print a 64-bit count of thousandths canonically. Fast: every status shows some.

    Args:
        milli: thousandths, within 64 bits.
        fmt: BinarySI falls back to DecimalSI below 1024 and for what is not whole.
    """
    units, rest = divmod(milli, 1000)
    if fmt == "DecimalExponent":
        return Quantity(milli, -3, fmt).canonical()
    if rest:
        return f"{milli}m"
    if fmt == "BinarySI" and not -1024 < units < 1024:
        return _print_binary(units)
    exponent = 0
    while units and not units % 1000:
        units //= 1000
        exponent += 3
    return f"{units}{_DECIMAL_SUFFIXES[exponent]}"


def parse_milli(text: str, *, saturating: bool = False) -> int:
    """Parse a quantity and give its ``MilliValue()``. Raises QuantityError: as ``parse_quantity``."""
    # What metrics.k8s.io gives, whole nano cores and KiB, is another text each time, so that no cache helps.
    if len(text) <= _SURELY_I64_LENGTH and text.isascii():
        if text[-1:] == "n" and text[:-1].isdigit():
            return -(-int(text[:-1]) // 1_000_000)
        if text[-2:] == "Ki" and text[:-2].isdigit():
            return int(text[:-2]) * 1_024_000
    return _parse_milli(text, saturating)


@lru_cache(maxsize=65_536)
def _parse_milli(text: str, saturating: bool) -> int:
    return parse_quantity(text, saturating=saturating).milli_value()


@lru_cache(maxsize=65_536)
def _parse_cached(text: str) -> Quantity:
    return parse_quantity(text)


def equal_quantity_text(a: str, b: str) -> bool:
    """Return whether two texts are the same quantity by value: ``0.4`` equals ``400m``.

    Raises QuantityError: a text that differs from the other is not a quantity.
    """
    return a == b or _parse_cached(a).cmp(_parse_cached(b)) == 0


def _interpret_suffix(suffix: str) -> tuple[int, Format]:
    """Return the exponent and format of a suffix: of two for BinarySI, else of ten."""
    known = _SUFFIXES.get(suffix)
    if known is not None:
        return known
    match = _EXPONENT.fullmatch(suffix)
    exponent = int(match[1]) if match else MAX_I64 + 1
    if not _is_i64(exponent):
        raise QuantityError(SUFFIX_ERROR)
    if abs(exponent) > MAX_EXPONENT:
        raise QuantityError(f"quantity exponent {exponent} is out of range: at most {MAX_EXPONENT} is accepted")
    return exponent, "DecimalExponent"


def _leading(digits: str, most: int) -> tuple[int, int]:
    """Return the first `most` significant digits as an integer, rounded away from zero, and how many it leaves out."""
    significant = digits.lstrip("0")
    left_out = significant[most:]
    return int(significant[:most] or "0") + bool(left_out.strip("0")), len(left_out)


def _decimal_dec(sign: int, mantissa: int, exponent: int, fmt: Format, saturating: bool) -> Quantity:
    """Round to nine places away from zero, so that a little of a resource never becomes none.

    Up to 1.37 upstream then holds nine places; from 1.38 on no more than there are.
    """
    if mantissa == 0:
        return Quantity(0, exponent, fmt, scale=-exponent, saturating=saturating)
    surplus = -exponent - _NANO_DIGITS
    if surplus > 0:
        mantissa, exponent = _away_from_zero(mantissa, surplus), -_NANO_DIGITS
    scale = -exponent if saturating else _NANO_DIGITS
    return Quantity(sign * mantissa, exponent, fmt, scale=scale, saturating=saturating)


def _binary_dec(sign: int, mantissa: int, exponent: int, saturating: bool) -> Quantity:
    """Round as decimals are, cap at 64 bits, and let what is below one print as a decimal."""
    amount = _decimal_dec(1, mantissa, exponent, "BinarySI", saturating)
    if amount.cmp(_BINARY_MAXIMUM) > 0:
        return replace(_BINARY_MAXIMUM, mantissa=sign * MAX_I64, saturating=saturating)
    below_one = amount.mantissa > 0 and amount.cmp(_ONE) < 0
    return replace(amount, mantissa=sign * amount.mantissa, format="DecimalSI" if below_one else "BinarySI")


_ONE = Quantity(1, 0, "DecimalSI")
_BINARY_MAXIMUM = Quantity(MAX_I64, 0, "BinarySI", scale=0)


def _scale_i64(mantissa: int, power: int) -> int:
    """Multiply an int form by a power of ten: rounded away from zero below, wrapped or 0 above 64 bits."""
    if power < 0:
        return _away_from_zero(mantissa, -power)
    if power in _WRAPPING_POWERS:
        return 0 if mantissa == MIN_I64 and power else wrap_i64(mantissa * _ten_to(power))
    product = mantissa * _ten_to(min(power, 20))
    return product if _is_i64(product) else 0


def _away_from_zero(mantissa: int, places: int) -> int:
    """Divide by a power of ten, rounding away from zero."""
    # A power of ten longer than any mantissa leaves one unit, whatever its length.
    rounded = -(-abs(mantissa) // _ten_to(min(places, MAX_TEXT_LENGTH + _I64_DIGITS)))
    return rounded if mantissa > 0 else -rounded


def _align(a: Quantity, b: Quantity) -> tuple[int, int, int]:
    """Return both mantissas at the lower of both exponents, and that exponent."""
    low = min(a.exponent, b.exponent)
    return a.mantissa * _ten_to(a.exponent - low), b.mantissa * _ten_to(b.exponent - low), low


def _is_i64(number: int) -> bool:
    return MIN_I64 <= number <= MAX_I64


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)


def _ten_to(power: int) -> int:
    result: int = 10**power
    return result


def _low_bits(mantissa: int, zeros: int) -> int:
    """Return the low 64 bits of ``mantissa * 10**zeros`` without building the power."""
    return wrap_i64(mantissa * pow(10, zeros, 2**64))


def _times_power(number: float, exponent: int) -> float:
    return number * _pow10(exponent) if exponent else number


def _pow10(exponent: int) -> float:
    """Return Go's ``math.Pow10``: from two table entries, so not always the nearest double."""
    if exponent > 308:
        return float("inf")
    if exponent >= 0:
        return float(10 ** (exponent // 32 * 32)) * float(10 ** (exponent % 32))
    if exponent < -323:
        return 0.0
    return float(f"1e-{-exponent // 32 * 32}") / float(10 ** (-exponent % 32))


def _without_zeros(mantissa: int, exponent: int) -> tuple[int, int]:
    """Move all factors of ten of a number other than zero into its exponent."""
    while not mantissa % 10:
        mantissa //= 10
        exponent += 1
    return mantissa, exponent


def _print_binary(units: int) -> str:
    exponent = 0
    while not units % 1024:
        units //= 1024
        exponent += 10
    return f"{_digits(units)}{_BINARY_SUFFIXES.get(exponent, '')}"


def _digits(number: int) -> str:
    """Print an integer of any length; ``str(int)`` refuses more than 4,300 digits."""
    return str(Decimal(number))

"""Whole numbers in texts that others write."""

MOST_DIGITS = 19
"""As many as the largest number of 64 bits has. Python reads none of more than 4,300 digits."""


def whole_number(text: str) -> int | None:
    """The number that a text of ASCII digits names; None: it is no such text, or has more than MOST_DIGITS.

    `str.isdigit` is no test for this: "²" is a digit to it, and no number to `int`.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None

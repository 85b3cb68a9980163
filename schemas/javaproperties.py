"""The two grammars of a `client.properties`: that of `java.util.Properties`, and that of Kafka's `JaasConfig`, which
reads the value of `sasl.jaas.config` with a `java.io.StreamTokenizer`.

The readers answer as those of Java do, and refuse what those refuse. No error has a part of a
value: it may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_BLANKS: Final = " \t\f"
_ENDS: Final = "\r\n"
TRIMMED: Final = "".join(map(chr, range(0x21)))
"""What Java's `String.trim` takes from both ends of a text."""


class JavaTextError(ValueError):
    """Java refuses the text; the message says why."""


# --- java.util.Properties ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Property:
    """One property. `number`: its place in the file, from 1, comments and empty lines not counted. `has_sign`: `=` or
    `:` is between key and value, so that the line was meant as a property.
    """

    number: int
    key: str
    value: str
    has_sign: bool


def read_properties(text: str) -> Iterator[Property]:
    """Read the properties of a text in their order; of a key that is given twice, Java keeps the last value.

    Raises JavaTextError: `\\u` is not followed by four hexadecimal digits, or gives half of a character.
    """
    for number, line in enumerate(_logical_lines(text), start=1):
        end = _key_end(line)
        rest = line[end:].lstrip(_BLANKS)
        has_sign = rest[:1] in ("=", ":")
        value = rest[1:].lstrip(_BLANKS) if has_sign else rest
        yield Property(number, _unescaped(line[:end], number), _unescaped(value, number), has_sign)


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with those that continue them, without comments and empty lines.

    A line that begins with `#` or `!` continues nothing and is not continued; within a continued line they are text,
    unless nothing came before them.
    """
    logical, ends_with_both = "", text.endswith("\r\n")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        part = line.lstrip(_BLANKS)
        if not logical and part[:1] in ("#", "!"):
            continue
        if (len(part) - len(part.rstrip("\\"))) % 2:
            logical += part[:-1]
            continue
        if logical := logical + part:
            yield logical
        logical = ""
    # Java takes a last line of one backslash for a property without key and value, unless both signs end it.
    last = text.removesuffix("\n").rpartition("\n")[2].lstrip(_BLANKS)
    if logical or (last == "\\" and not ends_with_both):
        yield logical


def _key_end(line: str) -> int:
    """Return where the key ends: at the first sign or blank that no backslash escapes."""
    index = 0
    while index < len(line) and line[index] not in f"=:{_BLANKS}":
        index += 2 if line[index] == "\\" else 1
    return min(index, len(line))


_ESCAPED: Final = {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}


def _unescaped(text: str, number: int) -> str:
    parts: list[str] = []
    index = 0
    while (backslash := text.find("\\", index)) >= 0:
        parts.append(text[index:backslash])
        letter = text[backslash + 1 : backslash + 2]
        index = backslash + 2
        if letter == "u":
            parts.append(_unit(text[index : index + 4], number))
            index += 4
        else:
            parts.append(_ESCAPED.get(letter, letter))
    parts.append(text[index:])
    try:  # \\uD83D\\uDE00 are the two halves of one character
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        raise JavaTextError(f"property {number}: \\u gives half of a character") from error


def _unit(digits: str, number: int) -> str:
    if len(digits) != 4 or not set(digits) <= set("0123456789abcdefABCDEF"):
        raise JavaTextError(f"property {number}: \\u must be followed by four hexadecimal digits")
    return chr(int(digits, 16))


# --- Kafka's JaasConfig -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoginModule:
    """The login module of a `sasl.jaas.config`: its class, and its options. An option without a name that can be read
    has the empty one.
    """

    name: str
    options: dict[str, str] = field(repr=False)


_FLAGS: Final = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class _Token:
    """`text`: a word, or what quotes enclose; None: `sign` is a sign, or empty for a number. `is_open`: the quote has
    no end on its line.
    """

    text: str | None
    sign: str = ""
    is_open: bool = False


def read_jaas(text: str) -> LoginModule:
    """Read the value of `sasl.jaas.config`: `<class> required name="value" …;`.

    Raises JavaTextError: it is not one login module with a control flag, options with values, and a semicolon.
    """
    tokens = list(_tokens(text))
    try:
        return _login_module(tokens)
    except JavaTextError as error:
        if any(token.is_open for token in tokens):
            raise JavaTextError("a value has no closing quote") from error
        raise


def _login_module(tokens: list[_Token]) -> LoginModule:
    if not tokens or not tokens[0].text:
        raise JavaTextError("it must begin with the class of a login module")
    if len(tokens) < 2 or (tokens[1].text or "").lower() not in _FLAGS:
        raise JavaTextError(f"behind the class of the login module must be one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    index = 2
    while index < len(tokens) and tokens[index].sign != ";":
        value = tokens[index + 2].text if len(tokens) > index + 2 and tokens[index + 1].sign == "=" else None
        if value is None:
            raise JavaTextError('an option has no value: expected name="value", a number in quotes, too')
        options[tokens[index].text or ""] = value
        index += 3
    if index >= len(tokens):
        raise JavaTextError("it must end with a semicolon")
    if index + 1 < len(tokens):
        raise JavaTextError("it must have one login module: there is more text behind the first semicolon")
    return LoginModule(tokens[0].text, options)


_ESCAPED_IN_QUOTES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_DIGITS: Final = frozenset("0123456789")


def _is_word(letter: str) -> bool:
    """Whether words consist of it: letters and digits of ASCII, `$`, `-`, `.`, `_`, all from U+00A0 on."""
    return (letter.isascii() and letter.isalnum()) or letter in "$-._" or letter >= "\xa0"


def _tokens(text: str) -> Iterator[_Token]:
    index = 0
    while index < len(text):
        letter = text[index]
        if letter <= " ":
            index += 1
        elif letter == "/":
            index = _comment_end(text, index)
        elif letter in "\"'":
            token, index = _quoted(text, index)
            yield token
        elif letter in _DIGITS or letter in "-.":
            token, index = _number(text, index)
            yield token
        elif _is_word(letter):
            start = index
            while index < len(text) and _is_word(text[index]):
                index += 1
            yield _Token(text[start:index])
        else:
            index += 1
            yield _Token(None, letter)


def _comment_end(text: str, start: int) -> int:
    """Return where a comment ends: `/* … */`, and from any other slash on the rest of its line."""
    if text.startswith("/*", start):
        end = text.find("*/", start + 2)
        return len(text) if end < 0 else end + 2
    return _line_end(text, start)


def _line_end(text: str, start: int) -> int:
    return min((at for at in (text.find(end, start) for end in _ENDS) if at >= 0), default=len(text))


def _number(text: str, start: int) -> tuple[_Token, int]:
    """A number is a token of its own, which ends where its digits end."""
    index = start + (text[start] == "-")
    if index > start and text[index : index + 1] not in {*_DIGITS, "."}:
        return _Token(None, "-"), index
    dots = 0
    while index < len(text) and (text[index] in _DIGITS or (text[index] == "." and not dots)):
        dots += text[index] == "."
        index += 1
    return _Token(None), index


def _quoted(text: str, start: int) -> tuple[_Token, int]:
    quote, index = text[start], start + 1
    parts: list[str] = []
    while index < len(text) and text[index] not in (quote, *_ENDS):
        if text[index] == "\\":
            part, index = _escape(text, index + 1)
            parts.append(part)
        else:
            parts.append(text[index])
            index += 1
    is_open = text[index : index + 1] != quote
    return _Token("".join(parts), is_open=is_open), index + (not is_open)


def _escape(text: str, index: int) -> tuple[str, int]:
    """Return what an escape within quotes stands for, and where it ends: at most three octal digits, to \\377."""
    first = text[index : index + 1]
    if not first or first not in "01234567":
        return _ESCAPED_IN_QUOTES.get(first, first), index + 1
    end = index + 1
    while end < len(text) and text[end] in "01234567" and end - index < (3 if first <= "3" else 2):
        end += 1
    return chr(int(text[index:end], 8)), end

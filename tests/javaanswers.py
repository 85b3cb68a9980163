"""What Java reads from texts of `client.properties` and `sasl.jaas.config`, recorded for a machine without Java.

python -m tests.javaanswers        # writes tests/data/java/answers.json; needs Java 17 or newer
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final, Literal, TypedDict

FOLDER: Final = Path(__file__).parent / "data/java"
RECORDED: Final = FOLDER / "answers.json"
Grammar = Literal["properties", "jaas"]


class JavaAnswer(TypedDict):
    """One text, and what Java reads from it: None where it refuses the text. A login module's name stands alone."""

    grammar: Grammar
    text: str
    answer: list[list[str]] | None


PROPERTIES: Final = (
    "host\\:9092=a\\=b\\:c\\ d",
    "key value of words",
    "key:value",
    "key \t\f= \t\fvalue",
    "key = = two",
    "key : = two",
    "key\\ with\\ blanks = v",
    "a\\\\=b",
    "a\\\\\\=b=c",
    "= no key",
    ": no key",
    "alone",
    "twice=1\ntwice=2",
    "a=b \t ",
    "  # a comment\n\t! another \\\na=b",
    "a=b # no comment",
    "a=1,\\\n   2,\\\r\n\t3,\\\r4",
    "a=b\\\n\nc=d",
    "a=b\\\n   \nc=d",
    "a=b\\\n# text\\\n! text",
    "\\\n# a comment\na=b",
    "a=b\\\\\nc=d",
    "a=b\\\\\\\nc=d",
    "a=b\\",
    "a=b\\\\",
    "\\",
    "\\\n",
    "\\\r\n",
    "a=b\n \\\r\n",
    "a\\\n=b",
    "a=\\\n\\\n b",
    "a=\\u0041\\u00e9\\u4E2d\\uD83D\\uDE00",
    "\\u0061\\u003d=b",
    "a=\\u41",
    "a=\\u004g",
    "a=\\uu0041",
    "a=\\U0041\\x41\\0\\\"\\'\\z",
    "a=\\t\\n\\r\\f\\b\\v",
    "a=\\u000ab=c",
    "a=b\rc=d\r\ne=f\n\r\n\ng=h",
    "a=b\u000bc=d",
    "\u000ba=b",
    "a=\x85b\nc=d\x1ce",
    "a=\xa0b\xa0",
    "\xe4=\xfc",
    "\xef\xbb\xbfa=b",
    "a=b\x00c",
    'sasl.jaas.config=X required username\\="a" \\\n  password\\="b\\\\\\"c";',
    "a\\:b c:d",
    "a=\\ b",
    "a\\\tb c",
)
JAAS: Final = (
    'X required username="u" password="p";',
    'a.b.C$D-E_F REQUIRED username="u";',
    "X required username='u' password='it\"s';",
    'X required username="it\'s" password="a\\"b";',
    "X required username=u password=p;",
    "X required username=u-1.b password=p$_;",
    'X required a="\\a\\b\\f\\n\\r\\t\\v\\\\\\"\\\'\\q\\u0041";',
    'X required a="\\101\\60\\7\\08\\377\\477\\400\\1234";',
    "X required password=123;",
    'X required password="123";',
    "X required password=-a;",
    "X required password=a123;",
    'X required 1="a";',
    'X required 1a="a";',
    'X required a.b.c="d" .e="f";',
    'X required "a b"="c";',
    'X required ="c";',
    'X required a = "b"\n\tc\n=\n"d" ;',
    'X required a="b"c="d";',
    'X required a="b", c="d";',
    'X required a="b" a="c";',
    'X required a="";',
    "X required a=;",
    "X required a;",
    "X required;",
    "X required",
    "X;",
    "X",
    "",
    ";",
    'X needed a="b";',
    'X optional a="b";',
    'X Sufficient a="b";',
    'X requisite a="b";',
    'X "required" a="b";',
    '"X" required a="b";',
    '"" required a="b";',
    '1 required a="b";',
    'X required a="b"',
    'X required a="b";;',
    'X required a="b"; ',
    'X required a="b"; Y required c="d";',
    'X required a="b;',
    'X required a="b\nc="d";',
    'X required a="b\n;',
    'X required a="b\\\nc";',
    'X required a="b\\',
    'X required a="b" /* c="d" */ e="f";',
    'X required a="b" // c="d";\n e="f";',
    'X required a="b" / c="d";\n e="f";',
    "X required a=/etc/x;\n;",
    'X required a="/etc//x /* y */";',
    'X required a="b" /* open',
    'X required a="b"; // behind',
    'X required a="b"; /* behind */',
    'X required a="b" /**/;',
    'X required a="b" /*/ c="d" */;',
    "X required a=p@ss;",
    "X required a=p#s;",
    "X required a=b#;",
    "X required \xe4\xf6=\xfc\u4e2d;",
    'X required a="\u4e2d\U0001f600";',
    "X\xa0required a=b;",
    "X required a=b\x7f;",
    "X required a=\x85;",
    "X required a=b\x00c=d;",
    "X required a==b;",
    'X required a="b"="c";',
    "X required a=-1;",
    "X required a=.5;",
    "X required a=1.2.3;",
    "X required a=-.;",
    "X required a=-;",
)


def texts() -> list[tuple[Grammar, str]]:
    """Every text, in the order of the record: those written by hand, and others drawn by lot."""
    drawn = random.Random(17)
    found: list[tuple[Grammar, str]] = [("properties", text) for text in PROPERTIES]
    found += [("jaas", text) for text in JAAS]
    pieces = ("a", "b", "=", ":", " ", "\t", "\f", "\\", "\\", "\n", "\r", "#", "!", "\\u0041", "\\n", "u", "\xe4")
    found += [("properties", "".join(drawn.choices(pieces, k=drawn.randint(1, 14)))) for _ in range(400)]
    tokens = ('"', "'", "\\", "a", "b", "=", "=", " ", ";", "/", "*", "1", "7", ".", "-", "\n", "n", "\xe4", "#")
    for _ in range(400):
        middle = "".join(drawn.choices(tokens, k=drawn.randint(1, 12)))
        found.append(("jaas", f'X required a="{middle}" b=c;'))
        found.append(("jaas", f"X required a={middle}; "))
    return found


def java_answers() -> list[JavaAnswer]:
    """Ask Java about every text. Raises FileNotFoundError: there is no `java`."""
    java = shutil.which("java")
    if java is None:
        raise FileNotFoundError("java is not installed")
    asked = texts()
    lines = [f"{grammar} {_sent(grammar, text)}\n" for grammar, text in asked]
    command = [java, str(FOLDER / "Answers.java")]
    done = subprocess.run(command, input="".join(lines), capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    return [
        JavaAnswer(grammar=grammar, text=text, answer=_answer(line))
        for (grammar, text), line in zip(asked, answers, strict=True)
    ]


def _sent(grammar: Grammar, text: str) -> str:
    return b64encode(text.encode("utf-8" if grammar == "jaas" else "latin-1")).decode()


def _answer(line: str) -> list[list[str]] | None:
    kind, *parts = line.split(" ")
    if kind == "refused":
        return None
    return sorted([b64decode(each).decode() for each in part.split(":")] for part in parts)


if __name__ == "__main__":
    written = ",\n".join(json.dumps(each) for each in java_answers())
    RECORDED.write_text(f"[\n{written}\n]\n")

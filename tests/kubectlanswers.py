"""What kubectl reads from texts of manifests, recorded for a machine without it.

python -m tests.kubectlanswers KUBECTL       # writes tests/data/kubectl/answers.json; needs no cluster
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any, Final, TypedDict

RECORDED: Final = Path(__file__).parent / "data/kubectl/answers.json"


class KubectlAnswer(TypedDict):
    """The bytes of a file, in base64, and the objects that kubectl reads from them; None where it refuses the file."""

    name: str
    content: str
    answer: list[Any] | None


ONE: Final = "apiVersion: v1\nkind: X\nmetadata:\n  name: a\n"
TWO: Final = "apiVersion: v1\nkind: X\nmetadata:\n  name: b\n"
JSON_ONE: Final = '{"apiVersion": "v1", "kind": "X", "metadata": {"name": "a"}}'
JSON_TWO: Final = '{\n\t"apiVersion": "v1",\n\t"kind": "X",\n\t"metadata": {\n\t\t"name": "b"\n\t}\n}'
ITEM: Final = '{"metadata": {"name": "a"}}'
MARK: Final = "\ufeff"

TEXTS: Final[dict[str, str]] = {
    "json indented with tabs": JSON_TWO,
    "json behind blank lines and tabs": f"\n\t \n\t{JSON_TWO}\n\t\n",
    "json of carriage returns": JSON_TWO.replace("\n", "\r\n"),
    "json behind a byte order mark": MARK + JSON_ONE,
    "json objects in a row": JSON_ONE + JSON_TWO,
    "json objects by lines": f"{JSON_ONE}\n{JSON_TWO}\n",
    "json objects with a comma": f"{JSON_ONE},{JSON_TWO}",
    "json documents": f"{JSON_TWO}\n---\n{JSON_ONE}\n",
    "json documents with tabs twice": f"{JSON_TWO}\n---\n{JSON_TWO}\n",
    "json documents behind a separator": f"---\n{JSON_TWO}\n---\n{JSON_TWO}\n",
    "json, then yaml": f"{JSON_ONE}\n---\n{TWO}",
    "yaml, then json": f"{ONE}---\n{JSON_ONE}",
    "yaml, then json with tabs": f"{ONE}---\n{JSON_TWO}",
    "yaml, then json in a row": f"{ONE}---\n{JSON_ONE}\n{JSON_TWO}",
    "json, then text": f"{JSON_ONE} nonsense",
    "json, then yaml without a separator": f"{JSON_ONE}\n{TWO}",
    "json without its end": JSON_ONE[:-1],
    "json with a comma too many": JSON_ONE[:-1] + ",}",
    "json with a comment": f"# a comment\n{JSON_TWO}",
    "json with a comment behind": f"{JSON_ONE}\n# a comment\n",
    "a flow mapping of yaml": "{apiVersion: v1, kind: X, metadata: {name: a}}",
    "a flow mapping with tabs": "{apiVersion:\tv1,\n\tkind:\tX,\n\tmetadata:\t{name:\ta}\t}\t\n",
    "a flow mapping with a comment": "{apiVersion: v1, kind: X, # which\n metadata: {name: a}}",
    "flow mappings in documents": "{apiVersion: v1, kind: X, metadata: {name: a}}\n---\n" + TWO,
    "json with numbers": JSON_ONE[:-1] + ', "spec": {"a": 1, "b": 1.5, "c": -3, "d": 1e3, "e": 12345678901}}',
    "json with escapes": JSON_ONE[:-1] + ', "spec": {"a": "\\u00e9\\ud83d\\ude00\\/\\t", "b": "\\ud83d"}}',
    "json with a key twice": JSON_ONE[:-1] + ', "spec": {"a": 1, "a": 2}}',
    "json with NaN": JSON_ONE[:-1] + ', "spec": {"a": NaN}}',
    "json with words of yaml": JSON_ONE[:-1] + ', "spec": {"a": yes}}',
    "json with a tab in a text": JSON_ONE[:-1] + ', "spec": {"a": "b\tc"}}',
    "json with an array": f"[{JSON_ONE}]",
    "json with null": "null",
    "tab after a colon": ONE + "spec:\n  a:\tb\n  c:\t 1\n  d: \t2\n",
    "tab at the end of a line": ONE + 'spec:\t\n  a: b\t\n  c: 1 \t \n  d: "e"\t\n  f: {}\t\n',
    "tab before a comment": ONE + "spec:\t# one\n  a: b\t# two\n  c: 1\t# three\n  d: 'e'\t# four\n",
    "tab on an empty line": ONE + "\t\nspec:\n  \t\n  a: b\n",
    "tab on the last line": ONE + "\t",
    "tab before a comment alone": ONE + "\t# a comment\nspec: {a: b}\n",
    "spaces and a tab before a comment alone": ONE + "  \t# a comment\nspec: {a: b}\n",
    "tab in a text": ONE + "spec:\n  a: b\tc\n",
    "tab in a text of two lines": ONE + "spec:\n  a: b\t\n    c\td\n",
    "tab that indents": ONE + "spec:\n\ta: b\n",
    "tab behind spaces that indents": ONE + "spec:\n  \ta: b\n",
    "tab that indents a text's second line": ONE + "spec:\n  a: b\n\tc\n",
    "tab behind spaces in a text's second line": ONE + "spec:\n  a: b\n   \tc\n",
    "tab after a dash": ONE + "spec:\n  a:\n  -\tb\n  - c\n",
    "tab after a dash before a mapping": ONE + "spec:\n  a:\n  -\tb: c\n",
    "tab after a dash and a space": ONE + "spec:\n  a:\n  - \tb\n",
    "tab before a colon": ONE + "spec:\n  a\t: b\n",
    "tab before a flow mapping": ONE + "spec:\t{a:\t[b,\tc],\n\td: e}\n",
    "tab before a quoted text": ONE + "spec:\n  a:\t'b'\n  'c'\t:\t\"d\"\n",
    "tab before a block text": ONE + "spec:\n  a:\t|\n    b\n    \tc\n",
    "tab behind the sign of a block text": ONE + "spec:\n  a: |\t\n    b\n  c: >-\t# why\n    d\n",
    "tab before and behind a tag": ONE + "spec:\n  a:\t!!str\t1\n",
    "tab before and behind an anchor": ONE + "spec:\n  a:\t&x\tb\n  c:\t*x\t\n",
    "tab behind a separator": f"{ONE}---\t\n{TWO}---\t# third\n",
    "text behind a separator": f"{ONE}--- # second\n{TWO}",
    "byte order mark": MARK + ONE,
    "byte order mark of a later document": f"{ONE}---\n{MARK}{TWO}",
    "byte order mark of a json document": f"{ONE}---\n{MARK}{JSON_TWO}",
    "byte order mark before a separator": f"{ONE}{MARK}---\n{TWO}",
    "byte order mark before the first separator": f"{MARK}---\n{ONE}---\n{MARK}{TWO}",
    "byte order mark behind a comment": f"{ONE}---\n# a comment\n{MARK}{TWO}",
    "byte order mark in a text": ONE + f"spec: {{a: 'b{MARK}c'}}\n",
    "two byte order marks": MARK + MARK + ONE,
    "carriage returns": (ONE + "---\n" + TWO).replace("\n", "\r\n"),
    "a List": f"apiVersion: v1\nkind: List\nitems:\n- {JSON_ONE}\n",
    "a List of items without kind": f"apiVersion: v1\nkind: List\nitems:\n- {ITEM}\n",
    "an XList of items without kind": f"apiVersion: a/v1\nkind: XList\nitems:\n- {ITEM}\n- {ITEM}\n",
    "an XList with an item of its own kind": f"apiVersion: a/v1\nkind: XList\nitems:\n- {JSON_ONE}\n- {ITEM}\n",
    "an XList with an item with kind alone": "apiVersion: a/v1\nkind: XList\nitems:\n"
    "- {kind: Y, metadata: {name: a}}\n",
    "an XList with an item with version alone": "apiVersion: a/v1\nkind: XList\nitems:\n"
    "- {apiVersion: b/v1, metadata: {name: a}}\n",
    "an XList of an empty kind": "apiVersion: a/v1\nkind: XList\nitems:\n- {kind: '', metadata: {name: a}}\n",
    "an XList without items": "apiVersion: a/v1\nkind: XList\nmetadata: {}\nitems: []\n",
    "an XList of null": "apiVersion: a/v1\nkind: XList\nmetadata: {}\nitems: null\n",
    "a List in a List": f"apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: XList, items: [{ITEM}]}}\n",
    "an X with items": "apiVersion: a/v1\nkind: X\nmetadata: {name: a}\nitems: [{metadata: {name: b}}]\n",
    "an object without kind": "apiVersion: v1\nmetadata: {name: a}\n",
    "empty documents": f"---\n---\n# nothing\n---\n{ONE}---\n\n---\n",
    "a document end": f"{ONE}...\n---\n{TWO}",
    "a list": "- a\n",
    "directives": f"%YAML 1.1\n---\n{ONE}",
    "an object on a separator's line": f"{ONE}--- {JSON_ONE}\n",
    "nothing": "",
}
"""Name → text, written as UTF-8."""
VALUES: Final = (
    *("yes", "no", "on", "off", "y", "N", "oN", "tRUE", "True", "~", "Null", "nUll", "", '"yes"', "'no'", "=", "500m"),
    *("!!str yes", '!!int "3"', '!!bool "yes"', "!!float 1", '!!null ""', "!!binary aGk=", "!custom a", "!!set {a, b}"),
    *("0o17", "017", "0O17", "08", "0x1F", "0X1F", "0B11", "-0b11", "-017", "+5", "-0", "0777", "0_7", "1_0.5", "0x_"),
    *(
        "0.0",
        "1.",
        ".5",
        "+.5",
        "-.5e3",
        "1e3",
        "1E3",
        "1e+3",
        "1.0",
        "1e22",
        "1e400",
        "1_000",
        "1__0",
        "1_",
        "_1",
        "0.",
    ),
    *("1:30", "12:30:45", "1.2.3", ".", "...x", "-", "--", ".inf", "-.Inf", ".nan", "inf", "Infinity", "2001-01-01"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "0x10000000000000000", "9" * 500, "5e-324"),
    *(
        "a:b",
        "a #b",
        "a#b",
        '"a" b',
        "[a",
        "[a, b: c]",
        "{a: , b}",
        "[,]",
        "[a,]",
        "{a: 1,}",
        "*x",
        "&x 1",
        "@a",
        "`a`",
    ),
    *(
        "%a",
        "|",
        '"\\x41\\u00e9\\U0001F600"',
        '"\\q"',
        '"\\/"',
        '"\\ud800"',
        '"\\U00110000"',
        '"\\0"',
        "'it''s'",
        "a\n    b",
    ),
    *("a\n\n    b", "http://x:80", "{{ .Values.x }}", "[a#b, c]", "[http://x, b]", "-b", ":b", "?b", "b, c", '["a":b]'),
    *(
        "|\n    b",
        "|+\n    b\n\n",
        ">-\n    b\n    c\n\n    d\n",
        "|2\n      b\n",
        ">\n    b\n      c\n    d\n",
        "|\n    \tb\n",
    ),
)
"""Values of a field, each a file."""
KEYS: Final = ("1", "1.5", "true", "yes", "null", "~", "0x10", "1e3", "[a]", "010", "-1", "1_0", '""', "!!binary aGk=")
DOCUMENTS: Final[dict[str, str]] = {
    "json with a number beyond a double": JSON_ONE[:-1] + ', "spec": {"a": 1E400}}',
    "json with a null character": JSON_ONE[:-1] + ', "spec": {"a": "\\u0000"}}',
    "json with a wrong escape": JSON_ONE[:-1] + ', "spec": {"a": "\\q"}}',
    "json in single quotes": JSON_ONE.replace('"', "'"),
    "json, then a comma and yaml": f"{JSON_ONE},\n{ONE}",
    "a merge before a key": f"{ONE}spec: {{b: &b {{x: 1}}, v: {{<<: *b, x: 3}}}}\n",
    "a merge behind a key": f"{ONE}spec: {{b: &b {{x: 1}}, v: {{x: 3, <<: *b}}}}\n",
    "a merge of a list": f"{ONE}spec: {{b: &b {{x: 1}}, c: &c {{x: 2, z: 1}}, v: {{<<: [*b, *c]}}}}\n",
    "two merges": f"{ONE}spec: {{b: &b {{x: 1}}, c: &c {{x: 2, z: 1}}, v: {{<<: *b, <<: *c}}}}\n",
    "a merge of a number": f"{ONE}spec: {{<<: 1}}\n",
    "a merge in quotes": f'{ONE}spec: {{"<<": {{a: 1}}}}\n',
    "an anchor given again": f"{ONE}spec: {{a: &a 1, b: &a 2, c: *a}}\n",
    "an anchor of another document": f"{ONE}spec: &a 1\n---\n{TWO}spec: *a\n",
    "an anchor as a key": f"{ONE}spec: {{a: &a k, *a : v}}\n",
    "a key twice": f"{ONE}spec: {{a: 1, a: 2}}\n",
    "a key twice, as number and text": f'{ONE}spec: {{1: a, "1": b}}\n',
    "a complex key": f"{ONE}spec:\n  ? a\n  : b\n",
    "a list that is not indented": f"{ONE}spec:\n  a:\n  - b\n  - - c\n    - d\n",
    "a block text at the end of the file": f"{ONE}spec: |\n  a",
    "a null character": f"{ONE}spec: \0\n",
    "a control character": f'{ONE}spec: "\x07"\n',
    "no line break at the end": ONE.rstrip("\n"),
    "a separator in a text": f'{ONE}spec: "a\n---\nb"\n',
    "four dashes": f"{ONE}----\n{TWO}",
    "only comments": "# a\n# b\n",
    "only separators": "---\n---\n---",
    "two documents, the second broken": f"{ONE}---\na: [\n",
}
"""Further files, by their names."""
UTF16: Final = (
    "json indented with tabs",
    "tab after a colon",
    "byte order mark of a later document",
    "carriage returns",
)


def contents() -> dict[str, bytes]:
    """Every file by its name: the texts, and some of them as Windows PowerShell's `>` and others write them."""
    values = {f"a value {value[:40]!r}": f"{ONE}spec:\n  v: {value}\n" for value in VALUES}
    keys = {f"a key {key!r}": f"{ONE}spec: {{{key}: v}}\n" for key in KEYS}
    found = {name: text.encode() for name, text in (TEXTS | values | keys | DOCUMENTS).items()}
    for name in UTF16:
        for order in ("le", "be"):
            found[f"{name}, UTF-16 {order}"] = (MARK + TEXTS[name]).encode(f"utf-16-{order}")
    found["UTF-16 without a byte order mark"] = ONE.encode("utf-16-le")
    return found


def kubectl_answers(kubectl: str) -> list[KubectlAnswer]:
    """Ask kubectl about every file: `label --local` prints the objects of a file, of any kind, with one label more."""
    return [
        KubectlAnswer(name=name, content=b64encode(content).decode(), answer=_asked(kubectl, content))
        for name, content in contents().items()
    ]


def _asked(kubectl: str, content: bytes) -> list[Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "manifest.yaml"
        file.write_bytes(content)
        command = [kubectl, "label", "--local", "-f", str(file), "-o", "json", "asked=yes"]
        environ = os.environ | {"HOME": folder, "KUBECONFIG": str(Path(folder) / "none")}
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    if done.returncode:
        return None
    objects: list[Any] = []
    decoder, text = json.JSONDecoder(), done.stdout.strip()
    while text:
        body, end = decoder.raw_decode(text)
        del body["metadata"]["labels"]
        objects.append(body)
        text = text[end:].lstrip()
    return objects


if __name__ == "__main__":
    RECORDED.parent.mkdir(exist_ok=True)
    written = ",\n".join(json.dumps(each) for each in kubectl_answers(sys.argv[1]))
    RECORDED.write_text(f"[\n{written}\n]\n")

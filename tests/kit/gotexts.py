"""Texts in rules of prometheus-adapter, and what Go makes of them: `python -m tests.kit.gotexts` records it.

A question is a pattern, a text and a template for its groups, or a template for a query alone.
"""

import json
import os
import random
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from reconciler.prometheus.goregexp import GoRegexp
from reconciler.prometheus.promrules import QUERY_FIELDS, RulesError, Template
from schemas.kubernetes.shape import Json

RECORDED: Final = Path("tests/data/prometheus/go-answers.jsonl")
DRIVER: Final = Path("tests/kubernetes/gotexts")
Question = Sequence[str]

PATTERNS: Final = (
    *(r"[[:alnum:]_]+", r"[[:word:]]+", r"[[:foo:]]", r"[[:^alpha:]]", r"[[:upper:]][[:lower:]]*", r"[a[:digit:]b]"),
    *(r"^container_(.*)_seconds_total$", r"^(.+?)_(sum|count|bucket)$", r".*?(_total)?$", r"(?i)^HTTP_(.*)$"),
    *(r"(?i)FOO", r"a(?i)b", r"a(?i:b)c", r"(?i-s:A)", r"(?-i)a", r"(?--i)a", r"(?)a", r"(?U)a+", r"(?s).", r"(?m)^b"),
    *(r"(?x)a b", r"(?#c)a", r"(?>a)", r"(?|a|b)", r"x*+", r"x**", r"x{2,1}", r"x{1001}", r"x{,2}", r"x{2}{2}", "a{1"),
    *(r"foo\z", r"foo\Z", r"\Afoo", r"\G", r"\K", r"\R", r"\X", r"\h", r"\e", r"\v", r"\C", r"\bfoo\b", r"\<foo"),
    *(r"\pL+", r"\PN", r"\p{Greek}", r"\p{^Lu}", r"\p{Any}", r"\p{Latin}", r"\pX", r"\p{Script=Greek}", r"(?i)\p{Lu}"),
    *(r"(?P<name>\w+)_(?P<rest>.*)", r"(?<name>\w+)_(?<rest>.*)", r"(?P<name>a)?(?P<name>b)", r"(?P<é>x)"),
    *(r"(?P<1a>x)", r"(?P<a-b>x)", r"(?P<>x)", r"(?P<a", r"(?P=n)", r"(?'n'a)"),
    *(r"(?=a)", r"(?!a)", r"(?<=a)b", r"(?<!a)b", r"(a)\1", r"\8", r"\101", r"\x41", r"\x{41}", r"\x{110000}"),
    *(r"\Qa.b\E", r"\Q(\E(?P<name>b)", r"\E", r"[]a]", r"[^]a]", r"[a-]", r"[z-a]", r"[", "(", ")", "(*)", "*a", "?"),
    *(r"[](?P<x>](?P<name>a)", r"\((?P<name>b)", r"(?i:(?P<name>b))", r"[\](](?P<name>b)", r"(|a)*", r"(|a)+", "|"),
    *(
        r"[^\d]",
        r"[\w-z]",
        r"[\b]",
        r"[\Q]\E]",
        r"é+",
        r"[é-ü]",
        "(?i)\u017f",
        "(?i)K",
        "a\x00b",
        "\\",
        r"\\",
        r"\_",
        r"\/",
    ),
)
TEXTS: Final = (
    "",
    "foo",
    "FOO",
    "aB",
    "ab",
    "container_cpu_usage_seconds_total",
    "foo_bar_total",
    "a.b",
    "xxxx",
    "é_ü",
)
TEMPLATES: Final = (
    *("$0", "$1", "${1}_x", "$1_x", "$1x$$", "$name-$rest", "${name}", "$", "$$$", "${", "${}", "${1", "$é", "${01}"),
    *("$-1", "$1.$2", "${ 1}", "$_", "$99999999999999999999", "$9", "$name$other", "", "$$1", "$\n", "a$1b", "$1²"),
)
QUERIES: Final = (
    *(
        "<<.Series>>",
        "<<$.Series>>",
        "<<.Nope>>",
        "<<.series>>",
        "<<.>>",
        "<<.Series.x>>",
        "<<.Series.>>",
        "<<..Series>>",
    ),
    *("<<.LabelValuesByName>>", "<<.GroupBySlice>>", "<<.LabelValuesByName.pod>>", "<<.LabelValuesByName.none>>"),
    *("<<.LabelValuesByName.pod.x>>", "<<.GroupBySlice.x>>", '<<index .LabelValuesByName "pod">>'),
    *("<<index .LabelValuesByName `pod`>>", '<<index .LabelValuesByName "none">>', "<<index .LabelValuesByName 0>>"),
    *('<<index $.LabelValuesByName "pod">>', "<<index .GroupBySlice 0>>", "<<index .GroupBySlice 1>>"),
    *(
        '<<index .GroupBySlice "pod">>',
        "<<index .GroupBySlice 00>>",
        "<<index .GroupBySlice 0x0>>",
        "<<index .Nope 0>>",
    ),
    *("<<index .Series 0>>", "<<index .LabelValuesByName>>", '<<index .LabelValuesByName "p\\x6fd">>'),
    *('<<index .LabelValuesByName "a>>b">>|', '<<index .LabelValuesByName "pod" "x">>', "<<index\n.GroupBySlice\t0 >>"),
    *("a \n<<- .Series ->>\t b", "a\u00a0<<- .Series>>", "<<-.Series>>", "<<.Series->>", "<<.Series -1>>", "<<-3>>"),
    *("a <</* why */>> b", "a <<- /* why */ ->> b", "<< /* why */>>", "<</* why */ >>", "<</* a >> b */>>c"),
    *('<<"a">>', "<<`a`>>", '<<"a\\"b">>', "<<1>>", "<<true>>", "<<nil>>", "<<'a'>>", "<< >>", "<<>>"),
    *("<<.Series", "a>>b", "a>b<c", "<<<.Series>>>", "<<<<.Series>>", "<<.Series>>>>", "<<.Series>>}}", "{{.Series}}"),
    *("<<. Series>>", "<<\u00a0.Series>>", "<<\n.Series\n>>", "<<.\nSeries>>", "<<{{.Series}}>>"),
    *("<<len .Series>>", '<<printf "%s" .Series>>', "<<.Series | len>>", "<<(.Series)>>", "<<$x := .Series>><<$x>>"),
    *("<<if .Series>>a<<end>>", "<<range .GroupBySlice>><<.>><<end>>", "<<with .Series>><<.>><<end>>", "<<end>>"),
    *('<<define "a">>x<<end>><<template "a">>', "<<break>>", "<<else>>", "<<urlquery .Series>>", "<<foo .Series>>"),
)


def questions() -> Iterator[Question]:
    """All that is recorded: each pattern with each text, and each template with some patterns."""
    for number, pattern in enumerate(PATTERNS):
        for other, text in enumerate(TEXTS):
            yield pattern, text, TEMPLATES[(number + other) % len(TEMPLATES)]
    for template in TEMPLATES:
        for pattern in (r"(a)(b)?", r"(?P<name>\w+)_(?P<rest>.*)", ".*", r"(?P<_>a)"):
            yield pattern, "ab_c", template
    for query in QUERIES:
        yield (query,)


def random_questions(seed: int, count: int) -> Iterator[Question]:
    """Patterns that nobody chose, of parts that mean something."""
    chance = random.Random(seed)
    parts = (
        *(
            "a",
            "b",
            "_",
            "é",
            "1",
            "0",
            ",",
            "{",
            "}",
            ":",
            "-",
            " ",
            "\n",
            "(",
            ")",
            "[",
            "]",
            "^",
            "$",
            "*",
            "+",
            "?",
        ),
        *(
            "{2}",
            "{1,}",
            "|",
            ".",
            r"\d",
            r"\w",
            r"\b",
            r"\z",
            r"\Z",
            r"\A",
            r"\Q",
            r"\E",
            r"\C",
            r"\pL",
            r"\x41",
            r"\1",
        ),
        *("(?i)", "(?s:", "(?P<n>", "(?<m>", "(?P<n", "(?:", "(?=", "[:alpha:]", "[[:digit:]_]", "[^", r"\.", r"\("),
    )
    texts = ("", "a", "ab", "aab_b", "Ab1", "(a)", "[a]", "éa", "a\nb", "1_a", "a-b", "{2}")
    for _ in range(count):
        pattern = "".join(chance.choices(parts, k=chance.randint(1, 9)))
        yield pattern, chance.choice(texts), chance.choice(("$0", "$1", "$n", "${m}x", "$2$1", "$1_", "$$n"))


def answers_of_go(asked: Sequence[Question]) -> list[Json]:
    """What Go's packages answer. It builds them with the `go` on the PATH."""
    with TemporaryDirectory() as folder:
        target = shutil.copytree(DRIVER, Path(folder, "driver"))
        environ = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
        subprocess.run(["go", "build", "-o", "driver", "."], cwd=target, env=environ, check=True)
        text = "\n".join(map(json.dumps, asked))
        done = subprocess.run([target / "driver"], input=text, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def answer_of_ours(asked: Question) -> Json:
    """The same from ours, with an empty `error` where it refuses."""
    try:
        if len(asked) == 1:
            return {"text": Template(asked[0], QUERY_FIELDS).fill(VALUES)}
        pattern = GoRegexp(asked[0])
        return {"groups": pattern.groups, "text": pattern.expanded(asked[2], asked[1])}
    except (RulesError, ValueError):
        return {"error": ""}


VALUES: Final[dict[str, Any]] = {
    "Series": "series",
    "LabelMatchers": 'pod="a"',
    "LabelValuesByName": {"pod": "a", "namespace": "shop"},
    "GroupBy": "pod",
    "GroupBySlice": ["pod"],
}


def differences(asked: Sequence[Question], answers: Sequence[Json]) -> list[tuple[Question, Json, Json]]:
    """Where ours is not Go's: question, Go's answer, ours."""
    pairs = ((each, answer, answer_of_ours(each)) for each, answer in zip(asked, answers, strict=True))
    return [(each, go, ours) for each, go, ours in pairs if (go | {"error": ""} if "error" in go else go) != ours]


def recorded() -> tuple[list[Question], list[Json]]:
    """The questions and answers of the file."""
    lines = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    return [line["in"] for line in lines], [line["out"] for line in lines]


if __name__ == "__main__":
    every = list(questions())
    with RECORDED.open("w", encoding="utf-8") as file:
        for asked, answer in zip(every, answers_of_go(every), strict=True):
            file.write(json.dumps({"in": asked, "out": answer}) + "\n")

"""Regular expressions and templates of rules are read as Go reads them, by the recorded answers of its packages."""

import pytest

from reconciler.prometheus.goregexp import GoRegexp
from tests.kit.gotexts import differences, recorded

REFUSED = {
    *("<<.>>", "<<index .GroupBySlice 00>>", "<<index .GroupBySlice 0x0>>", "<<index .Series 0>>", "<<-3>>", "<<1>>"),
    *("<<index .LabelValuesByName>>", '<<index .LabelValuesByName "p\\x6fd">>', '<<"a\\"b">>', "<<true>>", "<<'a'>>"),
    *("<<len .Series>>", '<<printf "%s" .Series>>', "<<.Series | len>>", "<<(.Series)>>", "<<urlquery .Series>>"),
    *("<<$x := .Series>><<$x>>", "<<if .Series>>a<<end>>", "<<range .GroupBySlice>><<.>><<end>>"),
    *("<<with .Series>><<.>><<end>>", '<<define "a">>x<<end>><<template "a">>'),
}
"""Templates that Go fills, and ours refuses by the action's text."""


def test_every_text_has_gos_answer_or_is_refused() -> None:
    asked, answers = recorded()
    assert sum(len(each) == 3 for each in asked) > 1000
    found = differences(asked, answers)
    assert [each for each in found if each[2] != {"error": ""}] == []
    assert {each[0][0] for each in found} == REFUSED


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        ("(?=a)", "invalid perl operator: (?="),
        ("(?<!a)b", "invalid perl operator: (?<"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"foo\Z", r"invalid escape sequence: \Z"),
        (r"a\Cb", r"invalid escape sequence: \C"),
        ("x*+", "bad repetition operator: *+"),
        ("(?P<é>x)", "invalid named capture: (?P<é>"),
        ("[[:foo:]]", "invalid character class range: [:foo:]"),
        ("\ud800", "surrogates not allowed"),
    ],
)
def test_what_go_does_not_know_is_refused_by_its_name(pattern: str, construct: str) -> None:
    with pytest.raises(ValueError, match=r".") as error:
        GoRegexp(pattern)
    assert construct in str(error.value)

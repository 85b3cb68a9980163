"""Label selectors: parsing, matching and printing as upstream does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.kubernetes.selectors import (
    Requirement,
    SelectorError,
    label_selector,
    label_selector_error,
    label_selector_text,
    matches_label_selector,
    parse_selector,
    print_label_selector,
)

words = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,6}[a-z0-9])?", fullmatch=True)
labels = st.dictionaries(words, words, max_size=4)


@pytest.mark.parametrize(
    ("text", "shown", "matching", "other"),
    [
        pytest.param("app=x", "app=x", {"app": "x"}, {"app": "y"}, id="equality"),
        pytest.param("app==x", "app==x", {"app": "x"}, {}, id="double equality"),
        pytest.param("app!=x", "app!=x", {}, {"app": "x"}, id="an absent label is unequal"),
        pytest.param("b, a", "a,b", {"a": "", "b": ""}, {"a": ""}, id="existence, sorted by key"),
        pytest.param("! a", "!a", {}, {"a": ""}, id="absence"),
        pytest.param("a in (z,y, z)", "a in (y,z)", {"a": "y"}, {"a": "x"}, id="a set, sorted and once each"),
        pytest.param("a notin (x)", "a notin (x)", {}, {"a": "x"}, id="an absent label is in no set"),
        pytest.param("a in (,x)", "a in (,x)", {"a": ""}, {}, id="the empty value in a set"),
        pytest.param("a in ()", "a in ()", {"a": ""}, {"a": "x"}, id="an empty set holds the empty value"),
        pytest.param("a in (x,,y)", "a in (,x,y)", {"a": ""}, {"a": "z"}, id="nothing between commas"),
        pytest.param("a in (,,)", "a in ()", {"a": ""}, {"a": "x"}, id="nothing around commas"),
        pytest.param("a in (x,,)", "a in (,x)", {"a": ""}, {"a": "z"}, id="nothing after the last two commas"),
        pytest.param("a in (x,,,y)", "a in (,x,y)", {"a": ""}, {"a": "z"}, id="nothing between three commas"),
        pytest.param("a=", "a=", {"a": ""}, {}, id="no value is the empty value"),
        pytest.param("in in (in)", "in in (in)", {"in": "in"}, {"in": "x"}, id="a keyword as key and value"),
        pytest.param("n>5", "n>5", {"n": "6"}, {"n": "5"}, id="greater"),
        pytest.param("n<5", "n<5", {"n": "-6"}, {"n": "x"}, id="less; what is no number is not"),
        pytest.param("n>5", "n>5", {"n": "+6"}, {"n": "1_0"}, id="a sign, but no underscore"),
        pytest.param("n<5", "n<5", {"n": "4"}, {"n": "-9223372036854775809"}, id="beyond 64 bits is no number"),
        pytest.param("a,b=1,", "", {}, {}, id="a trailing comma"),
        pytest.param("a\0=\0b", "a=b", {"a": "b"}, {}, id="a NUL right after a token ends it alone"),
        pytest.param("a \0=b", "a", {"a": "c"}, {}, id="a NUL where a token would begin ends the text"),
    ],
)
def test_a_selector_prints_canonically_and_matches(
    text: str, shown: str, matching: dict[str, str], other: dict[str, str]
) -> None:
    if not shown:
        with pytest.raises(SelectorError, match="found '', expected: identifier after ','"):
            parse_selector(text)
        return
    selector = parse_selector(text)

    assert str(selector) == shown
    assert selector.matches(matching)
    assert not selector.matches(other)
    assert not selector.empty


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(
            "a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt", id="two words"
        ),
        pytest.param("a in x", "unable to parse requirement: found 'x' expected: '('", id="a set without parentheses"),
        pytest.param("a in (x", "unable to parse requirement: found '', expected: ',' or ')'", id="an open set"),
        pytest.param(
            "a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier", id="a sign in a set"
        ),
        pytest.param(
            "a in (x,=",
            "unable to parse requirement: found '=', expected: ',', or identifier",
            id="a sign later in a set",
        ),
        pytest.param("a==(", "unable to parse requirement: found '(', expected: identifier", id="no value"),
        pytest.param("!", "unable to parse requirement: found '', expected: identifier", id="nothing to be absent"),
        pytest.param("!a=x", "found '=', expected: ',' or 'end of string'", id="absence with a value"),
        pytest.param(",a", "found ',', expected: !, identifier, or 'end of string'", id="a leading comma"),
        pytest.param("=", "found '=', expected: !, identifier, or 'end of string'", id="only a sign"),
        pytest.param(
            "x" * 254 + "/a",
            f'unable to parse requirement: <nil>: Invalid value: "{"x" * 254}/a":'
            " prefix part must be no more than 253 bytes",
            id="a long prefix",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_in_upstreams_words(text: str, error: str) -> None:
    with pytest.raises(SelectorError) as raised:
        parse_selector(text)
    assert str(raised.value) == error


def test_nothing_and_everything() -> None:
    assert not label_selector(None).matches({})
    assert not label_selector(None).empty
    assert label_selector({}).empty
    assert parse_selector(" ").empty
    assert matches_label_selector({}, {"a": "x"})
    assert print_label_selector(None) == "nil"


def test_an_object_reads_as_its_text_does() -> None:
    expression = {"key": "n", "operator": "In", "values": ["y", "x"]}
    selector = {"matchLabels": {"b": "1", "a": "2"}, "matchExpressions": [expression]}

    assert label_selector_text(selector) == "a=2,b=1,n in (x,y)"
    assert print_label_selector(selector) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 2,b: 1,},"
        "MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:n,Operator:In,Values:[y x],},},}"
    )
    assert label_selector_error(selector) == ""


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        pytest.param(
            {"key": "a", "operator": "Gt", "values": ["1"]}, '"Gt" is not a valid label selector operator', id="Gt"
        ),
        pytest.param(
            {"key": "a", "operator": "In"},
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            id="no values",
        ),
        pytest.param(
            {"key": "a", "operator": "Exists", "values": ["<"]},
            'values: Invalid value: ["\\u003c"]: values set must be empty',
            id="values that JSON escapes for HTML",
        ),
    ],
)
def test_a_bad_expression_is_named(expression: dict[str, object], error: str) -> None:
    selector = {"matchExpressions": [expression]}

    assert error in label_selector_error(selector)


@given(labels, labels)
def test_equalities_match_what_holds_them(wanted: dict[str, str], more: dict[str, str]) -> None:
    selector = parse_selector(",".join(f"{key}={value}" for key, value in wanted.items()))

    assert selector.matches(more | wanted)
    assert selector.matches(more) == (wanted.items() <= more.items())
    assert str(parse_selector(str(selector))) == str(selector)
    assert str(label_selector({"matchLabels": wanted})) == str(selector)


@given(st.from_regex(r"[a.A0/-]{1,70}=[a.A0_-]{0,70}", fullmatch=True))
def test_an_equality_is_read_as_it_is_among_blanks(text: str) -> None:
    def read(text: str) -> str | tuple[Requirement, ...] | None:
        try:
            return parse_selector(text).requirements
        except SelectorError as error:
            return str(error)

    # Only what has no blanks is read without the parser.
    assert read(text) == read(f" {text}")


@given(st.text(alphabet="ab!=<>(), \tin", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        selector = parse_selector(text)
    except SelectorError:
        return
    assert str(parse_selector(str(selector))) == str(selector)

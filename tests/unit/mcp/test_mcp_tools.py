"""The read verbs as tools: what they take, which command a call is, and what an answer says."""

from __future__ import annotations

import re
import shlex
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleethpa.cli.main import cli
from fleethpa.hub.reading import READS, RefusedRequestError, VerbAnswer, openapi, parameters_of
from fleethpa.mcp.tools import ANSWER, IDS, answered, call, command_line, decision_ids, refused, tools

TOOLS = tools(cli)
ID = "1-281-00000000-0000-4000-8000-000727309473"


def test_the_tools_are_the_verbs_of_the_hubs_api_with_the_same_parameters() -> None:
    paths = openapi(cli)["paths"]

    assert [f"/api/v1/{tool.verb.path}" for tool in TOOLS.values()] == list(paths)
    for tool in TOOLS.values():
        described = paths[f"/api/v1/{tool.verb.path}"]["get"]["parameters"]
        schemas = {each["name"]: each["schema"] for each in described}
        own = {name: dict(each) for name, each in tool.schema["properties"].items()}
        assert all(each.pop("description") for each in own.values())
        assert own == schemas
        assert tool.schema["required"] == [each["name"] for each in described if each["required"]]


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_a_tool_has_a_name_that_clients_take_and_a_schema_that_knows_no_other_parameter(tool: Any) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", tool.name)
    jsonschema.Draft202012Validator.check_schema(tool.schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"files": "/etc/passwd"}, tool.schema)
    assert f"`fleethpa {' '.join(tool.verb.words)}`" in tool.description


@pytest.mark.parametrize(
    ("tool", "given", "expected"),
    [
        pytest.param("get-hpa", {}, "get hpa --output=wide --", id="a line for each HPA, with its decision"),
        pytest.param(
            "get-hpa", {"problem": True, "all_namespaces": False}, "get hpa --output=wide --problem --", id="flags"
        ),
        pytest.param("get-hpa", {"output": "json"}, "get hpa --output=json --", id="another format"),
        pytest.param("get-hpa", {"names": ["a", "b/c"]}, "get hpa --output=wide -- a b/c", id="several names"),
        pytest.param("get-hpa", {"names": "a"}, "get hpa --output=wide -- a", id="one name as text"),
        pytest.param("explain", {"what": "a", "at": None}, "explain -- a", id="null is not given"),
        pytest.param(
            "explain",
            {"what": "a", "counterfactuals": False},
            "explain --no-counterfactuals -- a",
            id="a flag turned off",
        ),
        pytest.param("decisions", {"last": 3}, "decisions --output=wide --last=3 --", id="a number"),
        pytest.param(
            "what-if",
            {"what": "a", "settings": ["cpu=50%", "maxReplicas=3"]},
            "what-if --set=cpu=50% --set=maxReplicas=3 -- a",
            id="an option that may be repeated",
        ),
        pytest.param("explain", {"what": "--from=/etc"}, "explain -- --from=/etc", id="a name is never an option"),
    ],
)
def test_a_call_is_a_command(tool: str, given: dict[str, Any], expected: str) -> None:
    assert call(cli, TOOLS[tool], given) == expected.split()


@pytest.mark.parametrize(
    ("tool", "given", "text"),
    [
        ("get-hpa", {"files": "/etc/passwd"}, "takes no files; it takes all_namespaces, clusters"),
        ("get-hpa", {"source": "https://evil"}, "takes no source"),
        ("doctor", {"kubeconfig": "/root/.kube/config"}, "takes no kubeconfig"),
        ("what-if", {"what": "a", "cluster_away": "east"}, "takes no cluster_away"),
        ("get-hpa", {"problem": "maybe"}, "problem takes true or false"),
        (
            "get-hpa",
            {"namespace": ["a", "b"]},
            "namespace takes text, a whole number, true or false, and was given an array",
        ),
        ("get-hpa", {"labels": {"app": "web"}}, "was given an object"),
        ("decisions", {"last": 1.5}, "was given a fraction"),
        ("get-hpa", {"names": ["a", None]}, "was given null"),
        ("explain", {}, "explain needs what"),
        ("explain", {"what": "a\0b"}, "what has a character that no command takes"),
        ("get-hpa", {"labels": "\ud800"}, "labels has a character that no command takes"),
        ("explain", {"what": "x" * 5_000}, "5004 characters; at most 4096"),
    ],
)
def test_a_call_that_is_no_command_is_refused_by_name(tool: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(RefusedRequestError) as error:
        call(cli, TOOLS[tool], given)
    assert text in error.value.text


@given(
    tool=st.sampled_from(sorted(TOOLS)),
    given_=st.dictionaries(
        st.sampled_from(sorted({name for tool in TOOLS.values() for name in tool.schema["properties"]} | {"files"})),
        st.one_of(st.text(max_size=20), st.lists(st.text(max_size=9), max_size=3), st.booleans(), st.integers()),
    ),
)
def test_whatever_is_given_a_command_has_only_its_own_options_and_reads_back_as_it_was(
    tool: str, given_: dict[str, Any]
) -> None:
    try:
        arguments = call(cli, TOOLS[tool], given_)
    except RefusedRequestError:
        return
    words, at = TOOLS[tool].verb.words, arguments.index("--")
    assert arguments[: len(words)] == list(words)
    own = {
        flag for each in parameters_of(cli, TOOLS[tool].verb).values() for flag in (*each.opts, *each.secondary_opts)
    }
    assert {each.partition("=")[0] for each in arguments[len(words) : at]} <= own
    typed = shlex.split(command_line("fleethpa", arguments, ["--from=a b"]))
    assert [each for each in typed if each != "--"] == [
        "fleethpa",
        *[each for each in (*arguments[:at], "--from=a b", *arguments[at + 1 :]) if each != "--"],
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f'"id": "{ID}",', [ID]),
        (f"decision {ID}\n0-7-uid-web\n{ID}", [ID, "0-7-uid-web"]),
        ("end of a write 1-281-00000000-c.", ["1-281-00000000-c"]),
        ('"uid": "00000000-0000-4000-8000-000727309473"', []),
        ("2026-11-29T12:00:00.000Z 2026-11-29", []),
        ("Deployment/app-0-12-3f2a pods app0-1-2-abc", []),
        ("from 2-4 pods, 10-12 per minute", []),
    ],
)
def test_ids_of_decisions_are_found_and_nothing_that_looks_like_them(text: str, found: list[str]) -> None:
    assert decision_ids(text) == found


@pytest.mark.parametrize(
    ("answer", "texts", "is_error"),
    [
        pytest.param(
            VerbAnswer(0, f"NAME {ID}\n".encode(), ""),
            [f"NAME {ID}", f"Decisions: {ID}\nThe same answer: fleethpa x"],
            False,
            id="an answer",
        ),
        pytest.param(
            VerbAnswer(1, b"0 of 3\n", "warning: old\n"),
            [
                "0 of 3",
                "The command also says:\nwarning: old",
                "Decisions: this answer names none; the tool decisions lists them.\nExit code: 1\n"
                "The same answer: fleethpa x",
            ],
            False,
            id="the answer is no, and there is a warning",
        ),
        pytest.param(
            VerbAnswer(5, b"0 of 3\n", "warning: old\n"),
            [
                "0 of 3",
                "The command also says:\nwarning: old",
                "Decisions: this answer names none; the tool decisions lists them.\nExit code: 5\n"
                "The same answer: fleethpa x",
            ],
            False,
            id="an answer of which a part is not known now",
        ),
        pytest.param(
            VerbAnswer(4, b"", "Error: no HPA\n  Next: fleethpa get hpa -A\n"),
            ["Error: no HPA\n  Next: fleethpa get hpa -A", "The command: fleethpa x"],
            True,
            id="an error with its next step",
        ),
        pytest.param(
            VerbAnswer(70, b"", ""),
            ["the command ended with exit code 70 and said nothing", "The command: fleethpa x"],
            True,
            id="it died",
        ),
        pytest.param(
            VerbAnswer(4, b"web\n", "Error: no hpa b"),
            [
                "web",
                "The command also says:\nError: no hpa b",
                "Decisions: this answer names none; the tool decisions lists them.\nExit code: 4\n"
                "The same answer: fleethpa x",
            ],
            True,
            id="a part of what was asked for",
        ),
        pytest.param(
            VerbAnswer(0, b"", ""),
            [
                "The command printed nothing.",
                "Decisions: this answer names none; the tool decisions lists them.\nThe same answer: fleethpa x",
            ],
            False,
            id="nothing to say",
        ),
    ],
)
def test_an_answer_has_all_that_the_command_said_its_decisions_and_the_command(
    answer: VerbAnswer, texts: list[str], is_error: bool
) -> None:
    assert answered(TOOLS["status"], answer, "fleethpa x") == (texts, is_error)


def test_an_answer_that_is_too_large_is_refused_whole_with_what_narrows_it() -> None:
    largest = VerbAnswer(0, b"x" * (ANSWER.most - 1), "y")
    assert not answered(TOOLS["decisions"], largest, "fleethpa x").is_error

    found = answered(TOOLS["decisions"], VerbAnswer(0, b"x" * ANSWER.most, "y"), "fleethpa x")
    assert found.is_error
    assert found.texts[0].startswith(
        "Error: the answer of decisions has 60,001 characters; a tool answers at most 60,000."
    )
    assert "ask for less with names, namespace, clusters, changes, since, last" in found.texts[0]
    assert found.texts[1] == "The command: fleethpa x"


def test_an_error_is_cut_where_it_is_too_long_and_says_so() -> None:
    [text] = refused("e" * 100_000).texts
    assert len(text) < 17_000
    assert text.endswith("(cut, it has 100000 characters)")


def test_of_many_decisions_some_are_named_and_the_others_counted() -> None:
    ids = [f"0-{n}-uid-{n}" for n in range(IDS.most + 7)]
    below = answered(TOOLS["decisions"], VerbAnswer(0, "\n".join(ids).encode(), ""), "fleethpa x").texts[-1]
    assert below.startswith(f"Decisions: {', '.join(ids[: IDS.most])} and 7 more\n")


def test_every_verb_is_a_tool() -> None:
    assert {tool.verb for tool in TOOLS.values()} == set(READS.values())
    assert {"get-hpa", "explain", "history", "doctor", "backtest", "what-if", "decisions", "status"} <= TOOLS.keys()

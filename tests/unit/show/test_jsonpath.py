"""`-o jsonpath=`: kubectl's templates."""

from __future__ import annotations

from typing import Any

import pytest

from fleethpa.show.formats import TemplateError, jsonpath
from tests.kit.cli import Cli, Fleet

# The document of kubectl's own page on JSONPath, shortened.
DOCUMENT: dict[str, Any] = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "127.0.0.1"}},
            "status": {"capacity": {"cpu": "4"}, "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}]},
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.2"}, {"type": "another"}],
                "ready": True,
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}, "age": 7},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}, "age": 30},
    ],
}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        pytest.param("kind is {.kind}", "kind is List", id="text and a child"),
        pytest.param("{.kind}", "List", id="a child"),
        pytest.param("{$.kind}{@.kind}", "ListList", id="the root, spelt out"),
        pytest.param("{['kind']}", "List", id="a child in brackets"),
        pytest.param("{kind}", "List", id="without the dot"),
        pytest.param("{..name}", "127.0.0.1 127.0.0.2 myself e2e", id="recursive descent"),
        pytest.param("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2", id="a wildcard"),
        pytest.param("{.users[0].name}", "myself", id="an index"),
        pytest.param("{.users[-1].name}", "e2e", id="from the end"),
        pytest.param("{.users[-2].name}", "myself", id="from before the end"),
        pytest.param("{.users[7].name}", "", id="an index beyond the end"),
        pytest.param("{.users[0:1].name}-{.users[1:].name}-{.users[:-1].name}", "myself-e2e-myself", id="slices"),
        pytest.param('{.users[?(@.name=="e2e")].user.password}', "secret", id="a filter"),
        pytest.param("{.users[?(@.age>7)].name}", "e2e", id="a filter by number"),
        pytest.param("{.users[?(@.age>='7')].name}", "", id="a number is no text"),
        pytest.param("{.users[?(@.user.username)].name}", "e2e", id="a filter by presence"),
        pytest.param("{.users[?(@.name!='e2e')].name}", "myself", id="a filter by difference"),
        pytest.param(
            "{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}] {end}",
            "[127.0.0.1, 4] [127.0.0.2, 8] ",
            id="a range",
        ),
        pytest.param(
            '{range .items[*]}{.metadata.name}{"\\t"}{range .status.addresses[*]}{.type};{end}{"\\n"}{end}',
            "127.0.0.1\tLegacyHostIP;\n127.0.0.2\tLegacyHostIP;another;\n",
            id="a range in a range",
        ),
        pytest.param("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "127.0.0.1", id="an escaped dot"),
        pytest.param("{.items[0].metadata.labels['kubernetes.io/hostname']}", "127.0.0.1", id="a key with dots"),
        pytest.param("{.items[1].status.ready} {.users[1].age}", "true 30", id="what is no text"),
        pytest.param("{.items[0].status.capacity}", '{"cpu":"4"}', id="an object"),
        pytest.param("{.nothing.here}", "", id="what is not there"),
        pytest.param("{.users[*].user.*}", "admin secret", id="every child"),
        pytest.param('{"{braces}"}{.kind}', "{braces}List", id="braces in a text"),
    ],
)
def test_templates(template: str, text: str) -> None:
    assert jsonpath(template, DOCUMENT) == text


@pytest.mark.parametrize(
    ("template", "why"),
    [
        pytest.param(".items", "no {expression}", id="no braces"),
        pytest.param("{.items", "a brace is not closed", id="an open brace"),
        pytest.param("{range .items[*]}{.kind}", "{range} without {end}", id="an open range"),
        pytest.param("{.kind}{end}", "{end} without {range}", id="an end of nothing"),
        pytest.param("{}", "an expression is empty", id="an empty expression"),
        pytest.param("{.items[x]}", "is not a path", id="no index"),
        pytest.param("{.items[?(kind)]}", "is not a filter", id="no filter"),
        pytest.param("{.items[?(@.kind==None)]}", "neither a quoted text nor a number", id="an unquoted text"),
    ],
)
def test_what_is_no_template_is_wrong_use(template: str, why: str) -> None:
    with pytest.raises(TemplateError, match=r"jsonpath=") as refused:
        jsonpath(template, DOCUMENT)
    assert why in str(refused.value)


def test_a_wrong_template_ends_the_command_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    result = Cli(monkeypatch)("get", "hpa", "-o", "jsonpath={.kind")
    assert result.exit_code == 2
    assert "-o jsonpath={.kind: a brace is not closed" in result.stderr
    assert "Next: -o jsonpath='{range .items[*]}" in result.stderr


def test_listings_and_single_objects_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle(3, 300)
    run = Cli(monkeypatch, fleet)
    template = "jsonpath={range .items[*]}{.cluster}/{.metadata.name}{'\\n'}{end}"
    assert run("get", "hpa", "-A", "-o", template).stdout == "east/checkout\n"
    assert run("explain", "east/shop/checkout", "-o", "jsonpath={.finalDesiredReplicas}").stdout == "3\n"
    wrong = run("get", "hpa", "-A", "-o", "jsonpath={.items")
    assert (wrong.exit_code, "a brace is not closed" in wrong.stderr) == (2, True)
    following = run("decisions", "-A", "-f", "-o", "jsonpath={.id}")
    assert (following.exit_code, "use -o jsonl" in following.stderr) == (2, True)
    assert run("audit", "tail", "-o", "jsonpath={.id}").exit_code == 2
    assert run("get", "hpa", "-o", "nonsense").exit_code == 2

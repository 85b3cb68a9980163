"""What Makefile, CI and docs name beside the command itself: modules with their options, targets of make, tests."""

from __future__ import annotations

import re

import pytest

from tests.kit.documented import ROOT

PAGES = ("README.md", "CONTRIBUTING.md", *sorted(str(each.relative_to(ROOT)) for each in (ROOT / "docs").rglob("*.md")))
ROOMS = ("schemas", "runtime", "streams", "reconciler", "fleethpa", "tests")
SOURCES = sorted(str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
_MODULE = re.compile(rf"""-m[ ",]+(?P<module>(?:{"|".join(ROOMS)})\b[\w.]*)(?P<rest>[^`)\n]*)""")
"""In a line for a shell, or in the list of a process's arguments."""
_MAKE = re.compile(r"(?:`|^|&& )(?:make|tier|tier_with) (?P<words>[a-zA-Z][^`#\"\n]*)", re.MULTILINE)


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _calls() -> dict[tuple[str, str], set[str]]:
    """The options that a page or a source gives to a module, by both names; fleethpa itself is not meant."""
    found: dict[tuple[str, str], set[str]] = {}
    for page in ("Makefile", ".ci/run", *PAGES, *SOURCES):
        for call in _MODULE.finditer(_text(page)):
            module = call["module"].rstrip(".")
            if module != "fleethpa":
                options = re.findall(r"(?<![\w-])--[a-z][a-z-]*", call["rest"])
                found.setdefault((page, module), set()).update(options)
    return found


CALLS = _calls()


def _source(module: str) -> str:
    """What `python -m` runs."""
    path = ROOT.joinpath(*module.split("."))
    return (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def _taken(source: str) -> set[str]:
    """The options that a module declares; without a parser those that it names."""
    parsed = re.findall(r'add_argument\(\s*(?:"-\w", )?"(--[a-z-]+)"', source)
    return {"--help", *(parsed or re.findall(r'"(--[a-z-]+)"', source))}


@pytest.mark.parametrize(("page", "module"), CALLS, ids=lambda each: each)
def test_a_module_that_is_to_be_run_is_there_and_takes_the_options(page: str, module: str) -> None:
    source = _source(module)
    assert 'if __name__ == "__main__":' in source
    assert CALLS[page, module] - _taken(source) == set()


@pytest.mark.parametrize("page", [".ci/run", *PAGES])
def test_make_has_the_targets_and_variables_that_are_named(page: str) -> None:
    makefile = _text("Makefile")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?= ", makefile, re.MULTILINE))
    words = [word for call in _MAKE.finditer(_text(page)) for word in call["words"].split()]
    assert {word for word in words if "=" not in word and word not in targets} == set()
    assert {name for name, is_given, _ in (word.partition("=") for word in words) if is_given} <= variables


_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@pytest.mark.parametrize("page", ["SECURITY.md", *PAGES])
def test_tests_that_are_named_exist(page: str) -> None:
    named = _TEST.findall(_text(page))
    missing = [name for path, name in named if not re.search(rf"^(async )?def {name}\(", _text(path), re.MULTILINE)]
    assert missing == []


def test_each_sentence_on_what_somebody_can_do_at_most_names_its_test() -> None:
    section = _text("SECURITY.md").partition("## What each can do at most")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("|")][2:]
    assert [who for who, _, _ in rows] == sorted((who for who, _, _ in rows), key=WHO.index)
    assert {who.strip() for who, _, _ in rows} == set(map(str.strip, WHO))
    assert [text for _, text, tests in rows if not _TEST.search(tests)] == []


_ACTORS = ("tenant", "metric producer", "agent", "page reader", "hub team", "API reader", "tool client")
_PROCESSES = ("observer", "reconciler", "router", "operator")
WHO = [f" {who} " for who in (*_ACTORS, *_PROCESSES)]

"""The site of the docs: every page is in its navigation, once, and what comes before the first enforce is short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

from tests.kit.documented import ROOT


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, whose tags name Python objects of the site's own environment."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def _nav() -> dict[str, list[Any]]:
    """The sections of the navigation."""
    site = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Loader)
    return {title: pages for section in site["nav"] for title, pages in section.items()}


def _pages(entry: Any) -> Iterator[str]:
    """The pages of an entry, which is a page, a list of entries or a title with either."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list):
        for each in entry:
            yield from _pages(each)
    else:
        for each in entry.values():
            yield from _pages(each)


def test_the_navigation_has_its_six_sections() -> None:
    assert list(_nav()) == ["Start", "Understand", "Run", "Analyse", "Reference", "Decisions"]


def test_every_page_of_the_docs_is_in_the_navigation_once() -> None:
    docs = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    listed = Counter(_pages(list(_nav().values())))
    assert {page for page in listed if page.startswith("docs/")} == docs
    assert {page for page, count in listed.items() if count > 1} == set()
    assert {page for page in listed if not (ROOT / page).is_file()} == set()


def test_no_line_of_a_document_is_longer_than_160_characters_except_in_tables_and_code() -> None:
    long = []
    made_of_help = ROOT / "docs" / "reference" / "cli.md"
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("SECURITY.md", "CONTRIBUTING.md"))]:
        if path == made_of_help:
            continue
        is_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if len(line) > 160 and not is_code and not line.lstrip().startswith(("|", "```", "<")):
                long.append(f"{path.relative_to(ROOT)}:{number}")
    assert long == []


BEFORE_THE_FIRST_ENFORCE = ("README.md", "docs/quickstart.md", "docs/concepts.md", "docs/shadow-to-enforce.md")


def test_the_pages_before_the_first_enforce_have_at_most_6000_words() -> None:
    words = {page: len((ROOT / page).read_text(encoding="utf-8").split()) for page in BEFORE_THE_FIRST_ENFORCE}
    assert sum(words.values()) <= 6_000, words

"""The site of the docs: every page is in its navigation, once, and what comes before the first enforce is short."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
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


STEPS = "docs/shadow-to-enforce.md"
LAST_STEP = "## 7. "
"""The first enforce is the step before."""
_LINK = re.compile(r"\]\((?P<page>[\w./-]*\.md)?(?:#(?P<anchor>[\w-]+))?\)")


def _section(page: str, anchor: str | None) -> str:
    """The text of a section of a page, with those below it; the whole page without an anchor."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    if anchor is None:
        return "\n".join(lines)
    heads = [(at, line.partition(" ")) for at, line in enumerate(lines) if line.startswith("#")]
    (begin, level) = next((at, len(head[0])) for at, head in heads if _slug(head[2]) == anchor)
    end = next((at for at, head in heads if at > begin and len(head[0]) <= level), len(lines))
    return "\n".join(lines[begin:end])


def _slug(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _linked_before_the_first_enforce() -> set[tuple[str, str | None]]:
    """What the steps to the first enforce send a reader to."""
    steps = (ROOT / STEPS).read_text(encoding="utf-8").partition(LAST_STEP)[0]
    found = {
        (str(Path(STEPS).parent / (link["page"] or Path(STEPS).name)), link["anchor"]) for link in _LINK.finditer(steps)
    }
    return {(page, anchor) for page, anchor in found if page not in BEFORE_THE_FIRST_ENFORCE}


def test_what_is_read_before_the_first_enforce_has_at_most_6000_words() -> None:
    read = {(page, None) for page in BEFORE_THE_FIRST_ENFORCE} | _linked_before_the_first_enforce()
    words = {f"{page}#{anchor or ''}": len(_section(page, anchor).split()) for page, anchor in read}
    assert len(words) > len(BEFORE_THE_FIRST_ENFORCE), "the sections that the steps link to are counted"
    assert sum(words.values()) <= 6_000, words


def test_no_other_page_asks_for_something_before_the_first_enforce() -> None:
    asking = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs").rglob("*.md")
        if "before the first cluster is enforced" in " ".join(path.read_text(encoding="utf-8").lower().split())
    ]
    assert asking == [STEPS]

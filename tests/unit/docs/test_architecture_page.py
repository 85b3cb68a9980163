"""The architecture page names the rooms and files that exist, and the glossary explains each word."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    return PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def _packages() -> set[str]:
    tops = ("schemas", "runtime", "streams", "reconciler", "fleethpa")
    folders = {path.parent for top in tops for path in (ROOT / top).rglob("*.py")}
    return {f"{folder.relative_to(ROOT)}/" for folder in folders if any(folder.glob("[!_]*.py"))}


def test_every_package_with_modules_has_a_paragraph() -> None:
    described = set(re.findall(r"`([a-z/]+/)`", _section("The rooms")))
    assert _packages() <= described, "a room without a paragraph in docs/architecture.md"


def test_every_file_and_folder_named_on_the_page_exists() -> None:
    named = re.findall(r"`((?:schemas|runtime|streams|reconciler|fleethpa|tests|compose|docs)/[\w./-]*)`", PAGE)
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_name_beside_a_file_is_defined_there() -> None:
    named = re.findall(r"`([\w/]+\.py)` · `(?:(\w+)\.)?(\w+)`", PAGE)
    assert len(named) >= 8
    for file, owner, name in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        for each in filter(None, (owner, name)):
            assert re.search(rf"\b(class|def) {each}\b", text), f"{file} defines no {each}"


def test_the_spine_is_numbered_without_a_gap() -> None:
    numbers = [int(each) for each in re.findall(r"^(\d+)\. ", PAGE, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert numbers


def test_each_word_of_the_glossary_is_explained() -> None:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", GLOSSARY, re.MULTILINE)[1:]
    assert rows
    assert all(meaning.strip() for _, meaning in rows)

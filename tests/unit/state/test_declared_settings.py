"""A setting is declared once, with its text and, if it is a text, with what reads it."""

from typing import get_args

from msgspec import structs

from schemas.settings import SETTING_TEXTS, ClusterSettings
from streams.state.clustersettings import TEXT_READERS

FREE = {"managed_by", "native_evidence"}
"""Written by programs alone, and any text."""


def test_each_setting_has_a_text() -> None:
    missing = set(ClusterSettings.__struct_fields__) ^ set(SETTING_TEXTS)
    assert not missing, f"say in SETTING_TEXTS of schemas/settings.py what these settings do: {sorted(missing)}"


def test_each_setting_that_is_a_text_has_a_reader() -> None:
    texts = {each.name for each in structs.fields(ClusterSettings) if str in get_args(each.type)}
    missing = texts - FREE - set(TEXT_READERS)
    assert not missing, f"add what reads these settings to READERS of schemas/settings.py: {sorted(missing)}"

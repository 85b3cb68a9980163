"""A setting is declared once, with its text and, if it is a text, with what reads it."""

from typing import get_args

import pytest
from msgspec import structs

from fleethpa.changes.settings import _declared
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


def test_a_setting_without_a_text_is_named_with_the_table_that_lacks_it() -> None:
    with pytest.raises(LookupError, match="the setting brand_new has no text: say in SETTING_TEXTS of schemas/set"):
        _declared("brand_new", bool | None)


def test_each_setting_that_is_a_number_is_bounded_by_its_type() -> None:
    numbers = {each.name: get_args(each.type)[0] for each in structs.fields(ClusterSettings)}
    bounds = {name: kind.__metadata__[0] for name, kind in numbers.items() if get_args(kind)[:1] == (int,)}
    missing = {name for name, kind in numbers.items() if kind is int}
    missing |= {name for name, meta in bounds.items() if None in (meta.ge, meta.le)}
    assert not missing, f"bound these in ClusterSettings by a type such as Positive or TimeMs: {sorted(missing)}"
    assert {"max_step", "sync_period_ms", "sample_age_limit_ms"} <= bounds.keys()

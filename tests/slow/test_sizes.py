"""Objects of up to 10 MiB, many of them: no record is larger than its topic takes, and the partition continues."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.limits import SENT, Make, check_all

pytestmark = pytest.mark.slow


@given(st.lists(SENT, min_size=1, max_size=8))
@settings(max_examples=400)
def test_no_object_makes_a_record_that_is_too_large(sent: list[tuple[Make, int, int]]) -> None:
    check_all(sent)

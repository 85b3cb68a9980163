"""What holds for every test against the embedded broker."""

from collections.abc import Iterator

import pytest

from runtime import kafkaclients
from tests.pipeline.cluster_rig import FETCH_MS


@pytest.fixture(autouse=True, scope="module")
def _short_fetches() -> Iterator[None]:
    """The embedded broker keeps a fetch that found nothing to the end of its wait, although a record has come."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafkaclients, "UNHURRIED_MS", FETCH_MS)
        yield

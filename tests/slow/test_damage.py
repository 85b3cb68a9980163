"""More than 5,000 random single changes, of every kind, to archives and to records as read from topics."""

from pathlib import Path

import pytest

from tests.kit import damage_trials as trials

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> trials.Signed:
    return trials.Signed(tmp_path_factory.mktemp("signed"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    trials.quickly(monkeypatch)


def test_two_thousand_changes_to_the_files_of_an_archive_are_found(signed: trials.Signed) -> None:
    counts = trials.damage_files(signed, 2_200, seed=101)
    assert counts.total() - counts["no change"] >= 2_000
    assert {"flip", "drop", "truncate", "swap", "duplicate"} <= set(counts)


def test_two_thousand_changes_to_records_as_read_from_topics_are_found(signed: trials.Signed) -> None:
    counts = trials.damage_records(signed, 2_000, seed=102)
    assert {"flip", "drop", "truncate", "swap", "copy"} <= set(counts)


def test_eight_hundred_changed_decisions_with_a_chain_made_anew_are_found(signed: trials.Signed) -> None:
    assert trials.forge_chains(signed, 1_000, seed=103).total() >= 800


def test_five_hundred_consistent_forgeries_are_found_by_signed_checkpoints(
    signed: trials.Signed, tmp_path: Path
) -> None:
    counts = trials.forge_everything(signed, tmp_path, 500, seed=104)
    assert {"flip", "drop", "truncate", "swap", "copy"} <= set(counts)

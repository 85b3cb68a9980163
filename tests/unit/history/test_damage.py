"""Every random single change to archives and records is found; the long runs are in tests/slow."""

from pathlib import Path

import pytest

from tests.kit import damage_trials as trials


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> trials.Signed:
    return trials.Signed(tmp_path_factory.mktemp("signed"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    trials.quickly(monkeypatch)


def test_changes_to_the_files_of_an_archive_are_found(signed: trials.Signed) -> None:
    assert trials.damage_files(signed, 30, seed=1).total() == 30


def test_changes_to_records_as_read_from_topics_are_found(signed: trials.Signed) -> None:
    assert trials.damage_records(signed, 50, seed=2).total() == 50


def test_changed_decisions_with_a_chain_made_anew_are_found(signed: trials.Signed) -> None:
    assert trials.forge_chains(signed, 30, seed=3).total() > 15


def test_a_consistent_forgery_of_everything_is_found_by_signed_checkpoints(
    signed: trials.Signed, tmp_path: Path
) -> None:
    assert trials.forge_everything(signed, tmp_path, 5, seed=4).total() == 5

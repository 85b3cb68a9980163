"""docs/reference/cli.md says what the commands say."""

from pathlib import Path

from tests.clireference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_the_command_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: python -m tests.clireference > docs/reference/cli.md"

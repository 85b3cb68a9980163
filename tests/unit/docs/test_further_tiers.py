"""The tests that the fast tier does not run can begin: they import, and ask for fixtures and marks that exist."""

import os
import subprocess
import sys

import pytest

from tests.documented import ROOT

FOLDERS = ("tests/kafka", "tests/kubernetes", "tests/page", "tests/slow")


def problems_of(*paths: str) -> str:
    """What pytest says when it plans the tests of some paths without running a test or a fixture; empty: nothing."""
    # What is meant for the pytest around this one (options, its worker's name) is not for the one inside.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-qq", "--setup-plan", "-p", "no:cacheprovider", *paths]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout[done.stdout.find("= ERRORS =") :] + done.stderr


@pytest.mark.timeout(300)
def test_the_tests_of_the_further_tiers_are_collected_and_have_their_fixtures() -> None:
    problems = problems_of(*FOLDERS)
    assert not problems, problems

"""The workflows of GitHub Actions: actionlint finds nothing wrong, and every action is pinned by its commit."""

import re
import subprocess

import pytest

from tests.kit.documented import ROOT
from tests.kubernetes import binaries

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
MISSING = binaries.missing_tools(binaries.ACTIONLINT)


@pytest.mark.slow
@pytest.mark.skipif(bool(MISSING), reason=f"WORKFLOWS NOT CHECKED: {MISSING}")
def test_actionlint_finds_nothing_wrong() -> None:
    actionlint = binaries.built(binaries.ACTIONLINT) / "actionlint"
    command = [str(actionlint), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_actions_are_pinned_by_commit() -> None:
    used = re.findall(r"uses: (\S+)", "".join(path.read_text() for path in WORKFLOWS))
    assert len(used) > 5
    assert [each for each in used if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", each)] == []

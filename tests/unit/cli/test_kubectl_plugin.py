"""`kubectl fleethpa`: kubectl's --context names a cluster, everything else is passed on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fleethpa.cli.kubectlplugin import translated
from fleethpa.frame.errors import CommandError


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        pytest.param("get hpa -n shop", "get hpa -n shop", id="without a context nothing changes"),
        pytest.param("get hpa --context east -n shop", "get hpa -n shop -C east", id="a context names a cluster"),
        pytest.param("--context=east get hpa", "get hpa -C east", id="before the verb, with an equals sign"),
        pytest.param("dev --context mine", "dev --context mine", id="a verb with a --context of its own keeps it"),
        pytest.param("version", "version", id="a verb without clusters"),
    ],
)
def test_a_context_is_a_cluster(given: str, passed: str) -> None:
    assert translated(given.split()) == passed.split()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param("get hpa --context", "needs the name", id="no name"),
        pytest.param("get hpa --context east -C west", "exclude each other", id="both"),
    ],
)
def test_a_context_that_says_nothing_or_too_much_is_refused(given: str, text: str) -> None:
    with pytest.raises(CommandError, match=text):
        translated(given.split())


def test_kubectl_finds_the_installed_executable() -> None:
    executable = Path(sys.executable).parent / "kubectl-fleethpa"
    found = subprocess.run([executable, "version"], capture_output=True, text=True, timeout=60, check=True)
    assert "fleethpa" in found.stdout
    assert shutil.which("kubectl-fleethpa", path=str(executable.parent))

"""`kubectl fleethpa`: kubectl's --context names a cluster, everything else is passed on."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

SLOW = pytest.mark.slow
EXECUTABLE = Path(sys.executable).parent / "kubectl-fleethpa"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        pytest.param("get hpa --context ", "-C is empty", id="as -C of a verb that reads"),
        pytest.param("adopt --context= -A", "-C is empty", id="as -C of a verb that means one cluster", marks=SLOW),
        pytest.param(
            "dev --context mine --kubeconfig nowhere", "kubeconfig nowhere cannot", id="a verb with its own", marks=SLOW
        ),
        pytest.param("pause --context east -C west", "--context and -C exclude each other", id="beside -C"),
        pytest.param("version --context east", "No such option", id="a verb without clusters", marks=SLOW),
    ],
)
def test_a_context_is_a_cluster(given: str, text: str) -> None:
    found = subprocess.run([EXECUTABLE, *given.split(" ")], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (found.returncode, text in found.stderr) == (2, True), found.stderr


def test_kubectl_finds_the_installed_executable() -> None:
    found = subprocess.run([EXECUTABLE, "version"], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "fleethpa" in found.stdout
    assert shutil.which("kubectl-fleethpa", path=str(EXECUTABLE.parent))

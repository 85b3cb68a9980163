"""`fleethpa run observer|reconciler`: how it ends where it cannot begin."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.patience import PATIENCE_S

KUBECONFIG = {
    "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
    "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    "users": [{"name": "a", "user": {"token": "t"}}],
}


@pytest.mark.parametrize("part", [pytest.param("observer", marks=pytest.mark.slow), "reconciler"])
@pytest.mark.parametrize(
    ("brokers", "kubeconfig", "code", "says"),
    [
        pytest.param("127.0.0.1:1", "k", 3, "127.0.0.1", id="no broker answers"),
        pytest.param("127.0.0.1:1", "nowhere", 2, "nowhere cannot be read", id="no kubeconfig", marks=pytest.mark.slow),
    ],
)
def test_what_keeps_it_from_beginning_is_an_error_with_a_next_step_and_no_traceback(
    tmp_path: Path, part: str, brokers: str, kubeconfig: str, code: int, says: str
) -> None:
    (tmp_path / "k").write_text(yaml.safe_dump(KUBECONFIG))
    arguments = ["run", part, "--brokers", brokers, "--kubeconfig", str(tmp_path / kubeconfig), "--log-level", "error"]
    done = subprocess.run(
        [sys.executable, "-m", "fleethpa", *arguments], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == code
    assert "Next: " in done.stderr
    assert any(line.startswith("Error: ") for line in done.stderr.splitlines())
    assert says in done.stderr
    assert "Unclosed" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr

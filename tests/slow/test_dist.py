"""A release: two builds give equal bytes, and it installs and runs from the built files alone."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Container
from pathlib import Path

import pytest
import yaml

from tests import dist
from tests.dist import CHECKSUMS, ROOT
from tests.kubernetes.manifests import find_helm, render

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("git") or not (ROOT / ".git").exists(), reason="a release is made of a commit"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a release of the last commit."""
    folder = tmp_path_factory.mktemp("dist")
    dist.build(folder)
    return folder


def test_two_builds_give_equal_checksums(built: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        dist.build(tmp_path)
    finally:
        os.umask(before)
    assert (tmp_path / CHECKSUMS).read_text() == (built / CHECKSUMS).read_text()
    assert len((built / CHECKSUMS).read_text().splitlines()) == 5
    subprocess.run(["sha256sum", "--check", "--quiet", CHECKSUMS], cwd=built, check=True)


def test_the_wheel_installs_and_the_demo_runs(built: Path, tmp_path: Path) -> None:
    own = tmp_path / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", own.parent], check=True)
    pip = [str(own / "pip"), "--quiet", "--disable-pip-version-check"]
    # What the lock file names, so that the answer is the same tomorrow; `check`: it is what the wheel asks for.
    subprocess.run([*pip, "install", "--require-hashes", "-r", str(ROOT / "requirements/run.lock")], check=True)
    subprocess.run([*pip, "install", "--no-deps", *map(str, built.glob("*.whl"))], check=True)
    subprocess.run([*pip, "check"], check=True)
    environ = {"PATH": f"{own}:{os.environ['PATH']}", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    version = subprocess.run(
        ["fleethpa", "version"], cwd=tmp_path, env=environ, check=True, capture_output=True, text=True
    )
    assert version.stdout.splitlines()[0].split()[0] == "fleethpa"
    with subprocess.Popen(
        ["fleethpa", "demo"], cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        assert demo.stdout is not None
        seen: list[str] = []
        try:
            for line in demo.stdout:
                seen.append(line)
                if "✔ east runs 8 replicas" in line:
                    break
            else:
                pytest.fail("".join(seen))
        finally:
            demo.send_signal(signal.SIGINT)
            demo.stdout.read()
    assert demo.returncode == 130


OF_EXTRAS = frozenset(
    {
        *("confluent-kafka", "google-re2", "jinja2", "markupsafe"),
        *("anyio", "h11", "httpcore2", "httpx2", "httpx2-jsfetch", "jsonschema", "jsonschema-specifications", "mcp"),
        *("mcp-types", "opentelemetry-api", "pyjwt", "python-multipart", "pywin32", "referencing", "rpds-py"),
        *("sse-starlette", "starlette", "truststore", "uvicorn"),
    }
)
OF_TESTS = frozenset(
    {
        *("attrs", "duckdb", "execnet", "hypothesis", "iniconfig", "jsonschema", "jsonschema-specifications"),
        *("packaging", "pluggy", "pygments", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist"),
        *("referencing", "rpds-py", "sortedcontainers"),
    }
)
"""What the tests of a checkout need beside what they test."""
KERNEL_AND_VERBS = tuple(f"tests/unit/{room}" for room in ("hpa", "state", "across", "core", "frame", "cli"))
READ_BY_TESTS = (
    *("tests", "docs", "examples", "compose", ".github", "requirements"),
    *("pyproject.toml", "README.md", "Makefile"),
)
OF_THE_SOURCE = "tests/unit/frame/test_advice.py"
"""Reads the packages of the checkout, which are not there."""
OF_AN_EXTRA = (
    "report_is_one_html_file or report_needs_no_other_file or report_of_several_hpas_has_their_totals"
    " or test_cli_metrics"
)
"""Tests of what the extras `page` and `prometheus` bring."""


def locked(name: str, *, only: Container[str] | None = None, without: Container[str] = ()) -> str:
    """The entries of a lock file: of these packages (None: of all), and not of those."""
    text = (ROOT / "requirements" / name).read_text()
    entries = re.finditer(r"^([a-z0-9.-]+)==.*\n(?: +.*\n)*", text, re.MULTILINE)
    return "".join(each[0] for each in entries if (only is None or each[1] in only) and each[1] not in without)


def test_the_wheel_without_extras_passes_the_tests_of_the_kernel_and_of_the_verbs(built: Path, tmp_path: Path) -> None:
    own, checkout = tmp_path / "venv" / "bin", tmp_path / "checkout"
    subprocess.run([sys.executable, "-m", "venv", own.parent], check=True)
    pip = [str(own / "pip"), "--quiet", "--disable-pip-version-check"]
    (tmp_path / "run.lock").write_text(locked("run.lock", without=OF_EXTRAS))
    (tmp_path / "tests.lock").write_text(locked("dev.lock", only=OF_TESTS))
    for name in ("run.lock", "tests.lock"):
        subprocess.run([*pip, "install", "--no-deps", "--require-hashes", "-r", str(tmp_path / name)], check=True)
    subprocess.run([*pip, "install", "--no-deps", *map(str, built.glob("*.whl"))], check=True)
    subprocess.run([*pip, "check"], check=True)
    # None of the checkout's packages is there: those of the wheel are tested.
    checkout.mkdir()
    for name in READ_BY_TESTS:
        (checkout / name).symlink_to(ROOT / name)
    command = [str(own / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
    command += ["--ignore", OF_THE_SOURCE, "-k", f"not ({OF_AN_EXTRA})"]
    subprocess.run([*command, *KERNEL_AND_VERBS], cwd=checkout, check=True)


@pytest.mark.skipif(not find_helm(), reason="CHART PACKAGE NOT TESTED: no helm on this machine (make test-kubernetes)")
def test_the_packaged_chart_renders_as_its_folder_does(built: Path) -> None:
    (package,) = built.glob("*.tgz")
    values = "clusters.inCluster=home"
    assert render(find_helm(), values, chart=package) == render(find_helm(), values)


def test_the_image_context_has_what_the_image_is_built_of(built: Path, tmp_path: Path) -> None:
    (context,) = built.glob("fleethpa-image-*.tar.gz")
    subprocess.run(["tar", "-xzf", context, "-C", tmp_path], check=True)
    assert {path.name for path in tmp_path.iterdir()} == {name.split("/")[0] for name in dist.IMAGE}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    names = {path.name for path in (tmp_path / "wheels").iterdir()}
    assert names == {wheel.name}


def test_the_list_of_packages_names_every_package_of_the_lock_file(built: Path) -> None:
    (listed,) = built.glob("*.cdx.json")
    components = {each["name"] for each in yaml.safe_load(listed.read_text())["components"]}
    lock = (ROOT / "requirements" / "run.lock").read_text()
    wanted = {line.split("==")[0] for line in lock.splitlines() if line and line[0] not in " #"}
    assert components == wanted

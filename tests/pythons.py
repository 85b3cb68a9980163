"""The fast tier, or a short part of it, on every further Python that this machine has.

`python -m tests.pythons` runs it, `--short` a part. Interpreters are found on the PATH and among pyenv's. The newest,
which few systems have yet, comes from Maven Central where `mvn` is there and no other was found. Each version has an
environment of its own in `build/`, with what `requirements/dev.lock` pins; uv makes it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
VERSIONS = ("3.14", "3.13", "3.12", "3.11")
RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
UV = "uv==0.13.9"
FAST = (
    *("-m", "not kafka and not slow and not page", "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder"),
    *(f"--ignore=tests/{tier}" for tier in ("kafka", "kubernetes", "page", "prometheus", "slow")),
)
SHORT = ("-n", "2", "--dist", "loadfile", *(f"tests/unit/{room}" for room in ("schemas", "hpa", "state", "ingest")))
LAW = "tests/unit/state/test_partition_golden.py"
_MAVEN = ("org.bytedeco", "cpython", "3.14.3-1.5.13", "linux-x86_64")
"""CPython as the JavaCPP Presets build it: group, artifact, version, classifier."""


def environment_python(version: str) -> Path:
    """The Python of a version's environment: for the version that runs now its own; another need not be there."""
    if version == RUNNING:
        return Path(sys.executable)
    return BUILD / f"py{version}" / "bin" / "python"


def interpreter(version: str) -> str | None:
    """An interpreter of this version; None: this machine has none."""
    own = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    folders = [*os.get_exec_path(), *(str(each / "bin") for each in sorted(own.glob(f"{version}.*")))]
    for folder in folders:
        path = shutil.which(f"python{version}", path=folder)
        # A shim of pyenv is there for every version, also for one that is not switched on: it only fails.
        if path and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0:
            return path
    return _from_maven(version) if _MAVEN[2].startswith(f"{version}.") and shutil.which("mvn") else None


def _from_maven(version: str) -> str:
    """CPython out of a jar of Maven Central, which is fetched the first time."""
    group, artifact, release, classifier = _MAVEN
    folder = BUILD / f"{artifact}-{release}"
    inside = folder.joinpath(*group.split("."), artifact, classifier)
    found = inside / "bin" / f"python{version}"
    if not os.access(found, os.X_OK):
        plugin = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        wanted = f"-Dartifact={group}:{artifact}:{release}:jar:{classifier}"
        subprocess.run(["mvn", "-q", "-B", plugin, wanted, f"-DoutputDirectory={folder}"], check=True, timeout=600)
        with zipfile.ZipFile(folder / f"{artifact}-{release}-{classifier}.jar") as jar:
            jar.extractall(folder)
        found.chmod(0o755)
    return str(found)


def environment(version: str, executable: str) -> Path:
    """The Python of an environment with this release and its locked dependencies, made where it is missing or old."""
    python = environment_python(version)
    lock = (ROOT / "requirements" / "dev.lock").read_bytes()
    stamp = python.parents[1] / "made-from"
    if stamp.is_file() and stamp.read_bytes() == lock:
        return python
    uv = BUILD / "uv" / "bin" / "uv"
    if not uv.exists():
        subprocess.run([sys.executable, "-m", "venv", BUILD / "uv"], check=True)
        subprocess.run([uv.with_name("pip"), "install", "-q", "--disable-pip-version-check", UV], check=True)
    subprocess.run([uv, "venv", "-q", "--clear", "--python", executable, python.parents[1]], check=True)
    install = (uv, "pip", "install", "-q", "--python", python)
    subprocess.run([*install, "--require-hashes", "-r", ROOT / "requirements" / "dev.lock"], check=True)
    subprocess.run([*install, "--no-deps", "--no-build-isolation", "-e", ROOT], check=True)
    stamp.write_bytes(lock)
    return python


def run(short: bool, limit_s: float) -> Iterator[str]:
    """Run the tests on each version; yields what failed, and last whether all versions give the same bytes.

    `limit_s`: how long all may take; versions for which no time is left are named as not run, without failing.
    """
    begun = time.monotonic()
    for version in VERSIONS:
        if version == RUNNING:
            continue  # `make test` is about that one
        left_s = limit_s - (time.monotonic() - begun)
        executable = interpreter(version) if left_s > 0 else None
        if executable is None:
            reason = "not on this machine" if left_s > 0 else f"no time left of {limit_s:.0f} s"
            _print(f"SKIPPED: Python {version}, {reason}")
            continue
        made = time.monotonic()
        python = environment(version, executable)
        tested = time.monotonic()
        failed = _pytest(python, SHORT if short else FAST)
        ended = time.monotonic()
        _print(f"Python {version} ({executable}): environment {tested - made:.0f} s, tests {ended - tested:.0f} s")
        if failed:
            yield f"Python {version}: tests failed"
    if _pytest(Path(sys.executable), (LAW,)):
        yield "not every Python gives the same bytes"


def _pytest(python: Path, arguments: tuple[str, ...]) -> bool:
    """Whether pytest failed; what is meant for the virtual environment around does not reach it."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    environ = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")}
    command = [str(python), "-m", "pytest", "-q", *arguments]
    code = subprocess.run(command, cwd=ROOT, env=environ | {"PATH": path}, check=False).returncode
    # Where only what failed is run once more, a version in which nothing did has no tests.
    nothing_failed = code == pytest.ExitCode.NO_TESTS_COLLECTED and "--last-failed" in environ.get("PYTEST_ADDOPTS", "")
    return code != pytest.ExitCode.OK and not nothing_failed


def _print(text: str) -> None:
    print(f"== {text}", flush=True)


def main() -> None:
    """Exit code 1 where a test failed on one of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a part that fits into CI")
    parser.add_argument("--limit-s", type=float, default=3600, help="begin no further version after this many seconds")
    options = parser.parse_args()
    failures = list(run(options.short, options.limit_s))
    for failure in failures:
        _print(f"FAILED: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

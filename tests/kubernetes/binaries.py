"""The binaries of a Kubernetes control plane, built from Go modules once and kept in the user's cache.

`go.mod` and `go.sum` in `build/` pin everything, so the same binaries are built everywhere. A cold build takes about
nine minutes on two cores. `python -m tests.kubernetes.binaries` builds what is missing and prints the folder.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VERSION: Final = "v1.37.1"
BUILD: Final = Path(__file__).parent / "build"
PACKAGES: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
_STAMP: Final = "built-from"


class BuildError(Exception):
    """The Go build failed; the text is what it printed last."""


def missing_tools() -> str:
    """What this machine lacks to build the binaries; empty where they can be built, or are built already."""
    if _is_built(folder()):
        return ""
    return "" if shutil.which("go") else "no `go` on this machine, which builds the control plane"


def folder() -> Path:
    """Where the binaries are kept, by version."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "fleethpa" / "control-plane" / VERSION


def built() -> Path:
    """Return the folder with the binaries; builds them where they are missing or of other modules.

    Raises:
        BuildError: `go build` failed.
    """
    place = folder()
    if _is_built(place):
        return place
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once would build everything twice
        if not _is_built(place):
            for name, package in PACKAGES.items():
                _build(place / name, package)
            (place / _STAMP).write_text(_source())
    return place


def _is_built(place: Path) -> bool:
    stamp = place / _STAMP
    return stamp.is_file() and stamp.read_text() == _source() and all((place / name).is_file() for name in PACKAGES)


def _source() -> str:
    """What the binaries are made from, as one line."""
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum"):
        digest.update((BUILD / part).read_bytes())
    return f"{VERSION} {digest.hexdigest()} {_linker_flags()}\n"


def _linker_flags() -> str:
    """Without debugging symbols, and with the version that `kubectl version` and the API server report."""
    major, minor, _ = VERSION.removeprefix("v").split(".")
    values = {"gitVersion": VERSION, "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {each}.{name}={value}" for each in packages for name, value in values.items())])


def _build(target: Path, package: str) -> None:
    begun = time.monotonic()
    print(f"building {target.name} for Kubernetes {VERSION} from Go modules …", file=sys.stderr, flush=True)
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", _linker_flags()]
    environ = os.environ | {"CGO_ENABLED": "0"}
    # The name is taken only by a whole binary: a build that is interrupted leaves none.
    partial = target.with_suffix(".partial")
    done = subprocess.run(
        [*command, "-o", str(partial), package], cwd=BUILD, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildError(f"go build {package} failed:\n{done.stderr[-3_000:]}")
    partial.rename(target)
    print(f"built {target.name} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(built())

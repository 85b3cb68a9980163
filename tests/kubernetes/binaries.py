"""The binaries of a Kubernetes control plane, its HPA controller alone, helm and actionlint, built once from Go modules
and kept in a cache.

`go.mod` and `go.sum` in the folders beside this file pin everything, so the same binaries are built everywhere. A cold
build of the control plane takes about nine minutes on two cores, and helm one more. `python -m
tests.kubernetes.binaries` builds what is missing and prints the folders; with the word `helm` only helm.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_STAMP: Final = "built-from"


@dataclass(frozen=True)
class Build:
    """Some binaries of one version. `name`: their folder in the cache; `module`: the folder with go.mod and go.sum."""

    name: str
    version: str
    module: Path
    packages: Mapping[str, str]
    """Binary → Go package."""
    version_packages: tuple[str, ...]
    """Go packages that hold the version which the binaries report."""
    copied: Mapping[str, str] = field(default_factory=dict)
    """Folder in the module → folder of Kubernetes of this version whose source is put beside the files there: they see
    its unexported names."""
    tags: tuple[str, ...] = ()
    """Build tags: they choose the files that fit to what is copied."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Text → what stands for it in the copied source, where it is exactly once."""


CONTROL_PLANE: Final = Build(
    "control-plane",
    "v1.37.1",
    _HERE / "build",
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
        "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    },
    ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"),
)


def _controller(version: str) -> Build:
    minor = int(version.split(".")[1])
    return Build(
        "hpa-controller",
        version,
        _HERE / "controller",
        {"controller": "."},
        ("controller/podautoscaler",),
        {"podautoscaler": "pkg/controller/podautoscaler"},
        tuple(f"before1.{changed}" for changed in (30, 33, 37) if minor < changed),
        # It names the HPAs that select the same pods in the order of a map.
        {"\treturn hpaList\n": "\treturn inOrder(hpaList)\n"} if minor < 37 else {},
    )


CONTROLLER: Final = _controller("v1.37.1")
OLDER_CONTROLLERS: Final = tuple(
    map(_controller, ("v1.27.16", "v1.28.15", "v1.32.13", "v1.33.13", "v1.34.4", "v1.35.4", "v1.36.3"))
)
"""The controller's own source of these versions, compiled against the libraries of the newest. 1.29 to 1.31 answer as
1.32."""
HELM: Final = Build("helm", "v4.3.1", _HERE / "helm", {"helm": "helm.sh/helm/v4/cmd/helm"}, ())
ACTIONLINT: Final = Build(
    "actionlint", "v1.7.12", _HERE / "actionlint", {"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"}, ()
)


class BuildError(Exception):
    """The Go build failed; the text is what it printed last."""


def missing_tools(build: Build = CONTROL_PLANE) -> str:
    """What this machine lacks to build the binaries; empty where they can be built, or are built already."""
    if is_built(build):
        return ""
    return "" if shutil.which("go") else f"no `go` on this machine, which builds {build.name}"


def folder(build: Build = CONTROL_PLANE) -> Path:
    """Where the binaries are kept, by version."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "fleethpa" / build.name / build.version


def built(build: Build = CONTROL_PLANE) -> Path:
    """Return the folder with the binaries; builds them where they are missing or of other modules.

    Raises:
        BuildError: `go build` failed.
    """
    place = folder(build)
    if is_built(build):
        return place
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs at once would build everything twice
        if not is_built(build):
            source = _source(build)  # before the build: what changes meanwhile is not in it
            for name in build.packages:
                _build(place / name, build)
            (place / _STAMP).write_text(source)
    return place


def is_built(build: Build) -> bool:
    """Whether the cache has these binaries, made of these modules."""
    place = folder(build)
    stamp = place / _STAMP
    is_current = stamp.is_file() and stamp.read_text() == _source(build)
    return is_current and all((place / name).is_file() for name in build.packages)


def _source(build: Build) -> str:
    """What the binaries are made from, as one line."""
    digest = hashlib.sha256()
    for part in sorted(path for path in build.module.rglob("*") if path.is_file()):
        digest.update(part.read_bytes())
    choices = [*build.tags, *build.changed.values()]
    return f"{build.version} {digest.hexdigest()} {_linker_flags(build)} {choices}\n"


def _linker_flags(build: Build) -> str:
    """Without debugging symbols, and with the version that `kubectl version` and the API server report."""
    major, minor, _ = build.version.removeprefix("v").split(".")
    values = {"gitVersion": build.version, "gitMajor": major, "gitMinor": minor}
    named = [f"-X {each}.{name}={value}" for each in build.version_packages for name, value in values.items()]
    return " ".join(["-s -w", *named])


def _build(target: Path, build: Build) -> None:
    begun = time.monotonic()
    package = build.packages[target.name]
    print(f"building {target.name} of {build.name} {build.version} from Go modules …", file=sys.stderr, flush=True)
    command = ["go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-tags", ",".join(build.tags)]
    command += ["-ldflags", _linker_flags(build)]
    environ = os.environ | {"CGO_ENABLED": "0"}
    # The name is taken only by a whole binary: a build that is interrupted leaves none.
    partial = target.with_suffix(".partial")
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run(
            [*command, "-o", str(partial), package],
            cwd=_with_copies(build, Path(place)) if build.copied else build.module,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BuildError(f"go build {package} failed:\n{done.stderr[-3_000:]}")
    partial.rename(target)
    print(f"built {target.name} in {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def _with_copies(build: Build, place: Path) -> Path:
    """The module in a place of its own, with what it copies."""
    module = Path(shutil.copytree(build.module, place / "module"))
    kubernetes = _kubernetes(build)
    missing = set(build.changed)
    for folder_name, copied in build.copied.items():
        for source in sorted((kubernetes / copied).glob("*.go")):
            if not source.name.endswith("_test.go"):
                text = source.read_text()
                for before, after in build.changed.items():
                    if text.count(before) == 1 and before in missing:
                        text = text.replace(before, after)
                        missing.discard(before)
                (module / folder_name / source.name).write_text(text)
    if missing:
        raise BuildError(f"{build.name} {build.version}: the copied source does not have {sorted(missing)}")
    return module


def _kubernetes(build: Build) -> Path:
    """The folder with the source of Kubernetes of this version."""
    asked = ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{build.version}"]
    done = subprocess.run(asked, cwd=build.module, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"{' '.join(asked)} failed:\n{(done.stdout + done.stderr)[-3_000:]}")
    return Path(json.loads(done.stdout)["Dir"])


if __name__ == "__main__":
    for wanted in [HELM] if sys.argv[1:] == ["helm"] else [CONTROL_PLANE, HELM]:
        print(built(wanted))

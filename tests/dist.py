"""Everything of a release, made of one commit into `dist/`: `python -m tests.dist [FOLDER]` (`make dist`).

Wheel, source, chart, image context, a list of what the image holds, and the SHA-256 of each. Nothing but the commit
goes into them: two builds of it give equal bytes. Times in them are the commit's.
"""

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKSUMS = "SHA256SUMS"
IMAGE = (
    *("compose/Dockerfile", "requirements/run.lock", "requirements/build.lock", "pyproject.toml", "README.md"),
    *("LICENSE", "schemas", "runtime", "streams", "reconciler", "fleethpa", "examples"),
)
"""What the image is made of; a test compares it with what the Dockerfile copies."""
SBOM_TOOL = "cyclonedx-bom==7.5.0"


def build(folder: Path, commit: str = "HEAD") -> None:
    """Make a release of a commit in an empty folder.

    Raises:
        subprocess.CalledProcessError: git, the build or the tool that lists packages failed; their output is printed.
    """
    epoch_s = int(_git("log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory(prefix="fleethpa-dist-") as temporary:
        source = Path(temporary)
        with tarfile.open(fileobj=io.BytesIO(_archived(commit))) as archive:
            archive.extractall(source, filter="data")
        version = tomllib.loads((source / "pyproject.toml").read_text())["project"]["version"]
        environ = os.environ | {"SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=source, env=environ, check=True)
        _pack(folder / f"fleethpa-{version}.tgz", source / "compose/helm", ("fleethpa",), epoch_s)
        _pack(folder / f"fleethpa-image-{version}.tar.gz", source, IMAGE, epoch_s)
        list_packages(source, folder / f"fleethpa-{version}.cdx.json")
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())]
    (folder / CHECKSUMS).write_text("".join(sums))


def list_packages(source: Path, to: Path) -> None:
    """Write a CycloneDX list of what the image holds, from the lock file of the source."""
    tools = ROOT / "build" / "sbom" / "bin"
    if not (tools / "cyclonedx-py").exists():
        subprocess.run([sys.executable, "-m", "venv", str(tools.parent)], check=True)
        subprocess.run([tools / "pip", "install", "-q", "--disable-pip-version-check", SBOM_TOOL], check=True)
    command = [str(tools / "cyclonedx-py"), "requirements", "requirements/run.lock", "--pyproject", "pyproject.toml"]
    subprocess.run([*command, "--output-reproducible", "--validate", "-o", str(to.absolute())], cwd=source, check=True)


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _archived(commit: str) -> bytes:
    """The files of a commit, without what the working tree has beside it."""
    return subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout


def _pack(to: Path, root: Path, names: Iterable[str], epoch_s: int) -> None:
    """Pack files and folders as a compressed archive: in order, owned by root, all of one time."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = epoch_s
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            archive.add(root / name, arcname=name, filter=plain)  # the files of a folder in the order of their names
    to.write_bytes(gzip.compress(packed.getvalue(), compresslevel=9, mtime=epoch_s))


def main() -> None:
    """Empty the folder and build the release of HEAD in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.dist", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist")
    folder = parser.parse_args().folder.absolute()
    if _git("status", "--porcelain"):
        print("The working tree has changes that are not committed: they stay out of the release.", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build(folder)
    print((folder / CHECKSUMS).read_text(), end="")


if __name__ == "__main__":
    main()

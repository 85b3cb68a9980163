"""How other terminals find a development stack: a small file that names its brokers and its kubeconfig."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import orjson

FILE: Final = "dev.json"


@dataclass(frozen=True)
class DevStack:
    """A running stack: its process, brokers, kubeconfig and contexts; `clusters` maps a cluster to its API server."""

    pid: int
    brokers: str
    kubeconfig: str
    contexts: tuple[str, ...] = ()
    clusters: dict[str, str] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)


def folders(environ: Mapping[str, str]) -> list[Path]:
    """Where the file may be: `$FLEETHPA_RUNTIME_DIR` alone if set, else `./build/dev` and the user's runtime folder."""
    if named := environ.get("FLEETHPA_RUNTIME_DIR"):
        return [Path(named)]
    runtime = environ.get("XDG_RUNTIME_DIR")
    user = Path(runtime) / "fleethpa" if runtime else Path(tempfile.gettempdir()) / f"fleethpa-{os.getuid()}"
    return [Path("build/dev"), user]


def publish(stack: DevStack, environ: Mapping[str, str]) -> list[Path]:
    """Write the file where other terminals look, unless another stack runs; returns what was written.

    Raises:
        OSError: none of the folders can be written.
    """
    written, refused = list[Path](), list[OSError]()
    for folder in folders(environ):
        other = _read(folder / FILE)
        if other is not None and other.pid != stack.pid and _alive(other.pid):
            continue
        try:
            written.append(_write(stack, folder))
        except OSError as error:  # a folder that only the owner of the checkout may write, for one
            refused.append(error)
    if refused and not written:
        raise refused[0]
    return written


def _write(stack: DevStack, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / FILE
    part = path.with_suffix(f".{stack.pid}")
    part.write_bytes(orjson.dumps(asdict(stack), option=orjson.OPT_INDENT_2))
    part.replace(path)
    return path


def withdraw(stack: DevStack, environ: Mapping[str, str]) -> None:
    """Remove the files of this stack; those of another stack stay."""
    for folder in folders(environ):
        found = _read(folder / FILE)
        if found is not None and found.pid == stack.pid:
            (folder / FILE).unlink(missing_ok=True)


def find(environ: Mapping[str, str]) -> DevStack | None:
    """Return the running stack of this user, if there is one."""
    for folder in folders(environ):
        stack = _read(folder / FILE)
        if stack is not None and _alive(stack.pid):
            return stack
    return None


def _read(path: Path) -> DevStack | None:
    try:
        # Another user could have made the folder under /tmp first: what is not ours is not believed.
        if path.stat().st_uid != os.getuid():
            return None
        values = orjson.loads(path.read_bytes())
        return DevStack(**{**values, "contexts": tuple(values.get("contexts", ()))})
    except (OSError, ValueError, TypeError):
        return None


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""Which tiers of tests CI runs for a change: some always, the rest where the change touches them, else by turns.

`python -m tests.tiers plan` prints what `.ci/run` runs (`run TIER`) and leaves out (`left TIER`, with the reason and
the command); `python -m tests.tiers failed` the tests that failed last. Git knows what the last hours' commits changed.

A further tier is due when it is its turn (one landing in five; some have none), when the change touches its own files,
or when it touches what the packages import that the tier is about. Those whose turn it is run in any case, the others
in this order while they fit into the budget of minutes: a change that touches everything does not make everybody wait
for two hours, and what it left out is printed with its command.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = ("schemas", "runtime", "streams", "reconciler", "fleethpa")
TURNS: Final = 5
NO_TURN: Final = -1
BUDGET_MINUTES: Final = 35.0
CHANGE_HOURS: Final = 4
"""Commits of so many hours before the newest one are the change."""
PAUSE_MINUTES: Final = 30
"""Between two commits that belong to different landings at least so much time has passed."""
HARNESS: Final = ("Makefile", "pyproject.toml", "requirements/", ".ci/", "tests/kit/", "tests/conftest.py")
"""What every tier runs on; a change there touches all of them by import."""


@dataclass(frozen=True)
class Tier:
    """A target of the Makefile that runs tests."""

    name: str
    minutes: float
    """On two idle cores, with everything that it builds once there already."""
    turn: int | None = None
    """In which of `TURNS` landings it runs in any case. None: in each; `NO_TURN`: in none."""
    tools: tuple[str, ...] = ()
    """Commands it needs; where one has several names, these are divided by `|`."""
    files: tuple[str, ...] = ()
    """Beginnings of the paths that are its own subject."""
    modules: tuple[str, ...] = ()
    """Packages and modules that it is about: a change of what they import touches it, too."""
    part_of: str = ""
    """The tier that has all of its tests: where that one runs, this one does not."""


ALWAYS: Final = (
    Tier("test", 3),
    Tier("check", 2),
    Tier("docs", 1),
    Tier("test-kafka-short", 4, tools=("java", "mvn"), part_of="test-kafka"),
    Tier("test-kubernetes-short", 9, tools=("go",)),
)
BY_TURNS: Final = (
    Tier("test-slow", 12, 0, files=("tests/slow/", "compose/", ".github/"), modules=("fleethpa.lab.demo",)),
    Tier(
        "test-page",
        8,
        1,
        ("chromium|chromium-browser|google-chrome",),
        ("tests/page/", "fleethpa/page/"),
        ("fleethpa.page",),
    ),
    Tier(
        "test-prometheus",
        1,
        1,
        ("prometheus",),
        ("tests/prometheus/", "reconciler/prometheus/"),
        ("reconciler.observer", "reconciler.prometheus"),
    ),
    Tier("test-laws", 10, 2, files=("tests/laws.py",), modules=("streams.partition", "reconciler.agents.standin")),
    Tier("test-kafka", 12, 3, ("java", "mvn"), ("tests/kafka/", "runtime/"), ("streams.ingest", "streams.decider")),
    Tier(
        "test-hostile",
        4,
        4,
        ("java", "mvn"),
        ("tests/kafka/test_hostile", "schemas/limits.py", "streams/ingest/"),
        ("streams.ingest", "reconciler.agents.agent"),
    ),
    Tier(
        "test-upstream",
        3,
        NO_TURN,
        ("go",),
        ("tests/upstream/", "tests/conformance/", "tests/kubernetes/controller/"),
        ("streams.hpa", "schemas.kubernetes"),
    ),
    Tier("test-pythons-short", 4, 4, files=("tests/pythons.py",), modules=("streams.partition",)),
)


@dataclass(frozen=True)
class Plan:
    """What a run of CI does: the tiers it runs, in order, and those it leaves out with the reason of each."""

    run: tuple[Tier, ...]
    left: tuple[tuple[Tier, str], ...]


def plan(
    changed: Iterable[str],
    turn: int,
    imports_of: Callable[[str], frozenset[str]],
    has: Callable[[str], object],
    budget_minutes: float = BUDGET_MINUTES,
) -> Plan:
    """Return what to run.

    `changed`: paths in the repository. `turn`: a number that grows by one with each landing. `imports_of`: all modules
    that a package imports, directly or not, its own among them. `has`: whether a command is on this machine.
    """
    paths = frozenset(changed)
    left = [(tier, missing) for tier in (*ALWAYS, *BY_TURNS) if (missing := _missing(tier, has))]
    there = [tier for tier in (*ALWAYS, *BY_TURNS) if not _missing(tier, has)]
    chosen = [tier for tier in there if tier.turn is None or tier.turn == turn % TURNS]
    due = [tier for tier in there if tier not in chosen and _touches(tier.files, paths)]
    due += [tier for tier in there if tier not in (*chosen, *due) and _touches_imports(tier, paths, imports_of)]
    for tier in due:
        if _minutes([*chosen, tier]) <= budget_minutes:
            chosen.append(tier)
        else:
            left.append((tier, f"this change touches it, but the other tiers use up the {budget_minutes:.0f} minutes"))
    names = {tier.name for tier in chosen}
    left += [
        (
            tier,
            "this change does not touch it" + (f"; it runs in one landing of {TURNS}" if tier.turn != NO_TURN else ""),
        )
        for tier in there
        if tier not in chosen and tier not in due
    ]
    return Plan(tuple(tier for tier in there if tier in chosen and tier.part_of not in names), tuple(left))


def _minutes(tiers: Sequence[Tier]) -> float:
    names = {tier.name for tier in tiers}
    return sum(tier.minutes for tier in tiers if tier.part_of not in names)


def _missing(tier: Tier, has: Callable[[str], object]) -> str:
    missing = [tool for tool in tier.tools if not any(has(name) for name in tool.split("|"))]
    return f"no {' and no '.join(missing)} on this machine" if missing else ""


def _touches(beginnings: Sequence[str], paths: Iterable[str]) -> bool:
    return any(path.startswith(tuple(beginnings)) for path in paths) if beginnings else False


def _touches_imports(tier: Tier, paths: frozenset[str], imports_of: Callable[[str], frozenset[str]]) -> bool:
    modules = {module_of(path) for path in paths}
    return _touches(HARNESS, paths) or any(modules & imports_of(package) for package in tier.modules)


def module_of(path: str) -> str:
    """The module of a file: `streams/hpa/rules.py` is `streams.hpa.rules`; a file of another kind is its folder's."""
    inside = Path(path)
    parts = inside.with_suffix("").parts if inside.suffix == ".py" else inside.parent.parts
    return ".".join(parts[:-1] if parts[-1:] == ("__init__",) else parts)


def imports_of(package: str) -> frozenset[str]:
    """All modules that a package or what it imports is made of."""
    graph = grimp.build_graph(*PACKAGES)
    return (
        frozenset(graph.find_upstream_modules(package, as_package=True)) | graph.find_descendants(package) | {package}
    )


def changed() -> list[str]:
    """The paths that the commits of the last hours changed."""
    newest = int(_git("log", "-1", "--format=%ct"))
    return sorted(set(_git("log", f"--since={newest - CHANGE_HOURS * 3_600}", "--name-only", "--format=").split()))


def landings(times_s: Sequence[int]) -> int:
    """How many landings a history has, by the times of its commits, newest first: a pause ends one."""
    pairs = itertools.pairwise(times_s)
    return 1 + sum(newer - older >= PAUSE_MINUTES * 60 for newer, older in pairs)


def _turn() -> int:
    """The number of this run: GitHub counts them; elsewhere the history does."""
    counted = os.environ.get("GITHUB_RUN_NUMBER")
    return int(counted) if counted else landings([int(each) for each in _git("log", "--format=%ct").split()])


def failed() -> list[str]:
    """The tests that failed in the last run of pytest."""
    kept = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text())) if kept.is_file() else []


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main(wanted: str) -> None:
    """Print the plan or the failed tests, a line each."""
    if wanted == "failed":
        print(*failed(), sep="\n")
        return
    made = plan(changed(), _turn(), imports_of, shutil.which)
    for tier in made.run:
        print(f"run {tier.name}")
    for tier, reason in made.left:
        print(f"left {tier.name}: {reason}. Run it: make {tier.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])

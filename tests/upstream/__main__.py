"""`python -m tests.upstream [--seed N] [--count N] [--version 1.NN]`: the engine against upstream's compiled code."""

import random
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import click
import orjson

from fleethpa.frame import errors
from fleethpa.frame.session import say
from schemas.kubernetes.shape import Json
from tests.conformance.__main__ import to_text
from tests.conformance.runner import FileReport, run
from tests.kubernetes.binaries import CONTROLLER, OLDER_CONTROLLERS, Build, missing_tools
from tests.upstream.answering import answered
from tests.upstream.apimutations import Pool, selector_text
from tests.upstream.freshcases import calculation, scenario, without_kept_sums
from tests.upstream.mutations import mutated
from tests.upstream.olderversions import as_of, recorded_of
from tests.upstream.recordedcases import OF_API, OF_CONTROLLER, questions, recorded, unlike
from tests.upstream.reducing import reduced

OUTPUT: Final = Path("build/upstream")
REDUCED: Final = 3
"""So many differing cases of each file are reduced."""
VERSIONS: Final = {
    build.version.removeprefix("v").rpartition(".")[0]: build for build in (*OLDER_CONTROLLERS, CONTROLLER)
}
"""Upstream's code by minor version."""


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the cases.")
@click.option("--count", type=click.IntRange(10), default=10_000, show_default=True, help="Number of cases.")
@click.option("--show", type=click.IntRange(0), default=10, show_default=True, help="Number of differences to print.")
@click.option(
    *("--version", "minor"), type=click.Choice(VERSIONS), default="1.37", show_default=True, help="Of Kubernetes."
)
@click.pass_context
def upstream(context: click.Context, seed: int, count: int, show: int, minor: str) -> None:
    """Compare the engine with upstream's compiled code on cases that nobody chose.

    First that code has to give the recorded answers again. Half of the cases are for the controller: made from nothing,
    or recorded ones with changes. The others are for the replica calculator, the metrics client and the API. All are
    kept with upstream's answers in build/upstream, as files for `python -m tests.conformance`. The first that differ
    are reduced to the smallest that still do. Exit 1 when any case differs.

    Of a version before 1.37 it is the source of the controller and the calculator that is compiled, against the
    libraries of 1.37: the cases are those of the controller and the calculator, and the engine has the rules of that
    version.
    """
    build = VERSIONS[minor]
    if missing := missing_tools(build):
        say(f"SKIPPED, nothing was compared with upstream's code: {missing}")
        return
    made = fresh(seed, count)
    if build is CONTROLLER:
        wrong = _prove(build, {name: recorded([name]) for name in (*OF_CONTROLLER, *OF_API)}, show)
    else:
        wrong = _prove(build, recorded_of(build.version), show)
        made = {
            f"{minor}-{name}": [as_of(build.version, case) for case in made[name]]
            for name in ("controller", "calculator")
        }
    paths = [
        path for name, cases in made.items() if (path := _kept(f"{name}-{seed}", answered(cases, build))) is not None
    ]
    report = run(paths, show=show)
    say(to_text(report), err=False)
    for file in report.files:
        _reduce(file, build)
    if report.different or wrong:
        context.exit(errors.ANSWER_IS_NO)


def _prove(build: Build, files: Mapping[str, list[Json]], show: int) -> int:
    """Let the compiled code answer what is recorded; return how many answers are others."""
    wrong = 0
    for name, known in files.items():
        changed = unlike(known, answered([_unanswered(name, case) for case in known], build))
        wrong += len(changed)
        if changed:
            say(f"{name}: {len(changed)} of {len(known)} recorded cases are answered otherwise by {build.version}:")
            for case in changed[:show]:
                say(f"  {orjson.dumps(case).decode()}")
    how_many = f"all but {wrong}" if wrong else "all"
    say(f"upstream {build.version} answers {how_many} recorded cases as recorded")
    return wrong


def _unanswered(name: str, case: Json) -> Json:
    return questions(case) if name in OF_API else case


def fresh(seed: int, count: int) -> dict[str, list[Json]]:
    """Return cases by the name of their file; the case with a number is the same however many are asked for."""
    known = recorded(OF_CONTROLLER)
    scenarios = [case for case in known if "ticks" in case]
    calculations = [case for case in known if "ticks" not in case]
    made: dict[str, list[Json]] = {
        "controller": [without_kept_sums(_of_controller(seed, number, scenarios)) for number in range(count // 2)],
        "calculator": [without_kept_sums(_of_calculator(seed, number, calculations)) for number in range(count // 6)],
    }
    for name in OF_API:
        made[name] = _of_api(name, seed, count // 15)
    return made


def _of_controller(seed: int, number: int, known: list[Json]) -> Json:
    chance = random.Random(f"controller {seed} {number}")
    if number % 2:
        return mutated(chance, chance.choice(known), f"mutated-{seed}-{number:06}")
    return scenario(chance, f"fresh-{seed}-{number:06}")


def _of_calculator(seed: int, number: int, known: list[Json]) -> Json:
    chance = random.Random(f"calculator {seed} {number}")
    if number % 2:
        return mutated(chance, chance.choice(known), f"mutated-{seed}-{number:06}")
    return calculation(chance, f"fresh-{seed}-{number:06}")


def _of_api(name: str, seed: int, count: int) -> list[Json]:
    known = [questions(case) for case in recorded([name])]
    first = [known.pop(0)] if name == "api-selectors" else []
    if first:
        known = [case for case in known if case.get("labelSelector")]
    pools = [Pool([case for case in known if _kind(case) == kind]) for kind in sorted({_kind(each) for each in known})]
    made = []
    for number in range(count):
        chance = random.Random(f"{name} {seed} {number}")
        is_text = bool(first) and number % 2 == 0
        made.append({"in": selector_text(chance)} if is_text else chance.choice(pools).changed(chance))
    return [*first, *made]


def _kind(case: Json) -> str:
    return str(case.get("kind", ""))


def _kept(name: str, cases: list[Json]) -> Path | None:
    """Write the cases that upstream has an answer to; None: it has none to any."""
    panics = sum("panic" in case for case in cases)
    if panics:
        say(f"{name}: {panics} of {len(cases)} cases end upstream's code with a panic, and are left out")
    if panics == len(cases):
        return None
    OUTPUT.mkdir(parents=True, exist_ok=True)
    path = OUTPUT / f"{name}.jsonl"
    path.write_bytes(_lines(case for case in cases if "panic" not in case))
    return path


def _lines(cases: Iterable[Json]) -> bytes:
    return b"".join(orjson.dumps(case) + b"\n" for case in cases)


def _reduce(file: FileReport, build: Build) -> None:
    names = dict.fromkeys(each.case for each in file.first)
    cases = {
        case["id"]: case for line in Path(file.file).read_bytes().splitlines() if "id" in (case := orjson.loads(line))
    }
    for name in islice((name for name in names if name in cases), REDUCED):
        path = OUTPUT / f"reduced-{name}.jsonl"
        path.write_bytes(_lines([reduced(cases[name], build)]))
        say(f"\n{name} made as small as it still differs, in {path}:\n{path.read_text()}", err=False)


if __name__ == "__main__":
    upstream()

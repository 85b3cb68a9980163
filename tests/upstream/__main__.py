"""`python -m tests.upstream [--seed N] [--count N]`: the engine against upstream's compiled code, on fresh cases."""

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import click
import orjson

from fleethpa.frame import errors
from fleethpa.frame.session import say
from schemas.kubernetes.shape import Json
from tests.conformance.__main__ import to_text
from tests.conformance.runner import run
from tests.kubernetes.binaries import CONTROLLER, missing_tools
from tests.upstream.answering import answered
from tests.upstream.freshcases import calculation, scenario
from tests.upstream.mutations import mutated
from tests.upstream.recordedcases import recorded, unlike
from tests.upstream.reducing import reduced

OUTPUT = Path("build/upstream")
REDUCED = 3
"""So many differing cases of each kind are reduced."""


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the cases.")
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True, help="Number of cases.")
@click.option("--show", type=click.IntRange(0), default=10, show_default=True, help="Number of differences to print.")
@click.pass_context
def upstream(context: click.Context, seed: int, count: int, show: int) -> None:
    """Compare the engine with upstream's compiled controller on cases that nobody chose.

    First the compiled code has to give the recorded answers again. Half of the cases are made from nothing, half are
    recorded ones with changes. They are kept with upstream's answers in build/upstream, as files for `python -m
    tests.conformance`. Of the first that differ the smallest case that still does is printed. Exit 1 when any differs.
    """
    if missing := missing_tools(CONTROLLER):
        say(f"SKIPPED, nothing was compared: {missing}")
        return
    known = recorded()
    changed = unlike(known, answered(known))
    say(f"upstream {CONTROLLER.version}: of {len(known)} recorded cases {len(known) - len(changed)} are answered as recorded")
    for name in changed[:show]:
        say(f"  not so: {name}")
    answers = answered(list(islice(fresh(seed, known), count)))
    panics = [case for case in answers if "panic" in case]
    say(f"{len(answers)} fresh cases by seed {seed}; {len(panics)} of them end upstream's controller with a panic")
    files = _written([case for case in answers if "panic" not in case], seed)
    report = run(files, show=show)
    say(to_text(report), err=False)
    for file in report.files:
        names = dict.fromkeys(each.case for each in file.first)
        for name in islice(names, REDUCED):
            _show_reduced(next(case for case in answers if case["id"] == name))
    if report.different or changed:
        context.exit(errors.ANSWER_IS_NO)


def fresh(seed: int, known: list[Json]) -> Iterator[Json]:
    """Yield cases without end: the one with a number is the same however many are asked for."""
    number = 0
    while True:
        chance = random.Random(f"{seed}:{number}")
        name = f"{seed}-{number:06}"
        match number % 5:
            case 0 | 1:
                yield scenario(chance, f"fresh-{name}")
            case 2:
                yield calculation(chance, f"fresh-{name}")
            case _:
                yield mutated(chance, chance.choice(known), f"mutated-{name}")
        number += 1


def _written(cases: list[Json], seed: int) -> list[Path]:
    """Write a file of each kind; return those that have a case."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    kinds = {"controller": [case for case in cases if "ticks" in case]}
    kinds["calculator"] = [case for case in cases if "ticks" not in case]
    paths = []
    for kind, lines in kinds.items():
        if lines:
            paths.append(OUTPUT / f"{kind}-{seed}.jsonl")
            paths[-1].write_bytes(b"\n".join(map(orjson.dumps, lines)))
    return paths


def _show_reduced(case: Json) -> None:
    path = OUTPUT / f"reduced-{case['id']}.jsonl"
    path.write_bytes(orjson.dumps(reduced(case)))
    say(f"\n{case['id']} made as small as it still differs, in {path}:\n{path.read_text()}", err=False)


if __name__ == "__main__":
    upstream()

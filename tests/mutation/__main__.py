"""Mutation testing of the algorithm: `python -m tests.mutation [--full | --sample N] [--minutes M] [--seed S]`.

Each mutant is one small fault in one function. A child process takes over the changed code and runs the checks; a
mutant that no check notices survives. Survivors that cannot be noticed are listed with the reason in `equivalent.py`.
Exit 1 when the score, equivalents left out, is below `--least`.
"""

import argparse
import importlib
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tests.mutation import suite
from tests.mutation.equivalent import reason_of
from tests.mutation.operators import Mutant, mutants, mutated

MODULES = (
    "streams.hpa.gofloat",
    "streams.hpa.calculator",
    "streams.hpa.grouping",
    "streams.hpa.normalize",
    "streams.hpa.evaluation",
    "streams.hpa.metrics",
    "streams.hpa.autoscaler",
    "streams.hpa.reconcile",
    "streams.hpa.observation",
    "schemas.kubernetes.quantity",
)
CPU_S = 60
MEMORY = 2 << 30
KILLED, SURVIVED = 1, 0


class Task(NamedTuple):
    """One mutant of one module."""

    module: str
    mutant: Mutant

    @property
    def name(self) -> str:
        """What it is called in lists: without line numbers, which move."""
        return f"{self.module}:{self.mutant.function}: {self.mutant.change}"


def main() -> int:
    options = _options()
    tasks = [Task(module, mutant) for module in options.only or MODULES for mutant in _mutants(module)]
    total = len(tasks)
    if not options.full:
        tasks = random.Random(options.seed).sample(tasks, min(options.sample, total))
    print(f"{len(tasks)} of {total} mutants, seed {options.seed}", flush=True)
    for group in sorted({suite.group(task.module) for task in tasks}):
        if not all(check() for check in suite.checks(group)):
            print(f"the checks of {group} fail without any mutant", file=sys.stderr)
            return 2
    end = time.monotonic() + 60 * options.minutes if options.minutes else float("inf")
    return _report(list(_run(tasks, options.jobs, end)), options.least)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("--full", action="store_true", help="all mutants, not a sample")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--minutes", type=float, help="start no mutant after so many minutes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.9)
    parser.add_argument("--only", action="append", choices=MODULES)
    return parser.parse_args()


def _mutants(module: str) -> Iterator[Mutant]:
    return mutants(_source(module))


@cache
def _source(module: str) -> str:
    return Path(str(importlib.import_module(module).__file__)).read_text()


def _run(tasks: list[Task], jobs: int, end: float) -> Iterator[tuple[Task, bool]]:
    """Give each mutant with whether it was noticed; those that cannot begin before `end` are left out."""
    running: dict[int, Task] = {}
    waiting = list(reversed(tasks))
    while waiting or running:
        if time.monotonic() > end:
            waiting.clear()
        while waiting and len(running) < jobs:
            task = waiting.pop()
            running[_start(task)] = task
        if not running:
            break
        pid, status = os.wait()
        task = running.pop(pid)
        killed = os.WIFSIGNALED(status) or os.WEXITSTATUS(status) != SURVIVED
        if not killed:
            print(f"survived line {task.mutant.line}: {task.name}", flush=True)
        yield task, killed


def _start(task: Task) -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(_check(task))
    return pid


def _check(task: Task) -> int:
    """Run the checks on a mutant; a crash, endless work and endless memory are noticed too."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(4 * CPU_S)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    try:
        take_over(task.module, task.mutant)
        return SURVIVED if all(check() for check in suite.checks(suite.group(task.module))) else KILLED
    except BaseException:  # whatever a mutant raises, SystemExit included, it was noticed
        return KILLED


def take_over(name: str, mutant: Mutant) -> None:
    """Give a function the mutant's code. Importers hold the function itself, so they meet the change too."""
    module = importlib.import_module(name)
    code = compile(mutated(_source(name), mutant), str(module.__file__), "exec")
    _function(module, mutant.function).__code__ = _code(code, mutant.function)
    for each in list(sys.modules.values()):
        if getattr(each, "__name__", "").startswith(("streams.", "schemas.", "fleethpa.")):
            for value in vars(each).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _function(module: ModuleType, name: str) -> FunctionType:
    found: Any = module
    for part in name.split("."):
        found = vars(found)[part] if isinstance(found, type) else getattr(found, part)
    found = getattr(found, "fget", found)
    found = getattr(found, "__wrapped__", found)
    function: FunctionType = getattr(found, "__func__", found)
    return function


def _code(code: CodeType, name: str) -> CodeType:
    for part in name.split("."):
        code = next(each for each in code.co_consts if isinstance(each, CodeType) and each.co_name == part)
    return code


def _report(results: list[tuple[Task, bool]], least: float) -> int:
    made: Counter[str] = Counter(task.module for task, _ in results)
    noticed: Counter[str] = Counter(task.module for task, killed in results if killed)
    same = Counter(task.module for task, killed in results if not killed and reason_of(task.name))
    print(f"\n{'MODULE':30} {'MUTANTS':>8} {'KILLED':>7} {'EQUIVALENT':>10} {'SCORE':>6}")
    for module in [*made, "all"]:
        count, killed, alike = (
            (made.total(), noticed.total(), same.total())
            if module == "all"
            else (made[module], noticed[module], same[module])
        )
        print(f"{module:30} {count:8} {killed:7} {alike:10} {_score(count, killed, alike):6.1%}")
    print(f"CPU {time.process_time() + sum(os.times()[2:4]):.0f} s")
    return 0 if _score(made.total(), noticed.total(), same.total()) >= least else 1


def _score(count: int, killed: int, equivalent: int) -> float:
    return killed / max(count - equivalent, 1)


if __name__ == "__main__":
    sys.exit(main())

"""The table of all limits, made from `schemas/limits.py` and from those that a leaf has beside what it bounds.

`python -m tests.limitsreference > docs/limits.md` renews the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from fleethpa.changes import manifests as manifestfiles
from fleethpa.mcp import tools as mcptools
from reconciler.observer import httpconnections
from reconciler.prometheus import promlimits
from schemas import limits
from schemas import settings as budgets
from schemas.kubernetes import manifests, quantity
from schemas.limits import Limit
from streams.ingest import pieces as agentrates

_COMMAND = "the command fails and names file and field"
ELSEWHERE = [
    Limit("bytes of `-f`", manifestfiles.MAX_BYTES, "bytes", "the command line", _COMMAND),
    Limit("values of one manifest, aliases written out", manifests.MAX_NODES, "values", "the command line", _COMMAND),
    Limit("depth of a manifest", manifests.MAX_DEPTH, "levels", "the command line", _COMMAND),
    Limit("a quantity", quantity.MAX_TEXT_LENGTH, "characters", "ingest; the command line", limits.REJECTED),
    Limit("exponent of a quantity", quantity.MAX_EXPONENT, "", "ingest; the command line", limits.REJECTED),
    Limit("window of a removal or addition budget", budgets.LONGEST_MS, "ms", "ingest; the command line", _COMMAND),
    *(
        Limit(
            what,
            rate.burst,
            f"at once, then {rate.per_s:,.0f} per second",
            "ingest",
            "code `overRate`; " + limits.REJECTED,
        )
        for what, rate in (
            ("an agent's reports on one HPA, and outcomes of its writes", agentrates.HPA),
            ("an agent's `serving` and `controlTransferred`, each", agentrates.CLUSTER),
            ("bytes of an agent's reports, after decompression", agentrates.REPORTED_BYTES),
            ("bytes of an additional sample topic, after decompression, in one ingest", agentrates.SAMPLED_BYTES),
            ("an agent's heartbeats about one namespace", agentrates.BEATS),
            ("an agent's samples of one namespace", agentrates.SAMPLES),
        )
    ),
    *mcptools.LIMITS,
    *httpconnections.LIMITS,
    *promlimits.LIMITS,
]
"""Limits that concern one kind of source only, or no record: they are where they are applied."""
SOURCE = Path(limits.__file__)
HEAD = """# Limits

Made from `schemas/limits.py` by `python -m tests.limitsreference`; a test keeps it current. This page is about the
size, number and rate of what comes from outside; what limits a change of replicas is a [brake](brakes.md).

Every limit holds for every source alike: agents, observers, producers of samples, the metrics APIs, the command line.
Ingest refuses what exceeds one with the code `overLimit` and a text that names the object, the field, the value and the
limit; `fleethpa.rejected` has the record and the text. Observers and agents apply the limits before they report. All
that is in the log is within them, so that no decision and no row is larger than a topic takes.

What is too large is taken in a smaller form where that is possible, so that nothing is decided by an older state in
silence:

- An **HPA** that exceeds a limit is *ignored*: fleethpa keeps its name, uid, target, bounds and generation, and scales
  nothing by it. `get hpa` and `describe` show the reason, each decision has it in `refused`, and where fleethpa writes
  the HPA's status, its condition AbleToScale is False with reason `Ignored`. A change that is too large has the same
  effect on an HPA that was fine before. The HPA is evaluated again as soon as a smaller object is reported. The same
  holds for one evaluation whose decision would be too large.
- A **pod** keeps its name, but no labels and no containers, so it counts for no HPA.
- A **scale** with too long a pod selector counts as one that cannot be read: AbleToScale is False, with the reason.
- An **error text** is cut and says how long it was. It counts as before.
- Of a **cluster report** the first troubles are kept that fit.

Sizes in bytes of JSON are those of the compact JSON of the object; a control character takes 6 bytes.
"""


def page() -> str:
    """Give the page."""
    return HEAD + "".join(_section(title, found) for title, found in [*_sections(), ("Elsewhere", ELSEWHERE)])


def _sections() -> Iterator[tuple[str, list[Limit]]]:
    """The limits as the module groups them: by its headings."""
    text = SOURCE.read_text()
    headings = [
        (text.count("\n", 0, each.start()) + 1, each[1]) for each in re.finditer(r"^# --- (.+?) -+$", text, re.M)
    ]
    lines = {
        node.targets[0].id: node.lineno
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    known = {name: value for name, value in vars(limits).items() if isinstance(value, Limit)}
    for index, (begin, title) in enumerate(headings):
        end = headings[index + 1][0] if index + 1 < len(headings) else len(text)
        yield title, [value for name, value in known.items() if begin < lines[name] < end]


def _section(title: str, found: list[Limit]) -> str:
    rows = "".join(
        f"| {each.what.rstrip(',')} | {f'{each.most:,} {each.unit}'.strip()} | {each.refused_by} | {each.shown} |\n"
        for each in found
    )
    head = "| what | at most | where | what you see then |\n|---|---|---|---|\n"
    return f"\n## {title[0].upper()}{title[1:]}\n\n{head}{rows}"


if __name__ == "__main__":
    print(page(), end="")

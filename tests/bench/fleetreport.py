"""The figures of a run of the fleet bench: for people, for programs, and beside the stored ones."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PARTS = ("observer", "ingest", "decider", "reconciler")
NOISE = 1.5
"""A ratio that is this much worse than the stored one is printed as a warning."""


def evaluations_of(decisions: Mapping[str, int]) -> int:
    """How many of some decisions, counted by kind, are evaluations."""
    return sum(count for kind, count in decisions.items() if kind != "completion")


def unchanged_share(decisions: Mapping[str, int]) -> float:
    """Which share of the evaluations wants no write."""
    return decisions.get("unchanged", 0) / max(evaluations_of(decisions), 1)


def document(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a run for programs, without what only explains them."""
    cpu = {name: cost for name, cost in found["cpu_s_per_1000"].items() if name not in ("fleet", "broker")}
    start_cpu = {name: cost / max(found["hpas"], 1) for name, cost in found["start_cpu_s"].items() if name in cpu}
    return {
        "hpas": found["hpas"],
        "clusters": found["clusters"],
        "broker": found["broker"],
        "steadyAfterSeconds": found["steady_s"],
        "cpuPer1000": cpu | {"fleethpa": round(sum(cpu.values()), 3), "kafka": found["cpu_s_per_1000"].get("broker")},
        "cores": found["cores"],
        "memoryMiB": found["memory_mib"],
        "evaluationsPerSecond": found["evaluations_per_s"],
        "evaluatedShare": found["share_evaluated"],
        "unchangedShare": found["share_unchanged"],
        "sampleToDecisionMs": _quantiles(found["sample_to_decision_ms"]),
        "sampleToWriteMs": _quantiles(found["sample_to_write_ms"]),
        "firstWantToWriteMs": _quantiles(found["first_want_to_write_ms"]),
        "stepToWriteMs": _quantiles(found["step"]["first_write_ms"]) if found["step"] else None,
        "start": {"seconds": found["started_s"], "evaluated": found["evaluated_once"], "cpuSecondsPerHpa": start_cpu},
    }


def _quantiles(found: Sequence[int]) -> dict[str, int]:
    """Name the figures of a latency: how many there are, then the median, the 99th percentile and the highest."""
    return dict(zip(("count", "p50", "p99", "max"), found, strict=False))


def table(found: Mapping[str, Any]) -> Iterator[str]:
    """Print a report for people."""
    yield (
        f"{found['hpas']:,} HPAs, {found['clusters']} clusters, {found['broker']} broker, "
        f"{found['deciders']} decider(s): {found['evaluations']:,} evaluations, {found['evaluations_per_s']}/s"
    )
    if found["steady_s"] is not None:
        yield f"  steady                    {found['steady_s']} s after the first evaluations"
    share, unchanged = found["share_evaluated"], found["share_unchanged"]
    yield f"  evaluated per period      {share:.1%} of the HPAs; {unchanged:.0%} of the evaluations want no write"
    yield (
        f"  evaluated once            {found['evaluated_once']:,} HPAs, {found['started_s']} s after the start "
        f"(at most {found['start_bound_s']:g} s are waited for all)"
    )
    yield "  process        CPU s per 1,000 evaluations   cores   MiB   CPU s of the start"
    for name, cpu_s in found["cpu_s_per_1000"].items():
        start_s = found["start_cpu_s"].get(name, 0.0)
        cores, memory_mib = found["cores"][name], found["memory_mib"][name]
        yield f"  {name:<14} {cpu_s:>27.3f} {cores:>7.3f} {memory_mib:>5} {start_s:>20.1f}"
    own = [
        sum(cost for name, cost in found[which].items() if name not in ("fleet", "broker"))
        for which in ("cpu_s_per_1000", "cores")
    ]
    yield f"  {'fleethpa':<14} {own[0]:>27.3f} {own[1]:>7.3f}"
    for what in ("sample_to_log_ms", "sample_to_decision_ms", "sample_to_write_ms", "first_want_to_write_ms"):
        count, *figures = found[what]
        yield f"  {what:<25} p50 / p99 / max {' / '.join(map(str, figures)) or '-'} of {count}"
    if found["restarts"]:
        yield f"  started again             {found['restarts']}: the machine was too slow for time-outs, or the broker"
        yield from (f"    {words}" for words in found["last_words"])
    if found["step"]:
        for which in ("first", "last"):
            count, *figures = found["step"][f"{which}_write_ms"]
            yield (
                f"  load step on {found['step']['stepped']} HPAs: {count} written, {which} write p50 / p99 / max "
                f"{' / '.join(map(str, figures)) or '-'} ms after it"
            )
    yield (
        f"  bytes per evaluation      decisions {found['decision_bytes']}, "
        f"API servers {found['api_bytes_per_evaluation']}"
    )
    yield from disk_lines(found)


def disk_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What each topic would take of a disk in a day."""
    for topic, megabytes in found["mb_per_1000_hpas_and_day"].items():
        yield f"  {topic:<45} {megabytes:>9,.1f} MB per 1,000 HPAs and day"


def worse_than_stored(found: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Name the ratios that are much worse than the stored ones: what a process needs, by the fleet's servers.

    Ratios, since another machine, or the same with other work, is faster or slower as a whole.
    """
    reported = []
    now, then = found["cpu_s_per_1000"], stored["cpu_s_per_1000"]
    for name in PARTS:
        ratio, before = now[name] / now["fleet"], then[name] / then["fleet"]
        if ratio > NOISE * before:
            reported.append(f"{name}: {ratio:.2f} of the fleet's CPU time, {before:.2f} stored")
    if found["share_evaluated"] < 0.9 * stored["share_evaluated"]:
        reported.append(f"evaluated per period: {found['share_evaluated']:.2f}, {stored['share_evaluated']:.2f} stored")
    return reported


# --- growth -----------------------------------------------------------------------------------------------------------

TITLES = {
    "hpas": "HPAs, of 5 pods each, in 20 clusters",
    "pods": "pods of each HPA, 200 HPAs in 20 clusters",
    "clusters": "clusters, 2,000 HPAs of 5 pods",
    "deciders": "deciders, 2,000 HPAs of 5 pods in 20 clusters",
}
GOAL = 1.3
"""A cost that grows by no more than this over a table is reached."""


def costs(found: Mapping[str, Any]) -> dict[str, float]:
    """CPU seconds per 1,000 evaluations of each kind of process, of all together, and of the broker."""
    by_name: Mapping[str, float] = found["cpu_s_per_1000"]
    parts = {part: sum(cpu_s for name, cpu_s in by_name.items() if name.startswith(part)) for part in PARTS}
    return parts | {"fleethpa": sum(parts.values()), "broker": by_name.get("broker", 0.0)}


def growth_table(axis: str, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[str]:
    """Print the rows of one table; each cost is followed by its ratio to the first row."""
    first = costs(rows[0][1])
    yield f"{TITLES[axis]}: CPU s per 1,000 evaluations (times the first row)"
    yield f"  {axis:>9} {'evaluated':>10}" + "".join(f"{name:>18}" for name in first)
    for value, found in rows:
        cells = "".join(
            f"{cost:>10.3f} ({cost / first[name] if first[name] else 1:>4.2f}x)" for name, cost in costs(found).items()
        )
        yield f"  {value:>9,} {found['share_evaluated']:>10.0%}{cells}"
    ratio = costs(rows[-1][1])["fleethpa"] / first["fleethpa"] if first["fleethpa"] else 1.0
    yield f"  over the table {ratio:.2f}x (goal: at most {GOAL}x)"

"""The table of the growth bench: costs of all workers of a kind together, each in relation to the first row."""

from tests.bench.fleet import ROWS, plan_of_row
from tests.bench.fleetreport import growth_table


def report(**cpu_s: float) -> dict[str, object]:
    return {"cpu_s_per_1000": cpu_s, "share_evaluated": 0.98}


def test_costs_are_put_in_relation_to_the_first_row() -> None:
    first = report(observer=0.1, ingest=0.1, decider=0.2, reconciler=0.1, broker=0.2, fleet=0.3)
    more = report(observer=0.1, ingest=0.1, decider=0.2, decider1=0.1, reconciler=0.25, broker=0.2, fleet=0.9)
    lines = list(growth_table("deciders", [(1, first), (2, more)]))
    assert "0.300 (1.50x)" in lines[3], "the deciders"
    assert "0.750 (1.50x)" in lines[3], "all of fleethpa; the fleet's own servers do not count"
    assert lines[-1] == "  over the table 1.50x (goal: at most 1.3x)"


def test_each_row_differs_from_the_first_in_what_its_table_is_about() -> None:
    for axis, values in ROWS.items():
        plans = [plan_of_row(axis, value, 30.0, "kafka") for value in values]
        assert [getattr(plan, axis) for plan in plans] == list(values)

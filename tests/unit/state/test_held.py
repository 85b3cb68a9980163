"""What a namespace holds, as of a record: the same whether it was counted from the log or from stored rows."""

from schemas import limits
from schemas.limits import Limit
from streams.state.held import Held
from streams.state.namespacekeys import FIRST_ROW

PODS, SCALES = limits.ROW_PODS, limits.ROW_SCALES


def _counted(sizes: list[tuple[Limit, int, int]]) -> Held:
    held = Held()
    for limit, row, size in sizes:
        held.load(limit, row, size)
    return held


def test_what_a_forgotten_namespace_leaves_does_not_depend_on_the_order_in_which_it_was_counted() -> None:
    sizes = [(PODS, 3, 100), (SCALES, FIRST_ROW, 50), (PODS, 1, 200)]
    assert _counted(sizes).end_life(7) == _counted(sizes[::-1]).end_life(7)


def test_what_was_removed_before_leaves_nothing_as_rows_that_are_read_back_do_not_have_it() -> None:
    known = _counted([(PODS, 3, 100), (PODS, 1, 200)])
    known.load(PODS, 1, -200)
    assert known.end_life(7) == _counted([(PODS, 3, 100)]).end_life(7)

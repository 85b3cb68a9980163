"""Tables and lines on a narrow terminal."""

from __future__ import annotations

from fleethpa.show.text import Column, folded, paint, table

COLUMNS = (
    Column[tuple[str, str, str]]("NAME", lambda each: each[0]),
    Column[tuple[str, str, str]]("STATE", lambda each: each[1]),
    Column[tuple[str, str, str]]("WHY", lambda each: each[2]),
)
ROWS = [("checkout", "up", "the load has risen since nine o'clock"), ("a", "down", "-")]


def test_a_table_that_fits_has_one_line_for_each_item() -> None:
    assert table(ROWS, COLUMNS, width=80) == table(ROWS, COLUMNS)


def test_the_last_column_goes_on_below_itself() -> None:
    assert table(ROWS, COLUMNS, width=44) == [
        "NAME      STATE  WHY",
        "checkout  up     the load has risen since",
        "                 nine o'clock",
        "a         down   -",
    ]


def test_columns_that_do_not_fit_have_a_line_of_their_own_aligned_over_all_items() -> None:
    assert table(ROWS, COLUMNS, width=30) == [
        "NAME      STATE",
        "  WHY",
        "checkout  up",
        "  the load has risen since",
        "    nine o'clock",
        "a         down",
        "  -",
    ]


def test_every_line_of_an_item_has_its_style() -> None:
    lines = table(ROWS, COLUMNS, width=30, style=lambda _: "red", color=True)
    assert [line.startswith("\x1b[31m") for line in lines] == [False, False, True, True, True, True, True]
    assert all(line.endswith("\x1b[0m") for line in lines[2:])


def test_styles_take_no_room() -> None:
    line = paint("ok      ", "green", color=True) + " kafka"
    assert folded(line, 14) == [line]
    assert folded(line, 13) == [paint("ok      ", "green", color=True), "  kafka"]


def test_a_command_stays_on_one_line() -> None:
    assert folded("cause: gone  Next: .venv/bin/fleethpa get hpa -A", 30) == [
        "cause: gone  Next:",
        "  .venv/bin/fleethpa get hpa -A",
    ]

"""What is allotted when, and what is counted; `tests.across_model` explores the rest."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from streams.across.allotments import allot, booked, obeyed, outstanding
from streams.state.acrossrows import KEEP, Account, Allotment, MemberReport
from tests.laws import examples


def _obeying(number: int, replicas: int, most: int | None = None) -> Account:
    return Account(MemberReport(number, replicas, replicas if most is None else most), (Allotment(number, replicas),))


def _shares(accounts: dict[str, Account]) -> dict[str, int]:
    return {name: account.newest.replicas for name, account in accounts.items()}


@pytest.mark.parametrize(
    ("east", "west", "maximum", "wanted", "shares"),
    [
        pytest.param(_obeying(1, 2), _obeying(1, 2), 9, (4, 2), (4, 2), id="additions go out where there is room"),
        pytest.param(_obeying(1, 2), _obeying(1, 4), 9, (4, 2), (4, 4), id="additions before removals"),
        pytest.param(_obeying(1, 2), _obeying(1, 4), 6, (4, 2), (2, 2), id="removals first where there is no room"),
        pytest.param(_obeying(1, 2), _obeying(1, 4), 7, (4, 2), (3, 2), id="part of it at once"),
        pytest.param(_obeying(1, 4), _obeying(1, 4), 9, (2, 2), (2, 2), id="a smaller total is taken at once"),
        pytest.param(_obeying(1, 2), _obeying(1, 2, 5), 7, (4, 2), (2, 2), id="a write in flight is counted"),
        pytest.param(_obeying(1, 4), _obeying(1, 4), 6, (5, 1), (4, 1), id="a lower maximum adds nothing"),
    ],
)
def test_allotments(
    east: Account, west: Account, maximum: int, wanted: tuple[int, int], shares: tuple[int, int]
) -> None:
    made = allot(dict(zip(("east", "west"), wanted, strict=True)), {"east": east, "west": west}, maximum)
    assert tuple(_shares(made).values()) == shares


def test_a_member_that_is_not_divided_among_is_counted_and_keeps_what_it_has() -> None:
    made = allot({"east": 9}, {"east": _obeying(1, 2), "west": _obeying(3, 4)}, 8)
    assert _shares(made) == {"east": 4, "west": 4}


def test_every_allotment_from_the_reported_number_on_counts() -> None:
    account = Account(MemberReport(2, 3, 4), (Allotment(2, 3), Allotment(3, 8), Allotment(4, 1)))
    assert (account.counted, account.certain, account.newest) == (8, 1, Allotment(4, 1))
    account = booked(account, MemberReport(4, 1, 1))
    assert (account.counted, account.allotted) == (1, (Allotment(4, 1),))
    assert booked(account, MemberReport(3, 8, 8)) == account


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 6), max_size=60), st.integers(0, 60))
@example([6, 2] * 30, 7)
def test_what_is_kept_of_allotments_that_a_member_never_obeys_has_an_end_and_counts_as_all(
    shares: list[int], obeys: int
) -> None:
    begin = Account(MemberReport(0, 3, 3))
    kept, every = begin, begin
    for share in shares:
        kept = allot({"east": share}, {"east": kept}, 100)["east"]
        if kept.newest != every.newest:
            every = structs.replace(every, allotted=(*every.allotted, kept.newest))
    assert len(kept.allotted) <= 2 * 7
    for account, other in ((kept, every), [booked(each, MemberReport(obeys, 2, 4)) for each in (kept, every)]):
        assert (account.counted, account.certain, account.newest) == (other.counted, other.certain, other.newest)
        assert (account.present, account.is_moving) == (other.present, other.is_moving)
        assert outstanding({"east": account}) == outstanding({"east": other})


def test_a_late_report_does_not_make_room_for_a_member_that_only_seems_to_have_it() -> None:
    west = booked(_obeying(2, 2), MemberReport(2, 5, 5))
    made = allot({"east": 2, "west": 4}, {"east": _obeying(2, 4), "west": west}, 6)
    assert _shares(made) == {"east": 2, "west": 2}


def test_an_allotment_is_sent_until_a_report_shows_it() -> None:
    made = allot({"east": 3}, {"east": _obeying(1, 2)}, 9)
    assert outstanding(made) == [("east", Allotment(2, 3))]
    assert outstanding({"east": booked(made["east"], MemberReport(2, 2, 3))}) == []


def test_a_member_obeys_higher_numbers_only() -> None:
    assert obeyed(Allotment(3, 5), Allotment(2, 9)) == Allotment(3, 5)
    assert obeyed(Allotment(3, 5), Allotment(4, 1)) == Allotment(4, 1)


def test_nothing_is_added_before_each_member_has_reported() -> None:
    accounts = {"east": _obeying(1, 2), "west": Account()}
    assert _shares(allot({"east": 4, "west": 2}, accounts, 9)) == {"east": 2, "west": 0}
    assert _shares(allot({"east": 4}, accounts, 9)) == {"east": 4, "west": 0}  # west is away


def test_a_member_that_has_not_reported_gets_no_allotment_and_numbers_go_on_from_its_first_report() -> None:
    assert outstanding(allot({"west": 3}, {"west": Account()}, 9)) == []
    account = booked(Account(), MemberReport(57, 2, 2))
    assert outstanding(allot({"west": 3}, {"west": account}, 9)) == [("west", Allotment(58, 3))]


def test_what_may_be_had_under_a_former_spec_is_counted_until_a_report_under_the_new_one() -> None:
    before = Account(MemberReport(2, 3, 4), (Allotment(2, 3), Allotment(3, 8)))
    after = before.of_new_spec
    assert (after.report, after.counted) == (None, 8)
    assert booked(after, MemberReport(3, 4, 5)).counted == 5
    assert Account().of_new_spec == Account()


@pytest.mark.parametrize(
    ("report", "present"),
    [
        pytest.param(MemberReport(2, 3, 3), 7, id="the newest allotment is on its way"),
        pytest.param(MemberReport(3, 3, 7), 7, id="its write is in flight"),
        pytest.param(MemberReport(3, 7, 7), 7, id="it is obeyed"),
        pytest.param(MemberReport(3, 3, 3), 3, id="something holds the member"),
    ],
)
def test_what_a_member_has_or_is_about_to_have(report: MemberReport, present: int) -> None:
    assert Account(report, (Allotment(3, 7),)).present == present


def test_while_members_may_have_more_than_the_maximum_one_without_an_allotment_gets_none_that_may_add() -> None:
    """Its write in flight has ended by now, perhaps, and it has one replica."""
    east = Account(MemberReport(5, 1, 3))
    made = allot({"east": 3, "west": 1}, {"east": east, "west": _obeying(1, 1)}, 3)
    assert made["east"] == east


def test_what_a_member_may_have_is_unknown_after_a_loss_until_it_obeys_nothing_of_before() -> None:
    east = _obeying(2, 4).fenced(9)
    assert outstanding({"east": east}) == [("east", Allotment(9, KEEP))]
    assert booked(east, MemberReport(8, 7, 7)) == east
    accounts = {"east": east, "west": _obeying(1, 2)}
    assert _shares(allot({"west": 5}, accounts, 20))["west"] == 2
    accounts["east"] = booked(east, MemberReport(9, 4, 4))
    assert accounts["east"] == Account(MemberReport(9, 4, 4))
    assert _shares(allot({"east": 5, "west": 5}, accounts, 20)) == {"east": 5, "west": 5}

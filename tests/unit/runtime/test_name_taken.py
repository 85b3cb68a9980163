"""A static member of a group that the brokers no longer know, although they confirmed it just now, was replaced."""

import copy
import time
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import IllegalGenerationError, NoError, RebalanceInProgressError, UnknownMemberIdError
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest

from runtime.driver import NamedMember, NameTakenError

SESSION_MS = 10_000
OK, UNKNOWN = NoError.errno, UnknownMemberIdError.errno
REBALANCE, GENERATION = RebalanceInProgressError.errno, IllegalGenerationError.errno
BEAT = HeartbeatRequest("fleethpa-decider", 1, "m")
Answer = tuple[float, int]
"""Seconds after the one before, and its error code."""


@pytest.mark.parametrize(
    ("name", "answers", "is_taken"),
    [
        pytest.param("decider-0", [(0, OK), (2, UNKNOWN)], True, id="confirmed and then unknown: another has its name"),
        pytest.param("decider-0", [(0, OK), (2, OK), (9.9, UNKNOWN)], True, id="within the session"),
        pytest.param("decider-0", [(0, OK), (10.1, UNKNOWN)], False, id="its session has expired"),
        pytest.param("decider-0", [(0, UNKNOWN)], False, id="never confirmed"),
        pytest.param("decider-0", [(0, OK), (2, REBALANCE), (2, UNKNOWN)], False, id="too late to join again"),
        pytest.param("decider-0", [(0, OK), (2, GENERATION), (2, UNKNOWN)], False, id="a rebalance was missed"),
        pytest.param(
            "decider-0", [(0, OK), (2, REBALANCE), (2, OK), (2, UNKNOWN)], True, id="joined again, then taken"
        ),
        pytest.param(None, [(0, OK), (2, UNKNOWN)], False, id="without a name nobody can have it"),
    ],
)
async def test_a_name_is_taken_where_a_confirmed_member_is_unknown(
    name: str | None, answers: list[Answer], is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    codes = iter(code for _, code in answers)

    async def send(member: Any, request: Any) -> Any:
        return SimpleNamespace(error_code=next(codes))

    monkeypatch.setattr(GroupCoordinator, "_send_req", send)
    member = NamedMember.__new__(NamedMember)
    member._group_instance_id, member._session_timeout_ms, member.group_id = name, SESSION_MS, "fleethpa-decider"
    raised: list[NameTakenError] = []
    for after_s, _ in answers:
        clock[0] += after_s
        try:
            await member._send_req(BEAT)
        except NameTakenError as error:
            raised.append(copy.copy(error))  # as the driver does
    assert [str(error)[:75] for error in raised] == [
        "another process of the name 'decider-0' has taken this one's place in the g"
    ] * is_taken


async def test_only_heartbeats_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(member: Any, request: Any) -> Any:
        return SimpleNamespace(error_code=UNKNOWN)

    monkeypatch.setattr(GroupCoordinator, "_send_req", send)
    member = NamedMember.__new__(NamedMember)
    member._group_instance_id, member._session_timeout_ms, member.group_id = "decider-0", SESSION_MS, "group"
    member._confirmed_s = time.monotonic()
    answer = await member._send_req(SyncGroupRequest("group", 1, "m", None, []))
    assert answer.error_code == UNKNOWN

"""Why a part of `fleethpa run` cannot continue, and what to type then."""

from __future__ import annotations

import pytest
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)

from fleethpa.frame.errors import UNREACHABLE, CommandError
from fleethpa.processes import parts
from runtime.errors import NextStepError
from schemas.connection import KafkaSettings
from streams.ingest.preflight import explained

AWAY = "check that Kafka runs, then the address in --brokers and the network in between"
KAFKA = KafkaSettings(bootstrap_servers="k:9092")


@pytest.mark.parametrize(
    ("error", "cause", "step"),
    [
        (TopicAuthorizationFailedError("fleethpa.pods"), "Kafka denies this user", "fleethpa admin topics acls x"),
        (KafkaTimeoutError("in 40000 ms"), "Kafka does not answer in time.", AWAY),
        (RequestTimedOutError(), "Kafka does not answer in time.", AWAY),
        (LookupError("a topic is missing"), "", "fleethpa admin topics check"),
        (NextStepError("it is so", next_step="fleethpa admin ingest reset T 1"), "", "fleethpa admin ingest reset T 1"),
    ],
)
def test_a_part_that_cannot_continue_says_why_and_one_next_step(error: Exception, cause: str, step: str) -> None:
    shown = parts._failed("x", error)
    assert isinstance(shown, CommandError)
    assert (shown.code, shown.next_step) == (UNREACHABLE, step)
    assert (shown.cause or "").startswith(cause)
    assert "Next: " not in shown.what


@pytest.mark.parametrize(
    "error", [TopicAuthorizationFailedError("fleethpa.from.west.1"), GroupAuthorizationFailedError("g")]
)
def test_what_kafka_denies_ingest_is_printed_by_one_command(error: KafkaError) -> None:
    shown = parts._failed("ingest", explained(error, KAFKA))
    assert isinstance(shown, CommandError)
    assert (shown.next_step, str(error) in shown.what) == ("fleethpa admin topics acls ingest", True)

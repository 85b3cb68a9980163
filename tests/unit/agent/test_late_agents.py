"""Why the topic of an agent takes no records, as its router says it."""

import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from reconciler.agents.router.lateagents import why_late


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        pytest.param(MessageSizeTooLargeError(), "max.message.bytes", id="it refuses the size"),
        pytest.param(TopicAuthorizationFailedError(), "fleethpa admin topics acls router", id="no right"),
        pytest.param(KafkaTimeoutError(), "its leader and in-sync replicas", id="no answer in time"),
        pytest.param(None, "it acknowledges nothing; if the brokers answer otherwise, look at", id="no answer"),
    ],
)
def test_what_is_advised_fits_why_the_topic_of_an_agent_takes_no_records(error: Exception | None, advice: str) -> None:
    assert advice in why_late(error)

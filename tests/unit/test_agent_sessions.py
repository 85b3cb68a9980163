"""Which session of an agent may report: a former one only after the later one has been silent for long enough."""

import pytest

from reconciler.observer.takeover import SILENCE_MS
from streams.ingest.agentledger import SILENT_S, AgentLedger
from streams.ingest.pieces import Refusal


def test_a_former_session_is_refused_while_a_later_one_reports() -> None:
    ledger = AgentLedger("prod", 4)
    ledger.hear("agent-prod@2", 0.0)
    with pytest.raises(Refusal, match="session 2 reports already"):
        ledger.hear("agent-prod@1", SILENT_S)


def test_an_agent_whose_lease_was_deleted_is_heard_when_it_sends_its_lists_again() -> None:
    """Its epoch begins at 1 anew. Without the lists that it sends after `SILENCE_MS` it would be blind for minutes."""
    ledger = AgentLedger("prod", 4)
    ledger.hear("agent-prod@2", 0.0)
    with pytest.raises(Refusal):
        ledger.hear("agent-prod@1", 0.0)
    ledger.hear("agent-prod@1", SILENCE_MS / 1000)

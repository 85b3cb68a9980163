"""A port that another process has: the process that wanted it says so, and what to type."""

from __future__ import annotations

import socket

import pytest
from prometheus_client import CollectorRegistry

from fleethpa.frame.errors import USAGE, CommandError
from fleethpa.processes import parts
from runtime.process import PortTakenError, health_server
from streams.decider import app
from streams.decider.tail import Exit


async def test_a_port_that_is_taken_is_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"another process listens on 127.0.0.1:{port}; --web-port") as taken:
            async with health_server(CollectorRegistry(), list, port=port):
                pytest.fail("it listens")

    shown = parts._failed("observer", taken.value)
    assert isinstance(shown, CommandError)
    assert (shown.code, shown.what) == (USAGE, f"observer cannot continue: {taken.value}")
    died: list[object] = []
    monkeypatch.setattr(app, "die", lambda *given: died.extend(given))
    app.end(taken.value)
    assert died == [Exit.NEEDS_OPERATOR, str(taken.value)]

"""By which names a server of this program is called: what is given has to be able to be a Host header."""

from __future__ import annotations

import pytest

from fleethpa.frame.errors import USAGE, CommandError
from fleethpa.frame.listening import names_of


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("fleet.example", "fleet.example"),
        ("Fleet.Example:8443", "fleet.example"),
        ("fleet", "fleet"),
        ("my_service.ns.svc", "my_service.ns.svc"),
        ("10.0.0.7", "10.0.0.7"),
        ("10.0.0.7:80", "10.0.0.7"),
        ("[fd00::7]:80", "fd00::7"),
        ("[fd00::7]", "fd00::7"),
        ("fd00::7", "fd00::7"),
    ],
)
def test_a_host_counts_with_and_without_a_port(given: str, name: str) -> None:
    assert names_of("0.0.0.0", [given]) == {name, "0.0.0.0"}


@pytest.mark.parametrize(
    "given",
    [
        "http://x/",
        "x/path",
        "https://x",
        "",
        " ",
        "*",
        "*.example",
        "x:",
        "x:port",
        "x:99999",
        "a b",
        "u@x",
        "[fd00::7",
        "x,y",
    ],
)
def test_what_no_host_header_can_say_is_refused_by_name(given: str) -> None:
    with pytest.raises(CommandError) as refused:
        names_of("127.0.0.1", ["fleet.example", given])
    assert refused.value.code == USAGE
    assert refused.value.what == f"--allowed-host {given!r} is not the name of a host"

"""Who is recorded as the author of a command."""

import os
import pwd
from collections.abc import Mapping

import pytest

from fleethpa.frame.configuration import load

ME = pwd.getpwuid(os.getuid()).pw_name


@pytest.mark.parametrize(
    ("flag", "environ", "author", "origin"),
    [
        pytest.param(None, {"USER": "anna"}, "anna", "environment USER", id="the user of the shell"),
        pytest.param(None, {}, ME, "passwd", id="without a shell, the name of the process' user"),
        pytest.param("ben", {"USER": "anna"}, "ben", "flag", id="--author"),
        pytest.param(
            None, {"USER": "anna", "FLEETHPA_AUTHOR": "team-a"}, "team-a", "environment", id="FLEETHPA_AUTHOR"
        ),
        pytest.param(
            None,
            {"USER": "runner", "CI": "true", "GITHUB_ACTOR": "cleo"},
            "cleo",
            "environment GITHUB_ACTOR",
            id="in CI, whoever started the job",
        ),
        pytest.param(
            None,
            {"USER": "root", "CI": "true", "GITLAB_USER_LOGIN": "dora", "CI_COMMIT_AUTHOR": "Eve <e@x>"},
            "dora",
            "environment GITLAB_USER_LOGIN",
            id="rather than who wrote the commit",
        ),
        pytest.param(None, {"USER": "anna", "GITHUB_ACTOR": "cleo"}, "anna", "environment USER", id="outside CI not"),
        pytest.param("ben", {"CI": "true", "GITHUB_ACTOR": "cleo"}, "ben", "flag", id="--author in CI"),
    ],
)
def test_the_author_is_the_nearest_that_is_known(
    flag: str | None, environ: Mapping[str, str], author: str, origin: str
) -> None:
    config = load({"author": flag}, {"HOME": "/nonexistent", "FLEETHPA_BROKERS": "b:9092", **environ})
    assert (config.author, config.origins["author"]) == (author, origin)


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert load({}, {"HOME": "/nonexistent", "FLEETHPA_BROKERS": "b:9092"}).author == f"uid {os.getuid()}"

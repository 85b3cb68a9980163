"""Whether an API server is that of the cluster that it is taken for, where settings state its UID."""

from collections.abc import Callable

import pytest

from reconciler.clusters import clusteridentity
from reconciler.clusters.answers import ApiError, ClusterError, IdentityError, NoAnswerError
from reconciler.clusters.clusteridentity import StatedIdentity
from schemas.codec import encode

OWN, OTHER = "4f1c2e0a-6d1b-4c58-9a70-3b1d5f0e8c21", "00000000-6d1b-4c58-9a70-3b1d5f0e8c21"
STATED = f"the settings of east state clusterUid {OWN}, and"


class Server:
    """An API server that says of its cluster what `answer` returns."""

    def __init__(self, answer: Callable[[], bytes]) -> None:
        self.answer, self.asked = answer, list[str]()

    async def ask(self, path: str) -> bytes:
        self.asked.append(path)
        return self.answer()


def showing(uid: object) -> Callable[[], bytes]:
    return lambda: encode({"kind": "Namespace", "metadata": {"name": "kube-system", "uid": uid}})


def failing(error: Exception) -> Callable[[], bytes]:
    def answer() -> bytes:
        raise error

    return answer


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(showing(OTHER), f"{STATED} its namespace kube-system has UID {OTHER}", id="another cluster"),
        pytest.param(
            failing(ApiError(403, 'namespaces "kube-system" is forbidden')),
            f'{STATED} namespace kube-system cannot be read: namespaces "kube-system" is forbidden',
            id="the right is missing",
        ),
        pytest.param(showing(""), f"{STATED} namespace kube-system has no UID", id="no UID"),
        pytest.param(showing(7), "Expected `str`, got `int`", id="a UID that is no text"),
        pytest.param(lambda: b'{"kind": "Namespace"}', "missing required field `metadata`", id="no metadata"),
    ],
)
async def test_an_api_server_that_does_not_show_the_stated_uid_is_refused(
    answer: Callable[[], bytes], says: str
) -> None:
    server, identity = Server(answer), StatedIdentity("east", lambda: OWN)
    for _ in range(3):
        with pytest.raises(IdentityError) as refused:
            await identity.check(server, server.ask)
        assert says in str(refused.value)
    assert server.asked == ["/api/v1/namespaces/kube-system"]  # a refusal counts for a while


async def test_where_nothing_is_stated_nothing_is_asked() -> None:
    server = Server(showing(OTHER))
    await StatedIdentity("east", str).check(server, server.ask)
    assert server.asked == []


async def test_each_connection_is_asked_once_until_its_answer_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    server, other, identity = Server(showing(OWN)), Server(showing(OWN)), StatedIdentity("east", lambda: OWN)
    for _ in range(3):
        await identity.check(server, server.ask)
    await identity.check(other, other.ask)
    assert (len(server.asked), len(other.asked)) == (1, 1)
    monkeypatch.setattr(clusteridentity, "CHECK_EVERY_S", 0.0)
    await identity.check(server, server.ask)  # the answer that it gives now is old at once
    other.answer = showing(OTHER)
    with pytest.raises(IdentityError):
        await identity.check(server, other.ask)


async def test_another_stated_uid_is_asked_about_at_once() -> None:
    stated = [OWN]
    server, identity = Server(showing(OWN)), StatedIdentity("east", lambda: stated[0])
    await identity.check(server, server.ask)
    stated[0] = OTHER
    with pytest.raises(IdentityError):
        await identity.check(server, server.ask)
    stated[0] = OWN
    await identity.check(server, server.ask)


@pytest.mark.parametrize("error", [NoAnswerError("timed out"), ApiError(401, "Unauthorized"), ApiError(503, "busy")])
async def test_an_api_server_that_does_not_say_is_asked_again(error: ClusterError) -> None:
    server, identity = Server(failing(error)), StatedIdentity("east", lambda: OWN)
    with pytest.raises(type(error), match=str(error)):
        await identity.check(server, server.ask)
    server.answer = showing(OWN)
    await identity.check(server, server.ask)

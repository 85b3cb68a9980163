"""Tokens that sign in to Kafka: kept, renewed in time, and never sent anywhere but to their issuer."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import orjson
import pytest
from aiokafka.errors import KafkaConnectionError

from runtime import tokens
from runtime.kafkaclients import aiokafka_kwargs, new_consumer
from runtime.tokens import MAX_ANSWER_BYTES, TokenProvider, region_of, token_provider
from schemas.connection import KafkaSettings, SettingsError
from tests.kit.issuer import Issuer

SECRET = "s: /%ü"


class Clock:
    """Seconds that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer({"decider": SECRET}, lifetime_s=100) as running:
        yield running


@pytest.fixture
def settings(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    monkeypatch.setattr(tokens, "_KEPT", {})
    return KafkaSettings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        username="decider",
        password=SECRET,
        token_endpoint=f"{issuer.url}/token",
        scope="kafka write",
    )


async def test_a_token_is_kept_for_four_fifths_of_its_life_by_all_clients(
    issuer: Issuer, settings: KafkaSettings
) -> None:
    clock = Clock()
    first, second = TokenProvider(settings, clock), TokenProvider(settings, clock)
    token = await first.token()
    clock.now_s += 79.9
    assert await second.token() == token
    assert issuer.asked == [{"grant_type": ["client_credentials"], "scope": ["kafka write"]}]
    clock.now_s += 0.1
    assert await second.token() != token
    assert issuer.given == ["decider"] * 2


async def test_while_the_issuer_is_away_a_token_is_used_until_its_end(issuer: Issuer, settings: KafkaSettings) -> None:
    clock = Clock()
    provider = TokenProvider(settings, clock)
    token = await provider.token()
    issuer.answer = 503, b"{}"
    clock.now_s += 99.9
    assert await provider.token() == token
    clock.now_s += 0.1
    with pytest.raises(KafkaConnectionError, match="answered 503: without a reason"):
        await provider.token()
    issuer.answer = None
    assert await provider.token() != token


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param((401, b'{"error": "invalid_client"}'), "answered 401: invalid_client", id="refused"),
        pytest.param((200, b"{}"), "answered 200: without a reason", id="no token"),
        pytest.param((200, b"<html>"), "not what an issuer answers", id="no JSON"),
        pytest.param((200, b'{"access_token": 1}'), "not what an issuer answers", id="a number for a token"),
        pytest.param((200, b'{"access_token": "a\\u0001b"}'), "characters that no token has", id="a separator"),
        pytest.param((302, b"{}"), "answered 302", id="a redirect is not followed"),
        pytest.param((200, b" " * (MAX_ANSWER_BYTES + 1)), "more than 65536 bytes", id="without end"),
    ],
)
async def test_an_answer_without_a_token_is_an_error_in_words(
    issuer: Issuer, settings: KafkaSettings, answer: tuple[int, bytes], reason: str
) -> None:
    issuer.answer = answer
    with pytest.raises(KafkaConnectionError, match=reason):
        await TokenProvider(settings).token()
    assert len(issuer.asked) == 1


async def test_an_issuer_that_nobody_runs_is_an_error_in_words(settings: KafkaSettings) -> None:
    away = replace(settings, token_endpoint="http://127.0.0.1:1/token")
    with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:1/token does not answer"):
        await TokenProvider(away).token()


async def test_a_token_of_unknown_length_is_renewed_within_a_minute(issuer: Issuer, settings: KafkaSettings) -> None:
    clock = Clock()
    provider = TokenProvider(settings, clock)
    issuer.answer = 200, orjson.dumps({"access_token": "a"})
    await provider.token()
    issuer.answer = 200, orjson.dumps({"access_token": "b"})
    clock.now_s += 60
    assert await provider.token() == "b"


async def test_two_that_ask_at_once_in_two_threads_both_get_a_token(settings: KafkaSettings) -> None:
    provider = TokenProvider(settings)
    found = await asyncio.gather(*(asyncio.to_thread(asyncio.run, provider.token()) for _ in range(4)))
    assert all(token.count(".") == 2 for token in found)


async def test_clients_are_given_tokens_extensions_and_their_rack(settings: KafkaSettings) -> None:
    own = replace(settings, extensions="logicalCluster=lkc-1,identityPoolId=pool-2", client_rack="eu-west-1a")
    kwargs = aiokafka_kwargs(own)
    assert kwargs["sasl_mechanism"] == "OAUTHBEARER"
    assert not {"sasl_plain_username", "sasl_plain_password"} & kwargs.keys()
    provider = kwargs["sasl_oauth_token_provider"]
    assert provider.extensions() == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    for each, rack in ((own, "eu-west-1a"), (settings, None)):
        consumer = new_consumer(each)
        assert consumer._client_rack == rack
        await consumer.stop()


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098",
         "eu-west-1"),
        ("boot-x.c1.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.demo.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.example.com:9098", "ap-south-1"),
    ],
)  # fmt: skip
def test_the_region_of_msk_is_in_the_brokers_names_or_in_the_environment(
    servers: str, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    msk = KafkaSettings(bootstrap_servers=servers, security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert region_of(msk) == region


def test_msk_without_its_signer_says_what_to_install() -> None:
    msk = KafkaSettings(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
    if find_spec("aws_msk_iam_sasl_signer") is not None:
        pytest.skip("the signer is installed here")
    with pytest.raises(SettingsError, match=r"requirements/msk\.lock"):
        token_provider(msk)

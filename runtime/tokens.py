"""Tokens that sign in to Kafka in place of a password, renewed in time: of an OAuth 2 issuer, or signed for AWS MSK."""

import asyncio
import base64
import logging
import os
import re
import ssl
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple
from urllib.parse import quote, urlsplit

import msgspec
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from runtime.tls import trust
from schemas.connection import KafkaSettings, SettingsError
from schemas.proxies import proxy_refusal

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 10.0
MAX_ANSWER_BYTES = 65_536
DEFAULT_LIFETIME_S = 60.0
"""Of a token whose issuer does not say how long it lasts."""
RENEW_AFTER = 0.8
"""Share of its lifetime after which a token is replaced: as Kafka's own clients do."""
_AWS_BROKER = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::|,|$)")


class Token(NamedTuple):
    """A token, and when it ends by this process's monotonic clock."""

    text: str
    renew_at_s: float
    ends_at_s: float


class TokenError(Exception):
    """No token was given; the text has the reason."""


class TokenAnswer(msgspec.Struct, frozen=True):
    """What an issuer answers (RFC 6749, 5.1 and 5.2); `expires_in` in seconds."""

    access_token: str = ""
    expires_in: float | None = None
    error: str = ""
    error_description: str = ""


_KEPT: dict[KafkaSettings, Token] = {}
"""The newest token of each connection's settings: all clients of a process share it."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives aiokafka a token for each connection that it opens.

    `clock`: monotonic seconds. A token is renewed after RENEW_AFTER of its lifetime. An issuer that does not answer
    then is asked again at the next connection, and the token in hand is used until it ends. No lock: clients in
    several threads share it, and two that ask at once only get a token each.
    """

    def __init__(self, settings: KafkaSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock

    async def token(self) -> str:
        """The token to sign in with.

        Raises KafkaConnectionError: there is none, and the issuer gives none; the driver tries again.
        """
        kept = _KEPT.get(self._settings)
        if kept is not None and self._clock() < kept.renew_at_s:
            return kept.text
        try:
            text, lifetime_s = await _ask(self._settings)
        except TokenError as error:
            log.warning("no new token to sign in to Kafka", extra={"error": str(error)})
            if kept is not None and self._clock() < kept.ends_at_s:
                return kept.text
            raise KafkaConnectionError(f"no token to sign in to Kafka: {error}") from error
        now_s = self._clock()
        _KEPT[self._settings] = Token(text, now_s + RENEW_AFTER * lifetime_s, now_s + lifetime_s)
        return text

    def extensions(self) -> dict[str, str]:
        """Return what the brokers are sent beside the token."""
        return self._settings.extension_values


def token_provider(settings: KafkaSettings) -> TokenProvider:
    """Return what gives the tokens that the settings ask for.

    Raises SettingsError: MSK's signer is not installed, or the region of MSK is not known.
    """
    if settings.sasl_mechanism == "AWS_MSK_IAM":
        if find_spec("aws_msk_iam_sasl_signer") is None:
            install = "pip install --no-deps --require-hashes -r requirements/msk.lock"
            raise SettingsError(f"sasl.mechanism AWS_MSK_IAM needs MSK's signer: {install}")
        region_of(settings)
    return TokenProvider(settings)


def region_of(settings: KafkaSettings) -> str:
    """The AWS region of the brokers, from their names, else from AWS_REGION or AWS_DEFAULT_REGION.

    Raises SettingsError: it is not known.
    """
    named = _AWS_BROKER.search(settings.bootstrap_servers)
    region = named[1] if named else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise SettingsError("the region of MSK is not in the brokers' names: set AWS_REGION")
    return region


async def _ask(settings: KafkaSettings) -> tuple[str, float]:
    """A new token, and how long it lasts (seconds). Raises TokenError."""
    if settings.sasl_mechanism == "AWS_MSK_IAM":
        return await asyncio.to_thread(_sign, region_of(settings))
    status, data = await _post(settings)
    try:
        answer = msgspec.json.decode(data, type=TokenAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TokenError(f"{settings.shown_endpoint} answered {status}, and not what an issuer answers") from error
    if status != 200 or not answer.access_token:
        reason = f"{answer.error} {answer.error_description}".strip()[:200] or "without a reason"
        raise TokenError(f"{settings.shown_endpoint} answered {status}: {reason}")
    if not (answer.access_token.isascii() and answer.access_token.isprintable()):
        raise TokenError(f"{settings.shown_endpoint} gave a token with characters that no token has")
    lifetime_s = DEFAULT_LIFETIME_S if answer.expires_in is None else answer.expires_in
    return answer.access_token, max(0.0, lifetime_s)


async def _post(settings: KafkaSettings) -> tuple[int, bytes]:
    """Ask the issuer by client credentials (RFC 6749, 4.4); status and body. Raises TokenError: no whole answer."""
    from urllib.request import getproxies  # here: it loads twenty modules, and most commands fetch no token

    import aiohttp

    form = {"grant_type": "client_credentials"} | ({"scope": settings.scope} if settings.scope else {})
    pair = f"{quote(settings.username, safe='')}:{quote(settings.password, safe='')}".encode()
    headers = {"Authorization": f"Basic {base64.b64encode(pair).decode()}", "Accept": "application/json"}
    scheme = urlsplit(settings.token_endpoint).scheme
    if reason := proxy_refusal(getproxies().get(scheme, ""), f"the environment's {scheme}_proxy"):
        raise TokenError(f"{settings.shown_endpoint} cannot be reached: {reason}")
    try:
        authorities = ssl.create_default_context()
        if settings.cafile:
            trust(authorities, settings.cafile)  # beside the system's: issuer and brokers may differ
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_WITHIN_S), trust_env=True) as session,
            # A redirect would take the secret to another place.
            session.post(
                settings.token_endpoint, data=form, headers=headers, ssl=authorities, allow_redirects=False
            ) as answer,
        ):
            data = bytearray()
            async for chunk in answer.content.iter_any():
                data += chunk
                if len(data) > MAX_ANSWER_BYTES:
                    raise TokenError(f"{settings.shown_endpoint} answered more than {MAX_ANSWER_BYTES} bytes")
            return answer.status, bytes(data)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise TokenError(f"{settings.shown_endpoint} does not answer: {error!r}") from error


def _sign(region: str) -> tuple[str, float]:
    """Sign a token with the credentials that AWS's libraries find. Raises TokenError: they find none."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        text, ends_ms = MSKAuthTokenProvider.generate_auth_token(region)
    except (BotoCoreError, ClientError, ValueError, AttributeError) as error:  # the last one: it found no credentials
        raise TokenError(f"AWS credentials for MSK in {region}: {error}") from error
    return text, max(0.0, ends_ms / 1000 - time.time())

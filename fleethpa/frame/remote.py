"""`--from https://HOST`: the hub runs a read verb, for what the owner of the kubeconfig's token may see."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.core import ParameterSource

from fleethpa.frame.configuration import KEYS, Config
from fleethpa.frame.errors import CommandError, timed_out, unreachable, usage, words_of

COMMAND_TYPE: Final = "application/vnd.fleethpa.command+json"
"""The form of an answer that has all that a command printed."""
_VARIABLE: Final = KEYS["hub"][1]
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_LONGEST_S: Final = 90.0
_LARGEST: Final = 32 * 1024 * 1024
_IS_HUB: Final = "see that it is the address of a page that was started with --api (docs/hub-api.md)"
_GIVEN: Final = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_OWN: Final = ("source", "kubeconfig", "color", "debug", "timeout", "config", "brokers", "kafka_config")
"""Options that are about this machine."""


class RemoteAnswer(msgspec.Struct):
    """The output of a command at the hub, and its exit code."""

    out: str
    err: str
    code: int


def hub_address(source: str) -> str:
    """The address that `--from` names, without a slash at its end.

    Raises CommandError: it is none, or a token would be sent to it in plain text (exit 2).
    """
    parts = urllib.parse.urlsplit(source)
    if parts.scheme == "http" and parts.hostname not in _LOCAL:
        cause = "The token of your kubeconfig would be sent in plain text."
        raise usage(f"--from {source} is not encrypted", cause=cause, next_step="use https://")
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise usage(f"--from {source} is not the address of a hub", cause="Write https://HOST, maybe with a path.")
    return source.rstrip("/")


def asked_of_hub(source: str, context: click.Context, config: Config, timeout_s: float | None) -> RemoteAnswer:
    """Run the command of a context at the hub that `--from` names, within --timeout (`timeout_s`; None: not given).

    Raises CommandError: there is no token, the hub refuses the request, or it does not answer. The exit code of the
    last is 124 where --timeout ended the wait, else 3.
    """
    base = hub_address(source)
    words = "/".join(words_of(context))
    url = f"{base}/api/v1/{words}"
    if query := urllib.parse.urlencode(_query(context), doseq=True):
        url += f"?{query}"
    limit_s = min(_LONGEST_S, timeout_s or _LONGEST_S)
    headers = {"Authorization": asyncio.run(_bearer(config)), "Accept": COMMAND_TYPE}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=limit_s) as answer:
            return msgspec.json.decode(answer.read(_LARGEST), type=RemoteAnswer)
    except urllib.error.HTTPError as error:
        raise _refusal(base, words, error) from error
    except (OSError, msgspec.MsgspecError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _silent(base, limit_s, is_own=limit_s == timeout_s) from error
        cause = str(getattr(reason, "strerror", None) or reason)
        raise unreachable(f"{base} does not answer as a hub", cause=cause, next_step=_IS_HUB) from error


def _silent(base: str, limit_s: float, *, is_own: bool) -> CommandError:
    """The error for a hub that has not answered in time. `is_own`: the time is that of --timeout."""
    make = timed_out if is_own else unreachable
    cause = "The process of the page hangs there, what it reads does not answer, or the question takes longer."
    step = "run it again in a minute; if that does not help, the log of the page at the hub says more"
    return make(f"{base} has not answered for {limit_s:g}s", cause=cause, next_step=step)


def _refusal(base: str, words: str, error: urllib.error.HTTPError) -> CommandError:
    try:
        text = str(msgspec.json.decode(error.read(65_536)).get("error") or "")
    except (msgspec.MsgspecError, AttributeError, OSError):
        text = ""
    cause = text or f"HTTP {error.code} {error.reason}"
    if error.code in (401, 403):
        step = "kubectl auth whoami, and see docs/hub-api.md for who may see what"
        return usage(f"{base} does not let you read", cause=cause, next_step=step)
    if error.code == 404 and not text:  # what answers reads gives every reason in JSON
        return unreachable(f"{base} does not answer as a hub", cause=cause, next_step=_IS_HUB)
    if error.code == 404:
        step = f"fleethpa {words.replace('/', ' ')} --from kafka"
        return usage(f"{base} does not run `{words.replace('/', ' ')}`", cause=cause, next_step=step)
    if error.code < 500:
        return usage(f"{base} refuses the request", cause=cause)
    step = "run it again in a minute; if that does not help, the log of the page at the hub says more"
    return unreachable(f"{base} cannot answer now", cause=cause, next_step=step)


def _query(context: click.Context) -> list[tuple[str, Any]]:
    """The arguments that were typed, as parameters of the address."""
    parameters: list[tuple[str, Any]] = []
    for parameter in context.command.params:
        name = str(parameter.name)
        value = context.params.get(name)
        if name in _OWN or value in (None, ()) or context.get_parameter_source(name) not in _GIVEN:
            continue
        values = value if isinstance(value, tuple) else (value,)
        parameters += [(name, str(each).lower() if isinstance(each, bool) else each) for each in values]
    return parameters


def kubeconfig_path(config: Config) -> str:
    """The file with the context of the hub, where kubectl would look for it."""
    return config.kubeconfig or str(Path.home() / ".kube" / "config")


async def _bearer(config: Config) -> str:
    """The header with which kubectl would sign in. Raises CommandError: there is none (exit 2)."""
    from reconciler.clusters.answers import ConfigError
    from reconciler.clusters.credentials import Credentials, current_context
    from reconciler.core.foundclusters import ClusterConfig

    path = kubeconfig_path(config)
    try:
        context = config.hub or current_context(path)
        configuration, _ = await Credentials(ClusterConfig(context, path, context)).load()
    except ConfigError as error:
        step = f"name the context of the hub's cluster in {_VARIABLE}, and the file with --kubeconfig"
        raise usage(f"kubeconfig {path} has no token for the hub", cause=str(error), next_step=step) from error
    header = next(iter(configuration.api_key.values()), "")
    if not header.lower().startswith("bearer "):
        raise usage(
            f"context {context} of {path} signs in without a token",
            cause="The hub reviews bearer tokens, and this context has a certificate.",
            next_step=f"{_VARIABLE}=NAME of a context with a token, such as one that `kubectl create token` made",
        )
    return str(header)

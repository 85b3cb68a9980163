"""Shell completion of HPA names: read from the running fleet, quickly or not at all."""

from __future__ import annotations

import asyncio
from typing import Final

import click

from fleethpa.cli.common.session import SHARED, Session

_LIMIT_S: Final = 2.0


def hpa_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the whole names that begin as typed; nothing where the fleet does not answer in time."""
    try:
        return [name for name in _known(context) if name.startswith(incomplete)]
    except Exception:  # whatever it is, a TAB must never print an error into the line that is being typed
        return []


def _known(context: click.Context) -> list[str]:
    from fleethpa.cli.common.fleetstate import read_state  # here, since every verb imports this module for its names

    options = {name: value for name, value in context.params.items() if name in SHARED and value is not None}
    session = Session((context.find_root().obj or {}) | options)

    async def read() -> list[str]:
        async with asyncio.timeout(_LIMIT_S), session.past(watching=True) as past:
            return [str(hpa) for hpa in (await read_state(past)).hpas]

    return asyncio.run(read())

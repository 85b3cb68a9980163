"""Another spec on the past (`/try`): sliders that try it on the last hour, and the commands that ask more."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from jinja2 import Environment

from fleethpa.fleet.finding import no_such_hpa, parse_ref
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, completed, usage
from fleethpa.page.addresses import names_of, rendered
from fleethpa.page.ghost import Recordings, controls, ghost
from fleethpa.page.livereader import LiveReader
from fleethpa.show.formats import to_yaml
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of
from streams.state.clustersettings import effective

LIKELY: Final = 8
"""HPAs that one can choose from with a click."""
MOST_NAMED: Final = 3
"""Names that an error gives."""


class TryViews:
    """The view and the parts of it that its sliders and its search ask for.

    Args:
        html: makes a view of a template, as all views of the page are made.
    """

    def __init__(
        self, reader: LiveReader, options: Mapping[str, Any], templates: Environment, html: Callable[..., web.Response]
    ) -> None:
        self._reader, self._templates, self._html = reader, templates, html
        self._recordings, self._options = Recordings(), options

    def routes(self) -> list[web.RouteDef]:
        """Return the addresses of these views."""
        return [web.get("/try", self.form), web.get("/try/hpas", self.names), web.get("/try/ghost", self.ghost)]

    async def form(self, request: web.Request) -> web.Response:
        """Return the sliders of an HPA. A part of a name will do, if only one HPA has it."""
        state, text = await self._reader.state_at(None), request.query.get("hpa", "").strip()
        meant = names_of(state, text)
        hpa = _named(state, text) or (meant[0] if text and len(meant) == 1 else None)
        context: dict[str, Any] = {
            "hpa": hpa,
            "asked_hpa": str(hpa or text),
            "names": meant or names_of(state, ""),
            "likely": list(islice((view for view in state.ordered if not view.is_of_fleet), LIKELY)),
            "mistake": _no_hpa(state, text) if hpa is None and text else None,
        }
        if hpa is not None:
            context |= await self._tried(state, state.hpas[hpa], request.query) | {"swapped": False}
        return self._html(request, "try.html", state, context, command=f"backtest {hpa or 'NAME'} -f hpa.yaml")

    async def ghost(self, request: web.Request) -> web.Response:
        """Return what the sliders would have done, as a part of the view."""
        state = await self._reader.state_at(None)
        hpa = _named(state, request.query.get("hpa", ""))
        if hpa is None:
            raise _no_hpa(state, request.query.get("hpa", ""))
        context = await self._tried(state, state.hpas[hpa], request.query)
        response = rendered(self._templates, "ghost.html", context | {"swapped": True})
        # So that a reload, and the way back to this view, have the sliders where they were.
        response.headers["HX-Replace-Url"] = context["ghost_url"]
        return response

    async def names(self, request: web.Request) -> web.Response:
        """Return the names that a text may mean, as a part of the view."""
        names = names_of(await self._reader.state_at(None), request.query.get("hpa") or request.query.get("q", ""))
        return rendered(self._templates, "hpanames.html", {"names": names})

    async def _tried(self, state: FleetState, view: HpaView, given: Mapping[str, str]) -> dict[str, Any]:
        controller = effective(state.settings, view.id.cluster).controller
        sliders = controls(view.spec, given, controller.downscale_stabilization_ms // 1000)
        moved = {each.name: each.value for each in sliders if each.value != each.deployed}
        settings = [each.setting for each in sliders if each.name in moved]
        context: dict[str, Any] = {
            "controls": sliders,
            "ghost": None,
            "ghost_failed": "",
            "ghost_url": f"/try?{urlencode({'hpa': str(view.id)} | moved)}",
            "commands": [completed(shlex.join(words), self._options) for words in commands(view.id, settings)],
            "manifest": to_yaml(manifest_of(view.id._asdict(), view.spec)),
        }
        try:
            async with self._reader.past() as past:
                events = await self._recordings.of(past, view.id, view.clock_ms)
            context["ghost"] = tried = await ghost(view, sliders, events)
            context["manifest"] = to_yaml(manifest_of(view.id._asdict(), tried.body["spec"]))
        except CommandError as error:
            context["ghost_failed"] = error.sentence()
        return context


def commands(hpa: HpaId, settings: list[str]) -> list[list[str]]:
    """Return the words of the commands that ask more about the past of an HPA: what the sliders are set to over a week,
    the manifest in a file, and a better spec.
    """
    changed = [word for each in settings for word in ("--set", each)]
    return [
        *([["fleethpa", "backtest", str(hpa), *changed, "--since", "7d"]] if changed else []),
        ["fleethpa", "backtest", "-f", "hpa.yaml", "-C", hpa.cluster, "--since", "7d"],
        ["fleethpa", "tune", str(hpa)],
    ]


def _no_hpa(state: FleetState, text: str) -> CommandError:
    """Return why a text names no HPA, with those that it may mean."""
    try:
        error = no_such_hpa(parse_ref(text), state.hpas, None)
    except CommandError as wrong:
        error = wrong
    likely = ", ".join(map(str, names_of(state, text)[:MOST_NAMED]))
    cause = f"There is {likely}." if likely else error.cause or "Write CLUSTER/NAMESPACE/NAME."
    return usage(error.what, cause=cause)


def _named(state: FleetState, text: str) -> HpaId | None:
    """Return the HPA of a name, as an address gives it."""
    return next((hpa for hpa in state.hpas if str(hpa) == text.strip()), None)

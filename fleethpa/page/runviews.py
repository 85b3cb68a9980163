"""Views that start a run of their own: `/audit` verifies the record, `/try` tries a changed spec on the past.

What runs is in `runs.py`; here are its forms, how it goes, and its report. A browser sees its own runs only.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from aiohttp import web
from jinja2 import Environment

from fleethpa.cli.common.failures import CommandError, not_found, usage
from fleethpa.cli.common.filters import moment
from fleethpa.cli.common.finding import no_such_hpa
from fleethpa.cli.common.selection import parse_ref
from fleethpa.cli.common.views import FleetState
from fleethpa.cli.output.htmlreport import script_source
from fleethpa.page.auditview import read_coverage
from fleethpa.page.livereader import LiveReader
from fleethpa.page.runs import LONGEST_S, MOST_RUNS, Runs
from fleethpa.page.trying import MODELS, QUESTIONS, candidate_text, trial
from schemas.keys import HpaId

BROWSER: Final = "fleethpa-browser"
"""The cookie by which a browser's runs are known to be its own."""
MOST_NAMES: Final = 30
"""Names that a browser is given to choose from."""
MOST_NAMED: Final = 3
"""Names that an error gives."""
REPORT_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'; sandbox allow-scripts; "
    f"script-src {script_source()}"
)
"""The report brings its style and the one script that draws its charts along, and reaches nothing else."""


class RunViews:
    """The views of runs.

    Args:
        html: makes a view of a template, as all views of the page are made.
    """

    def __init__(
        self, reader: LiveReader, options: Mapping[str, Any], templates: Environment, html: Callable[..., web.Response]
    ) -> None:
        self._reader, self._templates, self._html = reader, templates, html
        self._runs = Runs(options)

    def routes(self) -> list[web.RouteDef]:
        """The addresses of these views."""
        return [
            web.get("/audit", self.audit),
            web.post("/audit", self.audit_it),
            web.get("/try", self.try_form),
            web.post("/try", self.try_it),
            web.get("/try/hpas", self.names),
            web.get("/{kind:try|audit}/run", self.run),
            web.post("/{kind:try|audit}/cancel", self.cancel),
            web.get("/try/report", self.report),
        ]

    async def close(self) -> None:
        """End all runs."""
        await self._runs.close()

    async def audit(self, request: web.Request) -> web.Response:
        """What the record holds, what was signed, and how the newest verification of this browser goes."""
        return await self._auditing(request)

    async def audit_it(self, request: web.Request) -> web.Response:
        """Start a verification of the record, or say why it cannot be started."""
        given = {name: str(value) for name, value in (await request.post()).items()}
        browser = request.cookies.get(BROWSER) or secrets.token_hex(16)
        since = given.get("since", "").strip()
        try:
            if since:
                moment(since, self._reader.now_ms(), "since")
            await self._runs.start(browser, "audit", ["audit", "verify", *([f"--since={since}"] if since else [])])
        except CommandError as error:
            return await self._auditing(request, since=since, mistake=error)
        return self._remember(request, await self._auditing(request, browser, since), browser)

    async def _auditing(
        self, request: web.Request, browser: str = "", since: str = "", mistake: CommandError | None = None
    ) -> web.Response:
        state = await self._reader.state_at(None)
        async with self._reader.past() as past:
            found = await read_coverage(past)
        found |= {
            "since": since,
            "mistake": mistake,
            **self._run_of(browser or request.cookies.get(BROWSER, ""), "audit"),
        }
        return self._html(request, "audit.html", state, found, command="audit verify")

    # --- another spec on the past -----------------------------------------------------------------------------------

    async def try_form(self, request: web.Request) -> web.Response:
        """The manifest to try, and how the newest run of this browser goes. A part of a name will do, if only one HPA
        has it.
        """
        given = dict(request.query)
        if asked := given.get("hpa", "").strip():
            state = await self._reader.state_at(None)
            meant = names_of(state, asked)
            if _named(state, asked) is None and len(meant) == 1:
                given["hpa"] = str(meant[0])
        return await self._trying(request, given)

    async def try_it(self, request: web.Request) -> web.Response:
        """Start a run, or say what is wrong with the manifest beside it."""
        given = {name: str(value) for name, value in (await request.post()).items()}
        browser = request.cookies.get(BROWSER) or secrets.token_hex(16)
        try:
            state = await self._reader.state_at(None)
            hpa = _named(state, given.get("hpa", ""))
            if hpa is None:
                raise _no_hpa(state, given.get("hpa", ""))
            self._runs.check_room(browser, "try")
            text = given.get("manifest", "")
            question = given.get("question") or QUESTIONS[0]
            words = trial(hpa, text, given.get("since", ""), given.get("model", ""), question)
            await self._runs.start(browser, "try", words, file=text, report=True)
        except CommandError as error:
            return await self._trying(request, given, error)
        return self._remember(request, await self._trying(request, given, browser=browser), browser)

    async def _trying(
        self, request: web.Request, given: Mapping[str, str], mistake: CommandError | None = None, browser: str = ""
    ) -> web.Response:
        state = await self._reader.state_at(None)
        hpa = _named(state, given.get("hpa", ""))
        asked = given.get("hpa", "").strip()
        if hpa is None and asked:
            mistake = mistake or _no_hpa(state, asked)
        text = given.get("manifest") or (candidate_text(hpa, state.hpas[hpa].spec) if hpa is not None else "")
        found = {
            "hpa": hpa,
            "asked_hpa": asked,
            "names": names_of(state, asked) or names_of(state, ""),
            "manifest": text,
            "since": given.get("since") or "1h",
            "model": given.get("model") or MODELS[0],
            "models": MODELS,
            "mistake": mistake,
            "most": MOST_RUNS,
            "longest": round(LONGEST_S / 60),
            **self._run_of(browser or request.cookies.get(BROWSER, ""), "try"),
        }
        return self._html(request, "try.html", state, found, command=f"backtest {hpa or 'NAME'} -f hpa.yaml")

    async def names(self, request: web.Request) -> web.Response:
        """The names that a text may mean, as a part of the view."""
        found = names_of(await self._reader.state_at(None), request.query.get("hpa", ""))
        text = self._templates.get_template("hpanames.html").render(names=found)
        return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-store"})

    async def run(self, request: web.Request) -> web.Response:
        """How the run of this browser goes, as a part of its view."""
        found = self._run_of(request.cookies.get(BROWSER, ""), request.match_info["kind"])
        text = self._templates.get_template("run.html").render(found)
        return web.Response(text=text, content_type="text/html", headers={"Cache-Control": "no-store"})

    async def cancel(self, request: web.Request) -> web.Response:
        """End the run of this browser."""
        await self._runs.cancel(request.cookies.get(BROWSER, ""), request.match_info["kind"])
        return await self.run(request)

    def _run_of(self, browser: str, kind: str) -> dict[str, Any]:
        return {"run": self._runs.of(browser, kind), "kind": kind}

    def _remember(self, request: web.Request, response: web.Response, browser: str) -> web.Response:
        """Let the browser keep the name by which its runs are found."""
        response.set_cookie(BROWSER, browser, httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def report(self, request: web.Request) -> web.Response:
        """The report of this browser's run: a self-contained page."""
        found = self._runs.of(request.cookies.get(BROWSER, ""), "try")
        if found is None or found.report is None:
            raise not_found("no run of this browser has a report", next_step="")
        text = found.report.read_text(encoding="utf-8")
        return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


def names_of(state: FleetState, text: str) -> list[HpaId]:
    """The HPAs whose name holds every word of a text, in order: the first MOST_NAMES of them."""
    words = text.lower().split()
    return list(islice((hpa for hpa in state.hpas if all(word in str(hpa).lower() for word in words)), MOST_NAMES))


def _no_hpa(state: FleetState, text: str) -> CommandError:
    """Why a text names no HPA, with those that it may mean."""
    try:
        error = no_such_hpa(parse_ref(text), state.hpas, None)
    except CommandError as wrong:
        error = wrong
    likely = ", ".join(map(str, names_of(state, text)[:MOST_NAMED]))
    cause = f"There is {likely}." if likely else error.cause or "Write CLUSTER/NAMESPACE/NAME."
    return usage(error.what, cause=cause)


def _named(state: FleetState, text: str) -> HpaId | None:
    """The HPA of a name, as an address gives it."""
    return next((hpa for hpa in state.hpas if str(hpa) == text.strip()), None)

"""The views of what browsers start (`/audit`, `/try`, `/upgrade`): their forms, how a run goes, and its report."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web
from aiohttp.helpers import content_disposition_header
from jinja2 import Environment

from fleethpa.changes.manifests import check_hpa, read_input
from fleethpa.fleet.finding import no_such_hpa, parse_ref
from fleethpa.fleet.views import FleetState, HpaView
from fleethpa.frame.errors import CommandError, completed, not_found, usage
from fleethpa.frame.options import moment, parse_duration_ms
from fleethpa.page.addresses import hpa_of, names_of, rendered
from fleethpa.page.decisionview import read_coverage
from fleethpa.page.ghost import Recordings, controls, ghost
from fleethpa.page.hpaview import span_of
from fleethpa.page.livereader import LiveReader
from fleethpa.page.runs import LONGEST_S, MOST_RUNS, Runs
from fleethpa.show.formats import to_yaml
from fleethpa.show.html import script_source
from fleethpa.show.text import rfc3339
from schemas.keys import HpaId
from schemas.kubernetes.hpa import manifest_of
from streams.hpa.rules import NEWEST, OLDEST, RELEASED
from streams.state.clustersettings import effective

MODELS: Final = ("closed", "open")
QUESTIONS: Final = ("backtest", "tune")
"""The commands that a browser can start about an HPA's past, the first one the usual."""


def candidate_text(hpa: HpaId, spec: dict[str, Any]) -> str:
    """The recorded spec as a manifest to edit."""
    return to_yaml(manifest_of(hpa._asdict(), spec))


def trial(hpa: HpaId, text: str, since: str, model: str, question: str = QUESTIONS[0]) -> list[str]:
    """The words of the command that answers a question: the backtest that tries a manifest, in them `hpa.yaml` for the
    manifest; the search for a better spec; what the decisions cost.

    Raises CommandError: the manifest is not one valid HPA of this name, or the window, model or question is not valid.
    """
    if question not in QUESTIONS:
        raise usage(f"there is no question {question!r}", cause=f"The questions are {', '.join(QUESTIONS)}.")
    if question != QUESTIONS[0]:
        parse_duration_ms(since, "since")
        return [question, str(hpa), f"--since={since}"]
    if model not in MODELS:
        raise usage(f"there is no model {model!r}", cause=f"The models are {', '.join(MODELS)}.")
    parse_duration_ms(since, "since")
    _check(hpa, text)
    return ["backtest", "-f", "hpa.yaml", "-C", hpa.cluster, f"--since={since}", f"--model={model}"]


def _check(hpa: HpaId, text: str) -> None:
    with tempfile.TemporaryDirectory(prefix="fleethpa-page-") as folder:
        path = Path(folder) / "hpa.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            read = read_input((str(path),), "strict")
        except CommandError as error:
            raise usage(error.what.replace(str(path), "the manifest"), cause=error.cause) from error
    found = [check_hpa(manifest, hpa.namespace) for manifest in read.hpas]
    if len(found) != 1:
        raise usage(f"the manifest holds {len(found)} HPAs", cause="One is tried at a time.")
    body, errors = found[0]
    if errors:
        raise usage("the HPA is invalid", cause="\n".join(errors))
    named = (body["metadata"].get("namespace"), body["metadata"].get("name"))
    if named != (hpa.namespace, hpa.name):
        raise usage(f"the manifest is of {'/'.join(map(str, named))}", cause=f"It is tried on the past of {hpa}.")


UPGRADES: Final = [f"1.{minor}" for minor in range(OLDEST + 1, NEWEST + 1)]
"""The versions of Kubernetes that a preview can be of."""


def upgrade_words(state: FleetState, given: Mapping[str, str]) -> list[str]:
    """The words of the command that previews an upgrade, of one cluster or of all.

    Raises CommandError: the version or the cluster is not known, or the time cannot be read.
    """
    to, since, cluster = given.get("to", ""), given.get("since", "").strip(), given.get("cluster", "").strip()
    if to not in UPGRADES:
        raise usage(f"there is no version {to!r}", cause=f"The versions are {', '.join(UPGRADES)}.")
    if cluster and cluster not in state.clusters:
        raise usage(f"no cluster {cluster!r}", cause=f"There are {', '.join(sorted(state.clusters)) or 'none'}.")
    parse_duration_ms(since, "since")
    return ["upgrade-preview", "-A", f"--to={to}", f"--since={since}", *(["-C", cluster] if cluster else [])]


LONGEST_BUNDLE_MS: Final = 3_600_000


def upgrade_form(state: FleetState, given: Mapping[str, str]) -> dict[str, Any]:
    """Which version to compare with, of which clusters."""
    return {
        "versions": UPGRADES,
        "to": given.get("to") or f"1.{RELEASED}",
        "since": given.get("since") or "1d",
        "cluster": given.get("cluster", ""),
        "known": sorted(state.clusters),
    }


def audit_words(given: Mapping[str, str], now_ms: int, end_ms: int) -> tuple[list[str], int]:
    """The words of the command that verifies the record, and until when it verifies the whole of it; 0: it does not.

    Raises CommandError: the time cannot be read.
    """
    since = given.get("since", "").strip()
    moment(since or None, now_ms, "since")
    return ["audit", "verify", *([f"--since={since}"] if since else [])], 0 if since else end_ms


BROWSER: Final = "fleethpa-browser"
"""The cookie by which a browser's runs are known to be its own."""
LIKELY: Final = 8
"""HPAs that one can choose from with a click."""
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
        self._runs, self._recordings, self._options = Runs(options), Recordings(), options

    def routes(self) -> list[web.RouteDef]:
        """The addresses of these views."""
        return [
            web.get("/{kind:try|audit|upgrade}", self.form),
            web.post("/{kind:try|audit|upgrade}", self.begin),
            web.get("/try/hpas", self.names),
            web.get("/try/ghost", self.ghost),
            web.post("/hpa/{cluster}/{namespace}/{name}/bundle", self.bundle),
            web.get("/{kind:try|audit|upgrade}/run", self.run),
            web.post("/{kind:try|audit|upgrade}/cancel", self.cancel),
            web.get("/{kind:try|upgrade}/report", self.report),
        ]

    @property
    def verified_ms(self) -> int:
        """Until when the whole record was verified on this page; 0: it was not, or the run has been forgotten."""
        return self._runs.verified_ms

    async def close(self) -> None:
        """End all runs."""
        await self._runs.close()

    async def form(self, request: web.Request) -> web.Response:
        """What can be started, and how the newest run of this browser goes."""
        return await self._shown(request, request.query)

    async def begin(self, request: web.Request) -> web.Response:
        """Start a run, or say beside its form why it cannot be started."""
        given, browser = await _posted(request)
        kind, state = request.match_info["kind"], await self._reader.state_at(None)
        try:
            if kind == "audit":
                words, until_ms = audit_words(given, self._reader.now_ms(), state.clock_ms)
                await self._runs.start(browser, kind, words, until_ms=until_ms)
            elif kind == "upgrade":
                await self._runs.start(browser, kind, upgrade_words(state, given), report=True)
            else:
                hpa, text = _hpa_of(state, given), given.get("manifest", "")
                self._runs.check_room(browser, kind)
                question = given.get("question") or QUESTIONS[0]
                words = trial(hpa, text, given.get("since", ""), given.get("model", ""), question)
                await self._runs.start(browser, kind, words, file=text, report=True)
        except CommandError as error:
            return await self._shown(request, given, error)
        response = await self._shown(request, given, browser=browser)
        # The browser keeps the name by which its runs are found.
        response.set_cookie(BROWSER, browser, httponly=True, samesite="Strict", secure=request.secure)
        return response

    async def _shown(
        self, request: web.Request, given: Mapping[str, str], mistake: CommandError | None = None, browser: str = ""
    ) -> web.Response:
        kind, state = request.match_info["kind"], await self._reader.state_at(None)
        found: dict[str, Any] = {"mistake": mistake} | self._run_of(request, kind, browser)
        if kind == "audit":
            async with self._reader.past() as past:
                found |= await read_coverage(past) | {"since": given.get("since", "").strip()}
            command = "audit verify"
        elif kind == "upgrade":
            found |= upgrade_form(state, given)
            command = f"upgrade-preview -A --to {found['to']}"
        else:
            found |= await self._try_form(state, given, mistake)
            command = f"backtest {found['hpa'] or 'NAME'} -f hpa.yaml"
        return self._html(request, f"{kind}.html", state, found, command=command)

    async def _try_form(
        self, state: FleetState, given: Mapping[str, str], mistake: CommandError | None
    ) -> dict[str, Any]:
        """The manifest to try. A part of a name will do, if only one HPA has it."""
        asked = given.get("hpa", "").strip()
        meant = names_of(state, asked)
        hpa = _named(state, asked) or (meant[0] if asked and mistake is None and len(meant) == 1 else None)
        if hpa is None and asked:
            mistake = mistake or _no_hpa(state, asked)
        found: dict[str, Any] = {
            "hpa": hpa,
            "asked_hpa": str(hpa or asked),
            "names": meant or names_of(state, ""),
            "likely": list(islice((view for view in state.ordered if not view.is_of_fleet), LIKELY)),
            "manifest": given.get("manifest") or (candidate_text(hpa, state.hpas[hpa].spec) if hpa is not None else ""),
            "since": given.get("since") or "1h",
            "model": given.get("model") or MODELS[0],
            "models": MODELS,
            "mistake": mistake,
            "most": MOST_RUNS,
            "longest": round(LONGEST_S / 60),
        }
        if hpa is not None:
            found |= await self._ghost(state, state.hpas[hpa], given) | {"swapped": False}
            if found["ghost"] and not given.get("manifest"):
                found["manifest"] = candidate_text(hpa, found["ghost"].body["spec"])
        return found

    async def bundle(self, request: web.Request) -> web.Response:
        """What was recorded of an HPA in the span of its charts, but at most in an hour, as a file."""
        hpa, now_ms = hpa_of(request), self._reader.now_ms()
        at_ms = moment(request.query.get("at", "").strip() or None, now_ms, "at")
        end_ms = now_ms if at_ms is None else at_ms
        since_ms = end_ms - min(span_of(request.query.get("span", "").strip()), LONGEST_BUNDLE_MS)
        window = [f"--since={rfc3339(since_ms)}", f"--until={rfc3339(end_ms + 1)}"]
        _, browser = await _posted(request)
        found = await self._runs.bundle(browser, ["export", "bundle", str(hpa), *window])
        name = f"{hpa.name}-{rfc3339(end_ms)[:19].replace(':', '')}.tar"
        headers = {"Content-Disposition": content_disposition_header("attachment", filename=name)}
        return web.Response(body=found, content_type="application/x-tar", headers=headers)

    async def ghost(self, request: web.Request) -> web.Response:
        """What the sliders would have done, as a part of the view."""
        state = await self._reader.state_at(None)
        hpa = _hpa_of(state, request.query)
        found = await self._ghost(state, state.hpas[hpa], request.query) | {"swapped": True}
        if found["ghost"]:
            found["manifest"] = candidate_text(hpa, found["ghost"].body["spec"])
        return rendered(self._templates, "ghost.html", found)

    async def _ghost(self, state: FleetState, view: HpaView, given: Mapping[str, str]) -> dict[str, Any]:
        controller = effective(state.settings, view.id.cluster).controller
        sliders = controls(view.spec, given, controller.downscale_stabilization_ms // 1000)
        moved = {each.name: each.value for each in sliders if each.value != each.deployed}
        settings = " ".join(f"--set {each.setting}" for each in sliders if each.name in moved)
        found: dict[str, Any] = {
            "controls": sliders,
            "ghost": None,
            "ghost_failed": "",
            "ghost_url": f"/try?{urlencode({'hpa': str(view.id)} | moved)}",
            "ghost_command": completed(f"fleethpa backtest {view.id} {settings} --since 1h", self._options),
        }
        try:
            async with self._reader.past() as past:
                events = await self._recordings.of(past, view.id, view.clock_ms)
            found["ghost"] = await ghost(view, sliders, events)
        except CommandError as error:
            found["ghost_failed"] = error.sentence()
        return found

    async def names(self, request: web.Request) -> web.Response:
        """The names that a text may mean, as a part of the view."""
        found = names_of(await self._reader.state_at(None), request.query.get("hpa") or request.query.get("q", ""))
        return rendered(self._templates, "hpanames.html", {"names": found})

    async def run(self, request: web.Request) -> web.Response:
        """How the run of this browser goes, as a part of its view."""
        return rendered(self._templates, "run.html", self._run_of(request, request.match_info["kind"]))

    async def cancel(self, request: web.Request) -> web.Response:
        """End the run of this browser."""
        await self._runs.cancel(request.cookies.get(BROWSER, ""), request.match_info["kind"])
        return await self.run(request)

    def _run_of(self, request: web.Request, kind: str, browser: str = "") -> dict[str, Any]:
        """The newest run of a browser; `browser`: its name, where its cookie does not hold it yet."""
        return {"run": self._runs.of(browser or request.cookies.get(BROWSER, ""), kind), "kind": kind}

    async def report(self, request: web.Request) -> web.Response:
        """The report of this browser's run: a self-contained page."""
        found = self._runs.of(request.cookies.get(BROWSER, ""), request.match_info["kind"])
        if found is None or found.report is None:
            raise not_found("no run of this browser has a report")
        text = found.report.read_text(encoding="utf-8")
        return web.Response(text=text, content_type="text/html", headers={"Content-Security-Policy": REPORT_POLICY})


async def _posted(request: web.Request) -> tuple[dict[str, str], str]:
    """The fields of a form, and the name of the browser that sends it: a new one, where it has none."""
    given = {name: str(value) for name, value in (await request.post()).items()}
    return given, request.cookies.get(BROWSER) or secrets.token_hex(16)


def _no_hpa(state: FleetState, text: str) -> CommandError:
    """Why a text names no HPA, with those that it may mean."""
    try:
        error = no_such_hpa(parse_ref(text), state.hpas, None)
    except CommandError as wrong:
        error = wrong
    likely = ", ".join(map(str, names_of(state, text)[:MOST_NAMED]))
    cause = f"There is {likely}." if likely else error.cause or "Write CLUSTER/NAMESPACE/NAME."
    return usage(error.what, cause=cause)


def _hpa_of(state: FleetState, given: Mapping[str, str]) -> HpaId:
    """The HPA that a form names. Raises CommandError: there is none of this name."""
    hpa = _named(state, given.get("hpa", ""))
    if hpa is None:
        raise _no_hpa(state, given.get("hpa", ""))
    return hpa


def _named(state: FleetState, text: str) -> HpaId | None:
    """The HPA of a name, as an address gives it."""
    return next((hpa for hpa in state.hpas if str(hpa) == text.strip()), None)

"""`make screenshots`: every view of the page, light and dark, in three widths, of an archive and of made-up fleets.

Run: python -m tests.page.screenshots ARCHIVE FOLDER [--docs DIR --day ARCHIVE] [--only VIEW,...]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.page.browsing import launched, serving

SIZES = {"wide": (1400, 900), "middle": (768, 1024), "narrow": (390, 844)}
FLEETS = (7, 500, 2_000)
MOMENT = "2026-01-05T14:20:00Z"
"""Of the recorded day: the removal budget holds a namespace, and an HPA flaps."""
DOCS = {
    "fleet": ("/?", "light"),
    "hpa": ("/hpa/east/batch/export?span=1h&", "light"),
    "decision": ("", "light"),
    "changes": ("/changes?since=15m&", "dark"),
}
"""What the README and docs/page.md show, of the recorded day, in full: the view's address, and the scheme."""


def views(page: Page, address: str) -> dict[str, str]:
    """The address of each view, found by following links from the fleet."""
    page.goto(address)
    hpa = _links(page, 'table.fleet tbody th > a:not([href^="/hpa/%40fleet/"])')[0]
    wholes = _links(page, 'table.fleet tbody th > a[href^="/hpa/%40fleet/"]')
    page.goto(f"{address}/changes?q=kind:evaluation")
    # The oldest shows most: a policy limits it. The newest has one before it.
    decisions = _links(page, "tbody td:last-child a")
    decision, diff = decisions[-1], f"/diff?other={decisions[0].rpartition('/')[2]}"
    page.goto(address + hpa)
    spec = next(iter(_links(page, ".revisions a")), f"{hpa}/spec?other=1")
    return {
        "fleet": "/",
        "hpa": hpa,
        "decision": decision,
        "changes": "/changes",
        "clusters": "/clusters",
        "rollouts": "/rollouts",
        "audit": "/audit",
        "diff": diff,
        "spec": spec,
        "choose": "/try",
        "try": "/try?hpa=" + hpa.removeprefix("/hpa/"),
        "missing": "/hpa/east/shop/chekout",
    } | ({"whole": wholes[0]} if wholes else {})


def _links(page: Page, selector: str) -> list[str]:
    return [each.get_attribute("href") or "" for each in page.locator(selector).all()]


@contextmanager
def pages(browser: Browser) -> Iterator[Iterator[tuple[str, Page]]]:
    """A page for each size and scheme, with what to call its pictures."""
    contexts = {
        f"{size}-{scheme}": browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        for scheme in ("light", "dark")
        for size, (width, height) in SIZES.items()
    }
    for context in contexts.values():
        context.set_default_timeout(120_000)  # the large fleets, on a busy machine
    yield ((name, context.new_page()) for name, context in contexts.items())
    for context in contexts.values():
        context.close()


def take(page: Page, address: str, to: Path, quality: int | None = None) -> None:
    """One picture of a whole view, with its charts where it has some. `quality`: of a JPEG."""
    page.goto(address)
    if page.locator("#plots").count():
        page.wait_for_selector("#plots:not(:empty)")
        page.wait_for_selector("#late[hidden]", state="attached")
    page.screenshot(path=str(to), full_page=True, quality=quality)


def documented(browser: Browser, address: str, folder: Path) -> None:
    """The pictures of the documents: wide, and uncropped."""
    for name, (path, scheme) in DOCS.items():
        size = {"width": SIZES["wide"][0], "height": SIZES["wide"][1]}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        context.set_default_timeout(120_000)
        page = context.new_page()
        if not path:  # the decision that the HPA's view explains
            page.goto(f"{address}{DOCS['hpa'][0]}at={MOMENT}")
            path = f"{_links(page, '.answer a')[0]}?"
        take(page, f"{address}{path}at={MOMENT}", folder / f"page-{name}.jpg", quality=62)
        context.close()


def main() -> None:
    """Make the pictures."""
    from tests.page.measure import Served  # here: its generated fleets are no part of what browser tests share

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="where the pictures of the documents go")
    parser.add_argument("--day", type=Path, help="the archive of the recorded day, which they show")
    parser.add_argument("--only", default="", help="names of views, separated by commas")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    only = [name for name in given.only.split(",") if name]
    with sync_playwright() as playwright:
        browser = launched(playwright)
        if given.docs and given.day:
            with serving("--from", str(given.day)) as address:
                documented(browser, address, given.docs)
        with serving("--from", str(given.archive)) as address, pages(browser) as made:
            for look, page in made:
                for name, path in views(page, address).items():
                    if only and name not in only:
                        continue
                    take(page, address + path, given.folder / f"{name}-{look}.png")
        for count in FLEETS:
            found: dict[str, str] = {}
            with Served(count, varied=True) as fleet, pages(browser) as made:
                for look, page in made:
                    found = found or views(page, fleet.address) | {"troubled": "/?q=problem:any"}
                    for name, path in found.items():
                        if not only or name in only:
                            take(page, fleet.address + path, given.folder / f"{name}-{count}-{look}.png")
        browser.close()


if __name__ == "__main__":
    main()

"""`make screenshots`: every view of the page, light and dark, in three widths, of an archive and of large fleets.

Run: python -m tests.page.screenshots ARCHIVE FOLDER [--docs DIR] [--only VIEW,...]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.page.browsing import launched, serving

SIZES = {"wide": (1400, 900), "middle": (768, 1024), "narrow": (390, 844)}
LARGE = (500, 5_000)
DOCS = ("fleet", "hpa", "decision", "changes")
"""Views of which the README and docs/page.md show the wide picture."""


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


def take(page: Page, address: str, to: Path) -> None:
    """One picture of a whole view, with its charts where it has some."""
    page.goto(address)
    if page.locator("#plots").count():
        page.wait_for_selector("#plots:not(:empty)")
        page.wait_for_selector("#late[hidden]", state="attached")
    page.screenshot(path=str(to), full_page=True)


def main() -> None:
    """Make the pictures."""
    from tests.page.measure import Served  # here: its generated fleets are no part of what browser tests share

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="where the pictures of the documents go")
    parser.add_argument("--only", default="", help="names of views, separated by commas")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    only = [name for name in given.only.split(",") if name]
    with sync_playwright() as playwright:
        browser = launched(playwright)
        with serving("--from", str(given.archive)) as address, pages(browser) as made:
            for look, page in made:
                for name, path in views(page, address).items():
                    if only and name not in only:
                        continue
                    take(page, address + path, given.folder / f"{name}-{look}.png")
                    scheme = "dark" if name == "changes" else "light"
                    if given.docs and name in DOCS and look == f"wide-{scheme}":
                        page.screenshot(path=str(given.docs / f"page-{name}.jpg"), type="jpeg", quality=62)
        for count in LARGE:
            found: dict[str, str] = {}
            with Served(count, varied=True) as large, pages(browser) as made:
                for look, page in made:
                    found = found or views(page, large.address) | {"troubled": "/?q=problem:any"}
                    for name, path in found.items():
                        if not only or name in only:
                            take(page, large.address + path, given.folder / f"{name}-{count}-{look}.png")
        browser.close()


if __name__ == "__main__":
    main()

"""Test the site and the `verify` report in a real browser at widths of 1400 and 400 pixels.

`python3 make.py browser` runs these tests. The tests need Playwright (the extra `browser`) and Chromium, either on the
PATH or installed by `.venv/bin/playwright install chromium`. If either is missing, the tests are skipped.
"""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.built_site import SITE, pages

pytestmark = [pytest.mark.slow]

WIDTHS = (1400, 400)

MEASURE = """
() => {
  const MAY_SCROLL = ".pst-scrollable-table-container, .wide, div.highlight, mjx-container";
  const wide = [], main = document.querySelector("main") || document.body;
  const scrolls = e => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const name = e => e.tagName.toLowerCase() + (e.className && e.className.split ? "." + e.className.split(" ")[0] : "");
  if (document.documentElement.scrollWidth > innerWidth) wide.push("the page: " + document.documentElement.scrollWidth);
  for (const e of main.querySelectorAll("*")) {
    if (e.closest("mjx-container, svg, math, .skip-link, .visually-hidden, .sr-only") || !e.clientWidth) continue;
    const box = e.getBoundingClientRect();
    let inside = e.parentElement;
    while (inside && !scrolls(inside)) inside = inside.parentElement;
    if (!inside && box.right > innerWidth + 1) wide.push(name(e) + " ends at " + Math.round(box.right));
    const may = innerWidth < 1000 && e.matches(MAY_SCROLL);
    if (scrolls(e) && e.scrollWidth > e.clientWidth + 1 && !e.closest("pre, .bd-sidebar"))
      wide.push((may ? "scrolls: " : "") + name(e) + ": " + e.scrollWidth + " > " + e.clientWidth);
    if (e.tagName === "PRE" && e.scrollWidth > e.clientWidth + 1)
      wide.push("scrolls: pre: " + e.scrollWidth + " > " + e.clientWidth);
  }
  return wide;
}
"""
"""A script that finds elements wider than their boxes. "scrolls: ..." marks elements in a scrollable box."""

FORMULAS = """
() => [...document.querySelectorAll(".math")]
  .filter(e => !e.querySelector("mjx-container") || e.querySelector("mjx-merror") || /\\\\[a-z]+|\\$/.test(e.innerText))
  .map(e => e.textContent)
"""
"""A script that finds formulas that are not typeset or are typeset wrongly."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install -e '.[browser]'")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    with playwright.sync_playwright() as driver:
        try:
            started = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(
                f"no browser: put a Chromium on the PATH, or playwright install chromium ({error.message[:80]})"
            )
        yield started
        started.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Yield the address of the site, which is served only on this machine."""
    pages()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(params=WIDTHS)
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    yield page
    page.close()


def read() -> list[str]:
    """Return the addresses of all pages except source listings, and of every twentieth source listing."""
    names = [path.relative_to(SITE).as_posix() for path in pages()]
    listings = [name for name in names if name.startswith("_modules/")]
    return [name for name in names if name not in listings] + listings[::20]


def test_nothing_is_wider_than_its_box_and_every_formula_is_typeset(tab: Any, address: str) -> None:
    """No element is wider than its box, every formula is typeset, no other server is contacted, and no script fails."""
    outside: list[str] = []

    def asked(request: Any) -> None:
        if not request.url.startswith((address, "data:")):
            outside.append(request.url)

    def failed(error: Any) -> None:
        outside.append(str(error))

    tab.on("request", asked)
    tab.on("pageerror", failed)
    wide, bare, formulas = {}, {}, 0
    for name in read():
        tab.goto(address + name, wait_until="load")
        if tab.locator(".math").count():
            tab.wait_for_function("() => window.MathJax?.startup?.promise")
            tab.evaluate("() => MathJax.startup.promise")
            formulas += tab.locator(".math").count()
        found = tab.evaluate(MEASURE)
        wide[name] = [what for what in found if not what.startswith("scrolls: ")]
        bare[name] = tab.evaluate(FORMULAS)
    assert {name: what for name, what in wide.items() if what} == {}
    assert {name: what for name, what in bare.items() if what} == {}
    assert outside == []
    assert formulas > 10


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("ntk", "minintk.ntk"),
        ("NTK", "minintk.NTK"),
        ("train", "minintk.train"),
        ("kernel", "analytic.kernel"),
        ("Dense", "minintk.Dense"),
        ("ensemble", "analytic.ensemble"),
    ],
)
def test_the_search_finds_first_what_was_typed(browser: Any, address: str, typed: str, first: str) -> None:
    tab = browser.new_page()
    tab.goto(f"{address}search.html?q={typed}")
    tab.wait_for_selector("#search-results li a")
    assert tab.locator("#search-results li a").first.inner_text() == first
    tab.close()


def test_every_picture_is_there(browser: Any, address: str) -> None:
    tab = browser.new_page()
    for name in ("index.html", "gallery/index.html"):
        tab.goto(address + name, wait_until="load")
        loaded = "i => (i.loading = 'eager', i.complete && i.naturalWidth > 0)"
        tab.wait_for_function(f"() => [...document.images].every({loaded})")
    tab.close()


def test_the_report_fits(tab: Any, tmp_path: Path) -> None:
    """The report of `verify` fits the width of the page. Its run is too small to decide anything."""
    from analytic import verify

    path = verify.write(verify.run(widths=(16, 32, 64), activations=["erf"], seeds=3), tmp_path / "report")
    tab.goto(path.as_uri(), wait_until="load")
    assert [what for what in tab.evaluate(MEASURE) if not what.startswith("scrolls: div.wide")] == []
    assert tab.locator("td sub").count() > 10  # the subscripts of formulas


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("<p style='width: 3000px'>x</p>", True),
        ("<div style='width: 300px; overflow-x: auto'><p style='width: 900px'>x</p></div>", True),
        ("<p>x</p>", False),
    ],
)
def test_what_is_too_wide_is_found(browser: Any, body: str, wrong: bool) -> None:
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    tab.set_content(f"<main>{body}</main>")
    assert bool(tab.evaluate(MEASURE)) == wrong
    tab.close()


def test_a_formula_that_is_not_typeset_is_found(browser: Any) -> None:
    tab = browser.new_page()
    tab.set_content(r"<span class='math'>\(\alpha\)</span><span class='math'><mjx-container>a</mjx-container></span>")
    assert tab.evaluate(FORMULAS) == [r"\(\alpha\)"]
    tab.close()


@pytest.mark.parametrize("dark", [False, True])
def test_every_slider_of_a_scene_redraws(tab: Any, address: str, dark: bool) -> None:
    """The positions of a slider draw different figures (two may be equal), in less than 100 ms each on average.

    The time is the page's own processor time, which other programs on the machine do not affect.
    """
    tab.emulate_media(color_scheme="dark" if dark else "light")
    tab.goto(address + "scenes.html", wait_until="load")
    tab.wait_for_function("() => [...document.querySelectorAll('.scene')].every(box => box.dataset.milliseconds)")
    session = tab.context.new_cdp_session(tab)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(found["TaskDuration"])

    start = spent()
    seen = tab.evaluate("""() => [...document.querySelectorAll(".scene input")].map(input => {
      const box = input.closest(".scene"), drawn = new Set();
      for (let v = 0; v <= +input.max; v++) {
        input.value = v;
        input.dispatchEvent(new Event("input"));
        drawn.add([...box.querySelectorAll(".scatterlayer path")].map(path => path.getAttribute("d")).join() +
          [...box.querySelectorAll(".points path")].map(path => path.getAttribute("transform")).join());
      }
      return [drawn.size, +input.max + 1];
    })""")
    assert len(seen) == 6
    assert all(drawn >= positions - 1 for drawn, positions in seen), seen  # frames at the last two times look equal
    each = (spent() - start) / sum(positions for _, positions in seen)
    assert 1 < each < 100  # typically about 30

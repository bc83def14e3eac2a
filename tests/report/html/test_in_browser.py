"""``tune report`` in a browser: figures are drawn from the database's values, under the page's own policy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.html.browser import Browser, exceptions, open_browser, webdriver
from tests.report.html.reports import CARD, hostile, report, tuned, two
from tests.stored import make_run

LARGE = 1_200
"""Trials of a large page: in a table they are more than 10,000 cells."""
DRAWN = """
return [...document.querySelectorAll(".chart")].map((place) =>
  [place.id, place.querySelectorAll(".main-svg path, .main-svg text").length]);
"""
DATA = (
    "return document.getElementById(arguments[0]).data.map((one) => ({...one, x: [...one.x], y: [...one.y]}))"
)
SETTLED = """
const done = arguments[0];
const ready = () => document.documentElement.classList.contains("scripted") && window.Plotly;
const look = () => (ready() ? done() : setTimeout(look, 20));
look();
"""
SCROLL = """
const done = arguments[0];
const frame = () => new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
(async () => {
  for (const element of document.querySelectorAll(".chart")) {
    element.scrollIntoView({ block: "center" });
    await frame();
  }
  scrollTo(0, 0);
  await frame();
})().then(done);
"""
BOLD = "return [...document.querySelectorAll('.chart tspan')].filter((one) => one.style.fontWeight).length"
FOCUSED = """
scrollTo(0, 0);
document.body.tabIndex = -1;
document.body.focus(); // the next Tab begins at the page's start
window.reached = [];
addEventListener("focusin", ({ target }) =>
  window.reached.push([target.tagName, target.id, getComputedStyle(target).outlineStyle]));
"""
FIRST_DRAWN = """
const done = arguments[0];
document.querySelector("#problem-1-convergence").scrollIntoView();
const look = () => {
  if (document.querySelector("#problem-1-convergence .main-svg")) done();
  else requestAnimationFrame(look);
};
look();
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


class Pages:
    """Pages about several problems, names that are hostile, and many trials, each written when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Path:
        page, database = self.folder / f"{name}.html", self.folder / f"{name}.db"
        if not page.exists():
            if name == "large":
                tuned(database, make_run("a" * 32, gpu=CARD), LARGE)
            else:
                {"several": two, "hostile": hostile}[name](database)
            report(database)
            database.with_name("report.html").rename(page)
        return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


def visit(browser: Browser, page: Path, width: int = 1200, theme: str = "light", then: str = SCROLL) -> None:
    """Open a page and scroll through it, so that all of it is drawn.

    A page that the last visit has drawn is taken as the test before has left it: to draw one takes some seconds.
    """
    if browser.drawn == (page, width, theme, then):
        return
    browser.leave()
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get_log("browser")
    browser.get(page.as_uri())
    browser.execute_async_script(SETTLED)
    browser.execute_async_script(then)
    browser.drawn = page, width, theme, then


def check_drawn(browser: Browser, width: int) -> None:
    """Every figure of a page is drawn, without an error, within its width."""
    figures = browser.execute_script(DRAWN)
    assert len(figures) >= 8
    assert not [figure for figure, drawn in figures if drawn < 10]
    assert browser.get_log("browser") == []  # nor does the policy refuse anything
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_every_figure_is_drawn_on_a_wide_screen(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["several"])
    check_drawn(browser, 1200)


def test_trials_are_sorted_filtered_and_plotted(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["several"])

    def column(name: str) -> list[str]:
        return list(browser.execute_script(
            """
            const [table] = document.querySelectorAll("#problem-1-trials table");
            const i = [...table.querySelectorAll("th")].findIndex((one) => one.textContent === arguments[0]);
            return [...table.querySelectorAll("tbody tr")].map((row) => row.cells[i].textContent);
            """, name
        ))  # fmt: skip

    times = [float(text) for text in column("time (ns)")]
    assert len(times) == 50 and times == sorted(times)  # of 60
    browser.execute_script("document.querySelector('#problem-1-trials .more').click()")
    assert len(column("trial")) == 60
    assert column("time (ns)")[-2:] == ["", ""]  # what failed has none
    for order in (False, True):  # once up, once down
        browser.execute_script("document.querySelector('#problem-1-trials th button').click()")
        numbers = [int(text) for text in column("trial")]
        assert numbers == sorted(numbers, reverse=order)
    words = browser.find_element("css selector", "#problem-1-trials input")
    for typed, right in (
        ("block=256", lambda: set(column("block")) == {"256"} and len(column("block")) == 15),
        (
            "block>=128 stages!=1 status=ok",
            lambda: set(column("block")) == {"128", "256"} and "1" not in column("stages"),
        ),
        ("COMPILE", lambda: column("status") == ["compile_error"]),
        (
            "time<1000",
            lambda: 0 < len(column("trial")) < 60 and all(float(text) < 1000 for text in column("time (ns)")),
        ),
        ("nothing=like this", lambda: column("trial") == []),
    ):
        words.clear()
        words.send_keys(typed)
        assert right(), typed
    words.clear()
    words.send_keys("unroll=2")
    browser.execute_script("""
      const card = document.getElementById("problem-1-trials");
      for (const [name, shown] of [[".x", "stages"], [".y", "block"]]) {
        const select = card.querySelector(name);
        select.value = [...select.options].find((one) => one.textContent === shown).value;
        select.dispatchEvent(new Event("change"));
      }
    """)
    (points,) = browser.execute_script(DATA, "problem-1-scatter")
    assert set(points["x"]) == {"1", "2", "3"} and len(points["x"]) == sum(
        bool(text) for text in column("time (ns)")
    )
    shown = browser.execute_script("return document.getElementById('problem-1-scatter').layout")
    assert shown["yaxis"]["categoryarray"] == ["32", "64", "128", "256"]
    assert browser.get_log("browser") == []


def test_the_keyboard_reaches_everything_and_the_theme_switches(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["several"])
    browser.execute_script(FOCUSED)
    browser.find_element("tag name", "body").send_keys(webdriver.Keys.TAB * 90)
    reached = browser.execute_script("return window.reached")
    assert len(reached) >= 80
    assert all(outline == "solid" for *_, outline in reached)
    reached = [(tag, key) for tag, key, _ in reached]
    assert reached[0][0] == "A"  # past the rest, to the content
    assert ("INPUT", "theme-auto") in reached
    assert sum(tag == "SUMMARY" for tag, _ in reached) >= 3
    assert ("SELECT", "") in reached and ("BUTTON", "") in reached

    def background() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light = background()
    browser.find_element("id", "theme-auto").send_keys(webdriver.Keys.ARROW_LEFT)  # round to the dark one
    assert background() != light
    summary = browser.find_element("css selector", "#problem-1 summary")
    summary.send_keys(webdriver.Keys.ENTER)
    assert browser.find_element("css selector", "#problem-1 table").is_displayed()


def test_the_policy_stops_what_is_not_ours(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["several"])
    browser.execute_script("""
      const script = document.createElement("script");
      script.textContent = "window.harmed = true";
      document.body.append(script);
      document.body.insertAdjacentHTML("beforeend", "<img src='http://localhost:9/x' onerror='window.harmed = true'>");
    """)
    assert browser.execute_script("return window.harmed") is None
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert len(refused) >= 2
    assert all("Content Security Policy" in message for message in refused)


def test_tables_remain_without_scripts(browser: Browser, pages: Pages) -> None:
    browser.leave()
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(pages["several"].as_uri())
        assert browser.find_element("css selector", "noscript p").is_displayed()
        browser.find_element("css selector", "#problem-1 summary").send_keys(webdriver.Keys.ENTER)
        cells = browser.find_element("css selector", "#problem-1 table").text
        assert "the winner" in cells
        assert not browser.find_element("css selector", "#problem-1 .chart").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_every_figure_is_drawn_on_a_narrow_screen_and_for_printing_without_scrolling(
    browser: Browser, pages: Pages
) -> None:
    visit(browser, pages["hostile"], 360, "dark", SETTLED)
    count = "return [...document.querySelectorAll('.chart')].filter((one) => one.querySelector('.main-svg')).length"
    before = browser.execute_script(count)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert before < browser.execute_script(count) == len(browser.find_elements("css selector", ".chart"))
    browser.execute_async_script(SCROLL)
    check_drawn(browser, 360)


def test_names_of_others_do_nothing(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["hostile"], 360, "dark", SETTLED)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    for element in browser.find_elements("css selector", ".chart"):
        browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
        webdriver.ActionChains(browser).move_to_element(element).perform()  # tooltips
    with pytest.raises(exceptions.NoAlertPresentException):
        browser.switch_to.alert.accept()
    count = "return [document.images.length, document.querySelectorAll('script:not(head script)').length]"
    assert browser.execute_script(count) == [0, 3]
    inside = "return document.querySelectorAll('.chart a, .chart script, .chart img').length"
    assert browser.execute_script(inside) == 0
    assert browser.execute_script("return document.querySelectorAll('.chart tspan:not(.line)').length") == 0
    shown = browser.execute_script("return document.querySelector('#problem-1-slices').textContent")
    assert '<b><a href="//x"></script><script>alert(1)' in shown  # as text, on sight
    assert browser.execute_script(BOLD) == 0
    assert browser.get_log("browser") == []


def test_many_trials_are_small_and_fast(browser: Browser, pages: Pages) -> None:
    assert pages["large"].stat().st_size - pages["hostile"].stat().st_size < 100 * LARGE
    visit(browser, pages["large"], then=FIRST_DRAWN)
    parts = "return [...document.querySelectorAll('.chart')].map((one) => one.childElementCount)"
    assert 0 in browser.execute_script(parts)  # what is not in sight is not drawn
    assert (
        browser.execute_script("return document.querySelectorAll('*').length") < 10_000
    )  # a table of all trials alone would have more
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0

"""``tune report`` in a browser: figures are drawn from the database's values, under the page's own policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.html.browser import FROZEN, Browser, exceptions, open_browser, webdriver
from tests.report.html.reports import CARD, hostile, several, tuned
from tests.stored import make_run
from tuner.cli import main
from tuner.database.database import Database

pytestmark = pytest.mark.xdist_group("browser")
DRAWN = """
return [...document.querySelectorAll(".chart")].map((element) => {
  const canvas = element.querySelector("canvas");
  if (!canvas) return [element.id, 0];
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let inked = 0;
  for (let i = 3; i < pixels.length; i += 4) inked += pixels[i] > 0;
  return [element.id, inked];
});
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
FIRST_DRAWN = """
const done = arguments[0];
const look = () => {
  if (document.querySelector("#problem-1-convergence canvas")) done(performance.now()); // since the page was asked for
  else requestAnimationFrame(look);
};
look();
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


class Pages:
    """Pages about several problems, names that are hostile, and 10,000 trials, each written when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Path:
        page, database = self.folder / f"{name}.html", self.folder / f"{name}.db"
        if not page.exists():
            if name == "large":
                tuned(database, make_run("a" * 32, gpu=CARD), 10_000)
            else:
                {"several": several, "hostile": hostile}[name](database)
            options = ["--all"] if name == "several" else []
            with pytest.raises(SystemExit) as ended:
                main(["report", "--db", str(database), "-o", str(page), *options])
            assert ended.value.code == 0
        return page


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


def visit(browser: Browser, page: Path, width: int = 1200, theme: str = "light") -> None:
    """Open a page and scroll through it, so that all of it is drawn; if the browser freezes, once more in another."""
    try:
        _visit(browser, page, width, theme)
    except FROZEN:
        browser.renew()
        _visit(browser, page, width, theme)


def _visit(browser: Browser, page: Path, width: int, theme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.get_log("browser")
    browser.get(page.as_uri())
    browser.execute_async_script(SCROLL)


@pytest.mark.parametrize("name", ["several", "hostile", "large"])
@pytest.mark.parametrize(("width", "theme"), [(1200, "light"), (360, "dark")])
def test_every_figure_is_drawn_without_an_error(
    browser: Browser, pages: Pages, name: str, width: int, theme: str
) -> None:
    visit(browser, pages[name], width, theme)
    figures = browser.execute_script(DRAWN)
    assert len(figures) >= 8
    assert not [figure for figure, inked in figures if inked < 300]
    assert browser.get_log("browser") == []  # nor does the policy refuse anything
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def test_what_is_drawn_is_what_the_database_holds(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["several"])
    with Database.open(pages["several"].with_suffix(".db"), write=False) as database:
        trials = database.trials("d" * 32)  # the newest run
    drawn = browser.execute_script("""
      const chart = document.querySelector("#problem-1-convergence > div");
      return echarts.getInstanceByDom(chart).getOption().series
        .filter((one) => one.type === "scatter").flatMap((one) => one.data.map(({ value }) => [value[0], value[2]]))
    """)
    assert dict(drawn) == {trial.number + 1: trial.time_ns for trial in trials}
    ends = browser.execute_script("""
      const chart = document.querySelector("#problem-1-comparison > div");
      return echarts.getInstanceByDom(chart).getOption().series[0].data.map(({ value }) => value)
    """)
    assert ends[:2] == [1, 1.2]


def test_trials_that_are_far_slower_do_not_hide_the_others(browser: Browser, tmp_path: Path) -> None:
    database, page = tmp_path / "t.db", tmp_path / "t.html"
    run = ["--kernel", "gemm", "--device", "replay", "--trials", "60", "-q"]
    for command in ([*run, "--db", str(database)], ["report", "--db", str(database), "-o", str(page)]):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
    visit(browser, page)
    drawn = browser.execute_script("""
      const chart = document.querySelector("#problem-1-convergence > div");
      return echarts.getInstanceByDom(chart).getOption().series
        .filter((one) => one.type === "scatter").flatMap((one) => one.data.map(({ value }) => value.slice(1)))
    """)
    times = [time_ns for _, time_ns in drawn]
    assert len(drawn) == 60 and max(times) > 100 * min(times)
    assert 10 ** max(height for height, _ in drawn) < max(times) / 2


def test_names_of_others_do_nothing(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["hostile"])
    browser.execute_script("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    for element in browser.find_elements("css selector", ".chart"):
        browser.execute_script("arguments[0].scrollIntoView({ block: 'center' })", element)
        webdriver.ActionChains(browser).move_to_element(element).perform()  # tooltips
    with pytest.raises(exceptions.NoAlertPresentException):
        browser.switch_to.alert.accept()
    assert browser.execute_script("return [document.images.length, document.scripts.length]") == [0, 3]
    assert browser.get_log("browser") == []


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


def test_ten_thousand_trials_are_small_and_fast(browser: Browser, pages: Pages) -> None:
    assert pages["large"].stat().st_size < 1.5e6
    took = []
    for _ in range(3):  # the machine may be busy with something else
        browser.get(pages["large"].as_uri())
        took.append(browser.execute_async_script(FIRST_DRAWN))
    assert min(took) < 2000
    asked = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert asked == 0


def test_the_keyboard_reaches_everything_and_the_theme_switches(browser: Browser, pages: Pages) -> None:
    visit(browser, pages["several"], 360)
    browser.get(pages["several"].as_uri())  # scrolling has moved where the next Tab goes
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    reached = []
    for _ in range(60):
        browser.switch_to.active_element.send_keys(webdriver.Keys.TAB)
        tag, key, outline = browser.execute_script(
            "const at = document.activeElement; return [at.tagName, at.id, getComputedStyle(at).outlineStyle]"
        )
        reached.append((tag, key))
        assert tag == "BODY" or outline == "solid"
    assert reached[0][0] == "A"  # past the rest, to the content
    assert ("INPUT", "theme-auto") in reached
    assert sum(tag == "SUMMARY" for tag, _ in reached) >= 10
    assert any(
        re.search("-parallel$", key) for _, key in reached
    )  # wider than the window: the arrows scroll it

    def background() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light = background()
    browser.find_element("id", "theme-auto").send_keys(webdriver.Keys.ARROW_RIGHT, webdriver.Keys.ARROW_RIGHT)
    assert background() != light
    summary = browser.find_element("css selector", "#problem-1 summary")
    summary.send_keys(webdriver.Keys.ENTER)
    assert browser.find_element("css selector", "#problem-1 table").is_displayed()


def test_tables_remain_without_scripts(browser: Browser, pages: Pages) -> None:
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


def test_printing_draws_what_was_not_scrolled_to(browser: Browser, pages: Pages) -> None:
    browser.get(pages["several"].as_uri())
    count = (
        "return [...document.querySelectorAll('.chart')].filter((one) => one.querySelector('canvas')).length"
    )
    before = browser.execute_script(count)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert before < browser.execute_script(count) == len(browser.find_elements("css selector", ".chart"))

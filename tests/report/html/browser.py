"""A headless Chromium for the tests of pages; whatever imports this is skipped where there is none, or no selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver")
exceptions = pytest.importorskip("selenium.common.exceptions")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("no chromium or chromedriver", allow_module_level=True)


class Browser:
    """A driver whose console is kept. It can be replaced: once in dozens of runs Chromium draws no more frames."""

    FROZEN = (exceptions.TimeoutException, pytest.importorskip("urllib3.exceptions").ReadTimeoutError)
    """What a call ends with that Chromium does not answer."""

    def __init__(self) -> None:
        self._driver = _started()
        self.drawn: Any = None
        """What the last visit has drawn, which is still open."""

    def leave(self) -> None:
        """Open nothing: what is open would be drawn anew for another width or theme."""
        self.drawn = None
        self._driver.get("about:blank")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def renew(self) -> None:
        """End a browser that is frozen, and start another."""
        self._driver.service.stop()
        self._driver, self.drawn = _started(), None


def _started() -> Any:
    """Return a driver; selenium is told where everything is, for else it asks on the net."""
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        "--disable-background-networking",  # it looks for hosts that cannot be reached
        "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",  # they draw no frames
    ):  # fmt: skip
        options.add_argument(argument)
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    driver.set_script_timeout(60)  # seconds: a large page took over 30 where two cores were busy elsewhere
    return driver


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start a browser, and end it."""
    browser = Browser()
    try:
        yield browser
    finally:
        browser.quit()

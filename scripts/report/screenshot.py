"""Photograph pages that `tune report` wrote, in a headless Chromium, and say how fast they load.

    scripts/run tune gemm --device replay --db /tmp/gemm.db
    scripts/run tune report --db /tmp/gemm.db -o /tmp/gemm.html
    scripts/run python scripts/report/screenshot.py /tmp/gemm.html --height 1400 --png docs/images/report.png

Without --height the whole page is taken. Needs selenium, chromium and chromedriver.
"""

from __future__ import annotations

import base64
import io
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from scripts import harness


@contextmanager
def browser(width: int, height: int = 900) -> Iterator[webdriver.Chrome]:
    options = Options()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(
        options, Service(shutil.which("chromedriver"))
    )  # selenium would ask a server for one
    try:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        yield driver
    finally:
        driver.quit()


def take(page: Path, theme: str, width: int, height: int | None, png: Path) -> None:
    """Write one picture: of the whole page, or of its upper part."""
    driver: Any  # parts of Selenium have no types
    with browser(width) as driver:
        dark = [{"name": "prefers-color-scheme", "value": theme}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": dark})
        driver.get(page.resolve().as_uri())
        loaded = driver.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd")
        driver.execute_script("dispatchEvent(new Event('beforeprint'))")  # all figures are drawn
        time.sleep(0.5)
        whole = driver.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height or whole, whole), "scale": 1}
        answer = driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True, "optimizeForSpeed": False}
        )
        Image.open(io.BytesIO(base64.b64decode(answer["data"]))).quantize(128).save(png, optimize=True)
        problems = [entry["message"] for entry in driver.get_log("browser")]
        wider = driver.execute_script("return document.documentElement.scrollWidth") - width
    print(f"{png}: loaded in {loaded:.0f} ms, {png.stat().st_size / 1e3:.0f} kB")
    if wider > 0:
        print(f"  {wider} pixels wider than the window", file=sys.stderr)
    for problem in problems:
        print(f"  {problem}", file=sys.stderr)


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("page", type=Path)
    add("--png", type=Path, required=True)
    add("--width", type=int, default=1160)
    add("--height", type=int)
    add("--theme", choices=["light", "dark"], default="light")
    given = options.parse_args()
    take(given.page, given.theme, given.width, given.height, given.png)


if __name__ == "__main__":
    main()

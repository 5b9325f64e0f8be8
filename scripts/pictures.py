"""Takes the pictures of the page in docs/images from the demo, while it tells its story: `make pictures`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests"))
from browser import chromium  # noqa: E402  (the browser of the tests)

WANTED = """CREATE QUERY shop_bytes AS
  SELECT SUM(size) AS bytes FROM packets
  WHERE proto = 'tcp' AND dport = 443
    AND network(dst) = '10.0.2.0/23'
  GROUP BY window(ts, '10 seconds', '1 second')
  WITH ERROR 10% CONFIDENCE 95%"""
WRONG = WANTED.replace("SUM(size)", "SUM(sise)")


def chapter(url: str) -> str:
    """What the demo shows at present."""
    with urlopen(f"{url}/api/knobs", timeout=30) as response:
        said: str = json.load(response)["chapter"]
    return said


def reach(url: str, begins: str, seconds: float) -> None:
    """Until so many seconds of a chapter are over."""
    deadline = time.monotonic() + 150
    while not chapter(url).startswith(begins):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the demo did not come to: {begins}")
        time.sleep(0.5)
    time.sleep(seconds)


def opened(browser: Browser, address: str, dark: bool, width: int = 1440, height: int = 1000) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(address)
    return page


def take(browser: Browser, address: str) -> None:
    """All pictures, as the story goes on."""
    url = address.partition("/#")[0]
    light, dark = opened(browser, address, dark=False), opened(browser, address, dark=True)
    phone = opened(browser, address, dark=False, width=390, height=844)
    reach(url, "Burst", 18)
    light.screenshot(path=IMAGES / "page.png")
    phone.screenshot(path=IMAGES / "page-phone.png")
    reach(url, "Calm again", 6)
    dark.screenshot(path=IMAGES / "page-dark.png")
    reach(url, "An agent is lost", 4.5)
    light.screenshot(path=IMAGES / "page-interrupted.png")
    light.get_by_role("button", name="New query").click()
    for sql, name in ((WANTED, "form.png"), (WRONG, "form-wrong.png")):
        light.locator("#sql").fill(sql)
        light.locator("#preview").click()
        light.locator("#form[data-busy]").wait_for(state="detached")
        light.locator("#form").screenshot(path=IMAGES / name)


def main() -> None:
    command = [str(Path(sys.executable).parent / "slackwater"), "demo", "--no-browser", "--port", "0"]
    with subprocess.Popen([*command, "--for-seconds", "170"], stdout=subprocess.PIPE, text=True) as demo:
        try:
            assert demo.stdout is not None
            address = next(line for line in demo.stdout if line.startswith("page: ")).split()[1]
            with chromium() as browser:
                take(browser, address)
        finally:
            demo.terminate()


if __name__ == "__main__":
    main()

"""Take the pictures of ``framestow view`` that README.md and look-inside.md show.

framestow view runs/RUN
PYTHONPATH=tests python docs/view_pictures.py runs/RUN/memory.html

Writes view.png and view-dark.png beside this file, of the page's upper half, and view-phone.png and
view-phone-dark.png, of the video on a phone. Needs Debian's packages chromium and chromium-driver, and Pillow.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from PIL import Image

from browser.webdriver import Browser

DOCS = Path(__file__).parent
WIDTH, PHONE = 840, 390  # pixels of the page; README shows the first picture as wide as its text
RATIO = 1.5
ROWS_OF_TABLE = 6
STEP = 100


def main() -> None:
    """Take all four pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="that framestow view wrote of a run")
    parser.add_argument("--step", type=int, default=STEP, help="of the episode with the highest return")
    arguments = parser.parse_args()
    for width, name, first in ((WIDTH, "view", "body"), (PHONE, "view-phone", "#video-title")):
        for is_dark, ending in ((False, ""), (True, "-dark")):
            with Browser(width, is_dark=is_dark, ratio=RATIO) as browser:
                take(browser, arguments, first, DOCS / f"{name}{ending}.png")


def take(browser: Browser, arguments: argparse.Namespace, first: str, path: Path) -> None:
    """Write the picture of a step, from the element ``first`` to the end of the step charts."""
    browser.open(arguments.page.resolve().as_uri())
    browser.wait("document.querySelector('.rows .row')")
    browser.run("[...document.querySelectorAll('.head button')].find((b) => b.innerText === 'return').click()")
    browser.run(f"document.querySelector('.rows').style.maxHeight = '{32 * ROWS_OF_TABLE}px'")
    browser.run("document.querySelector('.rows').scrollTop = 0")
    browser.wait("(await new Promise(requestAnimationFrame), document.querySelector('.rows').scrollTop === 0)")
    browser.run(
        "const top = (row) => row.getBoundingClientRect().top;"
        "[...document.querySelectorAll('.rows .row')].sort((one, other) => top(one) - top(other))[0].click()"
    )
    browser.wait("document.querySelector('.rows [aria-selected=true]') && location.hash.includes('episode=')")
    browser.run(
        "const scrub = document.getElementById('scrub'); scrub.value = arguments[0];"
        "scrub.dispatchEvent(new Event('input'))",
        arguments.step,
    )
    browser.wait(f"document.getElementById('screens').dataset.step === '{arguments.step}'")
    browser.wait("document.querySelectorAll('#values .action-value').length")
    browser.wait("[...document.querySelectorAll('.step-chart .name')].some((name) => name.innerText === 'TD error')")
    top, bottom = browser.run(
        "return [document.querySelector(arguments[0]).getBoundingClientRect().top,"
        " document.getElementById('step-charts').getBoundingClientRect().bottom].map((at) => at + scrollY)",
        first,
    )
    browser.screenshot(path, rows=(max(0, top - 12), bottom))
    Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)


if __name__ == "__main__":
    main()

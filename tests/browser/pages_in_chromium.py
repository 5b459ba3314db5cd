"""``framestow view`` in a browser, which clicks and types: ``make browser`` runs this, ``make test`` does not.

The pixels of every canvas are compared with ``memory.get``, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser.webdriver import Browser
from framestow import FrameSpec, Prioritized, ReplayMemory, Uniform
from framestow.viewer.memory_view import MemoryView
from framestow.viewer.page import write_page
from framestow.viewer.server import ViewServer
from oracles.damage import damage_a_block_of_steps, damage_a_segment
from oracles.memories_to_draw_from import with_holes
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.shown_resources import read

MAX_BYTES = 50_000_000
FRAMES = {
    "grey": FrameSpec((20, 24)),
    "colour": FrameSpec((21, 16, 3)),
    "colour first": FrameSpec((3, 16, 21)),
    "scaled floats": FrameSpec((20, 20), np.float32, is_scaled=True),
    "dict": {"camera": FrameSpec((16, 16, 3)), "map": FrameSpec((20, 24)), "joints": FrameSpec((5,), np.float32)},
    "vector": FrameSpec((7,), np.float64),
}
LENGTHS = (12, 40, 7, 25)  # of the episodes; the last one runs


def random_frames(spec, random: np.random.Generator):
    if isinstance(spec, dict):
        return {key: random_frames(part, random) for key, part in spec.items()}
    pixels = random.integers(0, 256, (1, *spec.shape), np.uint8)
    return (pixels / np.float32(255)).astype(spec.dtype) if spec.dtype.kind == "f" else pixels


def played(spec, **settings) -> ReplayMemory:
    """Noise in every frame; the rewards of an episode are 1 at each of its steps that 5 divides."""
    random = np.random.default_rng(0)
    memory = ReplayMemory(1000, spec, 4, stack=3, n_step=2, sampler=Prioritized(), seed=0, **settings)
    for number, length in enumerate(LENGTHS):
        memory.begin(random_frames(spec, random))
        for step in range(length):
            is_last = step == length - 1 and number < len(LENGTHS) - 1
            ends = [is_last and number % 2 == 0], [is_last and number % 2 == 1]
            memory.append([step % 4], [float(step % 5 == 0)], *ends, random_frames(spec, random))
    indices = memory.sampleable_indices()
    memory.update_priorities(indices, random.exponential(size=len(indices)))
    return memory


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser() as started:
        yield started


@pytest.fixture(scope="session", params=FRAMES)
def memory_and_page(request, tmp_path_factory: pytest.TempPathFactory) -> tuple[ReplayMemory, Path]:
    return saved_with_page(played(FRAMES[request.param]), tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="session")
def grey(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReplayMemory, Path]:
    return saved_with_page(played(FRAMES["grey"]), tmp_path_factory.mktemp("grey"))


def saved_with_page(memory: ReplayMemory, folder: Path) -> tuple[ReplayMemory, Path]:
    memory.save(folder / "memory")
    write_page(MemoryView.open(folder / "memory"), folder / "page.html", MAX_BYTES)
    return memory, folder / "page.html"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Address of a server of the memory in ``folder``."""
    with ViewServer(folder) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        yield server.address
    thread.join()


def open_page(browser: Browser, page: Path | str, episode: int, step: int) -> None:
    address = page if isinstance(page, str) else page.as_uri()
    browser.open("about:blank")
    browser.open(f"{address}#episode={episode}&step={step}")
    wait_for(browser, step)


def wait_for(browser: Browser, step: int) -> None:
    for part in ("screens", "learner"):
        browser.wait(f"document.getElementById('{part}').dataset.step === '{step}'")


def pixels(browser: Browser, selector: str) -> list[np.ndarray]:
    """The pixels of canvases, each ``(height, width, 4)``."""
    found = browser.run(
        "return [...document.querySelectorAll(arguments[0])].map((canvas) => [canvas.width, canvas.height,"
        " Array.from(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data)])",
        selector,
    )
    return [np.array(data, np.uint8).reshape(height, width, 4) for width, height, data in found]


def as_shown(frame: np.ndarray, spec: FrameSpec) -> np.ndarray:
    """The pixels of a frame, with red, green, blue and full alpha."""
    pixels = (frame * 255).round().astype(np.uint8) if frame.dtype.kind == "f" else frame
    if len(spec.shape) == 2:
        pixels = np.repeat(pixels[..., None], 3, axis=-1)
    elif spec.shape[0] == 3 and spec.shape[-1] != 3:
        pixels = np.moveaxis(pixels, 0, -1)
    return np.concatenate([pixels, np.full((*pixels.shape[:2], 1), 255, np.uint8)], axis=-1)


def test_the_browser_shows_the_pixels_that_the_memory_returns_bit_for_bit(browser, memory_and_page):
    memory, page = memory_and_page
    arrays = [array for array in memory.inner.settings.frame.arrays if len(array.frame.shape) > 1]
    first = int(np.cumsum(LENGTHS)[0])  # index of the first step of episode 1

    for step in (0, 1, 17, 38, 39):
        open_page(browser, page, 1, step)

        batch = memory.get([first + step])
        for array in arrays:
            shown = pixels(browser, f"#screens canvas[data-key='{array.key}']")
            assert np.array_equal(as_shown(array.of(batch.observation)[0, -1], array.frame), shown[0])
            for name in ("observation", "next_observation"):
                stack = array.of(getattr(batch, name))[0]
                shown = pixels(browser, f"#learner canvas[data-key='{array.key}'][data-part='{name}']")
                assert [True] * 3 == [
                    np.array_equal(as_shown(frame, array.frame), one) for frame, one in zip(stack, shown, strict=True)
                ]
    assert [] == browser.messages()


def text(browser: Browser, selector: str) -> str:
    return browser.run("return document.querySelector(arguments[0]).innerText", selector)


def test_keys_buttons_slider_and_step_charts_move_through_the_steps(browser, grey):
    open_page(browser, grey[1], 1, 5)

    for keys, step in (
        (["right"], 6),
        (["right", "right"], 8),
        (["left"], 7),
        (["end"], 40),
        (["right"], 40),
        (["home"], 0),
        (["left"], 0),
    ):
        browser.press(*keys)
        wait_for(browser, step)
    browser.click("#forward")
    wait_for(browser, 1)
    browser.click("#back")
    wait_for(browser, 0)
    browser.click_at("#step-charts canvas", 0.5)
    wait_for(browser, 20)
    assert "20 / 40" in text(browser, "#counter")
    browser.wait("location.href.endsWith('#episode=1&step=20')")
    browser.press("down")
    browser.wait("document.getElementById('counter').innerText.startsWith('0 /')")
    assert "Episode 0" in text(browser, "#episode-note")


def test_the_video_plays_pauses_and_ends(browser, grey):
    open_page(browser, grey[1], 1, 0)
    browser.run("document.getElementById('speed').value = 60")

    browser.press("space")
    browser.wait("Number(document.getElementById('screens').dataset.step) > 8")
    browser.press("space")
    assert "Play" == browser.run("return document.getElementById('play').getAttribute('aria-label')")
    paused = browser.run("return document.getElementById('screens').dataset.step")
    time.sleep(0.2)
    assert int(browser.run("return document.getElementById('screens').dataset.step")) <= int(paused) + 1
    browser.click("#play")
    wait_for(browser, 40)
    assert "Play" == browser.run("return document.getElementById('play').getAttribute('aria-label')")


def rows(browser: Browser, column: str) -> list[str]:
    return browser.run(f"return [...document.querySelectorAll('.rows .{column}')].map((cell) => cell.innerText)")


def test_the_table_sorts_filters_and_opens_an_episode(browser, grey):
    open_page(browser, grey[1], 1, 0)

    assert ["25", "7", "40", "12"] == rows(browser, "length")
    browser.click(".head .length")
    assert ["40", "25", "12", "7"] == rows(browser, "length")
    browser.click(".head .length")
    assert ["7", "12", "25", "40"] == rows(browser, "length")
    browser.click(".head .length")
    assert ["25", "7", "40", "12"] == rows(browser, "length")  # the newest first, as at the start
    browser.type("#filter", "terminated steps<10")
    assert ["7"] == rows(browser, "length")
    assert "1 of 4 episodes" == text(browser, "#count")
    browser.click(".rows .row")
    browser.wait("document.getElementById('episode-note').innerText.startsWith('Episode 2')")
    assert ["terminated"] == rows(browser, "ending")
    browser.type("#filter", " evicted")
    assert [] == rows(browser, "ending")
    browser.run("document.activeElement.blur()")
    browser.press("down")
    assert "1 step waits for its return of 2 rewards." == text(browser, "#messages")


def test_words_say_what_the_target_is(browser, grey):
    for episode, step, words in (
        (0, 3, "adds the value of the observation 2 steps later"),
        (0, 11, "terminated at this step: the discount is 0"),
        (1, 39, "truncated at this step: the target adds the value of the true last observation"),
        (3, 24, "Not drawn yet: its return of 2 rewards is not complete"),
        (0, 12, "No transition begins here"),
    ):
        open_page(browser, grey[1], episode, step)

        assert words in text(browser, "#learner .words")


def reset_in_the_middle(folder: Path) -> None:
    memory = numbered_memory(100)
    play_episode(memory, 0, 5)
    play_episode(memory, 1, 5, truncated=True)
    memory.save(folder)


def evicted(folder: Path) -> None:
    with_holes(folder, Uniform).save(folder)


def lost(folder: Path) -> None:
    memory = numbered_memory(4000)  # a block has 1,024 steps
    for episode in range(20):
        play_episode(memory, episode, 200, truncated=True)
    memory.save(folder)
    damage_a_block_of_steps(folder)


@pytest.mark.parametrize(
    ("save", "ending", "beginning"),
    [
        (reset_in_the_middle, "cut by a reset", ""),
        (evicted, "cut: later steps were evicted", "its first steps were evicted"),
        (lost, "cut: later steps are lost", "its first steps are lost"),
    ],
)
def test_words_say_where_an_episode_was_cut(browser, tmp_path, save, ending, beginning):
    save(tmp_path / "memory")
    view = MemoryView.open(tmp_path / "memory")
    write_page(view, tmp_path / "page.html", MAX_BYTES)
    names, table = read(view, "memory").values, read(view, "episodes").arrays
    cut = table["ending"].tolist().index(names["endings"].index(ending))

    open_page(browser, tmp_path / "page.html", cut, int(table["length"][cut]) - 1)

    assert ending in text(browser, "#episode-note")
    assert f"The episode was {ending} after this step." in text(browser, "#learner .words")
    if beginning:
        continued = table["beginning"].tolist().index(names["beginnings"].index(beginning))
        open_page(browser, tmp_path / "page.html", continued, 0)
        assert f"not the episode's first step: {beginning}" in text(browser, "#learner .words")


SPARKLINES_ARE_DRAWN = "[...document.querySelectorAll('.rows .rewards')].every((cell) => cell.firstChild)"
SCROLL = """
const table = document.querySelector('.rows'), times = [];
for (let frame = 0, before = performance.now(); frame < 180; frame++) {
  table.scrollTop += 400;
  await new Promise(requestAnimationFrame);
  times.push(performance.now() - before);
  before = performance.now();
}
return times;
"""


def test_a_table_of_300_000_episodes_scrolls_sorts_and_filters(browser, tmp_path, record_testsuite_property):
    memory = ReplayMemory(300_000, FrameSpec((2, 2)), 2, stack=1, num_envs=1000)
    frames, ends = np.zeros((1000, 2, 2), np.uint8), np.ones(1000, bool)
    for number in range(300):
        memory.begin(frames)
        memory.append(np.zeros(1000, np.int64), 1000 * number + np.arange(1000), ends, ~ends, frames)
    memory.save(tmp_path / "memory")
    with served(tmp_path / "memory") as address:
        open_page(browser, address, 0, 0)

        browser.click(".head .return")
        assert "299,999" == rows(browser, "return")[0]
        times = sorted(browser.run(SCROLL))
        browser.run("const table = document.querySelector('.rows'); table.scrollTop = table.scrollHeight")
        browser.wait("[...document.querySelectorAll('.rows .return')].some((cell) => cell.innerText === '0')")
        assert 30 > len(rows(browser, "return"))
        browser.wait(SPARKLINES_ARE_DRAWN)
        browser.type("#filter", "return<=2e0 env>0")
        assert ["2", "1"] == rows(browser, "return")
    shown = {"median": round(times[90], 1), "p95": round(times[171], 1), "longest": round(times[-1], 1)}
    record_testsuite_property("ms_a_frame_while_scrolling_300_000_rows", json.dumps(shown))


def test_canvases_follow_the_scheme_of_the_system(browser, grey):
    open_page(browser, grey[1], 1, 5)
    browser.wait(SPARKLINES_ARE_DRAWN)
    light = pixels(browser, "#step-charts canvas, .rows canvas")
    browser.run("for (const canvas of document.querySelectorAll('.rows canvas')) canvas.id = 'light'")

    browser.set_scheme(is_dark=True)

    browser.wait(f"!document.getElementById('light') && {SPARKLINES_ARE_DRAWN}")
    dark = pixels(browser, "#step-charts canvas, .rows canvas")
    browser.set_scheme(is_dark=False)
    browser.messages()  # Chromium advises who reads pixels twice
    assert len(light) == len(dark) > 4
    assert not any(np.array_equal(one, other) for one, other in zip(light, dark, strict=True))


def test_the_caption_says_how_numbers_are_scaled(browser, tmp_path):
    _, page = saved_with_page(played(FRAMES["scaled floats"]), tmp_path)

    open_page(browser, page, 1, 5)

    assert "20×20 float32 · shown from 0 (dark) to 1 (bright)" == text(browser, "#screens figcaption")


def test_the_sheet_of_what_is_drawn_most_often_leads_into_the_video(browser, grey):
    open_page(browser, grey[1], 1, 0)

    browser.wait("document.querySelectorAll('.often button').length === 24")
    title = browser.run("return document.querySelector('.often button').title")
    browser.run("document.querySelector('.often button').click()")

    _, episode, _, step, *_ = title.replace(",", "").replace(":", "").split()
    wait_for(browser, int(step))
    assert f"Episode {episode}" in text(browser, "#episode-note")
    assert 3 == browser.run("return document.querySelectorAll('#charts svg[role=img]').length")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(width, memory_and_page):
    with Browser(width) as browser:
        open_page(browser, memory_and_page[1], 1, 17)

        assert width == browser.run("return document.documentElement.scrollWidth")


def test_a_served_page_shows_the_same_and_says_when_the_memory_was_saved_again(browser, tmp_path):
    memory = played(FRAMES["grey"])
    memory.save(tmp_path / "memory")
    with served(tmp_path / "memory") as address:
        open_page(browser, address, 1, 17)

        [shown] = pixels(browser, "#screens canvas")
        expected = memory.get([LENGTHS[0] + 17]).observation[0, -1]
        assert np.array_equal(as_shown(expected, FRAMES["grey"]), shown)
        memory.begin(random_frames(FRAMES["grey"], np.random.default_rng(1)))
        memory.save(tmp_path / "memory")
        browser.run("location.hash = '#episode=0&step=1'; await new Promise((done) => setTimeout(done, 200))")
        browser.open("about:blank")
        open_page(browser, address, 3, 2)
        assert ["cut by a reset"] == rows(browser, "ending")[:1]


def test_a_damaged_segment_is_a_gap_with_its_reason_and_the_video_goes_on(browser, tmp_path):
    memory = played(FRAMES["grey"], frames_per_segment=10)
    memory.save(tmp_path / "memory")
    damage_a_segment(tmp_path / "memory")
    view = MemoryView.open(tmp_path / "memory")
    write_page(view, tmp_path / "page.html", MAX_BYTES)
    gaps = [
        (number, first)
        for number in range(len(LENGTHS))
        for first, *_ in read(view, f"frames/{number}/0").values["gaps"]
    ]
    episode, first = gaps[0]

    open_page(browser, tmp_path / "page.html", episode, first)

    assert "damaged: " in text(browser, "#screens figcaption")
    assert ".000001.log" in text(browser, "#screens figcaption")
    assert "Lost: " in text(browser, "#learner")
    browser.press("end")
    wait_for(browser, LENGTHS[episode])
    assert [] == browser.messages()


def test_a_memory_of_one_step_shows_both_of_its_frames(browser, tmp_path):
    memory = numbered_memory(10)
    play_episode(memory, 0, 1, terminated=True)
    _, page = saved_with_page(memory, tmp_path)

    open_page(browser, page, 0, 0)

    assert "The episode terminated at this step" in text(browser, "#learner .words")
    browser.press("right")
    wait_for(browser, 1)
    assert "1 / 1" == text(browser, "#counter")
    assert [] == browser.messages()


def test_an_empty_memory_says_so(browser, tmp_path):
    _, page = saved_with_page(ReplayMemory(10, FrameSpec((4, 4)), 2, stack=2), tmp_path)

    browser.open(page.as_uri())

    browser.wait("document.getElementById('messages').innerText.includes('has no episode yet')")


def screenshots() -> Path:
    folder = Path(os.environ.get("SCREENSHOTS", "build/browser"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_screenshots_are_written(memory_and_page):
    """For eyes: 1280 and 390 pixels, light and dark, into the folder that SCREENSHOTS names."""
    folder = screenshots()
    _, page = memory_and_page
    for width in (1280, 390):
        for is_dark in (False, True):
            with Browser(width, is_dark=is_dark) as browser:
                open_page(browser, page, 1, 17)
                path = folder / f"{page.parent.name}-{width}-{'dark' if is_dark else 'light'}.png"
                browser.screenshot(path)
                assert path.stat().st_size > 10_000

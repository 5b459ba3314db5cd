"""``framestow view STORE``: one HTML file with whole episodes, which needs no network."""

from __future__ import annotations

import re
import shutil
import webbrowser
from pathlib import Path

import numpy as np
import pytest

import framestow.viewer.page
from framestow import FrameSpec, ReplayMemory
from framestow.cli import main
from oracles.damage import damage_a_segment
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.shown_resources import resources_of_page

PAGES = Path(framestow.viewer.page.__file__).with_name("pages")


@pytest.fixture
def noisy(tmp_path: Path) -> Path:
    """A memory whose episodes of noise take about 25 kB each; episode k has the return 7 k modulo 20."""
    rng = np.random.default_rng(0)
    memory = ReplayMemory(2000, FrameSpec((20, 20)), 4, stack=2)
    for episode in range(20):
        memory.begin(rng.integers(0, 256, (1, 20, 20), np.uint8))
        for step in range(60):
            frame = rng.integers(0, 256, (1, 20, 20), np.uint8)
            memory.append([0], [float(7 * episode % 20 * (step == 5))], [step == 59], [False], frame)
    memory.save(tmp_path / "noisy")
    return tmp_path / "noisy"


def test_a_page_beside_the_memory_has_all_episodes_and_their_frames(tmp_path, capsys):
    memory = numbered_memory(100)
    for episode in range(3):
        play_episode(memory, episode, 5, truncated=True)
    memory.save(tmp_path / "saved")

    assert 0 == main(["view", str(tmp_path / "saved")])

    page = tmp_path / "saved.html"
    assert f"3 of 3 episodes in {page.stat().st_size / 1024:.1f} KiB written to {page}" in capsys.readouterr().out
    resources = resources_of_page(page)
    expected = {"memory", "distribution", "episodes", "sparklines/0"}
    expected |= {name for episode in range(3) for name in (f"episode/{episode}", f"frames/{episode}/0")}
    assert expected == set(resources)
    assert "" == resources["memory"].values["selection"]
    assert {"saved", "saved.html"} == {path.name for path in tmp_path.iterdir()}


def test_open_opens_the_page_in_the_browser(tmp_path, monkeypatch):
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    numbered_memory(10).save(tmp_path / "saved")

    assert 0 == main(["view", str(tmp_path / "saved"), "--open"])

    assert [(tmp_path / "saved.html").as_uri()] == opened


def test_a_page_keeps_to_its_size_with_the_newest_the_best_and_the_worst_episodes(noisy, tmp_path):
    page = tmp_path / "page.html"

    assert 0 == main(["view", str(noisy), "--output", str(page), "--max-size", "320 kB"])

    assert 200_000 < page.stat().st_size <= 320_000
    resources = resources_of_page(page)
    shown = resources["episodes"].arrays["number"].tolist()
    assert {19, 17, 0} <= set(shown)  # newest, best, worst
    assert 4 <= len(shown) < 20
    assert {f"episode/{number}" for number in shown} == {name for name in resources if name.startswith("episode/")}
    selection = resources["memory"].values["selection"]
    assert f"This page has {len(shown)} of 20 episodes, to stay within 312.5 KiB" in selection
    assert all(words in selection for words in ("newest", "best returns", "worst returns", "--serve shows all"))


def test_a_size_without_room_for_an_episode_is_refused_and_nothing_is_written(noisy, capsys):
    assert 2 == main(["view", str(noisy), "--max-size", "60 kB"])

    assert "no episode fits" in capsys.readouterr().err
    assert not list(noisy.parent.glob("*.html"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-size", "large"], "max-size is 'large': it must be a number of bytes"),
        (["--output", "missing/page.html"], "the folder missing does not exist"),
        (["--output", "."], "it is a folder"),
        (["--serve", "--output", "page.html"], "--serve writes no file"),
    ],
)
def test_wrong_arguments_are_refused(noisy, capsys, arguments, message):
    assert 2 == main(["view", str(noisy), *arguments])

    assert message in capsys.readouterr().err


def test_damage_that_is_found_while_the_page_is_written_is_printed_and_shown(noisy, tmp_path, capsys):
    damaged = shutil.copytree(noisy, tmp_path / "damaged")
    damage_a_segment(damaged)

    assert 0 == main(["view", str(damaged), "--output", str(tmp_path / "page.html")])

    printed = capsys.readouterr().out
    [shown] = resources_of_page(tmp_path / "page.html")["memory"].values["damage"]
    assert ".000001.log" in shown
    assert f"warning: {shown}\n" in printed
    assert f"framestow verify {damaged}\n" in printed


def test_a_page_asks_no_other_server_and_its_name_is_text(tmp_path):
    memory = numbered_memory(10)
    play_episode(memory, 0, 2)
    memory.save(tmp_path / "<b>{{script}}")

    assert 0 == main(["view", str(tmp_path / "<b>{{script}}"), "--output", str(tmp_path / "page.html")])

    text = (tmp_path / "page.html").read_text()
    assert "<h1>Memory of &lt;b&gt;{{script}}</h1>" in text
    assert "default-src 'none'" in text
    assert [] == re.findall(r"https?://", text)
    assert [] == re.findall(r"^(?:import|export)\b.*", text, re.MULTILINE)


def test_the_scripts_can_be_joined_because_each_name_is_defined_once():
    defined: dict[str, list[str]] = {}
    for script in PAGES.glob("*.js"):
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)", script.read_text(), re.MULTILINE
        ):
            defined.setdefault(name, []).append(script.name)

    assert {} == {name: scripts for name, scripts in defined.items() if len(scripts) > 1}
    assert set(framestow.viewer.page.SCRIPTS) == {script.stem for script in PAGES.glob("*.js")}

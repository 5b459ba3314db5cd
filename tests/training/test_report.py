"""The report: one HTML page that shows what the files of the runs contain."""

import base64
import io
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from framestow.cli import main
from framestow.errors import InvalidSettingsError
from framestow.replay.memory import ReplayMemory
from framestow.training.listeners import COLUMNS, PROGRESS_COLUMNS
from framestow.training.loop import start_run, train
from framestow.training.report.charts import BOTTOM, HEIGHT, TOP, Line, chart
from framestow.training.report.page import MAX_CLIP_BYTES, RunRecord, write_report
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings
from training.catch_runs import catch_settings, make_catch

UNCLOSED = {"meta", "img", "br"}


class Page(HTMLParser):
    """The tags and the text of a page; raises AssertionError if a tag is not closed in order."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(self.source)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in UNCLOSED:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "

    def pictures(self) -> list[np.ndarray]:
        sources = [str(values["src"]) for tag, values in self.tags if tag == "img"]
        return [np.asarray(Image.open(io.BytesIO(base64.b64decode(source.split(",")[1])))) for source in sources]


def _run(path: Path, scores: list[float], game: str = "Breakout", steps_per_game: int = 100, **settings: Any) -> Path:
    """Write the files of a run that wrote a line of progress.csv at the end of each game."""
    folder = RunFolder.create(path, Settings(game, **settings))
    ends = range(steps_per_game, steps_per_game * len(scores) + 1, steps_per_game)
    games = [[n + 1, end, 0, score, steps_per_game] for n, (end, score) in enumerate(zip(ends, scores, strict=True))]
    before = [[end, end / 10, end / 5, end // 4, 0.01, 0.5, 0.1, 1e-4, "0 0.25 0.125"] for end in ends]
    lines = [[*row, 10, row[0], row[0] * 50, 400 * 2**20] for row in before]
    for file, columns, rows in ((folder.episodes, COLUMNS, games), (folder.progress, PROGRESS_COLUMNS, lines)):
        file.write_text("\n".join(",".join(map(str, row)) for row in [columns, *rows]) + "\n")
    return path


def _page(tmp_path: Path, *runs: Path, with_clip: bool = False) -> Page:
    write_report(runs, tmp_path / "report.html", with_clip)
    return Page(tmp_path / "report.html")


def test_a_report_needs_no_script_and_no_network(tmp_path: Path) -> None:
    page = _page(tmp_path, _run(tmp_path / "run", [1.0, 2.0]))

    assert {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object"} == set()
    assert re.findall(r"https?:|url\(|@import", page.source) == []
    sources = [values[name] or "" for _, values in page.tags for name in ("src", "href") if name in values]
    assert [source for source in sources if not source.startswith("data:")] == []
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags
    assert "prefers-color-scheme: dark" in page.source


def test_the_report_links_the_page_of_the_memory_where_it_was_written(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", catch_settings(steps=60))
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    before = _page(tmp_path, folder.path)
    (folder.path / "memory.html").touch()

    after = _page(tmp_path, folder.path)

    assert f"framestow view {folder.path}" in before.text
    assert ("a", {"href": "run/memory.html"}) in after.tags


def test_a_report_of_one_run_shows_its_scores_time_and_bytes(tmp_path: Path) -> None:
    page = _page(tmp_path, _run(tmp_path / "run", [0.0] * 30 + [4.0] * 20))

    assert "4.00 score of the last 20 games" in page.text
    assert "5,000 agent steps = 20,000 emulator frames" in page.text
    assert "8:20 min wall time" in page.text  # 500 s
    assert "0.28 core-hours" in page.text  # 1,000 s
    assert "244.1 KiB replay memory" in page.text
    assert "400.0 MiB peak of the process" in page.text
    assert "400.0 MiB 0%, 25%, 12%" in " ".join(page.text.split())  # dormant units of each layer
    assert "1 agent step = 4 emulator frames" in page.text


def test_the_report_says_what_a_resumed_run_changed_and_when(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", catch_settings(learning_rate=1e-3, steps=60, double=False))
    train(start_run(folder, make_catch), folder)
    folder.change_settings(catch_settings(learning_rate=2.5e-4, munchausen_after=90, steps=120, double=False))

    page = _page(tmp_path, folder.path)

    assert "run was resumed at step 60 with learning_rate 0.00025 instead of 0.001." in page.text
    assert "run was resumed at step 60 with munchausen_after 90 instead of None." in page.text


def test_scores_stand_beside_random_human_and_published_ones(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0], steps_per_game=25_000_000)
    evaluation = {"mean": 16.1, "median": 15.0, "standard_error": 1.25, "scores": [14.0, 18.2], "agent_steps": 100}
    evaluation |= {"played_preset": "machado2018", "epsilon": 0.001, "seed": 7}
    (run / "evaluation.json").write_text(json.dumps(evaluation))

    text = " ".join(_page(tmp_path, run).text.split())

    assert re.search(r"run, evaluated mean of 2 games, standard error 1\.25.*? 16\.10 50 % 100 / 400 ", text)
    assert re.search(r"random play .*? 1\.70 0 % - human tester .*? 30\.50 100 % - ", text)
    assert re.search(r"DQN of Mnih et al\. 2015 .*? 401\.2 1,387 % 50 M / 200 M", text)


@pytest.mark.parametrize(("steps", "longest"), [(1_000_000, 0), (1_250_000, 2.5), (9_000_000, 10)])
def test_published_agents_that_trained_more_than_twice_as_long_are_left_out(
    tmp_path: Path, steps: int, longest: float
) -> None:
    page = _page(tmp_path, _run(tmp_path / "run", [1.0], steps_per_game=steps))

    millions = re.findall(r"([\d.]+) M / [\d.]+ M", page.source.split("human tester")[1])
    assert longest == max(map(float, millions), default=0)


def test_several_seeds_are_thin_lines_with_their_mean_and_spread(tmp_path: Path) -> None:
    runs = [_run(tmp_path / f"seed-{seed}", [float(seed)] * 5, seed=seed) for seed in range(3)]

    page = _page(tmp_path, *runs)

    curve = page.source.split("Learning curve")[2].split("</figure>")[0]  # after the title and the label
    assert curve.count("class='thin c0'") == 3
    assert curve.count("class='band fill c0'") == 1
    assert curve.count("class='dashed c0'") == 1
    bold = re.search(r"class=' c0' d='M([^']*)'", curve)
    assert bold is not None
    heights = {float(point.split()[1]) for point in bold[1].split("L")}
    assert len(heights) == 1
    thin = [float(height) for height in re.findall(r"class='thin c0' d='M[\d.]+ ([\d.]+)L", curve)]
    assert heights.pop() == pytest.approx(sorted(thin)[1], abs=0.1)  # scores 0, 1, 2: their mean is 1
    assert "1.00 score of the last 5 games, mean of 3 runs" in page.text


def test_a_run_that_is_given_twice_counts_once(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0] * 5)

    page = _page(tmp_path, run, tmp_path / "." / "run" / ".." / "run")

    assert "mean of 2 runs" not in page.text
    assert page.source == _page(tmp_path, run).source


def test_runs_that_differ_in_the_seed_have_their_averages_on_the_page_and_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [_run(tmp_path / str(seed), [score] * 30, seed=seed) for seed, score in enumerate((1.0, 2.0, 3.0, 30.0))]

    assert main(["report", *map(str, runs), "--output", str(tmp_path / "all.html"), "--no-clip"]) == 0

    rows = re.findall(r"^ *(mean|median|interquartile mean) {2,}(.+)$", capsys.readouterr().out, re.MULTILINE)
    shown = {name: re.findall(r"-?[\d.]+", rest) for name, rest in rows}
    assert {name: numbers[:2] for name, numbers in shown.items()} == {
        "mean": ["4", "9.00"],
        "median": ["4", "2.50"],
        "interquartile mean": ["4", "2.50"],
    }
    assert all(1 <= float(low) < float(value) < float(high) <= 30 for _, value, low, high, *_ in shown.values())
    assert float(shown["mean"][4]) == pytest.approx((9 - 1.7) / 28.8, abs=1e-3)  # random play 1.7, human 30.5
    page = (tmp_path / "all.html").read_text()
    assert f"<th>mean</th><td>4</td><td>9.00</td><td>{shown['mean'][2]} to {shown['mean'][3]}</td>" in page


def test_one_run_has_no_averages(tmp_path: Path) -> None:
    assert write_report([_run(tmp_path / "run", [1.0] * 30)], tmp_path / "page.html", with_clip=False) == []


@pytest.mark.parametrize("value", [2.5e-4, -0.01, 200.0, 0.0])
def test_a_constant_is_drawn_in_the_middle_of_axes_near_it(value: float) -> None:
    drawn = chart("Learning rate", [Line(np.arange(3.0), np.full(3, value))], "over steps")

    ticks = [float(tick) for tick in re.findall(r"text-anchor='end'>([^<]+)</text>", drawn)][:-1]
    assert {float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", drawn)} == {(TOP + HEIGHT - BOTTOM) / 2}
    assert all(abs(tick - value) <= (0.53 * abs(value) or 0.53) for tick in ticks)


def test_runs_with_other_settings_are_apart_and_named_by_what_differs(tmp_path: Path) -> None:
    fast, slow = ({"train_every": every} for every in (8, 4))
    page = _page(
        tmp_path,
        _run(tmp_path / "a", [1.0] * 5, **fast),
        _run(tmp_path / "b", [2.0] * 5, **slow, seed=1),
    )

    assert "train_every 8: mean of 20 games" in page.text
    assert "train_every 4: mean of 20 games" in page.text


def test_names_are_escaped(tmp_path: Path) -> None:
    page = _page(tmp_path, _run(tmp_path / "<b>run & 'run'", [1.0]))

    assert "<b>run" not in page.source
    assert "<b>run & 'run'" in page.text


def test_runs_of_different_games_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    runs = [_run(tmp_path / game, [1.0], game) for game in ("Breakout", "Pong")]

    with pytest.raises(InvalidSettingsError, match=r"the runs are of Breakout \(.*\) and Pong \(.*\): a report is"):
        write_report(runs, tmp_path / "report.html")

    assert not (tmp_path / "report.html").exists()


def test_a_run_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", Settings("Pong"))

    page = _page(tmp_path, tmp_path / "run", with_clip=True)

    assert "nothing to show yet" in page.text
    assert "These runs have no progress.csv." in page.text
    assert "The run has no checkpoint yet." in page.text


def test_a_video_shows_its_first_frame_until_it_plays(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0])
    colour = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-f",
        "lavfi",
        "-i",
        "color=0xc8c8c8:size=64x64:duration=1",
    ]
    subprocess.run([*colour, str(run / "Breakout-100.mp4")], check=True)

    [poster] = [values["poster"] for tag, values in _page(tmp_path, run, with_clip=True).tags if tag == "video"]

    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(poster.removeprefix("data:image/png;base64,")))))
    assert picture.shape == (64, 64, 3)
    assert abs(int(picture.mean()) - 200) < 20


def test_the_newest_small_video_of_the_run_is_inside_the_page(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0])
    (run / "Breakout-100.mp4").write_bytes(b"a video")
    (run / "Breakout-200.mp4").write_bytes(bytes(MAX_CLIP_BYTES + 1))

    page = _page(tmp_path, run, with_clip=True)

    videos = [values["src"] for tag, values in page.tags if tag == "video"]
    assert videos == [f"data:video/mp4;base64,{base64.b64encode(b'a video').decode()}"]
    assert "Breakout-100.mp4 of run" in page.text
    assert [tag for tag, _ in _page(tmp_path, run, with_clip=False).tags if tag == "video"] == []


def test_the_sheet_shows_transitions_of_the_saved_memory(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", catch_settings(steps=200))
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()

    page = _page(tmp_path, folder.path)

    pictures = page.pictures()
    assert "bytes per transition" in page.text
    memory = ReplayMemory.load(folder.memory)
    batch = memory.get(memory.sampleable_indices())
    stacks = {np.concatenate(list(stack), axis=1).tobytes() for stack in batch.observation}
    following = {stack[-1].tobytes() for stack in batch.next_observation}
    assert 16 <= len(pictures) <= 24
    assert {picture.tobytes() for picture in pictures[::2]} <= stacks
    assert {picture.tobytes() for picture in pictures[1::2]} <= following
    assert pictures[0].shape == (24, 48)


def test_a_record_reads_a_run_whose_last_lines_are_cut_short(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", [1.0, 2.0])
    for name in ("episodes.csv", "progress.csv"):
        with (run / name).open("a") as file:
            file.write("3,30")

    record = RunRecord.read(run)

    assert record.scores.tolist() == [1.0, 2.0]
    assert record.progress["agent_steps"].tolist() == [100.0, 200.0]

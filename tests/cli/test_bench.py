"""``framestow bench``: what it prints and writes, and what it refuses, in one line."""

import json
import re
import signal
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import cv2
import pytest

from framestow.benchmarking import measurement
from framestow.cli import main

SMALL = ["--transitions", "300", "--frames", "80", "--rounds", "2", "--max-gib", "0.05", "--batch-size", "4"]
with_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason='matplotlib is not installed: pip install "framestow[bench]"'
)


@pytest.fixture
def few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Append 64 times to 8 environments, not 2,048 times."""
    shorter = partial(measurement.append_us_of_envs, num_calls=64)
    monkeypatch.setattr(measurement, "append_us_of_envs", shorter)


@with_matplotlib
@pytest.mark.usefixtures("few_calls")
def test_a_bench_prints_the_table_and_writes_figures_and_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"

    assert main(["bench", "pong", *SMALL, "--libraries", "lazy-frames", "--out", str(out)]) == 0

    printed = capsys.readouterr().out
    names = ["framestow, packed", "framestow, raw", "LazyFrames in a list"]
    for name in ("bare NumPy copy", *names):
        assert re.search(rf"^{name} +[\d,]+ +[\d,]+", printed, re.MULTILINE)
    assert "Pong, frames 84x84" in printed
    assert "Pong.json" in printed
    written = json.loads((out / "Pong.json").read_text())
    assert {"command", "date", "machine", "preset", "bare_copy", "append_us_of_8_envs", "left_out"} < set(written)
    assert names == [system["name"] for system in written["systems"]]
    measured = {"name", "setting", "version", "transitions", "bytes_per_transition", "sample_us", "append_us"}
    assert measured < set(written["systems"][0]) == set(written["bare_copy"])
    assert cv2.imread(str(out / "bench.png")) is not None
    assert {"Pong.json", "bench.png"} == {path.name for path in out.iterdir()}


@with_matplotlib
@pytest.mark.usefixtures("few_calls")
def test_libraries_that_are_not_installed_are_listed_with_the_command_that_installs_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in ("cpprb", "tianshou", "torchrl", "stable_baselines3", "sb3_extra_buffers"):
        monkeypatch.setitem(sys.modules, module, None)

    assert main(["bench", "Pong", *SMALL]) == 0

    assert 'not installed: cpprb; pip install "cpprb"' in capsys.readouterr().out
    written = json.loads((tmp_path / "bench-Pong" / "Pong.json").read_text())
    assert 'pip install "tianshou"' == written["not_installed"]["tianshou"]


@with_matplotlib
@pytest.mark.usefixtures("few_calls")
def test_several_games_are_measured_once_each_and_share_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["bench", "Pong", "freeway", "pong", *SMALL, "--libraries", "none"]) == 0

    assert {"Pong.json", "Freeway.json", "bench.png"} == {path.name for path in (tmp_path / "bench-2-games").iterdir()}
    assert (1000, 2400, 3) == cv2.imread("bench-2-games/bench.png").shape


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Pong", "Brekout"], "did you mean Breakout"),
        (
            ["Pong", "--libraries", "torchlr"],
            "libraries has 'torchlr': no library has this name; did you mean 'torchrl'?",
        ),
        (["Pong", "--libraries", "auto", "torchrl"], "libraries is ['auto', 'torchrl']: auto and none stand alone"),
        (["Pong", "--rounds", "0"], "rounds is 0: it must be above 0; give a larger one"),
        (["Pong", "--max-gib", "0"], "--max-gib is 0: it must be above 0 and finite; give another --max-gib"),
        (["Pong", "--max-gib", "nan"], "--max-gib is nan: it must be above 0 and finite"),
        (["Pong", "--out", __file__], f"{__file__} is a file; give another --out"),
        (["Pong", "--preset", "naturre"], "did you mean 'nature'?"),
        (["Pong", "--frames", "1"], "frames is 1: a transition needs 2; give a larger number"),
        (["Pong", "--transitions", "16_777_217"], "is 16,777,217: each reward is its transition's number"),
    ],
)
@with_matplotlib
def test_invalid_options_are_refused_in_one_line_and_nothing_is_written(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(["bench", *arguments]) == 2

    error = capsys.readouterr().err
    assert message in error
    assert 1 == error.count("\n")
    assert [] == list(tmp_path.iterdir())


@with_matplotlib
def test_an_interrupted_bench_leaves_nothing_behind(tmp_path: Path) -> None:
    arguments = ["bench", "Pong", "--libraries", "none", "--frames", "1_000_000", "--out", str(tmp_path / "out")]
    bench = subprocess.Popen(
        [sys.executable, "-u", "-m", "framestow", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert bench.stdout is not None
        assert "playing 1,000,000 frames" in bench.stdout.readline()
        bench.send_signal(signal.SIGINT)
        _, error = bench.communicate(timeout=60)
    finally:
        bench.kill()

    assert (130, "stopped\n") == (bench.returncode, error)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["matplotlib", "rich", "psutil", "ale_py"])
def test_without_its_extra_bench_says_what_to_install(module: str) -> None:
    script = (
        f"import sys; sys.modules[{module!r}] = None; from framestow.cli import main; sys.exit(main(['bench', 'Pong']))"
    )

    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert finished.returncode == 2
    assert re.fullmatch(r'error: .*pip install "framestow\[(bench|atari)\]"\n', finished.stderr), finished.stderr


@with_matplotlib
def test_bench_works_without_pytorch(tmp_path: Path) -> None:
    arguments = ["bench", "Pong", *SMALL, "--libraries", "none", "--out", str(tmp_path)]
    script = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] == 'torch': raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "from framestow.cli import main\n"
        f"sys.exit(main({arguments!r}))"
    )

    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)

    assert finished.returncode == 0, finished.stderr

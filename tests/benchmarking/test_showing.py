"""The table and the picture show every system."""

from io import StringIO
from pathlib import Path

import cv2
import numpy as np
import pytest
from rich.console import Console

from framestow.benchmarking.peers.roster import PEERS
from framestow.benchmarking.table import table
from oracles.figures_of_a_run import some_figures


def _printed(width: int) -> str:
    screen = StringIO()
    Console(width=width, file=screen).print(table(some_figures(), [PEERS["torchrl"]]))
    return screen.getvalue()


def test_the_table_fits_into_80_columns_with_every_system_on_a_line_of_its_own():
    lines = _printed(80).splitlines()

    assert max(map(len, lines)) <= 80
    [ours] = [line.split() for line in lines if line.startswith("framestow, packed ")]
    assert ["framestow,", "packed", "1,000,000", "52", "1.0", "148", "1.00", "1.51", "11.2"] == ours
    [halved] = [line.split() for line in lines if line.startswith("sb3-extra-buffers, halved  ")]
    assert ["70,000", "701", "13.6", "530", "3.58", "5.41", "250.0"] == halved[2:]


def test_the_table_tells_settings_losses_and_what_is_missing():
    printed = _printed(200)

    assert "Stable-Baselines3 2.9.2: optimize_memory_usage, torch threads: 1; gives up truncation" in printed
    assert "left out: cpprb: TypeError: no such argument" in printed
    assert 'not installed: torchrl; pip install "torchrl"' in printed
    assert "framestow appends in 4.1 µs" in printed


def test_the_picture_has_a_point_and_a_label_for_each_system(tmp_path: Path):
    pytest.importorskip("matplotlib", reason='matplotlib is not installed: pip install "framestow[bench]"')
    from framestow.benchmarking.plot import write_plot  # noqa: PLC0415

    path = write_plot(some_figures(), tmp_path / "new" / "bench.png")

    picture = cv2.imread(str(path))
    assert picture is not None
    assert picture.shape[0] > 600
    assert picture.shape[1] > 900
    reddish = (picture[..., 2] > 180) & (picture[..., 0] < 80)
    bluish = (picture[..., 0] > 130) & (picture[..., 2] < 80)
    assert reddish.sum() > 1_000
    assert bluish.sum() > 2_000
    assert np.mean(picture > 250) > 0.8

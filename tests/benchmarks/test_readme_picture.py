"""The README's picture is drawn from the committed result, for a light and for a dark page."""

from __future__ import annotations

from pathlib import Path

import cv2
import pytest

pytest.importorskip("matplotlib", reason='matplotlib is not installed: pip install "framestow[bench]"')

from readme_picture import FOLDER, main, read_figures


def test_the_committed_result_is_read_completely():
    figures = read_figures(FOLDER / "Breakout.json")

    assert "framestow, packed" == figures.systems[0].name
    assert 1_000_000 == figures.systems[0].transitions
    assert "bare NumPy copy" == figures.bare_copy.name


def test_one_picture_has_a_light_background_and_one_a_dark_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "Breakout.json").write_bytes((FOLDER / "Breakout.json").read_bytes())
    monkeypatch.setattr("readme_picture.FOLDER", tmp_path)

    main()

    for folder in (tmp_path, FOLDER):
        light, dark = (cv2.imread(str(folder / name)) for name in ("bench.png", "bench-dark.png"))
        assert light.shape == dark.shape == (900, 1350, 3)
        assert light[0, 0].min() > 250
        assert dark[0, 0].max() < 30

"""The filmstrip of a transition: each kind of frame as a picture, the captions and the headlines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from framestow.cli.filmstrip import STRIP_WIDTH, choose_array, frame_pictures, write_filmstrip
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.inspection import DrawnTransition
from framestow.replay.memory import ReplayMemory


def opened(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def recorded(frames: np.ndarray, stack: int, spec: FrameSpec, **ending) -> ReplayMemory:
    """One episode with these frames."""
    memory = ReplayMemory(100, spec, 4, stack=stack)
    memory.begin(frames[:1])
    for number, frame in enumerate(frames[1:], 2):
        memory.append([1], [0.5], [number == len(frames) and "terminated" in ending], [False], frame[None])
    return memory


@pytest.mark.parametrize(("spec", "expected_shape"), [
    (FrameSpec((5, 7)), (2, 5, 7)),
    (FrameSpec((5, 7, 1)), (2, 5, 7)),
    (FrameSpec((1, 5, 7)), (2, 5, 7)),
    (FrameSpec((5, 7, 3)), (2, 5, 7, 3)),
    (FrameSpec((3, 5, 7)), (2, 5, 7, 3)),
    (FrameSpec((5, 7, 4)), (2, 5, 28)),
    (FrameSpec((6, 5, 7)), (2, 30, 7)),
    (FrameSpec((2, 2, 5, 7)), (2, 20, 7)),
])  # fmt: skip
def test_every_shape_of_a_frame_becomes_a_picture_with_all_its_values(spec, expected_shape):
    frames = np.random.default_rng(0).integers(0, 256, (2, *spec.shape), np.uint8)

    pictures, note = frame_pictures(frames, spec)

    assert (expected_shape, np.uint8, "") == (pictures.shape, pictures.dtype, note)
    assert sorted(frames.reshape(-1)) == sorted(pictures.reshape(-1))


def test_two_or_four_channels_are_drawn_side_by_side():
    frame = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)

    (picture,), _ = frame_pictures(frame[None], FrameSpec((2, 3, 4)))

    assert np.concatenate([frame[:, :, channel] for channel in range(4)], axis=1).tolist() == picture.tolist()


def test_scaled_floats_are_shown_as_their_pixels():
    pixels = np.arange(12, dtype=np.uint8).reshape(1, 3, 4) * 20

    pictures, note = frame_pictures(
        (pixels / np.float32(255)).astype(np.float32), FrameSpec((3, 4), np.float32, is_scaled=True)
    )

    assert "" == note
    assert pixels.tolist() == pictures.tolist()


def test_other_numbers_are_scaled_from_minimum_to_maximum_with_a_note():
    frames = np.array([[[-2.0, 0.0]], [[np.nan, 6.0]]])

    pictures, note = frame_pictures(frames, FrameSpec((1, 2), np.float64))

    assert [[[0, 64]], [[64, 255]]] == pictures.tolist()  # nan is shown as 0
    assert "shown from -2 (dark) to 6 (bright)" == note


def test_a_frame_of_one_value_everywhere_is_shown():
    pictures, _ = frame_pictures(np.full((1, 2, 2), 3.0), FrameSpec((2, 2), np.float64))

    assert [[[0, 0], [0, 0]]] == pictures.tolist()


def test_a_vector_is_drawn_as_one_bar_per_number():
    pictures, note = frame_pictures(np.array([[0.0, 0.5, 1.0]]), FrameSpec((3,), np.float64))

    bars = pictures[0].reshape(pictures.shape[1], 3, -1).max(axis=2) > 0
    heights = bars.mean(axis=0)
    assert heights[0] < 0.05
    assert abs(heights[1] - 0.5) < 0.02
    assert 1.0 == heights[2]
    assert "shown from 0 (no bar) to 1 (a full bar)" == note


@pytest.mark.parametrize("stack", [1, 4, 9])
def test_frames_are_enlarged_and_in_order_from_observation_to_next_observation(stack, tmp_path):
    shown = min(stack, 6)
    frames = np.stack([np.full((10, 10), 31 + 15 * number, np.uint8) for number in range(12)])
    spec = FrameSpec((10, 10))
    memory = recorded(frames, stack, spec)

    write_filmstrip(tmp_path / "strip.png", DrawnTransition(memory.get([10]), 0, 0, 1), spec, "Pong")

    strip = opened(tmp_path / "strip.png")
    middle = strip[strip.shape[0] - 60]  # a line through the frames
    runs = [int(value) for value in middle[np.flatnonzero(np.diff(middle.sum(1, dtype=int), prepend=0)), 0]]
    values = [value for value in runs if value in frames[:, 0, 0]]
    expected = [frames[number, 0, 0] for number in [*range(11 - shown, 11), *range(12 - shown, 12)]]
    assert expected == values
    assert (middle[:, 0] == expected[0]).sum() >= 10 * 10  # enlarged
    assert strip.shape[1] < STRIP_WIDTH + 100


def test_a_large_frame_is_shrunk_until_the_strip_fits(tmp_path):
    spec = FrameSpec((480, 640, 3))
    frames = np.random.default_rng(0).integers(0, 256, (3, *spec.shape), np.uint8)
    memory = recorded(frames, 4, spec)

    write_filmstrip(tmp_path / "strip.png", DrawnTransition(memory.get([1]), 0, 2, 1), spec, "Doom")

    height, width, _ = opened(tmp_path / "strip.png").shape
    assert width < STRIP_WIDTH + 100
    assert height < 480


def test_padding_and_termination_change_the_captions_and_headlines(tmp_path):
    spec = FrameSpec((10, 10))
    frames = np.zeros((3, 10, 10), np.uint8)
    memory, ended = recorded(frames, 2, spec), recorded(frames, 2, spec, terminated=True)
    for name, batch, num_padded in [
        ("plain", memory.get([1]), 0),
        ("padded", memory.get([1]), 1),
        ("ended", ended.get([1]), 0),
    ]:
        write_filmstrip(tmp_path / name, DrawnTransition(batch, 0, num_padded, 1), spec, "Pong")

    plain, padded, end = (opened(tmp_path / name) for name in ("plain", "padded", "ended"))

    red = np.array([255, 120, 100], np.uint8)
    assert plain.tobytes() != padded.tobytes()
    assert (end == red).all(axis=2).any()  # "terminated"
    assert not (plain == red).all(axis=2).any()


def test_the_largest_picture_is_drawn_unless_a_key_is_given(tmp_path):
    space = {"a": FrameSpec((4, 4)), "b": (FrameSpec((9, 9)), FrameSpec((400,), np.float32))}
    memory = ReplayMemory(10, space, 4, stack=2)
    frames = {"a": np.full((1, 4, 4), 201, np.uint8), "b": (np.full((1, 9, 9), 99, np.uint8), np.zeros((1, 400), "f4"))}
    memory.begin(frames)
    memory.append([0], [0.0], [False], [False], frames)
    batch, spec = memory.get([0]), memory.inner.settings.frame

    for name, key in (("largest", ""), ("named", "a"), ("vector", "b.1")):
        write_filmstrip(tmp_path / name, DrawnTransition(batch, 0, 1, 1), spec, "Arm", key)

    def shows(name, grey):
        return bool((opened(tmp_path / name) == grey).all(axis=2).sum() > 1000)

    assert [(True, False), (False, True)] == [(shows(name, 99), shows(name, 201)) for name in ("largest", "named")]
    assert (tmp_path / "vector").stat().st_size > 0
    with pytest.raises(
        InvalidSettingsError, match=r"key is 'c': the observations have a, b\.0, b\.1; give another --key"
    ):
        write_filmstrip(tmp_path / "none", DrawnTransition(batch, 0, 1, 1), spec, "Arm", "c")
    with pytest.raises(InvalidSettingsError, match="key is 'c': the observations have one array without a key"):
        choose_array(FrameSpec((4, 4)), "c")

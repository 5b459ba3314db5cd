"""PaletteScreen: frames equal those of NumPy and OpenCV, byte for byte."""

from __future__ import annotations

import re

import cv2
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from framestow.frames.preprocessing import NUM_COLOURS, PaletteScreen

SCREENS = ((210, 160), (250, 160))
ALL_KNOWN = np.ones(NUM_COLOURS, bool)


def plain_frame(grey_of: np.ndarray, raw_frames: list[np.ndarray], frame_shape: tuple[int, int] | None) -> np.ndarray:
    """Look up colours, take the maximum, and resize with OpenCV."""
    grey = np.max([grey_of[raw_frame] for raw_frame in raw_frames], axis=0)
    if frame_shape is None:
        return grey
    return cv2.resize(grey, (frame_shape[1], frame_shape[0]), interpolation=cv2.INTER_AREA)


def next_raw_frame(generator: np.random.Generator, before: np.ndarray) -> np.ndarray:
    """Noise, two colours, an unchanged frame, a few changed pixels, or a few changed rows."""
    noise = generator.integers(0, NUM_COLOURS, before.shape, np.uint8)
    kind = generator.integers(5)
    if kind == 0:
        return noise
    if kind == 1:
        return generator.integers(0, 2, before.shape, np.uint8) * np.uint8(255)
    if kind == 2:
        return before.copy()
    changes = generator.random(before.shape if kind == 3 else (before.shape[0], 1)) < 0.05
    return np.where(changes, noise, before)


def written(screen: PaletteScreen, of_two: bool, shape: tuple[int, ...]) -> np.ndarray:
    out = np.full(shape, 77, np.uint8)
    screen.write(of_two, out)
    return out


def compare(screen_shape: tuple[int, int], frame_shape: tuple[int, int] | None, seed: int, num_raw_frames: int) -> None:
    generator = np.random.default_rng(seed)
    grey_of = generator.permutation(NUM_COLOURS).astype(np.uint8)
    screen = PaletteScreen(screen_shape, frame_shape)
    screen.learn(np.maximum.outer(grey_of, grey_of), ALL_KNOWN)
    raw_frames = [np.zeros(screen_shape, np.uint8)]
    for number in range(num_raw_frames):
        raw_frames.append(next_raw_frame(generator, raw_frames[-1]))
        screen.raw_frames[number % 2][:] = raw_frames[-1]
        assert screen.take_in(number % 2)
        if generator.random() < 0.7:
            of_two = bool(number > 0 and generator.random() < 0.7)
            expected = plain_frame(grey_of, raw_frames[-2:] if of_two else raw_frames[-1:], frame_shape)

            assert np.array_equal(expected, written(screen, of_two, expected.shape))


@pytest.mark.parametrize("screen_shape", SCREENS)
@pytest.mark.parametrize("frame_shape", [(84, 84), (96, 80), (105, 84), (210, 84), (64, 64), (1, 3), (209, 159), None])
def test_frames_of_atari_screens_are_numpys_and_opencvs(screen_shape, frame_shape):
    compare(screen_shape, frame_shape, seed=1, num_raw_frames=24)


@given(st.tuples(st.integers(1, 70), st.integers(1, 70)), st.data())
def test_frames_of_any_shape_are_numpys_and_opencvs(screen_shape, data):
    frame_shape = tuple(data.draw(st.integers(1, size)) for size in screen_shape)
    assume(PaletteScreen.can_shrink(screen_shape, frame_shape))

    compare(screen_shape, frame_shape, seed=data.draw(st.integers(0, 1000)), num_raw_frames=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(10, 40))]
)
def test_thousands_of_frames_are_numpys_and_opencvs(seed):
    compare(SCREENS[seed % 2], (84, 84), seed, num_raw_frames=200)


def test_can_shrink_excludes_shapes_with_other_rules_in_opencv():
    can_shrink = PaletteScreen.can_shrink

    assert can_shrink((210, 160), (84, 84))
    assert can_shrink((210, 160), (210, 84))  # one axis is unchanged
    assert not can_shrink((210, 160), (105, 80))  # whole factors
    assert not can_shrink((210, 160), (210, 160))
    assert not can_shrink((210, 160), (84, 168))  # an axis grows
    with pytest.raises(ValueError, match="frame_shape does not fit"):
        PaletteScreen((210, 160), (105, 80))


def test_an_unknown_palette_number_is_reported_until_it_is_learned():
    screen = PaletteScreen((10, 13), None)
    grey_of, known = np.zeros(NUM_COLOURS, np.uint8), np.zeros(NUM_COLOURS, bool)
    known[0] = True
    screen.learn(np.maximum.outer(grey_of, grey_of), known)
    assert screen.take_in(0)
    screen.raw_frames[1][7, 12] = 9  # in the last columns, which do not fill a word

    assert not screen.take_in(1)
    with pytest.raises(ValueError, match="no picture to show"):
        written(screen, False, (10, 13))

    known[9], grey_of[9] = True, 200
    screen.learn(np.maximum.outer(grey_of, grey_of), known)

    assert screen.take_in(1)
    assert np.array_equal(grey_of[screen.raw_frames[1]], written(screen, True, (10, 13)))


@pytest.mark.parametrize("column", range(20))
def test_an_unknown_number_is_found_wherever_in_a_row_it_appears(column):
    screen = PaletteScreen((3, 20), None)
    known = np.arange(NUM_COLOURS) < 100
    screen.learn(np.zeros((NUM_COLOURS, NUM_COLOURS), np.uint8), known)
    assert screen.take_in(0)
    screen.raw_frames[1][2, column] = 100

    assert not screen.take_in(1)


def test_relearned_colours_change_the_next_frame():
    screen = PaletteScreen((4, 5), None)
    table = np.zeros((NUM_COLOURS, NUM_COLOURS), np.uint8)
    screen.learn(table, ALL_KNOWN)
    screen.take_in(0)
    written(screen, False, (4, 5))

    screen.learn(table + np.uint8(50), ALL_KNOWN)

    assert np.array_equal(np.full((4, 5), 50), written(screen, False, (4, 5)))


def test_single_and_maximum_frames_can_be_written_in_any_order():
    screen = PaletteScreen((2, 3), None)
    grey_of = np.arange(NUM_COLOURS, dtype=np.uint8)
    screen.learn(np.maximum.outer(grey_of, grey_of), ALL_KNOWN)
    screen.raw_frames[0][:], screen.raw_frames[1][:] = 90, 10
    screen.take_in(0)
    screen.take_in(1)

    shown = [written(screen, of_two, (2, 3))[0, 0] for of_two in (False, True, False, True)]

    assert [10, 90, 10, 90] == shown


@pytest.mark.parametrize("seed", range(5))
def test_a_raw_frame_taken_in_twice_counts_as_two(seed):
    generator = np.random.default_rng(seed)
    screen = PaletteScreen((6, 7), None)
    grey_of = np.arange(NUM_COLOURS, dtype=np.uint8)
    screen.learn(np.maximum.outer(grey_of, grey_of), ALL_KNOWN)
    for which in generator.integers(0, 2, 50):
        screen.raw_frames[which][:] = next_raw_frame(generator, screen.raw_frames[which])
        screen.take_in(int(which))

        assert np.array_equal(screen.raw_frames[which], written(screen, False, (6, 7)))


def test_arguments_that_do_not_fit_are_refused_and_named():
    screen = PaletteScreen((210, 160), (84, 84))

    with pytest.raises(ValueError, match="no picture to show"):
        screen.write(False, np.empty((84, 84), np.uint8))
    with pytest.raises(ValueError, match=re.escape("have shapes (256, 255) and (256,): they must")):
        screen.learn(np.zeros((256, 255), np.uint8), ALL_KNOWN)
    with pytest.raises(IndexError, match="which is 2"):
        screen.take_in(2)
    screen.learn(np.zeros((256, 256), np.uint8), ALL_KNOWN)
    screen.take_in(0)
    for wrong, error, message in (
        (np.empty((84, 83), np.uint8), ValueError, "has shape (84, 83): it must have 7056 pixels"),
        (np.empty((84, 84), np.int64), TypeError, "has another dtype than uint8"),
        (np.empty((84, 84), np.uint8, "F"), ValueError, "is not in C order"),
        ([0] * 84, TypeError, "is not a writable array"),
    ):
        with pytest.raises(error, match=re.escape(f"out {message}")):
            screen.write(False, wrong)
    with pytest.raises(ValueError, match="no picture to show"):
        screen.write(True, np.empty((84, 84), np.uint8))
    with pytest.raises(ValueError, match=re.escape("raw_frames have shape (2, 0, 160): they must be")):
        PaletteScreen((0, 160), None)

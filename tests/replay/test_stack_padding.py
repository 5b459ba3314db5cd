"""What stands before an episode's first frame: the same for the policy and for the learner, as the memory was told."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

SPECS = {
    "pixels": FrameSpec((2, 3)),
    "scaled pixels": FrameSpec((2, 3), np.float32, is_scaled=True),
    "other floats": FrameSpec((2, 3), np.float64),
    "a column": FrameSpec((3,), np.float32),
}


def frame(spec: FrameSpec, number: int) -> np.ndarray:
    """One frame, with a leading axis, that shows ``number`` all over."""
    scale = 255 if spec.is_scaled else 1
    return np.full((1, *spec.shape), number / scale).astype(spec.dtype)


def picture(spec: FrameSpec, stack: np.ndarray) -> list[int]:
    """The numbers that the frames of ``stack`` show."""
    scale = 255 if spec.is_scaled else 1
    numbers = [round(float(shown.flat[0]) * scale) for shown in stack]
    for shown, number in zip(stack, numbers, strict=True):
        assert frame(spec, number)[0].tobytes() == shown.tobytes()
    return numbers


def play(memory: ReplayMemory, spec: FrameSpec, first: int, num_steps: int) -> list[list[int]]:
    """One episode of frames ``first``, ``first`` + 1, ...; gives what the policy saw before each step and after."""
    memory.begin(frame(spec, first))
    seen = [picture(spec, memory.observations()[0])]
    for number in range(first + 1, first + num_steps + 1):
        memory.append([0], [0.0], [number == first + num_steps], [False], frame(spec, number))
        seen.append(picture(spec, memory.observations()[0]))
    return seen


PICTURES = {
    "first_frame": [[50, 50, 50, 50], [50, 50, 50, 51], [50, 50, 51, 52], [50, 51, 52, 53], [51, 52, 53, 54]],
    "zeros": [[0, 0, 0, 50], [0, 0, 50, 51], [0, 50, 51, 52], [50, 51, 52, 53], [51, 52, 53, 54]],
}


@pytest.mark.parametrize("stack_padding", PICTURES)
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("kind", SPECS)
def test_sampled_observations_are_those_of_the_policy_under_either_padding(kind, storage, stack_padding):
    spec = SPECS[kind]
    memory = ReplayMemory(30, spec, 2, stack=4, storage=storage, stack_padding=stack_padding, seed=0)
    play(memory, spec, 10, num_steps=7)  # an episode before, so that there are frames behind what is padded

    seen = play(memory, spec, 50, num_steps=4)

    assert PICTURES[stack_padding] == seen
    for batch in (memory.get(np.arange(7, 11)), memory.sample(200)):
        for row in np.flatnonzero(batch.index >= 7):
            step = batch.index[row] - 7
            assert seen[step] == picture(spec, batch.observation[row])
            assert seen[step + 1] == picture(spec, batch.next_observation[row])

"""Dict and Tuple observations are recorded with every vector environment and autoreset mode."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv
from framestow.envs.recording.recorder import stack_space
from framestow.replay.memory import ReplayMemory
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, NumberedEnv
from oracles.random_env import RandomEnv

MODES = list(AutoresetMode)
SEQUENCES = [((2, 5), ("terminated", "truncated")), ((3,), ("truncated",)), ((1, 1, 4), ("both", "terminated"))]
NESTED = Dict(
    {
        "frame": Box(0, 255, SHAPE, np.uint8),
        "views": Tuple([Box(-7, 255, (3, 2), np.int16), Dict({"pose": Box(-1, 99, (3,), np.float64)})]),
        "step": Discrete(9),
        "bits": MultiBinary(3),
        "counts": MultiDiscrete([99, 99]),
    }
)


def nested(frame: np.ndarray) -> dict[str, Any]:
    """The observation that goes with a numbered frame, or those that go with many of them."""
    told = frame[..., 0, :]  # environment, episode, step
    return {
        "frame": frame,
        "views": (np.swapaxes(frame, -1, -2).astype(np.int16) - 7, {"pose": told.astype(np.float64) / 4}),
        "step": told[..., 2].astype(np.int64),
        "bits": (told % 2).astype(np.int8),
        "counts": told[..., 1:].astype(np.int64),
    }


class NestedEnv(NumberedEnv):
    """Shows the numbered frame and others that follow from it."""

    def __init__(self, *sequence: Any) -> None:
        super().__init__(*sequence)
        self.observation_space = NESTED

    def shown(self) -> dict[str, Any]:
        return nested(super().shown())


def env_fns(env: type[NumberedEnv]) -> list[Any]:
    return [partial(env, env_id, *sequence) for env_id, sequence in enumerate(SEQUENCES)]


VECTORS = {
    "serial": SerialVectorEnv,
    "workers": partial(WorkerVectorEnv, num_workers=2, start_method="fork"),
    "gymnasium, sync": lambda fns, mode: SyncVectorEnv(fns, autoreset_mode=mode),
    "gymnasium, async": lambda fns, mode: AsyncVectorEnv(fns, autoreset_mode=mode),
}


def played(vector: Any, space: Any, frame_in: Any, num_steps: int = 25) -> ReplayMemory:
    """Record so many steps of a policy that looks at the frame."""
    memory = ReplayMemory(200, space, NUM_ACTIONS, stack=3, num_envs=3, seed=0)
    recorder = Recorder(vector, memory)
    observations, _ = recorder.reset(seed=0)
    for _ in range(num_steps):
        assert observations in recorder.observation_space
        actions = frame_in(observations).astype(np.int64).sum(axis=(1, 2, 3)) % NUM_ACTIONS
        observations, _, terminated, truncated, infos = recorder.step(actions)
        ended = terminated | truncated
        for row in np.flatnonzero(ended if "final_obs" in infos else np.zeros(3, np.bool_)):
            assert infos["final_obs"][row] in recorder.single_observation_space
        if recorder.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = recorder.reset(options={"reset_mask": ended})
    recorder.close()
    return memory


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES, ids=[mode.value for mode in MODES])
@pytest.mark.parametrize("kind", VECTORS)
def test_every_part_of_an_observation_is_recorded_in_every_mode(kind, mode):
    plain = played(SerialVectorEnv(env_fns(NumberedEnv), mode), Box(0, 255, SHAPE, np.uint8), lambda frames: frames)

    memory = played(VECTORS[kind](env_fns(NestedEnv), mode), NESTED, lambda observations: observations["frame"])

    memory.inner.parts.check()
    indices = plain.sampleable_indices()
    expected, batch = plain.get(indices), memory.get(memory.sampleable_indices())
    np.testing.assert_array_equal(indices, batch.index)
    np.testing.assert_equal(nested(expected.observation), batch.observation)
    np.testing.assert_equal(nested(expected.next_observation), batch.next_observation)
    for name in ("action", "reward", "discount", "terminated", "truncated"):
        np.testing.assert_array_equal(getattr(expected, name), getattr(batch, name))
    assert batch.truncated.any()
    assert batch.terminated.any()


PICTURES = Box(0, 255, (4, 84, 84), np.uint8)
OBSERVED = {
    "pictures": PICTURES,
    "last axis": Box(0, 255, (84, 84, 4), np.uint8),
    "vector": Box(-1, 1, (17,), np.float32),
    "dict": Dict({"camera": PICTURES, "arm": Box(-1, 1, (7,), np.float32), "joint": Discrete(3)}),
}


@pytest.mark.parametrize("stack", [None, 2])
@pytest.mark.parametrize("space", OBSERVED.values(), ids=OBSERVED)
def test_the_space_contains_what_reset_step_and_final_obs_are(space, stack):
    vector = SerialVectorEnv([lambda: RandomEnv(space, 0, longest=3)] * 2, "SameStep")
    recorder = Recorder(vector, ReplayMemory(100, space, 3, num_envs=2, stack=stack))
    assert recorder.reset()[0] in recorder.observation_space
    for _ in range(3):
        observations, *_, infos = recorder.step([0, 0])
        assert observations in recorder.observation_space
    assert infos["final_obs"][0] in recorder.single_observation_space


def test_the_stacked_space_contains_stacks_of_samples():
    space = Tuple([NESTED, Discrete(3, start=-1), MultiDiscrete([[2, 3], [4, 5]]), Box(0, 1, (), np.float32)])
    samples = [space.sample() for _ in range(4)]

    def stacked(parts: list[Any]) -> Any:
        if isinstance(parts[0], dict):
            return {key: stacked([part[key] for part in parts]) for key in parts[0]}
        if isinstance(parts[0], tuple):
            return tuple(stacked(list(same)) for same in zip(*parts, strict=True))
        return np.stack(parts)

    assert stacked(samples) in stack_space(space, 4)

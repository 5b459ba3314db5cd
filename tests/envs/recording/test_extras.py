"""Extras added to a recorder are stored with the next step, in every mode and kind of step."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder, SerialVectorEnv
from framestow.errors import EnvironmentFailedError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink, NumberedEnv

LENGTHS = [(4, 5), (3,), (1, 6, 4)]
ENDINGS = [("terminated", "truncated"), ("truncated",), ("both", "terminated")]
MODES = list(AutoresetMode)


def vector_env(mode=AutoresetMode.NEXT_STEP, **settings):
    shapes = enumerate(zip(LENGTHS, ENDINGS, strict=True))
    envs = [NumberedEnv(env_id, lengths, endings, **settings) for env_id, (lengths, endings) in shapes]
    return SerialVectorEnv([lambda env=env: env for env in envs], mode)


def recorder_with(mode=AutoresetMode.NEXT_STEP, *, extras=None, **settings) -> Recorder:
    declared = {"number": np.int64, "noise": (np.float32, (2,))} if extras is None else extras
    memory = ReplayMemory(1000, FrameSpec(SHAPE), NUM_ACTIONS, stack=2, num_envs=3, extras=declared, seed=0)
    return Recorder(vector_env(mode, **settings), memory)


def attach(recorder: Recorder, call: int, env_ids=(0, 1, 2)) -> np.ndarray:
    """Add extras with the numbers of call and environment; return actions with the number of the call."""
    numbers = np.array([10 * call + env_id for env_id in env_ids])
    recorder.add_extras(number=numbers, noise=np.stack([numbers, -numbers], axis=1).astype(np.float32))
    numbers[:] = -1  # they are copied
    return np.full(len(env_ids), call % NUM_ACTIONS)


def assert_each_step_has_its_own(recorder: Recorder) -> int:
    memory = recorder.memory
    memory.inner.parts.check()
    batch = memory.get(memory.sampleable_indices())
    numbers = batch.extras["number"]
    np.testing.assert_array_equal(numbers // 10 % NUM_ACTIONS, batch.action)
    np.testing.assert_array_equal(numbers % 10, batch.observation[:, -1, 0, 0], "a frame tells its environment")
    np.testing.assert_array_equal(np.stack([numbers, -numbers], axis=1), batch.extras["noise"])
    assert len(numbers) == len(set(numbers.tolist()))
    for env_id in range(3):
        assert (np.diff(numbers[numbers % 10 == env_id]) > 0).all()
    return len(numbers)


@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_extras_are_stored_with_the_next_step_in_every_mode(mode, in_background):
    recorder = recorder_with(mode)
    recorder.reset()

    for call in range(30):
        actions = attach(recorder, call)
        if in_background:
            recorder.step_async(actions)
            *_, terminated, truncated, _ = recorder.step_wait()
        else:
            *_, terminated, truncated, _ = recorder.step(actions)
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            recorder.reset(options={"reset_mask": terminated | truncated})

    assert sum(env.num_steps for env in recorder.env.envs) == assert_each_step_has_its_own(recorder)
    recorder.close()


REFUSED = [
    ({}, "extras lack noise, number: every step of this memory has noise, number"),
    ({"number": [1, 2, 3]}, "extras lack noise"),
    ({"number": [1, 2, 3], "noise": np.zeros((2, 2))}, "extra 'noise' has shape (2, 2): 3 environments need (3, 2)"),
    ({"number": [1, 2, 3], "noise": np.zeros((3, 2)), "more": [1, 2, 3]}, "extras have more: this memory stores"),
]


@pytest.mark.parametrize("call", ["step", "step_async"])
@pytest.mark.parametrize(("attached", "message"), REFUSED)
def test_a_step_with_invalid_extras_is_refused_before_any_environment_steps(attached, message, call):
    recorder = recorder_with()
    recorder.reset()
    envs = recorder.env.envs
    recorder.add_extras(**attached)

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        getattr(recorder, call)(np.zeros(3, int))

    assert [0, 0, 0] == [env.num_steps for env in envs]
    recorder.step(attach(recorder, 1))
    assert 3 == assert_each_step_has_its_own(recorder)


def test_extras_are_for_one_step_only():
    recorder = recorder_with()
    recorder.reset()
    recorder.step(attach(recorder, 0))

    with pytest.raises(InvalidStepError, match="extras lack noise, number"):
        recorder.step([1, 1, 1])

    recorder.step(attach(recorder, 1))
    assert 5 == assert_each_step_has_its_own(recorder)  # one of the second calls only reset


def test_undeclared_extras_are_refused_by_name():
    recorder = recorder_with(extras={})
    recorder.reset()
    recorder.add_extras(log_prob=np.zeros(3))
    with pytest.raises(InvalidStepError, match="extras have log_prob: this memory stores none"):
        recorder.step([1, 1, 1])

    recorder = Recorder(vector_env(), ListSink(3))
    recorder.reset()
    recorder.add_extras(log_prob=np.zeros(3))
    with pytest.raises(InvalidStepError, match="extras have log_prob: the memory stores none"):
        recorder.step([1, 1, 1])


def test_an_interrupted_step_discards_its_extras():
    recorder = recorder_with(raises_at=2)
    recorder.reset()
    recorder.step(attach(recorder, 0))
    with pytest.raises((KeyError, EnvironmentFailedError)):
        recorder.step(attach(recorder, 1))

    recorder.reset()

    with pytest.raises(InvalidStepError, match="extras lack"):
        recorder.step([1, 1, 1])
    assert 3 == assert_each_step_has_its_own(recorder)

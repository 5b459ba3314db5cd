"""Lost workers and a Recorder: no false step, stored steps stay sampleable, no transition crosses a lost episode."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder
from framestow.errors import EnvironmentFailedError, InvalidStepError
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.failing_envs import NUM_ACTIONS, SHAPE, Failure, makers
from oracles.list_memory import ListMemory
from oracles.recorded_results import LoggedWorkers, fill
from oracles.start_methods import every_start_method

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")

MODES = list(AutoresetMode)
NUM_ENVS, CAPACITY = 4, 90
FAILING = {
    1: Failure("exit", at=11, replacements=(0,)),
    2: Failure("sigkill", at=6, replacements=(0, 1, 2)),
    3: Failure("sigkill", "reset", 3, replacements=(1,)),
}


@pytest.fixture
def recorded(process_folder, make_workers):
    """Return a recorder over logged workers and a small memory; ``make_workers`` checks for leftovers."""
    recorders = []

    def make(mode, failing, **settings) -> Recorder:
        settings = {"num_workers": 2, "start_method": "fork", "on_worker_lost": "restart", "seed": 3} | settings
        env = LoggedWorkers(makers(process_folder, NUM_ENVS, failing), mode, **settings)
        memory = ReplayMemory(
            CAPACITY, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=3, num_envs=NUM_ENVS, discount=0.9, seed=0
        )
        recorders.append(Recorder(env, memory))
        return recorders[-1]

    yield make
    for recorder in recorders:
        recorder.close()


def run(recorder: Recorder, num_steps: int, *, in_background: bool = False, seed: int = 0) -> None:
    """Play by a policy that looks at the whole stack: a wrong frame in it leads to another action."""
    observations, _ = recorder.reset()
    weights = np.random.default_rng(seed).integers(1, 100, observations.shape[1:])
    for _ in range(num_steps):
        actions = (observations * weights).sum(axis=(1, 2, 3)) % NUM_ACTIONS
        if in_background:
            recorder.step_async(actions)
            observations, _, terminated, truncated, _ = recorder.step_wait()
        else:
            observations, _, terminated, truncated, _ = recorder.step(actions)
        ended = terminated | truncated
        if recorder.autoreset_mode is AutoresetMode.DISABLED and ended.any():
            observations, _ = recorder.reset(options={"reset_mask": ended})


def compared(recorder: Recorder) -> dict[str, int]:
    """Compare the memory with the oracle; return the numbers of real steps and lost episodes."""
    oracle = ListMemory(CAPACITY, NUM_ENVS, stack=3, discount=0.9)
    counts = fill(oracle, recorder.env.log, recorder.autoreset_mode)
    assert_memory_is_what_the_oracle_holds(recorder.memory, oracle)
    return counts


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start_method", every_start_method())
@pytest.mark.parametrize("in_background", [False, True])
def test_a_memory_stores_exactly_the_received_steps(start_method, mode, in_background, recorded):
    recorder = recorded(mode, FAILING, start_method=start_method)

    for num_steps in (5, 20, 60):
        recorder.env.log.clear()
        recorder.memory = ReplayMemory(
            CAPACITY, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=3, num_envs=NUM_ENVS, discount=0.9, seed=0
        )
        run(recorder, num_steps, in_background=in_background)
        compared(recorder)


@pytest.mark.parametrize("mode", MODES)
def test_the_recorder_passes_on_lost_episodes(mode, recorded):
    recorder = recorded(mode, {2: Failure("sigkill", at=2)})
    recorder.reset()
    recorder.step([0] * NUM_ENVS)

    observations, rewards, terminated, truncated, infos = recorder.step([1] * NUM_ENVS)

    assert infos["_episode_lost"].tolist() == [False, False, True, True]
    assert (rewards.tolist(), terminated[2:].tolist()) == ([1, 1, 0, 0], [False, False])
    assert truncated.tolist() == [False, False, True, True]
    assert len(recorder.memory) == 6
    if mode is AutoresetMode.SAME_STEP:
        # The stack of a new replacement is padded with its first frame.
        assert observations[2, :, 0, 1].tolist() == [1, 1, 1]
        assert infos["final_obs"][2].shape == (3, *SHAPE)
        assert infos["final_obs"][2][:, 0, 3].tolist() == [0, 0, 1]
    else:
        assert observations[2, :, 0, 3].tolist() == [0, 0, 1]


@pytest.mark.parametrize("mode", MODES)
def test_a_memory_with_lost_episodes_survives_saving_and_loading(mode, recorded, tmp_path):
    recorder = recorded(mode, {2: Failure("sigkill", at=6)})
    run(recorder, 12)

    recorder.memory.save(tmp_path / "memory")

    oracle = ListMemory(CAPACITY, NUM_ENVS, stack=3, discount=0.9)
    fill(oracle, recorder.env.log, mode)
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


@pytest.mark.each_value
@pytest.mark.parametrize("in_background", [False, True])
@pytest.mark.parametrize("kind", ["raise", "sigkill", "hang"])
def test_transitions_stored_before_an_error_stay_sampleable_and_a_reset_continues(kind, in_background, recorded):
    recorder = recorded(AutoresetMode.NEXT_STEP, {2: Failure(kind, at=6)}, on_worker_lost="raise", step_timeout=0.7)
    with pytest.raises(EnvironmentFailedError):
        run(recorder, 50, in_background=in_background)

    assert compared(recorder)["real"] == len(recorder.memory) >= 20
    assert recorder.memory.sample(32).observation.shape == (32, 3, *SHAPE)


def test_the_memory_refuses_a_reward_that_is_no_number_and_a_reset_continues(recorded):
    recorder = recorded(AutoresetMode.NEXT_STEP, {2: Failure("nan_reward", at=3)})
    with pytest.raises(InvalidStepError, match=r"reward is nan at row 2"):
        run(recorder, 10)
    held = len(recorder.memory)
    recorder.env.log.pop()  # the step that was refused

    assert compared(recorder)["real"] == held == 8
    run(recorder, 30)
    assert compared(recorder)["real"] > 80

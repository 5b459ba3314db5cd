"""A late answer is never mistaken for another one."""

from __future__ import annotations

import signal
import threading
import time

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.errors import StepTimeoutError
from oracles.expected_vector import ExpectedVector, assert_rows, play
from oracles.failing_envs import Failure, numbers_of, plans
from oracles.start_methods import every_start_method

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")

MODES = list(AutoresetMode)
SLOW = {1: Failure("slow", at=2, seconds=0.4)}
LONG = {"lengths": (30,)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start_method", every_start_method())
def test_a_step_that_was_not_done_in_time_can_be_waited_for_again(start_method, mode, make_workers, process_folder):
    env = make_workers(SLOW, autoreset_mode=mode, start_method=start_method)
    expected = ExpectedVector(plans(process_folder, 4), mode, 3)
    np.testing.assert_array_equal(expected.reset(), env.reset()[0])
    assert_rows(expected.step([1] * 4), env.step([1] * 4))
    env.step_async([2] * 4)

    with pytest.raises(StepTimeoutError, match=r"not done after 0\.05 s: 1 answers are missing"):
        env.step_wait(timeout=0.05)

    assert_rows(expected.step([2] * 4), env.step_wait())
    play(env, expected, 20)


@pytest.mark.parametrize("mode", MODES)
def test_after_a_step_that_was_not_waited_for_a_reset_answers_with_first_frames(mode, make_workers):
    env = make_workers(SLOW, autoreset_mode=mode, play=LONG)
    env.reset()
    env.step([1] * 4)
    env.step_async([2] * 4)
    with pytest.raises(StepTimeoutError):
        env.step_wait(timeout=0.05)

    frames, _ = env.reset(seed=1)

    assert [(number, 0, 1, 0) for number in range(4)] == [tuple(numbers_of(frame)) for frame in frames]
    for step in range(1, 8):
        time.sleep(0.1)  # time enough for the late answer to come in between
        frames, rewards, *_ = env.step([step % 5] * 4)
        assert [(number, 0, 1, step) for number in range(4)] == [tuple(numbers_of(frame)) for frame in frames]
        assert rewards.tolist() == [step % 5] * 4


def test_an_interrupted_step_is_not_mistaken_for_the_next_one(make_workers):
    env = make_workers({1: Failure("slow", at=2, seconds=1.0)}, play=LONG)
    env.reset()
    env.step([1] * 4)
    interrupt_in(0.2)
    with pytest.raises(KeyboardInterrupt):
        env.step([2] * 4)

    frames, _ = env.reset()

    assert [(number, 0, 1, 0) for number in range(4)] == [tuple(numbers_of(frame)) for frame in frames]
    frames, rewards, *_ = env.step([3] * 4)
    assert [(number, 0, 1, 1) for number in range(4)] == [tuple(numbers_of(frame)) for frame in frames]
    assert rewards.tolist() == [3] * 4


def interrupt_in(seconds: float) -> None:
    """Send SIGINT to this process only, not to its workers."""
    main = threading.main_thread().ident
    timer = threading.Timer(seconds, signal.pthread_kill, (main, signal.SIGINT))
    timer.daemon = True
    timer.start()


def test_the_answer_of_a_worker_that_then_times_out_is_not_lost(make_workers):
    env = make_workers({1: Failure("slow", at=2, seconds=1.5)}, play=LONG, on_worker_lost="restart", step_timeout=0.6)
    env.reset()
    env.step([1] * 4)

    frames, _, _, truncated, infos = env.step([2] * 4)

    assert truncated.tolist() == [True, True, False, False]
    assert [(0, 0, 0, 1), (1, 0, 0, 1), (2, 0, 0, 2), (3, 0, 0, 2)] == [tuple(numbers_of(frame)) for frame in frames]
    assert "0.6" in infos["episode_lost"][1]
    time.sleep(1.2)
    frames, *_ = env.step([3] * 4)
    assert [(0, 1, 0, 0), (1, 1, 0, 0), (2, 0, 0, 3), (3, 0, 0, 3)] == [tuple(numbers_of(frame)) for frame in frames]

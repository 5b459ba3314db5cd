"""Interrupts at any time, and calls in a wrong order, lose, repeat or exchange no answer."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest

from framestow.envs import WorkerVectorEnv
from framestow.envs.vector.arguments import NoStepPendingError, StepPendingError
from framestow.errors import InvalidStepError, WorkerLostError
from oracles.ctrl_c import NumberedPoints
from oracles.patience import PATIENCE_S
from oracles.playing_envs import SlowEnv

NUM_ENVS = 5


class Interrupted(BaseException):
    """What the alarm raises, as Ctrl-C raises KeyboardInterrupt."""


@pytest.fixture
def alarm():
    """Have the main thread interrupted after so many seconds, wherever it is."""

    def ring(*_):
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    yield lambda after_s: signal.setitimer(signal.ITIMER_REAL, after_s)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def workers():
    made = []

    def make(env_fns, **settings):
        made.append(WorkerVectorEnv(env_fns, num_workers=2, start_method="fork", **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_calls_in_a_wrong_order_name_the_call_to_make_first(workers):
    env = workers([partial(SlowEnv, number) for number in range(3)])
    with pytest.raises(InvalidStepError, match=r"call reset\(\)"):
        env.step_async([0, 0, 0])
    env.reset()
    with pytest.raises(NoStepPendingError, match="call it first"):
        env.step_wait()

    env.step_async([0, 0, 0])

    some = {"reset_mask": np.array([False, True, False])}
    for call in (
        lambda: env.step_async([0, 0, 0]),
        lambda: env.step([0, 0, 0]),
        lambda: env.reset(options=some),
        lambda: env.call("shown"),
        lambda: env.get_attr("number"),
        env.render,
        env.state_dict,
    ):
        with pytest.raises(StepPendingError, match=re.escape("call step_wait(), or reset()")):
            call()
    assert env.step_wait()[0].tolist() == [[0, 1], [1, 1], [2, 1]]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_interrupts_at_random_times_lose_and_repeat_no_step(workers, alarm, seed):
    env = workers([partial(SlowEnv, number) for number in range(NUM_ENVS)])
    env.reset()
    generator = np.random.default_rng(seed)
    num_seen, most_missed, num_interrupts, num_resumed = 0, 0, 0, 0

    for _ in range(1_500):
        actions, answer = generator.integers(2, size=NUM_ENVS), None
        try:
            alarm(float(generator.uniform(1e-5, 1.5e-3)))
            answer = env.step(actions)
            alarm(0)
        except Interrupted:
            num_interrupts += 1
        if answer is None:
            try:
                answer = env.step_wait()
                num_resumed += 1
            except NoStepPendingError:  # it came before the first message was sent, or as the answer was returned
                most_missed += 1
                continue
        observations, rewards, _, _, infos = answer
        steps = observations[:, 1]
        assert np.unique(steps).size == 1, "all environments have made the same steps"
        num_missed = steps[0] - num_seen - 1
        assert 0 <= num_missed <= most_missed, "none is repeated, and only an answer on its return is missed"
        num_seen, most_missed = steps[0], 0
        assert (actions.tolist(), steps.tolist()) == (rewards.tolist(), infos["step"].tolist())

    assert num_interrupts > 100
    assert num_resumed > 50


@pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")
# Ctrl-C within a start leaves sockets to the garbage collector, and one within a ``__del__`` is printed.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("is_killed", "stride"),
    [
        *((False, 23), (True, 47)),
        *(pytest.param(is_killed, 1, marks=pytest.mark.exhaustive) for is_killed in (False, True)),
    ],
)
def test_ctrl_c_at_any_point_of_a_step_loses_and_repeats_nothing(workers, is_killed, stride):
    env_fns = [partial(SlowEnv, number) for number in range(2)]
    env = workers(env_fns, on_worker_lost="restart", seed=0, step_timeout=10.0)
    env.reset()
    num_steps, points = np.zeros(2, int), NumberedPoints(0)
    while points.num_seen >= points.number:
        if is_killed:
            os.kill(env.worker_pids[1], signal.SIGKILL)
        answer, points = None, NumberedPoints(points.number + stride)
        with suppress(KeyboardInterrupt), points:
            answer = env.step([1, 1])
        try:
            answer = env.step_wait() if answer is None else answer
        except NoStepPendingError:  # it came before the first message was sent, or as the answer was returned
            answer = env.step([0, 0])
        if answer[3][1]:  # the lost one was truncated, and is reset now
            answer = env.step([0, 0])
        shown, made = answer[0], answer[0][:, 1] - num_steps
        assert [0, 1] == shown[:, 0].tolist()
        assert made[0] in ((2, 3) if is_killed else (1, 2)), "only an answer on its return is missed"
        assert shown[1, 1] == 0 if is_killed else made[1] == made[0]
        env.step([0, 0])  # a worker may be lost three times without a step in between
        num_steps = shown[:, 1] + 1

    gc.collect()
    assert points.number > 300


class WordyEnv(SlowEnv):
    def step(self, action):
        return *super().step(action)[:4], {"words": "words " * 300_000}


def test_a_worker_that_stops_inside_a_large_info_can_be_interrupted_and_is_lost_in_time(workers, alarm):
    env = workers([WordyEnv] * 2, step_timeout=2.0)
    env.reset()
    env.step_async([0, 0])
    time.sleep(0.3)  # the socket is full, so the worker stops in the middle of its answer
    os.kill(env.worker_pids[1], signal.SIGSTOP)
    alarm(0.2)
    with pytest.raises(Interrupted):
        env.step_wait()
    os.kill(env.worker_pids[1], signal.SIGCONT)
    assert [1_800_000] * 2 == [len(words) for words in env.step_wait()[4]["words"]]

    env.step_async([0, 0])
    time.sleep(0.3)
    os.kill(env.worker_pids[1], signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(WorkerLostError, match=r"worker 1 .* gave no answer within 2\.0 s"):
        env.step_wait()

    assert time.monotonic() - began < PATIENCE_S


def test_a_reset_that_is_interrupted_is_made_again(workers, alarm):
    env = workers([partial(SlowResetEnv, number) for number in range(NUM_ENVS)])
    alarm(0.1)
    with pytest.raises(Interrupted):
        env.reset()

    observations, _ = env.reset()

    assert [[number, 0] for number in range(NUM_ENVS)] == observations.tolist()
    assert [2] * NUM_ENVS == list(env.get_attr("episode"))


class SlowResetEnv(SlowEnv):
    def reset(self, *, seed=None, options=None):
        time.sleep(0.2 if self.number == 0 else 0.0)
        return super().reset(seed=seed)


def test_an_interrupted_call_leaves_no_answer_for_the_next_one(workers, alarm):
    env = workers([partial(SlowCallEnv, number) for number in range(NUM_ENVS)])
    env.reset()
    alarm(0.1)
    with pytest.raises(Interrupted):
        env.call("told_slowly")

    assert tuple(range(NUM_ENVS)) == env.get_attr("number")
    assert [[number, 1] for number in range(NUM_ENVS)] == env.step([0] * NUM_ENVS)[0].tolist()


class SlowCallEnv(SlowEnv):
    def told_slowly(self):
        time.sleep(0.1)
        return "late"


OTHERS_OF_THE_FORKSERVER = """
import gymnasium, multiprocessing
from multiprocessing import resource_tracker
from framestow.envs import WorkerVectorEnv

if __name__ == "__main__":
    resource_tracker.ensure_running()  # as it starts, it takes SIGINT up again for whoever held it back
    WorkerVectorEnv([lambda: gymnasium.make("CartPole-v1")], start_method="forkserver").close()
    say = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), flush=True)"
    other = multiprocessing.get_context("forkserver").Process(target=exec, args=(say,))
    other.start()
    other.join()
"""


def test_other_processes_of_the_same_forkserver_still_take_interrupts(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(OTHERS_OF_THE_FORKSERVER)

    told = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=True)

    assert told.stdout.strip() == "set()"

"""Interrupts at any time lose, repeat or exchange no answer."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from framestow.envs import WorkerVectorEnv
from framestow.envs.vector.calls import NoStepPendingError, StepPendingError
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


def test_a_step_that_is_interrupted_stays_in_flight(workers, alarm):
    env = workers([partial(SlowEnv, number) for number in range(NUM_ENVS)])
    env.reset()

    alarm(0.1)
    with pytest.raises(Interrupted):
        env.step([400, 0, 0, 0, 0])

    with pytest.raises(StepPendingError):
        env.step([0] * NUM_ENVS)
    observations, rewards, *_ = env.step_wait()
    assert [400.0, 0.0, 0.0, 0.0, 0.0] == rewards.tolist()
    assert [[number, 1] for number in range(NUM_ENVS)] == observations.tolist()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (1, 2))])
def test_interrupts_at_random_times_lose_and_repeat_no_step(workers, alarm, seed):
    env = workers([partial(SlowEnv, number) for number in range(NUM_ENVS)])
    env.reset()
    generator = np.random.default_rng(seed)
    num_seen, num_interrupts, num_resumed = 0, 0, 0

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
                continue
        observations, rewards, _, _, infos = answer
        steps = observations[:, 1]
        assert np.unique(steps).size == 1, "all environments have made the same steps"
        assert steps[0] in (num_seen + 1, num_seen + 2), "none is repeated, and only an answer on its return is missed"
        num_seen = steps[0]
        assert (actions.tolist(), steps.tolist()) == (rewards.tolist(), infos["step"].tolist())

    assert num_interrupts > 100
    assert num_resumed > 50


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

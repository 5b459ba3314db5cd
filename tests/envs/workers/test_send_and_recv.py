"""send and recv step environments separately, and never mix up their steps."""

from __future__ import annotations

import os
import re
import signal
import time
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import SerialVectorEnv, WorkerVectorEnv
from framestow.envs.vector.calls import NoStepPendingError, StepPendingError
from framestow.errors import InvalidStepError, StepTimeoutError
from oracles.equal_vectors import assert_same
from oracles.numbered_frames import NumberedEnv
from oracles.playing_envs import SlowEnv, SpaceEnv

MODES = list(AutoresetMode)


@pytest.fixture
def workers():
    made = []

    def make(env_fns, mode=AutoresetMode.NEXT_STEP, num_workers=3, **settings):
        made.append(WorkerVectorEnv(env_fns, mode, num_workers=num_workers, start_method="fork", **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def row_of(infos, row):
    """What the infos of a vector environment tell of one row."""
    told = {}
    for key, values in infos.items():
        if not key.startswith("_") and infos[f"_{key}"][row]:
            told[key] = row_of(values, row) if isinstance(values, dict) else values[row]
    return told


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("num_workers", [1, 3, 5])
def test_the_order_of_send_and_recv_does_not_change_any_episode(mode, num_workers, workers):
    env_fns = [partial(SpaceEnv, "picture and text")] * 5
    serial, sent = SerialVectorEnv(env_fns, mode, seed=2), workers(env_fns, mode, num_workers, seed=2)
    assert_same(serial.reset(), sent.reset())
    expected = [[] for _ in range(5)]
    for number in range(30):
        observations, rewards, terminated, truncated, infos = serial.step(np.full(5, number % 4))
        for each in range(5):
            shown = observations["picture"][each], observations["mission"][each]
            expected[each].append((*shown, rewards[each], terminated[each], truncated[each], row_of(infos, each)))
    generator = np.random.default_rng(0)
    done, idle = [0] * 5, set(range(5))

    while min(done) < 30:
        asked = sorted(each for each in idle if done[each] < 30 and generator.random() < 0.7)
        if asked:
            order = generator.permutation(asked)
            sent.send([done[each] % 4 for each in order], order)
            idle -= set(asked)
        if len(idle) == 5:
            continue
        ready = sent.recv(int(generator.integers(1, 6 - len(idle))))
        assert sorted(ready.env_ids) == ready.env_ids.tolist()
        for row, each in enumerate(ready.env_ids.tolist()):
            shown = ready.observations["picture"][row], ready.observations["mission"][row]
            flags = ready.terminated[row], ready.truncated[row]
            actual = (*shown, ready.rewards[row], *flags, row_of(ready.infos, row))
            assert_same(expected[each][done[each]], actual, f"environment {each}, step {done[each]}")
            done[each] += 1
            idle.add(each)


def test_a_slow_environment_does_not_delay_the_others(workers):
    env = workers([partial(SlowEnv, number) for number in range(3)])
    env.reset()
    env.send([2000, 0, 0])

    ready = env.recv(2)

    assert ready.env_ids.tolist() == [1, 2]
    for _ in range(3):
        env.send([0, 0], [2, 1])
        again = env.recv(2)
    assert again.observations.tolist() == [[1, 4], [2, 4]]
    assert again.infos["step"].tolist() == [4, 4]
    last = env.recv()
    assert (last.env_ids.tolist(), last.observations.tolist(), last.rewards.tolist()) == ([0], [[0, 1]], [2000.0])


def test_received_arrays_are_copies(workers):
    env = workers([partial(SlowEnv, number) for number in range(3)])
    env.reset()
    env.send([0, 0, 0])
    first = env.recv(3)
    kept = first.observations.copy()

    for _ in range(4):
        env.send([0, 0, 0])
        env.recv(3)

    assert np.array_equal(kept, first.observations)


def test_step_and_send_may_take_turns(workers):
    env = workers([partial(SlowEnv, number) for number in range(4)], num_workers=2)
    env.reset()

    env.step([0] * 4)
    env.send([0, 0], [3, 0])
    received = env.recv(2)
    observations, *_ = env.step([0] * 4)

    assert [[0, 2], [3, 2]] == received.observations.tolist()
    assert [[0, 3], [1, 2], [2, 2], [3, 3]] == observations.tolist()


def test_with_autoreset_disabled_those_that_ended_are_reset_while_others_are_under_way(workers):
    env = workers([partial(SlowEnv, 0), partial(SlowEnv, 1), partial(SlowEnv, 2)], AutoresetMode.DISABLED)
    env.reset()
    env.send([600, 0], [0, 1])
    env.recv()

    observations, _ = env.reset(options={"reset_mask": np.array([False, True, True])})
    late = env.recv()

    assert [[0, 0], [1, 0], [2, 0]] == observations.tolist()
    assert (late.env_ids.tolist(), late.observations.tolist()) == ([0], [[0, 1]])
    with pytest.raises(NoStepPendingError):
        env.recv()


def test_an_ended_environment_is_refused_before_anything_is_sent(workers):
    env = workers([partial(NumberedEnv, 0, (1,)), partial(NumberedEnv, 1, (9,))], AutoresetMode.DISABLED, num_workers=2)
    env.reset()
    env.send([1, 1])
    env.recv(2)

    with pytest.raises(InvalidStepError, match=re.escape("environments [0] have ended")):
        env.send([1, 1])

    env.send([1], [1])
    assert env.recv().env_ids.tolist() == [1]
    assert env.get_attr("num_steps") == (1, 2)


@pytest.mark.parametrize(
    ("actions", "env_ids", "message"),
    [
        ([0], [3], "env_ids are [3]: they must be different whole numbers from 0 to 2"),
        ([0], [-1], "env_ids are [-1]"),
        ([0, 0], [1, 1], "env_ids are [1, 1]"),
        ([], [], "env_ids are []"),
        ([0, 0], [1], "actions have shape (2,): they must have shape (1,)"),
        ([-1], [1], "action -1 for environment"),
    ],
)
def test_numbers_and_actions_that_cannot_be_are_refused_before_anything_is_sent(workers, actions, env_ids, message):
    env = workers([partial(SlowEnv, number) for number in range(3)])
    env.reset()

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        env.send(actions, env_ids)

    assert env.get_attr("num_steps") == (0, 0, 0)


def test_calls_in_a_wrong_order_name_the_call_to_make_first(workers):
    env = workers([partial(SlowEnv, number) for number in range(3)])
    with pytest.raises(InvalidStepError, match=r"call reset\(\)"):
        env.send([0, 0, 0])
    env.reset()
    with pytest.raises(NoStepPendingError, match="call it first"):
        env.recv()
    with pytest.raises(NoStepPendingError, match="call it first"):
        env.step_wait()

    env.send([0, 0], [0, 2])

    with pytest.raises(StepPendingError, match=re.escape("steps of environments [2] are in flight")):
        env.send([0, 0], [1, 2])
    for call in (lambda: env.step([0, 0, 0]), lambda: env.get_attr("number"), env.render):
        with pytest.raises(StepPendingError, match=re.escape("steps of environments [0, 2] are in flight")):
            call()
    with pytest.raises(
        InvalidStepError, match="min_envs is 3: it must be from 1 to the number of sent environments, 2"
    ):
        env.recv(3)
    env.recv(2)
    env.step_async([0, 0, 0])
    for call in (lambda: env.send([0], [1]), lambda: env.step_async([0, 0, 0]), lambda: env.call("shown")):
        with pytest.raises(StepPendingError, match=re.escape("call step_wait(), or reset()")):
            call()
    assert env.step_wait()[0].tolist() == [[0, 2], [1, 1], [2, 2]]


def test_a_step_that_times_out_is_still_in_flight(workers):
    env = workers([partial(SlowEnv, number) for number in range(3)])
    env.reset()
    env.step_async([400, 0, 0])

    began = time.monotonic()
    with pytest.raises(StepTimeoutError, match=re.escape("not done after 0.1 s: 1 answers are missing")):
        env.step_wait(timeout=0.1)
    assert time.monotonic() - began < 0.35
    assert env.step_wait()[1].tolist() == [400.0, 0.0, 0.0]

    env.send([400, 0, 0])
    with pytest.raises(StepTimeoutError):
        env.recv(3, timeout=0.1)
    assert env.recv(3).observations[:, 1].tolist() == [2, 2, 2]


def test_a_reset_discards_the_steps_in_flight_and_their_late_answers(workers):
    env = workers([partial(SlowEnv, number) for number in range(4)], num_workers=2)
    env.reset()
    for give_up in (lambda: env.step_async([200, 3, 0, 1]), lambda: env.send([200, 3, 0, 1])):
        give_up()
        observations, _ = env.reset()
        assert [[number, 0] for number in range(4)] == observations.tolist()

        answers = [env.step([5, 6, 7, 8]) for _ in range(3)]

        assert [[5.0, 6.0, 7.0, 8.0]] * 3 == [answer[1].tolist() for answer in answers]
        assert [[number, 3] for number in range(4)] == answers[-1][0].tolist()
        assert answers[-1][4]["step"].tolist() == [3] * 4


def test_a_worker_lost_in_a_masked_reset_while_others_of_it_are_under_way_is_replaced_once(workers):
    env = workers(
        [partial(SlowEnv, 0), partial(SlowEnv, 1)], AutoresetMode.DISABLED, num_workers=1, on_worker_lost="restart"
    )
    env.reset()
    env.send([2000], [0])
    os.kill(env.worker_pids[0], signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match="was killed by SIGKILL"):
        observations, _ = env.reset(options={"reset_mask": np.array([False, True])})
    pids = env.worker_pids
    lost = env.recv()

    assert [[0, 0], [1, 0]] == observations.tolist()
    assert pids == env.worker_pids
    assert (lost.env_ids.tolist(), lost.truncated.tolist(), lost.rewards.tolist()) == ([0], [True], [0.0])
    assert "SIGKILL" in lost.infos["episode_lost"][0]
    env.reset(options={"reset_mask": np.array([True, False])})
    assert [[0, 1], [1, 1]] == env.step([0, 0])[0].tolist()

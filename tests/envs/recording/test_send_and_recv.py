"""The Recorder with send and recv: some environments step at a time, in any order."""

from __future__ import annotations

import contextlib
import re
import time
from functools import partial

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv, lost_episodes
from framestow.errors import InvalidSettingsError, InvalidStepError, StepTimeoutError
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink, NumberedEnv
from oracles.shadowed_memory import ShadowedMemory
from oracles.toy_vector import ToyVector, numbered_envs

LENGTHS = [(4, 5), (3,), (1, 6, 4)]
ENDINGS = [("terminated", "truncated"), ("truncated",), ("both", "terminated")]
LOSSES = [(0, 12), (1, 4), (2, 9)]


def toy(mode=AutoresetMode.NEXT_STEP, losses=(), seed=0) -> ToyVector:
    return ToyVector(numbered_envs(LENGTHS, ENDINGS), mode, losses, seed)


def play_in_any_order(recorder, num_steps: int) -> list[np.ndarray]:
    """Step each environment several times with the actions 1, 2, 3, ...; return the last observation of each."""
    newest, num_sent, in_flight = list(recorder.reset()[0]), np.zeros(3, int), set()
    is_disabled = recorder.autoreset_mode is AutoresetMode.DISABLED
    while True:
        idle = np.array([n for n in range(3) if n not in in_flight and num_sent[n] < num_steps])
        if len(idle):
            num_sent[idle] += 1
            recorder.send(num_sent[idle] % NUM_ACTIONS, idle)
            in_flight |= set(idle.tolist())
        if not in_flight:
            return newest
        ready = recorder.recv()
        assert len(ready.env_ids) == len(ready.observations) == len(ready.rewards)
        in_flight -= set(ready.env_ids.tolist())
        for stream, observation in zip(ready.env_ids, ready.observations, strict=True):
            newest[stream] = observation
        ended = np.zeros(3, bool)
        ended[ready.env_ids] = ready.terminated | ready.truncated
        if is_disabled and ended.any():
            observations, _ = recorder.reset(options={"reset_mask": ended})
            for stream in np.flatnonzero(ended):
                newest[stream] = observations[stream]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("losses", [(), LOSSES])
def test_each_stream_is_recorded_as_if_all_were_stepped_together(mode, losses):
    expected = ListSink(3)
    recorder = Recorder(toy(mode, losses), expected)
    recorder.reset()
    for call in range(1, 31):
        *_, terminated, truncated, _ = recorder.step([call % NUM_ACTIONS] * 3)
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            recorder.reset(options={"reset_mask": terminated | truncated})

    for seed in range(3):
        sink = ListSink(3)
        play_in_any_order(Recorder(toy(mode, losses, seed), sink), 30)

        assert expected.log == sink.log


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_memory_agrees_with_the_oracle_and_the_policy_sees_the_stacks_of_those_that_are_ready(mode):
    memory = ShadowedMemory(50, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=4, num_envs=3, seed=0)

    newest = play_in_any_order(Recorder(toy(mode, LOSSES), memory), 40)

    assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
    assert np.array_equal(newest, memory.observations())


def test_lost_episodes_are_reported_by_environment():
    recorder = Recorder(toy(losses=[(2, 1)]), ListSink(3))
    recorder.reset()
    recorder.send([1], [2])

    ready = recorder.recv()

    assert ready.env_ids.tolist() == [2]
    assert list(lost_episodes(ready.infos)) == [0]


def test_while_steps_are_in_flight_only_the_others_may_be_sent():
    recorder = Recorder(toy(), ListSink(3))
    with pytest.raises(InvalidStepError, match=re.escape("environments [1] have no running episode")):
        recorder.send([1], [1])
    recorder.reset()
    with pytest.raises(InvalidStepError, match="no step is in flight"):
        recorder.recv()
    recorder.send([1, 1], [0, 2])

    for call in (lambda: recorder.step([0] * 3), lambda: recorder.step_async([0] * 3), recorder.state_dict):
        with pytest.raises(InvalidStepError, match=re.escape("steps of environments [0, 2] are in flight")):
            call()
    with pytest.raises(InvalidStepError, match=re.escape("steps of environments [2] are in flight")):
        recorder.send([1, 1], [1, 2])
    recorder.send([1], [1])
    recorder.recv(min_envs=3)
    recorder.step([1, 1, 1])


def test_a_masked_reset_is_of_those_that_are_not_in_flight():
    sink = ListSink(3)
    recorder = Recorder(toy(AutoresetMode.DISABLED), sink)
    recorder.reset()
    recorder.send([1, 1], [0, 2])
    begun = [list(log) for log in sink.log]

    with pytest.raises(InvalidStepError, match=re.escape("steps of environments [2] are in flight")):
        recorder.reset(options={"reset_mask": np.array([False, True, True])})
    assert begun == sink.log
    recorder.reset(options={"reset_mask": np.array([False, True, False])})
    recorder.send([1], [1])
    recorder.recv(min_envs=3)

    assert ["begin step", "begin begin step", "begin step"] == [" ".join(entry[0] for entry in log) for log in sink.log]


def test_a_reset_of_all_discards_the_steps_in_flight():
    sink = ListSink(3)
    recorder = Recorder(toy(), sink)
    recorder.reset()
    recorder.send([1, 1], [0, 2])

    recorder.reset()
    with pytest.raises(InvalidStepError, match="no step is in flight"):
        recorder.recv()
    recorder.step([1, 1, 1])

    assert ["begin begin step"] * 3 == [" ".join(entry[0] for entry in log) for log in sink.log]


class Both:
    """Hands everything to a memory and to a list of steps."""

    def __init__(self, memory: ShadowedMemory, sink: ListSink) -> None:
        self.num_envs, self.stack, self.observations = sink.num_envs, sink.stack, memory.observations
        self.sinks = memory, sink

    def begin(self, *rows) -> None:
        for sink in self.sinks:
            sink.begin(*rows)

    def append(self, *rows) -> None:
        for sink in self.sinks:
            sink.append(*rows)


class SlowEnv(NumberedEnv):
    """Takes its time for every third step."""

    def step(self, action):
        if self.num_steps % 3 == 0:
            time.sleep(0.05)
        return super().step(action)


class CountsResetsInFlight(WorkerVectorEnv):
    """Counts the resets of some environments while others are stepped."""

    num_resets_in_flight = 0

    def reset(self, *, seed=None, options=None):
        self.num_resets_in_flight += bool(self._sent)
        return super().reset(seed=seed, options=options)


def test_workers_that_ended_are_reset_and_recorded_while_others_are_stepped():
    memory = ShadowedMemory(90, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=4, num_envs=3, seed=0)
    makers = [partial((SlowEnv, NumberedEnv, NumberedEnv)[n], n, LENGTHS[n], ENDINGS[n]) for n in range(3)]
    expected = ListSink(3)
    with contextlib.closing(Recorder(SerialVectorEnv([*makers], "Disabled"), expected)) as recorder:
        recorder.reset()
        for call in range(1, 31):
            *_, terminated, truncated, _ = recorder.step([call % NUM_ACTIONS] * 3)
            if (terminated | truncated).any():
                recorder.reset(options={"reset_mask": terminated | truncated})
    env = CountsResetsInFlight(makers, "Disabled", num_workers=3, start_method="fork")
    played = ListSink(3)

    with contextlib.closing(Recorder(env, Both(memory, played))) as recorder:
        newest = play_in_any_order(recorder, 30)

    assert expected.log == played.log
    assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
    assert np.array_equal(newest, memory.observations())
    assert env.num_resets_in_flight > 5


@pytest.mark.parametrize("env_ids", [[3], [-1], [0, 0], [0.5], []])
def test_unknown_environment_numbers_are_refused(env_ids):
    recorder = Recorder(toy(), ListSink(3))
    recorder.reset()

    with pytest.raises(InvalidStepError, match="they must be different whole numbers from 0 to 2; give at least one"):
        recorder.send([1] * len(env_ids), env_ids)
    with pytest.raises(InvalidStepError, match="2 environments need one each"):
        recorder.send([1], [0, 1])

    recorder.send([1, 1, 1])


def test_send_needs_a_vector_environment_that_has_send():
    recorder = Recorder(SerialVectorEnv([NumberedEnv]), ListSink(1))
    recorder.reset()

    with pytest.raises(InvalidSettingsError, match="has no send and recv: it steps all environments at once"):
        recorder.send([1])


class LateVector(ToyVector):
    """Is not in time once, and breaks once."""

    def recv(self, min_envs=1, timeout=None):
        if timeout == 0.5:
            raise StepTimeoutError("too late")
        if timeout == 0.1:
            raise OSError("broken")
        return super().recv(min_envs, timeout)


def test_a_late_step_stays_in_flight_and_after_a_failure_a_reset_continues():
    sink = ListSink(3)
    recorder = Recorder(LateVector(numbered_envs(LENGTHS, ENDINGS), AutoresetMode.NEXT_STEP), sink)
    recorder.reset()
    recorder.send([1, 1, 1])

    with pytest.raises(StepTimeoutError):
        recorder.recv(timeout=0.5)
    recorder.recv(min_envs=3)
    recorder.send([1], [0])
    with pytest.raises(OSError, match="broken"):
        recorder.recv(timeout=0.1)

    assert [sink.num_steps(stream) for stream in range(3)] == [1, 1, 1]
    with pytest.raises(InvalidStepError, match="have no running episode"):
        recorder.send([1], [0])
    recorder.reset()
    recorder.send([1], [0])

"""The Recorder steps environments in a background thread, and resumes from a saved state."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from framestow.envs import Recorder, SerialVectorEnv
from framestow.errors import EnvironmentFailedError, IncompatibleError, InvalidStepError, StepTimeoutError
from oracles.forked_children import fork_and_call
from oracles.numbered_frames import ListSink, NumberedEnv
from oracles.patience import PATIENCE_S


def recorder_over(*envs, mode=AutoresetMode.NEXT_STEP) -> tuple[Recorder, ListSink]:
    sink = ListSink(len(envs))
    return Recorder(SerialVectorEnv(envs, mode), sink), sink


def long_episodes():
    return NumberedEnv(lengths=(100,))


def recorder_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("framestow-recorder")]


class Gate(NumberedEnv):
    """Steps only when the test lets it."""

    def __init__(self):
        super().__init__(lengths=(100,))
        self.has_entered, self.may_leave = threading.Event(), threading.Event()

    def step(self, action):
        self.has_entered.set()
        assert self.may_leave.wait(PATIENCE_S)
        return super().step(action)


def test_the_environments_step_while_the_caller_does_something_else_and_nothing_is_recorded_until_the_wait():
    gate = Gate()
    recorder, sink = recorder_over(lambda: gate)
    recorder.reset()
    actions = np.array([3])

    recorder.step_async(actions)
    actions[:] = 0
    assert gate.has_entered.wait(PATIENCE_S)
    assert sink.num_steps(0) == 0
    gate.may_leave.set()
    _, rewards, *_ = recorder.step_wait()

    assert rewards.tolist() == [3.0]
    assert [entry[1:3] for entry in sink.log[0][1:]] == [(3, 3.0)]
    recorder.close()


def test_while_a_step_is_in_flight_no_other_call_is_taken():
    recorder, _ = recorder_over(long_episodes)
    with pytest.raises(InvalidStepError, match="no running episode"):
        recorder.step_async([0])
    recorder.reset()
    with pytest.raises(InvalidStepError, match="no step is in flight"):
        recorder.step_wait()
    recorder.step_async([0])

    for call in (lambda: recorder.step([0]), lambda: recorder.step_async([0]), recorder.reset, recorder.state_dict):
        with pytest.raises(InvalidStepError, match="a step is in flight"):
            call()

    recorder.step_wait()
    recorder.close()


def test_step_wait_raises_the_error_of_an_environment():
    recorder, sink = recorder_over(lambda: NumberedEnv(lengths=(100,), raises_at=2))
    recorder.reset()
    recorder.step([0])
    recorder.step_async([4])

    with pytest.raises(EnvironmentFailedError, match="environment 0 raised KeyError at action 4"):
        recorder.step_wait()

    assert sink.num_steps(0) == 1
    recorder.reset()
    recorder.step_async([1])
    recorder.step_wait()
    recorder.close()


def test_close_ends_the_thread_also_with_a_step_in_flight_and_once_is_enough():
    recorder, sink = recorder_over(long_episodes)
    recorder.reset()
    recorder.step_async([0])
    assert len(recorder_threads()) == 1

    recorder.close()
    recorder.close()

    assert recorder_threads() == []
    assert recorder.env.envs[0].num_closes == 1
    assert sink.num_steps(0) == 0
    with pytest.raises(InvalidStepError, match="recorder is closed"):
        recorder.reset()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_steps_in_a_thread_of_its_own_and_waits_for_no_step_of_its_parent():
    recorder, _ = recorder_over(long_episodes)
    recorder.reset()
    recorder.step_async([3])
    recorder.step_wait()

    def step() -> None:
        recorder.step_async([2])
        assert recorder.step_wait()[1].tolist() == [2.0]
        recorder.close()

    def wait() -> None:
        with pytest.raises(InvalidStepError, match="no step is in flight"):
            recorder.step_wait()
        recorder.close()

    assert fork_and_call(step) == ""
    recorder.step_async([4])
    assert fork_and_call(wait) == ""
    assert recorder.step_wait()[1].tolist() == [4.0]
    recorder.close()


def test_a_plain_step_needs_no_thread():
    recorder, _ = recorder_over(long_episodes)
    recorder.reset()
    recorder.step([0])

    assert recorder_threads() == []


def test_a_state_of_other_environments_is_refused():
    two, one = recorder_over(long_episodes, long_episodes)[0], recorder_over(long_episodes)[0]
    two.reset()

    with pytest.raises(IncompatibleError, match="state is of 2 environments with NextStep: these are 1"):
        one.load_state_dict(two.state_dict())


def test_a_reset_that_was_due_when_the_state_was_saved_is_still_due():
    recorder, _ = recorder_over(lambda: NumberedEnv(lengths=(1,)))
    recorder.reset()
    recorder.step([0])
    resumed, sink = recorder_over(lambda: NumberedEnv(lengths=(1,)))

    resumed.load_state_dict(recorder.state_dict())
    resumed.step([0])

    assert [entry[0] for entry in sink.log[0]] == ["begin"]


class HalvesVector(SerialVectorEnv):
    """Steps in halves of its own."""

    def __init__(self, env_fns):
        super().__init__(env_fns)
        self.num_waits = 0

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self, timeout=None):
        if timeout == 0.5:
            raise StepTimeoutError("too late")
        self.num_waits += 1
        return self.step(self.actions)


def test_an_environments_step_async_is_used_and_a_late_step_can_be_waited_for_again():
    vector, sink = HalvesVector([long_episodes]), ListSink(1)
    recorder = Recorder(vector, sink)
    recorder.reset()
    recorder.step_async([3])

    with pytest.raises(StepTimeoutError):
        recorder.step_wait(timeout=0.5)
    with pytest.raises(InvalidStepError, match="a step is in flight"):
        recorder.reset()
    recorder.step_wait()

    assert vector.num_waits == 1
    assert recorder_threads() == []
    assert [entry[1] for entry in sink.log[0][1:]] == [3]


def test_a_wrapper_is_stepped_and_not_passed_by():
    vector = HalvesVector([lambda: NumberedEnv(lengths=(1,))])
    recorder = Recorder(RecordEpisodeStatistics(vector), ListSink(1))
    recorder.reset()
    recorder.step_async([3])

    *_, infos = recorder.step_wait()

    assert infos["episode"]["r"].tolist() == [3.0]
    assert vector.num_waits == 0
    recorder.close()


def test_a_step_on_the_thread_that_is_late_can_be_waited_for_again():
    gate = Gate()
    recorder, sink = recorder_over(lambda: gate)
    recorder.reset()
    recorder.step_async([3])

    with pytest.raises(StepTimeoutError, match="s: it continues; call step_wait"):
        recorder.step_wait(timeout=0.01)
    gate.may_leave.set()
    recorder.step_wait(timeout=PATIENCE_S)

    assert sink.num_steps(0) == 1
    recorder.close()

"""After Ctrl-C at any line the memory is consistent and the run can continue."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode

from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv
from framestow.envs.interrupts import DeferredInterrupts
from framestow.errors import InvalidStepError
from framestow.replay.memory import ReplayMemory
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.ctrl_c import NumberedPoints, ctrl_c_at_line
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, ListSink, NumberedEnv
from oracles.patience import PATIENCE_S
from oracles.shadowed_memory import ShadowedMemory

MODES = list(AutoresetMode)


class SlowEnv(NumberedEnv):
    """Take half a second for the actions 2 and 3."""

    def __init__(self):
        super().__init__(lengths=(9,))

    def step(self, action):
        time.sleep(0.5 * (action in (2, 3)))
        return super().step(action)


def made(mode) -> Recorder:
    envs = [lambda s=s: NumberedEnv(s, (s + 2, 3), ("terminated", "truncated")) for s in range(2)]
    memory = ShadowedMemory(40, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=3, num_envs=2, seed=0)
    return Recorder(SerialVectorEnv(envs, mode), memory)


def stepped(recorder) -> None:
    *_, terminated, truncated, _ = recorder.step([1, 2])
    if recorder.autoreset_mode is AutoresetMode.DISABLED and (terminated | truncated).any():
        recorder.reset(options={"reset_mask": terminated | truncated})


def assert_every_transition_is_one_step_of_one_episode(memory) -> None:
    batch = memory.get(memory.sampleable_indices())
    env_id, episode, step = batch.observation[:, -1, 0].T.astype(int)
    next_env_id, next_episode, next_step = batch.next_observation[:, -1, 0].T.astype(int)
    assert np.array_equal((env_id, episode, step + 1), (next_env_id, next_episode, next_step))


@pytest.mark.parametrize("mode", [MODES[0], *(pytest.param(mode, marks=pytest.mark.exhaustive) for mode in MODES[1:])])
def test_ctrl_c_at_any_line_of_a_step_keeps_the_memory_consistent(mode, tmp_path):
    num_interrupted, is_interrupted = 0, True
    while is_interrupted:
        recorder = made(mode)
        recorder.reset()
        stepped(recorder)
        try:
            with ctrl_c_at_line(num_interrupted + 1):
                stepped(recorder)  # ends the episode of environment 0
            is_interrupted = False
        except KeyboardInterrupt:
            num_interrupted += 1

        assert_memory_is_what_the_oracle_holds(recorder.memory, recorder.memory.oracle)
        for _ in range(5):
            try:
                stepped(recorder)
            except InvalidStepError:
                recorder.reset()
        assert_memory_is_what_the_oracle_holds(recorder.memory, recorder.memory.oracle)
        assert_every_transition_is_one_step_of_one_episode(recorder.memory)

    assert num_interrupted > 50
    recorder.memory.save(tmp_path / "memory")
    assert len(ReplayMemory.load(tmp_path / "memory")) == len(recorder.memory)


def test_ctrl_c_while_waiting_for_a_step_leaves_it_in_flight():
    may_step = threading.Event()

    class Waiting(NumberedEnv):
        def step(self, action):
            assert may_step.wait(PATIENCE_S)
            return super().step(action)

    sink = ListSink(1)
    recorder = Recorder(SerialVectorEnv([lambda: Waiting(lengths=(9,))]), sink)
    recorder.reset()
    recorder.step_async([3])
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        recorder.step_wait()
    may_step.set()
    recorder.step_wait()

    assert [entry[1] for entry in sink.log[0][1:]] == [3]
    recorder.close()


def test_a_deferred_interrupt_is_raised_at_the_end_and_the_handler_is_restored():
    done, handler = [], signal.getsignal(signal.SIGINT)

    def interrupted():
        with DeferredInterrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    assert done == ["the rest"]
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_error_is_raised_when_no_interrupt_occurred():
    interrupts = DeferredInterrupts()
    with pytest.raises(OSError, match="full"), interrupts:
        raise OSError("full")
    with interrupts:
        pass


def test_a_handler_of_sigterm_waits_too():
    noted = []
    before = signal.signal(signal.SIGTERM, lambda number, _: noted.append((number, "late")))
    try:
        with DeferredInterrupts():
            signal.raise_signal(signal.SIGTERM)
            assert noted == []
    finally:
        signal.signal(signal.SIGTERM, before)

    assert noted == [(signal.SIGTERM, "late")]


def test_ctrl_c_at_any_point_of_a_deferral_restores_every_handler():
    interrupts, points = DeferredInterrupts(), NumberedPoints(0)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
        while points.num_seen >= points.number:
            points = NumberedPoints(points.number + 1)
            with suppress(KeyboardInterrupt), points, interrupts:
                pass
            assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)), points.number
    finally:
        signal.signal(signal.SIGTERM, before)

    assert points.number > 15


def test_in_another_thread_nothing_is_deferred():
    errors = []

    def enter():
        try:
            with DeferredInterrupts():
                pass
        except ValueError as error:  # Python raises this for a handler set outside the main thread
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()

    assert errors == []


def test_an_interrupted_wait_for_worker_processes_can_be_repeated():
    sink = ListSink(2)
    recorder = Recorder(WorkerVectorEnv([SlowEnv] * 2, num_workers=2), sink)
    recorder.reset()
    recorder.step_async([3, 4])
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        recorder.step_wait()
    recorder.step_wait()

    assert [log[1][1] for log in sink.log] == [3, 4]
    recorder.close()


def test_after_ctrl_c_in_a_step_of_worker_processes_a_reset_continues():
    memory = ShadowedMemory(40, Box(0, 255, SHAPE, np.uint8), NUM_ACTIONS, stack=3, num_envs=2, seed=0)
    recorder = Recorder(WorkerVectorEnv([SlowEnv] * 2, num_workers=2), memory)
    recorder.reset()
    recorder.step([1, 1])
    threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()

    with pytest.raises(KeyboardInterrupt):
        recorder.step([2, 2])
    with pytest.raises(InvalidStepError, match="have no running episode"):
        recorder.step([3, 3])
    recorder.reset()
    recorder.step([4, 4])

    assert memory.get(memory.sampleable_indices()).action.tolist() == [1, 1, 4, 4]
    assert_memory_is_what_the_oracle_holds(memory, memory.oracle)
    recorder.close()

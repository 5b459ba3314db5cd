"""Environments that say which episode and step they show, and what may follow from what was seen of them."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode

NUM_ACTIONS = 5


class KnownEnv(gymnasium.Env):
    """Shows its number, its episode's name and the step in it; refuses a step that no reset came before."""

    observation_space, action_space = Box(0, 2**40, (3,), np.int64), Discrete(NUM_ACTIONS)

    def __init__(self, number):
        self.number, self.episode, self.length, self.step_number = number, 0, 0, None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.length = int(self.np_random.integers(1, 2**40)), int(self.np_random.integers(1, 7))
        self.step_number = 0
        return self.shown(), {}

    def step(self, action):
        if self.step_number is None:
            raise RuntimeError("stepped without a reset before")
        self.step_number += 1
        shown, reward, is_over = self.shown(), reward_of(action, self.step_number), self.step_number == self.length
        if is_over:
            self.step_number = None
        is_odd = bool(self.episode % 2)
        return shown, reward, is_over and is_odd, is_over and not is_odd, {}

    def shown(self):
        return np.array([self.number, self.episode, self.step_number], np.int64)

    def state(self):
        return [self.np_random.bit_generator.state, self.episode, self.length, self.step_number]

    def restore(self, state):
        self.np_random.bit_generator.state, self.episode, self.length, self.step_number = state


def reward_of(action, step_number) -> float:
    return float(1000 * action + step_number)


class KnownSequence:
    """What was seen of one environment; raises ``AssertionError`` for an answer that cannot follow it."""

    def __init__(self, number: int, mode: AutoresetMode) -> None:
        self.number, self.mode = number, mode
        self.has_ended = self.may_be_lost = self.must_be_told = self.was_asked_before_the_kill = False

    @property
    def waits_for_reset(self) -> bool:
        return self.has_ended and self.mode is not AutoresetMode.SAME_STEP

    def begin(self, shown) -> None:
        number, _, step_number = shown
        assert (number, step_number) == (self.number, 0)
        self.last = shown
        self.has_ended = self.may_be_lost = self.must_be_told = self.was_asked_before_the_kill = False

    def note_kill(self, is_in_flight: bool) -> None:
        """Its worker was killed: a running episode is lost, unless its step had been answered by then."""
        if is_in_flight:
            self.may_be_lost = self.was_asked_before_the_kill = True
        elif not self.waits_for_reset:
            self.may_be_lost = self.must_be_told = True

    def take(self, action, shown, reward, flags, final, is_told_lost) -> None:
        """Take in the answer to a step."""
        number, episode, step_number = shown
        assert number == self.number
        if is_told_lost:
            self._take_loss(shown, reward, flags, final)
        elif self.waits_for_reset and self.mode is AutoresetMode.NEXT_STEP:
            assert (step_number, reward, flags) == (0, 0.0, (False, False))
            assert episode != self.last[1]
            self.has_ended, self.may_be_lost = False, self.may_be_lost and self.was_asked_before_the_kill
        else:
            led_to = shown if final is None else final
            assert not self.must_be_told
            assert led_to == (number, self.last[1], self.last[2] + 1)
            assert reward == reward_of(action, led_to[2])
            assert any(flags) or final is None
            self.has_ended = any(flags)
        self.last, self.was_asked_before_the_kill = shown, False

    def _take_loss(self, shown, reward, flags, final) -> None:
        assert self.may_be_lost, "nothing was lost"
        assert (reward, flags) == (0.0, (False, True))
        if self.mode is AutoresetMode.SAME_STEP:
            assert final == self.last
            assert shown[1] != self.last[1]
            assert shown[2] == 0
        else:
            assert shown == self.last
        self.has_ended, self.may_be_lost, self.must_be_told = True, False, False

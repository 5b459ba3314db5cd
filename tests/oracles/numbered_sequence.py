"""Every step of a memory of any kind, in lists; a column says which step is which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.memory import ReplayMemory

PICTURE = Box(0, 255, (5, 4), np.uint8)
KEYED = Dict({"camera": Box(0, 255, (6, 3, 2), np.uint8), "joints": Box(-np.inf, np.inf, (3,), np.float32)})
COLUMNS = {"number": np.int64, "state": (np.float32, (2, 3))}
NUM_ACTIONS = 7

Frame = dict[str, np.ndarray]  # of a Box by the key ""


@dataclass
class Episode:
    """What one environment saw from a reset on: one frame more than there are steps."""

    env_id: int
    frames: list[Frame]
    numbers: list[int] = field(default_factory=list)
    is_over: bool = False


@dataclass
class Step:
    episode: Episode
    offset: int
    action: int
    reward: np.float32
    terminated: bool
    truncated: bool
    state: np.ndarray | None


class NumberedSteps:
    """Is told what a memory is told, and says what must come back: of ``memory``, with settings of any kind."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory = memory
        self.steps: dict[int, Step] = {}  # by number
        self.order: list[int] = []  # numbers, as they were appended
        self.current: list[Episode | None] = [None] * memory.num_envs
        self.number_of: dict[int, int] = {}  # by index, for ever

    # -- what the memory is told

    def begin(self, frames: Any, env_ids: list[int]) -> None:
        for row, env_id in enumerate(env_ids):
            self.end(env_id)
            self.current[env_id] = Episode(env_id, [row_of(frames, row)])

    def end(self, env_id: int) -> None:
        if self.current[env_id] is not None:
            self.current[env_id].is_over = True

    def append(self, actions, rewards, terminated, truncated, frames, env_ids, extras) -> None:
        for row, env_id in enumerate(env_ids):
            episode, number = self.current[env_id], int(extras["number"][row])
            ended, cut = bool(terminated[row]), bool(truncated[row])
            state = np.array(extras["state"][row]) if "state" in extras else None
            reward = np.float32(rewards[row])
            self.steps[number] = Step(episode, len(episode.numbers), int(actions[row]), reward, ended, cut, state)
            self.order.append(number)
            episode.numbers.append(number)
            episode.frames.append(row_of(frames, row))
            episode.is_over = ended or cut

    # -- what must come back

    def horizon(self, number: int) -> int | None:
        """Steps of the n-step transition; ``None`` while it is pending."""
        step, n_step = self.steps[number], self.memory.inner.settings.n_step
        left = len(step.episode.numbers) - step.offset
        return None if left < n_step and not step.episode.is_over else min(n_step, left)

    def observation(self, episode: Episode, offset: int, key: str) -> np.ndarray:
        """The stack that ends at a frame of an episode."""
        first = episode.frames[0][key]
        before = np.zeros_like(first) if self.memory.inner.settings.stack_padding == "zeros" else first
        offsets = range(offset - self.memory.stack + 1, offset + 1)
        return np.stack([episode.frames[one][key] if one >= 0 else before for one in offsets])

    def assert_shows(self, observation: Any, row: Any, episode: Episode, offset: int) -> None:
        """``row``: where in the batch."""
        for key, stacks in keyed(observation).items():
            np.testing.assert_array_equal(self.observation(episode, offset, key), stacks[row])

    def assert_is_right(self, batch: Batch) -> np.ndarray:
        """Compare a batch with the lists; give the numbers of its steps."""
        numbers = batch.extras["number"]
        gamma = self.memory.inner.settings.discount
        for row, (number, index) in enumerate(zip(numbers.tolist(), batch.index.tolist(), strict=True)):
            assert number == self.number_of.setdefault(index, number), f"index {index} was given twice"
            step, horizon = self.steps[number], self.horizon(number)
            assert horizon is not None, f"step {number} is pending"
            reached = step.episode.numbers[step.offset : step.offset + horizon]
            last = self.steps[reached[-1]]
            told = (batch.action[row], batch.terminated[row], batch.truncated[row])
            assert (step.action, last.terminated, last.truncated) == told
            reward = sum(gamma**k * float(self.steps[one].reward) for k, one in enumerate(reached))
            assert abs(reward - batch.reward[row]) <= 1e-6 * (1 + abs(reward))
            discount = 0.0 if last.terminated else gamma**horizon
            assert abs(discount - batch.discount[row]) <= 1e-7
            if step.state is not None:
                np.testing.assert_array_equal(step.state, batch.extras["state"][row])
            self.assert_shows(batch.observation, row, step.episode, step.offset)
            self.assert_shows(batch.next_observation, row, step.episode, step.offset + horizon)
        return numbers

    def assert_sequences_are_right(self, batch: SequenceBatch, borders: str) -> None:
        """Compare sequences with the lists; their rewards and discounts are of one step."""
        numbers = batch.extras["number"]
        assert ((batch.index >= 0) == batch.mask).all()
        assert batch.mask[:, 0].all()
        assert (batch.mask[:, 1:] <= batch.mask[:, :-1]).all(), "a sequence has a hole"
        for row, length in enumerate(batch.mask.sum(axis=1).tolist()):
            for column in range(length):
                step = self.steps[int(numbers[row, column])]
                assert (
                    self.number_of.setdefault(int(batch.index[row, column]), int(numbers[row, column]))
                    == numbers[row, column]
                )
                self.assert_step_is_right(batch, (row, column), step)
                if column:
                    assert self.follows(self.steps[int(numbers[row, column - 1])], step, borders)
            last = self.steps[int(numbers[row, length - 1])]
            if length < batch.mask.shape[1]:
                assert borders != "inside"
                follower = self.follower(last, borders)
                assert follower is None or not self.is_sampleable(follower)
            for values in (batch.action, batch.reward, batch.discount, batch.terminated, batch.truncated, numbers):
                assert not values[row, length:].any()
            for ahead, observation in enumerate((batch.observation, batch.next_observation)):  # last frames move out
                assert not any(array[row, length + 1 - ahead :, -1].any() for array in keyed(observation).values())

    def assert_step_is_right(self, batch: SequenceBatch, at: tuple[int, int], step: Step) -> None:
        told = (batch.action[at], batch.reward[at], batch.terminated[at], batch.truncated[at], batch.is_first[at])
        assert (step.action, step.reward, step.terminated, step.truncated, step.offset == 0) == told
        discount = 0.0 if step.terminated else self.memory.inner.settings.discount
        assert abs(discount - batch.discount[at]) <= 1e-7
        if step.state is not None:
            np.testing.assert_array_equal(step.state, batch.extras["state"][at])
        self.assert_shows(batch.observation, at, step.episode, step.offset)
        self.assert_shows(batch.next_observation, at, step.episode, step.offset + 1)

    def follower(self, step: Step, borders: str) -> Step | None:
        """The next step of its episode; of its environment, where sequences cross."""
        episode, following = step.episode, step.offset + 1
        if following < len(episode.numbers):
            return self.steps[episode.numbers[following]]
        later = [number for number in self.order if number > episode.numbers[-1]] if borders == "cross" else []
        return next((self.steps[one] for one in later if self.steps[one].episode.env_id == episode.env_id), None)

    def assert_is_a_start(self, number: int, stride: int, borders: str) -> None:
        """A whole stride from its episode's beginning, or nothing before it is held."""
        step = self.steps[number]
        before = step.episode.numbers[step.offset - 1] if step.offset else None
        assert step.offset % stride == 0 or not self.is_sampleable(self.steps[before])

    def follows(self, step: Step, other: Step, borders: str) -> bool:
        return self.follower(step, borders) is other

    def is_sampleable(self, step: Step) -> bool:
        """Whether its record is there, pending or not; of random retention only what may be drawn is known."""
        number = step.episode.numbers[step.offset]
        if self.memory.inner.settings.retention == "fifo":
            return number in self.order[-self.memory.capacity :]
        held = set(self.memory.sampleable_indices().tolist())
        return any(index in held for index, one in self.number_of.items() if one == number)

    def drawable(self) -> list[int]:
        """Numbers of what a fifo memory without a budget holds."""
        return [number for number in self.order[-self.memory.capacity :] if self.horizon(number) is not None]

    def assert_all_is_right(self) -> None:
        self.memory.inner.parts.check()
        indices = self.memory.sampleable_indices()
        assert len(indices) == len(self.memory) <= self.memory.capacity
        numbers = self.assert_is_right(self.memory.get(indices)) if len(indices) else np.zeros(0, int)
        if self.memory.inner.settings.retention == "fifo":
            assert self.drawable() == numbers.tolist()
        assert len(set(numbers.tolist())) == len(numbers)


class NumberedSequence(NumberedSteps):
    """Random episodes, of which the lists are told, and then the memory: other threads may compare them meanwhile."""

    def __init__(self, memory: ReplayMemory, space: Box | Dict, seed: int) -> None:
        super().__init__(memory)
        self.spaces = dict(space.spaces) if isinstance(space, Dict) else {"": space}
        self.random = np.random.default_rng(seed)
        self.start(list(range(memory.num_envs)))

    def new_frames(self, count: int) -> Any:
        frames = {
            key: self.random.integers(0, 256, (count, *space.shape)).astype(space.dtype)
            if space.dtype == np.uint8
            else self.random.standard_normal((count, *space.shape)).astype(space.dtype)
            for key, space in self.spaces.items()
        }
        return frames.get("", frames)

    def start(self, env_ids: list[int]) -> None:
        frames = self.new_frames(len(env_ids))
        self.begin(frames, env_ids)
        self.memory.begin(frames, env_ids)

    def step(self, end_chance: float) -> None:
        """One step of some of the environments that are open, or of all that are not a beginning."""
        env_ids = [env_id for env_id, episode in enumerate(self.current) if episode and not episode.is_over]
        if not env_ids:
            self.start(list(range(len(self.current))))
            return
        if self.random.random() < 0.3:
            env_ids = env_ids[: self.random.integers(1, len(env_ids) + 1)]
        count = len(env_ids)
        terminated, truncated = self.random.random((2, count)) < end_chance
        states = self.random.standard_normal((count, 2, 3)).astype(np.float32)
        actions = self.random.integers(0, NUM_ACTIONS, count)
        rewards = self.random.standard_normal(count).astype(np.float32)
        extras = {"number": len(self.order) + np.arange(count), "state": states}
        step = actions, rewards, terminated, truncated, self.new_frames(count), env_ids
        self.append(*step, extras)
        self.memory.append(*step, extras=extras)
        ended = [env_id for env_id in env_ids if self.current[env_id].is_over]
        if ended and self.random.random() < 0.9:
            self.start(ended)


def keyed(frames: Any) -> Frame:
    return frames if isinstance(frames, dict) else {"": frames}


def row_of(frames: Any, row: int) -> Frame:
    return {key: np.array(stacked[row]) for key, stacked in keyed(frames).items()}

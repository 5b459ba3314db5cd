"""Random operations on a memory and on the list oracle; every sampleable transition compared after each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.memory import ReplayMemory
from oracles.bordered_steps import append_with_borders
from oracles.comparison import assert_batch_is_what_the_oracle_holds, assert_memory_is_what_the_oracle_holds
from oracles.list_memory import ListMemory

NUM_ACTIONS = 6
COLUMNS = [{}, {"log_prob": np.float32}, {"state": (np.float64, (2, 3)), "goal": np.int16, "is_greedy": np.bool_}]


class MemoryMachine(RuleBasedStateMachine):
    """Begins, steps, samples, saves and loads, on random shapes, depths, paddings, numbers of envs and capacities."""

    storage = "packed"
    save_folder = None

    @initialize(
        capacity=st.integers(1, 90),
        num_envs=st.integers(1, 3),
        stack=st.integers(1, 5),
        stack_padding=st.sampled_from(STACK_PADDINGS),
        shape=st.sampled_from([(84, 84), (40, 40), (1, 1), (5, 4, 3), (3, 9, 7)]),
        extras=st.sampled_from(COLUMNS),
        n_step=st.integers(1, 10),
        seed=st.integers(0, 2**32 - 1),
    )
    def build(self, capacity, num_envs, stack, stack_padding, shape, extras, n_step, seed):
        settings = {"stack": stack, "stack_padding": stack_padding, "num_envs": num_envs, "discount": 0.9}
        settings |= {"extras": extras, "n_step": n_step}
        self.extras = extras
        self.random = np.random.default_rng(seed)
        self.border_chance = self.random.choice([0.0, 0.05, 0.4])
        self.shape = shape
        self.make(max(capacity, n_step * num_envs), storage=self.storage, seed=seed, **settings)
        self.background = self.random.integers(0, 256, self.shape, dtype=np.uint8)

    @rule(env_ids=st.sets(st.integers(0, 2), min_size=1))
    def begin(self, env_ids):
        present = sorted(env_id for env_id in env_ids if env_id < self.memory.num_envs)
        if present:
            frames = self.new_frames(len(present))
            self.memory.begin(frames, present)
            self.oracle.begin(frames, present)
            frames[:] = 0  # an environment that reuses its array changes nothing

    @precondition(lambda self: any(self.oracle.is_open))
    @rule(num_steps=st.integers(1, 70), end_chance=st.sampled_from([0.0, 0.05, 0.5]))
    def step(self, num_steps, end_chance):
        for _ in range(num_steps):
            self.step_once(end_chance)

    @precondition(lambda self: len(self.memory))
    @rule(batch_size=st.integers(1, 9))
    def sample(self, batch_size):
        batch = self.memory.sample(batch_size)

        assert (batch_size,) == batch.index.shape
        assert_batch_is_what_the_oracle_holds(batch, self.oracle)

    @precondition(lambda self: self.numbers_by_index())
    @rule(count=st.integers(1, 40))
    def change_rewards_and_extras(self, count):
        numbers = self.numbers_by_index()
        indices = self.random.choice(list(numbers), count)  # some of them twice
        rewards, extras = self.random.normal(size=count), self.new_extras(count)
        extras = {name: values for name, values in extras.items() if self.random.random() < 0.7}
        self.memory.set_rewards(indices, rewards)
        self.memory.set_extras(indices, extras)
        self.oracle.set_fields([numbers[index] for index in indices.tolist()], rewards, extras)

    @precondition(lambda self: self.numbers_by_index())
    @rule(count=st.integers(1, 4))
    def forget(self, count):
        numbers = self.numbers_by_index()
        indices, size = self.random.choice(list(numbers), count), len(self.memory)
        num_gone = self.memory.forget(indices)
        self.oracle.forget([numbers[index] for index in indices.tolist()])
        assert size - num_gone == len(self.memory)

    @rule(is_rare=st.integers(0, 3))
    def clear(self, is_rare):
        if is_rare == 0:
            self.memory.clear()
            self.oracle.clear()

    @precondition(lambda self: not all(self.oracle.is_open))
    @rule()
    def a_refused_step_leaves_no_trace(self):
        closed = [env_id for env_id, is_open in enumerate(self.oracle.is_open) if not is_open]
        with pytest.raises(InvalidStepError, match="has no open episode"):
            self.memory.append([0], [0.0], [False], [False], self.new_frames(1), closed[:1])

    @rule()
    def save_and_load(self):
        self.memory.save(self.save_folder)
        loaded = ReplayMemory.load(self.save_folder)
        if len(self.memory):
            np.testing.assert_array_equal(self.memory.sample(5).index, loaded.sample(5).index)
        self.memory = loaded

    @invariant()
    def everything_sampleable_is_what_the_oracle_holds(self):
        assert_memory_is_what_the_oracle_holds(self.memory, self.oracle)

    @invariant()
    def nbytes_is_the_sum_of_the_parts_that_the_report_lists(self):
        assert sum(self.memory.report().parts.values()) == self.memory.nbytes

    def make(self, capacity, *, num_envs, stack, stack_padding, discount, n_step, **settings) -> None:
        shape = {"num_envs": num_envs, "stack": stack, "discount": discount, "stack_padding": stack_padding}
        shape["n_step"] = n_step
        self.memory = self.memory_of(capacity, **shape, **settings)
        self.oracle = ListMemory(capacity, **shape)

    def memory_of(self, capacity, **settings):
        return ReplayMemory(capacity, FrameSpec(self.shape), NUM_ACTIONS, **{"stack": 4} | settings)

    def append(self, step, borders) -> None:
        *fields, env_ids, extras = step
        append_with_borders(self.memory, fields, env_ids, borders, extras)

    def new_actions(self, count: int) -> np.ndarray:
        return self.random.integers(0, NUM_ACTIONS, count)

    def new_extras(self, count: int) -> dict[str, np.ndarray]:
        return {
            name: self.random.integers(0, 100, (count, *np.dtype(dtype).shape)).astype(np.dtype(dtype).base)
            for name, dtype in self.extras.items()
        }

    def numbers_by_index(self) -> dict[int, int]:
        """The indices of stored steps, pending ones too, each with the number of the step in the oracle."""
        return {index: index for index in self.oracle.kept}

    def step_once(self, end_chance: float) -> None:
        env_ids = [env_id for env_id, is_open in enumerate(self.oracle.is_open) if is_open]
        if self.random.random() < 0.2:  # as when another environment only resets
            env_ids = env_ids[: self.random.integers(1, len(env_ids) + 1)]
        actions = self.new_actions(len(env_ids))
        terminated, truncated = self.random.random((2, len(env_ids))) < end_chance
        frames = self.new_frames(len(env_ids))
        extras = self.new_extras(len(env_ids))
        step = (actions, actions.astype(np.float64), terminated, truncated, frames, env_ids, extras)
        borders = self.random.random(len(env_ids)) < self.border_chance
        self.append(step, borders)
        self.oracle.append(*step, borders)
        frames[:] = 0
        ended = [env_id for env_id in env_ids if not self.oracle.is_open[env_id]]
        if ended:
            self.begin_anew(ended)

    def begin_anew(self, env_ids: list[int]) -> None:
        frames = self.new_frames(len(env_ids))
        self.memory.begin(frames, env_ids)
        self.oracle.begin(frames, env_ids)

    def new_frames(self, count: int) -> np.ndarray:
        """The background with a changed patch, and now and then noise all over."""
        frames = np.repeat(self.background[None], count, axis=0)
        for frame in frames:
            if self.random.random() < 0.1:
                frame[...] = self.random.integers(0, 256, self.shape)
            else:
                pixels = self.random.integers(0, frame.size, 1 + frame.size // 50)
                frame.reshape(-1)[pixels] = self.random.integers(0, 256, len(pixels))
        return frames


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_every_sampleable_transition_is_what_was_acted_on_after_any_operations(storage, tmp_path):
    machine = type("Machine", (MemoryMachine,), {"storage": storage, "save_folder": tmp_path / "memory"})

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2 * settings.default.max_examples // 5,
            stateful_step_count=18,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )

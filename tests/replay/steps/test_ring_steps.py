"""RingSteps: indices, slots and windows, without frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import DamagedDataError
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings, env_arrays, restore_env_arrays
from oracles.listed_steps import FramedSteps


class Begun(FramedSteps):
    """A ring in which all environments have begun an episode."""

    def __init__(self, capacity: int, num_envs: int, stack: int, segment_frames: int = 1) -> None:
        settings = StepSettings(capacity, num_envs, stack, ActionSpec.from_space(2), 0.99, segment_frames)
        super().__init__(RingSteps(settings), segment_frames)
        self.env_ids = list(range(num_envs))
        self.begin(self.env_ids)

    def step(self, count: int = 1, has_ended: np.ndarray | bool = False) -> None:
        """Append ``count`` steps of each environment."""
        zeros = np.zeros(len(self.env_ids), np.int64)
        for _ in range(count):
            self.append(self.env_ids, zeros, zeros, np.broadcast_to(has_ended, len(self.env_ids)).copy())


def no_blocks(key: tuple[int, int]) -> None:
    return None


def test_a_window_has_the_history_of_its_episode_and_the_next_frame():
    ring = Begun(10, 1, stack=3)
    ring.step(5)

    windows = ring.step_store.resolve_steps(np.arange(5), with_extras=False)[0]

    assert [1, 2, 3, 4, 5] == windows.last_positions.tolist()
    assert [2, 3, 4, 4, 4] == windows.counts.tolist()


def test_positions_continue_across_episodes_and_past_32_bits():
    ring = Begun(10, 2, stack=2)
    step_store, fields = ring.step_store, ("newest_positions", "episode_starts", "run_starts")
    moved = {f"steps.{name}": env_arrays(step_store)[f"steps.{name}"] + 2**32 - 3 for name in fields}
    restore_env_arrays(step_store, moved)
    step_store.restore_starts(np.array([1, 1]), step_store.episode_starts.copy())
    ring.step(6)

    windows = step_store.resolve_steps(np.arange(2, 12), with_extras=False)[0]

    first = 2**32 - 3
    assert [first + 2 + row // 2 for row in range(10)] == windows.last_positions.tolist()
    step_store.check()


@pytest.mark.parametrize("segment_frames", [1, 3, 16])
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_needed_frames_are_never_evicted_and_others_within_a_segment(stack, segment_frames):
    ring = Begun(7, 2, stack, segment_frames)
    step_store = ring.step_store
    for number in range(120):
        ring.step(has_ended=np.array([number % 3 == 0, number % 5 == 0]))
        ring.begin(np.flatnonzero(~step_store.is_open).tolist())

        windows, _ = step_store.resolve(np.arange(step_store.oldest, step_store.next_index), with_extras=False)
        first_positions = windows.last_positions - windows.counts + 1
        for env_id in (0, 1):
            needed = first_positions[windows.env_ids == env_id]
            first_stored = ring.storage.first_position(env_id)
            assert (needed >= first_stored).all()
            max_delay = segment_frames + stack + 1  # a short history, and the frame that ended an episode
            assert needed.size == 0 or needed.min() - first_stored < max_delay + segment_frames


def test_check_names_the_broken_rule():
    ring = Begun(5, 1, stack=2)
    ring.step(3)
    restore_env_arrays(ring.step_store, {"steps.newest_positions": ring.step_store.newest_positions - 1})

    with pytest.raises(AssertionError, match="references a frame that was never stored"):
        ring.step_store.check()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps.env_id", np.array([0, 0, 1], np.uint8)),
        ("steps.env_id", np.zeros(2, np.uint8)),
        ("steps.span", np.array([0, 2**40])),
        ("steps.span", np.array([-3, 0])),
    ],
)
def test_an_impossible_state_is_refused(name, value):
    ring = Begun(5, 1, stack=2)
    ring.step(3)

    with pytest.raises(DamagedDataError, match="load an older save"):
        Begun(5, 1, stack=2).step_store.restore(ring.step_store.state() | {name: value}, no_blocks)


def test_each_eviction_frees_a_segment_while_one_is_sealed():
    ring = Begun(100, 1, stack=3, segment_frames=8)
    ring.step(30)

    frames = [ring.core.evict_next() for _ in range(5)]

    # Frames 0 to 30: segments 0 to 2 are sealed. Transition 10 is the first that references no frame below 8.
    assert [[(0, 0, 8)], [(0, 0, 16)], [(0, 0, 24)], [], []] == frames
    assert list(range(26, 30)) == ring.step_store.sampleable_indices().tolist()
    ring.step_store.check()


def test_a_full_ring_evicts_frames_after_those_that_the_budget_evicted():
    ring = Begun(20, 1, stack=1, segment_frames=4)
    ring.step(20)
    assert [(0, 0, 4)] == ring.core.evict_next()

    ring.step(8)

    assert 8 == ring.storage.first_position(0)


def test_a_cut_off_episode_accepts_no_steps_until_the_next_begin():
    ring = Begun(10, 2, stack=2)
    ring.step()
    ring.core.close_episodes()

    two_frames = np.zeros((2, 2, 1, 1), np.uint8)
    step = [0, 1], [0, 0], [0.0, 0.0], [False] * 2, [False] * 2, (two_frames,), None, True
    assert ring.core.plan_append(*step) is None
    assert [0, 1] == ring.step_store.sampleable_indices().tolist()
    ring.begin([0, 1])
    ring.step()
    assert [2, 2, 2, 2] == ring.step_store.resolve_steps(np.arange(4), with_extras=False)[0].counts.tolist()

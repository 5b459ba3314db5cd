"""RingSteps: indices, slots and windows, without frames."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import DamagedDataError
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings, env_arrays, restore_env_arrays
from oracles.listed_steps import append


def begun(capacity: int, num_envs: int, stack: int, segment_frames: int = 1) -> RingSteps:
    step_store = RingSteps(StepSettings(capacity, num_envs, stack, ActionSpec.from_space(2), 0.99, segment_frames))
    step_store.begin(np.arange(num_envs))
    return step_store


def step(step_store: RingSteps, has_ended: np.ndarray | bool = False) -> list[tuple[int, int, int]]:
    """Append one step of each environment; return the frames that it made unreferenced."""
    count = step_store.num_envs
    zeros, ended = np.zeros(count, np.int64), np.broadcast_to(has_ended, count).copy()
    return append(step_store, list(range(count)), zeros, zeros, ended)


def no_blocks(key: tuple[int, int]) -> None:
    return None


def test_a_window_has_the_history_of_its_episode_and_the_next_frame():
    step_store = begun(10, 1, stack=3)
    for _ in range(5):
        step(step_store)

    windows = step_store.resolve_steps(np.arange(5), with_extras=False)[0]

    assert [1, 2, 3, 4, 5] == windows.last_positions.tolist()
    assert [2, 3, 4, 4, 4] == windows.counts.tolist()


def test_positions_continue_across_episodes_and_past_32_bits():
    step_store = begun(10, 2, stack=2)
    fields = "newest_positions", "episode_starts", "run_starts"
    moved = {f"steps.{name}": env_arrays(step_store)[f"steps.{name}"] + 2**32 - 3 for name in fields}
    restore_env_arrays(step_store, moved)
    step_store.restore_starts(np.array([1, 1]), step_store.episode_starts.copy())
    for _ in range(6):
        step(step_store)

    windows = step_store.resolve_steps(np.arange(2, 12), with_extras=False)[0]

    first = 2**32 - 3
    assert [first + 2 + row // 2 for row in range(10)] == windows.last_positions.tolist()
    step_store.check()


@pytest.mark.parametrize("segment_frames", [1, 3, 16])
@pytest.mark.parametrize("stack", [1, 2, 4])
def test_unreferenced_frames_are_never_referenced_and_are_reported_within_a_segment(stack, segment_frames):
    step_store = begun(7, 2, stack, segment_frames)
    unreferenced_before = [0, 0]
    for number in range(120):
        for env_id, first, position in step(step_store, np.array([number % 3 == 0, number % 5 == 0])):
            assert 0 == first
            assert (
                unreferenced_before[env_id] // segment_frames < position // segment_frames
            )  # each segment is reported once
            unreferenced_before[env_id] = position
        step_store.begin(np.flatnonzero(~step_store.is_open))

        windows, _ = step_store.resolve(np.arange(step_store.oldest, step_store.next_index), with_extras=False)
        first_positions = windows.last_positions - windows.counts + 1
        for env_id in (0, 1):
            needed = first_positions[windows.env_ids == env_id]
            assert (needed >= unreferenced_before[env_id]).all()
            max_delay = segment_frames + stack + 1  # a short history, and the frame that ended an episode
            assert needed.size == 0 or needed.min() - unreferenced_before[env_id] < max_delay + segment_frames


def test_check_names_the_broken_rule():
    step_store = begun(5, 1, stack=2)
    for _ in range(3):
        step(step_store)
    restore_env_arrays(step_store, {"steps.newest_positions": step_store.newest_positions - 1})

    with pytest.raises(AssertionError, match="references a frame that was never stored"):
        step_store.check()


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
    step_store = begun(5, 1, stack=2)
    for _ in range(3):
        step(step_store)

    with pytest.raises(DamagedDataError, match="load an older save"):
        begun(5, 1, stack=2).restore(step_store.state() | {name: value}, no_blocks)


def test_each_eviction_frees_a_segment_while_one_is_sealed():
    step_store = begun(100, 1, stack=3, segment_frames=8)
    for _ in range(30):
        step(step_store)

    frames = [step_store.evict_next() for _ in range(5)]

    # Frames 0 to 30: segments 0 to 2 are sealed. Transition 10 is the first that references no frame below 8.
    assert [[(0, 0, 8)], [(0, 0, 16)], [(0, 0, 24)], [], []] == frames
    assert list(range(26, 30)) == step_store.sampleable_indices().tolist()
    step_store.check()


def test_frames_evicted_by_the_budget_are_not_reported_again_when_the_ring_is_full():
    step_store = begun(20, 1, stack=1, segment_frames=4)
    for _ in range(20):
        step(step_store)
    step_store.evict_next()

    named = [triple for _ in range(8) for triple in step(step_store)]

    assert [(0, 0, 8)] == named


def test_a_cut_off_episode_accepts_no_steps_until_the_next_begin():
    step_store = begun(10, 2, stack=2)
    step(step_store)
    step_store.close_episodes()

    assert step_store.append([0, 1], [0, 0], [0.0, 0.0], [False] * 2, [False] * 2) is None
    assert [0, 1] == step_store.sampleable_indices().tolist()
    step_store.begin(np.arange(2))
    assert [] == step(step_store)
    assert [2, 2, 2, 2] == step_store.resolve_steps(np.arange(4), with_extras=False)[0].counts.tolist()

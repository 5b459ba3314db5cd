"""The pages of evicted steps go back to the system, for a memory with a budget."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings
from oracles.listed_steps import FramedSteps

ACTION = ActionSpec.from_space(4)


@pytest.mark.parametrize("num_slots", [1, 7, 316, 1000, 5000])
def test_releasing_pages_never_changes_stored_steps(num_slots):
    random = np.random.default_rng(num_slots)
    ring = RingSteps(StepSettings(num_slots, 1, 1, ACTION, releases_pages=True))
    played = FramedSteps(ring, segment_frames=1)
    played.begin([0])
    rewards, frame = [], (np.zeros((1, 1, 1), np.uint8),)
    for _ in range(300):
        for _ in range(int(random.integers(1, max(2, num_slots // 16)))):
            reward = float(random.integers(2**20))
            played.core.plan_append([0], [len(rewards) % 4], [reward], [False], [False], frame, None)
            played.core.apply()
            rewards.append(reward)
        while random.random() < 0.5:
            played.core.evict_next()

        stored = np.arange(ring.oldest, ring.next_index)
        fields = ring.resolve_steps(stored)[1]

        assert rewards[ring.oldest :] == fields.reward.tolist()
        np.testing.assert_array_equal(stored % 4, fields.action)
        assert len(stored) * 12 <= ring.nbytes


THREE_TIMES_AROUND = """
import numpy as np
from framestow._core import Core
from framestow.frames.frame_spec import FrameSpec
from framestow.process import resident_bytes
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.replay.steps.ring_steps import RingSteps
from framestow.replay.steps.step_store import StepSettings
from framestow.storage.frame_storage import FrameStorage

HELD, SLOTS = 10_000, 1_000_000
settings = StepSettings(SLOTS, 1, 1, ActionSpec.from_space(4), segment_frames=1000, releases_pages=True)
ring = RingSteps(settings)
spec = FrameSpec((1, 1))
frames = FrameStorage(spec, 1, "raw", frames_per_segment=1000)
core = Core(ring, frames, ObservationLayout.of_frames(spec, 1), "zeros")
one = np.zeros((1, 1, 1), np.uint8),
core.plan_begin(one, [0])
core.apply()
before, most, counted = resident_bytes(), 0, 0
for step in range(3 * SLOTS // 4):
    core.plan_append([0], [0], [0.0], [False], [False], one, None)
    core.apply()
    if ring.next_index - ring.oldest > HELD:
        core.evict_next()
    if step % 10_000 == 0:
        most, counted = max(most, resident_bytes() - before), max(counted, ring.nbytes)
print(most, counted)
"""


@pytest.mark.skipif("sys.platform != 'linux'", reason="other systems do not release written pages")
def test_a_large_ring_takes_only_the_memory_of_its_stored_steps():
    result = subprocess.run([sys.executable, "-c", THREE_TIMES_AROUND], capture_output=True, text=True, check=True)
    most, counted = map(int, result.stdout.split())

    assert 9_000 * 12 <= counted <= 11_000 * 12 + 2 * 4096
    assert most < 1_000_000  # of 9,000,000 bytes that were written

"""A memory that takes packed segments over has the steps that it would have from single frames, whole or not at all."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from distributed.env_steps import SHAPE, NumberedSteps, memory
from framestow import FrameSpec, ReplayMemory
from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED
from framestow.errors import DamagedDataError, InvalidStepError
from framestow.replay.step_checks import SegmentSteps
from oracles.bordered_steps import append_with_borders
from oracles.ctrl_c import ctrl_c_at_line
from oracles.segment_codec import SegmentCodec

LENGTH = 8  # frames of a segment


class Packer:
    """Takes the steps of one environment, as a memory does, and packs them in segments; every 7th is a border."""

    def __init__(self, length: int, has_extras: bool) -> None:
        self.length, self.has_extras = length, has_extras
        self.frames, self.bits, self.actions, self.rewards = [], [], [], []

    def begin(self, frame: np.ndarray, _env_ids: Any) -> None:
        self.frames.append(frame[0]), self.bits.append(BEGINS_EPISODE)

    def append(self, actions, rewards, terminated, truncated, frame, _env_ids) -> None:
        border = BORDER if len(self.actions) % 7 == 3 else 0
        bits = terminated[0] * TERMINATED | truncated[0] * TRUNCATED | border
        self.frames.append(frame[0]), self.bits.append(bits)
        self.actions.append(actions[0]), self.rewards.append(rewards[0])

    def segments(self) -> list[tuple[bytes, SegmentSteps]]:
        packed, row = [], 0
        for first in range(0, len(self.frames) - self.length + 1, self.length):
            bits = np.array(self.bits[first : first + self.length], np.uint8)
            rows = slice(row, row := row + int((bits != BEGINS_EPISODE).sum()))
            actions, rewards = np.array(self.actions[rows], np.uint8), np.array(self.rewards[rows], np.float32)
            frames = np.stack(self.frames[first : first + self.length])
            extras = {"logit": rewards / 8} if self.has_extras else None
            packed.append((SegmentCodec(FrameSpec(SHAPE)).pack(frames), SegmentSteps(bits, actions, rewards, extras)))
        return packed


def packed(env_id: int, num_steps: int, length: int = LENGTH, has_extras: bool = False):
    """Return the whole segments of an environment's first steps."""
    packer = Packer(length, has_extras)
    NumberedSteps(env_id + 1).play(packer, env_id, num_steps)
    return packer.segments()


def play_singly(target: ReplayMemory, env_id: int, segment: bytes, steps: SegmentSteps) -> None:
    """Store the frames of a segment one by one."""
    frames = SegmentCodec(FrameSpec(SHAPE)).unpack(segment)
    for frame, step, bits in zip(frames, steps.each(), steps.bits, strict=True):
        if step is None:
            target.begin(frame[None], [env_id])
        else:
            fields = step.actions, step.rewards, step.terminated, step.truncated, frame[None]
            append_with_borders(target, fields, [env_id], np.array([bits & BORDER > 0]), step.extras)


def everything_in(target: ReplayMemory) -> dict[str, np.ndarray]:
    """Return all steps, frames, priorities and stacks of a memory, and where its frames are stored."""
    target.inner.parts.check()
    parts, batch = target.inner.parts, target.get(target.sampleable_indices())
    positions = [parts.frames.stored_positions(env_id) for env_id in range(target.num_envs)]
    fields = {name: getattr(batch, name) for name in ("observation", "next_observation", "discount")}
    return {
        **parts.steps.state(),
        **fields,
        "slots": parts.steps.slots_of(batch.index),
        "stacks": target.observations(),
        "positions": np.array([(each.start, each.stop) for each in positions]),
    }


def assert_equal(expected: ReplayMemory, actual: ReplayMemory) -> None:
    ours = everything_in(actual)
    for name, values in everything_in(expected).items():
        np.testing.assert_array_equal(values, ours[name], name)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_step": 3},
        {"n_step": 3, "capacity": 60},  # full after a third
        {"capacity": 60},
        {"capacity": 8, "num_envs": 1},
        {"stack": 1, "capacity": 60},
        {"stack": 12, "stack_padding": "zeros", "capacity": 100},  # longer than a segment
        {"frames_per_segment": 1, "capacity": 60},
        {"extras": {"logit": np.float32}},
    ],
    ids=str,
)
def test_packed_segments_give_the_memory_that_single_steps_give(settings):
    settings = {"num_envs": 2, "frames_per_segment": LENGTH} | settings
    of_segments, of_steps = memory(**settings), memory(**settings)
    length, has_extras = settings["frames_per_segment"], "extras" in settings
    segments_by_env = [packed(env_id, 130, length, has_extras) for env_id in range(settings["num_envs"])]
    if of_steps.stack == 1:  # every next observation is its observation shifted by one frame
        segments_by_env = [
            [(segment, dataclasses.replace(steps, bits=steps.bits & ~np.uint8(BORDER))) for segment, steps in segments]
            for segments in segments_by_env
        ]

    for turn in range(min(map(len, segments_by_env))):
        for env_id in range(len(segments_by_env)) if turn % 3 else reversed(range(len(segments_by_env))):
            segment, steps = segments_by_env[env_id][turn]
            assert of_segments.inner.takes_segments(env_id)
            of_segments.inner.append_segment(env_id, segment, steps)
            play_singly(of_steps, env_id, segment, steps)
        if turn % 4 == 0:
            assert_equal(of_steps, of_segments)

    for target in (of_segments, of_steps):  # single steps continue the open episode
        is_open, extras = target.open_episodes[0], {"logit": [0.5]} if has_extras else None
        if not is_open:
            target.begin(np.zeros((1, *SHAPE), np.uint8), [0])
        target.append([1], [0.5], [False], [False], np.ones((1, *SHAPE), np.uint8), [0], extras)
    assert_equal(of_steps, of_segments)


def test_a_memory_that_has_no_room_for_a_segment_takes_single_steps():
    small, large = (memory(capacity=capacity, frames_per_segment=LENGTH) for capacity in (7, 8))

    assert not small.inner.takes_segments(0)
    assert large.inner.takes_segments(0)
    large.inner.append_segment(0, *packed(0, 20)[0])
    assert large.inner.takes_segments(0)
    large.begin(np.zeros((1, *SHAPE), np.uint8))
    assert not large.inner.takes_segments(0)  # within a segment


def test_a_segment_that_is_refused_changes_nothing():
    settings = {"frames_per_segment": LENGTH, "capacity": 10}  # full
    target, untouched = memory(**settings), memory(**settings)
    (segment, steps), (next_segment, next_steps) = packed(0, 20)[:2]
    for each in (target, untouched):
        each.inner.append_segment(0, segment, steps)

    for offset in range(len(next_segment)):
        damaged = bytearray(next_segment)
        damaged[offset] ^= 1 << offset % 8
        with pytest.raises(DamagedDataError):
            target.inner.append_segment(0, bytes(damaged), next_steps)
    shorter = SegmentCodec(FrameSpec(SHAPE)).pack(np.zeros((LENGTH - 1, *SHAPE), np.uint8))
    with pytest.raises(DamagedDataError, match="segment has 7 frames: its steps belong to 8"):
        target.inner.append_segment(0, shorter, next_steps)
    with pytest.raises(InvalidStepError, match="frame 0 of 8 ends a step, but no episode is open"):
        memory(**settings).inner.append_segment(0, next_segment, next_steps)
    for wrong, message in (
        ({"bits": next_steps.bits | 32}, "bits of frame 0 are 32: a frame begins an episode"),
        (
            {"bits": np.full(LENGTH, BEGINS_EPISODE | BORDER, np.uint8)},
            "bits of frame 0 are 24: a frame begins an episode",
        ),
        ({"rewards": next_steps.rewards * np.inf}, "rewards must be finite in float32"),
        ({"actions": next_steps.actions + 99}, "action"),
        ({"extras": {"logit": next_steps.rewards}}, "extras"),
    ):
        with pytest.raises(InvalidStepError, match=message):
            target.inner.append_segment(0, next_segment, dataclasses.replace(next_steps, **wrong))

    assert_equal(untouched, target)
    for each in (target, untouched):
        each.inner.append_segment(0, next_segment, next_steps)
    assert_equal(untouched, target)


def test_ctrl_c_at_any_line_stores_a_segment_whole_or_not_at_all():
    settings = {"frames_per_segment": LENGTH, "capacity": 40}
    given = packed(0, 70)
    outcomes, is_interrupted = [], True
    while is_interrupted:
        target = memory(**settings)
        for segment, steps in given[:-2]:
            target.inner.append_segment(0, segment, steps)
        newest = target.inner.frames.stored_positions(0).stop
        try:
            with ctrl_c_at_line(len(outcomes) + 1):
                target.inner.append_segment(0, *given[-2])
            is_interrupted = False
        except KeyboardInterrupt:
            outcomes.append(target.inner.frames.stored_positions(0).stop > newest)
        everything_in(target)
        if is_interrupted and not outcomes[-1]:
            target.inner.append_segment(0, *given[-2])
        target.inner.append_segment(0, *given[-1])

        rewards = target.get(target.sampleable_indices()).reward.astype(int).tolist()
        last = sum(steps.num_steps for _, steps in given)
        assert rewards[-LENGTH:] == list(range(last - LENGTH, last))
        assert len(set(rewards)) == len(rewards)
        everything_in(target)

    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) >= 3
    assert outcomes.count(True) >= 1

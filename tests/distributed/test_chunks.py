"""Chunks between a writer and a shard: lossless, stored once, and never with a stack that the policy did not see."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from distributed.env_steps import (
    DISCOUNT,
    SHAPE,
    STACK,
    NumberedSteps,
    arguments,
    frame_of,
    local_replay,
    memory,
    priorities_in,
)
from distributed.recorded_calls import RecordedCalls
from framestow import Prioritized
from framestow._core import BEGINS_EPISODE, TRUNCATED
from framestow.distributed.shard import Shard, ShardSettings, chunk_log_path
from framestow.distributed.writer import ShardWriter, WriterSettings, compute_td_errors
from framestow.errors import ActorLostError, DamagedDataError, InvalidStepError
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.step_checks import SegmentSteps
from oracles.hostile_folders import KINDS, Outside, bounded

LENGTH = 8  # frames of a segment


def shard_and_writer(directory=None, num_envs=1, **settings):
    """Return calls to one shard, and a writer for it."""
    given = arguments(num_envs=num_envs, frames_per_segment=LENGTH, **settings)
    priorities = {} if isinstance(given.pop("sampler", None), Prioritized) else None
    one = memory(**{name: value for name, value in given.items() if name != "seed"}, seed=0)

    def make(num_restarts: int) -> Shard:
        folder = directory and directory / str(num_restarts) / "shard-0"
        shard = ShardSettings(one.inner.settings, given["seed"], priorities, folder, flush_every=1e9)
        return Shard(shard, num_restarts)

    calls = RecordedCalls(make)
    return calls, new_writer(calls, one.inner.settings, num_envs)


def kill(calls, directory) -> None:
    """Restart the shard from a copy of its files, which is what kill -9 leaves."""
    shutil.copytree(directory / "0", directory / "1")
    calls.objects[0].close()
    calls.replace(0)


def new_writer(calls, settings: MemorySettings, num_envs: int = 1) -> ShardWriter:
    return ShardWriter(calls, WriterSettings(settings, tuple(range(num_envs)), give_up_s=0.5))


def check_all(shard: Shard, num_envs: int = 1) -> list[int]:
    """Raise unless every transition is the one that was played; return their rewards in order."""
    shard.memory.inner.parts.check()
    batch = shard.memory.get(shard.memory.sampleable_indices())
    oracle, steps = memory(capacity=10_000, num_envs=num_envs), NumberedSteps(num_envs)
    for env_id in range(num_envs):
        steps.play(oracle, env_id, 300)
    expected = oracle.get(oracle.sampleable_indices())
    places = {reward: place for place, reward in enumerate(expected.reward.tolist())}
    chosen = [places[reward] for reward in batch.reward.tolist()]
    for name in ("observation", "next_observation", "action", "terminated"):
        np.testing.assert_array_equal(getattr(expected, name)[chosen], getattr(batch, name), name)
    return batch.reward.astype(int).tolist()


def test_full_chunks_are_stored_as_the_segments_that_were_sent():
    calls, writer = shard_and_writer()

    NumberedSteps().play(writer, 0, 50)

    sent = [chunk.segments[0] for chunks in calls.sent for chunk in chunks]
    stored = [calls.objects[0].memory.inner.frames.segment(0, number) for number in range(len(sent))]
    assert len(sent) == 6
    assert sent == stored


def test_a_chunk_after_a_flush_ends_where_the_segment_does():
    calls, writer = shard_and_writer()
    steps = NumberedSteps()

    steps.play(writer, 0, 2)  # with the first frame, 3 frames
    writer.flush()
    steps.play(writer, 0, 30)

    assert [3, 5, 8, 8] == [chunk.num_frames for chunks in calls.sent for chunk in chunks][:4]


def test_a_chunk_that_is_sent_twice_is_stored_once():
    calls, writer = shard_and_writer()
    calls.lost_answers = {1, 3}

    NumberedSteps().play(writer, 0, 100)
    writer.flush()

    assert list(range(100)) == check_all(calls.objects[0])
    assert 100 == calls.objects[0].answer().inserted
    assert calls.statuses.count("duplicate") >= 2


def test_a_shard_that_lost_everything_gets_the_stack_before_the_next_chunk():
    calls, writer = shard_and_writer()
    steps = NumberedSteps()
    steps.play(writer, 0, 60)

    calls.replace(0)
    steps.play(writer, 0, 60)
    writer.flush()

    rewards = check_all(calls.objects[0])
    assert rewards == list(range(rewards[0], 120))
    assert rewards[0] <= 60
    assert calls.objects[0].answer().inserted == len(rewards)
    sent = [chunk for chunks in calls.sent for chunk in chunks]
    sent_again = len(sent) - len({chunk.first_frame for chunk in sent})
    assert sent_again == len([chunk for chunk in sent if chunk.context]) > 0


def test_chunks_end_at_segments_again_after_a_shard_lost_everything():
    calls, writer = shard_and_writer()
    steps = NumberedSteps()
    steps.play(writer, 0, 60)
    calls.replace(0)

    steps.play(writer, 0, 100)

    memory = calls.objects[0].memory
    newest = [chunk for chunks in calls.sent for chunk in chunks][-1]
    assert newest.num_frames == LENGTH
    assert memory.inner.frames.stored_positions(0).stop % LENGTH == 0


@pytest.mark.parametrize(
    "space", [Discrete(3, start=7), MultiDiscrete([2, 3], start=[5, 6]), MultiBinary(3), Box(1, 2, (2,), np.float64)]
)
def test_a_gap_is_stored_whatever_actions_and_extras_a_step_has(space):
    calls, writer = shard_and_writer(action_space=space, extras={"number": (np.int16, (2,))})
    space.seed(0)
    actions = [space.sample() for _ in range(40)]
    writer.begin(np.zeros((1, *SHAPE), np.uint8))

    for step, action in enumerate(actions):
        if step == 20:
            calls.replace(0)
        fields = {"number": np.full((1, 2), step, np.int16)}
        writer.append([action], [step], [False], [False], frame_of(0, step)[None], extras=fields)
    writer.flush()

    stored = calls.objects[0].memory
    batch = stored.get(stored.sampleable_indices())
    rewards = batch.reward.astype(int).tolist()
    assert 0 < rewards[0] < 20
    assert rewards == list(range(rewards[0], 40))
    np.testing.assert_array_equal(np.array(actions)[rewards], batch.action)
    np.testing.assert_array_equal(np.repeat(rewards, 2).reshape(-1, 2), batch.extras["number"])


def test_a_chunk_that_begins_with_an_episode_comes_after_the_one_before_it():
    calls, writer = shard_and_writer()
    calls.lost_calls = {0}  # chunk 1, which begins with an episode, arrives first

    for number in range(2):
        writer.begin(frame_of(0, number)[None])
        for step in range(LENGTH - 1):
            writer.append([0], [LENGTH * number + step], [step == LENGTH - 2], [False], frame_of(0, step)[None])
    writer.flush()

    stored = calls.objects[0].memory
    assert [*range(7), *range(8, 15)] == stored.get(stored.sampleable_indices()).reward.astype(int).tolist()


def test_a_chunk_that_a_killed_disk_shard_has_flushed_is_not_stored_again(tmp_path):
    calls, writer = shard_and_writer(tmp_path)
    steps = NumberedSteps()
    steps.play(writer, 0, 40)
    calls.lost_answers = {len(calls.sent)}
    steps.play(writer, 0, 9)
    calls.objects[0].flush()

    kill(calls, tmp_path)
    steps.play(writer, 0, 20)
    writer.flush()

    assert list(range(69)) == check_all(calls.objects[0])
    assert 1 == calls.statuses.count("duplicate")
    calls.objects[0].close()


def test_a_log_of_chunks_that_was_cut_off_is_read_up_to_its_last_record(tmp_path):
    calls, writer = shard_and_writer(tmp_path)
    steps = NumberedSteps()
    steps.play(writer, 0, 40)
    calls.objects[0].flush()
    log = chunk_log_path(tmp_path / "0" / "shard-0")
    log.write_bytes(log.read_bytes()[:-5])

    kill(calls, tmp_path)
    steps.play(writer, 0, 40)
    writer.flush()

    rewards = check_all(calls.objects[0])
    assert rewards[-40:] == list(range(40, 80))
    calls.objects[0].close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_of_chunks_is_read_and_written_only_if_it_is_a_file(kind, tmp_path):
    outside, log = Outside(tmp_path / "home"), chunk_log_path(tmp_path / "0" / "shard-0")
    log.parent.mkdir()
    outside.plant(kind, log)

    refused = pytest.raises(DamagedDataError, match=f"{log}: it is a ")
    with bounded(), nullcontext() if kind == "second name" else refused:
        calls, writer = shard_and_writer(tmp_path)
        NumberedSteps().play(writer, 0, 40)
        calls.objects[0].close()

    outside.check()


def test_the_episode_of_a_replaced_writer_ends_as_truncated():
    calls, first = shard_and_writer()
    settings = calls.objects[0].memory.inner.settings
    NumberedSteps().play(first, 0, 20)
    first.flush()

    second, steps = new_writer(calls, settings), NumberedSteps()
    steps.play(second, 0, 5)
    second.flush()

    stored = calls.objects[0].memory
    batch = stored.get(stored.sampleable_indices())
    assert [*range(20), *range(5)] == batch.reward.astype(int).tolist()
    assert batch.discount[19] == DISCOUNT
    np.testing.assert_array_equal(frame_of(0, 21), batch.next_observation[19, -1])  # two episodes began
    with pytest.raises(ActorLostError, match="has a newer writer: this one was replaced"):
        first.begin(np.zeros((1, *SHAPE), np.uint8)), first.flush()


def test_a_wrong_step_is_refused_by_the_writer_before_it_is_kept():
    calls, writer = shard_and_writer()
    NumberedSteps().play(writer, 0, 5)
    frame = np.zeros((1, *SHAPE), np.uint8)

    with pytest.raises(InvalidStepError, match=re.escape("reward is nan at row 0")):
        writer.append([0], [np.nan], [False], [False], frame)
    with pytest.raises(InvalidStepError, match="frames have dtype float64"):
        writer.append([0], [0.0], [False], [False], frame.astype(float))
    with pytest.raises(InvalidStepError, match="next_observation has dtype float32"):
        writer.add(writer.observations(), [0], [0.0], writer.observations().astype(np.float32), [False], [False])
    writer.flush()

    assert list(range(5)) == check_all(calls.objects[0])


@pytest.mark.parametrize("n_step", [1, 3])
def test_new_transitions_get_their_n_step_td_error_as_priority(n_step):
    calls, writer = shard_and_writer(n_step=n_step, sampler=Prioritized())
    chosen, best = np.arange(1000) % 7 + 0.5, np.arange(1000) % 11 + 3.0
    frame, rewards = np.zeros((1, *SHAPE), np.uint8), np.arange(1000) % 5
    writer.begin(frame)
    for step in range(2 * LENGTH - 1):
        writer.set_values([chosen[step]], [best[step]])
        writer.append([0], [rewards[step]], [step == 5], [False], frame)
        if step == 5:
            writer.begin(frame)
    writer.flush()

    memory = calls.objects[0].memory
    masses = priorities_in(memory)
    errors = []
    for step in range(6 - n_step):
        bootstrap = DISCOUNT**n_step * best[step + n_step]
        errors.append(sum(DISCOUNT**k * rewards[step + k] for k in range(n_step)) + bootstrap - chosen[step])
    errors += [sum(DISCOUNT**k * rewards[s + k] for k in range(6 - s)) - chosen[s] for s in range(6 - n_step, 6)]
    np.testing.assert_allclose((np.abs(errors) + 1e-6) ** 0.6, masses[:6], rtol=1e-5)


@pytest.mark.parametrize("end", [0, TRUNCATED], ids=["reset", "truncated"])
@pytest.mark.parametrize(
    ("n_step", "expected"), [(1, [1.5, 1.5, np.nan, 100.5, np.nan]), (2, [1.75, *[np.nan] * 4]), (3, [np.nan] * 5)]
)
def test_a_td_error_that_would_cross_the_cut_off_end_of_an_episode_is_unknown(n_step, expected, end):
    bits = np.array([BEGINS_EPISODE, 0, 0, end, BEGINS_EPISODE, 0, 0], np.uint8)
    steps = SegmentSteps(bits, np.zeros(5), np.array([1, 1, 1, 100, 100], np.float32))

    errors = compute_td_errors(steps, np.zeros(5), np.ones(5), n_step, discount=0.5)

    np.testing.assert_array_equal(expected, errors)


def test_a_writer_that_was_sent_to_another_process_starts_empty():
    replay = local_replay(num_envs=2, shards=2)
    writer = replay.writer([1])
    kind, (shards, settings) = writer.__reduce__()

    copy = kind(shards, settings)
    NumberedSteps(2).play(copy, 1, 5, number=0)
    copy.flush()

    assert copy.stack == STACK
    assert {1000, 1001, 1002, 1003, 1004} == set(replay_rewards(replay))


def replay_rewards(replay) -> list[int]:
    replay.group.refresh()
    return replay.sample(256).reward.astype(int).tolist()

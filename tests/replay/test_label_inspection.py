"""Inspection of a memory: episodes, returns, lengths and ages, compared with the list oracle."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.reading import episodes as episode_spans
from framestow.replay.reading.episodes import EpisodeSpans
from framestow.replay.reports.inspection import Ages, Spread, inspect_labels
from oracles.numbered_steps import SHAPE, numbered_frame, numbered_memory, play_episode
from oracles.shadowed_memory import ShadowedMemory


def random_play(memory: ShadowedMemory, num_steps: int, seed: int) -> None:
    """Play random rewards, episode ends and resets within episodes, sometimes on a part of the environments only."""
    random = np.random.default_rng(seed)
    episodes, steps = np.zeros((2, memory.num_envs), np.int64)

    def begin(env_ids):
        episodes[env_ids] += 1
        steps[env_ids] = 0
        memory.begin(np.stack([numbered_frame(env_id, episodes[env_id] % 256, 0) for env_id in env_ids]), env_ids)

    begin(np.arange(memory.num_envs))
    for _ in range(num_steps):
        env_ids = np.flatnonzero(random.random(memory.num_envs) < 0.8)
        if not len(env_ids):
            continue
        steps[env_ids] += 1
        frames = [numbered_frame(env_id, episodes[env_id] % 256, steps[env_id] % 256) for env_id in env_ids]
        terminated, truncated = random.random((2, len(env_ids))) < 0.08
        memory.append(env_ids, random.normal(size=len(env_ids)), terminated, truncated, np.stack(frames), env_ids)
        is_reset = terminated | truncated | (random.random(len(env_ids)) < 0.04)
        if is_reset.any():
            begin(env_ids[is_reset])


def spans_of_the_oracle(memory: ShadowedMemory) -> list[tuple]:
    """Environment, steps and return of each span, and whether it has its beginning, is whole, and is open."""
    oracle, spans = memory.oracle, []
    held = sorted((oracle.steps[index] for index in oracle.held), key=lambda step: id(step.sequence))
    for _, group in groupby(held, key=lambda step: id(step.sequence)):
        steps = sorted(group, key=lambda step: step.offset)
        env_id, last = steps[0].env_id, steps[-1]
        is_open = oracle.sequences[env_id] is last.sequence and oracle.is_open[env_id]
        total = sum(float(np.float32(step.reward)) for step in steps)
        has_beginning = steps[0].offset == 0
        is_whole = has_beginning and (last.terminated or last.truncated)
        spans.append((env_id, len(steps), round(total, 9), has_beginning, is_whole, is_open))
    return sorted(spans)


def inspected_spans(memory: ShadowedMemory) -> list[tuple]:
    episodes = EpisodeSpans.of(memory.inner.steps)
    columns = [episodes.spans[name].tolist() for name in ("env_id", "length", "total_reward", "has_beginning")]
    columns += [episodes.is_whole.tolist(), episodes.spans["is_open"].tolist()]
    columns[2] = [round(total, 9) for total in columns[2]]
    return sorted(zip(*columns, strict=True))


@pytest.mark.each_pair
@pytest.mark.parametrize("piece", [1, 7, 1 << 18])
@pytest.mark.parametrize("stack", [1, 2, 5])
@pytest.mark.parametrize("capacity", [50, 10_000])
def test_episode_spans_do_not_depend_on_the_pieces_that_are_read(capacity, stack, piece, monkeypatch):
    monkeypatch.setattr(episode_spans, "STEPS_PER_PIECE", piece)
    memory = ShadowedMemory(capacity, FrameSpec(SHAPE), 3, stack=stack, num_envs=3)
    for seed in range(3):
        random_play(memory, 90, seed)

        assert spans_of_the_oracle(memory) == inspected_spans(memory)


def test_each_label_has_its_episodes_returns_and_ages():
    memory = numbered_memory(1000, num_envs=3, label=["Pong", "Qbert", "Pong"])
    play_episode(memory, 0, 4, env_id=0, terminated=True)  # rewards 0 to 3
    play_episode(memory, 0, 2, env_id=2, truncated=True)
    play_episode(memory, 1, 3, env_id=2)  # open
    play_episode(memory, 0, 5, env_id=1)
    play_episode(memory, 1, 1, env_id=1, terminated=True)  # its reset cuts off the previous episode

    pong, qbert = inspect_labels(memory.inner.settings, memory.inner.steps)

    assert ("Pong", 2, 9, 12) == (pong.label, pong.num_envs, pong.transitions, pong.frames)
    assert (2, 0, 1) == (pong.whole_episodes, pong.cut_episodes, pong.open_episodes)
    assert Spread(3.5, 1.0, 6.0) == pong.returns
    assert Spread(3.0, 2.0, 4.0) == pong.lengths
    assert (
        Ages(oldest=5, median=2) == pong.ages
    )  # 3 2 1 0 on environment 0; 5 4 and, after a first frame, 2 1 0 on environment 2
    assert ("Qbert", 1, 6, 8) == (qbert.label, qbert.num_envs, qbert.transitions, qbert.frames)
    assert (1, 1, 0) == (qbert.whole_episodes, qbert.cut_episodes, qbert.open_episodes)
    assert Spread(0.0, 0.0, 0.0) == qbert.returns


def test_transitions_that_wait_for_their_return_are_counted_apart():
    memory = numbered_memory(1000, num_envs=3, n_step=4, label=["Pong", "Qbert", "Pong"])
    play_episode(memory, 0, 9, env_id=0)
    play_episode(memory, 0, 2, env_id=1)
    play_episode(memory, 0, 5, env_id=2, truncated=True)

    pong, qbert = inspect_labels(memory.inner.settings, memory.inner.steps)

    assert (6 + 5, 3) == (pong.transitions, pong.waiting)
    assert (0, 2) == (qbert.transitions, qbert.waiting)
    assert len(memory) == pong.transitions + qbert.transitions


def test_an_empty_memory_has_no_returns_and_no_ages():
    inner = numbered_memory(10).inner
    (inspected,) = inspect_labels(inner.settings, inner.steps)

    assert ("(not named)", 0, 0) == (inspected.label, inspected.transitions, inspected.frames)
    assert (None, None, None) == (inspected.returns, inspected.lengths, inspected.ages)

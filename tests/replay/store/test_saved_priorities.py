"""Priorities are saved with a memory, and transitions keep them through damage and repair."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framestow import Mixture, Prioritized, ReplayMemory, Uniform
from framestow.errors import DamagedDataError, NothingToSampleError
from framestow.replay.store.format import Arrays, Commit
from framestow.replay.store.repair import repair_store
from oracles.ctrl_c import ctrl_c_at_line
from oracles.hostile_stores import rewrite
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode
from oracles.store_files import log_file


def weights_of(memory: ReplayMemory) -> dict[int, float]:
    """Return the saved weight of each stored transition."""
    _, arrays = memory.inner.parts.notified_sampler.state()
    names = [name.removesuffix("runs") for name in arrays if name.endswith("runs")]
    spans, weights = arrays[f"{names[0]}runs"].tolist(), arrays[f"{names[0]}weights"].tolist()
    return dict(zip([index for first, count in spans for index in range(first, first + count)], weights, strict=True))


def exact() -> Prioritized:
    return Prioritized(alpha=1.0, epsilon=0.0)


def weight_of(index: int) -> float:
    return 1.0 + index % 64


def played(sampler=None, num_episodes=50, **settings) -> ReplayMemory:
    """Record episodes of 20 steps on two tracks, with a different priority for each transition."""
    memory = numbered_memory(1000, num_envs=2, sampler=sampler or exact(), frames_per_segment=16, **settings)
    play_on(memory, 0, num_episodes)
    indices = memory.sampleable_indices()
    memory.update_priorities(indices, [weight_of(index) for index in indices.tolist()])
    return memory


def play_on(memory: ReplayMemory, first: int, before: int) -> None:
    for episode in range(first, before):
        play_episode(memory, episode, length=20, env_id=episode % 2, truncated=True)


def learn(memory: ReplayMemory, seed: int) -> list[list[int]]:
    """Play, sample and update in turn; return the sampled indices."""
    random, drawn = np.random.default_rng(seed), []
    for episode in range(100, 150):
        play_episode(memory, episode, length=5, env_id=episode % 2)
        batch = memory.sample(16)
        drawn.append(batch.index.tolist())
        memory.update_priorities(batch.index, random.normal(size=16))
    return drawn


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_loaded_memory_learns_like_one_that_was_never_saved(retention, tmp_path):
    sampler = Prioritized(alpha=0.7, beta=0.3, final_beta=0.9, annealed_over=70)
    memory = played(sampler, retention=retention, n_step=2)
    learn(memory, seed=1)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")

    expected = learn(memory, seed=2)

    assert loaded.sampler.alpha == 0.7
    assert loaded.sampler.current_beta < 0.9
    assert expected == learn(loaded, seed=2)
    assert weights_of(memory) == weights_of(loaded)


@pytest.mark.parametrize(("alpha", "power"), [(0.5, 0.5), (2.0, 2.0), (1.0, 1.0), (0.0, 0.0)])
def test_loading_with_another_alpha_uses_it(alpha, power, tmp_path):
    memory = played()
    memory.update_priorities([memory.sampleable_indices()[3]], [0.0])
    memory.save(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory", sampler=Prioritized(alpha=alpha, epsilon=0.0))

    expected = {index: weight**power if weight else 0.0 for index, weight in weights_of(memory).items()}
    assert expected.keys() == weights_of(loaded).keys()
    np.testing.assert_allclose(list(weights_of(loaded).values()), list(expected.values()), rtol=1e-6)
    play_episode(loaded, 99, length=1)
    assert weights_of(loaded)[int(loaded.sampleable_indices()[-1])] == pytest.approx(64.0**power)


def test_another_sampler_starts_with_equal_priorities_and_a_part_of_a_mixture_keeps_its_own(tmp_path):
    memory = played(Mixture((Uniform(), 1), (exact(), 1)))
    memory.save(tmp_path / "memory")

    alone = ReplayMemory.load(tmp_path / "memory", sampler=exact())
    mixed = ReplayMemory.load(tmp_path / "memory")

    assert dict.fromkeys(memory.sampleable_indices().tolist(), 1.0) == weights_of(alone)
    assert weights_of(memory) == weights_of(mixed)
    assert memory.sample(10).index.tolist() == mixed.sample(10).index.tolist()


def test_each_flush_saves_priorities_and_resuming_uses_the_saved_sampler(tmp_path):
    with played(directory=tmp_path / "memory", flush_every=None) as memory:
        memory.flush()
        indices = memory.sampleable_indices()
        memory.update_priorities(indices[:5], np.full(5, 0.125))
        memory.flush()
        memory.update_priorities(indices[5:9], np.full(4, 0.25))
        expected = weights_of(memory)

    with numbered_memory(1000, num_envs=2, directory=tmp_path / "memory", frames_per_segment=16) as again:
        assert isinstance(again.sampler, Prioritized)
        assert expected == weights_of(again)
        play_on(again, 50, 60)
        assert weights_of(again)[int(again.sampleable_indices()[-1])] == 64.0
    opened = ReplayMemory.open(tmp_path / "memory", seed=0)
    assert isinstance(opened.sampler, Prioritized)
    assert len(opened.sample(10).index) == 10


def test_a_priority_update_alone_is_flushed(tmp_path):
    with played(directory=tmp_path / "memory", flush_every=None) as memory:
        memory.flush()
        before = memory.inner.directory._change_marker()

        memory.update_priorities([memory.sampleable_indices()[0]], [5.0])

        assert before != memory.inner.directory._change_marker()


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_the_intact_transitions_of_a_damaged_store_keep_their_priorities(retention, tmp_path):
    with played(directory=tmp_path / "memory", flush_every=None, retention=retention):
        pass
    damage_frames(tmp_path / "memory")
    opened = ReplayMemory.open(tmp_path / "memory", on_damage="skip", seed=0)
    before = len(opened)
    for _ in range(300):
        opened.sample(8)

    indices = opened.sampleable_indices().tolist()
    assert 100 < len(indices) < before
    assert {index: weight_of(index) for index in indices} == weights_of(opened)

    repair_store(tmp_path / "memory")
    repaired = ReplayMemory.load(tmp_path / "memory")
    assert {index: weight_of(index) for index in repaired.sampleable_indices().tolist()} == weights_of(repaired)
    repaired.get(repaired.sampleable_indices())


def damage_frames(folder: Path) -> None:
    log = log_file(folder, "frames")
    content = np.fromfile(log, np.uint8)
    content[np.random.default_rng(4).choice(len(content), 40, replace=False)] ^= 1
    content.tofile(log)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sampler.weights", np.float32([np.nan] * 1000)),
        ("sampler.weights", np.float32([-1.0] * 1000)),
        ("sampler.weights", np.float32([1.0] * 999)),
        ("sampler.weights", np.ones(1000)),
        ("sampler.runs", np.array([[0, 2**62]])),
        ("sampler.runs", np.array([[-5, 1000]])),
        ("sampler.runs", np.array([[0, 500], [400, 500]])),
        ("sampler.runs", np.array([[0, 1001], [2000, -1]])),
        ("sampler.runs", np.array([0, 1000])),
    ],
)
def test_impossible_priorities_are_refused(name, value, tmp_path):
    played().save(tmp_path)
    change_state(tmp_path, name, value)

    with pytest.raises(DamagedDataError, match="the files of its generation are inconsistent"):
        ReplayMemory.load(tmp_path)


def change_state(folder: Path, name: str, value: np.ndarray) -> None:
    """Replace an array in the state, with correct checksums."""

    def change(commit: Commit, arrays: Arrays) -> Commit:
        arrays[name] = value
        return commit

    rewrite(folder, change)


def test_ctrl_c_at_any_line_of_a_sample_or_an_update_loses_no_change():
    line, was_interrupted, num_interrupted = 1, True, 0
    while was_interrupted:
        memory = played(num_episodes=4)
        play_on(memory, 50, 53)
        memory.sampler = exact() if line % 2 else memory.sampler
        expected = weights_of(memory)
        play_on(memory, 53, 55)
        indices = memory.sampleable_indices()
        expected = {index: expected.get(index, max(expected.values())) for index in indices.tolist()}
        try:
            with ctrl_c_at_line(line):
                memory.sample(4)
                memory.update_priorities(indices[:3], [7.0, 8.0, 9.0])
            was_interrupted = False
        except KeyboardInterrupt:
            num_interrupted += 1
        weights = weights_of(memory)
        updated = expected | dict(zip(indices[:3].tolist(), [7.0, 8.0, 9.0], strict=True))
        assert weights in (expected, updated)
        line += 1
    assert num_interrupted > 20


def test_an_empty_memory_is_saved_with_its_sampler(tmp_path):
    memory = numbered_memory(10, sampler=Prioritized(alpha=0.3))
    memory.begin(numbered_frame(0, 0, 0)[None])
    memory.save(tmp_path)

    loaded = ReplayMemory.load(tmp_path)

    assert loaded.sampler.alpha == 0.3
    with pytest.raises(NothingToSampleError, match="the memory has no transition"):
        loaded.sample(1)

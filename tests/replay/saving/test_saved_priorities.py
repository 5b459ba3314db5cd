"""Priorities are saved with a memory, and whatever of it is left is drawn by its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from framestow import Mixture, Prioritized, ReplayMemory, Uniform
from framestow.errors import DamagedDataError, NothingToSampleError
from framestow.frames.codec import checksum
from framestow.replay.store.repair import repair_store
from framestow.replay.store.snapshot import pack_arrays, unpack_arrays
from oracles.ctrl_c import ctrl_c_at_line
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode


def weights_of(memory: ReplayMemory) -> dict[int, float]:
    """What is saved of each transition that is held."""
    _, arrays = memory._parts.notified_sampler.state()
    names = [name.removesuffix("runs") for name in arrays if name.endswith("runs")]
    runs, weights = arrays[f"{names[0]}runs"].tolist(), arrays[f"{names[0]}weights"].tolist()
    return dict(zip([index for first, count in runs for index in range(first, first + count)], weights, strict=True))


def exact() -> Prioritized:
    return Prioritized(alpha=1.0, epsilon=0.0)


def weight_of(index: int) -> float:
    return 1.0 + index % 64


def played(sampler=None, num_episodes=50, **settings) -> ReplayMemory:
    """Episodes of 20 steps on two streams, whose transitions have priorities of their own."""
    memory = numbered_memory(1000, num_envs=2, sampler=sampler or exact(), frames_per_segment=16, **settings)
    go_on(memory, 0, num_episodes)
    held = memory.sampleable_indices()
    memory.update_priorities(held, [weight_of(index) for index in held.tolist()])
    return memory


def go_on(memory: ReplayMemory, first: int, before: int) -> None:
    for episode in range(first, before):
        play_episode(memory, episode, length=20, stream=episode % 2, truncated=True)


def learn(memory: ReplayMemory, seed: int) -> list[list[int]]:
    """Play, draw and update in turn; gives what was drawn."""
    random, drawn = np.random.default_rng(seed), []
    for episode in range(100, 150):
        play_episode(memory, episode, length=5, stream=episode % 2)
        batch = memory.sample(16)
        drawn.append(batch.index.tolist())
        memory.update_priorities(batch.index, random.normal(size=16))
    return drawn


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_a_memory_that_was_saved_and_loaded_learns_as_the_one_that_was_not(retention, tmp_path):
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
def test_another_alpha_than_the_saved_one_is_taken(alpha, power, tmp_path):
    memory = played()
    memory.update_priorities([memory.sampleable_indices()[3]], [0.0])
    memory.save(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory", sampler=Prioritized(alpha=alpha, epsilon=0.0))

    expected = {index: weight**power if weight else 0.0 for index, weight in weights_of(memory).items()}
    assert expected.keys() == weights_of(loaded).keys()
    np.testing.assert_allclose(list(weights_of(loaded).values()), list(expected.values()), rtol=1e-6)
    play_episode(loaded, 99, length=1)
    assert weights_of(loaded)[int(loaded.sampleable_indices()[-1])] == pytest.approx(64.0**power)


def test_loaded_with_another_sampler_all_begins_anew_and_a_part_of_a_mixture_keeps_its_own(tmp_path):
    memory = played(Mixture((Uniform(), 1), (exact(), 1)))
    memory.save(tmp_path / "memory")

    alone = ReplayMemory.load(tmp_path / "memory", sampler=exact())
    mixed = ReplayMemory.load(tmp_path / "memory")

    assert dict.fromkeys(memory.sampleable_indices().tolist(), 1.0) == weights_of(alone)
    assert weights_of(memory) == weights_of(mixed)
    assert memory.sample(10).index.tolist() == mixed.sample(10).index.tolist()


def test_a_directory_keeps_priorities_with_each_flush_and_goes_on_with_the_sampler_it_had(tmp_path):
    with played(directory=tmp_path / "memory", flush_every=None) as memory:
        memory.flush()
        held = memory.sampleable_indices()
        memory.update_priorities(held[:5], np.full(5, 0.125))
        memory.flush()
        memory.update_priorities(held[5:9], np.full(4, 0.25))
        expected = weights_of(memory)

    with numbered_memory(1000, num_envs=2, directory=tmp_path / "memory", frames_per_segment=16) as again:
        assert isinstance(again.sampler, Prioritized)
        assert expected == weights_of(again)
        go_on(again, 50, 60)
        assert weights_of(again)[int(again.sampleable_indices()[-1])] == 64.0
    opened = ReplayMemory.open(tmp_path / "memory")
    assert isinstance(opened.sampler, Prioritized)
    assert len(opened.sample(10).index) == 10


def test_an_update_alone_is_something_to_flush(tmp_path):
    with played(directory=tmp_path / "memory", flush_every=None) as memory:
        memory.flush()
        before = memory._directory._looks()

        memory.update_priorities([memory.sampleable_indices()[0]], [5.0])

        assert before != memory._directory._looks()


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_what_a_damaged_store_still_holds_has_its_own_priorities(retention, tmp_path):
    with played(directory=tmp_path / "memory", flush_every=None, retention=retention):
        pass
    damage_frames(tmp_path / "memory")
    opened = ReplayMemory.open(tmp_path / "memory", on_damage="skip")
    before = len(opened)
    for _ in range(300):
        opened.sample(8)

    held = opened.sampleable_indices().tolist()
    assert 100 < len(held) < before
    assert {index: weight_of(index) for index in held} == weights_of(opened)

    repair_store(tmp_path / "memory")
    repaired = ReplayMemory.load(tmp_path / "memory")
    assert {index: weight_of(index) for index in repaired.sampleable_indices().tolist()} == weights_of(repaired)
    repaired.get(repaired.sampleable_indices())


def damage_frames(folder: Path) -> None:
    log = folder / "frames.000001.log"
    content = np.fromfile(log, np.uint8)
    content[np.random.default_rng(4).choice(len(content), 40, replace=False)] ^= 1
    content.tofile(log)


def test_a_state_that_is_rebuilt_from_the_logs_alone_begins_with_equal_priorities(tmp_path):
    folder = tmp_path / "memory"
    memory = numbered_memory(5000, sampler=exact(), frames_per_segment=16)
    for episode in range(120):
        play_episode(memory, episode, length=20, truncated=True)
    memory.update_priorities(memory.sampleable_indices(), memory.sampleable_indices() + 1.0)
    memory.save(folder)
    for state in folder.glob("state.*"):
        state.unlink()

    repair_store(folder)
    repaired = ReplayMemory.load(folder)

    assert len(repaired) > 1000
    assert dict.fromkeys(repaired.sampleable_indices().tolist(), 1.0) == weights_of(repaired)


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
def test_priorities_that_nobody_can_have_saved_are_refused(name, value, tmp_path):
    played().save(tmp_path)
    change_state(tmp_path, name, value)

    with pytest.raises(DamagedDataError, match="what it names does not fit together"):
        ReplayMemory.load(tmp_path)


def change_state(folder: Path, name: str, value: np.ndarray) -> None:
    """Write another array into the state file, with right checksums everywhere."""
    state, manifest = folder / "state.000001.npz", folder / "MANIFEST.000001"
    content = pack_arrays(unpack_arrays(state.read_bytes(), "") | {name: value})
    state.write_bytes(content)
    told = json.loads(manifest.read_bytes().partition(b"\n")[2])
    told["state"] |= {"bytes": len(content), "checksum": checksum(content)}
    body = json.dumps(told).encode()
    manifest.write_bytes(b"%08x\n" % checksum(body) + body)


def test_ctrl_c_at_any_line_of_a_draw_or_an_update_loses_no_change():
    line, was_interrupted, num_interrupted = 1, True, 0
    while was_interrupted:
        memory = played(num_episodes=4)
        go_on(memory, 50, 53)
        memory.sampler = exact() if line % 2 else memory.sampler
        expected = weights_of(memory)
        go_on(memory, 53, 55)
        held = memory.sampleable_indices()
        expected = {index: expected.get(index, max(expected.values())) for index in held.tolist()}
        try:
            with ctrl_c_at_line(line):
                memory.sample(4)
                memory.update_priorities(held[:3], [7.0, 8.0, 9.0])
            was_interrupted = False
        except KeyboardInterrupt:
            num_interrupted += 1
        told = weights_of(memory)
        updated = expected | dict(zip(held[:3].tolist(), [7.0, 8.0, 9.0], strict=True))
        assert told in (expected, updated)
        line += 1
    assert num_interrupted > 20


def test_a_switch_that_is_interrupted_at_any_line_leaves_either_sampler_whole():
    line, was_interrupted, outcomes = 1, True, set()
    while was_interrupted:
        memory = played(num_episodes=4)
        before, other = memory.sampler, exact()
        try:
            with ctrl_c_at_line(line):
                memory.sampler = other
            was_interrupted = False
        except KeyboardInterrupt:
            outcomes.add(memory.sampler is other)
        go_on(memory, 60, 62)
        held = memory.sampleable_indices().tolist()
        if memory.sampler is before:
            newest = held[-40:]
            assert {index: 64.0 if index in newest else weight_of(index) for index in held} == weights_of(memory)
        else:
            assert dict.fromkeys(held, 1.0) == weights_of(memory)
        line += 1
    assert outcomes == {True, False}


def test_an_empty_memory_is_saved_with_its_sampler(tmp_path):
    memory = numbered_memory(10, sampler=Prioritized(alpha=0.3))
    memory.begin(numbered_frame(0, 0, 0)[None])
    memory.save(tmp_path)

    loaded = ReplayMemory.load(tmp_path)

    assert loaded.sampler.alpha == 0.3
    with pytest.raises(NothingToSampleError, match="the memory has no transition"):
        loaded.sample(1)

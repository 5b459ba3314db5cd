"""How episodes end: termination, truncation, both, a reset in the middle."""

from __future__ import annotations

import numpy as np
import pytest

from framestow.errors import InvalidStepError
from oracles.numbered_steps import episodes_of, numbered_frame, numbered_memory, play_episode, steps_of


@pytest.fixture(params=["packed", "raw"])
def storage(request):
    return request.param


def test_a_truncated_episode_bootstraps_from_its_true_last_frame(storage):
    memory = numbered_memory(10, discount=0.9, storage=storage)
    play_episode(memory, episode=1, length=3, truncated=True)
    play_episode(memory, episode=2, length=2)

    batch = memory.get([2])

    assert [1, 1] == episodes_of(batch.next_observation[0])
    assert [2, 3] == steps_of(batch.next_observation[0])
    assert np.float32(0.9) == batch.discount[0]


def test_a_terminated_episode_does_not_bootstrap_and_still_has_its_last_frame(storage):
    memory = numbered_memory(10, storage=storage)
    play_episode(memory, episode=1, length=3, terminated=True)
    play_episode(memory, episode=2, length=2)

    batch = memory.get([2])

    assert 0.0 == batch.discount[0]
    assert [2, 3] == steps_of(batch.next_observation[0])


@pytest.mark.parametrize(
    ("terminated", "truncated", "discount"),
    [(False, False, 0.5), (True, False, 0.0), (False, True, 0.5), (True, True, 0.0)],
)
def test_all_four_combinations_of_flags_survive_and_termination_wins(terminated, truncated, discount, tmp_path):
    memory = numbered_memory(10, discount=0.5)
    play_episode(memory, episode=1, length=1, terminated=terminated, truncated=truncated)
    memory.save(tmp_path / "memory")

    for kept in (memory, type(memory).load(tmp_path / "memory")):
        batch = kept.get([0])
        actual = (bool(batch.terminated[0]), bool(batch.truncated[0]), float(batch.discount[0]))
        assert (terminated, truncated, discount) == actual


def test_nothing_crosses_a_reset_in_the_middle_of_an_episode(storage):
    memory = numbered_memory(10, stack=3, storage=storage)
    play_episode(memory, episode=1, length=2)
    play_episode(memory, episode=2, length=2)

    batch = memory.get(memory.sampleable_indices())

    assert [[1] * 3, [1] * 3, [2] * 3, [2] * 3] == [episodes_of(observation) for observation in batch.observation]
    assert [[0, 0, 1], [0, 1, 2], [0, 0, 1], [0, 1, 2]] == [steps_of(stack) for stack in batch.next_observation]
    assert (batch.discount > 0).all()


@pytest.mark.parametrize("length", [1, 2, 3, 7, 12])
def test_episodes_of_any_length_never_mix_their_frames(length, storage):
    memory = numbered_memory(10, stack=4, storage=storage)
    for episode in range(9):
        play_episode(memory, episode, length, terminated=episode % 2 == 0, truncated=episode % 3 == 0)

        batch = memory.get(memory.sampleable_indices())

        assert min(10, (episode + 1) * length) == len(memory)
        for observation, following in zip(batch.observation, batch.next_observation, strict=True):
            assert 1 == len({*episodes_of(observation), *episodes_of(following)})
            assert steps_of(observation)[-1] + 1 == steps_of(following)[-1]


def test_a_step_after_the_end_of_an_episode_is_refused_until_the_next_begins():
    memory = numbered_memory(10)
    play_episode(memory, episode=1, length=1, terminated=True)

    with pytest.raises(InvalidStepError, match=r"environment 0 has no open episode.*begin\(frames, env_ids=\[0\]\)"):
        memory.append([0], [0.0], [False], [False], numbered_frame(0, 1, 2)[None])

    assert 1 == len(memory)


def test_the_policy_sees_the_final_observation_until_the_next_episode_begins():
    memory = numbered_memory(10)
    play_episode(memory, episode=1, length=3, terminated=True)

    assert [2, 3] == steps_of(memory.observations()[0])

    memory.begin(numbered_frame(0, 2, 0)[None])

    assert [2, 2] == episodes_of(memory.observations()[0])
    assert [0, 0] == steps_of(memory.observations()[0])

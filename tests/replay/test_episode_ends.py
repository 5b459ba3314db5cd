"""How episodes end: termination, truncation, both, a reset in the middle."""

from __future__ import annotations

import pytest

from oracles.numbered_steps import numbered_memory, play_episode


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

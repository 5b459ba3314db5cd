"""What a store keeps of a sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from framestow import ReplayMemory
from framestow.replay.samplers.sampler import Draw, Sampleable, Sampler
from framestow.replay.samplers.uniform import Uniform
from oracles.recorded_play import recorded


class Tally(Sampler):
    """Draws the newest transition, and counts and keeps what it drew in arrays and numbers, some of them nested."""

    def __init__(self) -> None:
        self.drawn = np.zeros(0, np.int64)
        self.was_restored = False

    def draw(self, batch_size: int, transitions: Sampleable, generator: np.random.Generator) -> Draw:
        indices = transitions.sampleable_at(np.full(batch_size, len(transitions) - 1))
        self.drawn = np.append(self.drawn, indices)
        return Draw(indices, np.ones(batch_size, np.float32))

    def state(self, transitions: Sampleable) -> dict[str, Any]:
        parts = [{"drawn": self.drawn}, {"drawn": self.drawn.reshape(-1, 1) * 2, "count": np.int64(len(self.drawn))}]
        return {"stored": transitions.sampleable_spans(), "parts": parts, "word": "tally"}

    def restore(self, state: dict[str, Any], transitions: Sampleable) -> None:
        one, two = state["parts"]
        self.drawn, self.was_restored = one["drawn"], True
        assert state["word"] == "tally"
        assert two["count"] == len(self.drawn)
        assert two["drawn"].tolist() == [[2 * index] for index in self.drawn.tolist()]
        assert state["stored"].tolist() == transitions.sampleable_spans().tolist()


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_nested_arrays_and_numbers_of_a_sampler_are_restored(tmp_path, retention):
    memory, _ = recorded(300, sampler=Tally(), capacity=5000, retention=retention)
    memory.sample(3)
    memory.save(tmp_path / "memory")
    newest = int(memory.sampleable_indices()[-1])

    sampler = Tally()
    ReplayMemory.load(tmp_path / "memory", sampler=sampler)

    assert [newest] * 3 == sampler.drawn.tolist()


def test_a_sampler_of_another_class_starts_without_state(tmp_path):
    memory, _ = recorded(50)
    memory.save(tmp_path / "memory")

    sampler = Tally()
    loaded = ReplayMemory.load(tmp_path / "memory", sampler=sampler)

    assert not sampler.was_restored
    assert loaded.sample(2).index.tolist() == [loaded.sampleable_indices()[-1]] * 2


def test_a_sampler_without_priorities_refuses_them():
    with pytest.raises(ValueError, match=r"sampler is a Tally: it does not use priorities; .* sampler=Prioritized\(\)"):
        Tally().update_priorities(np.zeros(1, np.int64), np.ones(1), Uniform)  # type: ignore[arg-type]

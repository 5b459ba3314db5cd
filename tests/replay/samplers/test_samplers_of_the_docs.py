"""The samplers that docs/write-a-sampler.md has, under the contract test that ours are under."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from contracts.sampler_contract import SamplerContract
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.sampler import Sampler
from oracles.memories_to_draw_from import with_holes, with_lost_frames
from oracles.numbered_steps import play_episode

PAGE = Path(__file__).parents[3] / "docs" / "write-a-sampler.md"


def written_in_the_docs(name: str) -> type[Sampler]:
    """The class of that name, and what its example imports, without what the example does with it."""
    [example] = [
        block
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        if f"class {name}(" in block
    ]
    names: dict[str, type[Sampler]] = {}
    exec(compile(example.split("\nmemory = ")[0], PAGE.name, "exec"), names)
    return names[name]


class TestNewestInEveryBatch(SamplerContract):
    make = written_in_the_docs("NewestInEveryBatch")
    states_chances = False

    def law(self, stored: np.ndarray) -> np.ndarray:
        newest_of_a_batch = 1 / 1000
        chances = np.full(len(stored), (1 - newest_of_a_batch) / len(stored))
        chances[-1] += newest_of_a_batch
        return chances


SeldomDrawn = written_in_the_docs("SeldomDrawn")


def times_drawn(memory: ReplayMemory, num_batches: int = 200, batch_size: int = 50) -> np.ndarray:
    stored = memory.sampleable_indices()
    drawn = np.concatenate([memory.sample(batch_size).index for _ in range(num_batches)])
    assert set(drawn.tolist()) <= set(stored.tolist())
    return np.bincount(np.searchsorted(stored, drawn), minlength=len(stored))


@pytest.mark.parametrize("make_memory", [with_holes, with_lost_frames], ids=lambda make: make.__name__)
def test_seldom_drawn_transitions_are_drawn_first(make_memory, tmp_path):
    memory = make_memory(tmp_path / "memory", SeldomDrawn)

    times = times_drawn(memory)

    assert np.abs(times - times.mean()).max() <= 6


def test_new_transitions_are_drawn_until_they_caught_up(tmp_path):
    memory = with_holes(tmp_path, SeldomDrawn)
    before = memory.sampleable_indices()
    times_drawn(memory)
    for env_id in range(2):
        play_episode(memory, 200, length=25, env_id=env_id, truncated=True)

    times = times_drawn(memory, num_batches=20)

    is_new = ~np.isin(memory.sampleable_indices(), before)
    assert is_new.sum() > 30
    assert times[is_new].mean() > 2 * times[~is_new].mean()


def test_after_a_load_it_continues_with_the_same_draws(tmp_path):
    memory = with_holes(tmp_path, SeldomDrawn)
    times_drawn(memory, num_batches=3)
    memory.save(tmp_path)
    loaded = ReplayMemory.load(tmp_path, sampler=SeldomDrawn())

    expected = [memory.sample(9).index.tolist() for _ in range(100)]

    assert expected == [loaded.sample(9).index.tolist() for _ in range(100)]

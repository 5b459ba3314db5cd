"""What the sampler draws: on copies, so that the memory's own draws go on, and what it draws most often."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow import ByAge, EmphasizeRecent, Mixture, Prioritized, ReplayMemory, Uniform
from framestow.viewer.memory_view import MemoryView
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode
from oracles.shown_resources import read

SAMPLERS = [
    Uniform(),
    ByAge(7),
    Prioritized(beta=0.4, final_beta=1.0, annealed_over=10),
    EmphasizeRecent(num_updates=5, min_recent=3),
    Mixture((Uniform(), 0.3), (Mixture((Prioritized(), 1), (EmphasizeRecent(num_updates=3, min_recent=2), 1)), 0.7)),
]


def played(**settings) -> ReplayMemory:
    memory = numbered_memory(100, num_envs=2, **settings)
    for episode, env_id in ((0, 0), (1, 0), (0, 1), (2, 0)):
        play_episode(memory, episode, 8, env_id=env_id, truncated=True)
    return memory


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_draws_on_copies_are_those_that_come_next_and_change_none_of_them(sampler):
    memory, parts = played(sampler=sampler), None
    parts = memory.inner.parts
    for _ in range(7):
        drawn = [parts.notified_sampler.draw_on_copies(33, parts.generator).tolist() for _ in range(2)]
        chances = parts.notified_sampler.chances(memory.sampleable_indices())

        batch = memory.sample(33)

        assert [batch.index.tolist()] * 2 == drawn
        weights = chances.weights[batch.index]
        assert np.allclose(batch.weight, np.where(np.isnan(weights), batch.weight, weights), rtol=1e-6)


def viewed(memory: ReplayMemory, tmp_path) -> MemoryView:
    memory.save(tmp_path / "shown")
    return MemoryView.open(tmp_path / "shown")


def with_priorities() -> ReplayMemory:
    """Transition 13 is drawn most often, then 2, then 30."""
    memory = played(sampler=Prioritized(alpha=1.0, epsilon=0.0))
    priorities = np.ones(32)
    priorities[[13, 2, 30]] = [8, 4, 2]
    memory.update_priorities(np.arange(32), priorities)
    return memory


def test_the_transitions_that_are_drawn_most_often_come_first_with_episode_step_and_frame(tmp_path):
    found = read(viewed(with_priorities(), tmp_path), "distribution").arrays

    total = 29 + 8 + 4 + 2
    # Episodes are sorted by environment; indices are in the order in which they were played.
    assert [1, 0, 2] == found["episode"][:3].tolist()
    assert [5, 2, 6] == found["step"][:3].tolist()
    assert [8 / total, 4 / total, 2 / total] == pytest.approx(found["probability"][:3].tolist())
    frames = [numbered_frame(0, 1, 5), numbered_frame(0, 0, 2), numbered_frame(0, 2, 6)]
    assert [frame.ravel().tolist() for frame in frames] == found["frames"][:3].tolist()


def test_a_page_with_some_episodes_leads_to_those_only(tmp_path):
    view = viewed(with_priorities(), tmp_path)

    view.show_only([0, 3], "two of them")

    found = read(view, "distribution").arrays
    assert (0, 2) == (found["episode"][0], found["step"][0])
    assert {0, 3} == set(found["episode"].tolist())


@pytest.mark.parametrize("sampler", [Uniform(), Prioritized()])
def test_nothing_is_drawn_most_often_if_all_is_drawn_as_often(sampler, tmp_path):
    found = read(viewed(played(sampler=sampler), tmp_path), "distribution")

    assert [] == found.arrays["episode"].tolist()
    titles = re.findall("<h3>([^<]+)</h3>", found.values["charts"])
    assert ["Drawn, by order", "Age", "Returns"] == titles


def test_a_sampler_without_repeats_draws_all_that_there_is(tmp_path):
    charts = read(viewed(played(sampler=Uniform(distinct=True)), tmp_path), "distribution").values["charts"]

    assert "alarm" not in charts
    assert ["Drawn, by order", "Age", "Returns"] == re.findall("<h3>([^<]+)</h3>", charts)


def test_a_memory_of_which_nothing_can_be_drawn_says_so(tmp_path):
    empty = viewed(numbered_memory(10), tmp_path / "empty")
    memory = played(sampler=Prioritized(epsilon=0.0))
    memory.update_priorities(np.arange(32), np.zeros(32))

    nothing = viewed(memory, tmp_path)

    assert "all 32 transitions have priority 0" in read(nothing, "distribution").values["charts"]
    assert "nothing to show yet" in read(empty, "distribution").values["charts"]

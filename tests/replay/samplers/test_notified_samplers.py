"""A sampler is notified of every transition that becomes sampleable, and keeps what it knows of the others."""

from __future__ import annotations

import numpy as np
import pytest

from framestow import Draw, Prioritized, Sampler
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode


class Notified(Sampler):
    """Draws the newest transition, and lists the transitions that it was notified of."""

    watches_slots = True

    def __init__(self):
        self.notified: list[int] = []

    def slots_changed(self, slots, transitions):
        self.notified += [index for index in transitions.indices_in(slots).tolist() if index >= 0]

    def draw(self, batch_size, transitions, generator):
        del generator
        ranks = np.full(batch_size, len(transitions) - 1)
        return Draw(transitions.sampleable_at(ranks), np.ones(batch_size, np.float32))


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_begin_on_an_open_episode_tells_the_sampler_of_the_transitions_that_it_completes(retention):
    sampler = Notified()
    memory = numbered_memory(2000, n_step=3, retention=retention, sampler=sampler)
    play_episode(memory, 0, 9)
    memory.sample(1)
    pending = memory.inner.steps.pending.tolist()
    sampler.notified.clear()

    memory.begin(numbered_frame(0, 1, 0)[None])
    memory.sample(1)

    assert 2 == len(pending)
    assert sorted(sampler.notified) == pending
    assert memory.inner.steps.is_sampleable(np.array(pending)).all()


@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_new_rewards_keep_what_a_sampler_knows_of_each_transition(retention):
    memory = numbered_memory(2000, n_step=3, retention=retention, sampler=Prioritized(), seed=0)
    play_episode(memory, 0, 40)
    indices = memory.sampleable_indices()
    memory.update_priorities(indices, np.arange(len(indices)) + 1.0)
    before = memory.inner.parts.notified_sampler.chances(indices).probabilities

    memory.set_rewards(indices, np.full(len(indices), 7.0))

    assert not memory.inner.steps.has_changed_slots
    assert before.tolist() == memory.inner.parts.notified_sampler.chances(indices).probabilities.tolist()

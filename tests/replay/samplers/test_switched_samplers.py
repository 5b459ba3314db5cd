"""A sampler that cannot be switched to leaves the one before as it was."""

from __future__ import annotations

import re

import pytest

from framestow import Prioritized, ReplayMemory, Sampler, Uniform
from framestow.errors import InvalidSettingsError
from oracles.ctrl_c import ctrl_c_at_line
from oracles.numbered_steps import SHAPE, FrameSpec, numbered_memory, play_episode


class Broken(Sampler):
    """Cannot begin."""

    watches_slots = True

    def draw(self, batch_size, held, generator):
        raise NotImplementedError

    def begin(self, held):
        raise RuntimeError("cannot begin")


def assert_draws_all_that_is_held(memory: ReplayMemory) -> None:
    """With alpha 0, two draws for each transition, each from its own part of the sum, leave none out."""
    held = memory.sampleable_indices().tolist()
    assert sorted(set(memory.sample(2 * len(held)).index.tolist())) == held


def untold() -> ReplayMemory:
    """A memory whose sampler has not been told yet of its newest steps."""
    memory = numbered_memory(40, sampler=Prioritized(alpha=0))
    play_episode(memory, episode=0, length=50)
    memory.sample(1)
    play_episode(memory, episode=1, length=15)
    return memory


def test_a_sampler_that_fails_to_begin_leaves_the_one_before_with_all_that_it_is_to_be_told():
    memory = untold()
    before = memory.sampler

    with pytest.raises(RuntimeError, match="cannot begin"):
        memory.sampler = Broken()

    assert before is memory.sampler
    assert_draws_all_that_is_held(memory)


@pytest.mark.parametrize("make", [lambda: Prioritized(alpha=0), Uniform], ids=["watching", "not watching"])
def test_ctrl_c_at_any_line_of_a_switch_leaves_one_of_the_two_with_all_that_is_held(make):
    kept, is_interrupted = [], True
    while is_interrupted:
        memory, after = untold(), make()
        before = memory.sampler
        try:
            with ctrl_c_at_line(len(kept) + 1):
                memory.sampler = after
            is_interrupted = False
        except KeyboardInterrupt:
            kept.append(memory.sampler is before)
        assert memory.sampler in (before, after)
        play_episode(memory, episode=2, length=3)
        if isinstance(memory.sampler, Prioritized):
            assert_draws_all_that_is_held(memory)
        memory.sampler = Prioritized(alpha=0)
        assert_draws_all_that_is_held(memory)

    assert kept.count(True) >= 3
    assert kept == sorted(kept, reverse=True)


@pytest.mark.parametrize("wrong", [Uniform, 7, object(), "prioritized"], ids=["a class", "number", "object", "text"])
def test_what_is_no_sampler_is_refused_before_anything_is_changed(wrong):
    memory = untold()

    with pytest.raises(InvalidSettingsError, match=re.escape(f"sampler is {wrong!r}: it must be a sampler; ")):
        memory.sampler = wrong
    with pytest.raises(InvalidSettingsError, match=re.escape(f"sampler is {wrong!r}: it must be a sampler; ")):
        ReplayMemory(10, FrameSpec(SHAPE), 4, sampler=wrong)

    assert_draws_all_that_is_held(memory)

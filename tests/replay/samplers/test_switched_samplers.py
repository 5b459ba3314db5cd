"""A sampler that cannot be switched to leaves the one before as it was."""

from __future__ import annotations

import re
from functools import partial

import pytest

from framestow import ByAge, Mixture, Prioritized, ReplayMemory, Sampler, Uniform
from framestow.errors import InvalidSettingsError
from oracles.ctrl_c import ctrl_c_at_line
from oracles.numbered_steps import SHAPE, FrameSpec, numbered_memory, play_episode


class Broken(Sampler):
    """Cannot begin."""

    watches_slots = True

    def draw(self, batch_size, transitions, generator):
        raise NotImplementedError

    def begin(self, transitions):
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


def test_if_a_sampler_fails_to_begin_the_previous_one_still_gets_all_changes():
    memory = untold()
    before = memory.sampler

    with pytest.raises(RuntimeError, match="cannot begin"):
        memory.sampler = Broken()

    assert before is memory.sampler
    assert_draws_all_that_is_held(memory)


@pytest.mark.parametrize("make", [lambda: Prioritized(alpha=0), Uniform], ids=["watching", "not watching"])
def test_ctrl_c_at_any_line_of_a_switch_leaves_one_sampler_with_all_transitions(make):
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
def test_a_wrong_sampler_is_refused_before_anything_changes(wrong):
    memory = untold()

    with pytest.raises(InvalidSettingsError, match=re.escape(f"sampler is {wrong!r}: it must be a sampler object; ")):
        memory.sampler = wrong
    with pytest.raises(InvalidSettingsError, match=re.escape(f"sampler is {wrong!r}: it must be a sampler object; ")):
        ReplayMemory(10, FrameSpec(SHAPE), 4, stack=4, sampler=wrong)

    assert_draws_all_that_is_held(memory)


BY_ANOTHER = "that another memory uses: its state is of that memory's transitions; create one for each memory"


def played(sampler: Sampler | None = None, **settings) -> ReplayMemory:
    memory = numbered_memory(40, sampler=sampler, **settings)
    play_episode(memory, episode=0, length=30)
    return memory


@pytest.mark.parametrize("make", [Uniform, Prioritized, lambda: ByAge(7)], ids=["uniform", "prioritized", "by age"])
@pytest.mark.parametrize("how", ["constructor", "assignment"])
def test_a_sampler_of_one_memory_is_refused_by_another(make, how):
    first, second = played(make()), played()
    give = played if how == "constructor" else partial(setattr, second, "sampler")

    with pytest.raises(InvalidSettingsError, match=f"sampler is a {type(first.sampler).__name__} {BY_ANOTHER}"):
        give(first.sampler)

    assert_draws_all_that_is_held(first) if isinstance(first.sampler, Prioritized) else first.sample(8)


def test_the_default_sampler_of_a_memory_is_refused_by_another():
    first, second = played(), played(Prioritized())

    with pytest.raises(InvalidSettingsError, match=f"sampler is a Uniform {BY_ANOTHER}"):
        second.sampler = first.sampler

    assert isinstance(second.sampler, Prioritized)


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("is_whole", [False, True], ids=["part given", "mixture given"])
def test_the_parts_of_a_mixture_are_refused_too(is_nested, is_whole):
    shared = Prioritized(alpha=0)
    mixture = Mixture((Mixture((shared, 1)), 1)) if is_nested else Mixture((shared, 1), (Uniform(), 1))
    of_first, of_second = (shared, mixture) if is_whole else (mixture, shared)
    first = played(of_first)

    with pytest.raises(InvalidSettingsError, match=f"sampler is a Prioritized {BY_ANOTHER}"):
        played(of_second)

    first.sample(4)


def test_a_memory_accepts_its_current_sampler_again_alone_or_in_a_mixture():
    memory = played(Prioritized(alpha=0))
    own = memory.sampler

    memory.sampler = own
    assert_draws_all_that_is_held(memory)
    memory.sampler = Mixture((own, 1), (Uniform(), 1))
    memory.sampler = own

    assert_draws_all_that_is_held(memory)


def test_a_replaced_sampler_is_free_for_another_memory():
    first, second = played(Prioritized(alpha=0)), played()
    freed = first.sampler
    first.sampler = Uniform()

    second.sampler = freed
    play_episode(second, episode=1, length=5)

    assert_draws_all_that_is_held(second)
    with pytest.raises(InvalidSettingsError, match=BY_ANOTHER):
        first.sampler = freed


def test_a_sampler_is_free_once_its_memory_is_garbage_even_in_a_cycle():
    sampler = Prioritized(alpha=0)
    first = played(sampler)
    first.itself = first
    del first

    assert_draws_all_that_is_held(played(sampler))


@pytest.mark.parametrize("lives_in_a_folder", [False, True])
def test_a_closed_memory_draws_until_another_takes_its_sampler(lives_in_a_folder, tmp_path):
    first = played(Prioritized(alpha=0), directory=tmp_path / "memory" if lives_in_a_folder else None)
    sampler = first.sampler
    first.close()
    assert_draws_all_that_is_held(first)

    second = played(sampler)

    assert_draws_all_that_is_held(second)
    with pytest.raises(
        InvalidSettingsError, match="the sampler was given to another memory after this one was closed: "
    ):
        first.sample(1)
    first.sampler = Prioritized(alpha=0)
    assert_draws_all_that_is_held(first)


def test_a_memory_that_cannot_be_built_or_read_releases_the_sampler(tmp_path):
    sampler = Prioritized(alpha=0)
    played(directory=tmp_path / "memory").close()
    for damaged in (tmp_path / "memory").glob("COMMIT.*"):
        damaged.write_bytes(bytes(damaged.stat().st_size))

    failures = [
        lambda: played(sampler, flush_every=-1.0),
        lambda: ReplayMemory.load(tmp_path / "memory", sampler=sampler),
        lambda: ReplayMemory.open(tmp_path / "memory", sampler=sampler),
        lambda: ReplayMemory.open(tmp_path / "memory", sampler=sampler, read_only=False),
        lambda: ReplayMemory(41, FrameSpec(SHAPE), 4, stack=4, sampler=sampler, directory=tmp_path / "memory"),
    ]
    for fail in failures:
        try:
            fail()
        except (ValueError, OSError):  # while the error is handled, it keeps what was being built
            assert_draws_all_that_is_held(played(sampler))
        else:
            pytest.fail(f"no error from {fail}")

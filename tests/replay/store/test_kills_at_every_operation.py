"""A process killed at any operation of a save, a prune or a way back leaves the folder as before, or as after it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.format import FolderContents, commit_path
from framestow.replay.store.open_store import keep_only, start_over
from framestow.replay.store.verify import verify_store
from oracles.killed_child import killed_child
from oracles.killing_disk import BEFORE, KillingDisk
from oracles.store_files import generations, log_files_of, unaccounted
from oracles.watched_disk import as_the_disk

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*was not closed:RuntimeWarning"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]
BUDGET = 3 * 2**20


def memory_of(number: int, num_steps: int, **settings) -> ReplayMemory:
    settings = {"capacity": 1_500, "stack": 2, "seed": number, "flush_every": None} | settings
    memory = ReplayMemory(observation_space=FrameSpec((8, 8)), action_space=4, **settings)
    record(memory, number, num_steps)
    return memory


def record(memory: ReplayMemory, number: int, num_steps: int) -> None:
    """Record noise; rewards count up from the number."""
    random, first = np.random.default_rng(number), 10_000 * number + len(memory)
    memory.begin(random.integers(0, 256, (1, 8, 8), np.uint8))
    for step in range(num_steps):
        memory.append([1], [first + step], [False], [False], random.integers(0, 256, (1, 8, 8), np.uint8))


def found_in(folder: Path, generation: int | None = None) -> list[float] | None:
    """Return the rewards of a saved memory; ``None`` for a folder without one."""
    if generation is None and not generations(folder):
        return None
    memory = ReplayMemory.load(folder, generation=generation)
    memory.inner.parts.check()
    return memory.get(memory.sampleable_indices()).reward.tolist() if len(memory) else []


def found_without_the_newest_file(folder: Path) -> list[float] | None:
    """Return what is found if the newest commit is damaged; if it has no copy, what is found with it."""
    contents = FolderContents(folder)
    number = contents.numbers[-1]
    if not contents.is_copied(number):
        return found_in(folder)
    path = commit_path(folder, number)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.warns(RuntimeWarning, match="its copy has the same content"):
        found = found_in(folder)
    path.write_bytes(whole)
    return found


def nothing(_folder: Path) -> None:
    pass


def saved(folder: Path) -> None:
    memory_of(1, 1_100).save(folder)


def saved_twice(folder: Path) -> None:
    memory = memory_of(1, 1_100)
    memory.save(folder, keep_previous=True)
    record(memory, 1, 900)
    memory.save(folder, keep_previous=True)


def save_more(folder: Path) -> None:
    memory = ReplayMemory.load(folder)
    record(memory, 1, 700)
    memory.save(folder, keep_previous=True)


def change_rewards(memory: ReplayMemory) -> None:
    indices = memory.sampleable_indices()
    memory.set_rewards(indices, -1.0 - indices)


def forget_every_seventh(memory: ReplayMemory) -> None:
    memory.forget(memory.sampleable_indices()[::7])


def save_changed(change: Callable[[ReplayMemory], object], folder: Path) -> None:
    memory = ReplayMemory.load(folder)
    change(memory)
    memory.save(folder, keep_previous=True)


def go_on_from_the_first(folder: Path) -> None:
    with ReplayMemory.open(folder, read_only=False, generation=2, flush_every=None) as memory:
        record(memory, 2, 700)


def lives_within_a_budget(folder: Path) -> None:
    memory_of(1, 1_500, directory=folder, max_bytes=BUDGET).close()


def flush_for_the_budget(folder: Path) -> None:
    with ReplayMemory.open(folder, read_only=False, flush_every=None) as memory:
        record(memory, 1, 700)
        memory.flush()


class Scenario(NamedTuple):
    prepare: Callable[[Path], object]
    act: Callable[[Path], object]
    stays: tuple[int, ...] = ()
    """Generations that can be asked for until the call is done."""


SCENARIOS = {
    "a first save into an empty folder": Scenario(nothing, lambda folder: memory_of(2, 1_200).save(folder)),
    "a save over another memory": Scenario(saved_twice, lambda folder: memory_of(2, 1_200).save(folder), (2, 3)),
    "a save beside earlier generations": Scenario(saved_twice, save_more, (2, 3)),
    "a save of changed rewards": Scenario(saved_twice, partial(save_changed, change_rewards), (2, 3)),
    "a save of forgotten steps": Scenario(saved_twice, partial(save_changed, forget_every_seventh), (2, 3)),
    "a save of a cleared memory": Scenario(saved_twice, partial(save_changed, ReplayMemory.clear), (2, 3)),
    "a prune": Scenario(saved_twice, lambda folder: ReplayMemory.load(folder).prune(folder, 3), (2, 3)),
    "going back": Scenario(saved_twice, lambda folder: keep_only(folder, 2), (2, 3)),
    "going on from an older generation": Scenario(saved_twice, go_on_from_the_first, (2, 3)),
    "starting over": Scenario(saved, lambda folder: start_over(folder, keeps_pinned=False), (2,)),
    "a flush within a budget": Scenario(lives_within_a_budget, flush_for_the_budget),
}


@pytest.fixture(autouse=True)
def small_logs() -> Iterator[None]:
    with log_files_of(20_000):
        yield


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_kill_at_any_operation_leaves_what_was_before_or_what_is_after(name, every, tmp_path):
    scenario = SCENARIOS[name]
    before, after = tmp_path / "before", tmp_path / "after"
    scenario.prepare(before)
    before.mkdir(exist_ok=True)
    shutil.copytree(before, after)
    scenario.act(after)
    outcomes = [found_in(before), found_in(after)]
    asked = {number: found_in(before, number) for number in scenario.stays}
    third = memory_of(3, 50)

    was_killed, at = True, 0
    while was_killed:
        folder = shutil.copytree(before, tmp_path / str(at))

        def act(_report: object, folder: Path = folder, at: int = at) -> None:
            with as_the_disk(KillingDisk(at, BEFORE)):
                scenario.act(folder)

        _, was_killed = killed_child(act)
        found = found_in(folder)
        assert found in outcomes, f"killed at {at}: {len(found or [])} transitions"
        if found == outcomes[0] != outcomes[1]:
            assert asked == {number: found_in(folder, number) for number in asked}, at
        if found is not None:
            assert [] == verify_store(folder).findings
            assert found == found_without_the_newest_file(folder), at
        if at % 2:
            start_over(folder, keeps_pinned=False)
            assert not unaccounted(folder), at
        third.save(folder)
        assert [10_000 * 3 + step for step in range(50)] == found_in(folder)
        assert not unaccounted(folder), at
        shutil.rmtree(folder)
        at += every
    assert at >= 2 * every
    assert found == outcomes[1]


def test_a_reader_reads_on_when_its_generation_is_gone_back_behind_and_new_steps_are_saved(tmp_path):
    saved_twice(tmp_path)
    expected = found_in(tmp_path)
    reader = ReplayMemory.open(tmp_path)

    go_on_from_the_first(tmp_path)

    assert [2] == [number for number in generations(tmp_path) if number in (2, 3)]
    assert expected == reader.get(reader.sampleable_indices()).reward.tolist()

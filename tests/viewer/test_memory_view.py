"""``MemoryView``: its resources have every transition as ``memory.get`` returns it, and say how episodes end."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import numpy as np
import pytest

from framestow import FrameSpec, Mixture, Prioritized, ReplayMemory, Uniform
from framestow.viewer.memory_view import MemoryView
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, SPACES, AnyPlay
from oracles.damage import damage_a_block_of_steps, damage_a_segment
from oracles.forked_children import fork_and_call
from oracles.memories_to_draw_from import MEMORIES
from oracles.newest_sampler import Newest
from oracles.numbered_steps import numbered_frame, numbered_memory, play_episode
from oracles.shown_resources import ShownEpisode, assert_shows, read


def viewed(memory: ReplayMemory, folder: Path) -> MemoryView:
    memory.save(folder)
    return MemoryView.open(folder)


def endings(view: MemoryView) -> list[str]:
    names = read(view, "memory").values["endings"]
    return [names[ending] for ending in read(view, "episodes").arrays["ending"]]


def beginnings(view: MemoryView) -> list[str]:
    names = read(view, "memory").values["beginnings"]
    return [names[beginning] for beginning in read(view, "episodes").arrays["beginning"]]


@pytest.mark.parametrize("make_memory", MEMORIES, ids=lambda make: make.__name__)
def test_it_shows_every_transition_as_the_memory_returns_it(make_memory, tmp_path):
    memory = make_memory(tmp_path / "played", Uniform)

    view = viewed(memory, tmp_path / "shown")

    assert_shows(view, memory)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_it_shows_observations_of_every_kind_bit_for_bit(space, tmp_path):
    memory = ReplayMemory(1000, space, NUM_ACTIONS, num_envs=2, discount=DISCOUNT, extras=EXTRAS)
    AnyPlay(memory, memory.inner.settings.layout, seed=1, mixes=True).play(60)

    view = viewed(memory, tmp_path / "shown")

    assert_shows(view, memory)


@pytest.mark.parametrize("padding", ["zeros", "first_frame"])
def test_an_episode_of_several_pieces_is_shown_whole(padding, tmp_path, monkeypatch):
    monkeypatch.setattr("framestow.viewer.frame_pieces.MOST_FRAMES", 7)
    memory = numbered_memory(100, stack=4, n_step=3, stack_padding=padding, extras={"part": (np.float16, (2,))})
    memory.begin(numbered_frame(0, 0, 0)[None])
    for step in range(50):
        extras = {"part": [[step, -step]]}
        memory.append([1], [step], [step == 49], [False], numbered_frame(0, 0, step + 1)[None], extras=extras)

    view = viewed(memory, tmp_path / "shown")

    episode = ShownEpisode(view, 0)
    assert 8 == episode.values["pieces"]
    assert list(range(51)) == episode.frames(0)[:, 2].tolist()
    assert [[step, -step] for step in range(50)] == episode.steps["extra.part"].tolist()
    assert_shows(view, memory)


def test_its_size_is_that_of_what_is_stored_not_of_the_arrays_that_the_page_reads(tmp_path):
    memory = ReplayMemory(1000, FrameSpec((84, 84)), 4, stack=4)
    memory.begin(np.zeros((1, 84, 84), np.uint8))
    for step in range(700):
        memory.append([0], [0.0], [False], [False], np.full((1, 84, 84), step % 256, np.uint8))
    view = viewed(memory, tmp_path / "shown")

    read(view, "distribution")

    size_on_disk = sum(file.stat().st_size for file in (tmp_path / "shown").iterdir())
    assert read(view, "memory").values["bytes"] < 2 * size_on_disk


def test_the_table_has_the_length_return_and_age_of_every_episode_and_says_how_it_ended(tmp_path):
    memory = numbered_memory(100, num_envs=2, label=["Qbert", "Pong"])
    play_episode(memory, 0, 4, env_id=0, terminated=True)
    play_episode(memory, 1, 3, env_id=0, truncated=True)
    play_episode(memory, 2, 2, env_id=0, terminated=True, truncated=True)
    play_episode(memory, 0, 5, env_id=1)  # the next one begins by a reset
    play_episode(memory, 1, 2, env_id=1)

    view = viewed(memory, tmp_path / "shown")

    columns = read(view, "episodes").arrays
    assert [4, 3, 2, 5, 2] == columns["length"].tolist()
    assert [6, 3, 1, 10, 1] == columns["return"].tolist()
    assert [7, 3, 0, 3, 0] == columns["age"].tolist()
    assert [0, 0, 0, 1, 1] == columns["env_id"].tolist()
    assert ["Pong", "Qbert"] == read(view, "memory").values["labels"]  # in the order in which a column sorts
    assert [1, 1, 1, 0, 0] == columns["label"].tolist()
    assert ["terminated", "truncated", "terminated and truncated", "cut by a reset", "still running"] == endings(view)
    assert {"from its reset"} == set(beginnings(view))


def test_a_reset_after_which_no_step_came_cuts_an_episode_too(tmp_path):
    memory = numbered_memory(100)
    play_episode(memory, 0, 5)
    memory.begin(numbered_frame(0, 1, 0)[None])

    assert ["cut by a reset"] == endings(viewed(memory, tmp_path / "shown"))


def test_an_episode_whose_first_steps_were_evicted_says_so(tmp_path):
    memory = numbered_memory(10, stack=3)
    play_episode(memory, 0, 25, truncated=True)

    view = viewed(memory, tmp_path / "shown")

    assert ["its first steps were evicted"] == beginnings(view)
    assert 2 == ShownEpisode(view, 0).values["history"]
    assert_shows(view, memory)


def test_with_random_retention_an_episode_is_cut_where_its_steps_were_evicted(tmp_path):
    memory = MEMORIES[[make.__name__ for make in MEMORIES].index("with_holes")](tmp_path / "played", Uniform)

    view = viewed(memory, tmp_path / "shown")

    assert "cut: later steps were evicted" in endings(view)
    assert "cut: later steps are lost" not in endings(view)
    assert "its first steps were evicted" in beginnings(view)


def test_a_damaged_segment_is_a_gap_with_its_reason_and_all_other_frames_are_shown(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (61, 8, 8), np.uint8)
    memory = ReplayMemory(100, FrameSpec((8, 8)), 4, stack=2, frames_per_segment=10)
    memory.begin(frames[:1])
    for step in range(60):
        memory.append([0], [0.0], [False], [step == 59], frames[step + 1 : step + 2])
    memory.save(tmp_path / "shown")
    damage_a_segment(tmp_path / "shown")

    view = MemoryView.open(tmp_path / "shown")

    episode = ShownEpisode(view, 0)
    [piece] = episode.pieces
    [[first, count, reason]] = piece.values["gaps"]
    assert (0, 10) == (first % 10, count)
    assert ".000001.log" in reason
    kept = np.setdiff1d(np.arange(61), np.arange(first, first + count))
    assert (frames.reshape(61, 64)[kept] == episode.frames(0)[kept]).all()
    lost = {int(step) for step in piece.values["lost"]}
    assert set(range(first - 1, first + count + 1)) == lost
    assert all(np.array_equal(frames[[max(0, step - 1), step]].reshape(2, 64), episode.stack(step, 0, 0))
               for step in range(60) if step not in lost)  # fmt: skip


def test_damaged_blocks_of_steps_cut_an_episode_and_the_reason_is_named(tmp_path):
    memory = numbered_memory(4096)  # a block has 1,024 steps
    memory.begin(numbered_frame(0, 0, 0)[None])
    for step in range(4096):
        memory.append([0], [0.0], [False], [step == 4095], numbered_frame(0, 0, 0)[None])
    memory.save(tmp_path / "shown")
    damage_a_block_of_steps(tmp_path / "shown")

    view = MemoryView.open(tmp_path / "shown")

    assert ["cut: later steps are lost", "truncated"] == endings(view)
    assert ["from its reset", "its first steps are lost"] == beginnings(view)
    values = read(view, "memory").values
    assert values["lost"] == 4096 - sum(read(view, "episodes").arrays["length"]) > 0
    assert any("steps-" in message for message in values["damage"])


def test_an_empty_memory_has_no_episode_and_one_step_is_one(tmp_path):
    empty, one = numbered_memory(10), numbered_memory(10)
    play_episode(one, 0, 1, terminated=True)

    nothing, something = viewed(empty, tmp_path / "empty"), viewed(one, tmp_path / "one")

    assert (0, None) == (len(endings(nothing)), read(nothing, "memory").values["mean_return"])
    assert ["terminated"] == endings(something)
    assert_shows(something, one)


@pytest.mark.parametrize("mix", [lambda sampler: sampler, lambda sampler: Mixture((sampler, 1))])
def test_steps_have_probability_weight_and_priority_of_the_saved_sampler(tmp_path, mix):
    memory = numbered_memory(100, sampler=mix(Prioritized(alpha=0.5, beta=1.0, epsilon=0.0)))
    play_episode(memory, 0, 4, truncated=True)
    memory.update_priorities([0, 1, 2, 3], [1.0, 4.0, 1.0, 16.0])

    steps = ShownEpisode(viewed(memory, tmp_path / "shown"), 0).steps

    assert [1 / 8, 1 / 4, 1 / 8, 1 / 2] == steps["probability"].tolist()
    assert [1, 1 / 2, 1, 1 / 4] == steps["weight"].tolist()
    assert [1, 4, 1, 16] == pytest.approx(steps["priority"].tolist())


def test_a_memory_with_a_sampler_of_the_user_is_shown_and_says_that_its_probabilities_are_not(tmp_path):
    memory = numbered_memory(100, sampler=Newest())
    play_episode(memory, 0, 4)

    view = viewed(memory, tmp_path / "shown")

    assert "the memory was saved with a Newest" in read(view, "memory").values["sampler_note"]
    assert_shows(view, memory)


def test_it_shows_a_snapshot_of_a_memory_that_goes_on(tmp_path):
    with numbered_memory(100, directory=tmp_path / "memory", flush_every=None) as memory:
        play_episode(memory, 0, 4, terminated=True)
        memory.flush()
        view = MemoryView.open(tmp_path / "memory")
        play_episode(memory, 1, 4, terminated=True)
        memory.flush()

        assert [4] == read(view, "episodes").arrays["length"].tolist()
        assert [4, 4] == read(MemoryView.open(tmp_path / "memory"), "episodes").arrays["length"].tolist()


NOTHING = ("", "nothing", "episode", "episode/1", "episode/0/0", "frames/0/9", "frames/1/0", "episode/-1")


@pytest.mark.parametrize("name", [*NOTHING, "episode/../0", "sparklines/7", "memory/1"])
def test_a_resource_that_does_not_exist_is_a_lookup_error(name, tmp_path):
    memory = numbered_memory(10)
    play_episode(memory, 0, 3)
    view = viewed(memory, tmp_path / "shown")

    with pytest.raises(LookupError):
        view.resource(name)


class AgentThatWaits:
    """An agent whose values take as long as a test wants."""

    names = ("left", "right")

    def __init__(self) -> None:
        self.begins, self.goes_on = threading.Event(), threading.Event()

    def of_batch(self, batch):
        self.begins.set()
        assert self.goes_on.wait(60)
        return np.zeros((len(batch), 2), np.float32), np.zeros(len(batch), np.float32)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_child_forked_while_a_thread_makes_a_resource_makes_its_own(tmp_path):
    memory = numbered_memory(100)
    play_episode(memory, 0, length=5, truncated=True)
    memory.save(tmp_path)
    agent = AgentThatWaits()
    view = MemoryView.open(tmp_path, find_agent=lambda _: agent)
    thread = threading.Thread(target=view.resource, args=("values/0/0",))
    thread.start()
    assert agent.begins.wait(60)

    wrong = fork_and_call(lambda: view.resource("episodes"))

    agent.goes_on.set()
    thread.join()
    assert "" == wrong

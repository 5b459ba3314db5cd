"""A memory's folder is looked at while somebody writes to it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.inspection import inspect_memory, stored_files
from framestow.replay.memory import ReplayMemory
from framestow.storage.files.file_system import FileSystem
from oracles.stored_play import NUM_STREAMS, play


def written(folder):
    """A memory that was saved to ``folder``, and what saves it there again with twenty steps more."""
    memory = ReplayMemory(3_000, FrameSpec((4, 5)), 5, stack=3, num_envs=NUM_STREAMS, seed=0)
    random = np.random.default_rng(0)
    play(memory, 500, random)
    memory.save(folder)

    def save_more() -> None:
        play(memory, 20, random)
        memory.save(folder)

    return memory, save_more


class CommittingDisk(FileSystem):
    """A disk where a writer commits before each of the first manifests is read."""

    def __init__(self, commit, num_commits):
        self.commit, self.num_commits = commit, num_commits

    def read(self, path):
        if self.num_commits and path.name.startswith("MANIFEST."):
            self.num_commits -= 1
            self.commit()
        return super().read(path)


@pytest.mark.parametrize("num_commits", [0, 1, 3])
def test_the_files_are_those_of_a_generation_that_was_not_removed_before_it_was_read(num_commits, tmp_path):
    _, save_more = written(tmp_path)
    disk = CommittingDisk(save_more, num_commits)

    told = stored_files(tmp_path, files=disk)

    assert 0 == disk.num_commits
    assert stored_files(tmp_path) == told
    assert {} == told.left_over


def test_a_generation_that_is_gone_for_good_is_an_error(tmp_path):
    written(tmp_path)
    [manifest] = tmp_path.glob("MANIFEST.*")

    class Thief(FileSystem):
        def read(self, path):
            raise FileNotFoundError(path)

    with pytest.raises(FileNotFoundError, match=manifest.name):
        stored_files(tmp_path, files=Thief())


def test_a_memory_is_inspected_beside_a_writer_that_commits_without_a_pause(tmp_path):
    _, save_more = written(tmp_path)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            save_more()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [inspect_memory(tmp_path)[0] for _ in range(5)]
        while seen[-1].generation == seen[0].generation:  # a busy machine keeps the writer waiting
            seen.append(inspect_memory(tmp_path)[0])
    finally:
        stop.set()
        writer.join()

    assert [one.generation for one in seen] == sorted(one.generation for one in seen)
    assert all(one.transitions for one in seen)

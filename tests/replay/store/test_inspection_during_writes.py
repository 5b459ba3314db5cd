"""A memory's folder is inspected while another process writes to it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.inspection import find_files, inspect_memory
from framestow.storage.files.file_system import FileSystem
from oracles.store_files import commit_files
from oracles.stored_play import NUM_ENVS, play


def written(folder):
    """Save a memory to ``folder``; return it and a function that saves 20 more steps."""
    memory = ReplayMemory(3_000, FrameSpec((4, 5)), 5, stack=3, num_envs=NUM_ENVS, seed=0)
    random = np.random.default_rng(0)
    play(memory, 500, random)
    memory.save(folder)

    def save_more() -> None:
        play(memory, 20, random)
        memory.save(folder)

    return memory, save_more


class CommittingDisk(FileSystem):
    """A disk on which a writer commits before each of the first commits is read."""

    def __init__(self, commit, num_commits):
        self.commit, self.num_commits = commit, num_commits

    def open_to_read(self, path):
        if self.num_commits and path.name.startswith("COMMIT."):
            self.num_commits -= 1
            self.commit()
        return super().open_to_read(path)


@pytest.mark.parametrize("num_commits", [0, 1, 3])
def test_inspection_reads_a_generation_that_still_exists(num_commits, tmp_path):
    _, save_more = written(tmp_path)
    disk = CommittingDisk(save_more, num_commits)

    inspected = find_files(tmp_path, files=disk)

    assert 0 == disk.num_commits
    assert find_files(tmp_path) == inspected
    assert {} == inspected.left_over


def test_a_missing_commit_without_a_successor_is_an_error(tmp_path):
    written(tmp_path)

    class Thief(FileSystem):
        def open_to_read(self, path):
            raise FileNotFoundError(path)

    with pytest.raises(FileNotFoundError, match=commit_files(tmp_path)[-1].name):
        find_files(tmp_path, files=Thief())


def test_a_memory_can_be_inspected_while_a_writer_commits_without_pause(tmp_path):
    _, save_more = written(tmp_path)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            save_more()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [inspect_memory(tmp_path) for _ in range(5)]
        while seen[-1].generation == seen[0].generation:  # on a busy machine the writer is slow
            seen.append(inspect_memory(tmp_path))
    finally:
        stop.set()
        writer.join()

    assert [one.generation for one in seen] == sorted(one.generation for one in seen)
    assert all(one.transitions for one in seen)

"""A store is verified while another process writes to it."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.store.verify import verify_store
from framestow.storage.files.file_system import FileSystem
from oracles.stored_play import NUM_ENVS, play


def test_a_store_can_be_verified_while_a_writer_commits_without_pause(tmp_path):
    frame = FrameSpec((4, 5))
    memory = ReplayMemory(3_000, frame, 5, stack=3, num_envs=NUM_ENVS, seed=0)
    random = np.random.default_rng(0)
    play(memory, 500, random)
    memory.save(tmp_path)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            play(memory, 20, random)
            memory.save(tmp_path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        verified = [verify_store(tmp_path) for _ in range(8)]
        while verified[-1].generations[-1] == verified[0].generations[-1]:  # on a busy machine the writer is slow
            verified.append(verify_store(tmp_path))
    finally:
        stop.set()
        writer.join()

    assert all(one.findings == [] for one in verified)


class CommittingDisk(FileSystem):
    """A disk on which a writer commits before some logs and commits are opened."""

    def __init__(self, commit, kind, num_commits):
        self.commit, self.kind, self.num_commits = commit, kind, num_commits

    def open_to_read(self, path):
        if self.num_commits and path.name.startswith(self.kind):
            self.num_commits -= 1
            self.commit()
        return super().open_to_read(path)


@pytest.mark.each_value
@pytest.mark.parametrize("num_commits", [0, 1, 2, 5])
@pytest.mark.parametrize("kind", ["COMMIT", "frames", "steps"])
def test_a_generation_removed_by_a_writer_is_not_damage(tmp_path, kind, num_commits):
    memory = ReplayMemory(3_000, FrameSpec((4, 5)), 5, stack=3, num_envs=NUM_ENVS, seed=0)
    random = np.random.default_rng(0)
    play(memory, 1_500, random)
    memory.save(tmp_path)

    def commit():
        play(memory, 400, random)
        memory.save(tmp_path)

    disk = CommittingDisk(commit, kind, num_commits)

    assert [] == verify_store(tmp_path, files=disk).findings
    assert 0 == disk.num_commits

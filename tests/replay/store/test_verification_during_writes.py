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
    """A disk on which a writer commits before the state file, and then before some manifests, are read."""

    def __init__(self, commit, num_manifests):
        self.commit, self.num_manifests, self.is_begun = commit, num_manifests, False

    def read(self, path, *most):
        if not self.is_begun and path.name.startswith("state."):
            self.is_begun = True
            self.commit()
        elif self.is_begun and self.num_manifests and path.name.startswith("MANIFEST."):
            self.num_manifests -= 1
            self.commit()
        return super().read(path, *most)


@pytest.mark.parametrize("num_manifests", [0, 1, 2, 5])
def test_a_generation_removed_by_a_writer_is_not_damage(tmp_path, num_manifests):
    memory = ReplayMemory(3_000, FrameSpec((4, 5)), 5, stack=3, num_envs=NUM_ENVS, seed=0)
    random = np.random.default_rng(0)
    play(memory, 500, random)
    memory.save(tmp_path)

    def commit():
        play(memory, 20, random)
        memory.save(tmp_path)

    disk = CommittingDisk(commit, num_manifests)

    assert [] == verify_store(tmp_path, files=disk).findings
    assert disk.is_begun
    assert 0 == disk.num_manifests

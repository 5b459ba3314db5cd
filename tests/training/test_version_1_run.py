"""A run folder that the first version wrote, with a whole memory in its checkpoint, goes on.

``golden/version_1_run.tar.xz`` was made by that version: 130 steps of two environments of Catch into a memory of 100.
Every tensor of its agent was set to 1/64 before it was saved, so that it packs. It cannot be made anew.
"""

import hashlib
import tarfile
from pathlib import Path

import numpy as np

from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import newest_checkpoint, read_checkpoint
from framestow.training.listeners.checkpointing import Checkpointing
from framestow.training.run_folder import RunFolder
from framestow.training.trainer import change_settings, start_run, train
from training.catch_runs import catch_settings, make_catch
from training.kills.run_contents import contents, differences, strangers

GOLDEN = Path(__file__).parents[1] / "golden" / "version_1_run.tar.xz"
SETTINGS = catch_settings(steps=130, num_envs=2, memory=100, warmup=50)
ARRAYS = ("observation", "action", "reward", "discount", "next_observation", "index", "terminated", "truncated")
HELD = "1bc53bba21f100f424836e0d51e0897c9ee4b530aa961a60ae5dd9cfc595c7fd"  # SHA-256 of these, as that version held them


def _unpacked(tmp_path: Path) -> RunFolder:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return RunFolder.open(tmp_path / "version-1-run")


def _held(memory: ReplayMemory) -> str:
    hashed = hashlib.sha256()
    batch = memory.transitions(memory.sampleable_indices())
    for name in ARRAYS:
        hashed.update(getattr(batch, name).tobytes())
    return hashed.hexdigest()


def test_its_settings_are_read_with_what_came_later_at_its_default(tmp_path: Path) -> None:
    settings = _unpacked(tmp_path).settings()

    assert settings == SETTINGS
    assert (settings.memory_bytes, settings.retention, settings.memory_on_disk) == (None, "fifo", False)


def test_its_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = start_run(_unpacked(tmp_path), make_catch)

    assert (run.tally.agent_steps, run.tally.episodes) == (130, 10)
    assert all((tensor == 1 / 64).all() for tensor in run.agent.state_dict()["online"].values())
    assert np.array_equal(run.memory.sampleable_indices(), np.arange(30, 130))
    assert _held(run.memory) == HELD


def test_it_goes_on_with_a_store_beside_its_checkpoints_and_the_old_memory_goes(tmp_path: Path) -> None:
    folder = _unpacked(tmp_path)
    change_settings(folder, catch_settings(steps=260, num_envs=2, memory=100, warmup=50, checkpoint_every=40))
    run = start_run(folder, make_catch)

    train(run, folder, [Checkpointing(run, folder.checkpoints, lambda warning: None)])

    newest = newest_checkpoint(folder.checkpoints)
    assert newest is not None
    assert differences(contents(run.state()), contents(read_checkpoint(newest, "cpu"))) == []
    assert strangers(folder.path) == []
    assert list(folder.path.rglob("frames.*.bin")) == []


def test_a_kill_before_its_first_new_checkpoint_costs_nothing(tmp_path: Path) -> None:
    folder = _unpacked(tmp_path)
    run = start_run(folder, make_catch)
    run.memory.save(folder.memory, keep_older=True)  # all that such a checkpoint got done

    again = start_run(folder, make_catch)

    assert not folder.memory.exists()
    assert _held(again.memory) == HELD

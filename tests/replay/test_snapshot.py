"""Saving and loading: everything comes back, and damage is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.frames.codec import checksum
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import STACK_PADDINGS
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.uniform import Uniform
from framestow.storage.files.manifest import MANIFEST
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.list_memory import ListMemory

SHAPE = (20, 30)


def recorded(
    num_steps: int, *, capacity=40, storage="packed", seed=1, stack_padding="first_frame"
) -> tuple[ReplayMemory, ListMemory]:
    options = {"num_streams": 2, "discount": 0.9, "storage": storage, "seed": seed, "stack_padding": stack_padding}
    memory = ReplayMemory(capacity, FrameSpec(SHAPE), 4, **options)
    oracle = ListMemory(capacity, 2, 4, 0.9, stack_padding)
    go_on(memory, oracle, num_steps, seed)
    return memory, oracle


def go_on(memory: ReplayMemory, oracle: ListMemory, num_steps: int, seed: int) -> None:
    """Record ``num_steps`` on both streams; an open episode goes on, an ended one begins anew."""
    random = np.random.default_rng(seed)
    for _ in range(num_steps):
        closed = [stream for stream in (0, 1) if not oracle.is_open[stream]]
        if closed:
            first = random.integers(0, 3, (len(closed), *SHAPE), dtype=np.uint8)
            memory.begin(first, closed)
            oracle.begin(first, closed)
        terminated, truncated = random.random((2, 2)) < 0.1
        frames = random.integers(0, 3, (2, *SHAPE), dtype=np.uint8)
        step = (random.integers(0, 4, 2), random.normal(size=2), terminated, truncated, frames, [0, 1])
        memory.append(*step)
        oracle.append(*step)


@pytest.mark.parametrize("stack_padding", STACK_PADDINGS)
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("num_steps", [0, 1, 15, 40, 300])
def test_a_loaded_memory_is_the_saved_one_and_goes_on_where_it_was(storage, num_steps, stack_padding, tmp_path):
    memory, oracle = recorded(num_steps, storage=storage, stack_padding=stack_padding)
    memory.save(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert_memory_is_what_the_oracle_holds(loaded, oracle)
    go_on(loaded, oracle, 50, seed=2)
    assert_memory_is_what_the_oracle_holds(loaded, oracle)


def test_a_loaded_memory_draws_what_the_saved_one_draws(tmp_path):
    memory, _ = recorded(60)
    memory.sample(5)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")

    expected = [memory.sample(8).index.tolist() for _ in range(3)]

    assert expected == [loaded.sample(8).index.tolist() for _ in range(3)]


def test_a_loaded_memory_packs_what_follows_as_the_saved_one_does(tmp_path):
    memory, oracle = recorded(70)
    memory.save(tmp_path / "memory")
    loaded = ReplayMemory.load(tmp_path / "memory")

    for target, number in ((memory, 0), (loaded, 1)):
        go_on(target, oracle, 30, seed=4)
        target.save(tmp_path / f"after {number}")

    first, second = ((tmp_path / f"after {number}" / "frames.1.bin").read_bytes() for number in (0, 1))
    assert first == second


def test_saving_to_the_same_folder_replaces_what_was_there_and_leaves_no_file_over(tmp_path):
    memory, oracle = recorded(20)
    memory.save(tmp_path / "memory")
    go_on(memory, oracle, 20, seed=3)

    memory.save(tmp_path / "memory")

    assert 3 == len(list((tmp_path / "memory").iterdir()))
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), oracle)


@pytest.mark.parametrize("moment", range(5))
def test_a_save_that_the_disk_breaks_off_leaves_the_last_one_loadable(moment, tmp_path, monkeypatch):
    memory, oracle = recorded(20)
    memory.save(tmp_path / "memory")
    later, later_oracle = recorded(30)
    go_on(later, later_oracle, 5, seed=9)
    real_fsync, calls = os.fsync, []

    def disk_is_full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > moment:
            raise OSError(28, "No space left on device")
        real_fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk_is_full)
        with pytest.raises(OSError, match="No space left"):
            later.save(tmp_path / "memory")

    was_renamed = moment == 4  # frames, arrays, manifest and names are on the disk by then; only the last sync fails
    assert_memory_is_what_the_oracle_holds(
        ReplayMemory.load(tmp_path / "memory"), later_oracle if was_renamed else oracle
    )
    later.save(tmp_path / "memory")
    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "memory"), later_oracle)
    assert len(list((tmp_path / "memory").iterdir())) == 3


def load_everything(folder) -> None:
    memory = ReplayMemory.load(folder)
    memory.transitions(memory.sampleable_indices())


def test_any_changed_byte_is_found_and_the_file_is_named(tmp_path):
    memory, _ = recorded(3, capacity=6)
    memory.save(tmp_path / "memory")
    random = np.random.default_rng(0)

    for file in sorted((tmp_path / "memory").iterdir()):
        good = file.read_bytes()
        places = range(len(good)) if len(good) < 1500 else random.choice(len(good), 1500, replace=False).tolist()
        for place in places:
            damaged = bytearray(good)
            damaged[place] ^= 1 << (place % 8)
            file.write_bytes(damaged)
            with pytest.raises(DamagedDataError, match=r"MANIFEST|arrays\.1\.npz|frames\.1\.bin"):
                load_everything(tmp_path / "memory")
        file.write_bytes(good)

    load_everything(tmp_path / "memory")


@pytest.mark.parametrize("part", ["frames", "arrays"])
@pytest.mark.parametrize("harm", ["cut short", "missing"])
def test_a_file_that_is_cut_short_or_missing_is_named(part, harm, tmp_path):
    memory, _ = recorded(10)
    memory.save(tmp_path / "memory")
    [file] = (tmp_path / "memory").glob(f"{part}.*")
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(DamagedDataError, match=file.name):
        ReplayMemory.load(tmp_path / "memory")


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Write the manifest as another version would have."""
    manifest = folder / MANIFEST
    content = json.loads(manifest.read_bytes().partition(b"\n")[2])
    change(content)
    body = json.dumps(content).encode()
    manifest.write_bytes(b"%08x\n" % checksum(body) + body)


def test_a_memory_of_a_later_version_is_refused(tmp_path):
    memory, _ = recorded(10)
    memory.save(tmp_path / "memory")
    change_manifest(tmp_path / "memory", lambda content: content.update(version=content["version"] + 1))

    with pytest.raises(IncompatibleError, match="it is version 2"):
        ReplayMemory.load(tmp_path / "memory")


def test_a_memory_from_before_frames_had_dtypes_is_of_uint8(tmp_path):
    memory, oracle = recorded(10)
    memory.save(tmp_path / "memory")
    older_frame = {"frame": {"shape": list(SHAPE)}}
    change_manifest(tmp_path / "memory", lambda content: content["state"]["settings"].update(older_frame))

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert np.uint8 == loaded.settings.frame.dtype
    assert_memory_is_what_the_oracle_holds(loaded, oracle)


def test_a_memory_from_before_the_padding_could_be_chosen_repeats_the_first_frame(tmp_path):
    memory, oracle = recorded(10)
    memory.save(tmp_path / "memory")
    change_manifest(tmp_path / "memory", lambda content: content["state"]["settings"].pop("stack_padding"))

    loaded = ReplayMemory.load(tmp_path / "memory")

    assert "first_frame" == loaded.settings.stack_padding
    assert_memory_is_what_the_oracle_holds(loaded, oracle)


def test_a_memory_padded_in_a_way_that_this_version_does_not_know_is_refused(tmp_path):
    memory, _ = recorded(10)
    memory.save(tmp_path / "memory")
    change_manifest(tmp_path / "memory", lambda content: content["state"]["settings"].update(stack_padding="mirror"))

    with pytest.raises(InvalidSettingsError, match="stack_padding is 'mirror': it must be one of"):
        ReplayMemory.load(tmp_path / "memory")


def test_a_memory_in_segments_of_another_length_is_refused(tmp_path):
    memory, _ = recorded(10)
    memory.save(tmp_path / "memory")
    change_manifest(
        tmp_path / "memory", lambda content: content.update(frames_per_segment=content["frames_per_segment"] // 2)
    )

    with pytest.raises(IncompatibleError, match="load it with the version that saved it"):
        ReplayMemory.load(tmp_path / "memory")


class Newest(Uniform):
    """A sampler of the user's own."""


def test_a_memory_is_loaded_with_a_sampler_of_the_class_it_was_saved_with(tmp_path):
    memory = ReplayMemory(40, FrameSpec(SHAPE), 4, num_streams=2, sampler=Newest(), seed=1)
    go_on(memory, ListMemory(40, 2, 4, 0.99), 20, seed=1)
    memory.save(tmp_path / "memory")

    with pytest.raises(IncompatibleError, match="sampler is a Uniform: the memory was saved with a Newest"):
        ReplayMemory.load(tmp_path / "memory")

    loaded = ReplayMemory.load(tmp_path / "memory", sampler=Newest())
    assert memory.sample(8).index.tolist() == loaded.sample(8).index.tolist()


def test_a_folder_without_a_memory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no framestow memory was saved in this folder"):
        ReplayMemory.load(tmp_path)


def test_a_moved_folder_loads(tmp_path):
    memory, oracle = recorded(10)
    memory.save(tmp_path / "memory")
    shutil.move(tmp_path / "memory", tmp_path / "elsewhere")

    assert_memory_is_what_the_oracle_holds(ReplayMemory.load(tmp_path / "elsewhere"), oracle)


MEASURE_PEAK = """
import resource, sys
import numpy as np
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.uniform import Uniform

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

def record(num_steps):
    memory = ReplayMemory(num_steps, FrameSpec((84, 84)), 4)
    noise = np.random.default_rng(0).integers(0, 256, (256, 84, 84), dtype=np.uint8)
    memory.begin(noise[:1])
    for step in range(num_steps):
        memory.append([0], [0.0], [False], [False], noise[step % 256][None])
    return memory

folder = sys.argv[2]
record(200).save(folder + "-warm")
ReplayMemory.load(folder + "-warm")
if sys.argv[1] == "save":
    memory = record(15_000)
    before = peak()
    memory.save(folder)
else:
    before = peak()
    memory = ReplayMemory.load(folder)
    before += memory.nbytes
print((peak() - before) / memory.nbytes)
"""


def test_saving_and_loading_take_no_second_copy_of_the_memory(tmp_path):
    over = {}
    for what in ("save", "load"):
        command = [sys.executable, "-c", MEASURE_PEAK, what, str(tmp_path / "memory")]
        over[what] = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert max(over.values()) < 0.1, over  # of 106 MB of noise

"""A TorchRL storage returns the true pixels after starts of episodes, new environments, saves and refused steps."""

import json
import pickle
import re
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchrl.data import (
    LazyTensorStorage,
    ReplayBuffer,
    SliceSampler,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    traj,
)
from torchrl.envs.transforms import MultiStepTransform

from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError, InvalidStepError
from framestow.integrations.torchrl import FramestowStorage
from integrations.libraries.torchrl_play import Play, assert_equal
from oracles.wrong_values import Call, assert_wrong_values_are_refused, each_argument

SIZE = 45
PICTURE = (1, 32, 33)  # four of them along the first axis are taken for a stack


def buffer_of(storage, **options):
    return TensorDictReplayBuffer(storage=storage, batch_size=8, generator=torch.Generator().manual_seed(0), **options)


def both(size=SIZE, **settings_of_ours):
    return buffer_of(LazyTensorStorage(size)), buffer_of(FramestowStorage(size, **settings_of_ours))


def extend(theirs, ours, play, num_steps=5, come_as="frames", is_by_time=False):
    frames, stacks = (data.transpose(0, 1) if is_by_time else data for data in play.batch(num_steps))
    theirs.extend(stacks.reshape(-1))
    ours.extend((frames if come_as == "frames" else stacks.clone()).reshape(-1))


@pytest.mark.exhaustive  # slow: the other tests of batches cover the same
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    num_envs=st.integers(1, 4),
    end=st.sampled_from([0.0, 0.05, 0.3, 0.9]),
    padding=st.sampled_from(["same", "constant"]),
    come_as=st.sampled_from(["frames", "stacks"]),
    is_by_time=st.booleans(),
    data=st.data(),
)
def test_all_stored_steps_equal_the_added_ones(seed, num_envs, end, padding, come_as, is_by_time, data):
    play = Play(seed, num_envs, padding=padding, end=end, shape=PICTURE)
    theirs, ours = both(24, **({"frame_stack": 4, "padding": padding} if come_as == "frames" else {}))
    for _ in range(data.draw(st.integers(2, 9))):
        extend(theirs, ours, play, data.draw(st.integers(1, 6)), come_as, is_by_time)

        assert_equal(theirs[:], ours[:])
    ours.storage.memory.inner.parts.check()


@pytest.mark.each_value
@pytest.mark.parametrize("come_as", ["frames", "stacks"])
@pytest.mark.parametrize("num_envs", [9, 20])
def test_any_number_of_environments_may_take_turns(come_as, num_envs, tmp_path):
    play = Play(0, num_envs, shape=PICTURE)
    theirs, ours = both(50, **({"frame_stack": 4} if come_as == "frames" else {}))
    for _ in range(5):
        for env in range(num_envs):
            frames, stacks = play.step(env)
            if come_as == "stacks":  # only the pixels identify the environments
                frames = stacks.clone().exclude("collector")
                stacks = stacks.exclude("collector")
            theirs.add(stacks)
            ours.add(frames)

        assert_equal(theirs[:], ours[:])
        ours.dumps(tmp_path)
        ours.loads(tmp_path)
    assert_equal(theirs[:], ours[:])
    assert 16 == ours.storage.memory.num_envs
    assert 4 == ours.storage.memory.stack


def test_stacks_from_the_middle_of_episodes_are_returned_unchanged():
    play = Play(0, 3, end=0.02, shape=PICTURE)
    theirs, ours = both()
    play.batch(3)  # not stored
    for number in range(8):
        extend(theirs, ours, play, come_as="stacks")
        assert_equal(theirs[:], ours[:])
        if number == 4:
            theirs.empty()
            ours.empty()
            play.batch(2)

    assert 4 == ours.storage.memory.stack
    assert theirs.sample().batch_size == ours.sample().batch_size


def test_pixels_with_the_shape_of_stacks_that_are_none_are_returned_unchanged():
    theirs, ours = both()
    play, unrelated = Play(0, 2, shape=PICTURE), torch.Generator().manual_seed(0)
    for number in range(6):
        _, data = play.batch(5)
        for part in (data, data["next"]) if number % 2 else ():
            part["pixels"] = torch.randint(256, part["pixels"].shape, generator=unrelated).to(torch.uint8)
        theirs.extend(data.reshape(-1).clone())
        ours.extend(data.reshape(-1))

        assert_equal(theirs[:], ours[:])
    assert 4 == ours.storage.memory.stack


def test_several_keys_and_scaled_floats_are_packed_together():
    theirs, ours = both()
    play, noise = Play(0, 2, values=256), torch.Generator().manual_seed(0)
    for _ in range(5):
        _, data = play.batch(5)
        depths = torch.randn((2, 6, 1, 8, 9), generator=noise)
        for part, first in ((data, 0), (data["next"], 1)):
            part["camera"] = {"depth": depths[:, first : first + 5].clone()}
            part["scaled"] = part["pixels"].float() / 255
        theirs.extend(data.reshape(-1).clone())
        ours.extend(data.reshape(-1))

        assert_equal(theirs[:], ours[:])
        assert_equal(theirs.sample(), ours.sample())
    assert {"camera.depth", "pixels", "scaled"} == set(ours.storage.memory.report().frame_bytes_by_key)


def test_a_storage_reports_its_own_steps_and_the_bytes_that_its_repr_says():
    storage = FramestowStorage(SIZE)
    storage_buffer, play = buffer_of(storage), Play(0, 2)
    for _ in range(6):
        storage_buffer.extend(play.batch(5)[0].reshape(-1))

    assert (SIZE, SIZE) == (storage.report().transitions, storage.report().capacity)
    assert storage.report().describe_bytes() in repr(storage)
    assert storage.memory.nbytes == storage.report().all_bytes


def test_a_saved_and_loaded_buffer_continues_like_the_original(tmp_path):
    play = Play(0, 3)
    theirs, ours = both(frame_stack=4)
    for _ in range(5):
        extend(theirs, ours, play)
    ours.dumps(tmp_path / "files")
    torch.save(ours.state_dict(), tmp_path / "state")
    copies = [buffer_of(FramestowStorage(SIZE, frame_stack=4, threads=2)) for _ in range(2)]
    copies[0].loads(tmp_path / "files")
    copies[1].load_state_dict(torch.load(tmp_path / "state"))
    pickled = pickle.loads(pickle.dumps(copies[0].storage))

    assert [kept.memory.inner.settings.threads for kept in (copies[0].storage, copies[1].storage, pickled)] == [2, 2, 2]
    assert_equal(theirs[:], pickled[:])
    drawn, batch = theirs.sample(), play.batch(5)
    theirs.extend(batch[1].reshape(-1))
    for copy in copies:
        assert_equal(drawn, copy.sample())
        copy.extend(batch[0].reshape(-1).clone())
        assert_equal(theirs[:], copy[:])


def saved_as_a_checkpoint(buffer, folder):
    buffer.dumps(folder / "checkpoint")
    return lambda other: other.loads(folder / "checkpoint")


def saved_as_a_state(buffer, _folder):
    state = buffer.state_dict()
    return lambda other: other.load_state_dict(state)


def saved_as_a_pickle(buffer, _folder):
    pickled = pickle.dumps(buffer)
    return lambda other: other.__setstate__(pickle.loads(pickled).__getstate__())


@pytest.mark.each_value
@pytest.mark.parametrize("save", [saved_as_a_checkpoint, saved_as_a_state, saved_as_a_pickle])
@pytest.mark.parametrize("come_as", ["frames", "stacks"])
def test_a_storage_in_a_folder_equals_torchrls_and_goes_on_there(come_as, save, tmp_path):
    play, folder = Play(0, 3, shape=PICTURE), tmp_path / "replay"
    settings = {"directory": folder} | ({"frame_stack": 4} if come_as == "frames" else {})
    theirs, ours = both(**settings)
    for _ in range(4):
        extend(theirs, ours, play, come_as=come_as)
    load, living = save(ours, tmp_path), ours.storage.memory

    other = both(**settings)[1]
    load(other)
    assert other.storage.memory is living
    assert folder == living.directory
    living.close()
    other = both(**settings)[1]
    load(other)
    assert_equal(theirs[:], other[:])
    extend(theirs, other, play, come_as=come_as)
    assert_equal(theirs[:], other[:])

    assert not (tmp_path / "checkpoint" / "storage" / "memory").exists()  # no second copy
    with pytest.raises(IncompatibleError, match=r"generation \d+ of .* which now has generation \d+ "):
        load(both(**settings)[1])
    with pytest.raises(IncompatibleError, match=r"has the observations of another buffer: .* load that, or give"):
        extend(*both(**settings), play, come_as=come_as)
    theirs.empty()
    other.empty()
    extend(theirs, other, Play(1, 3, shape=PICTURE), come_as=come_as)
    assert_equal(theirs[:], other[:])


def test_loading_refuses_damaged_bytes_and_other_settings(tmp_path):
    play = Play(0, 3)
    theirs, ours = both(frame_stack=4)
    extend(theirs, ours, play)
    ours.dumps(tmp_path)
    with pytest.raises(IncompatibleError, match=r"^frame_stack is 3, but 4 in the saved storage"):
        buffer_of(FramestowStorage(SIZE, frame_stack=3)).loads(tmp_path)
    rewards = tmp_path / "storage" / "next" / "reward.memmap"
    content = bytearray(rewards.read_bytes())
    content[0] ^= 1
    rewards.write_bytes(content)

    with pytest.raises(DamagedDataError, match=re.escape("reward.memmap is damaged or missing")):
        ours.loads(tmp_path)
    assert_equal(theirs[:], ours[:])


def test_a_damaged_file_of_the_state_is_refused(tmp_path):
    theirs, ours = both(frame_stack=4)
    extend(theirs, ours, Play(0, 3))
    ours.dumps(tmp_path)
    file = tmp_path / "storage" / "framestow.json"
    written = file.read_text()
    for damaged in (written[:200], written.replace('"next_cell": 15', '"next_cell": 16'), "", None):
        file.unlink() if damaged is None else file.write_text(damaged)
        with pytest.raises(DamagedDataError, match=re.escape("framestow.json is damaged or missing")):
            ours.loads(tmp_path)
        assert_equal(theirs[:], ours[:])
    file.write_text(json.dumps({name: part for name, part in json.loads(written).items() if name != "checksum"}))
    ours.loads(tmp_path)  # as written before there was a checksum


def test_the_steps_of_another_storage_are_refused_before_any_change(tmp_path):
    play = Play(0, 3, shape=PICTURE)
    theirs, ours = both()
    extend(theirs, ours, play, come_as="stacks")
    theirs.dumps(tmp_path)
    for load, saved in ((ours.loads, tmp_path), (ours.load_state_dict, theirs.state_dict())):
        with pytest.raises(IncompatibleError, match="another storage saved this; load it there, and extend"):
            load(saved)
        extend(theirs, ours, play, come_as="stacks")
        assert_equal(theirs[:], ours[:])

    theirs.empty()
    ours.load_state_dict(both()[1].state_dict())
    extend(theirs, ours, play, come_as="stacks")
    assert_equal(theirs[:], ours[:])


def test_a_state_keeps_the_steps_of_its_time():
    play = Play(0, 3)
    theirs, ours = both(frame_stack=4)
    for _ in range(4):
        extend(theirs, ours, play)
    expected, kept = theirs[:].clone(), ours.state_dict()
    extend(theirs, ours, play)
    ours.load_state_dict(kept)

    assert_equal(expected, ours[:])


def test_an_empty_batch_stores_nothing():
    play = Play(0, 3)
    theirs, ours = both()
    stacks = play.batch(5)[1]
    for empty in (stacks.reshape(-1)[:0], stacks[:, :0]):
        ours.extend(empty)
        extend(theirs, ours, play, come_as="stacks")

        assert_equal(theirs[:], ours[:])
        assert theirs.write_count == ours.write_count


def test_all_keys_except_pixels_can_be_rewritten():
    play = Play(0, 3)
    theirs, ours = both(frame_stack=4)
    extend(theirs, ours, play)
    some = torch.arange(7)
    for buffer in (theirs, ours):
        data = buffer[some]
        data["next", "reward"] = data["next", "reward"] + 1
        buffer[some] = data
        buffer.set_at_(("next", "reward"), torch.full((3, 1), 9.0), some[:3] + 8)

    assert_equal(theirs[:], ours[:])
    data["pixels"] = data["pixels"] + 1
    with pytest.raises(InvalidStepError, match=r"^new pixels are written to the positions"):
        ours[some] = data
    assert_equal(theirs[:], ours[:])


def packed_pixels():
    ours = buffer_of(FramestowStorage(SIZE, ndim=2))
    ours.extend(Play(0, 3).batch(5)[0])
    return ours.storage[:]["pixels"]


READS = {
    "an array": np.asarray,
    "lists": lambda pixels: pixels.tolist(),
    "a deep copy": deepcopy,
    "DLPack": torch.from_dlpack,
    "a shift": lambda pixels: pixels << 1,
    "the last axis": lambda pixels: pixels[..., 0],
    "a mask of pixels": lambda pixels: pixels[pixels > 1],
    "a mask of steps": lambda pixels: pixels[pixels[..., 0, 0, 0] > 0],
    "a mask of steps, and a channel": lambda pixels: pixels[pixels[..., 0, 0, 0] > 0, 0],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_packed_pixels_are_read_like_plain_ones(read):
    packed = packed_pixels()

    assert np.array_equal(np.asarray(read(packed.clone())), np.asarray(read(packed)))


WRITES = {
    "in place": lambda pixels: pixels.zero_(),
    "an assignment": lambda pixels: pixels.__setitem__(0, 9),
    "out": lambda pixels: torch.add(pixels.clone(), 1, out=pixels),
    "one of several out": lambda pixels: torch.max(pixels[None], 0, out=(pixels, torch.zeros_like(pixels).long())),
    "share_memory_": lambda pixels: pixels.share_memory_(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_writes_into_packed_pixels_are_refused(write):
    with pytest.raises(InvalidStepError, match="would write into packed pixels"):
        write(packed_pixels())


def test_batches_may_be_written_to():
    ours = buffer_of(FramestowStorage(SIZE, frame_stack=4))
    ours.extend(Play(0, 3).batch(5)[0].reshape(-1))
    before = ours[:]["pixels"].clone()

    batch = ours[torch.arange(15)]
    expected = batch["next", "pixels"].clone()
    batch["pixels"].fill_(7)

    assert torch.equal(expected, batch["next", "pixels"])
    assert torch.equal(before, ours[torch.arange(15)]["pixels"])


def test_the_next_steps_use_the_positions_of_refused_steps():
    play = Play(0, 3)
    theirs, ours = both(frame_stack=4)
    extend(theirs, ours, play)
    frames, stacks = play.batch(5)
    with pytest.raises(InvalidStepError, match=re.escape("next.pixels is missing: every step needs the pixels")):
        ours.extend(frames.exclude(("next", "pixels")).reshape(-1))
    with pytest.raises(
        InvalidStepError, match=r"^pixels is uint8 of shape \(4, 5, 6\) per step: it must be uint8 of shape \(1, 5, 6\)"
    ):
        ours.extend(stacks.reshape(-1).clone())

    theirs.extend(stacks.reshape(-1))
    ours.extend(frames.reshape(-1))
    assert_equal(theirs[:], ours[:])
    assert theirs.write_count == ours.write_count


def interrupt(monkeypatch, memory, at, is_behind=False, call="add"):
    """Interrupt call number ``at`` that stores steps, before or behind it."""
    calls, add = [], getattr(type(memory), call)

    def interrupted(memory, *step):
        calls.append(step)
        if len(calls) < at or is_behind:
            add(memory, *step)
        if len(calls) == at:
            raise KeyboardInterrupt

    monkeypatch.setattr(type(memory), call, interrupted)


@pytest.mark.parametrize("is_behind", [False, True], ids=["before the memory has the step", "behind it"])
@pytest.mark.parametrize("come_as", ["frames", "stacks"])
def test_the_steps_of_a_batch_before_an_interrupt_are_stored(monkeypatch, come_as, is_behind):
    play = Play(0, 3, shape=PICTURE)
    theirs, ours = both(**({"frame_stack": 4} if come_as == "frames" else {}))
    for _ in range(4):
        extend(theirs, ours, play, come_as=come_as)
    frames, stacks = (data.reshape(-1) for data in play.batch(2))
    given = frames if come_as == "frames" else stacks
    with monkeypatch.context() as patched:
        call = "append" if come_as == "frames" else "add"
        interrupt(patched, ours.storage.memory, at=3, is_behind=is_behind, call=call)
        with pytest.raises(KeyboardInterrupt):
            ours.extend(given.clone())

    stored = ours.write_count - theirs.write_count
    assert 0 < stored < 6
    theirs.extend(stacks[:stored].clone())
    assert_equal(theirs[:], ours[:])
    theirs.extend(stacks[stored:].clone())
    ours.extend(given[stored:].clone())
    for _ in range(6):
        extend(theirs, ours, play, come_as=come_as)
        assert_equal(theirs[:], ours[:])


def test_many_interrupted_batches_change_no_stored_step(monkeypatch):
    play = Play(0, 3, shape=PICTURE)
    theirs, ours = both()
    for number in range(100):
        stacks = play.batch(4)[1].reshape(-1)
        if number == 0:
            theirs.extend(stacks.clone())
            ours.extend(stacks.clone())
            continue
        with monkeypatch.context() as patched:
            interrupt(patched, ours.storage.memory, at=2 + number % 3)
            with pytest.raises(KeyboardInterrupt):
                ours.extend(stacks.clone())
        if stored := ours.write_count - theirs.write_count:
            theirs.extend(stacks[:stored].clone())
        if number % 20 == 0:
            assert_equal(theirs[:], ours[:])
    assert theirs.write_count > 3 * len(theirs)


def test_unsupported_writers_and_settings_are_refused():
    frames, _ = Play(0, 3, end=0.0).batch(6)
    frames["next", "reward"] = torch.arange(18.0).reshape(3, 6, 1).flip(1)
    by_value = TensorDictMaxValueWriter(rank_key=("next", "reward"))
    ranked = TensorDictReplayBuffer(storage=FramestowStorage(6), writer=by_value, batch_size=2)
    with pytest.raises(InvalidStepError, match=r"^steps are written to the positions .* use a RoundRobinWriter"):
        [ranked.extend(row.clone()) for row in frames]
    of_n_steps = buffer_of(FramestowStorage(SIZE, frame_stack=4), transform=MultiStepTransform(n_steps=3, gamma=0.9))
    with pytest.raises(
        InvalidStepError, match=r"^step 1 of trajectory 0: its pixels are not the next pixels of the step before"
    ):
        of_n_steps.extend(frames.clone())
    with pytest.raises(InvalidSettingsError, match=r"^no pixels among .* compact_obs=False"):
        buffer_of(FramestowStorage(SIZE)).extend(frames.exclude(("next", "pixels")).reshape(-1))
    with pytest.raises(InvalidSettingsError, match=r"^compilable is True"):
        FramestowStorage(SIZE, compilable=True)
    with pytest.raises(
        InvalidSettingsError, match=r"^max_bytes is not possible here: TorchRL draws cells of a full stora"
    ):
        FramestowStorage(SIZE, max_bytes="1 GiB")
    with pytest.raises(InvalidSettingsError, match=r"^maxsize is not an argument of .*; did you mean 'max_size'"):
        FramestowStorage(SIZE, maxsize=9)


STORAGE = {
    "max_size": 20,
    "device": "cpu",
    "ndim": 1,
    "compilable": False,
    "consolidated": False,
    "shared_init": False,
    "cleanup_memmap": True,
    "frame_stack": None,
    "dim": -3,
    "padding": "same",
    "pixels": None,
    "threads": 1,
    "storage": "packed",
    "directory": None,
    "flush_every": None,
}
STORAGES = {
    "FramestowStorage": Call(
        FramestowStorage,
        STORAGE,
        {"cleanup_memmap": "True", "frame_stack": "None", "dim": "-1", "pixels": "None 'a'"}
        | {"directory": "None 'a'", "flush_every": "None 2.5"},  # no folder before the first step
        {"device": ["gpu"], "pixels": [[], ["a", 5], ("a", 5)], "threads": [65], "storage": ["zip"]},
    )
}


@pytest.mark.parametrize(("call", "name"), each_argument(STORAGES))
def test_a_wrong_argument_is_refused_with_its_value(call, name):
    assert_wrong_values_are_refused(call, name)


def test_reading_a_whole_storage_unpacks_only_the_used_pixels(monkeypatch):
    play = Play(0, 3)
    theirs, ours = both(frame_stack=4)
    for _ in range(4):
        extend(theirs, ours, play)
    queried = traj.length >= 3
    for expected, got in zip(theirs.query(queried), ours.query(queried), strict=True):
        assert_equal(expected, got)
    assert torch.equal(theirs["pixels"], ours["pixels"])
    reads = []
    read = type(ours.storage.memory).get

    def recorded(memory, indices, **settings):
        reads.append(indices)
        return read(memory, indices, **settings)

    monkeypatch.setattr(type(ours.storage.memory), "get", recorded)

    slices = ReplayBuffer(storage=ours.storage, sampler=SliceSampler(num_slices=2, strict_length=False), batch_size=4)
    num_steps = len(slices.sample())  # 4, or fewer where a trajectory is shorter than a slice
    assert 2 <= num_steps <= 4
    assert {num_steps} == {len(indices) for indices in reads}

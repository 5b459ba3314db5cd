"""With ``copy=True`` nothing in a batch shares memory: what is written to one array stays there."""

from __future__ import annotations

from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch

from distributed.env_steps import NumberedSteps, local_replay
from framestow import FrameSpec, ReplayEnsemble, ReplayMemory
from framestow.errors import InvalidSettingsError
from framestow.torch import BatchLoader, SequenceLoader, TransitionDataset, to_tensors
from framestow.torch.batch_loader import CopiesAhead
from framestow.torch.tensor_batch import convert_batch

SPACES = {
    "stacks of one frame": (FrameSpec((3, 4)), {"stack": 2}),
    "channels last": (FrameSpec((40, 40, 4)), {}),
    "a dict": ({"camera": FrameSpec((3, 4)), "arm": (FrameSpec((2,), np.float32), FrameSpec((1,)))}, {"stack": 2}),
}


def noise(space, generator: np.random.Generator):
    if isinstance(space, dict):
        return {key: noise(part, generator) for key, part in space.items()}
    if isinstance(space, tuple):
        return tuple(noise(part, generator) for part in space)
    return generator.integers(0, 255, (1, *space.shape)).astype(space.dtype)


def recorded(space, n_step: int = 1, **settings) -> ReplayMemory:
    memory = ReplayMemory(100, space, 4, n_step=n_step, seed=0, extras={"cost": np.float32}, **settings)
    generator = np.random.default_rng(0)
    memory.begin(noise(space, generator))
    for step in range(30):
        memory.append([step % 4], [step], [False], [step == 29], noise(space, generator), extras={"cost": [step]})
    return memory


def of_shards() -> object:
    replay, steps = local_replay(shards=2, num_envs=2), NumberedSteps(2)
    for env_id in range(2):
        steps.play(replay, env_id, 40)
    replay.flush()
    return replay


def arrays_of(batch) -> list[np.ndarray]:
    """All arrays of a batch, tensors as arrays over the same memory."""
    arrays: list[np.ndarray] = []
    batch.map(lambda array: arrays.append(np.asarray(array)), lambda index: arrays.append(np.asarray(index)))
    return arrays


def assert_separate(shared, own) -> None:
    """``own`` has what ``shared`` has, and no two of its arrays share memory; all can be written to."""
    arrays = arrays_of(own)
    for expected, array in zip(arrays_of(shared), arrays, strict=True):
        np.testing.assert_array_equal(expected, array)
        assert array.flags.writeable
    for one, other in combinations(arrays, 2):
        assert not np.shares_memory(one, other)
    before = [array.copy() for array in arrays]
    for number, array in enumerate(arrays):
        array[...] = 1
        for later in range(number + 1, len(arrays)):
            np.testing.assert_array_equal(before[later], arrays[later])


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(("space", "settings"), SPACES.values(), ids=SPACES)
def test_a_sample_shares_nothing_if_you_ask_for_a_copy(space, settings, n_step):
    shared, copied = (recorded(space, n_step, **settings) for _ in range(2))

    assert_separate(shared.sample(8), copied.sample(8, copy=True))
    assert_separate(shared.sample_sequences(4, 5), copied.sample_sequences(4, 5, copy=True))
    tensors = to_tensors(copied.sample(8), copy=True)
    assert_separate(shared.sample(8), tensors)
    assert tensors.observation["camera"].is_contiguous() if isinstance(space, dict) else True
    sequences = copied.sample_sequences(4, 5)
    assert_separate(shared.sample_sequences(4, 5), to_tensors(sequences, copy=True))


def test_what_is_drawn_later_is_not_spoilt_by_what_is_written_to_a_copy():
    space, settings = SPACES["stacks of one frame"]
    written, read = (recorded(space, **settings) for _ in range(2))

    for _ in range(20):
        batch, expected = written.sample(8, copy=True), read.sample(8)
        np.testing.assert_array_equal(expected.observation, batch.observation)
        np.testing.assert_array_equal(expected.next_observation, batch.next_observation)
        batch.observation[:], batch.next_observation[:] = 0, 1


@pytest.mark.parametrize("make", [lambda: ReplayEnsemble([recorded(*space_of()), recorded(*space_of())], [0.5, 0.5])])
def test_batches_of_several_memories_are_copied_too(make):
    shared, copied = make(), make()

    assert_separate(shared.sample(8), copied.sample(8, copy=True))
    assert_separate(shared.sample_sequences(4, 5), copied.sample_sequences(4, 5, copy=True))


def space_of() -> tuple:
    return (SPACES["channels last"][0],)


def test_batches_of_shards_are_copied_too():
    shared, copied = of_shards(), of_shards()

    assert_separate(shared.sample(8), copied.sample(8, copy=True))
    assert_separate(shared.sample_sequences(4, 3), copied.sample_sequences(4, 3, copy=True))


@pytest.mark.parametrize(
    "make",
    [partial(BatchLoader, batch_size=8), partial(SequenceLoader, batch_size=4, length=5)],
    ids=["transitions", "sequences"],
)
def test_batches_of_a_loader_are_copied_by_its_threads(make):
    space, settings = SPACES["stacks of one frame"]
    with (
        make(recorded(space, **settings)) as shared,
        make(recorded(space, **settings), threads=2, copy=True) as copied,
    ):
        for _ in range(4):
            assert_separate(next(shared), next(copied))


def test_batches_of_a_dataset_are_copied_too(tmp_path):
    space, settings = SPACES["stacks of one frame"]
    recorded(space, **settings).save(tmp_path)
    for each_once in (False, True):
        shared, copied = (
            TransitionDataset(tmp_path, 8, seed=0, each_once=each_once, copy=copy) for copy in (False, True)
        )
        assert_separate(next(iter(shared)), next(iter(copied)))


class NowUploads:
    """Uploads that are done at once, to the CPU."""

    def staging(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)

    def start(self, staging: torch.Tensor) -> NowUpload:
        return NowUpload(staging.clone())


class NowUpload:
    def __init__(self, on_device: torch.Tensor) -> None:
        self.on_device = on_device

    def is_done(self) -> bool:
        return True

    def wait(self) -> None: ...

    def make_stream_wait(self) -> None: ...


def test_batches_that_went_to_a_device_in_one_block_are_copied_there():
    space, settings = SPACES["stacks of one frame"]
    batch = recorded(space, **settings).sample(8)
    shared, copied = (CopiesAhead(NowUploads(), 2, copy=copy) for copy in (False, True))

    received = shared.receive(shared.send(batch))
    assert np.shares_memory(received.observation.numpy(), received.next_observation.numpy())
    assert_separate(convert_batch(batch, torch.from_numpy), copied.receive(copied.send(batch)))


def test_a_wrong_value_is_refused():
    space, settings = SPACES["stacks of one frame"]
    memory = recorded(space, **settings)
    for call in (
        partial(memory.sample, 8),
        partial(memory.sample_sequences, 4, 5),
        partial(to_tensors, memory.sample(8)),
        partial(BatchLoader, memory, 8),
    ):
        with pytest.raises(InvalidSettingsError, match="copy is 'yes': it must be True or False"):
            call(copy="yes")

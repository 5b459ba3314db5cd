"""Ctrl-C between any two lines of ``begin``, ``append`` and ``add``: the step is there whole, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import DISCOUNT, EXTRAS, SMALL, AnyPlay
from oracles.comparison import assert_memory_is_what_the_oracle_holds
from oracles.crash_run import CrashRun
from oracles.ctrl_c import ctrl_c_at_line
from oracles.list_memory import ListMemory
from oracles.observations_of_bytes import NUM_BYTES, SPACE, MemoryOfBytes
from oracles.store_files import generations

pytestmark = [
    pytest.mark.slow,  # more than two seconds
    pytest.mark.filterwarnings("ignore::framestow.errors.ObservationWarning"),  # most steps are unusual
]

SHAPE = (3, 5)
KEYED = "keyed"  # two pictures, floats and vectors, nested; in bytes, so that the oracle fits
PIXELS, SCALED = FrameSpec(SHAPE), FrameSpec(SHAPE, np.dtype(np.float32), is_scaled=True)


def frames_of(spec: FrameSpec | str, number: int, count: int) -> np.ndarray:
    """Different ones for each number; of scaled floats every second is none that a pixel over 255 is."""
    if spec == KEYED:
        return np.random.default_rng(number).integers(0, 256, (count, NUM_BYTES), dtype=np.uint8)
    frames = np.random.default_rng(number).integers(0, 256, (count, *SHAPE)).astype(spec.dtype)
    if spec.is_scaled:
        frames /= 255
        frames[number % 2 :: 2] += np.float32(1e-3)
    return frames


def filled(spec: FrameSpec | str, storage: str) -> tuple[ReplayMemory, ListMemory]:
    space = SPACE if spec == KEYED else spec
    memory: Any = ReplayMemory(12, space, 3, stack=3, num_envs=2, storage=storage, seed=0)
    if spec == KEYED:
        memory = MemoryOfBytes(memory)
    oracle = ListMemory(12, 2, 3, 0.99)
    for target in (memory, oracle):
        target.begin(frames_of(spec, 0, 2), [0, 1])
    for number in range(1, 9):
        append(spec, number)(memory)
        append(spec, number)(oracle)
    return memory, oracle


def append(spec: FrameSpec | str, number: int) -> Callable[[ReplayMemory | ListMemory], None]:
    step = [1, 2], [0.5, number], [False, False], [False, False], frames_of(spec, number, 2), [0, 1]
    return lambda target: target.append(*step)


def begin(spec: FrameSpec | str, number: int) -> Callable[[ReplayMemory | ListMemory], None]:
    return lambda target: target.begin(frames_of(spec, number, 2), [1, 0])


@pytest.mark.parametrize("call", [append, begin])
@pytest.mark.parametrize(
    ("spec", "storage"),
    [
        (PIXELS, "packed"),
        (PIXELS, "raw"),
        (SCALED, "packed"),
        (SCALED, "raw"),
        pytest.param(KEYED, "packed", marks=pytest.mark.exhaustive),  # tests/storage has the quick one
    ],
)
def test_ctrl_c_at_any_line_stores_a_step_whole_or_not_at_all(spec, storage, call):
    outcomes, is_interrupted = [], True
    while is_interrupted:
        memory, oracle = filled(spec, storage)
        before = [memory.inner.frames.stored_positions(env_id).stop for env_id in (0, 1)]
        try:
            with ctrl_c_at_line(len(outcomes) + 1):
                call(spec, 9)(memory)
            is_interrupted = False
        except KeyboardInterrupt:
            is_there = [memory.inner.frames.stored_positions(env_id).stop > stop for env_id, stop in enumerate(before)]
            assert is_there in ([True, True], [False, False])
            outcomes.append(is_there[0])

        if not is_interrupted or outcomes[-1]:
            call(spec, 9)(oracle)
        for number in (10, 11, 12):
            append(spec, number)(memory)
            append(spec, number)(oracle)
        assert_memory_is_what_the_oracle_holds(memory, oracle)

    assert outcomes.count(False) >= 3
    assert outcomes.count(True) >= 1
    assert outcomes == sorted(outcomes)  # once the storage has the first frame, the step is finished


class InterruptedAdd:
    """A memory of which one ``add`` is interrupted at a line, and repeated unless its steps are stored."""

    def __init__(self, memory: ReplayMemory, line: int) -> None:
        self._memory, self._line = memory, line
        self.is_stored: bool | None = None  # None if the call came to its end
        self.num_envs = memory.num_envs

    def add(self, *step) -> None:
        numbers = step[-1]["number"].tolist()
        try:
            with ctrl_c_at_line(self._line):
                self._memory.add(*step)
        except KeyboardInterrupt:
            self._memory.inner.parts.check()
            found = [number in self._memory.sampleable_indices() for number in numbers]
            assert found in ([True] * len(found), [False] * len(found))
            self.is_stored = found[0]
            if not self.is_stored:
                self._memory.add(*step)


@pytest.mark.each_value
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        (0, 1000),
        (0, 9),
        (1, 7),
        *(pytest.param(seed, 7, marks=pytest.mark.exhaustive) for seed in range(2, 20)),
    ],
)
def test_ctrl_c_at_any_line_of_add_stores_its_steps_whole_or_not_at_all(seed, kinds, storage):
    outcomes, is_interrupted = [], True
    while is_interrupted:
        memory: Any = ReplayMemory(
            12, SMALL, 4, stack_axis=0, num_envs=2, storage=storage, discount=DISCOUNT, extras=EXTRAS, seed=0
        )
        play = AnyPlay(memory, ObservationLayout.of_space(SMALL, 0), seed, kinds=kinds)
        for _ in range(8):
            play.add([0, 1])

        play.memory = interrupted = InterruptedAdd(memory, len(outcomes) + 1)
        play.add([1, 0])
        is_interrupted = interrupted.is_stored is not None
        if is_interrupted:
            outcomes.append(interrupted.is_stored)

        play.memory = memory
        play.play(3)
        numbers = memory.sampleable_indices().tolist()
        assert play.sampleable(12) == numbers
        play.assert_batch(memory.get(numbers))

    assert outcomes.count(False) >= 3
    assert outcomes.count(True) >= 1
    assert outcomes == sorted(outcomes)


def test_frames_without_a_block_of_steps_are_detected_and_not_saved(tmp_path):
    life = CrashRun("pictures", "raw", "random", False, tmp_path, seed=0)
    while len(life.memory) < 250:
        life.step(is_interrupted=False)
    memory = life.memory
    memory.save(tmp_path)
    frames = memory.inner.frames.frames_per_segment
    for _ in range(2 * frames):
        memory.inner.frames.append(np.zeros(1, np.int32), np.zeros((1, *memory.observation_space.shape), np.uint8))

    for call in (memory.inner.parts.check, lambda: memory.save(tmp_path)):
        with pytest.raises(AssertionError, match=r"has frames of segments \[\d+( \d+)*\], and no block of steps"):
            call()
    life.check_stored(ReplayMemory.load(tmp_path), len(life.steps))


def test_steps_without_their_frames_are_detected_and_not_saved(tmp_path):
    life = CrashRun("vectors", "raw", "random", False, tmp_path, seed=0)
    while len(life.memory) < 250:
        life.step(is_interrupted=False)
    life.memory.inner.frames.evict(1, 32, 16)

    for call in (life.memory.inner.parts.check, lambda: life.memory.save(tmp_path)):
        with pytest.raises(AssertionError, match=r"environment 1 has steps of block \d+, and no frames for them"):
            call()
    assert [] == generations(tmp_path)

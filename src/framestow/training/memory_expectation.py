"""Estimate the size of a run's memory before training, and refuse a memory that cannot fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framestow.agents.dqn import estimate_state_bytes
from framestow.envs import find_preset, make_atari
from framestow.envs.atari.atari_env import AtariEnv
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.process_memory import available_bytes, available_disk_bytes
from framestow.replay.action_spec import ActionSpec
from framestow.replay.byte_amounts import MIB, format_bytes
from framestow.replay.memory_report import MemoryReport
from framestow.replay.step_fields import slot_record
from framestow.storage.frame_storage import FrameStorage
from framestow.training.settings import Settings

OnFrame = Callable[[int, int], object]
"""Called with the number of frames played and the number of frames to play."""

PLAYED_FRAMES = 6_400  # one or two seconds
LEARNER_BYTES = 256 * MIB  # RAM of the learner beside the memory, after PyTorch is loaded
OUTPUT_ARRAYS = 3  # batches in the output pool
CHECKPOINTS_AT_ONCE = 2  # the last one stays until the new one is written


@dataclass(frozen=True)
class MemoryExpectation:
    """Expected size of a memory as a function of its transitions."""

    frame_bytes: float
    """Stored bytes of the frames per transition; in files for a memory on disk."""
    step_bytes: float
    """Bytes of the step and its index entries per transition; always in RAM."""
    fixed_bytes: int
    """Bytes in RAM that do not depend on the number of transitions."""
    basis: str
    """How the numbers were measured."""
    checkpoint_bytes: int = 0
    """Bytes of one checkpoint without the memory: the networks and the optimizer."""

    @property
    def bytes_per_transition(self) -> float:
        """Bytes per transition, in RAM and in files together."""
        return self.frame_bytes + self.step_bytes

    def ram_bytes(self, transitions: int, is_on_disk: bool = False) -> int:
        """Return the bytes in RAM of a memory with ``transitions`` transitions."""
        each = self.step_bytes if is_on_disk else self.bytes_per_transition
        return self.fixed_bytes + round(transitions * each)

    def disk_bytes(self, transitions: int) -> int:
        """Return the bytes in files of a saved memory or a memory on disk, with the checkpoints."""
        return CHECKPOINTS_AT_ONCE * self.checkpoint_bytes + round(transitions * self.bytes_per_transition)

    def max_transitions(self, space: FreeSpace, is_on_disk: bool = False) -> int:
        """Return how many transitions fit both the RAM and the disk."""
        each = self.step_bytes if is_on_disk else self.bytes_per_transition
        in_ram = (space.ram - self.fixed_bytes) / each
        on_disk = (space.disk - self.disk_bytes(0)) / self.bytes_per_transition
        return max(int(min(in_ram, on_disk)), 0)


@dataclass(frozen=True)
class WantedMemory:
    """The memory that the settings of a run ask for."""

    transitions: int
    """Capacity."""
    steps: int
    """Agent steps of the run."""
    folder: Path
    """Folder into which the memory is saved."""
    max_bytes: int | None = None
    """Byte limit of the memory."""
    is_on_disk: bool = False
    """Whether the frames are in files instead of in RAM."""

    def final_transitions(self, expectation: MemoryExpectation) -> int:
        """Return the number of transitions at the end of the run."""
        most = min(self.transitions, self.steps)
        if self.max_bytes is None:
            return most
        return min(most, int(max(self.max_bytes - expectation.fixed_bytes, 0) / expectation.bytes_per_transition))


def expect_from_play(
    settings: Settings,
    num_frames: int = PLAYED_FRAMES,
    on_frame: OnFrame | None = None,
) -> MemoryExpectation:
    """Return the expected size of a new memory: from the frame shape if raw, else from a short packed random play.

    ``python benchmarks/memory_expectation.py`` measures how accurate the estimate is.
    """
    spec = FrameSpec(find_preset(settings.preset).frame_shape)
    env = make_atari(settings.game, preset=settings.preset, seed=settings.seed)
    try:
        actions = ActionSpec.from_space(env.action_space)
        step_bytes = slot_record(settings.num_envs, actions).itemsize + settings.sampler().bytes_a_step
        checkpoint_bytes = estimate_state_bytes((settings.stack, *spec.shape), actions.num_actions, settings.agent())
        stacks = settings.num_envs * settings.stack + OUTPUT_ARRAYS * settings.batch_size * (settings.stack + 1)
        fixed_bytes = stacks * spec.nbytes
        if settings.storage == "raw":
            return MemoryExpectation(spec.nbytes, step_bytes, fixed_bytes, "raw frames", checkpoint_bytes)
        frames = FrameStorage(spec, 1, settings.storage)
        num_steps = _play(env, frames, actions.num_actions, num_frames, settings.seed, on_frame)
    finally:
        env.close()
    parts = frames.nbytes
    num_sealed = num_frames // frames.frames_per_segment * frames.frames_per_segment
    return MemoryExpectation(
        frame_bytes=parts["frames"] / num_sealed * num_frames / num_steps,
        step_bytes=step_bytes,
        fixed_bytes=fixed_bytes + settings.num_envs * parts["open segments"],
        basis=f"measured on {num_frames:,} frames of random play",
        checkpoint_bytes=checkpoint_bytes,
    )


def _play(
    env: AtariEnv,
    frames: FrameStorage,
    num_actions: int,
    num_frames: int,
    seed: int,
    on_frame: OnFrame | None,
) -> int:
    """Store ``num_frames`` frames of random play and return the number of steps."""
    random, env_id = np.random.default_rng(seed), np.zeros(1, np.int32)
    num_steps, has_ended = 0, True
    for done in range(1, num_frames + 1):
        if has_ended:
            frame, _ = env.reset()
            has_ended = False
        else:
            frame, _, terminated, truncated, _ = env.step(int(random.integers(num_actions)))
            has_ended = terminated or truncated
            num_steps += 1
        frames.append(env_id, frame[None])
        if on_frame is not None:
            on_frame(done, num_frames)
    return num_steps


def expect_from_memory(report: MemoryReport, checkpoint_bytes: int = 0) -> MemoryExpectation:
    """Return the expected size of a resumed memory. It must have sealed segments."""
    frame_bytes, growing = report.sealed_bytes_per_transition, report.growing_bytes_per_transition
    fixed_bytes = report.all_bytes - round(growing * report.transitions)
    basis = f"measured on {report.transitions:,} stored transitions"
    return MemoryExpectation(frame_bytes, growing - frame_bytes, fixed_bytes, basis, checkpoint_bytes)


@dataclass(frozen=True)
class FreeSpace:
    """Free bytes in RAM and on disk for a memory."""

    ram: int
    disk: int

    @classmethod
    def for_run(cls, folder: Path, ram_in_use: int = 0, disk_in_use: int = 0) -> FreeSpace:
        """Return the free space of this machine, within the limits of this process, without the learner's RAM.

        ``ram_in_use`` and ``disk_in_use`` are bytes that the memory already takes; they count as free.
        """
        ram = max(available_bytes() - LEARNER_BYTES, 0)
        return cls(ram + ram_in_use, available_disk_bytes(folder) + disk_in_use)

    def share(self, num_at_once: int, num_runs: int) -> FreeSpace:
        """Return the free space of one of ``num_runs`` equal runs, of which ``num_at_once`` train at the same time."""
        ram = max(self.ram - (num_at_once - 1) * LEARNER_BYTES, 0)
        return FreeSpace(ram // num_at_once, self.disk // num_runs)


def describe_expectation(expectation: MemoryExpectation, wanted: WantedMemory, space: FreeSpace) -> str:
    """Return a line with the expected size of the memory and the free space."""
    transitions = wanted.final_transitions(expectation)
    in_ram = format_bytes(expectation.ram_bytes(transitions, wanted.is_on_disk))
    on_disk = format_bytes(expectation.disk_bytes(transitions))
    return (
        f"about {in_ram} in RAM ({format_bytes(space.ram)} free) and {on_disk} on disk with checkpoints "
        f"({format_bytes(space.disk)} free) for {transitions:,} transitions: "
        f"{expectation.bytes_per_transition:,.0f} bytes each, {expectation.basis}"
    )


def check_memory_fits(expectation: MemoryExpectation, wanted: WantedMemory, space: FreeSpace) -> None:
    """Raise ``InvalidSettingsError``, naming options that would fit, if the memory is expected not to fit."""
    transitions = wanted.final_transitions(expectation)
    in_ram = expectation.ram_bytes(transitions, wanted.is_on_disk)
    on_disk = expectation.disk_bytes(transitions)
    if in_ram <= space.ram and on_disk <= space.disk:
        return
    is_ram_short = in_ram > space.ram
    needed, free, where = (
        (in_ram, space.ram, "RAM")
        if is_ram_short
        else (on_disk, space.disk, f"disk space at {wanted.folder} with checkpoints")
    )
    raise InvalidSettingsError(
        f"memory is {wanted.transitions:,}: the {transitions:,} transitions of this run are expected to take "
        f"{format_bytes(needed)} of {where}, but only {format_bytes(free)} are free "
        f"({expectation.bytes_per_transition:,.0f} bytes each, {expectation.basis}); "
        f"give {' or '.join(_ways_out(expectation, wanted, space)) or 'it more RAM or disk space'}"
    )


def _ways_out(expectation: MemoryExpectation, wanted: WantedMemory, space: FreeSpace) -> Iterator[str]:
    """Yield command-line options with which the run is expected to fit."""
    fitting = _round_down(expectation.max_transitions(space, wanted.is_on_disk))
    if fitting:
        yield f"--memory {fitting:_}"
        yield f"--memory-bytes {format_bytes(expectation.ram_bytes(fitting)).replace(' ', '')}"
    transitions = wanted.final_transitions(expectation)
    fits_on_disk = expectation.ram_bytes(transitions, True) <= space.ram
    if fits_on_disk and expectation.disk_bytes(transitions) <= space.disk:
        yield "--memory-on-disk"


def _round_down(number: int) -> int:
    """Return at most 90% of ``number``, rounded down to two digits. The margin covers errors of the estimate.

    >>> _round_down(1_234_567), _round_down(7)
    (1100000, 6)
    """
    careful = number * 9 // 10
    unit: int = 10 ** max(len(str(careful)) - 2, 0)
    return careful // unit * unit

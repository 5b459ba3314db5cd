"""What the memory of a run will take, before it takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framestow.agents.dqn import trained_state_bytes
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
from framestow.storage.storages import make_storage
from framestow.training.settings import Settings

OnFrame = Callable[[int, int], object]
"""Is told how many frames are played, and how many there will be."""

PLAYED_FRAMES = 6_400  # a second or two
REST_OF_THE_RUN = 256 * MIB  # what learning takes beside the memory, once PyTorch is loaded
OUTPUT_ARRAYS = 3  # batches that the output pool keeps
CHECKPOINTS_AT_ONCE = 2  # while the new one is written the one before is still there


@dataclass(frozen=True)
class MemoryExpectation:
    """Bytes of a memory by the transitions it holds.

    ``frame_bytes`` are those of a transition's frame as it is kept, which lie in files where the memory does;
    ``step_bytes`` those of its slot and of the index, which are in RAM always. ``basis`` says where they are from.
    ``checkpoint_bytes`` are those of one checkpoint beside the memory: the networks and the optimizer.
    """

    frame_bytes: float
    step_bytes: float
    fixed_bytes: int
    basis: str
    checkpoint_bytes: int = 0

    @property
    def bytes_per_transition(self) -> float:
        """Bytes of a transition, wherever they are."""
        return self.frame_bytes + self.step_bytes

    def ram_bytes(self, transitions: int, is_on_disk: bool = False) -> int:
        """Bytes in RAM of a memory that holds so many."""
        each = self.step_bytes if is_on_disk else self.bytes_per_transition
        return self.fixed_bytes + round(transitions * each)

    def disk_bytes(self, transitions: int) -> int:
        """Bytes in files of one that is saved or lives there, and of the checkpoints beside it."""
        return CHECKPOINTS_AT_ONCE * self.checkpoint_bytes + round(transitions * self.bytes_per_transition)

    def transitions_in(self, room: Room, is_on_disk: bool = False) -> int:
        """Return how many transitions fit both the RAM and the disk."""
        each = self.step_bytes if is_on_disk else self.bytes_per_transition
        in_ram = (room.ram - self.fixed_bytes) / each
        on_disk = (room.disk - self.disk_bytes(0)) / self.bytes_per_transition
        return max(int(min(in_ram, on_disk)), 0)


@dataclass(frozen=True)
class WantedMemory:
    """The memory that a run asks for.

    ``transitions`` is its capacity, ``steps`` how many the run will make at most, ``max_bytes`` its budget if it has
    one. ``folder`` is where it is saved, and lives if ``is_on_disk``.
    """

    transitions: int
    steps: int
    folder: Path
    max_bytes: int | None = None
    is_on_disk: bool = False

    def final_transitions(self, expectation: MemoryExpectation) -> int:
        """Transitions that it holds when the run ends."""
        most = min(self.transitions, self.steps)
        if self.max_bytes is None:
            return most
        return min(most, int(max(self.max_bytes - expectation.fixed_bytes, 0) / expectation.bytes_per_transition))


def expect_from_play(
    settings: Settings,
    num_frames: int = PLAYED_FRAMES,
    on_frame: OnFrame | None = None,
) -> MemoryExpectation:
    """Tell what transitions of the game take: raw frames by their shape, packed ones by packing a short random play.

    How near that comes is in docs/saving.md.
    """
    spec = FrameSpec(find_preset(settings.preset).frame_shape)
    env = make_atari(settings.game, preset=settings.preset, seed=settings.seed)
    try:
        actions = ActionSpec.from_space(env.action_space)
        step_bytes = slot_record(settings.num_envs, actions).itemsize
        checkpoint_bytes = trained_state_bytes((settings.stack, *spec.shape), actions.num_actions)
        stacks = settings.num_envs * settings.stack + OUTPUT_ARRAYS * settings.batch_size * (settings.stack + 1)
        fixed_bytes = stacks * spec.nbytes
        if settings.storage == "raw":
            return MemoryExpectation(spec.nbytes, step_bytes, fixed_bytes, "raw frames", checkpoint_bytes)
        frames = make_storage(settings.storage, spec, 1)
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
    """Store ``num_frames`` frames of random play; return how many steps were among them."""
    random, stream = np.random.default_rng(seed), np.zeros(1, np.int32)
    num_steps, has_ended = 0, True
    for done in range(1, num_frames + 1):
        if has_ended:
            frame, _ = env.reset()
            has_ended = False
        else:
            frame, _, terminated, truncated, _ = env.step(int(random.integers(num_actions)))
            has_ended = terminated or truncated
            num_steps += 1
        frames.append(stream, frame[None])
        if on_frame is not None:
            on_frame(done, num_frames)
    return num_steps


def expect_from_memory(report: MemoryReport, checkpoint_bytes: int = 0) -> MemoryExpectation:
    """Tell by what a memory holds already, of which some segments must be sealed."""
    frame_bytes, growing = report.sealed_bytes_per_transition, report.growing_bytes_per_transition
    fixed_bytes = report.all_bytes - round(growing * report.transitions)
    basis = f"as the {report.transitions:,} that it holds"
    return MemoryExpectation(frame_bytes, growing - frame_bytes, fixed_bytes, basis, checkpoint_bytes)


@dataclass(frozen=True)
class Room:
    """Bytes that are free for a memory."""

    ram: int
    disk: int

    @classmethod
    def for_run(cls, folder: Path, ram_held: int = 0, disk_held: int = 0) -> Room:
        """What this machine, and the limits set on this process, leave for a memory beside the rest of the run.

        ``ram_held`` and ``disk_held`` are what the memory takes already.
        """
        ram = max(available_bytes() - REST_OF_THE_RUN, 0)
        return cls(ram + ram_held, available_disk_bytes(folder) + disk_held)


def told(expectation: MemoryExpectation, wanted: WantedMemory, room: Room) -> str:
    """One line of what to expect, beside what is free."""
    transitions = wanted.final_transitions(expectation)
    in_ram = format_bytes(expectation.ram_bytes(transitions, wanted.is_on_disk))
    on_disk = format_bytes(expectation.disk_bytes(transitions))
    return (
        f"about {in_ram} for {transitions:,} transitions in RAM ({format_bytes(room.ram)} free) and {on_disk} on disk, "
        f"checkpoints included ({format_bytes(room.disk)} free): "
        f"{expectation.bytes_per_transition:,.0f} bytes each, {expectation.basis}"
    )


def check_it_fits(expectation: MemoryExpectation, wanted: WantedMemory, room: Room) -> None:
    """Raise ``InvalidSettingsError`` where the memory is expected not to fit, with what would."""
    transitions = wanted.final_transitions(expectation)
    in_ram = expectation.ram_bytes(transitions, wanted.is_on_disk)
    on_disk = expectation.disk_bytes(transitions)
    if in_ram <= room.ram and on_disk <= room.disk:
        return
    is_ram_short = in_ram > room.ram
    needed, free, where = (
        (in_ram, room.ram, "RAM")
        if is_ram_short
        else (on_disk, room.disk, f"disk at {wanted.folder}, checkpoints included")
    )
    raise InvalidSettingsError(
        f"memory is {wanted.transitions:,}: the {transitions:,} transitions of this run are expected to take "
        f"{format_bytes(needed)} of {where}, where {format_bytes(free)} are free "
        f"({expectation.bytes_per_transition:,.0f} bytes each, {expectation.basis}); "
        f"give {' or '.join(_ways_out(expectation, wanted, room)) or 'it more room'}"
    )


def _ways_out(expectation: MemoryExpectation, wanted: WantedMemory, room: Room) -> Iterator[str]:
    """Options of the command line with which the run is expected to fit."""
    fitting = _rounded_down(expectation.transitions_in(room, wanted.is_on_disk))
    if fitting:
        yield f"--memory {fitting:_}"
        yield f"--memory-bytes {format_bytes(expectation.ram_bytes(fitting)).replace(' ', '')}"
    transitions = wanted.final_transitions(expectation)
    fits_on_disk = expectation.ram_bytes(transitions, True) <= room.ram
    if fits_on_disk and expectation.disk_bytes(transitions) <= room.disk:
        yield "--memory-on-disk"


def _rounded_down(number: int) -> int:
    """Two digits and zeros, at most nine tenths of ``number``, so that an expectation may be a little wrong.

    >>> _rounded_down(1_234_567), _rounded_down(7)
    (1100000, 6)
    """
    careful = number * 9 // 10
    unit: int = 10 ** max(len(str(careful)) - 2, 0)
    return careful // unit * unit

"""A memory's transitions in the layout of the DQN Replay Dataset, as Dopamine's replay memory reads it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import one_of, whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import only_frame
from framestow.offline.dqn_checkpoint import ELEMENTS, SLOTS_AT_ONCE, count_file_of, file_of
from framestow.offline.gzip_arrays import GzipArrayWriter
from framestow.offline.transfer import Progress, Transferred, no_progress
from framestow.offline.unfinished_folder import unfinished_folder
from framestow.replay.episodes import HeldEpisode
from framestow.replay.memory import ReplayMemory

SLOTS_OF_THE_DATASET = 1_000_000  # of each of its checkpoints
HORIZON = 1  # steps that Dopamine's DQN looks ahead: the newest slots that it does not draw

CutEnds: TypeAlias = Literal["refuse", "terminal", "new_checkpoint"]
"""What becomes of an episode that did not terminate and that something comes after: the layout has no word for it.

==================  ==================================================================================================
``refuse``          nothing is written: ``InvalidSettingsError`` says how many there are
``terminal``        its last step is marked as terminal, as Dopamine itself does: its value is then that of its reward
``new_checkpoint``  its last frame ends the checkpoint, and the next episode begins the next one: nothing is untrue
==================  ==================================================================================================
"""

CUT_ENDS: tuple[CutEnds, ...] = get_args(CutEnds)


@dataclass(frozen=True)
class _Place:
    """How an episode lies in a checkpoint: blank slots, frames from before it, its steps, slots behind it."""

    checkpoint: int
    blank: int
    history: int
    steps: int
    is_terminal: bool
    is_truncated: bool
    last_frames: int

    @property
    def num_slots(self) -> int:
        return self.blank + self.history + self.steps + self.last_frames


def export_dqn_replay(
    memory: ReplayMemory,
    folder: str | Path,
    *,
    cut_ends: CutEnds = "refuse",
    slots_per_checkpoint: int = SLOTS_OF_THE_DATASET,
    compression_level: int = 6,
    progress: Progress = no_progress,
) -> Transferred:
    """Write what ``memory`` holds into ``folder``, which is made, as checkpoints 0, 1, ...; one stream after the other.

    ``folder`` exists once everything is written; after an error nothing of it does.

    A checkpoint is all that Dopamine's ``load`` wants: the four arrays, ``add_count`` and ``invalid_range``; ``stack -
    1`` blank slots stand before each episode. A checkpoint ends where a stream ends, and where the next episode would
    make it longer than ``slots_per_checkpoint``. An episode that is open or cut at its end has its true last frame in
    a slot of its own, which Dopamine never draws. Where the memory has let go of an episode's beginning, the frames
    that its first observation shows stand in the place of the blank slots, where Dopamine finds them.

    What the layout cannot hold: the frame after a terminal step; truncation (``cut_ends``); stacks padded by the first
    frame, since Dopamine's are padded by the blank slots; discount, indices, and which stream it was (``notes``).
    ``progress`` counts bytes of frames. In RAM are some hundreds of frames and the longest episode's columns.

    Raises ``InvalidSettingsError``, before anything is written, for frames that are not of ``uint8``, actions that
    are not counted, a memory without transitions, a ``folder`` that exists, or where ``cut_ends`` says so; ``OSError``
    where the disk refuses.
    """
    _check_fits(memory, cut_ends, slots_per_checkpoint, compression_level)
    places = _planned(memory, cut_ends, slots_per_checkpoint)
    transferred = Transferred(notes=_notes(memory, places, cut_ends))
    num_slots = Counter[int]()
    for place in places:
        num_slots[place.checkpoint] += place.num_slots
    done, total = 0, num_slots.total() * memory._settings.frame.nbytes
    with unfinished_folder(folder) as unfinished, ExitStack() as open_files:
        unfinished.mkdir()
        writer: _CheckpointWriter | None = None
        for place, episode in zip(places, memory.episodes(), strict=True):
            if writer is None or writer.number != place.checkpoint:
                open_files.close()
                number = place.checkpoint
                writer = _CheckpointWriter(unfinished, number, num_slots[number], memory, compression_level)
                open_files.enter_context(writer)
            writer.write(place, episode)
            transferred.episodes += 1
            transferred.transitions += place.steps
            done += place.num_slots * memory._settings.frame.nbytes
            progress(done, total)
    return transferred


class _CheckpointWriter:
    """Writes one checkpoint's files from its first slot to its last."""

    def __init__(self, folder: Path, number: int, num_slots: int, memory: ReplayMemory, compression_level: int) -> None:
        self.number = number
        self._frame = _frame_of(memory)
        self._files = ExitStack()
        kinds = dict(zip(ELEMENTS, (np.uint8, np.int32, np.float32, np.uint8), strict=True))
        shapes = {"observation": (num_slots, *self._frame.shape)}
        try:
            self._arrays = {
                element: self._files.enter_context(
                    GzipArrayWriter(
                        file_of(folder, element, number), shapes.get(element, (num_slots,)), kind, compression_level
                    )
                )
                for element, kind in kinds.items()
            }
            _write_counts(folder, number, num_slots, memory.stack, compression_level)
        except BaseException as error:
            self._files.__exit__(type(error), error, None)
            raise

    def __enter__(self) -> _CheckpointWriter:
        return self

    def __exit__(self, *raised: Any) -> None:
        self._files.__exit__(*raised)

    def write(self, place: _Place, episode: HeldEpisode) -> None:
        """Write an episode's slots."""
        before = place.blank + place.history
        terminals = np.zeros(place.num_slots, np.uint8)
        terminals[before + place.steps - 1] = place.is_terminal
        padding = (before, place.last_frames)
        self._arrays["action"].write(np.pad(episode.actions, padding))
        self._arrays["reward"].write(np.pad(episode.rewards, padding))
        self._arrays["terminal"].write(terminals)
        for frames in _frames_of(place, episode, self._frame.shape):
            self._arrays["observation"].write(frames)


def _frames_of(place: _Place, episode: HeldEpisode, shape: tuple[int, ...]) -> Iterator[npt.NDArray[np.uint8]]:
    yield np.zeros((place.blank, *shape), np.uint8)
    is_last_shown = place.last_frames and not place.is_terminal
    stop = place.steps + bool(is_last_shown)
    for start in range(-place.history, stop, SLOTS_AT_ONCE):
        yield episode.frames(start, min(start + SLOTS_AT_ONCE, stop))
    if place.last_frames and not is_last_shown:
        yield np.zeros((place.last_frames, *shape), np.uint8)


def _planned(memory: ReplayMemory, cut_ends: CutEnds, slots_per_checkpoint: int) -> list[_Place]:
    """Say of each episode where it goes: a checkpoint's files begin with its number of slots."""
    episodes = [_Outline.of(episode, memory.stack) for episode in memory.episodes()]
    if not episodes:
        raise InvalidSettingsError("the memory holds no transition: there is nothing to export; append steps first")
    places: list[_Place] = []
    checkpoint, filled, num_cut = 0, 0, 0
    for episode, following in itertools.zip_longest(episodes, episodes[1:]):
        is_last = following is None or following.stream != episode.stream
        # Where the next one's beginning has left, nothing says that this is where the episode ended.
        is_cut = not (episode.terminated or is_last) and following.has_beginning
        num_cut += is_cut
        is_terminal = episode.terminated or (is_cut and cut_ends == "terminal")
        filled += episode.num_slots
        is_full = is_last or not is_terminal or filled + following.num_slots >= slots_per_checkpoint
        places.append(episode.placed(checkpoint, is_terminal, last_frames=int(is_full)))
        filled, checkpoint = (0, checkpoint + 1) if is_full else (filled, checkpoint)
    if num_cut and cut_ends == "refuse":
        raise InvalidSettingsError(
            f"{num_cut} of {len(episodes)} episodes were truncated or cut off: the layout can only say that an episode "
            "terminated; take cut_ends='terminal', as Dopamine does, or 'new_checkpoint', which keeps them as they are"
        )
    return places


@dataclass(frozen=True)
class _Outline:
    """What the planning needs to know of an episode."""

    stream: int
    blank: int
    history: int
    steps: int
    has_beginning: bool
    terminated: bool
    truncated: bool

    @classmethod
    def of(cls, episode: HeldEpisode, stack: int) -> _Outline:
        return cls(
            stream=episode.env_id,
            blank=max(0, stack - 1 - episode.history),
            history=episode.history,
            steps=len(episode),
            has_beginning=episode.has_beginning,
            terminated=bool(episode.terminated[-1]),
            truncated=bool(episode.truncated[-1]),
        )

    @property
    def num_slots(self) -> int:
        return self.blank + self.history + self.steps

    def placed(self, checkpoint: int, is_terminal: bool, last_frames: int) -> _Place:
        return _Place(checkpoint, self.blank, self.history, self.steps, is_terminal, self.truncated, last_frames)


def _write_counts(folder: Path, number: int, num_slots: int, stack: int, compression_level: int) -> None:
    """Write what Dopamine keeps beside the arrays: how many slots it wrote, and which of them it must not draw."""
    cursor, capacity = num_slots, max(num_slots, SLOTS_OF_THE_DATASET)
    undrawn = (np.arange(-HORIZON, stack) + cursor) % capacity
    with GzipArrayWriter(count_file_of(folder, "add_count", number), (), np.int64, compression_level) as array:
        array.write_one(num_slots)
    path = count_file_of(folder, "invalid_range", number)
    with GzipArrayWriter(path, undrawn.shape, np.int64, compression_level) as array:
        array.write(undrawn)


def _check_fits(memory: ReplayMemory, cut_ends: str, slots_per_checkpoint: int, compression_level: int) -> None:
    frame, action = _frame_of(memory), memory._settings.action
    if frame.dtype != np.uint8:
        raise InvalidSettingsError(f"frames have dtype {frame.dtype}: the layout holds uint8; export to Minari instead")
    if action.shape or not action.is_counted or action.widest[0] < 0:
        raise InvalidSettingsError(
            f"actions are {action}: the layout holds numbers from 0 on; export to Minari instead"
        )
    one_of("cut_ends", cut_ends, CUT_ENDS)
    whole_number("slots_per_checkpoint", slots_per_checkpoint, 1, rule="it must be at least 1")
    whole_number("compression_level", compression_level, 0, 9, rule="gzip has 0 (none) to 9 (smallest)")


def _frame_of(memory: ReplayMemory) -> FrameSpec:
    return only_frame(memory._settings.frame, "the layout of the DQN Replay Dataset holds")


def _notes(memory: ReplayMemory, places: list[_Place], cut_ends: CutEnds) -> list[str]:
    settings, notes = memory._settings, []
    terminal = sum(place.is_terminal for place in places)
    if terminal:
        notes.append(f"no place in the layout for the frame after a terminal step: {terminal:,} of them")
    truncated = sum(place.is_truncated for place in places)
    if truncated:
        notes.append(f"no place in the layout for the flag of truncation: {truncated:,} of them")
    if cut_ends == "terminal":
        notes.append("episodes that were truncated or cut off, and that others follow, are marked as terminal")
    shape = _frame_of(memory).shape
    if shape != (84, 84):
        notes.append(f"frames are {shape}, not (84, 84): Dopamine must be told by observation_shape")
    if memory.stack > 1 and settings.stack_padding == "first_frame":
        notes.append("this memory pads stacks by an episode's first frame, Dopamine by black ones")
    if memory.num_envs > 1:
        notes.append(f"the steps of the {memory.num_envs} environments lie one after the other, without their numbers")
    if settings.extras:
        notes.append(f"no place in the layout for extras: {settings.extras.told}")
    return notes

"""The DQN Replay Dataset (Agarwal et al. 2020) and other files of Dopamine, read and written."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
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
from framestow.offline.dqn_checkpoint import (
    ELEMENTS,
    SLOTS_AT_ONCE,
    Checkpoint,
    GzipArrayWriter,
    Slots,
    checkpoint_numbers,
    count_file_of,
    file_of,
)
from framestow.offline.transfer import Progress, Transferred, no_progress, unfinished_folder
from framestow.replay.episodes import StoredEpisode
from framestow.replay.memory import ReplayMemory

RESETS_LOOKED_AT = 8  # to see how many blank slots stand before an episode
NO_BEGINNING = "steps of an episode whose beginning is not there"
NO_SUCCESSOR = "last slots, whose next frame is not there"


@dataclass(frozen=True)
class DqnReplay:
    """Checkpoints in Dopamine's layout: ``$store$_observation_ckpt.N.gz``, and ``action``, ``reward``, ``terminal``.

    Slot t of a checkpoint holds a frame, what was done then, what that gave, and whether it ended the episode; the
    frame that it led to is slot t + 1's. So of one episode::

        slots         blank  blank  blank   f0       f1     ...  fn                 blank ...
        transition                          f0->f1   f1->f2 ...  fn->a black frame

    The blank ones, all zeros, ``padding`` of them, are Dopamine's stack before the first frame; they are no steps.
    What the last step of a terminated episode led to was never written: a black frame stands there, as it does when
    Dopamine draws that step, and the discount is 0, so that nothing is computed from it. The layout has no truncation:
    Dopamine marked episodes that ran out of time as terminal, and so they stay here.

    Checkpoints that follow on one another, as the dataset's do, go over without a seam (see ``Checkpoint``). Else what
    stands before the first terminal is left out: the stacks that its steps were taken on are not known. Steps that
    are left out are counted.
    """

    checkpoints: tuple[Checkpoint, ...]
    padding: int
    num_actions: int

    @classmethod
    def open(
        cls,
        folder: Path,
        checkpoints: Sequence[int] | None = None,
        padding: int | None = None,
        num_actions: int | None = None,
    ) -> DqnReplay:
        """Look at the headers, the actions, and the first few resets.

        Arguments:
            folder: where the files are, or the one above its ``replay_logs``.
            checkpoints: which to take, in ascending order; all by default.
            padding: blank slots before an episode; ``None`` looks how many there are.
            num_actions: size of the action space; ``None`` takes one more than the largest action.

        Raises ``InvalidSettingsError`` where files are missing or do not belong together, ``DamagedDataError`` where
        one is not what was written.
        """
        found = _folder_of(Path(folder))
        numbers = checkpoint_numbers(found) if checkpoints is None else sorted(set(checkpoints))
        missing = [number for number in numbers if number not in checkpoint_numbers(found)]
        if missing or not numbers:
            raise InvalidSettingsError(
                f"{found}: there is no checkpoint {missing[0] if missing else 'at all'}: there must be files named "
                f"$store$_observation_ckpt.N.gz; there are those of {checkpoint_numbers(found)}"
            )
        opened = tuple(Checkpoint.open(found, number) for number in numbers)
        _check_belong_together(opened)
        largest = max(int(column.max(initial=0)) for column in (opened_one.column("action") for opened_one in opened))
        return cls(
            opened,
            _blank_slots_before_episodes(opened[0]) if padding is None else padding,
            largest + 1 if num_actions is None else num_actions,
        )

    @property
    def frame(self) -> FrameSpec:
        """Shape and dtype of a frame."""
        return self.checkpoints[0].frame

    @property
    def num_slots(self) -> int:
        """Slots that hold steps: at least as many as there are transitions."""
        return sum(len(span) for checkpoint in self.checkpoints for span in checkpoint.spans)

    @property
    def file_bytes(self) -> int:
        """Bytes of the arrays on disk."""
        return sum(checkpoint.file_bytes for checkpoint in self.checkpoints)

    @property
    def array_bytes(self) -> int:
        """Bytes that the arrays take in RAM once they are loaded."""
        return sum(checkpoint.array_bytes for checkpoint in self.checkpoints)

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append everything to stream 0 of ``memory``; in RAM are some hundreds of frames and a checkpoint's columns.

        ``progress`` counts bytes of files. An episode that is open at the end stays open. Raises ``DamagedDataError``
        for files that are not what was written, which is known when a file has been read to its end at the latest:
        what was appended until then must be thrown away.
        """
        feeder = _Feeder(memory, self.padding)
        total = sum(checkpoint.bytes_to_read for checkpoint in self.checkpoints)
        done = 0
        previous: Checkpoint | None = None
        for checkpoint in self.checkpoints:
            if previous is None or not checkpoint.follows(previous):
                feeder.stop()
                feeder.start(at_reset=checkpoint.begins_a_run)
            for slots in checkpoint.slots(lambda read, _, before=done: progress(before + read, total)):  # type: ignore[misc]
                feeder.feed(slots)
            previous, done = checkpoint, done + checkpoint.bytes_to_read
        feeder.stop()
        return feeder.transferred


class _Feeder:
    """Takes slots one after the other and appends the transitions that they make."""

    def __init__(self, memory: ReplayMemory, padding: int) -> None:
        self.transferred = Transferred()
        self._memory, self._padding = memory, padding
        self._blanks_to_come, self._is_lost, self._has_begun = 0, True, False
        self._step: tuple[np.ndarray, np.ndarray] | None = None  # an action and reward that wait for the next frame
        frame = only_frame(memory._settings.frame, "the DQN Replay Dataset has")
        self._black = np.zeros((1, *frame.shape), frame.dtype)
        self._no, self._yes, self._first = np.array([False]), np.array([True]), np.zeros(1, np.int32)

    def start(self, at_reset: bool) -> None:
        """Expect an episode's beginning, or nothing until the next one."""
        self._is_lost, self._blanks_to_come = not at_reset, self._padding

    def stop(self) -> None:
        """Nothing follows on what came last."""
        if self._step is not None:
            self.transferred.leave_out(NO_SUCCESSOR)
        self._step = None

    def feed(self, slots: Slots) -> None:
        """Take the next slots."""
        frames, actions = slots.frames, slots.actions.astype(np.int64)
        rewards, terminals = slots.rewards.astype(np.float32), slots.terminals.tolist()
        for at, is_terminal in enumerate(terminals):
            here = slice(at, at + 1)
            if self._is_lost or (self._blanks_to_come and not self._take_blank(slots, at)):
                self.transferred.leave_out(NO_BEGINNING)
            elif self._blanks_to_come:
                self._blanks_to_come -= 1
                continue
            else:
                self._take(frames[here], actions[here], rewards[here], is_terminal)
            if is_terminal:
                self._is_lost, self._blanks_to_come = False, self._padding

    def _take_blank(self, slots: Slots, at: int) -> bool:
        """Whether the slot is blank, as must be; otherwise it is in the midst of an episode that nobody saw begin."""
        is_blank = not (slots.terminals[at] or slots.actions[at] or slots.rewards[at] or slots.frames[at].any())
        self._is_lost = not is_blank
        return is_blank

    def _take(self, frame: np.ndarray, action: np.ndarray, reward: np.ndarray, is_terminal: bool) -> None:
        if self._step is None:
            self._memory.begin(frame, self._first)
            self._has_begun = True
        else:
            self._append(*self._step, self._no, frame)
        self._step = None if is_terminal else (action, reward)
        if is_terminal:
            self._append(action, reward, self._yes, self._black)

    def _append(self, action: np.ndarray, reward: np.ndarray, terminated: np.ndarray, frame: np.ndarray) -> None:
        self._memory.append(action, reward, terminated, self._no, frame, self._first)
        self.transferred.transitions += 1
        self.transferred.episodes += self._has_begun
        self._has_begun = False


def _folder_of(folder: Path) -> Path:
    below = folder / "replay_logs"
    if folder.is_dir() and not checkpoint_numbers(folder) and below.is_dir():
        return below
    if not folder.is_dir():
        raise InvalidSettingsError(f"{folder}: there is no such folder; give the one that holds the checkpoints' files")
    return folder


def _check_belong_together(checkpoints: tuple[Checkpoint, ...]) -> None:
    for before, after in itertools.pairwise(checkpoints):
        if before.frame != after.frame:
            raise InvalidSettingsError(
                f"checkpoint {after.number} has frames of {after.frame.shape} {after.frame.dtype}, checkpoint "
                f"{before.number} of {before.frame.shape} {before.frame.dtype}: a memory holds one kind; choose some"
            )
        if after.overlaps(before):
            raise InvalidSettingsError(
                f"checkpoints {before.number} and {after.number} are one ring at two times, {before.add_count} and "
                f"{after.add_count} steps after its beginning: many steps would be there twice; choose one of them"
            )


def _blank_slots_before_episodes(checkpoint: Checkpoint) -> int:
    """The fewest blank slots that follow on a terminal: black first frames add to them, so not all tell the truth."""
    written = checkpoint.spans[-1].stop
    resets = (np.flatnonzero(checkpoint.column("terminal")[:written])[:RESETS_LOOKED_AT] + 1).tolist()
    counts = checkpoint.blank_slots_from([reset for reset in resets if reset < written])
    whole = [count for reset, count in zip(resets, counts, strict=False) if reset + count < written]
    if whole:
        return min(whole)
    return checkpoint.blank_slots_from([0])[0] if checkpoint.begins_a_run else 0


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

    def write(self, place: _Place, episode: StoredEpisode) -> None:
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


def _frames_of(place: _Place, episode: StoredEpisode, shape: tuple[int, ...]) -> Iterator[npt.NDArray[np.uint8]]:
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
    def of(cls, episode: StoredEpisode, stack: int) -> _Outline:
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
        notes.append(f"no place in the layout for extras: {settings.extras.description}")
    return notes

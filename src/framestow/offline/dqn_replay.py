"""Import of the DQN Replay Dataset (Agarwal et al. 2020), and of other Dopamine checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framestow.checks import check_indices, folder_path, whole_number
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import only_frame
from framestow.interface import one_line, plural
from framestow.offline.dqn_checkpoint import Checkpoint, Slots, checkpoint_numbers
from framestow.offline.transfer import Progress, Transferred, check_transfer, count_left_out, no_progress
from framestow.replay.memory import ReplayMemory

NUM_RESETS_INSPECTED = 8  # to detect the number of blank slots before an episode
# Reasons in ``Transferred.left_out``.
NO_BEGINNING = "steps of an episode whose beginning is missing"
NO_SUCCESSOR = "last slots, whose next frame is missing"


@dataclass(frozen=True)
class DqnReplay:
    """Checkpoints in Dopamine's layout: ``$store$_observation_ckpt.N.gz``, and ``action``, ``reward``, ``terminal``.

    ::

        data = DqnReplay.open("Pong/1/replay_logs")
        transferred = data.import_into(memory)

    Slot t has a frame, the action and reward at this frame, and whether the episode ended. Slot t + 1 has the next
    frame. An episode looks like this::

        slots         blank  blank  blank   f0       f1     ...  fn                 blank ...
        transition                          f0->f1   f1->f2 ...  fn->a black frame

    ``padding`` blank slots, all zeros, are Dopamine's padding of the first stack. They are not steps.

    * The frame after a terminated episode is not in the dataset. The last transition gets a black frame, as in
      Dopamine, and the discount 0.
    * The layout has no truncation flag. Dopamine marks episodes that reached the time limit as terminal.
    * Checkpoints that directly follow each other, as in the dataset, are joined without a gap. Otherwise the steps
      before the first terminal are skipped and counted, because their stacks are unknown.
    """

    checkpoints: tuple[Checkpoint, ...]
    padding: int
    num_actions: int

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield plural(len(self.checkpoints), "checkpoint")
            yield plural(self.num_slots, "slot")
            yield plural(self.num_actions, "action")

        return one_line(self, details)

    @classmethod
    def open(
        cls,
        folder: Path,
        checkpoints: Sequence[int] | None = None,
        padding: int | None = None,
        num_actions: int | None = None,
    ) -> DqnReplay:
        """Open the checkpoints in ``folder``; read the headers, the actions, and the first few resets.

        Arguments:
            folder: folder of the files, or the parent of its ``replay_logs``.
            checkpoints: numbers of the checkpoints to import; by default all.
            padding: blank slots before an episode; ``None`` detects it.
            num_actions: size of the action space; ``None`` uses the largest action plus 1.

        Raises:
            InvalidSettingsError: files are missing or inconsistent.
            DamagedDataError: a file is damaged.
        """
        if padding is not None:
            padding = whole_number("padding", padding, 0, rule="it must be a number of blank slots; None detects it")
        found = _folder_of(folder_path("folder", folder))
        chosen = None if checkpoints is None else check_indices(checkpoints, most_axes=1).tolist()
        numbers = checkpoint_numbers(found) if chosen is None else sorted(set(chosen))
        missing = [number for number in numbers if number not in checkpoint_numbers(found)]
        if missing or not numbers:
            raise InvalidSettingsError(
                f"{found}: there is no checkpoint {missing[0] if missing else 'at all'}: the files must be named "
                f"$store$_observation_ckpt.N.gz; the folder has the checkpoints {checkpoint_numbers(found)}"
            )
        opened = tuple(Checkpoint.open(found, number) for number in numbers)
        _check_belong_together(opened)
        largest = max(int(column.max(initial=0)) for column in (opened_one.column("action") for opened_one in opened))
        rule = f"the files have actions from 0 to {largest}; give at least {largest + 1}"
        return cls(
            opened,
            _blank_slots_before_episodes(opened[0]) if padding is None else padding,
            largest + 1 if num_actions is None else whole_number("num_actions", num_actions, largest + 1, rule=rule),
        )

    @property
    def frame(self) -> FrameSpec:
        """Shape and dtype of a frame."""
        return self.checkpoints[0].frame

    @property
    def num_slots(self) -> int:
        """Number of slots with steps, an upper bound of the transitions."""
        return sum(len(span) for checkpoint in self.checkpoints for span in checkpoint.spans)

    @property
    def file_bytes(self) -> int:
        """Bytes of the arrays on disk."""
        return sum(checkpoint.file_bytes for checkpoint in self.checkpoints)

    @property
    def array_bytes(self) -> int:
        """Bytes of the loaded arrays in RAM."""
        return sum(checkpoint.array_bytes for checkpoint in self.checkpoints)

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append all transitions to environment 0 of ``memory``, with some hundreds of frames in RAM at a time.

        An episode that is open at the end stays open. After an error, do not use the memory: it has a part of the data.

        Arguments:
            memory: Memory of single frames that the transitions are appended to.
            progress: Called with the bytes of the files that are done, and their total.

        Raises:
            DamagedDataError: a file is damaged. Some damage is only found at its end.
            IncompatibleError: an episode ends without a terminal (``Checkpoint.may_end_unmarked``).
        """
        check_transfer(memory, progress)
        importer = _SlotImporter(memory, self.padding)
        total = sum(checkpoint.bytes_to_read for checkpoint in self.checkpoints)
        done = 0
        previous: Checkpoint | None = None
        for checkpoint in self.checkpoints:
            if previous is None or not checkpoint.follows(previous):
                importer.stop()
                importer.start(at_reset=checkpoint.begins_a_run)
            for slots in checkpoint.slots(lambda read, _, before=done: progress(before + read, total)):  # type: ignore[misc]
                importer.feed(slots, checkpoint)
            previous, done = checkpoint, done + checkpoint.bytes_to_read
        importer.stop()
        return importer.transferred


class _SlotImporter:
    """Converts slots to transitions and appends them to a memory."""

    def __init__(self, memory: ReplayMemory, padding: int) -> None:
        self.transferred = Transferred()
        self._memory, self._padding = memory, padding
        # Blank slots that are still to come before the episode; whether slots are skipped up to the next terminal,
        # since the beginning of their episode is missing; whether the open episode has no step yet.
        self._num_blanks_expected, self._is_lost, self._has_begun = 0, True, False
        self._step: tuple[np.ndarray, np.ndarray] | None = None  # action and reward, until the next frame
        frame = only_frame(memory.inner.settings.frame, "the DQN Replay Dataset has")
        # The next frame of a terminal step, which the layout lacks.
        self._black = np.zeros((1, *frame.shape), frame.dtype)
        # Arguments of ``append`` for the one environment.
        self._no, self._yes, self._first = np.array([False]), np.array([True]), np.zeros(1, np.int32)

    def start(self, at_reset: bool) -> None:
        """Start a span of slots; unless it starts with a reset, skip slots up to the first terminal."""
        self._is_lost, self._num_blanks_expected = not at_reset, self._padding

    def stop(self) -> None:
        """End a span of slots; its last step has no next frame."""
        if self._step is not None:
            count_left_out(self.transferred, NO_SUCCESSOR)
        self._step = None

    def feed(self, slots: Slots, checkpoint: Checkpoint) -> None:
        """Import the next slots of the span."""
        frames, actions = slots.frames, slots.actions.astype(np.int64)
        rewards, terminals = slots.rewards.astype(np.float32), slots.terminals.tolist()
        may_end_unmarked = checkpoint.may_end_unmarked
        for at, is_terminal in enumerate(terminals):
            here = slice(at, at + 1)
            if self._is_lost or (self._num_blanks_expected and not self._take_blank(slots, at)):
                count_left_out(self.transferred, NO_BEGINNING)
            elif self._num_blanks_expected:
                self._num_blanks_expected -= 1
                continue
            elif may_end_unmarked and _is_blank(slots, at):
                raise IncompatibleError(
                    f"{checkpoint.folder}: checkpoint {checkpoint.number} has a blank slot inside an episode: the "
                    "episode before it ended without a terminal, which only the pickle episode_end_indices says; "
                    "select checkpoints without such episodes"
                )
            else:
                self._take(frames[here], actions[here], rewards[here], is_terminal)
            if is_terminal:
                self._is_lost, self._num_blanks_expected = False, self._padding

    def _take_blank(self, slots: Slots, at: int) -> bool:
        """Return whether the slot is blank; if not, the span is inside an episode with an unknown start."""
        self._is_lost = not _is_blank(slots, at)
        return not self._is_lost

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


def _is_blank(slots: Slots, at: int) -> bool:
    """Return whether the slot has only zeros, as padding has."""
    return not (slots.terminals[at] or slots.actions[at] or slots.rewards[at] or slots.frames[at].any())


def _folder_of(folder: Path) -> Path:
    below = folder / "replay_logs"
    if folder.is_dir() and not checkpoint_numbers(folder) and below.is_dir():
        return below
    if not folder.is_dir():
        raise InvalidSettingsError(f"{folder}: the folder does not exist; give the folder with the checkpoint files")
    return folder


def _check_belong_together(checkpoints: tuple[Checkpoint, ...]) -> None:
    for before, after in itertools.pairwise(checkpoints):
        if before.frame != after.frame:
            raise InvalidSettingsError(
                f"checkpoint {after.number} has frames of {after.frame.shape} {after.frame.dtype}, checkpoint "
                f"{before.number} of {before.frame.shape} {before.frame.dtype}: they must be equal; select others"
            )
        if after.overlaps(before):
            raise InvalidSettingsError(
                f"checkpoints {before.number} and {after.number} are the same ring after {before.add_count} and "
                f"{after.add_count} steps: many steps would be imported twice; select one of them"
            )


def _blank_slots_before_episodes(checkpoint: Checkpoint) -> int:
    """Return the smallest number of blank slots after a terminal; black first frames look like further ones."""
    written = checkpoint.spans[-1].stop
    resets = (np.flatnonzero(checkpoint.column("terminal")[:written])[:NUM_RESETS_INSPECTED] + 1).tolist()
    counts = checkpoint.blank_slots_from([reset for reset in resets if reset < written])
    whole = [count for reset, count in zip(resets, counts, strict=False) if reset + count < written]
    if whole:
        return min(whole)
    return checkpoint.blank_slots_from([0])[0] if checkpoint.begins_a_run else 0

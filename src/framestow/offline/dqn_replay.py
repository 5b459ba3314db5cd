"""The DQN Replay Dataset (Agarwal et al. 2020), and what else Dopamine's replay memory wrote, into a memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import only_frame
from framestow.offline.dqn_checkpoint import Checkpoint, Slots, checkpoint_numbers
from framestow.offline.transfer import Progress, Transferred, no_progress
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

"""ReplayMemory: the facade of the replay floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.frames.observation_spec import observation_spec
from framestow.frames.stacking import StackPadding
from framestow.replay.action_spec import ActionSpec
from framestow.replay.columns import ColumnsSpec
from framestow.replay.drawing.drawn_memory import DrawnMemory
from framestow.replay.keeping.byte_amounts import parse_bytes
from framestow.replay.keeping.damaged_segments import OnDamage
from framestow.replay.keeping.retention import Retention
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_report import MemoryReport
from framestow.replay.memory_settings import MemorySettings, sources_of
from framestow.replay.samplers.sampler import Sampler
from framestow.replay.saving.lasting_memory import LastingMemory
from framestow.replay.saving.opening import stored_frames_per_segment
from framestow.replay.step_checks import checked_frames, checked_streams, stage_step


class ReplayMemory(DrawnMemory, LastingMemory):
    """``capacity`` transitions of ``num_streams`` environments, each frame kept once, losslessly.

    >>> from framestow import FrameSpec
    >>> memory = ReplayMemory(capacity=100, observation_space=FrameSpec((2, 2)), action_space=4, stack=3)
    >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
    >>> memory.append([3], [0.5], [False], [True], np.ones((1, 2, 2), np.uint8))
    >>> batch = memory.sample(1)
    >>> batch.observation.shape, batch.next_observation[0, -1].tolist(), float(batch.discount[0])
    ((1, 3, 2, 2), [[1, 1], [1, 1]], 0.9900000095367432)

    Arguments:
        capacity: transitions to keep at most; ``retention`` says who leaves for those that come then.
        observation_space: one frame as the environment gives it (not a stack): a Gymnasium ``Box`` or a ``FrameSpec``,
            or a ``Dict`` or ``Tuple`` of them (a dict or tuple will do), nested as you like: then frames and
            observations are dicts or tuples of arrays. What comes back is bit for bit what came, of any dtype;
            docs/observations.md says what it takes.
        action_space: Gymnasium ``Discrete``, ``MultiDiscrete``, ``MultiBinary`` or ``Box``, or the number of actions.
        stack: frames an observation.
        stack_padding: what stands before an episode's first frame f0, in what the policy sees and in what is sampled:
            ``"first_frame"``, ``f0 f0 f0 f0 | f0 f0 f0 f1 | ...``, or ``"zeros"``, ``0 0 0 f0 | 0 0 f0 f1 | ...``.
            The default is Gymnasium's, and shows a policy nothing that no environment emitted.
        num_streams: environments that feed this memory.
        n_step: rewards that a transition's return has, 1 to 255; fewer where its episode ends before. Until they are
            there, a transition waits: it is not counted, and cannot be drawn. docs/sampling.md has the rules.
        discount: γ; a transition's ``discount`` is γ to the power of its rewards' number, 0 if its episode terminated.
        sampler: what draws the transitions of a batch; ``Uniform()`` by default.
        storage: ``"packed"`` (compressed) or ``"raw"`` (a byte for a byte).
        retention: ``"fifo"``: the oldest transition leaves; ``"random"``: all of a random segment's, so that every
            experience has a chance to stay and recent ones have more. docs/saving.md has the granularity, and the
            capacity that it takes.
        seed: of the memory's own generator; ``None`` takes fresh entropy.
        threads: how many threads unpack one batch, 1 to 64; small batches stay on one. Not kept by ``save``.
        max_bytes: what it may take, a number of bytes or ``"1 GiB"``: where it would take more, transitions go before
            there are ``capacity`` of them. docs/saving.md says what counts.
        source: what feeds the memory, a game's name for instance, or one name a stream; only told, never read.
        directory: a folder that the memory lives in: packed segments lie in files there, so that it may be larger than
            RAM, and what was flushed survives any crash. A folder that holds a memory of the same settings is gone on
            with, by its own generator and with all episodes closed; docs/saving.md has the promises.
        flush_every: seconds between two flushes in the background; ``None`` leaves it to ``flush``.
        on_damage: ``"raise"`` an error when a damaged segment is asked for, or ``"skip"`` it: it leaves the memory, and
            ``report()`` counts it.
        columns: what every step has besides, by name: ``{"log_prob": np.float32, "state": (np.float32, (2, 512))}``;
            what else ``numpy.dtype`` takes of numbers and booleans. docs/sampling.md has what they are for.

    Raises ``InvalidSettingsError`` for an argument that cannot work, ``IncompatibleError`` for a directory that holds a
    memory of other settings, or that somebody else is writing to.

    Threads: one may write (``begin``, ``append``) while any number call everything else. A call sees the memory as it
    is between two of the writer's calls, and what it gives does not change afterwards. A batch is drawn under the
    memory's lock (microseconds) and unpacked beside it, so neither the writer nor another sampler waits for that.
    Draws happen in the order in which the samplers come, so with several of them that order decides who draws what.
    ``save`` keeps the others waiting only while it copies small pieces. docs/threads.md says why this holds.
    """

    def __init__(
        self,
        capacity: int,
        observation_space: Any,
        action_space: Any,
        *,
        stack: int = 4,
        stack_padding: StackPadding = "first_frame",
        num_streams: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        sampler: Sampler | None = None,
        storage: str = "packed",
        retention: Retention = "fifo",
        seed: int | None = None,
        threads: int = 1,
        max_bytes: int | str | None = None,
        source: str | Sequence[str] = "",
        frames_per_segment: int | None = None,
        directory: str | PathLike[str] | None = None,
        flush_every: float | None = 5.0,
        on_damage: OnDamage = "raise",
        columns: Mapping[str, npt.DTypeLike] | ColumnsSpec | None = None,
    ) -> None:
        settings = MemorySettings(
            capacity,
            observation_spec(observation_space),
            ActionSpec.from_space(action_space),
            stack,
            num_streams,
            discount,
            storage,
            threads,
            stack_padding,
            sources_of(source, num_streams),
            retention,
            None if max_bytes is None else parse_bytes(max_bytes),
            frames_per_segment or (None if directory is None else stored_frames_per_segment(Path(directory))),
            ColumnsSpec.from_declared(columns),
            n_step,
        )
        self.settings = settings
        self.capacity, self.stack, self.num_streams = capacity, stack, num_streams
        parts = MemoryParts(settings, sampler, seed, on_damage)
        LastingMemory.__init__(self, parts, directory, flush_every)
        DrawnMemory.__init__(self, parts)
        # What every step goes through, without a second look-up.
        self._lock, self._timeline, self._storage = self._parts.lock, self._parts.timeline, self._parts.storage
        self._stacker, self._budget = self._parts.stacker, self._parts.budget

    def __len__(self) -> int:
        return len(self._timeline)

    def begin(self, frames: Any, streams: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode on ``streams`` (all if ``None``) with the frames that ``reset`` returned.

        ``frames``: ``(len(streams), *frame)`` of the space's dtype; of a Dict or Tuple, one such array for each key or
        part. They are copied. An episode that is still open on one of the streams ends here as cut off: its transitions
        stay, and nothing crosses the seam. Raises ``InvalidStepError`` before anything is stored.
        """
        with self._lock:
            if self._parts.refusal is not None:
                self._parts.raise_refusal()
            checked = checked_streams(streams, self._timeline.all_streams)
            new_frames = checked_frames(frames, len(checked), self.settings.frame)

            try:
                charged_bytes = self._storage.append(checked, new_frames)
                self._stacker.begin(checked, new_frames)
                self._timeline.begin(checked)
            except BaseException:  # Ctrl-C comes between any two of them
                self._parts.finish_step(checked, new_frames, lambda: self._timeline.begin(checked))
                raise
            is_over = charged_bytes > self._budget.most_charged
            if is_over:
                self._parts.make_fit()
        if is_over and self._directory is not None:
            self._directory.flush_for_room()

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        streams: Sequence[int] | npt.NDArray[Any] | None = None,
        columns: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of each of ``streams`` (all if ``None``) and the frame that it led to.

        ``frames``: as ``begin`` takes them, the true last frame where an episode ended; copied. The other arguments
        have one entry a stream; rewards are stored as ``float32``. ``columns`` has what the memory was told to keep
        besides, by name, ``(len(streams), *column)`` each. A stream whose episode ended takes ``begin`` next.
        Raises ``InvalidStepError`` before anything is stored.
        """
        with self._lock:
            if self._parts.refusal is not None:
                self._parts.raise_refusal()
            step = streams, actions, rewards, terminated, truncated, frames, columns
            numbers, new_frames = stage_step(self._timeline, self.settings, step)

            for stream, first, before in self._timeline.make_room():
                self._storage.evict(stream, before, first)
            try:
                charged_bytes = self._storage.append(numbers, new_frames)
                self._stacker.append(numbers, new_frames)
                self._timeline.append_staged()
            except BaseException:  # Ctrl-C comes between any two of them
                self._parts.finish_step(numbers, new_frames, self._timeline.append_staged)
                raise
            is_over = charged_bytes > self._budget.most_charged
            if is_over:
                self._parts.make_fit()
        if is_over and self._directory is not None:
            self._directory.flush_for_room()

    def checked_columns(
        self, columns: Mapping[str, npt.ArrayLike] | None, num_steps: int
    ) -> dict[str, npt.NDArray[Any]] | None:
        """Give ``columns`` as ``append`` stores them; ``None`` where the memory keeps none.

        Raises the ``InvalidStepError`` that ``append`` would: a `Recorder` asks before it steps an environment.
        """
        return self.settings.columns.checked(columns, num_steps)

    def observations(self) -> Any:
        """What the policy sees now: a fresh array ``(num_streams, stack, *frame)``, of a Dict or Tuple one each key.

        A stream whose episode has ended shows the observation that ended it until the next one begins; one that never
        began is all zeros.
        """
        with self._lock:
            return self.settings.frame.rebuilt(self._stacker.stacks())

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Which streams have an episode that goes on, ``(num_streams,)``: those that take ``append`` next."""
        with self._lock:
            return self._timeline.is_open.copy()

    @property
    def nbytes(self) -> int:
        """Bytes that the memory takes, all parts together."""
        return self.report().nbytes

    def report(self) -> MemoryReport:
        """What is held, where the bytes are, and the ratio achieved."""
        with self._lock:
            parts = (
                self._storage.nbytes
                | {
                    "columns": self._timeline.nbytes,
                    "stacks": self._stacker.nbytes,
                    "output pool": self._gathering.nbytes,
                }
                | self._parts.sampler_bytes
            )
            frame_bytes = self.settings.frame.nbytes
            return MemoryReport(
                len(self),
                self.capacity,
                parts,
                frame_bytes,
                2 * self.stack * frame_bytes,
                self._storage.num_frames,
                max_bytes=self.settings.max_bytes,
                share_used=self._budget.share_used(self._storage),
                disk_bytes=self._parts.disk_bytes,
                skipped_segments=self._parts.damage.num_segments,
                frame_bytes_by_key=self._parts.frame_bytes_by_key,
            )

    def check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the memory contradicts itself; for tests."""
        with self._lock:
            self._parts.check()

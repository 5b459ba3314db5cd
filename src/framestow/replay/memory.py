"""ReplayMemory: the facade of the replay floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import checked_indices, checked_seed, folder_path, real_number, truth_value, whole_number
from framestow.errors import InvalidSettingsError, NothingToSampleError
from framestow.frames.observation_spec import observation_spec
from framestow.frames.stacking import StackPadding
from framestow.replay.action_spec import ActionSpec
from framestow.replay.batch import Batch, SequenceBatch
from framestow.replay.byte_amounts import parse_bytes
from framestow.replay.episodes import StoredEpisode, stored_episodes
from framestow.replay.eviction import OnDamage, Retention, evict_unreferenced_frames
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.memory_report import MemoryReport
from framestow.replay.memory_settings import MemorySettings, labels_of
from framestow.replay.samplers.sampler import Sampler, checked_priorities
from framestow.replay.sampling import Gathering, HeldBatches, HeldSteps, PendingBatch, held_steps
from framestow.replay.sequences import Borders, PendingSequences, Sequences, SequenceShape
from framestow.replay.step_checks import checked_frames, checked_streams, stage_step
from framestow.replay.step_fields import ExtrasSpec
from framestow.replay.store.session import (
    Directory,
    Saves,
    begin_or_go_on,
    built,
    check_flush_every,
    fill_to_read,
    go_on,
    open_stored,
    stored_frames_per_segment,
)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class DrawnMemory:
    """Draws, looks up and goes through the transitions of a memory."""

    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._gathering = Gathering(parts)
        self._sequences = Sequences(parts, self._gathering)

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions, with replacement, by the memory's sampler and generator.

        Raises ``NothingToSampleError`` while there is none.
        """
        batch_size = checked_batch_size(batch_size)
        return self._gathering.drawn(batch_size)

    def _draw_ahead(self, batch_size: int) -> PendingBatch:
        """Draw as ``sample`` does, now, and unpack later: what loaders build on, so that a learner need not wait.

        The same draws give the same batches, whoever gathers them, and when. See ``PendingBatch`` for what is owed.
        """
        batch_size = checked_batch_size(batch_size)
        return self._gathering.draw_ahead(batch_size)

    @property
    def sampler(self) -> Sampler:
        """What draws. Another one can be set at any time; it begins with all that is held, in the same generator.

        Raises ``InvalidSettingsError`` for one that another memory draws by, alone or as a part of a `Mixture`.
        """
        return self._parts.told.sampler

    @sampler.setter
    def sampler(self, sampler: Sampler) -> None:
        self._parts.switch_sampler(sampler)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Tell the sampler the TD errors, of any sign, of the transitions with these indices (``Batch.index``).

        Both have the same shape; CPU tensors are taken as arrays are. Transitions that have left meanwhile, and indices
        of -1, are left out; where one comes twice, the last error counts. Raises ``InvalidSettingsError``, before
        anything is changed, for shapes that differ, for what is not finite, and for a sampler without priorities.
        """
        self._parts.update_priorities(*checked_priorities(indices, priorities))

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> SequenceBatch:
        """Draw ``batch_size`` sequences of ``length`` steps that follow on one another, for recurrent and world models.

        Each starts at a transition that the memory's sampler draws. Its steps are single ones, whatever ``n_step`` is,
        and they go on to the newest step. docs/sampling.md has what R2D2 and DreamerV3 ask for.

        Arguments:
            batch_size: how many sequences.
            length: steps of a sequence, 1 to 65,536, those of the burn-in among them.
            overlap: if given, sequences start only at multiples of ``length - overlap`` steps from the beginning of an
                episode: a drawn transition is taken back to the start before it (Kapturowski et al. 2019, R2D2). Where
                that has left the memory, to the first behind it that is held.
            burn_in: how many steps at the front are only to warm up recurrent state: ``learns`` leaves them out.
            borders: ``"mask"``: what is behind the end of an episode is masked; ``"inside"``: only starts from which
                ``length`` steps of one episode follow; ``"cross"``: goes on into the stream's next episode, whose first
                step ``is_first`` tells (Hafner et al. 2023, DreamerV3). Steps that left or were lost end a sequence
                everywhere.

        Raises ``NothingToSampleError`` where the memory has no such sequence.
        """
        batch_size = checked_batch_size(batch_size)
        shape = SequenceShape(length, overlap, burn_in, borders)
        shape.check()
        return self._sequences.drawn(batch_size, shape)

    def _draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> PendingSequences:
        """Draw as ``sample_sequences`` does, now, and unpack later: ``_draw_ahead`` of sequences."""
        batch_size = checked_batch_size(batch_size)
        shape = SequenceShape(length, overlap, burn_in, borders)
        shape.check()
        return self._sequences.draw_ahead(batch_size, shape)

    def sample_episodes(self, batch_size: int) -> SequenceBatch:
        """Draw ``batch_size`` whole episodes with replacement, each equally likely, however long it is.

        One is whole if all of its steps are held and it has ended, be it that the next began before its end. They come
        as sequences as long as the longest of them, so a batch takes the bytes of that for each; ``episodes`` gives
        frames piece by piece. Raises ``NothingToSampleError`` where none is whole.
        """
        batch_size = checked_batch_size(batch_size)
        return self._sequences.episodes(batch_size)

    def batches(
        self, batch_size: int, *, shuffled: bool = False, seed: int | None = None, drop_last: bool = False
    ) -> HeldBatches:
        """Go once through all transitions that are held now, each in exactly one batch: for offline learning.

        In the order of their indices, or ``shuffled`` by a generator of their own with this ``seed`` (fresh entropy if
        ``None``), which takes 8 bytes a transition. The memory's generator is not touched. What leaves meanwhile is
        left out, what comes is not taken in. ``drop_last`` leaves out a last batch that is not full. The iterator's
        ``len()`` tells how many batches are to come.
        """
        batch_size = checked_batch_size(batch_size)
        shuffled, drop_last = truth_value("shuffled", shuffled), truth_value("drop_last", drop_last)
        seed = checked_seed(seed)
        return HeldBatches(self._parts, self._gathering.chosen_by, batch_size, shuffled, seed, drop_last)

    def returns_to_go(self, indices: npt.ArrayLike, discount: float = 1.0) -> npt.NDArray[np.float64]:
        """Give what followed on steps: the rewards from each to the end of its episode, the k-th times ``discount**k``.

        ``indices``: of steps, of any shape, as any batch's ``index`` has them; -1, where a sequence is masked, gives 0.
        Of an episode that goes on it is what has come so far, as it is of one that was cut off. NaN where a step that
        comes before the end has left the memory or was lost; with the default retention none leaves there. Summed in
        double; takes a time that grows with the steps up to the ends of these episodes. Raises
        ``NothingToSampleError`` for a step that is not held.
        """
        discount = real_number("discount", discount, 0, 1, rule="must be 0 to 1; 1 adds the rewards up as they are")
        asked = checked_indices(indices)
        is_step = asked != -1
        steps, returns = asked[is_step], np.zeros(asked.shape)
        with self._parts.lock:
            gone = steps[self._parts.timeline.places(steps)[0] < 0]
            if gone.size:
                raise NothingToSampleError(
                    f"step {gone[0]} is not held: it has gone or never was; ask before more is appended"
                )
            returns[is_step] = self._parts.timeline.returns_to_go(steps, discount)
        return returns

    def get(self, indices: npt.ArrayLike) -> Batch:
        """Give exactly the transitions with these indices (as ``Batch.index`` gives them), all with weight 1.

        Raises ``NothingToSampleError`` for one that is not held, ``InvalidSettingsError`` for what are no integers with
        one axis.
        """
        return self._gathering.chosen(checked_indices(indices, most_axes=1))

    def steps_from(self, indices: npt.ArrayLike, length: int = 1) -> HeldSteps:
        """Give what ``length`` steps from each of ``indices``, ``(B,)``, on carry; no frame is unpacked.

        They are single steps, whatever ``n_step`` is, and end with their episode or with the newest step. Raises
        ``NothingToSampleError`` for a step that is not held.
        """
        return held_steps(self._parts, checked_indices(indices, most_axes=1), length)

    def sampleable_indices(self) -> npt.NDArray[np.int64]:
        """Give the index of every transition that may be drawn, oldest first."""
        with self._parts.lock:
            return self._parts.timeline.held_indices()

    def episodes(self) -> Iterator[StoredEpisode]:
        """Give what is held episode by episode, stream by stream; frames are read when they are asked for.

        Nothing may be appended to a full memory meanwhile: ``NothingToSampleError``.
        """
        return stored_episodes(self._parts)


def checked_batch_size(batch_size: int) -> int:
    """Give ``batch_size`` as an ``int``; ``InvalidSettingsError`` unless it is a whole number of at least 1."""
    return whole_number("batch_size", batch_size, 1, rule="a batch has at least 1 transition")


GENERATION_RULE = "it is the number that save() or flush() returned"


class LastingMemory:
    """Saves, loads, opens, flushes and closes a memory.

    ::

                       lives in        what it holds is on the disk
        save, load     RAM             when ``save`` returned
        directory=     the folder      when ``flush`` or ``close`` returned; in the background every few seconds
        open           the folder      the same; or nothing is written, where it is opened to be read
    """

    def __init__(
        self, parts: MemoryParts, directory: str | PathLike[str] | None = None, flush_every: float | None = 5.0
    ) -> None:
        check_flush_every(flush_every)
        self._parts, self._saves = parts, Saves(parts)
        self._directory: Directory | None = None
        if directory is not None:
            self._live_in(begin_or_go_on(parts, Path(directory).resolve()), flush_every)

    def save(self, path: str | PathLike[str], *, keep_previous: bool = False) -> int:
        """Write everything, generator and open episodes included, to the folder ``path``; return its generation.

        Costs what is new since this memory was last saved to, or loaded from, the same folder; anything else that lies
        there is replaced. With ``keep_previous`` what was saved before can still be loaded, by its generation, until
        ``prune``; in the directory that a memory lives in, this generation too stays until then. A crash at
        any moment leaves what was saved there before, or the new state. Other threads may go on; what is saved is the
        memory between two of their calls. Takes no more than a few MiB of memory.

        Raises ``OSError`` if the disk refuses, ``IncompatibleError`` if somebody else is writing there.
        """
        folder, keep_previous = folder_path("path", path), truth_value("keep_previous", keep_previous)
        if self._directory is not None and folder.resolve() == self._directory.path:
            return self._directory.save(keep_previous)
        return self._saves.save(folder, keep_previous)

    def prune(self, path: str | PathLike[str], generation: int) -> None:
        """Remove what was saved to ``path`` before ``generation``, which must be there: ``FileNotFoundError``."""
        folder, generation = folder_path("path", path), whole_number("generation", generation, 0, rule=GENERATION_RULE)
        if self._directory is not None and folder.resolve() == self._directory.path:
            self._directory.prune(generation)
        else:
            self._saves.prune(folder, generation)

    def flush(self) -> int:
        """Put on the disk what a memory that lives in a directory holds; return the generation.

        Everything that was appended before survives from then on whatever becomes of the process, and, as far as the
        disk keeps what it says (fsync), of the machine's power. Raises what a flush in the background failed with,
        ``OSError`` if the disk refuses, ``ClosedMemoryError`` if the memory was closed.
        """
        if self._directory is None:
            raise InvalidSettingsError(
                "the memory does not live in a directory: there is nothing to flush it to; save it, or build it with "
                "directory=..."
            )
        return self._directory.flush()

    def close(self) -> None:
        """Flush, and let go of the directory and of the sampler, which another memory may then take.

        What is stored can still be sampled until the sampler is taken. A memory in a directory takes no more steps; one
        without goes on as before. Closing again does nothing.
        """
        self._parts.told.release()
        if self._directory is not None:
            self._directory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        sampler: Sampler | None = None,
        threads: int = 1,
        generation: int | None = None,
        max_bytes: int | str | None = None,
    ) -> Self:
        """Read what was saved or flushed to ``path`` into RAM: the same transitions, generator and open episodes.

        ``sampler``: a new one, which takes over the state of the saved one if it is of the same class, and begins
        afresh if not; ``None`` makes the one that the memory was saved with, if that is one of framestow's.
        ``threads``: as for a new memory. ``generation``: an older one that was kept, the newest by default.
        ``max_bytes``: another budget than it was saved with; transitions go until it fits, once all is read. Every byte
        is verified. A writer may go on beside it.

        Raises ``IncompatibleError`` for no ``sampler`` where the saved one is not framestow's, ``DamagedDataError``,
        naming the file, if a byte is not what was written, ``FileNotFoundError`` if nothing was saved there,
        ``InvalidSettingsError`` for a budget that cannot hold what the streams are filling.
        """
        folder, generation = _checked_place(path, generation)
        with open_stored(folder, generation) as stored:
            make: Callable[..., Self] = cls
            memory = built(partial(make, sampler=sampler, threads=threads), stored.settings.held_to(max_bytes), path)
            with memory._parts.told.released_on_error():
                stored.fill(memory._parts)
                memory._parts.evict_to_fit()
                memory._saves.remember(path, stored.commit)
        return memory

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        read_only: bool = True,
        generation: int | None = None,
        sampler: Sampler | None = None,
        threads: int = 1,
        flush_every: float | None = 5.0,
        on_damage: OnDamage = "raise",
    ) -> Self:
        """Open a memory where it lies: packed segments stay in its files, and are verified when they are asked for.

        With ``read_only`` it is what it was at that generation, for as long as it is looked at, whatever a writer
        beside it does; nothing is written, and it takes no steps (``ClosedMemoryError``). Without, it goes on exactly
        where it was, open episodes and all, and what came after that generation goes with the next flush. The other
        arguments are those of ``load`` and of a new memory.

        Raises as ``load``, and ``IncompatibleError`` if somebody else is writing there.
        """
        check_flush_every(flush_every)
        folder, generation = _checked_place(path, generation)
        folder = folder.resolve()
        any_memory: Callable[..., Self] = cls
        make = partial(any_memory, sampler=sampler, threads=threads, on_damage=on_damage)
        if not truth_value("read_only", read_only):
            with go_on(folder, generation) as (stored, take):
                memory = built(make, stored.settings, path)
                with memory._parts.told.released_on_error():
                    memory._live_in(take(memory._parts), flush_every)
            return memory
        is_filled = False
        while not is_filled:
            with open_stored(folder, generation) as stored:
                memory = built(make, stored.settings, path)
                with memory._parts.told.released_on_error():
                    is_filled = fill_to_read(memory._parts, stored, folder)
                if not is_filled:
                    memory._parts.told.release()
        return memory

    def _live_in(self, directory: Directory, flush_every: float | None) -> None:
        self._directory = directory
        self._parts.budget.count_files(self._parts.settings.retention == "random")
        with self._parts.lock:
            self._parts.evict_to_fit()
        directory.flush_every(flush_every, memory=self)


def _checked_place(path: str | PathLike[str], generation: int | None) -> tuple[Path, int | None]:
    """Give both checked; ``InvalidSettingsError`` for what is no path, and for what is no number of a generation."""
    if generation is not None:
        generation = whole_number("generation", generation, 0, rule=GENERATION_RULE)
    return folder_path("path", path), generation


class ReplayMemory(DrawnMemory, LastingMemory):
    """``capacity`` transitions of ``num_envs`` environments, each frame kept once, losslessly.

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
        num_envs: environments that feed this memory.
        n_step: rewards that a transition's return has, 1 to 255; fewer where its episode ends before. Until they are
            there, a transition waits: it is not counted, and cannot be drawn. docs/sampling.md has the rules.
        discount: γ; a transition's ``discount`` is γ to the power of its rewards' number, 0 if its episode terminated.
        sampler: what draws the transitions of a batch; ``Uniform()`` by default. An object draws for one memory alone.
        storage: ``"packed"`` (compressed) or ``"raw"`` (a byte for a byte).
        retention: ``"fifo"``: the oldest transition leaves; ``"random"``: all of a random segment's, so that every
            experience has a chance to stay and recent ones have more. docs/saving.md has the granularity, and the
            capacity that it takes.
        seed: of the memory's own generator; ``None`` takes fresh entropy.
        threads: how many threads unpack one batch, 1 to 64; small batches stay on one. Not kept by ``save``.
        max_bytes: what it may take, a number of bytes or ``"1 GiB"``: where it would take more, transitions go before
            there are ``capacity`` of them. docs/saving.md says what counts.
        label: what feeds the memory, a game's name for instance, or one for each environment; only told, never read.
        directory: a folder that the memory lives in: packed segments lie in files there, so that it may be larger than
            RAM, and what was flushed survives any crash. A folder that holds a memory of the same settings is gone on
            with, by its own generator and with all episodes closed; docs/saving.md has the promises.
        flush_every: seconds between two flushes in the background; ``None`` leaves it to ``flush``.
        on_damage: ``"raise"`` an error when a damaged segment is asked for, or ``"skip"`` it: it leaves the memory, and
            ``report()`` counts it.
        extras: what every step has besides, by name: ``{"log_prob": np.float32, "state": (np.float32, (2, 512))}``;
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
        num_envs: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        sampler: Sampler | None = None,
        storage: str = "packed",
        retention: Retention = "fifo",
        seed: int | None = None,
        threads: int = 1,
        max_bytes: int | str | None = None,
        label: str | Sequence[str] = "",
        frames_per_segment: int | None = None,
        directory: str | PathLike[str] | None = None,
        flush_every: float | None = 5.0,
        on_damage: OnDamage = "raise",
        extras: Mapping[str, npt.DTypeLike] | ExtrasSpec | None = None,
    ) -> None:
        seed = checked_seed(seed)
        folder = None if directory is None else folder_path("directory", directory)
        if frames_per_segment is None and folder is not None:
            frames_per_segment = stored_frames_per_segment(folder)
        settings = MemorySettings(
            capacity,
            observation_spec(observation_space),
            ActionSpec.from_space(action_space),
            stack,
            num_envs,
            discount,
            storage,
            threads,
            stack_padding,
            labels_of(label, num_envs),
            retention,
            None if max_bytes is None else parse_bytes(max_bytes),
            frames_per_segment,
            ExtrasSpec.from_declared(extras),
            n_step,
        )
        self._settings = settings
        self.capacity, self.stack, self.num_envs = settings.capacity, settings.stack, settings.num_envs
        parts = MemoryParts(settings, sampler, seed, on_damage)
        with parts.told.released_on_error():
            LastingMemory.__init__(self, parts, folder, flush_every)
        DrawnMemory.__init__(self, parts)
        # What every step goes through, without a second look-up.
        self._lock, self._timeline, self._storage = self._parts.lock, self._parts.timeline, self._parts.storage
        self._stacker, self._budget = self._parts.stacker, self._parts.budget

    def __len__(self) -> int:
        return len(self._timeline)

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode on ``env_ids`` (all if ``None``) with the frames that ``reset`` returned.

        ``frames``: ``(len(env_ids), *frame)`` of the space's dtype; of a Dict or Tuple, one such array for each key or
        part. They are copied. An episode that is still open there ends as cut off: its transitions
        stay, and nothing crosses the seam. Raises ``InvalidStepError`` before anything is stored.
        """
        with self._lock:
            if self._parts.refusal is not None:
                self._parts.raise_refusal()
            checked = checked_streams(env_ids, self._timeline.all_streams)
            new_frames = checked_frames(frames, len(checked), self._settings.frame)

            try:
                charged_bytes = self._storage.append(checked, new_frames)
                self._stacker.begin(checked, new_frames)
                self._timeline.begin(checked)
            except BaseException:  # Ctrl-C comes between any two of them
                self._parts.finish_step(checked, new_frames, lambda: self._timeline.begin(checked))
                raise
            is_over = charged_bytes > self._budget.max_charged_bytes
            if is_over:
                self._parts.evict_to_fit()
        if is_over and self._directory is not None:
            self._directory.flush_for_room()

    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[Any] | None = None,
        extras: Mapping[str, npt.ArrayLike] | None = None,
    ) -> None:
        """Store one step of each of ``env_ids`` (all if ``None``) and the frame that it led to.

        ``frames``: as ``begin`` takes them, the true last frame where an episode ended; copied. The other arguments
        have one entry for each environment; rewards are stored as ``float32``. ``extras`` has what was declared with
        the memory, by name, ``(len(env_ids), *shape)`` each. Where an episode ended, ``begin`` is next.
        Raises ``InvalidStepError`` before anything is stored.
        """
        with self._lock:
            if self._parts.refusal is not None:
                self._parts.raise_refusal()
            step = env_ids, actions, rewards, terminated, truncated, frames, extras
            numbers, new_frames = stage_step(self._timeline, self._settings, step)

            if self._timeline.evict_for_staged():
                evict_unreferenced_frames(self._storage, self._timeline)
            try:
                charged_bytes = self._storage.append(numbers, new_frames)
                self._stacker.append(numbers, new_frames)
                self._timeline.append_staged()
            except BaseException:  # Ctrl-C comes between any two of them
                self._parts.finish_step(numbers, new_frames, self._timeline.append_staged)
                raise
            is_over = charged_bytes > self._budget.max_charged_bytes
            if is_over:
                self._parts.evict_to_fit()
        if is_over and self._directory is not None:
            self._directory.flush_for_room()

    def _checked_extras(
        self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int
    ) -> dict[str, npt.NDArray[Any]] | None:
        """Give ``extras`` as ``append`` stores them; ``None`` where the memory keeps none.

        Raises the ``InvalidStepError`` that ``append`` would: a `Recorder` asks before it steps an environment.
        """
        return self._settings.extras.checked(extras, num_steps)

    def observations(self) -> Any:
        """What the policy sees now: a fresh array ``(num_envs, stack, *frame)``, of a Dict or Tuple one each key.

        An environment whose episode has ended shows its last observation until the next one begins; one that never
        began is all zeros.
        """
        with self._lock:
            return self._settings.frame.rebuilt(self._stacker.stacks())

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Which environments have an open episode, ``(num_envs,)``: those that take ``append`` next."""
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
                    "steps": self._timeline.nbytes,
                    "stacks": self._stacker.nbytes,
                    "output pool": self._gathering.nbytes,
                }
                | self._parts.sampler_bytes
            )
            frame_bytes = self._settings.frame.nbytes
            return MemoryReport(
                len(self),
                self.capacity,
                parts,
                frame_bytes,
                2 * self.stack * frame_bytes,
                self._storage.num_frames,
                max_bytes=self._settings.max_bytes,
                share_used=self._budget.share_used(self._storage),
                disk_bytes=self._parts.disk_bytes,
                skipped_segments=self._parts.damage.num_segments,
                frame_bytes_by_key=self._parts.frame_bytes_by_key,
                open_frames=self._parts.open_frames,
            )

    def _check(self) -> None:
        """Raise ``AssertionError`` with the broken rule if the memory contradicts itself; for tests."""
        with self._lock:
            self._parts.check()

"""``ReplayMemory``: store steps of environments, sample batches of transitions, save and load both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from framestow.checks import (
    check_indices,
    check_rows,
    check_seed,
    folder_path,
    real_number,
    truth_value,
    whole_number,
)
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.stacking import StackPadding
from framestow.interface import Closing, one_line, plural
from framestow.keywords import NoKeywords, refuse_keywords, refuse_missing, suggests_keywords, takes_any_call
from framestow.replay.eviction.retention import OnDamage, Retention
from framestow.replay.inner_memory import InnerMemory, MemoryProperties
from framestow.replay.memory_parts import MemoryParts
from framestow.replay.reading.batch import Batch, SequenceBatch
from framestow.replay.reading.episodes import StoredEpisode, iterate_episodes
from framestow.replay.reading.sampling import (
    PendingBatch,
    StepSequences,
    StoredBatches,
    drawn,
    step_sequences,
)
from framestow.replay.reading.sequences import Borders, PendingSequences, SequenceShape
from framestow.replay.reports.memory_report import MemoryReport, report_of
from framestow.replay.samplers.sampler import Sampler, check_priorities
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.observation_layout import AxisChoice
from framestow.replay.settings.step_fields import ExtrasSpec, Summed
from framestow.replay.step_checks import check_changed_extras, check_extras, check_rewards
from framestow.replay.steps.step_store import unreadable
from framestow.replay.store.open_store import OpenStore, check_flush_every
from framestow.replay.store.other_settings import check_settings
from framestow.replay.store.reader import StoredMemory, read_frames_per_segment
from framestow.storage.frame_storage import Storage

if TYPE_CHECKING:
    from typing import Self, Unpack

REPR_WAIT_S = 0.1  # for the lock, which a thread holds for microseconds as a rule

GENERATION_RULE = "it is the number that save() or flush() returned"


@suggests_keywords
class ReplayMemory(MemoryProperties, Closing):
    """Replay memory of transitions from ``num_envs`` environments; stores each frame once, losslessly.

    >>> import numpy as np
    >>> from framestow import FrameSpec, ReplayMemory
    >>> memory = ReplayMemory(
    ...     capacity=100, observation_space=FrameSpec((84, 84, 4)), action_space=6
    ... )
    >>> observation, next_observation = (
    ...     np.zeros((84, 84, 4), np.uint8),
    ...     np.ones((84, 84, 4), np.uint8),
    ... )
    >>> memory.add(
    ...     observation, 3, 0.5, next_observation, terminated=False, truncated=True
    ... )
    array([0])
    >>> batch = memory.sample(32)
    >>> (
    ...     batch.observation.shape,
    ...     batch.next_observation[0, 0, 0].tolist(),
    ...     float(batch.discount[0]),
    ... )
    ((32, 84, 84, 4), [1, 1, 1, 1], 0.9900000095367432)

    There are two ways to build a memory:

    ===========================  =====================================  ===========================================
    ``observation_space``        ``add`` takes, and batches have        ``begin``, ``append`` and ``Recorder`` take
    ===========================  =====================================  ===========================================
    of whole observations        observations ``(n, *space.shape)``     observations ``(n, *space.shape)``
    of one frame, and ``stack``  observations ``(n, stack, *frame)``    frames ``(n, *frame)``
    ===========================  =====================================  ===========================================

    1. What goes in comes out, in the same shape and dtype, bit for bit. Any observation can be stored, and any next
       observation.
    2. Frames that observations share are stored once. The layout of stacks changes bytes and time, never values. With a
       budget or random retention, bytes also decide which transitions stay.

    The shape of each array of the space decides which axis is a stack of frames, when the memory is built:
    ``(4, 84, 84)`` and ``(84, 84, 4)`` are stacks of 4, ``(84, 84, 3)`` is one frame in colour. docs/observations.md
    has the rule and more shapes; ``stack_axis`` overrides it.

    Arguments:
        capacity: Maximum number of transitions. When full, ``retention`` decides which are evicted.
        observation_space: Space of whole observations, usually the environment's own. With ``stack``, the space of one
            frame. A Gymnasium ``Box``, a ``FrameSpec``, or a ``Dict`` or ``Tuple`` of them (a Python dict or tuple
            works too), nested to any depth. With a ``Dict`` or ``Tuple``, frames and observations are dicts or tuples
            of arrays. Any dtype is stored bit for bit (docs/observations.md).
        action_space: Gymnasium ``Discrete``, ``MultiDiscrete``, ``MultiBinary`` or ``Box``, or the number of actions.
            Of a vector environment, both spaces are those of one environment: ``env.single_observation_space``.
        stack: Number of frames in an observation, 1 to 256, if the space is that of one frame. ``None`` if the space is
            that of whole observations.
        stack_padding: Fills the stack before an episode's first frame f0. ``"first_frame"`` repeats it, as Gymnasium
            does: ``f0 f0 f0 f0 | f0 f0 f0 f1``. ``"zeros"`` gives ``0 0 0 f0 | 0 0 f0 f1``. Whole observations come
            back as they were given with either.
        stack_axis: Axis of the stacked frames, where the shape alone gives another one: 0, -1 or ``"none"``, or a pair
            of axis and number of frames such as ``(0, 12)``. Or a dict of these by key of the space:
            ``{"camera": -1}``. Not together with ``stack``, whose frames are on the first axis.
        num_envs: Number of environments that feed the memory.
        n_step: Number of rewards in a transition's return, 1 to 255; fewer at the end of an episode. A transition can
            be sampled, and is counted by ``len``, when its return is complete (docs/sampling.md).
        discount: γ. A transition with m rewards has the ``discount`` γᵐ, or 0 if its episode terminated.
        sampler: Draws the transitions of a batch; ``Uniform()`` by default. A sampler belongs to one memory at a time.
        storage: ``"packed"`` compresses frames; ``"raw"`` stores them uncompressed.
        retention: Which transitions are evicted: ``"fifo"`` the oldest; ``"random"`` those of a random segment, so that
            some old experience stays. docs/saving.md has the minimum capacity.
        seed: Seed of the memory's random generator; ``None`` takes fresh entropy.
        threads: Number of threads that unpack a batch, 1 to 64. Small batches use one. ``save`` does not store it.
        max_bytes: Maximum size in RAM and files, as a number of bytes, or as ``"1 GiB"`` or ``"2G"``. Transitions are
            evicted to stay below it, even with fewer than ``capacity`` stored (docs/saving.md).
        label: Name of what feeds the memory, such as a game's, or one name for each environment. Only reported.
        frames_per_segment: Number of frames of one environment that are compressed, and later evicted, together.
            ``None`` chooses what compresses best within ``capacity``, ``retention`` and ``max_bytes``. More frames
            compress better; fewer let less be evicted at once.
        directory: Folder that the memory lives in. Packed frames move to files there, so the memory can be larger than
            RAM, and flushed data survives a crash. If the folder already holds a memory with the same settings, it is
            resumed: its random generator continues and open episodes are closed as truncated. ``capacity`` may be
            larger, ``discount`` and ``n_step`` others, as for ``load`` (docs/saving.md).
        flush_every: Seconds between two flushes in the background, with a ``directory``; ``None`` leaves flushing to
            ``flush``.
        on_damage: What happens when damage is read: ``"raise"`` raises ``DamagedSegmentError`` for a segment, and
            ``DamagedDataError`` for a block of steps; ``"skip"`` leaves out the segment or block. ``report()`` counts
            the lost transitions, and a warning of the logger ``framestow`` names the file.
        extras: Extra fields of every step by name, each a NumPy number or boolean dtype, with a shape if it has one:
            ``{"log_prob": np.float32, "state": (np.float32, (2, 512))}``. With ``Summed(np.float32)``, transitions of n
            steps have the sum, as of a cost (docs/extras-and-changes.md).

    Raises:
        InvalidSettingsError: an argument that cannot work.
        IncompatibleError: ``directory`` has a memory with other settings or if another process writes to it.

    Threads: one thread may write (``add``, ``begin``, ``append``) while any number of threads call the other methods. A
    call sees the memory between two calls of the writer. A batch is drawn under a lock, in microseconds, and unpacked
    without it. With several sampling threads, the order of their calls decides which gets which draw
    (docs/threads.md).
    """

    def __init__(
        self,
        capacity: int,
        observation_space: Any,
        action_space: Any,
        *,
        stack: int | None = None,
        stack_padding: StackPadding = "first_frame",
        stack_axis: AxisChoice | Mapping[str, AxisChoice] | None = None,
        num_envs: int = 1,
        n_step: int = 1,
        discount: float = 0.99,
        sampler: Sampler | None = None,
        storage: Storage = "packed",
        retention: Retention = "fifo",
        seed: int | None = None,
        threads: int = 1,
        max_bytes: int | str | None = None,
        label: str | Sequence[str] = "",
        frames_per_segment: int | None = None,
        directory: str | PathLike[str] | None = None,
        flush_every: float | None = 5.0,
        on_damage: OnDamage = "raise",
        extras: Mapping[str, npt.DTypeLike | Summed] | ExtrasSpec | None = None,
    ) -> None:
        seed = check_seed(seed)
        folder = None if directory is None else folder_path("directory", directory)
        if frames_per_segment is None and folder is not None:
            frames_per_segment = read_frames_per_segment(folder)
        settings = MemorySettings.of_arguments(
            observation_space,
            action_space,
            capacity=capacity,
            stack=stack,
            stack_padding=stack_padding,
            stack_axis=stack_axis,
            num_envs=num_envs,
            n_step=n_step,
            discount=discount,
            storage=storage,
            retention=retention,
            threads=threads,
            max_bytes=max_bytes,
            label=label,
            frames_per_segment=frames_per_segment,
            extras=extras,
            is_on_disk=folder is not None,
        )
        self._spaces = observation_space, action_space
        # What framestow's own modules use of the memory.
        self.inner = inner = InnerMemory(MemoryParts(settings, sampler, seed, on_damage))
        with inner.parts.notified_sampler.release_on_error():
            check_flush_every(flush_every)
            if folder is not None:
                inner.live_in(OpenStore.create_or_resume(inner.parts, folder.resolve()), flush_every, self)
        # Whether an observation is one array: every step asks for it.
        self._takes_one_array = settings.frame.is_one_array

    # Storing steps

    def begin(self, frames: Any, env_ids: Sequence[int] | npt.NDArray[Any] | None = None) -> None:
        """Start an episode in each of ``env_ids`` with what ``reset`` returned.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, num_envs=2)
        >>> memory.begin(np.zeros((2, 2, 2), np.uint8))
        >>> # environment 1 starts again
        >>> memory.begin(np.ones((1, 2, 2), np.uint8), env_ids=[1])

        Arguments:
            frames: Array ``(len(env_ids), *space.shape)`` of the space's dtype; of a ``Dict`` or ``Tuple`` one such
                array for each key or part. Frames if the memory was built with ``stack``, otherwise whole observations.
                Copied.
            env_ids: Numbers of the environments, from 0 up; ``None`` means all.

        An open episode of these environments ends as truncated; its transitions stay. Raises ``InvalidStepError``
        before anything is stored.
        """
        self.inner.begin(self.inner.settings.layout.flatten_given(frames), env_ids)

    @takes_any_call
    def append(
        self,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        terminated: npt.ArrayLike,
        truncated: npt.ArrayLike,
        frames: Any,
        env_ids: Sequence[int] | npt.NDArray[Any] | None = None,
        extras: Mapping[str, npt.ArrayLike] | None = None,
        **others: Unpack[NoKeywords],
    ) -> npt.NDArray[np.int64]:
        """Store one step of each of ``env_ids``, with its next frame or next observation; return their indices.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(
        ...     100, FrameSpec((2, 2)), 4, stack=4, extras={"log_prob": np.float32}
        ... )
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append(
        ...     [3],
        ...     [0.5],
        ...     [False],
        ...     [True],
        ...     np.ones((1, 2, 2), np.uint8),
        ...     extras={"log_prob": [-1.5]},
        ... )
        array([0])
        >>> # the episode is truncated: call begin next
        >>> (
        ...     len(memory),
        ...     memory.open_episodes.tolist(),
        ... )
        (1, [False])

        Arguments:
            actions: One action for each environment.
            rewards: One number for each environment, stored as ``float32``.
            terminated: One boolean for each environment: the episode ended by its own rules.
            truncated: One boolean for each environment: the episode was cut off, by a time limit for instance.
            frames: The next frames, or the next observations, as in ``begin``; the true last one where an episode
                ended. Copied.
            env_ids: Numbers of the environments; ``None`` means all. Each needs an open episode.
            extras: The extra fields that the memory was built with, by name, each ``(len(env_ids), *shape)``.

        Returns the indices of the steps, ``(len(env_ids),)`` of ``int64``, as in ``Batch.index``. Call ``begin`` after
        an episode ended. Raises ``InvalidStepError`` before anything is stored.
        """
        if others:
            refuse_keywords(self.append, others)
        try:
            if self._takes_one_array:
                parts = (frames,)
            else:
                parts = self.inner.settings.layout.flatten_given(frames, "next_observation")
            return self.inner.append((env_ids, actions, rewards, terminated, truncated, parts, extras))
        except InvalidStepError:
            refuse_missing(self.append, actions, rewards, terminated, truncated, frames)
            raise

    @takes_any_call
    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        next_observation: Any,
        terminated: Any,
        truncated: Any,
        env_ids: Any = None,
        extras: Mapping[str, Any] | None = None,
        **others: Unpack[NoKeywords],
    ) -> npt.NDArray[np.int64]:
        """Store one step as every training loop has it: with an observation and the next observation.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> # the environment's space: stacks of 4 frames
        >>> memory = ReplayMemory(100, FrameSpec((4, 84, 84)), 6)
        >>> frames = np.repeat(
        ...     np.array([0, 0, 0, 0, 1, 2, 3], np.uint8), 84 * 84
        ... ).reshape(7, 84, 84)
        >>> for t in range(3):
        ...     _ = memory.add(
        ...         frames[t : t + 4], 5, 1.0, frames[t + 1 : t + 5], t == 2, False
        ...     )
        >>> batch = memory.get([0, 2])  # each frame is stored once, and stacked again
        >>> (
        ...     batch.observation[:, :, 0, 0].tolist(),
        ...     batch.next_observation[:, :, 0, 0].tolist(),
        ... )
        ([[0, 0, 0, 0], [0, 0, 1, 2]], [[0, 0, 0, 1], [0, 1, 2, 3]])

        ====================  ===================================================================================
        argument              of n environments
        ====================  ===================================================================================
        observation           ``(n, *space.shape)`` of the space's dtype. With a ``Dict`` or ``Tuple`` space a dict or
                              tuple of such arrays. ``(n, stack, *frame)`` if the memory was built with ``stack``.
                              Frames are stacked oldest first. Copied.
        action, reward        ``(n, *action)``, ``(n,)``: numbers; booleans are no rewards
        next_observation      as ``observation``; the true last one where an episode ended. Where it *terminated*, the
                              first one of the next episode works too, since no target uses it.
        terminated            ``(n,)`` booleans, or numbers equal to 0 or 1
        truncated             the same
        env_ids               numbers of the environments, ``(n,)``; ``None`` means all
        extras                as in ``append``
        ====================  ===================================================================================

        **One environment** needs no first axis: then all arrays of both observations have the axes of the space. With
        ``num_envs`` above 1, ``env_ids=i`` says which it is. Its action, reward, flags and extras may have the first
        axis or not, whether the observation has it or not.

        **Any observation is stored**, and comes back bit for bit in the shape in which it was given. As a rule the next
        observation is the observation, shifted by one frame: then only its newest frame is stored. Any other next
        observation is stored with its older frames. So is an observation that begins an episode, unless it is padded
        with its newest frame or with zeros. Observations that are no stacks are frames themselves.

        **Episodes.** An observation that equals the last ``next_observation`` of its environment continues the episode.
        Any other one begins an episode, and so does the first one after an end. There is no call for a reset. The first
        step may come from the middle of an episode. ``begin`` and ``append`` may be mixed with ``add``. A loaded memory
        continues its open episodes.

        Returns:
            The indices of the steps, ``(n,)`` of ``int64``, as in ``Batch.index``.

        Raises:
            InvalidStepError: before anything is stored: for another shape or dtype, and for what ``append`` refuses.
        """
        if others:
            refuse_keywords(self.add, others)
        try:
            if self._takes_one_array:
                now, following = (observation,), (next_observation,)
            else:
                flatten = self.inner.settings.layout.flatten
                now, following = flatten(observation), flatten(next_observation, "next_observation")
            return self.inner.add((env_ids, action, reward, terminated, truncated, following, extras, now))
        except InvalidStepError:
            refuse_missing(self.add, observation, action, reward, next_observation, terminated, truncated)
            raise

    def observations(self) -> Any:
        """Return the current observation of each environment: a new array, as ``add`` takes it.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=3)
        >>> memory.begin(np.full((1, 2, 2), 7, np.uint8))
        >>> memory.observations()[0, :, 0, 0].tolist()
        [7, 7, 7]

        The array is ``(num_envs, *space.shape)``, or ``(num_envs, stack, *frame)`` if the memory was built with
        ``stack``. With a ``Dict`` or ``Tuple`` space, one such array for each key or part. After the end of an episode,
        its last observation until the next one begins. Before its first episode, an environment has zeros.

        Raises:
            InvalidStepError: no environment has begun an episode.
        """
        if not self.inner.core.has_begun:
            raise InvalidStepError(
                "no environment has begun an episode: there is no observation to act on; call begin(...) with what "
                "reset() returned, or add(...) first"
            )
        return self.inner.observations()

    @property
    def open_episodes(self) -> npt.NDArray[np.bool_]:
        """Whether each environment has an open episode, ``(num_envs,)``; ``append`` takes only those."""
        with self.inner.lock:
            return self.inner.core.open_episodes

    # Sampling

    def sample(self, batch_size: int, *, copy: bool = False) -> Batch:
        """Sample ``batch_size`` transitions with replacement, by the memory's sampler and random generator.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, seed=0)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        array([0])
        >>> batch = memory.sample(32)
        >>> batch.observation.shape, float(batch.reward[0])
        ((32, 4, 2, 2), 0.5)

        Arguments:
            batch_size: Number of transitions.
            copy: Whether observations and next observations share no memory, so that you may write to either. If not,
                they are views of the same frames, and writing to one changes the other.

        Raises:
            NothingToSampleError: the memory is empty.
        """
        if type(batch_size) is not int or batch_size < 1:
            batch_size = check_batch_size(batch_size)
        if copy is not False:
            copy = truth_value("copy", copy)
        return self.inner.batches.read(self.inner.batches.draw, batch_size, not copy)

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Pass new TD errors to the sampler: those of the transitions with these ``indices``.

        >>> import numpy as np
        >>> from framestow import FrameSpec, Prioritized, ReplayMemory
        >>> memory = ReplayMemory(
        ...     100, FrameSpec((2, 2)), 4, stack=4, sampler=Prioritized(), seed=0
        ... )
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(2):
        ...     _ = memory.append(
        ...         [step], [0.0], [False], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> memory.update_priorities([0, 1], [0.0, -8.0])
        >>> set(memory.sample(32).action.tolist())
        {1}

        Arguments:
            indices: Integers of any shape, as in ``Batch.index``. Evicted transitions and -1 are ignored.
            priorities: Finite numbers of any sign, in the same shape; tensors on the CPU work too. If an index is
                repeated, the last one counts.

        Raises:
            InvalidSettingsError: before anything changes, for other values or shapes and for a sampler without
                priorities.
        """
        self.inner.parts.update_priorities(*check_priorities(indices, priorities))

    @property
    def sampler(self) -> Sampler:
        """The sampler. A new one can be set at any time and starts with all stored transitions.

        Setting it raises ``InvalidSettingsError`` for a sampler that another memory uses, alone or in a ``Mixture``.
        """
        return self.inner.parts.notified_sampler.sampler

    @sampler.setter
    def sampler(self, sampler: Sampler) -> None:
        self.inner.parts.switch_sampler(sampler)

    def sample_sequences(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
        copy: bool = False,
    ) -> SequenceBatch:
        """Sample ``batch_size`` sequences of ``length`` consecutive steps, for recurrent and world models.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, seed=0)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(10):
        ...     _ = memory.append(
        ...         [0],
        ...         [float(step)],
        ...         [False],
        ...         [step == 9],
        ...         np.ones((1, 2, 2), np.uint8),
        ...     )
        >>> batch = memory.sample_sequences(16, length=5, borders="inside")
        >>> batch.observation.shape, set(np.diff(batch.reward).ravel().tolist())
        ((16, 5, 4, 2, 2), {1.0})

        Each sequence starts at a transition that the sampler draws. Its steps are single steps for any ``n_step``, up
        to the newest one. docs/recurrent-and-world-models.md has the settings of R2D2 and DreamerV3.

        Arguments:
            batch_size: Number of sequences.
            length: Number of steps in a sequence, 1 to 65,536, burn-in included.
            overlap: If given, sequences start only at multiples of ``length - overlap`` steps from the beginning of an
                episode: a drawn transition moves back to the start before it (Kapturowski et al. 2019, R2D2). If that
                start was evicted, the sequence starts at the first stored step after it.
            burn_in: Number of steps at the front that only warm up recurrent state; ``learns`` excludes them.
            borders: ``"mask"`` masks steps after the end of the episode. ``"inside"`` samples only sequences that fit
                into one episode. ``"cross"`` continues with the environment's next episode, and ``is_first`` marks its
                first step (Hafner et al. 2023, DreamerV3). An evicted or lost step always ends a sequence.
            copy: Whether no two arrays or stacks share memory, so that you may write to them. Each frame is then there
                once for each stack that shows it.

        Raises:
            NothingToSampleError: the memory has no such sequence.
        """
        batch_size = check_batch_size(batch_size)
        shape = SequenceShape(length, overlap, burn_in, borders)
        batch = self.inner.sequences.sample(batch_size, shape)
        return batch.copy() if truth_value("copy", copy) else batch

    def sample_episodes(self, batch_size: int) -> SequenceBatch:
        """Sample ``batch_size`` whole episodes with replacement, each equally likely.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(3):
        ...     _ = memory.append(
        ...         [0], [1.0], [step == 2], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> memory.sample_episodes(1).reward.tolist()
        [[1.0, 1.0, 1.0]]

        An episode is whole if it has ended and all of its steps are stored. The sequences are as long as the longest
        episode of the batch; shorter ones are masked at the end. To read long episodes piece by piece, use
        ``episodes``. Raises ``NothingToSampleError`` if no episode is whole.
        """
        batch_size = check_batch_size(batch_size)
        return self.inner.sequences.sample_episodes(batch_size)

    def batches(
        self, batch_size: int, *, shuffled: bool = False, seed: int | None = None, drop_last: bool = False
    ) -> StoredBatches:
        """Iterate once over all stored transitions in batches, for offline learning.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(5):
        ...     _ = memory.append(
        ...         [0], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> [batch.index.tolist() for batch in memory.batches(2)]
        [[0, 1], [2, 3], [4]]

        Arguments:
            batch_size: Number of transitions in a batch; the last batch may have fewer.
            shuffled: Whether the order is random instead of ascending by index; takes 8 bytes per transition.
            seed: Seed of that order, for ``shuffled``; ``None`` takes fresh entropy.
            drop_last: Whether to omit a last batch that is not full.

        Transitions that are evicted meanwhile are omitted, and new ones are not included. ``len()`` of the iterator is
        the number of remaining batches.
        """
        batch_size = check_batch_size(batch_size)
        shuffled, drop_last = truth_value("shuffled", shuffled), truth_value("drop_last", drop_last)
        seed = check_seed(seed)
        return StoredBatches(self.inner.parts, self.inner.batches, batch_size, shuffled, seed, drop_last)

    def get(self, indices: npt.ArrayLike, *, shares_frames: bool = True) -> Batch:
        """Return the transitions with these ``indices``, all with weight 1.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(3):
        ...     _ = memory.append(
        ...         [step], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> memory.get([2, 0]).action.tolist()
        [2, 0]

        Arguments:
            indices: Integers with one axis, as in ``Batch.index``.
            shares_frames: Whether observations and next observations may share memory; if not, you may write to them.

        Raises:
            NothingToSampleError: one of them is pending, lost or not stored; the message says which.
        """
        return self.inner.batches.read(self.inner.batches.as_draw, check_indices(indices, most_axes=1), shares_frames)

    def steps_from(self, indices: npt.ArrayLike, length: int = 1) -> StepSequences:
        """Return the values of ``length`` consecutive steps from each of ``indices``, ``(B,)``, without frames.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(3):
        ...     _ = memory.append(
        ...         [step], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> memory.steps_from([0, 2], length=2).index.tolist()
        [[0, 1], [2, -1]]

        They are single steps for any ``n_step`` and end with their episode or with the newest step.

        Arguments:
            indices: Indices of the first steps, ``(B,)``.
            length: Number of steps from each of them.

        Raises:
            NothingToSampleError: one of ``indices`` is lost or not stored.
        """
        return step_sequences(self.inner.parts, check_indices(indices, most_axes=1), length)

    def returns_to_go(self, indices: npt.ArrayLike, discount: float = 1.0) -> npt.NDArray[np.float64]:
        """Return for each step the discounted sum of rewards from it to the end of its episode.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(3):
        ...     _ = memory.append(
        ...         [0], [1.0], [step == 2], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> (
        ...     memory.returns_to_go([0, 1, 2]).tolist(),
        ...     memory.returns_to_go([0, 1, 2], discount=0.5).tolist(),
        ... )
        ([3.0, 2.0, 1.0], [1.75, 1.5, 1.0])

        Arguments:
            indices: Integers of any shape, as in ``index`` of any batch; -1 (a masked step) gives 0.
            discount: The k-th reward from a step counts ``discount**k``; 1 adds the rewards up.

        The sum of an open or truncated episode ends with its newest step. It is NaN if a later step of the episode was
        evicted or lost, which cannot happen by eviction with the default retention. The time grows with the number of
        steps to the end of these episodes. Raises ``NothingToSampleError`` for a step that is lost or not stored.
        """
        discount = real_number("discount", discount, 0, 1, rule="it must be from 0 to 1; 1 adds the rewards up")
        asked = check_indices(indices)
        is_step = asked != -1
        steps, returns = asked[is_step], np.zeros(asked.shape)
        with self.inner.lock:
            missing = steps[self.inner.steps.places(steps)[0] < 0]
            if missing.size:
                raise unreadable(self.inner.steps, missing[0])
            returns[is_step] = self.inner.steps.returns_to_go(steps, discount)
        return returns

    def sampleable_indices(self) -> npt.NDArray[np.int64]:
        """Return the index of every transition that can be sampled, oldest first.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(2, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(5):
        ...     _ = memory.append(
        ...         [0], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> memory.sampleable_indices().tolist()
        [3, 4]
        """
        with self.inner.lock:
            return self.inner.steps.sampleable_indices()

    def episodes(self) -> Iterator[StoredEpisode]:
        """Iterate over the stored episodes, environment by environment; each reads its frames when asked for them.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(3):
        ...     _ = memory.append(
        ...         [0], [1.0], [step == 2], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> [(episode.env_id, len(episode)) for episode in memory.episodes()]
        [(0, 3)]

        Raises:
            NothingToSampleError: steps of an episode are evicted meanwhile: do not append to a full memory.
        """
        return iterate_episodes(self.inner.parts)

    # Changing stored steps

    def set_rewards(self, indices: npt.ArrayLike, rewards: npt.ArrayLike) -> None:
        """Give stored steps new rewards, such as those of a learned reward model.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(
        ...     100, FrameSpec((2, 2)), 4, stack=4, n_step=2, discount=0.5
        ... )
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(3):
        ...     _ = memory.append(
        ...         [0], [0.0], [step == 2], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> # each the reward of one step
        >>> memory.set_rewards([0, 1, 2], [1.0, 2.0, 4.0])
        >>> memory.get([0, 1, 2]).reward.tolist()
        [2.0, 4.0, 4.0]

        Arguments:
            indices: Integers of any shape, as in ``index`` of any batch, of steps that can be sampled, are pending or
                are lost. -1 (a masked step) is left out. If an index is repeated, the last one counts.
            rewards: The reward of each step itself, not its n-step return: finite numbers in the same shape.

        Everything that is read later has the new rewards: returns, sequences, ``returns_to_go``, ``episodes``, the next
        flush and the next save, which write the changed blocks of steps again. Priorities stay, and so do batches that
        were drawn before. Any thread may call it.

        Raises:
            InvalidStepError: before anything changes: for what ``append`` refuses, and for another shape.
            NothingToSampleError: before anything changes: one of the steps is not stored.
            ClosedMemoryError: the memory is closed or was opened to be read.
        """
        steps, rows = check_rows(indices, "rewards", rewards)
        self.inner.overwrite(steps, {"reward": check_rewards(rows, len(steps), "correct the reward model")})

    def set_extras(self, indices: npt.ArrayLike, extras: Mapping[str, npt.ArrayLike]) -> None:
        """Give stored steps new values of some of the memory's extra fields, such as a label that people gave later.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(
        ...     100, FrameSpec((2, 2)), 4, stack=4, extras={"is_liked": np.bool_}
        ... )
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> frames, unknown = np.ones((1, 2, 2), np.uint8), {"is_liked": [False]}
        >>> for step in range(3):
        ...     _ = memory.append([0], [0.0], [False], [False], frames, extras=unknown)
        >>> memory.set_extras([1, 2], {"is_liked": [True, True]})
        >>> memory.get([0, 1, 2]).extras["is_liked"].tolist()
        [False, True, True]

        Arguments:
            indices: As for ``set_rewards``.
            extras: Values by name, each ``(*indices.shape, *shape)``. Fields that are not named stay as they are.

        All else is as for ``set_rewards``.
        """
        self.inner.overwrite(*check_changed_extras(self.inner.settings.extras, indices, extras))

    def forget(self, indices: npt.ArrayLike) -> int:
        """Take steps out for good, such as those of an episode with a broken sensor; return how many transitions go.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, n_step=2)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> for step in range(6):
        ...     _ = memory.append(
        ...         [0], [1.0], [step == 5], [False], np.ones((1, 2, 2), np.uint8)
        ...     )
        >>> memory.forget([3])  # the two-step return of step 2 includes it
        2
        >>> memory.sampleable_indices().tolist(), len(list(memory.episodes()))
        ([0, 1, 4, 5], 2)

        Arguments:
            indices: As for ``set_rewards``.

        No transition whose n steps include a forgotten one is drawn any more. Sequences end there, and its episode is
        not whole. Saves, loads and repairs keep that. Forgotten steps count towards ``capacity`` until they are evicted
        in their turn. This erases nothing (docs/extras-and-changes.md). Batches drawn before stay. Any thread may call
        it.

        Raises:
            NothingToSampleError: before anything changes: one of the steps is not stored.
            ClosedMemoryError: the memory is closed or was opened to be read.
        """
        asked = check_indices(indices)
        return self.inner.forget(asked[asked != -1])

    def clear(self) -> None:
        """Evict all transitions and end all open episodes; ``begin`` is next, or any ``add``.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> _ = memory.append(
        ...     [0], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8)
        ... )
        >>> memory.clear()
        >>> len(memory), memory.open_episodes.tolist()
        (0, [False])
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> # no index is used twice
        >>> memory.append([0], [1.0], [False], [False], np.ones((1, 2, 2), np.uint8))
        array([1])

        Settings, sampler and generator go on. In a ``directory``, the next flush writes it. Call it where steps are
        stored: in the one thread that writes.

        Raises:
            ClosedMemoryError: the memory is closed or was opened to be read.
        """
        self.inner.clear()

    # Saving and loading

    def save(self, path: str | PathLike[str], *, keep_previous: bool = False) -> int:
        """Save the memory, with its generator and open episodes, to the folder ``path``; return the generation.

        >>> import tempfile
        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, seed=0)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        array([0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     generation = memory.save(folder)
        ...     loaded = ReplayMemory.load(folder)
        >>> loaded.sample(8).index.tolist() == memory.sample(8).index.tolist()
        True

        Arguments:
            path: Folder; anything else that was saved there is replaced.
            keep_previous: Whether earlier generations stay loadable until ``prune``. In the memory's own ``directory``
                this generation stays until then, too.

        Writes only what is new since this memory was last saved to, or loaded from, the same folder. A crash leaves
        either the previous state or the new one. Other threads may use the memory meanwhile. Takes a few MiB of RAM.

        Raises:
            OSError: the disk fails.
            IncompatibleError: another process writes to the folder.
        """
        folder, keep_previous = folder_path("path", path), truth_value("keep_previous", keep_previous)
        return self.inner.store_in(folder).save(keep_previous)

    def prune(self, path: str | PathLike[str], generation: int) -> None:
        """Remove the generations before ``generation`` from the folder ``path``.

        >>> import tempfile
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = memory.save(folder)
        ...     second = memory.save(folder, keep_previous=True)
        ...     memory.prune(folder, second)  # ``first`` cannot be loaded any more

        Arguments:
            path: Folder that ``save`` wrote to, or the memory's ``directory``.
            generation: Number that ``save`` or ``flush`` returned: the oldest generation that stays.

        Raises:
            FileNotFoundError: ``generation`` is not there; nothing is written.
        """
        folder, generation = folder_path("path", path), whole_number("generation", generation, 0, rule=GENERATION_RULE)
        self.inner.store_in(folder).prune(generation)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        sampler: Sampler | None = None,
        threads: int = 1,
        generation: int | None = None,
        max_bytes: int | str | None = None,
        seed: int | None = None,
        *,
        capacity: int | None = None,
        n_step: int | None = None,
        discount: float | None = None,
    ) -> Self:
        """Load the memory in the folder ``path`` into RAM: the same transitions, generator and open episodes.

        >>> import tempfile
        >>> from framestow import FrameSpec, ReplayMemory
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     generation = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4).save(
        ...         folder
        ...     )
        ...     ReplayMemory.load(folder, threads=4).capacity
        100

        Arguments:
            path: Folder that ``save`` wrote to, or the ``directory`` of a memory; another process may write to it.
            sampler: New sampler. It takes over the state of a saved sampler of its class and otherwise starts without
                state. ``None`` recreates the saved sampler, if it is one of framestow's.
            threads: As for a new memory.
            generation: Number of an earlier generation that was kept; the newest by default.
            max_bytes: Another budget than the saved one. Transitions are evicted while they are read, until they fit.
            seed: Replaces the saved random generator. ``None`` goes on with it, so two memories that are loaded from
                one generation draw the same.
            capacity: A larger one than the saved one. What was evicted stays evicted.
            n_step: Another one than the saved one; with ``retention="random"`` a smaller one. With a larger one, a
                transition whose return would include a lost or forgotten step is lost too.
            discount: Another one than the saved one.

        A new memory with any other settings takes the steps by ``framestow import memory`` (docs/saving.md).

        Every byte is verified. Raises ``DamagedDataError``, with the name of the file, for a byte that differs from
        what was written. Raises ``FileNotFoundError`` if nothing was saved there, ``IncompatibleError`` if the saved
        sampler is not framestow's and ``sampler`` is ``None``, if too little memory is free, or for a ``capacity`` or
        ``n_step`` that the stored steps do not allow, and ``InvalidSettingsError`` for a budget below the memory's
        minimum.
        """
        seed = check_seed(seed)
        folder, generation = _check_folder_and_generation(path, generation)
        any_memory: Callable[..., Self] = cls
        given = {"max_bytes": max_bytes, "capacity": capacity, "n_step": n_step, "discount": discount}
        changes = {name: value for name, value in given.items() if value is not None}
        with StoredMemory.open(folder, generation) as stored:
            memory = stored.build(partial(any_memory, sampler=sampler, threads=threads, seed=seed), changes)
            with memory.inner.parts.notified_sampler.release_on_error():
                check_settings(memory.inner.settings, stored.settings, folder)
                stored.fill(memory.inner.parts)
                if seed is not None:
                    memory.inner.parts.restart_draws(seed)
                memory.inner.parts.evict_to_fit()
                memory.inner.store_in(folder, stored.commit.name)
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
        seed: int | None = None,
    ) -> Self:
        """Open the memory in the folder ``path`` without loading its frames; segments are read when needed.

        >>> import tempfile
        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ReplayMemory(
        ...         100, FrameSpec((2, 2)), 4, stack=4, directory=folder
        ...     ) as memory:
        ...         memory.begin(np.zeros((1, 2, 2), np.uint8))
        ...         _ = memory.append(
        ...             [3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8)
        ...         )
        ...     float(ReplayMemory.open(folder).sample(1).reward[0])
        0.5

        Arguments:
            path: Folder that ``save`` wrote to, or the ``directory`` of a memory.
            read_only: ``True`` opens a consistent snapshot of one generation, while another process may write. Nothing
                is written, and steps raise ``ClosedMemoryError``. ``False`` resumes the memory exactly where it was,
                open episodes included; the next flush removes later generations.
            generation: Number of an earlier generation that was kept; the newest by default.
            sampler: As for ``load``.
            threads: As for a new memory.
            flush_every: As for a new memory; has no effect with ``read_only``.
            on_damage: As for a new memory.
            seed: Seed of the random generator. ``None`` takes fresh entropy with ``read_only``, so two readers draw
                differently; otherwise it goes on with the saved generator.

        Raises what ``load`` raises, and ``IncompatibleError`` if another process writes to the folder and ``read_only``
        is ``False``.
        """
        check_flush_every(flush_every)
        seed = check_seed(seed)
        folder, generation = _check_folder_and_generation(path, generation)
        folder = folder.resolve()
        any_memory: Callable[..., Self] = cls
        make = partial(any_memory, sampler=sampler, threads=threads, on_damage=on_damage, seed=seed)
        is_read_only = truth_value("read_only", read_only)
        while True:
            skips_damage = on_damage == "skip"
            with StoredMemory.open(folder, generation, skips_damage=skips_damage, falls_back=is_read_only) as stored:
                memory = stored.build(make, in_files=True)
                with memory.inner.parts.notified_sampler.release_on_error():
                    if not is_read_only:
                        directory = OpenStore.resume(memory.inner.parts, folder, generation)
                        if seed is not None:
                            memory.inner.parts.restart_draws(seed)
                        memory.inner.live_in(directory, flush_every, memory)
                        return memory
                    if stored.fill_read_only(memory.inner.parts):
                        memory.inner.parts.restart_draws(seed)
                        return memory
                memory.inner.parts.notified_sampler.release()

    def flush(self) -> int:
        """Write everything that was appended so far to the memory's ``directory``; return the generation.

        When it returns, the data survives a crash of the process, and a loss of power if the disk keeps what it
        acknowledged (fsync). Raises the error of a failed flush in the background, ``OSError`` if the disk fails,
        ``ClosedMemoryError`` if the memory is closed, and ``InvalidSettingsError`` if it has no ``directory``.
        """
        if self.inner.directory is None:
            raise InvalidSettingsError(
                "the memory has no directory: flush() has nowhere to write; call save(path), or build the memory with "
                "directory=..."
            )
        return self.inner.directory.flush()

    def close(self) -> None:
        """Flush, and release the ``directory`` and the sampler.

        A memory in a directory takes no more steps; one in RAM still does. Stored transitions can still be sampled,
        until another memory takes the sampler. Closing again does nothing. A ``with`` block closes its memory.
        """
        self.inner.parts.notified_sampler.release()
        if self.inner.directory is not None:
            self.inner.directory.close()

    def __getstate__(self) -> dict[str, Any]:
        """Raise ``InvalidSettingsError``: a memory is saved and loaded, neither pickled nor copied."""
        raise InvalidSettingsError(
            f"a {type(self).__name__} was pickled or copied: its frames, generator and files belong to one object; "
            "call save(path), then ReplayMemory.load(path) here or in another process"
        )

    # Size

    def __repr__(self) -> str:
        return one_line(self, lambda: describe_memory(self))

    def __len__(self) -> int:
        """Return the number of transitions that can be sampled."""
        return len(self.inner.steps)

    @property
    def nbytes(self) -> int:
        """Number of bytes that the memory takes in RAM: the sum of ``report().parts``."""
        return sum(self.inner.bytes_by_part.values())

    def report(self) -> MemoryReport:
        """Return the number of transitions, the bytes of each part of the memory, and the compression ratio.

        >>> from framestow import FrameSpec, ReplayMemory
        >>> report = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4).report()
        >>> report.transitions, report.capacity, sorted(report.parts)[:2]
        (0, 100, ['frames', 'index'])

        ``print(memory.report())`` prints it as a table.
        """
        return report_of(self.inner)

    # For loaders and recorders

    def draw_ahead(self, batch_size: int) -> PendingBatch:
        """Draw now as ``sample`` does, and leave the unpacking to another thread.

        >>> import numpy as np
        >>> from framestow import FrameSpec, ReplayMemory
        >>> memory = ReplayMemory(100, FrameSpec((2, 2)), 4, stack=4, seed=0)
        >>> memory.begin(np.zeros((1, 2, 2), np.uint8))
        >>> memory.append([3], [0.5], [False], [False], np.ones((1, 2, 2), np.uint8))
        array([0])
        >>> pending = memory.draw_ahead(32)
        >>> len(pending.unpack())  # in any thread
        32

        The same draws give the same batches, in any thread and at any time. Each draw is unpacked, or stopped by its
        ``stop()``: until then the memory keeps its frames.
        """
        batch_size = check_batch_size(batch_size)
        return drawn(PendingBatch(self.inner.parts, self.inner.batches, batch_size))

    def draw_sequences_ahead(
        self,
        batch_size: int,
        length: int,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        borders: Borders = "mask",
    ) -> PendingSequences:
        """Draw now as ``sample_sequences`` does, and leave the unpacking to another thread (``draw_ahead``)."""
        batch_size = check_batch_size(batch_size)
        shape = SequenceShape(length, overlap, burn_in, borders)
        return self.inner.sequences.draw_ahead(batch_size, shape)

    def check_extras(
        self, extras: Mapping[str, npt.ArrayLike] | None, num_steps: int
    ) -> dict[str, npt.NDArray[Any]] | None:
        """Return ``extras`` as ``append`` stores them; ``None`` if the memory has no extra fields.

        A ``Recorder`` calls it before it steps an environment.

        Raises:
            InvalidStepError: what ``append`` would refuse.
        """
        return check_extras(self.inner.settings.extras, extras, num_steps)


def describe_memory(memory: ReplayMemory, stored: int | None = None, capacity: int | None = None) -> Iterator[str]:
    """Yield what a person wants to know of a memory, or of a buffer that has one and counts other transitions."""
    inner, settings = memory.inner, memory.inner.settings
    yield f"{len(memory) if stored is None else stored:,} of {capacity or memory.capacity:,} transitions"
    if inner.lock.acquire(timeout=REPR_WAIT_S):
        try:
            report = memory.report()
        finally:
            inner.lock.release()
        yield report.describe_bytes("files" if inner.directory is None else f"files of {inner.directory.path}")
    yield f"stack {settings.stack}"
    if settings.n_step > 1:
        yield f"n_step {settings.n_step}"
    yield plural(settings.num_envs, "environment")
    if inner.parts.is_read_only:
        yield "read-only"


def check_batch_size(batch_size: int) -> int:
    """Return ``batch_size`` as an ``int``; raise ``InvalidSettingsError`` unless it is a whole number of at least 1."""
    return whole_number("batch_size", batch_size, 1, rule="a batch has at least 1 transition")


def _check_folder_and_generation(path: str | PathLike[str], generation: int | None) -> tuple[Path, int | None]:
    """Return both checked; raise ``InvalidSettingsError`` for anything but a path and a generation's number."""
    if generation is not None:
        generation = whole_number("generation", generation, 0, rule=GENERATION_RULE)
    return folder_path("path", path), generation

"""nnabla-rl's ``MemoryEfficientAtariBuffer``: takes and returns experiences with stacked float observations.

The parts of an experience after ``s_next`` are usually an ``info`` dict. Atari's has the same few numbers at each step:
as extras of the memory they take 8 bytes each, much less than a pickle or a dict. Others are pickled.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from framestow.checks import as_array, check_indices, check_seed, whole_number
from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.integrations.classic.one_step import check_flag, check_reward
from framestow.integrations.drop_in.memory_options import PackingOptions, take_options
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.interface import one_line
from framestow.replay.forked_draws import ForkedGenerator
from framestow.replay.memory import ReplayMemory, describe_memory
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import MAX_STACK
from framestow.replay.step_checks import check_frames

Extras: TypeAlias = "tuple[Any, ...]"
Form: TypeAlias = "tuple[tuple[tuple[str, type], ...], ...]"
"""Keys and types of each info dict, if they have only numbers."""

DTYPES = {bool: np.bool_, int: np.int64, float: np.float64}  # of an extra, by the type of its first value
INT64 = np.iinfo(np.int64)


def _form_of(extras: Extras) -> Form | None:
    """Return the keys and types of dicts of plain numbers; ``None`` for other extras.

    >>> _form_of(({"lives": 3},)), _form_of(()), _form_of(({"states": [1.0]},))
    (((('lives', <class 'int'>),),), (), None)
    """
    if not all(type(info) is dict for info in extras):
        return None
    for key, value in (item for info in extras for item in info.items()):
        is_plain = type(key) is str and type(value) in DTYPES
        if not is_plain or (type(value) is int and not INT64.min <= value <= INT64.max):
            return None
    return tuple(tuple((key, type(value)) for key, value in info.items()) for info in extras)


Experience: TypeAlias = "tuple[Any, ...]"
"""``(s, a, r, non_terminal, s_next, *extras)``, as appended and as returned."""

WHITE = np.float32(255)  # the brightest uint8 pixel


class MemoryEfficientAtariBuffer:
    """Store the last ``capacity`` experiences, with each frame of their observations packed once.

    Drop-in for nnabla-rl's class of this name::

        from framestow.integrations.classic import MemoryEfficientAtariBuffer

    ``append`` and ``append_all`` take ``(s, a, r, non_terminal, s_next, info)``. ``buffer[0]`` is the oldest
    experience. ``sample`` and ``sample_indices`` return experiences and ``{"weights": ones}``.

    >>> import numpy as np
    >>> from framestow.integrations.classic import MemoryEfficientAtariBuffer
    >>> buffer = MemoryEfficientAtariBuffer(capacity=100, stacked_frames=2, seed=0)
    >>> black, grey = (
    ...     np.zeros((2, 84, 84), np.float32),
    ...     np.full((2, 84, 84), 51 / 255, np.float32),
    ... )
    >>> black_then_grey = np.stack([black[0], grey[0]])
    >>> buffer.append((black, 3, 1.0, 1.0, black_then_grey, {"lives": 5}))
    >>> buffer.append((black_then_grey, 0, 0.0, 0.0, grey, {"lives": 4}))
    >>> s, a, r, non_terminal, s_next, info = buffer[1]
    >>> s.dtype, s[:, 0, 0].tolist(), a, r, non_terminal, info
    (dtype('float32'), [0.0, 0.20000000298023224], 0, 0.0, 0.0, {'lives': 4})

    Arguments:
        capacity: maximum number of experiences.
        stacked_frames: frames per observation.
        seed: seed of the buffer's random generator. ``None`` uses nnabla-rl's generator (``nnabla_rl.random.drng``) if
            that is imported, so the draws equal the original's; otherwise an unseeded one.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``
            (``PackingOptions``).

    **Observations** are stacks ``(stacked_frames, *frame)`` or single frames, which are returned as stacks. They are
    returned as ``float32``, read-only, and share frames. ``float32`` is returned bit for bit, ``uint8`` divided by 255,
    as by the original. Values that are not k / 255 are stored exactly, in more bytes (docs/observations.md); the
    original truncates them. In ``float16`` and ``float64`` such values are refused.

    **Episodes.** A new episode starts where ``s`` is not the previous ``s_next``. The original only uses
    ``non_terminal == 0``, so after a time limit it stacks frames of two episodes. It also returns another stack where
    an episode starts with one that is not padded by its first frame.

    **Other fields.** ``a`` is a number or an array, always of the same shape and dtype. ``r`` and ``non_terminal`` are
    returned as Python floats. The fields after ``s_next`` are returned equal. An ``info`` with the same numeric keys at
    every step takes 8 bytes per number; others are pickled.

    The buffer can be pickled; its frames stay packed. Not supported: ``isinstance`` of nnabla-rl's ``ReplayBuffer``.
    """

    def __init__(
        self,
        capacity: int,
        stacked_frames: int = 4,
        *,
        seed: int | None = None,
        **memory: Unpack[PackingOptions],
    ) -> None:
        self._capacity = whole_number("capacity", capacity, 1, rule="a buffer stores at least 1 experience")
        rule = f"an observation has 1 to {MAX_STACK} frames"
        self._stacked_frames = whole_number("stacked_frames", stacked_frames, 1, MAX_STACK, rule=rule)
        seed = check_seed(seed)
        self._options = take_options(type(self), PackingOptions, memory)
        # Draws the batches; None draws from nnabla-rl's generator.
        self._generator = None if seed is None and "nnabla_rl" in sys.modules else ForkedGenerator(seed)
        self._steps: PairedSteps | None = None  # created with the first experience
        self._action = ActionSpec((), "int64")
        self._has_plain_actions = True  # the first experience's action is a Python number
        self._form: Form | None = ()  # of the first experience's extras; None if they are pickled
        self._kinds: list[type] = []  # of the numbers in them
        self._pickled: dict[int, bytes] = {}  # by row: extras of another form

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the observations; raises ``NothingToSampleError`` before the first experience."""
        return self._paired_steps.memory

    @property
    def capacity(self) -> int:
        """Maximum number of experiences."""
        return self._capacity

    def __repr__(self) -> str:
        steps, capacity = self._steps, self._capacity
        empty = (f"0 of {capacity:,} experiences", f"stacked_frames {self._stacked_frames}")
        return one_line(self, lambda: empty if steps is None else describe_memory(steps.memory, len(self), capacity))

    def __len__(self) -> int:
        return 0 if self._steps is None else self._steps.num_rows - self._steps.oldest_row

    def append(self, experience: Experience) -> None:
        """Store ``(s, a, r, non_terminal, s_next, *extras)``; a full buffer evicts the oldest experience.

        Arrays are copied. Raises ``InvalidStepError`` before anything is stored.
        """
        num_parts = len(experience) if isinstance(experience, (tuple, list)) else 0
        if num_parts < 5:
            raise InvalidStepError(
                f"experience is of type {type(experience).__name__} with {num_parts} parts: it must have at least 5; "
                "give (s, a, r, non_terminal, s_next)"
            )
        s, a, r, non_terminal, s_next, *extras = experience
        observation, following = _as_float32("s", s), _as_float32("s_next", s_next)
        reward, has_ended = check_reward("r", r), not check_flag("non_terminal", non_terminal)
        if len(self) == 0:
            self._prepare(observation.shape, a, tuple(extras))
        action, row = self._check_action(a), self._paired_steps.num_rows
        columns = self._put_extras(row, tuple(extras))
        exact = np.array([reward])
        if self._paired_steps.takes_frames:
            for frame in (observation, following):
                check_frames(frame[None], 1, self.memory.inner.settings.frame)
        self._paired_steps.add(
            observation[None],
            action[None],
            exact.astype(np.float32),
            following[None],
            np.array([has_ended]),
            np.array([False]),
            extras={"exact": exact, **columns},
        )
        self._pickled.pop(row - self._capacity, None)

    def _put_extras(self, row: int, extras: Extras) -> dict[str, npt.NDArray[Any]]:
        """Return the extras of a row as extras of the memory; pickle those of another form than the first ones."""
        self._pickled.pop(row, None)  # of a step that Ctrl-C stopped
        form = _form_of(extras)
        if form is not None and form == self._form:
            values = [value for info in extras for value in info.values()]
        else:
            values = [0] * len(self._kinds)
            try:
                pickled = pickle.dumps(extras)
            except Exception as error:  # an object's __reduce__ may raise anything
                raise InvalidStepError(
                    f"the fields after s_next cannot be pickled ({error}): they are stored as bytes; remove such "
                    "objects"
                ) from error
            before = self._pickled.get(row - 1)
            self._pickled[row] = before if before == pickled else pickled  # equal neighbours share one object
        columns = zip(self._kinds, values, strict=True)
        return {f"number_{at}": np.array([value], DTYPES[kind]) for at, (kind, value) in enumerate(columns)}

    def _extras_of(self, row: int, numbers: tuple[Any, ...]) -> Extras:
        """Return the extras of a row whose extras in the memory are ``numbers``."""
        if row in self._pickled:
            return tuple(pickle.loads(self._pickled[row]))
        following = iter(numbers)
        return tuple({key: next(following) for key, _ in info} for info in self._form or ())

    def append_all(self, experiences: Sequence[Experience]) -> None:
        """Store several experiences, oldest first."""
        if not isinstance(experiences, Iterable):
            raise InvalidStepError(f"experiences is {experiences!r}: it must be a list of them; give [experience]")
        for experience in experiences:
            self.append(experience)

    def __getitem__(self, index: int) -> Experience:
        """Return experience ``index``; 0 is the oldest. Raises ``NothingToSampleError`` if it does not exist."""
        return self._experiences(check_indices(index, most_axes=0).reshape(1))[0]

    def __iter__(self) -> Iterator[Experience]:
        return (self[index] for index in range(len(self)))

    def sample(
        self, num_samples: int = 1, num_steps: int = 1
    ) -> tuple[Sequence[Experience] | tuple[Sequence[Experience], ...], dict[str, Any]]:
        """Sample ``num_samples`` different experiences, each with the next ``num_steps - 1`` ones.

        Returns the same as ``sample_indices``. Raises ``InvalidSettingsError``, a ``ValueError``, if there are fewer.
        """
        num_samples = whole_number("num_samples", num_samples, 1, rule="at least 1 experience is sampled")
        num_steps = whole_number("num_steps", num_steps, 1, rule="at least 1 step is sampled")
        num_starts = len(self) - num_steps + 1
        if num_samples > num_starts:
            raise InvalidSettingsError(
                f"num_samples is {num_samples}: the buffer has {max(num_starts, 0)} experiences with "
                f"{num_steps - 1} following ones; append more first"
            )
        generator = self._generator or sys.modules["nnabla_rl"].random.drng
        return self.sample_indices(generator.choice(num_starts, size=num_samples, replace=False), num_steps)

    def sample_indices(
        self, indices: Sequence[int] | npt.NDArray[Any], num_steps: int = 1
    ) -> tuple[Sequence[Experience] | tuple[Sequence[Experience], ...], dict[str, Any]]:
        """Return the experiences with these indices, and ``{"weights": ones}`` of shape ``(len(indices), 1)``.

        With ``num_steps`` > 1, return a tuple of ``num_steps`` sequences: the experiences, the next ones, and so on,
        also across ends of episodes. Raises ``InvalidSettingsError``, a ``ValueError``, for no index or no step.
        """
        starts = check_indices(indices, most_axes=1)
        num_steps = whole_number("num_steps", num_steps, 1, rule="at least 1 step is returned")
        if starts.size == 0:
            raise InvalidSettingsError(f"indices is {indices!r}: at least 1 experience is returned; give its number")
        weights = {"weights": np.ones([len(starts), 1])}
        if num_steps == 1:
            return self._experiences(starts), weights
        flat = self._experiences((np.arange(num_steps)[:, None] + starts).ravel())
        return tuple(flat[step * len(starts) : (step + 1) * len(starts)] for step in range(num_steps)), weights

    def update_priorities(self, errors: npt.ArrayLike) -> None:
        """Do nothing: all experiences are equally likely."""

    @property
    def _paired_steps(self) -> PairedSteps:
        if self._steps is None:
            raise NothingToSampleError("the buffer is empty: the first experience creates its memory; append one first")
        return self._steps

    def _experiences(self, indices: npt.NDArray[np.int64]) -> list[Experience]:
        steps, count = self._paired_steps, len(self)
        wrong = indices[(indices < 0) | (indices >= count)]
        if wrong.size:
            raise NothingToSampleError(f"index is {wrong[0]}: it must be from 0 to {count - 1}; check len(buffer)")
        rows = steps.oldest_row + indices
        batch = steps.memory.get(steps.indices(rows, 0))
        for observations in (batch.observation, batch.next_observation):
            observations.flags.writeable = False
        actions = batch.action.tolist() if self._has_plain_actions else batch.action
        columns = [batch.extras[f"number_{at}"].tolist() for at in range(len(self._kinds))]
        numbers = zip(*columns, strict=True) if columns else [()] * len(rows)
        return [
            (s, a, r, 0.0 if terminated else 1.0, s_next, *self._extras_of(row, several))
            for s, a, r, terminated, s_next, row, several in zip(
                batch.observation,
                actions,
                batch.extras["exact"].tolist(),
                batch.terminated.tolist(),
                batch.next_observation,
                rows.tolist(),
                numbers,
                strict=True,
            )
        ]

    def _prepare(self, shape: tuple[int, ...], action: Any, extras: tuple[Any, ...]) -> None:
        """Create the memory for observations and actions like those of the first experience."""
        self._form = _form_of(extras)
        self._kinds = [kind for info in self._form or () for _, kind in info]
        first = as_array("a", action, InvalidStepError)
        self._has_plain_actions = isinstance(action, (int, float))
        self._action = ActionSpec(first.shape, first.dtype.name)
        self._check_action(action)
        frame = FrameSpec(shape, np.float32, is_scaled=len(shape) > 1)
        is_stacked = len(shape) > 2 and shape[0] == self._stacked_frames
        depth = self._stacked_frames
        self._steps = PairedSteps(
            frame,
            stack_argument="stacked_frames",
            stack=None if is_stacked else depth,
            stack_axis=(0, depth) if is_stacked else None,
            capacity=self._capacity,
            action_space=self._action,
            **self._options,
            extras={  # the reward, which the memory stores in float32, and the info
                "exact": np.float64,
                **{f"number_{at}": DTYPES[kind] for at, kind in enumerate(self._kinds)},
            },
        )

    def _check_action(self, action: Any) -> npt.NDArray[Any]:
        given = as_array("a", action, InvalidStepError)
        if (
            given.dtype.kind not in "fiu"
            or given.shape != self._action.shape
            or not np.can_cast(given.dtype, self._action.dtype)
        ):
            raise InvalidStepError(
                f"a has shape {given.shape} and dtype {given.dtype}: it must have shape {self._action.shape} and dtype "
                f"{self._action.dtype}, as the first action; convert it"
            )
        return given.astype(self._action.dtype)


def _as_float32(name: str, observation: Any) -> npt.NDArray[np.float32]:
    """Return an observation as ``float32``; ``uint8`` pixels are divided by 255."""
    given = as_array(name, observation, InvalidStepError)
    if given.dtype == np.float32:
        return given
    if given.dtype == np.uint8:
        return np.asarray(given.astype(np.float32) / WHITE)
    if given.dtype in (np.float16, np.float64) and bool(((given >= 0) & (given <= 1)).all()):
        pixels = np.rint(given * 255).astype(np.uint8)
        if np.array_equal(pixels.astype(given.dtype) / given.dtype.type(255), given):
            return np.asarray(pixels.astype(np.float32) / WHITE)
    raise InvalidStepError(
        f"{name} has dtype {given.dtype}: it must be uint8, float32, or floats of the form k / 255, because float32 is "
        "returned; convert it"
    )

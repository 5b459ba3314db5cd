"""nnabla-rl's ``MemoryEfficientAtariBuffer``: experiences with stacked float observations, in and out."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import index as as_integer
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import ObservationLayout, Stacks
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.replay.action_spec import ActionSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.step_checks import LARGEST_REWARD

Extras: TypeAlias = "tuple[Any, ...]"
EncodedExtras: TypeAlias = "tuple[Any, ...] | bytes"
Form: TypeAlias = "tuple[tuple[str, type], ...] | None"
"""Keys and types of an info that is made of numbers alone; ``None`` where there is no info."""

DTYPES = {bool: np.bool_, int: np.int64, float: np.float64}
INT64 = np.iinfo(np.int64)


class ExtraFields:
    """Keeps what follows ``s_next`` in a ring of ``capacity`` places.

    An info of Atari has the same few numbers at each step, 8 bytes each, where pickled bytes take 100 and a dict 300.
    So the ``first`` one settles which keys and types lie in columns. What is of another form, at the end of an episode
    for instance, is pickled. Either comes back equal, and is a copy.
    """

    def __init__(self, capacity: int, first: Extras) -> None:
        self._has_form, self._form = _form_of(first)
        fields = [(f"number_{place}", DTYPES[kind]) for place, (_, kind) in enumerate(self._form or ())]
        self._numbers = np.zeros(capacity if fields else 0, fields or np.bool_)
        self._pickled: dict[int, bytes] = {}
        self._last_pickled = b""

    def encode(self, others: Extras) -> EncodedExtras:
        """Give what ``put`` takes; ``InvalidStepError`` for what cannot be pickled."""
        has_form, form = _form_of(others)
        if has_form and self._has_form and form == self._form:
            return tuple(others[0].values()) if others else ()
        try:
            return pickle.dumps(others)
        except Exception as error:  # whatever an object's own pickling raises
            raise InvalidStepError(
                f"what follows s_next cannot be pickled, {error}: it is kept as bytes; leave out what cannot"
            ) from error

    def put(self, place: int, encode: EncodedExtras) -> None:
        """Let ``place`` have it, instead of what it had."""
        if isinstance(encode, bytes):
            if encode != self._last_pickled:
                self._last_pickled = encode  # where many are alike, one is kept
            self._pickled[place] = self._last_pickled
            return
        self._pickled.pop(place, None)
        if encode:
            self._numbers[place] = encode

    def at(self, place: int) -> Extras:
        """Give what ``put`` was told for this place."""
        if place in self._pickled:
            return tuple(pickle.loads(self._pickled[place]))
        if self._form is None:
            return ()
        values = self._numbers[place].item() if self._form else ()
        return ({key: value for (key, _), value in zip(self._form, values, strict=True)},)


def _form_of(others: Extras) -> tuple[bool, Form]:
    """Whether this is nothing at all or one info of plain numbers, and its keys and types.

    >>> _form_of(({"lives": 3},)), _form_of(()), _form_of(({"states": [1.0]},))
    ((True, (('lives', <class 'int'>),)), (True, None), (False, None))
    """
    if not others:
        return True, None
    if len(others) > 1 or type(others[0]) is not dict:
        return False, None
    for key, value in others[0].items():
        is_plain = type(key) is str and type(value) in DTYPES
        if not is_plain or (type(value) is int and not INT64.min <= value <= INT64.max):
            return False, None
    return True, tuple((key, type(value)) for key, value in others[0].items())


Experience: TypeAlias = "tuple[Any, ...]"
"""``(s, a, r, non_terminal, s_next, *others)``: what was appended, and what is given back."""

WHITE = np.float32(255)


class MemoryEfficientAtariBuffer:
    """Keeps the last ``capacity`` experiences, each frame of their observations once and packed.

    The calls are those of nnabla-rl's class of this name: ``append`` and ``append_all`` take ``(s, a, r, non_terminal,
    s_next, info)``, ``buffer[0]`` is the oldest experience, ``sample`` and ``sample_indices`` give experiences and
    ``{"weights": ones}``.

    >>> buffer = MemoryEfficientAtariBuffer(capacity=100, stacked_frames=2, seed=0)
    >>> black, grey = np.zeros((2, 84, 84), np.float32), np.full((2, 84, 84), 51 / 255, np.float32)
    >>> black_then_grey = np.stack([black[0], grey[0]])
    >>> buffer.append((black, 3, 1.0, 1.0, black_then_grey, {"lives": 5}))
    >>> buffer.append((black_then_grey, 0, 0.0, 0.0, grey, {"lives": 4}))
    >>> s, a, r, non_terminal, s_next, info = buffer[1]
    >>> s.dtype, s[:, 0, 0].tolist(), a, r, non_terminal, info
    (dtype('float32'), [0.0, 0.20000000298023224], 0, 0.0, 0.0, {'lives': 4})

    Arguments:
        capacity: experiences to keep at most.
        stacked_frames: frames of an observation.
        storage: ``"packed"`` or ``"raw"``, as `ReplayMemory` has it.
        threads: how many threads unpack what is asked for.
        seed: of a generator of its own. ``None`` draws from nnabla-rl's (``nnabla_rl.random.drng``) where that is
            imported, which gives the draws that its own buffer would make, and from fresh entropy elsewhere.

    Observations are given as ``float32``, as the original does, and as they came, bit for bit: of any shape, as stacks
    ``(stacked_frames, *frame)`` or as single frames, which are given back as stacks. ``uint8`` comes back divided by
    255, as from the original. Values that are not k / 255, which the original truncates to pixels, are kept exactly, at
    more bytes (docs/observations.md); of other floats than ``float32`` they are refused, since ``float32`` cannot hold
    them. The observations that are given share their frames, and are read-only.

    Where ``s`` is not the ``s_next`` before, an episode begins, told or not: the original knows ends by
    ``non_terminal == 0`` alone, and puts frames of two episodes into one stack behind a time limit that is no terminal.
    An episode that begins with a stack which neither its first frame nor zeros pad, where the original gives another,
    makes it keep whole observations from then on.

    ``a`` is one number or an array, always of one shape and dtype. ``r`` and ``non_terminal`` are given as Python
    floats of the same value. What follows ``s_next`` is given back equal: an ``info`` of the same numbers at every step
    takes 8 bytes each, any other is pickled. The buffer can be pickled, in what it takes packed. It is no subclass of
    nnabla-rl's ``ReplayBuffer``.
    """

    def __init__(
        self,
        capacity: int,
        stacked_frames: int = 4,
        *,
        storage: str = "packed",
        threads: int = 1,
        seed: int | None = None,
    ) -> None:
        if capacity < 1 or stacked_frames < 1:
            raise InvalidSettingsError(
                f"capacity is {capacity} and stacked_frames {stacked_frames}: both must be at least 1"
            )
        self._capacity, self._stacked_frames = capacity, stacked_frames
        self._storage, self._threads = storage, threads
        self._generator = None if seed is None and "nnabla_rl" in sys.modules else np.random.default_rng(seed)
        self._steps: PairedSteps | None = None
        self._action = ActionSpec((), "int64")
        self._is_stacked = self._has_plain_actions = True
        self._extras = ExtraFields(capacity, ())
        """What followed ``s_next``, of row R at ``R % capacity``."""
        self._pending_extras: EncodedExtras = ()
        self._num_stored_extras = 0

    @property
    def memory(self) -> ReplayMemory:
        """The memory behind it; ``NothingToSampleError`` before the first experience, which says what frames are."""
        return self._fed.memory

    @property
    def capacity(self) -> int:
        """Experiences to keep at most."""
        return self._capacity

    def __len__(self) -> int:
        return 0 if self._steps is None else self._steps.num_rows - self._steps.oldest_row

    def append(self, experience: Experience) -> None:
        """Store ``(s, a, r, non_terminal, s_next, *others)``; the oldest one leaves where there is no room.

        Arrays are copied. Raises ``InvalidStepError`` before anything is stored.
        """
        if len(experience) < 5:
            raise InvalidStepError(
                f"experience has {len(experience)} parts: give (s, a, r, non_terminal, s_next), and info behind them"
            )
        s, a, r, non_terminal, s_next, *others = experience
        observation, following = _as_float32("s", s), _as_float32("s_next", s_next)
        reward, going_on = _checked_number("r", r), _checked_number("non_terminal", non_terminal)
        if going_on not in (0, 1):
            raise InvalidStepError(f"non_terminal is {going_on}: it must be 0, where the episode ended, or 1")
        if len(self) == 0:
            self._prepare(observation.shape, a, tuple(others))
        action, encode = self._checked_action(a), self._extras.encode(tuple(others))
        self._store_pending_extras()
        self._pending_extras = encode
        exact = np.array([reward])
        self._fed.add(
            observation[None],
            action[None],
            exact.astype(np.float32) if abs(reward) <= LARGEST_REWARD else exact,  # which the memory refuses
            np.array([going_on == 0]),
            np.array([False]),
            following[None],
            {"exact": exact},
        )
        self._store_pending_extras()

    def _store_pending_extras(self) -> None:
        """Keep what followed ``s_next`` of the newest row, unless it is: Ctrl-C may have come before it was."""
        number = self._num_stored_extras
        if self._fed.num_rows == number:
            return
        self._extras.put(number % self._capacity, self._pending_extras)
        self._num_stored_extras = number + 1

    def append_all(self, experiences: Sequence[Experience]) -> None:
        """Store several, oldest first."""
        for experience in experiences:
            self.append(experience)

    def __getitem__(self, index: int) -> Experience:
        """Give experience ``index``, 0 being the oldest; ``NothingToSampleError`` for one that there is not."""
        return self._experiences(np.array([as_integer(index)], np.int64))[0]

    def __iter__(self) -> Iterator[Experience]:
        return (self[index] for index in range(len(self)))

    def sample(
        self, num_samples: int = 1, num_steps: int = 1
    ) -> tuple[Sequence[Experience] | tuple[Sequence[Experience], ...], dict[str, Any]]:
        """Draw ``num_samples`` different experiences, each with the ``num_steps`` - 1 behind it.

        Given as by ``sample_indices``. Raises ``InvalidSettingsError``, a ``ValueError``, where there are not as many.
        """
        num_starts = len(self) - num_steps + 1
        if num_samples > num_starts:
            raise InvalidSettingsError(
                f"num_samples is {num_samples}: the buffer has {max(num_starts, 0)} experiences that {num_steps - 1} "
                "others follow; append more first"
            )
        generator = self._generator or sys.modules["nnabla_rl"].random.drng
        return self.sample_indices(generator.choice(num_starts, size=num_samples, replace=False), num_steps)

    def sample_indices(
        self, indices: Sequence[int] | npt.NDArray[Any], num_steps: int = 1
    ) -> tuple[Sequence[Experience] | tuple[Sequence[Experience], ...], dict[str, Any]]:
        """Give the experiences with these indices, and ``{"weights": ones}`` of shape ``(len(indices), 1)``.

        With ``num_steps`` > 1 a tuple: the experiences, those that follow on each, and so on, whether or not an episode
        ended between them. Raises ``InvalidSettingsError``, a ``ValueError``, for no index or no step.
        """
        if len(indices) == 0 or num_steps < 1:
            raise InvalidSettingsError(
                f"{len(indices)} indices and num_steps {num_steps} were given: both must be at least 1"
            )
        starts = np.asarray(indices, np.int64)
        weights = {"weights": np.ones([len(starts), 1])}
        if num_steps == 1:
            return self._experiences(starts), weights
        flat = self._experiences((np.arange(num_steps)[:, None] + starts).ravel())
        return tuple(flat[step * len(starts) : (step + 1) * len(starts)] for step in range(num_steps)), weights

    def update_priorities(self, errors: npt.ArrayLike) -> None:
        """Do nothing: all experiences are equally likely."""

    @property
    def _fed(self) -> PairedSteps:
        if self._steps is None:
            raise NothingToSampleError("the buffer holds no experience: its memory is made for the first; append one")
        return self._steps

    def _experiences(self, indices: npt.NDArray[np.int64]) -> list[Experience]:
        self._store_pending_extras()
        steps, held = self._fed, len(self)
        wrong = indices[(indices < 0) | (indices >= held)]
        if wrong.size:
            raise NothingToSampleError(f"index is {wrong[0]}: the buffer holds experiences 0 to {held - 1}; ask len")
        rows = steps.oldest_row + indices
        batch = steps.memory.get(steps.indices(rows, 0))
        if self._is_stacked:
            batch = steps.to_library(batch)
        for observations in (batch.observation, batch.next_observation):
            observations.flags.writeable = False
        actions = batch.action.tolist() if self._has_plain_actions else batch.action
        return [
            (s, a, r, 0.0 if terminated else 1.0, s_next, *self._extras.at(row % self._capacity))
            for s, a, r, terminated, s_next, row in zip(
                batch.observation,
                actions,
                batch.extras["exact"].tolist(),
                batch.terminated.tolist(),
                batch.next_observation,
                rows.tolist(),
                strict=True,
            )
        ]

    def _prepare(self, shape: tuple[int, ...], action: Any, others: tuple[Any, ...]) -> None:
        """Take the first experience's observation and action as what all others look like."""
        self._extras = ExtraFields(self._capacity, others)
        first = np.asarray(action)
        self._has_plain_actions = isinstance(action, (int, float))
        self._action = ActionSpec(first.shape, first.dtype.name)
        self._checked_action(action)
        frame = FrameSpec(shape, np.float32, is_scaled=len(shape) > 1)
        self._is_stacked = len(shape) > 2 and shape[0] == self._stacked_frames
        layouts = [ObservationLayout.of_depth(frame, 1)]
        if self._is_stacked:
            stacks = (Stacks(0, self._stacked_frames),)
            layouts = [
                *(ObservationLayout(frame, stacks[0].depth, padding, stacks) for padding in ("first_frame", "zeros")),
                *layouts,
            ]
        stack = None if self._is_stacked else self._stacked_frames
        make_memory = _MemoryOfExperiences(self._capacity, self._action, stack, self._storage, self._threads)
        self._steps = PairedSteps(make_memory, frame, layouts=layouts)

    def _checked_action(self, action: Any) -> npt.NDArray[Any]:
        given = np.asarray(action)
        if (
            given.dtype.kind not in "fiu"
            or given.shape != self._action.shape
            or not np.can_cast(given.dtype, self._action.dtype)
        ):
            raise InvalidStepError(
                f"a has shape {given.shape} and dtype {given.dtype}: actions are numbers, of shape "
                f"{self._action.shape} and dtype {self._action.dtype} as the first; give all in the same form"
            )
        return given.astype(self._action.dtype)


@dataclass(frozen=True)
class _MemoryOfExperiences:
    """Makes the memory, as ``PairedSteps`` asks for it; ``stack`` where observations come as single frames."""

    capacity: int
    action: ActionSpec
    stack: int | None
    storage: str
    threads: int

    def __call__(self, frame_space: Any, stack: int, padding: StackPadding) -> ReplayMemory:
        return ReplayMemory(
            self.capacity,
            frame_space,
            self.action,
            stack=self.stack or stack,
            stack_padding=padding,
            storage=self.storage,
            threads=self.threads,
            seed=0,  # of a generator that nothing here draws from
            extras={"exact": np.float64},  # the reward, of which a memory keeps float32
        )


def _as_float32(name: str, observation: Any) -> npt.NDArray[np.float32]:
    """Give an observation as what the buffer gives back: pixels divided by 255, ``float32`` as it is."""
    given: npt.NDArray[Any] = np.asarray(observation)
    if given.dtype == np.float32:
        return given
    if given.dtype == np.uint8:
        return np.asarray(given.astype(np.float32) / WHITE)
    if given.dtype in (np.float16, np.float64) and bool(((given >= 0) & (given <= 1)).all()):
        pixels = np.rint(given * 255).astype(np.uint8)
        if np.array_equal(pixels.astype(given.dtype) / given.dtype.type(255), given):
            return np.asarray(pixels.astype(np.float32) / WHITE)
    raise InvalidStepError(
        f"{name} has dtype {given.dtype}: they are uint8, float32, or other floats that are k / 255, since "
        "float32 is what is given back; convert them"
    )


def _checked_number(name: str, value: Any) -> float:
    if type(value) is float:
        return value
    given = np.asarray(value)
    if given.size != 1 or given.dtype.kind not in "fiub":
        raise InvalidStepError(f"{name} is {value!r}: it must be one number")
    return float(given.item())

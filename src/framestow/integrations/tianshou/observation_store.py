"""``ObservationStore``: the observations of several environments, by environment and step number.

While all environments step together, one ``EnvGroup`` stores them in one memory. Once an environment steps without the
others, each environment gets its own group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import SCALED_DTYPES, FrameSpec
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.paired_steps import BatchCopies, PairedSteps
from framestow.replay.memory import ReplayMemory
from framestow.storage.frame_storage import Storage

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Pair = tuple[Any, Any]
"""Observations and next observations: an array ``(n, ...)`` or dict of arrays each."""


class ObservationStep(NamedTuple):
    """One step of some environments: observations ``(num_envs, *shape)``; the next ones may be unknown (``None``)."""

    observation: Any
    next_observation: Any | None
    terminated: Flags
    truncated: Flags

    def of(self, env_ids: Any) -> ObservationStep:
        """Return a copy of the step for some of its environments."""

        def take_rows(part: Any) -> Any:
            return None if part is None else map_arrays(lambda array: array[env_ids].copy(), part)

        return ObservationStep(take_rows(self[0]), take_rows(self[1]), take_rows(self[2]), take_rows(self[3]))


@dataclass(frozen=True)
class EnvGroupSettings:
    """Settings of a ``EnvGroup``, named as in ``ObservationStore``."""

    space: Any
    size: int  # rows
    stack: int  # frames that the buffer stacks itself; 1 if observations are stacks already
    frame_stack: int | None  # frames of an observation; None decides by shape
    threads: int
    storage: Storage
    num_envs: int

    def steps(self) -> PairedSteps:
        """Return a memory for ``size`` steps of each environment, with observations and flags only."""
        return PairedSteps(
            self.space,
            self.frame_stack if self.stack == 1 else None,
            stack=None if self.stack == 1 else self.stack,
            capacity=self.size * self.num_envs,
            action_space=1,
            num_envs=self.num_envs,
            threads=self.threads,
            storage=self.storage,
        )


class EnvGroup:
    """The observations of environments that always step together.

    A *row* is one step of all environments. Rows are numbered from ``first_row``. If ``settings.stack`` is more than 1,
    the environments deliver single frames, and observations are stacks of them.

    A row without next observations waits for the next row, whose observations they are. For a waiting row, and at the
    end of an episode, the next observation is unknown. As in Tianshou it is then the observation, with its newest frame
    repeated.
    """

    def __init__(self, settings: EnvGroupSettings, first_row: int = 0) -> None:
        self._settings, self._first_row = settings, first_row
        # The stored rows, numbered from 0; ``_first_row`` is the number of its row 0 here.
        self._steps = settings.steps()
        # The newest row, if its next observations are not known yet; it is not in ``_steps``.
        self._waiting: ObservationStep | None = None

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the rows."""
        return self._steps.memory

    @property
    def num_rows(self) -> int:
        """Number of the next row."""
        return self._first_row + self._steps.num_rows + (self._waiting is not None)

    @property
    def oldest_row(self) -> int:
        """Number of the oldest stored row."""
        return self._first_row + self._steps.oldest_row

    def add(self, step: ObservationStep) -> None:
        """Store a row; raise ``InvalidStepError`` before anything is stored."""
        if self._waiting is not None:
            self._feed(
                self._waiting._replace(next_observation=self._next_observation_of(self._waiting, step.observation))
            )
            self._waiting = None
        if step.next_observation is None:
            self._waiting = step.of(np.s_[:])
        else:
            self._feed(step)

    def pairs(self, rows: Indices, env_ids: Indices) -> Pair:
        """Return the observations and next observations of these stored rows and environments, ``(n,)`` each."""
        if self._waiting is None or not (waits := rows == self.num_rows - 1).any():
            return self._find_pairs(rows, env_ids)
        waiting = map_arrays(lambda part: part[env_ids[waits]], self._waiting_observation())
        if waits.all():
            return waiting, waiting
        stored = self._find_pairs(rows[~waits], env_ids[~waits])
        merged = [map_arrays(lambda new, part: _merge_rows(waits, new, part), waiting, each) for each in stored]
        return merged[0], merged[1]

    def split_off(self, env_id: int) -> EnvGroup:
        """Return a new group with one of the environments and all its stored rows, under the same numbers."""
        oldest = self._steps.oldest_row
        rows = np.arange(oldest, self._steps.num_rows)
        group = EnvGroup(replace(self._settings, num_envs=1), self._first_row + oldest)
        for first in range(0, len(rows), ROWS_AT_ONCE):
            batch = self.memory.get(self._steps.indices(rows[first : first + ROWS_AT_ONCE], env_id))
            copied = ObservationStep(batch.observation, batch.next_observation, batch.terminated, batch.truncated)
            for at in range(len(batch.reward)):
                group._store(copied.of([at]), group._steps.add)
        group._waiting = None if self._waiting is None else self._waiting.of([env_id])
        return group

    def _feed(self, step: ObservationStep) -> None:
        self._store(step, self._steps.add if self._settings.stack == 1 else self._steps.add_frames)

    def _store(self, step: ObservationStep, add: Callable[..., None]) -> None:
        zeros = np.zeros(self._settings.num_envs)
        add(step.observation, zeros.astype(int), zeros, step.next_observation, step.terminated, step.truncated)

    def _find_pairs(self, rows: Indices, env_ids: Indices) -> Pair:
        batch = self.memory.get(self._steps.indices(rows - self._first_row, env_ids))
        return batch.observation, batch.next_observation

    def _next_observation_of(self, waiting: ObservationStep, observation: Any) -> Any:
        """Return the next observations of a waiting row: ``observation``, unless an environment's episode ended."""
        ended = waiting.terminated | waiting.truncated
        return map_arrays(
            lambda last, new: _merge_rows(ended, last[ended], new[~ended]),
            self._repeat_newest_frame(waiting),
            observation,
        )

    def _repeat_newest_frame(self, waiting: ObservationStep) -> Any:
        """Return the observation shifted by one frame, with its newest frame repeated."""
        if self._settings.stack > 1:
            return waiting.observation
        layout = self.memory._settings.layout
        stacks = layout.split(layout.check(waiting.observation, self._settings.num_envs))
        return layout.join([np.concatenate([part[:, 1:], part[:, -1:]], 1) for part in stacks])

    def _waiting_observation(self) -> Any:
        """Return the observation of the waiting row, of every environment."""
        assert self._waiting is not None
        observation = self._waiting.observation
        return observation if self._settings.stack == 1 else self._steps.stacks_on(observation)


def _merge_rows(at: Flags, these: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one array with ``these`` where ``at`` is true, and ``others`` elsewhere."""
    merged = np.empty((len(at), *these.shape[1:]), these.dtype)
    merged[at], merged[~at] = these, others
    return merged


Numbers = npt.NDArray[np.uint32]
NUMERIC_KINDS = "biuf"  # of dtypes
ROWS_AT_ONCE = 64  # rows unpacked together for unusually large requests, such as a whole episode


class ObservationStore:
    """The observations and next observations of the newest steps of several environments.

    The steps of an environment are numbered from 1. Number 0 is no step; its observations are zeros. The first
    observation defines the shape and dtype.

    While all environments step together, one memory stores all observations (``EnvGroup``). Once some step without the
    others, each environment gets its own memory, because a memory stores the same number of steps of each environment.

    Arguments:
        sizes: number of steps to store, per environment.
        stack: frames per observation if single frames are added; the first frame of an episode pads its first stacks.
            1 if observations are added.
        frame_stack: frames per added observation, if ``stack`` is 1; ``None`` decides by shape.
        threads: number of threads that unpack a batch.
        storage: ``"packed"`` or ``"raw"``.
    """

    def __init__(
        self, sizes: Sequence[int], stack: int, frame_stack: int | None, threads: int, storage: Storage
    ) -> None:
        if stack > 1 and frame_stack not in (None, 1):
            raise InvalidSettingsError(
                f"frame_stack is {frame_stack} with stack_num {stack}: with stack_num the buffer stacks single frames; "
                "leave one of them out"
            )
        self.sizes, self._copies = tuple(sizes), BatchCopies()
        placeholder = FrameSpec((1,))
        self._settings = EnvGroupSettings(placeholder, max(sizes), stack, frame_stack, threads, storage, len(sizes))
        if max(sizes):
            replace(self._settings, frame_stack=None).steps()  # raises for invalid settings before the first step
        self.clear()

    def clear(self) -> None:
        """Remove all steps."""
        self._together: EnvGroup | None = None
        self._apart: dict[int, EnvGroup] = {}
        self._form: Any = None
        self.knows_next = True
        """Whether all steps were added with their next observations."""
        self.batch_size = 0
        """Usual number of requested steps. Output arrays are pooled for this number, not for larger ones."""
        self.had_nan = False
        """Whether an added observation had NaN."""

    @property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """The memories: none before the first step, then one, or one per environment that stepped."""
        if self._together is not None:
            return (self._together.memory,)
        return tuple(self._apart[env_id].memory for env_id in sorted(self._apart))

    @property
    def stack(self) -> int:
        """Frames per observation if single frames are added."""
        return self._settings.stack

    def add(self, env_ids: Sequence[int], step: ObservationStep) -> Numbers:
        """Store one step of some environments, each at most once; return the step numbers.

        Raises:
            InvalidStepError: before anything is stored.
        """
        step = self._check_step(step)
        self._make_groups(env_ids)
        self.knows_next &= step.next_observation is not None
        map_arrays(self._note_nan, tuple(part for part in step[:2] if part is not None))
        if self._together is not None:
            order = np.argsort(env_ids)
            self._together.add(step if (np.diff(order) == 1).all() else step.of(order))
            return np.full(len(env_ids), self._together.num_rows, np.uint32)
        numbers = np.zeros(len(env_ids), np.uint32)
        for at, env_id in enumerate(env_ids):
            self._apart[env_id].add(step.of([at]))
            numbers[at] = self._apart[env_id].num_rows
        return numbers

    def pairs(self, env_ids: Indices, numbers: npt.NDArray[Any], stack: int) -> Pair:
        """Return the observations and next observations of these steps, ``(n,)``, in arrays that share no memory.

        ``stack``: frames per observation, at most those of the store; with 1 there is no stack axis.
        """
        rows = numbers.astype(np.int64) - 1
        is_usual = len(rows) <= ROWS_AT_ONCE or len(rows) == self.batch_size
        if is_usual and self._together is not None and (rows >= self._together.oldest_row).all():
            pair = self._together.pairs(rows, env_ids)
        else:
            pair = self._read_pairs(rows, env_ids)
        return self._as_requested(pair[0], stack), self._as_requested(pair[1], stack)

    def _as_requested(self, observations: Any, stack: int) -> Any:
        """Return copies of observations with ``stack`` frames, in the form of the first observation.

        Copies, because the memory's arrays share frames and are reused.
        """
        if self.stack > 1:
            observations = map_arrays(lambda part: part[:, -1] if stack == 1 else part[:, -stack:], observations)
        return _in_form(self._form, map_arrays(self._copies.of, observations))

    def _read_pairs(self, rows: Indices, env_ids: Indices) -> Pair:
        """Collect pairs from several groups; evicted steps and number 0 are zeros."""
        groups = self._apart if self._together is None else {0: self._together}
        group_of, env_in_group = (env_ids, 0 * env_ids) if self._together is None else (0 * env_ids, env_ids)
        pair: list[Any] = []
        for env_id, group in groups.items():
            here = np.flatnonzero((group_of == env_id) & (rows >= group.oldest_row))
            for at in np.split(here, range(ROWS_AT_ONCE, len(here), ROWS_AT_ONCE)):
                parts = group.pairs(rows[at], env_in_group[at])
                pair = pair or [map_arrays(partial(_zeros, len(rows)), part) for part in parts]
                for which, part in enumerate(parts):
                    map_arrays(lambda out, array, at=at: out.__setitem__(at, array), pair[which], part)
        return pair[0], pair[1]

    def _make_groups(self, env_ids: Sequence[int]) -> None:
        """Create one group while all environments step together, and one per environment afterwards."""
        if len(set(env_ids)) == len(self.sizes) and len(set(self.sizes)) == 1 and not self._apart:
            if self._together is None:
                self._together = EnvGroup(self._settings)
            return
        if self._together is not None:
            self._apart = {env_id: self._together.split_off(env_id) for env_id in range(len(self.sizes))}
            self._together = None
        for env_id in env_ids:
            if env_id not in self._apart:
                self._apart[env_id] = EnvGroup(replace(self._settings, num_envs=1, size=self.sizes[env_id]))

    def _check_step(self, step: ObservationStep) -> ObservationStep:
        """Return the step with numeric arrays ``(n, *shape)``; raise ``InvalidStepError`` if their form changed."""
        arrays = [None if part is None else map_arrays(_array_of_numbers, part) for part in step[:2]]
        forms = [map_arrays(lambda part: part[:0], part) for part in arrays if part is not None]
        form = forms[0] if self._form is None else self._form
        for new_form in forms:
            _check_same_form(new_form, form)
        if self._form is None:
            self._settings = replace(self._settings, space=map_arrays(_frame_spec, form))
            self._form = form
        checked = [None if part is None else map_arrays(_with_axis, part) for part in arrays]
        return ObservationStep(checked[0], checked[1], step.terminated, step.truncated)

    def _note_nan(self, part: npt.NDArray[Any]) -> None:
        self.had_nan |= part.dtype.kind == "f" and bool(np.isnan(part).any())


def _array_of_numbers(observations: Any) -> npt.NDArray[Any]:
    array = np.asarray(observations)
    if array.dtype.kind not in NUMERIC_KINDS:
        raise InvalidStepError(
            f"observations have dtype {array.dtype}: they must be numeric arrays of one shape; convert them in a "
            "wrapper, or use Tianshou's buffer"
        )
    return array


def _zeros(num: int, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros((num, *part.shape[1:]), part.dtype)


def _with_axis(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers ``(n,)`` as vectors ``(n, 1)``, and other arrays unchanged."""
    return part if part.ndim > 1 else part[:, None]


def _frame_spec(part: npt.NDArray[Any]) -> FrameSpec:
    is_picture = part.ndim > 2
    return FrameSpec(part.shape[1:] or (1,), part.dtype, is_scaled=is_picture and part.dtype in SCALED_DTYPES)


def _check_same_form(new_form: Any, form: Any) -> None:
    new, old = (map_arrays(lambda part: f"{part.dtype}{list(part.shape[1:])}", each) for each in (new_form, form))
    if new != old:
        raise InvalidStepError(
            f"observations are {new}: they must be {old}, as the first ones; convert them in a wrapper, or use another "
            "buffer for them"
        )


def _in_form(form: Any, observations: Any) -> Any:
    """Return ``observations`` with the keys in the order of ``form``, and numbers without an axis."""
    if isinstance(form, Mapping):
        return {key: _in_form(part, observations[key]) for key, part in form.items()}
    return observations if form.ndim > 1 else observations[..., 0]

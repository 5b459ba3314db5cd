"""``ObservationStore``: the observations of several environments, by environment and step number.

While all environments step together, one ``EnvGroup`` stores them in one memory. Once an environment steps without the
others, each environment gets its own group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import SCALED_DTYPES, FrameSpec
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.paired_steps import ContiguousCopies, PairedSteps
from framestow.integrations.drop_in.pickled_memory import close_and_remove, refuse_used
from framestow.replay.memory import ReplayMemory

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
        """Return the step of some of its environments."""

        def rows_of(part: Any) -> Any:
            return None if part is None else map_arrays(lambda array: array[env_ids], part)

        return ObservationStep(*map(rows_of, self))


class EnvGroup:
    """The observations of environments that always step together.

    A *row* is one step of all environments. Rows are numbered from ``first_row``.

    A row without next observations waits for the next row, whose observations they are. Until then its observations are
    the current ones of the memory. For a waiting row, and at the end of an episode, the next observation is unknown. As
    in Tianshou it is then the observation.
    """

    def __init__(self, steps: PairedSteps, first_row: int = 0) -> None:
        # The stored rows, numbered from 0; ``first_row`` is the number of its row 0 here.
        self._steps, self.first_row = steps, first_row
        self._no_values = np.zeros(steps.memory.num_envs, np.int64)  # actions and rewards are not stored
        # Whether the episodes terminated and were truncated at the newest row, if it waits; it is not in ``_steps``.
        self._waiting: tuple[Flags, Flags] | None = None

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the rows."""
        return self._steps.memory

    @property
    def num_rows(self) -> int:
        """Number of the next row."""
        return self.first_row + self._steps.num_rows + (self._waiting is not None)

    @property
    def oldest_row(self) -> int:
        """Number of the oldest stored row."""
        return self.first_row + self._steps.oldest_row

    def add(self, step: ObservationStep) -> None:
        """Store a row of checked observations."""
        observation, next_observation, *ends = step
        if self._waiting is not None:
            self._append_waiting(observation)
        if next_observation is None:
            self._steps.begin_where_new(observation)
            self._waiting = ends[0].copy(), ends[1].copy()
        else:
            self._steps.add(observation, self._no_values, self._no_values, next_observation, *ends)

    def pairs(self, rows: Indices, env_ids: Indices) -> Pair:
        """Return the observations and next observations of these stored rows and environments, ``(n,)`` each."""
        waits = rows == self.num_rows - 1
        if self._waiting is None or not waits.any():
            return self._stored_pairs(rows, env_ids)
        newest = map_arrays(lambda part: part[env_ids[waits]], self.memory.inner.observations())
        if waits.all():
            return newest, map_arrays(np.copy, newest)
        stored = self._stored_pairs(rows[~waits], env_ids[~waits])
        merged = [map_arrays(partial(_merge_rows, waits), newest, each) for each in stored]
        return merged[0], merged[1]

    def split_off(self, env_id: int, steps: PairedSteps) -> EnvGroup:
        """Return a group that stores the next rows of one environment in ``steps``. Its open episode goes on there."""
        group = EnvGroup(steps, self.first_row + self._steps.num_rows)
        steps.continue_episode(self._steps, env_id)
        if self._waiting is not None:
            terminated, truncated = self._waiting
            group._waiting = terminated[[env_id]], truncated[[env_id]]
        return group

    def _append_waiting(self, following: Any) -> None:
        """Store the waiting row; its next observations are ``following``, and at ends of episodes its own."""
        assert self._waiting is not None
        ended = self._waiting[0] | self._waiting[1]
        current = self._steps.current()
        following = map_arrays(lambda own, new: _merge_rows(ended, own[ended], new[~ended]), current, following)
        self._steps.append(self._no_values, self._no_values, following, *self._waiting)
        self._waiting = None

    def _stored_pairs(self, rows: Indices, env_ids: Indices) -> Pair:
        batch = self._steps.transitions(self._steps.indices(rows - self.first_row, env_ids))
        return batch.observation, batch.next_observation


def _merge_rows(at: Flags, these: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one array with ``these`` where ``at`` is true, and ``others`` elsewhere."""
    merged = np.empty((len(at), *these.shape[1:]), these.dtype)
    merged[at], merged[~at] = these, others
    return merged


Numbers = npt.NDArray[np.uint32]
NUMERIC_KINDS = "biuf"  # of dtypes
TOGETHER = "together"  # folder of the memory of all environments; those of each have its number
ROWS_AT_ONCE = 64  # rows unpacked together for unusually large requests, such as a whole episode


class ObservationStore:
    """The observations and next observations of the newest steps of several environments.

    The steps of an environment are numbered from 1. Number 0 is no step; its observations are zeros. The first
    observation defines the shape and dtype.

    While all environments step together, one memory stores all observations (``EnvGroup``). From the first step of some
    without the others on, each environment gets its own memory, because a memory stores the same number of steps of
    each environment. The first memory stays until nobody needs its steps.

    Arguments:
        size: number of steps to store of each environment.
        num_envs: number of environments.
        stack: frames per observation if single frames are added; the first frame of an episode pads its first stacks.
            1 if observations are added.
        frame_stack: frames per added observation, if ``stack`` is 1; ``None`` decides by shape.
        packing: further arguments of each memory. In its ``directory``, each memory has a folder, which must not be
            used: actions and rewards are elsewhere.
    """

    def __init__(self, size: int, num_envs: int, stack: int, frame_stack: int | None, **packing: Any) -> None:
        if stack > 1 and frame_stack not in (None, 1):
            raise InvalidSettingsError(
                f"frame_stack is {frame_stack} with stack_num {stack}: with stack_num the buffer stacks single frames; "
                "leave one of them out"
            )
        self._size, self.stack, self._copies = size, stack, ContiguousCopies()
        self._all_env_ids = list(range(num_envs))
        directory = packing.pop("directory", None)
        self._directory = None if directory is None else Path(directory).resolve()
        self._packing = {"frame_stack": frame_stack if stack == 1 else None, **packing}
        if size:
            self._make_steps(FrameSpec((frame_stack or 1,)), 1, "")  # raises for invalid settings before the first step
        if self._directory is not None:
            for name in (TOGETHER, *map(str, self._all_env_ids)):
                refuse_used(self._directory / name)
        self._together: EnvGroup | None = None
        self._apart: dict[int, EnvGroup] = {}
        self.clear()

    def with_envs(self, num_envs: int) -> ObservationStore:
        """Return an empty store with the same settings for ``num_envs`` environments."""
        return ObservationStore(self._size, num_envs, self.stack, directory=self._directory, **self._packing)

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return len(self._all_env_ids)

    def clear(self) -> None:
        """Remove all steps, in the directory too."""
        for memory in self.memories:
            close_and_remove(memory)
        self._together, self._apart = None, {}
        self._form: Any = None  # empty arrays like the first observations
        self.knows_next = True
        """Whether all steps were added with their next observations."""
        self.batch_size = 0
        """Usual number of requested steps. Output arrays are pooled for this number, not for larger ones."""
        self.had_nan = False
        """Whether an added observation had NaN."""

    @property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """The memories: none before the first step; that of all environments, if it has steps; one per environment."""
        groups = [self._together] if self._together is not None else []
        return tuple(group.memory for group in (*groups, *self._apart.values()))

    def add(self, env_ids: Sequence[int], step: ObservationStep) -> Numbers:
        """Store one step of some environments, each at most once; return the step numbers.

        Raises:
            InvalidStepError: before anything is stored.
        """
        step = self._check_step(step)
        self.knows_next &= step.next_observation is not None
        is_whole = env_ids == self._all_env_ids
        if not self._apart and (is_whole or sorted(env_ids) == self._all_env_ids):
            if self._together is None:
                self._together = EnvGroup(self._make_steps(self._space, self.num_envs, TOGETHER))
            self._together.add(step if is_whole else step.of(np.argsort(env_ids)))
            return np.full(len(env_ids), self._together.num_rows, np.uint32)
        self._separate()
        for at, env_id in enumerate(env_ids):
            self._apart[env_id].add(step.of([at]))
        return np.array([self._apart[env_id].num_rows for env_id in env_ids], np.uint32)

    def pairs(self, env_ids: Indices, numbers: npt.NDArray[Any], stack: int) -> Pair:
        """Return the observations and next observations of these steps, ``(n,)``, in arrays that share no memory.

        ``stack``: frames per observation, at most those of the store; with 1 there is no stack axis.
        """
        rows = numbers.astype(np.int64) - 1
        is_usual = len(rows) <= ROWS_AT_ONCE or len(rows) == self.batch_size
        if is_usual and self._together is not None and not self._apart and (rows >= self._together.oldest_row).all():
            pair = self._together.pairs(rows, env_ids)
        else:
            pair = self._read_pairs(rows, env_ids)
        return self._as_requested(pair[0], stack), self._as_requested(pair[1], stack)

    def _as_requested(self, observations: Any, stack: int) -> Any:
        """Return observations with ``stack`` frames, contiguous, in the form of the first observation."""
        if self.stack > 1:
            observations = map_arrays(lambda part: part[:, -1] if stack == 1 else part[:, -stack:], observations)
        return _in_form(self._form, map_arrays(self._copies.of, observations))

    def _read_pairs(self, rows: Indices, env_ids: Indices) -> Pair:
        """Collect pairs from several groups; evicted steps and number 0 are zeros."""
        is_apart = np.zeros(len(rows), np.bool_)
        found = []  # a group, which rows are its, and their environments in it
        for env_id, group in self._apart.items():
            here = (env_ids == env_id) & (rows >= group.first_row)
            is_apart |= here
            found.append((group, here & (rows >= group.oldest_row), 0 * env_ids))
        if self._together is not None:
            found.append((self._together, ~is_apart & (rows >= self._together.oldest_row), env_ids))
        pair: list[Any] = []
        for group, here, env_in_group in found:
            indices = np.flatnonzero(here)
            for at in np.split(indices, range(ROWS_AT_ONCE, len(indices), ROWS_AT_ONCE)):
                parts = group.pairs(rows[at], env_in_group[at])
                pair = pair or [map_arrays(partial(_zeros, len(rows)), part) for part in parts]
                for which, part in enumerate(parts):
                    map_arrays(lambda out, array, at=at: out.__setitem__(at, array), pair[which], part)
        return pair[0], pair[1]

    def _make_steps(self, space: Any, num_envs: int, name: str) -> PairedSteps:
        """Return a memory for the steps of ``num_envs`` environments, with observations and flags only.

        It lives in the folder ``name`` of the directory, if there is one; in RAM without a name.
        """
        stack, capacity = None if self.stack == 1 else self.stack, max(self._size, 1) * num_envs
        return PairedSteps(
            space,
            stack=stack,
            capacity=capacity,
            action_space=1,
            num_envs=num_envs,
            directory=self._directory / name if self._directory is not None and name else None,
            resumes=False,
            **self._packing,
        )

    def _separate(self) -> None:
        """Give each environment a memory of its own from now on; remove that of all environments if it has no use."""
        together = self._together
        for env_id in self._all_env_ids if not self._apart else ():
            steps = self._make_steps(self._space, 1, str(env_id))
            self._apart[env_id] = EnvGroup(steps) if together is None else together.split_off(env_id, steps)
        if together is not None and all(
            group.num_rows - group.first_row >= self._size for group in self._apart.values()
        ):
            close_and_remove(together.memory)
            self._together = None

    def _check_step(self, step: ObservationStep) -> ObservationStep:
        """Return the step with arrays ``(n, *shape)``; raise ``InvalidStepError`` if a form is not the first one."""
        observation, next_observation, terminated, truncated = step
        if observation is None:
            raise InvalidStepError(f"obs is {observation}: every step needs an observation; give the environment's")
        form = map_arrays(_form_of, observation) if self._form is None else self._form
        _check_form(observation, form)
        if next_observation is not None:
            _check_form(next_observation, form)
            next_observation = map_arrays(self._as_stored, next_observation)
        if self._form is None:
            self._form, self._space = form, map_arrays(_frame_spec, form)
        return ObservationStep(map_arrays(self._as_stored, observation), next_observation, terminated, truncated)

    def _as_stored(self, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers ``(n,)`` as vectors ``(n, 1)``, and other arrays unchanged; record NaN."""
        if part.dtype.kind == "f" and not self.had_nan:
            self.had_nan = bool(np.isnan(part).any())
        return part if part.ndim > 1 else part[:, None]


def _form_of(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind not in NUMERIC_KINDS:
        raise InvalidStepError(
            f"observations have dtype {array.dtype}: they must be numeric arrays of one shape; convert them in a "
            "wrapper, or use Tianshou's buffer"
        )
    return array[:0].copy()


def _zeros(num: int, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros((num, *part.shape[1:]), part.dtype)


def _frame_spec(part: npt.NDArray[Any]) -> FrameSpec:
    is_picture = part.ndim > 2
    return FrameSpec(part.shape[1:] or (1,), part.dtype, is_scaled=is_picture and part.dtype in SCALED_DTYPES)


def _check_form(observations: Any, form: Any) -> None:
    """Raise ``InvalidStepError`` unless ``observations`` have the keys, shapes and dtypes of ``form``."""
    is_array = type(form) is type(observations) is np.ndarray
    if is_array and observations.dtype == form.dtype and observations.shape[1:] == form.shape[1:]:
        return
    new, old = (map_arrays(lambda part: f"{part.dtype}{list(part.shape[1:])}", each) for each in (observations, form))
    if new != old:
        map_arrays(_form_of, observations)
        raise InvalidStepError(
            f"observations are {new}: they must be {old}, as the first ones; convert them in a wrapper, or use another "
            "buffer for them"
        )


def _in_form(form: Any, observations: Any) -> Any:
    """Return ``observations`` with the keys in the order of ``form``, and numbers without an axis."""
    if isinstance(form, Mapping):
        return {key: _in_form(part, observations[key]) for key, part in form.items()}
    return observations if form.ndim > 1 else observations[..., 0]

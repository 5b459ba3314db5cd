"""The steps of a drop-in buffer: rows of pairs of an observation and the next one, in a memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, OutputPool
from framestow.checks import whole_number
from framestow.errors import InvalidSettingsError
from framestow.frames.observation_spec import equal_rows, map_arrays, observation_spec
from framestow.integrations.drop_in.pickled_memory import PickledMemory, make_memory
from framestow.replay.forked_locks import call_in_children
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.settings.observation_layout import MAX_STACK, StackLayout, stacks_on


def num_steps_taken(memory: ReplayMemory) -> int:
    """Return how many steps were ever added to a memory with ``retention="fifo"``: the index of the next one."""
    return int(memory.inner.steps.next_index)  # type: ignore[union-attr]  # of a ring


def check_frame_stack(frame_stack: Any) -> None:
    """Raise ``InvalidSettingsError`` unless ``frame_stack`` is a number of frames, or ``None`` to decide by shape."""
    if frame_stack is not None:
        rule = f"an observation has 1 to {MAX_STACK} frames; leave frame_stack out to decide by shape"
        whole_number("frame_stack", frame_stack, 1, MAX_STACK, rule=rule)


def stacks_of_depth(space: Any, depth: int) -> tuple[StackLayout | None, ...]:
    """Return the stacks of ``depth`` frames in observations of ``space``, by array.

    Pictures are stacked on the shorter of their first and last axis, with more than three axes on the first. Vectors
    are stacked too, unless there are pictures and a vector has no multiple of ``depth`` entries.

    Raises:
        InvalidSettingsError: an axis has no multiple of ``depth`` entries.
    """
    shapes = [frame.shape for frame in observation_spec(space).frame_specs]
    if depth == 1:
        return (None,) * len(shapes)
    stacks: list[StackLayout | None] = []
    for shape in shapes:
        axis = 0 if len(shape) > 3 or shape[0] <= shape[-1] else -1
        if shape[axis] % depth == 0:
            stacks.append(stacks_on(shape, axis, depth))
        elif len(shape) < 3 and any(len(other) > 2 for other in shapes):
            stacks.append(None)
        else:
            raise InvalidSettingsError(
                f"frame_stack is {depth}: observations of shape {shape} have {shape[axis]} channels, which must be a "
                "multiple of it; give 1 to store each observation as one frame"
            )
    return tuple(stacks)


class PairedSteps:
    """Steps with an observation and a next observation, added to a memory row by row.

    ``ReplayMemory.add`` stores each frame once. Observations come back in the library's shape, bit for bit, also where
    a library gives the first one of the next episode as the next observation. (CleanRL gives no flag for a truncation:
    its issue 460.)

    A *row* is one step of each environment. Rows are numbered from 0; the newest are stored. After an interrupt
    (Ctrl-C) a row is stored completely or not at all.
    """

    def __init__(
        self, space: Any, frame_stack: int | None = None, *, stack_argument: str = "frame_stack", **arguments: Any
    ) -> None:
        """Create the memory.

        Arguments:
            space: the observation space.
            frame_stack: frames per observation; ``None`` decides by shape, as ``ReplayMemory`` does.
            stack_argument: name of the library's argument for that, for warnings.
            arguments: other arguments of the memory, which must store whole rows: ``retention="fifo"``, ``n_step=1``,
                and a capacity that is a multiple of the number of environments.

        Raises:
            InvalidSettingsError: observations of ``space`` cannot be stacks of ``frame_stack`` frames.
        """
        if frame_stack is not None:
            arguments["stack_axis"] = stacks_of_depth(space, frame_stack)
        # As a rule the library draws, and the seed is not used.
        self.memory = make_memory(observation_space=space, **{"seed": 0} | arguments)
        self._num_envs = self.memory.num_envs  # each sample asks for it several times
        self._stack_argument = self.memory.inner.watch.frame_stack = stack_argument
        self.takes_frames = self.memory.inner.settings.layout.takes_frames
        self.copies = ContiguousCopies()
        self._newest: list[bytes] | None = None  # the newest single frames, by array, if they are known

    @property
    def num_rows(self) -> int:
        """Number of rows added so far, which is the number of the next row."""
        return self.memory.inner.steps.next_index // self._num_envs  # type: ignore[union-attr]  # of a ring

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row whose steps are all stored."""
        return -(-self.memory.inner.steps.oldest // self._num_envs)  # type: ignore[union-attr]  # of a ring

    @property
    def episode_rows(self) -> npt.NDArray[np.int64]:
        """First row of each environment's newest episode, ``(num_envs,)``."""
        steps = self.memory.inner.steps
        return self.num_rows - (steps.newest_positions - steps.episode_starts)

    def add(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        next_observation: Any,
        terminated: Any,
        truncated: Any,
        **extras: Any,
    ) -> None:
        """Store one step of every environment, given as the arguments of ``ReplayMemory.add``.

        Observations of a memory with ``stack`` are single frames, which the caller has checked.
        """
        if self.takes_frames:
            self.begin_where_new(observation)
            self.append(action, reward, next_observation, terminated, truncated, **extras)
        else:
            self.memory.add(observation, action, reward, next_observation, terminated, truncated, **extras)

    def append(
        self, action: Any, reward: Any, next_observation: Any, terminated: Any, truncated: Any, **extras: Any
    ) -> None:
        """Store one step of every environment; its observations are the memory's current ones."""
        self._newest = None  # Ctrl-C may come before or behind the step
        self.memory.append(action, reward, terminated, truncated, next_observation, **extras)
        if self.takes_frames:
            self._newest = self._bytes_of(next_observation)

    def begin_where_new(self, observations: Any) -> None:
        """Begin an episode of each environment whose observation does not continue an open one.

        Observations of a memory with ``stack`` are single frames, as for ``add``.
        """
        layout, continues = self.memory.inner.settings.layout, self.memory.open_episodes
        if self._newest is not None and self._newest == self._bytes_of(observations) and continues.all():
            return  # the usual step, in a quarter of the time
        self._newest = None
        for part, given in zip(layout.flatten(self.current()), layout.flatten(observations), strict=True):
            continues &= equal_rows(part, given)
        if not continues.all():
            env_ids = np.flatnonzero(~continues)
            self.memory.begin(map_arrays(lambda part: part[env_ids], observations), env_ids)

    def current(self) -> Any:
        """Return the current observation of each environment; of a memory with ``stack``, its newest frame."""
        observations = self.memory.inner.observations()
        return map_arrays(lambda stacks: stacks[:, -1], observations) if self.takes_frames else observations

    def _bytes_of(self, observations: Any) -> list[bytes]:
        return [part.tobytes() for part in self.memory.inner.settings.layout.flatten(observations)]

    def continue_episode(self, others: PairedSteps, env_id: int) -> None:
        """Continue the open episode of one environment of ``others`` as that of the only environment here."""
        if others.memory.open_episodes[env_id]:
            observation = map_arrays(lambda part: part[[env_id]], others.memory.observations())
            self.memory.inner.begin_whole(observation)

    def indices(self, rows: npt.ArrayLike, environments: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the memory's indices of the steps in these rows and environments, which broadcast."""
        return np.asarray(np.asarray(rows, np.int64) * self._num_envs + np.asarray(environments, np.int64))

    def transitions(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Return the transitions with these indices, ``(n,)``, with observations in the library's shape.

        Observations and next observations share no memory. Raises ``NothingToSampleError`` if a transition is not
        stored.
        """
        return self.memory.get(indices, shares_frames=False)

    def episodes(self) -> Iterator[tuple[int, int, int]]:
        """Yield environment, first row and next one of each stored episode whose first step is stored."""
        rows = np.arange(self.oldest_row, self.num_rows)
        for env_id in range(self._num_envs):
            flags = self.memory.inner.steps.flags_of(self.indices(rows, env_id))
            begins = rows[flags & BEGINS_EPISODE > 0].tolist()
            yield from (
                (env_id, first, stop) for first, stop in zip(begins, [*begins[1:], self.num_rows], strict=False)
            )

    def start_new_episodes(self) -> None:
        """Start a new episode with the next step of every environment."""
        parts = self.memory.inner.parts
        with parts.lock:
            parts.core.close_episodes()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "memory": PickledMemory(self.memory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "memory": state["memory"].load()}
        self._num_envs = self.memory.num_envs
        self.memory.inner.watch.frame_stack = self._stack_argument


class ContiguousCopies:
    """Copies of observations that are not contiguous, such as stacks on the last axis.

    A learner may write to its tensors or reshape them. A copy goes into an array of an ``OutputPool``: new memory for
    each batch would cost more than copying.
    """

    def __init__(self) -> None:
        self._pool, self._lock = OutputPool(), threading.Lock()
        call_in_children(self)

    def enter_child(self) -> None:
        """Make a new lock: a thread of the parent may hold the old one."""
        self._lock = threading.Lock()

    def of(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return ``array`` if it is C-contiguous, or else a copy; its memory is reused once nobody refers to it."""
        if array.flags.c_contiguous:
            return array
        with self._lock:
            copy = self._pool.take(array.shape, array.dtype)
        np.copyto(copy, array)
        return copy

    def __reduce__(self) -> tuple[type[ContiguousCopies], tuple[()]]:
        return ContiguousCopies, ()  # without its arrays


class StepSequences(NamedTuple):
    """``B`` sequences of up to ``length`` steps. A sequence stops at the end of its episode or at the newest step.

    ====================  ===============  =======  =======================================================
    field                 shape            dtype    meaning
    ====================  ===============  =======  =======================================================
    ``observation``       ``(B, *shape)``           observation of the first step
    ``action``            ``(B, ...)``              action of the first step
    ``rewards``           ``(B, length)``  float32  rewards of all steps; 0 after the last step
    ``is_step``           ``(B, length)``  bool     false after the last step
    ``next_observation``  ``(B, *shape)``           observation after the last step
    ``terminated``        ``(B,)``         bool     whether the episode terminated at the last step
    ====================  ===============  =======  =======================================================
    """

    observation: Any
    action: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    is_step: npt.NDArray[np.bool_]
    next_observation: Any
    terminated: npt.NDArray[np.bool_]


def steps_following(steps: PairedSteps, first: npt.NDArray[np.int64], length: int) -> StepSequences:
    """Return the steps from the memory's indices ``first`` on, ``(B,)``, with observations in the library's shape."""
    if length == 1:
        one = steps.transitions(first)
        rewards = one.reward[:, None]
        return StepSequences(
            one.observation, one.action, rewards, np.ones_like(rewards, bool), one.next_observation, one.terminated
        )
    sequences, count = steps.memory.steps_from(first, length), len(first)
    is_step = sequences.index >= 0
    last = sequences.index[np.arange(count), is_step.sum(axis=1) - 1]
    both = steps.transitions(np.concatenate([first, last]))
    return StepSequences(
        map_arrays(lambda part: part[:count], both.observation),
        both.action[:count],
        sequences.reward,
        is_step,
        map_arrays(lambda part: part[count:], both.next_observation),
        both.terminated[count:],
    )

"""Berkeley's ``ReplayBuffer`` with frame history: takes single frames and their effects, samples stacks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

import numpy as np
import numpy.typing as npt

from framestow._core import OutputPool
from framestow.checks import as_array, check_seed, truth_value, whole_number
from framestow.errors import InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.stacking import join_channels
from framestow.integrations.classic.one_step import check_action, check_flag, check_reward, only_number
from framestow.integrations.drop_in.memory_options import PackingOptions, take_options
from framestow.integrations.drop_in.paired_steps import num_steps_taken
from framestow.integrations.drop_in.pickled_memory import PickledMemory
from framestow.interface import one_line
from framestow.replay.forked_draws import ForkedRandom
from framestow.replay.memory import ReplayMemory, check_batch_size, describe_memory
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import MAX_STACK


class Effect(NamedTuple):
    """The result of an action. ``last_frame`` is the last frame of an ended episode, if it was given."""

    action: int
    reward: float
    terminated: bool
    truncated: bool
    last_frame: npt.NDArray[Any] | None
    number: int  # of its step; once the memory has that step, the effect is used up, also after Ctrl-C


class ReplayBuffer:
    """Store the last ``size`` transitions of one environment, with each frame packed once.

    Drop-in for the buffer of homework 3 of Berkeley's deep RL course (``dqn_utils.py``, 2016 to 2018)::

        from dqn_utils import ReplayBuffer  # before
        from framestow.integrations.classic import ReplayBuffer  # after

    >>> import numpy as np
    >>> from framestow.integrations.classic import ReplayBuffer
    >>> buffer = ReplayBuffer(size=100, frame_history_len=4, seed=0)
    >>> for step in range(3):
    ...     idx = buffer.store_frame(np.full((84, 84, 1), 50 + step, np.uint8))
    ...     buffer.store_effect(idx, action=step, reward=1.0, done=False)
    >>> buffer.encode_recent_observation()[0, 0].tolist()
    [0, 50, 51, 52]
    >>> observations, actions, rewards, next_observations, done_mask = (
    ...     buffer.sample(2)
    ... )
    >>> (
    ...     observations.shape,
    ...     next_observations[:, 0, 0, -1].tolist(),
    ...     actions.tolist(),
    ... )
    ((2, 84, 84, 4), [52, 51], [1, 0])

    Arguments:
        size: maximum number of transitions.
        frame_history_len: frames per observation; an episode's first observations are padded with zeros.
        lander: store ``float32`` instead of ``uint8``.
        seed: seed of the buffer's random generator. ``None`` draws from Python's ``random``, as the original does.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``
            (``PackingOptions``).

    Same as the original: calls, results, and draws from the same seed. Different, because the original is wrong there:

    * *Full ring.* The original samples the newest frame, which has no next frame and perhaps no effect yet. It stacks
      the newest frames before the oldest, and never samples the last slot. Here all ``size`` transitions are
      sampleable, each with its own stack.
    * *Truncation.* The original only has ``done``, which ends bootstrapping. ``store_effect`` also takes ``truncated``.
    * *Missing effect.* In the original, a frame without an effect has the action of an older frame in its slot. Here it
      ends its episode and is not a transition.
    * *Wrong dtypes,* such as floats in a ``uint8`` buffer, are refused, not cast.

    As in the original, a next observation after ``done`` is zeros and the first frame of the next episode. It is not
    used in any target. Not supported: the arrays ``obs``, ``action``, ``reward`` and ``done``. The buffer can be
    pickled; its frames stay packed.
    """

    def __init__(
        self,
        size: int,
        frame_history_len: int,
        lander: bool = False,
        *,
        seed: int | None = None,
        **memory: Unpack[PackingOptions],
    ) -> None:
        self.size = whole_number("size", size, 1, rule="a buffer stores at least 1 transition")
        rule = f"an observation has 1 to {MAX_STACK} frames"
        self.frame_history_len = whole_number("frame_history_len", frame_history_len, 1, MAX_STACK, rule=rule)
        self.lander, seed = truth_value("lander", lander), check_seed(seed)
        self._options = take_options(type(self), PackingOptions, memory)
        # Draws the batches; None draws from Python's ``random``.
        self._generator = None if seed is None else ForkedRandom(seed)
        # Created with the first frame, whose shape it has.
        self._memory: ReplayMemory | None = None
        self._frame_shape: tuple[int, ...] | None = None  # of every frame; None before the first one
        self._effect: Effect | None = None
        """Effect of the newest frame. It becomes a step when the next frame is stored."""
        self._num_frames = 0  # stored so far; it gives the slot of the next one
        self._pool = OutputPool()  # of observations in the buffer's layout, which differs from the memory's

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the frames; raises ``NothingToSampleError`` before the first frame."""
        if self._memory is None:
            raise NothingToSampleError(
                "the buffer is empty: the first frame creates its memory; call store_frame first"
            )
        return self._memory

    def __repr__(self) -> str:
        memory, stored = self._memory, self._num_sampleable
        empty = (f"0 of {self.size:,} transitions", f"frame_history_len {self.frame_history_len}")
        return one_line(self, lambda: empty if memory is None else describe_memory(memory, stored, self.size))

    @property
    def num_in_buffer(self) -> int:
        """Number of used slots."""
        return min(self._num_frames, self.size)

    @property
    def next_idx(self) -> int:
        """Slot of the next frame."""
        return self._num_frames % self.size

    def store_frame(self, frame: npt.ArrayLike) -> int:
        """Store a frame of the environment; return its slot for ``store_effect``.

        Arguments:
            frame: ``(H, W, C)`` pixels or a vector, always of the same shape. Copied.

        Raises:
            InvalidStepError: before anything is stored, for another shape or dtype.
        """
        new = self._as_stored(frame)[None]
        if self._memory is None:
            self._memory, self._frame_shape = self._make_memory(new.shape[1:]), new.shape[1:]
        if self._append_effect(self._memory, new):
            self._memory.begin(new)
        self._num_frames += 1
        return (self._num_frames - 1) % self.size

    def _append_effect(self, memory: ReplayMemory, following: npt.NDArray[Any]) -> bool:
        """Append the newest frame's effect with ``following`` as next frame; return whether that starts an episode."""
        effect = self._effect
        if effect is None or effect.number < self._num_steps:
            return True
        is_over, last_frame = effect.terminated or effect.truncated, effect.last_frame
        if effect.truncated and not effect.terminated and last_frame is None:
            self._effect = None
            return True  # the next observation is unknown
        memory.append(
            np.array([effect.action], np.int32),
            np.array([effect.reward], np.float32),
            np.array([effect.terminated]),
            np.array([effect.truncated]),
            following if last_frame is None else last_frame,
        )
        return is_over

    @property
    def _num_steps(self) -> int:
        """Number of steps that were ever stored."""
        return 0 if self._memory is None else num_steps_taken(self._memory)

    def store_effect(
        self,
        idx: int,
        action: Any,
        reward: float,
        done: bool,
        *,
        truncated: bool = False,
        last_frame: npt.ArrayLike | None = None,
    ) -> None:
        """Store the action at the newest frame, which is in slot ``idx``, and its result.

        Arguments:
            idx: slot returned by the last ``store_frame``.
            action: the action, one number.
            reward: its reward, one number.
            done: whether the episode terminated.
            truncated: whether the episode was truncated; ignored if ``done``.
            last_frame: the frame after the last step of an episode. A truncated episode bootstraps from it. Without it,
                the last step of a truncated episode is not sampled, because its next observation is unknown.

        A second effect for the same frame replaces the first. Raises ``InvalidStepError``, before any change, for
        another slot, or if the action or reward is not one number.
        """
        newest = (self._num_frames - 1) % self.size
        if self._num_frames == 0 or only_number("idx", idx, "iu") != newest:
            raise InvalidStepError(
                f"idx is {idx}: "
                + (f"the newest frame is in slot {newest}" if self._num_frames else "no frame was stored yet")
                + "; call store_effect after each store_frame, with its slot"
            )
        last = None if last_frame is None else self._as_stored(last_frame)[None].copy()
        self._effect = Effect(
            check_action(action),
            check_reward("reward", reward),
            check_flag("done", done),
            check_flag("truncated", truncated),
            last,
            self._num_steps,
        )

    def encode_recent_observation(self) -> npt.NDArray[Any]:
        """Return the observation at the newest frame: ``(H, W, C * frame_history_len)``, oldest frame first.

        Vectors are not stacked. You may write to the array. Raises ``NothingToSampleError`` before the first frame.
        """
        observation: npt.NDArray[Any] = _channels_last(self.memory.observations())[0]
        return observation

    def can_sample(self, batch_size: int) -> bool:
        """Return whether the buffer has at least ``batch_size`` transitions."""
        return whole_number("batch_size", batch_size, 0, rule="it must be at least 0") <= self._num_sampleable

    def sample(
        self, batch_size: int
    ) -> tuple[
        npt.NDArray[Any], npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[np.float32]
    ]:
        """Sample ``batch_size`` different transitions uniformly.

        =================  =========================================  =============================================
        returned           shape                                      dtype
        =================  =========================================  =============================================
        observations       ``(B, H, W, C * frame_history_len)``       ``uint8``, or ``float32`` with ``lander``
        actions            ``(B,)``                                   ``int32``
        rewards            ``(B,)``                                   ``float32``
        next observations  as observations                            as observations
        done_mask          ``(B,)``                                   ``float32``: 1 where ``done``
        =================  =========================================  =============================================

        Vectors are not stacked: ``(B, D)``. You may write to the arrays. Grey frames have the memory layout of
        ``(B, frame_history_len, H, W)``, so PyTorch gets channels-first stacks without a copy. Raises
        ``NothingToSampleError`` if there are fewer than ``batch_size`` transitions.
        """
        if not self.can_sample(check_batch_size(batch_size)):
            raise NothingToSampleError(
                f"batch_size is {batch_size}: the buffer has {self._num_sampleable} transitions whose next frame is "
                "stored; check can_sample first"
            )
        newest = self._num_steps - 1
        slots = np.array(self._draw_unique(batch_size), np.int64)
        batch = self.memory.get(newest - (newest - slots) % self.size, shares_frames=False)
        batch.next_observation[batch.terminated, :-1] = 0
        return (
            _channels_last(batch.observation, self._pool.take),
            batch.action,
            batch.reward,
            _channels_last(batch.next_observation, self._pool.take),
            batch.terminated.astype(np.float32),
        )

    @property
    def _num_sampleable(self) -> int:
        return min(self._num_steps, self.size)

    def _draw_unique(self, batch_size: int) -> list[int]:
        """Draw different slots in the original's order: one at a time, until all are different."""
        draw_below = (self._generator or random).randint
        drawn: dict[int, None] = {}
        last = self._num_sampleable - 1
        while len(drawn) < batch_size:
            drawn[draw_below(0, last)] = None
        return list(drawn)

    def _make_memory(self, frame_shape: tuple[int, ...]) -> ReplayMemory:
        return ReplayMemory(
            self.size,
            FrameSpec(frame_shape, self._dtype),
            ActionSpec((), "int32"),
            stack=1 if len(frame_shape) == 1 else self.frame_history_len,
            stack_padding="zeros",
            **self._options,
            seed=0,  # unused
        )

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.lander else np.uint8)

    def _as_stored(self, frame: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return ``frame`` in the buffer's dtype. With ``lander``, floats may lose precision."""
        given = as_array("frame", frame, InvalidStepError)
        if given.dtype.kind not in "biuf" or not given.ndim:
            raise InvalidStepError(
                f"frame has shape {given.shape} and dtype {given.dtype}: it must be an array of numbers; give the "
                "pixels (H, W, C) or the vector that the environment returned"
            )
        if self._frame_shape is not None and given.shape != self._frame_shape:
            raise InvalidStepError(
                f"frame has shape {given.shape}: it must be {self._frame_shape}, as the first frame; create another "
                "buffer for other frames"
            )
        if given.dtype == self._dtype:
            return given
        with np.errstate(over="ignore", invalid="ignore"):
            kept = given.astype(self._dtype)
        if not (self.lander and given.dtype.kind == "f") and not (given.dtype.kind in "iub" and (kept == given).all()):
            raise InvalidStepError(
                f"frame has dtype {given.dtype}: this buffer stores {self._dtype}; give integer pixels from 0 to 255, "
                "or create the buffer with lander=True for floats"
            )
        return kept

    def __getstate__(self) -> dict[str, Any]:
        memory = None if self._memory is None else PickledMemory(self._memory)
        return {**self.__dict__, "_memory": memory, "_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        memory = None if state["_memory"] is None else state["_memory"].load()
        self.__dict__ |= {**state, "_memory": memory, "_pool": OutputPool()}


def _channels_last(
    stacks: npt.NDArray[Any], empty: Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]] = np.empty
) -> npt.NDArray[Any]:
    """Return ``(n, stack, H, W, C)`` as ``(n, H, W, stack * C)``, and ``(n, 1, D)`` as ``(n, D)``.

    The result is a view if possible; otherwise ``empty`` allocates it.

    >>> _channels_last(np.zeros((32, 4, 84, 84, 3))).shape
    (32, 84, 84, 12)
    """
    if stacks.ndim < 4:
        return stacks[:, -1]
    if stacks.ndim == 4:  # frames without an axis of channels
        return np.moveaxis(stacks, 1, -1)
    return np.moveaxis(stacks[..., 0], 1, -1) if stacks.shape[-1] == 1 else join_channels(stacks, empty=empty)

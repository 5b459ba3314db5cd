"""Berkeley's ``ReplayBuffer`` with frame history: frames and their effects come apart, stacks are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import MAX_CHANNELS_LAST, FrameSpec
from framestow.integrations.drop_in.paired_steps import memory_from_bytes, memory_to_bytes, num_steps_taken
from framestow.replay.action_spec import ActionSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.sampling import OutputPool
from framestow.replay.step_checks import LARGEST_REWARD

INT32 = np.iinfo(np.int32)


class Effect(NamedTuple):
    """What an action led to; ``last_frame`` only where an episode ended and its last frame was told."""

    action: int
    reward: float
    terminated: bool
    truncated: bool
    last_frame: npt.NDArray[Any] | None


class ReplayBuffer:
    """Keeps the last ``size`` transitions of one environment, each frame once and packed.

    The calls are those of homework 3 of Berkeley's deep RL course (``dqn_utils.py``, 2016 to 2018), which many scripts
    copied, gym-nes-mario-bros among them::

        idx = buffer.store_frame(frame)                      # what the environment shows
        observation = buffer.encode_recent_observation()     # the policy looks in between
        buffer.store_effect(idx, action, reward, done)
        if buffer.can_sample(32):
            observations, actions, rewards, next_observations, done_mask = buffer.sample(32)

    >>> buffer = ReplayBuffer(size=100, frame_history_len=4, seed=0)
    >>> for step in range(3):
    ...     idx = buffer.store_frame(np.full((84, 84, 1), 50 + step, np.uint8))
    ...     buffer.store_effect(idx, action=step, reward=1.0, done=False)
    >>> buffer.encode_recent_observation()[0, 0].tolist()
    [0, 50, 51, 52]
    >>> observations, actions, rewards, next_observations, done_mask = buffer.sample(2)
    >>> observations.shape, next_observations[:, 0, 0, -1].tolist(), actions.tolist()
    ((2, 84, 84, 4), [52, 51], [1, 0])

    Arguments:
        size: transitions to keep at most.
        frame_history_len: frames of an observation; zeros stand before an episode's first one.
        lander: keep ``float32`` instead of ``uint8``.
        storage: ``"packed"`` or ``"raw"``, as `ReplayMemory` has it.
        threads: how many threads unpack a batch.
        seed: of a generator of its own; ``None`` draws from Python's ``random``, as the original does.

    Where the original is right this one gives the same, the same draws from the same seed included. Where it is not:

    * *The ring's seam.* Once it is full, the original draws the newest frame, which has no successor yet and may lack
      its effect; it puts the newest frames before the oldest; and never draws the last slot. Here all ``size``
      transitions are drawn, each with its own stack.
    * *Truncation.* The original knows ``done`` alone, after which nothing is bootstrapped. See ``store_effect``.
    * *A frame whose effect never came* has, there, the action of whatever was in its slot before. Here it ends its
      episode, and is no transition.
    * *Values that do not fit,* floats in a buffer of ``uint8`` for instance, are refused, not cast.

    Next observations behind ``done`` are the original's: zeros, then the newest frame that there is, which is the next
    episode's first one. They take part in no target. There is no ``obs``, ``action``, ``reward`` or ``done`` array.
    It can be pickled, in what it takes packed.
    """

    def __init__(
        self,
        size: int,
        frame_history_len: int,
        lander: bool = False,
        *,
        storage: str = "packed",
        threads: int = 1,
        seed: int | None = None,
    ) -> None:
        if size < 1 or frame_history_len < 1:
            raise InvalidSettingsError(
                f"size is {size} and frame_history_len {frame_history_len}: both must be at least 1"
            )
        self.size, self.frame_history_len, self.lander = size, frame_history_len, lander
        self._storage, self._threads = storage, threads
        self._generator = None if seed is None else random.Random(seed)
        self._memory: ReplayMemory | None = None
        self._frame_shape: tuple[int, ...] | None = None
        self._effect: Effect | None = None
        """Of the newest frame; it becomes a step when the next frame comes."""
        self._num_frames = self._num_steps = 0
        self._pool = OutputPool()

    @property
    def memory(self) -> ReplayMemory:
        """The memory behind it; ``NothingToSampleError`` before the first frame, which says what frames are."""
        if self._memory is None:
            raise NothingToSampleError("the buffer holds no frame: its memory is made for the first; call store_frame")
        return self._memory

    @property
    def num_in_buffer(self) -> int:
        """Slots in use."""
        return min(self._num_frames, self.size)

    @property
    def next_idx(self) -> int:
        """Slot of the next frame."""
        return self._num_frames % self.size

    def store_frame(self, frame: npt.ArrayLike) -> int:
        """Store what the environment shows, and give the slot that ``store_effect`` takes.

        ``frame``: ``(H, W, C)`` pixels or a vector, of the first one's shape; copied. Raises ``InvalidStepError``
        before anything is stored.
        """
        new = self._as_stored(frame)[None]
        if self._memory is None:
            self._memory, self._frame_shape = self._make_memory(new.shape[1:]), new.shape[1:]
        if self._append_effect(self._memory, new):
            self._memory.begin(new)
        self._num_frames += 1
        return (self._num_frames - 1) % self.size

    def _append_effect(self, memory: ReplayMemory, following: npt.NDArray[Any]) -> bool:
        """Make a step of the newest frame's effect, which led to ``following``; whether an episode begins with that."""
        effect = self._effect
        if effect is None:
            return True
        is_over, last_frame = effect.terminated or effect.truncated, effect.last_frame
        if effect.truncated and not effect.terminated and last_frame is None:
            self._effect = None
            return True  # what it led to is not known
        try:
            memory.append(
                np.array([effect.action], np.int32),
                np.array([effect.reward], np.float32),
                np.array([effect.terminated]),
                np.array([effect.truncated]),
                following if last_frame is None else last_frame,
            )
            self._note_step(self._num_steps + 1)
        except BaseException:  # Ctrl-C: a memory finishes the step that it has begun
            self._note_step(num_steps_taken(memory))
            raise
        return is_over

    def _note_step(self, num_steps: int) -> None:
        """Note how many steps the memory has; where one came, the newest frame has no effect any more."""
        if num_steps > self._num_steps:
            self._effect = None
        self._num_steps = num_steps

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
        """Store what the action led to that was taken at the newest frame, which is in slot ``idx``.

        ``done`` says that the episode ended by its own rules, ``truncated`` that it was cut off; where both are true,
        ``done`` counts. ``last_frame`` is what a step showed that ended the episode. A truncated one is bootstrapped
        from it; without it, its last step is not sampled, since what it led to is not known.

        Until the next frame comes, another effect takes the place of this one. Raises ``InvalidStepError``, before
        anything is changed, for another slot, and for an action or a reward that is not one number.
        """
        newest = (self._num_frames - 1) % self.size
        if self._num_frames == 0 or idx != newest:
            raise InvalidStepError(
                f"idx is {idx}: "
                + (f"the newest frame is in slot {newest}" if self._num_frames else "no frame was stored yet")
                + "; store the effect of a frame before the next frame"
            )
        last = None if last_frame is None else self._as_stored(last_frame)[None].copy()
        self._effect = Effect(_checked_action(action), _checked_reward(reward), bool(done), bool(truncated), last)

    def encode_recent_observation(self) -> npt.NDArray[Any]:
        """Give what the policy sees at the newest frame: ``(H, W, C * frame_history_len)``, oldest first.

        A vector is given as it is. The array is the caller's. Raises ``NothingToSampleError`` before the first frame.
        """
        observation: npt.NDArray[Any] = _channels_last(self.memory.observations())[0]
        return observation

    def can_sample(self, batch_size: int) -> bool:
        """Whether ``batch_size`` different transitions can be drawn."""
        return batch_size <= self._num_sampleable

    def sample(
        self, batch_size: int
    ) -> tuple[
        npt.NDArray[Any], npt.NDArray[np.int32], npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[np.float32]
    ]:
        """Draw ``batch_size`` different transitions, each set of them equally likely.

        ================  =========================================  =============================================
        given             shape                                      dtype
        ================  =========================================  =============================================
        observations      ``(B, H, W, C * frame_history_len)``       ``uint8``, ``float32`` with ``lander``
        actions           ``(B,)``                                   ``int32``
        rewards           ``(B,)``                                   ``float32``
        next              as observations                            theirs
        done_mask         ``(B,)``                                   ``float32``: 1 where ``done``
        ================  =========================================  =============================================

        Vectors are given without history, ``(B, D)``. The arrays are the caller's, for as long as anything looks at
        them; those of grey frames lie in memory as ``(B, frame_history_len, H, W)`` does, which is what PyTorch wants
        of them. Raises ``NothingToSampleError`` where there are not as many.
        """
        if not self.can_sample(batch_size):
            raise NothingToSampleError(
                f"batch_size is {batch_size}: the buffer has {self._num_sampleable} transitions whose next frame was "
                "stored; ask can_sample first"
            )
        newest = self._num_steps - 1
        slots = np.array(self._draw_unique(batch_size), np.int64)
        batch = self.memory.get(newest - (newest - slots) % self.size)
        following = self._pool.take(batch.next_observation.shape, self._dtype)
        np.copyto(following, batch.next_observation)  # which shares its frames with the observations
        following[batch.terminated, :-1] = 0
        return (
            _channels_last(batch.observation, self._pool.take),
            batch.action,
            batch.reward,
            _channels_last(following, self._pool.take),
            batch.terminated.astype(np.float32),
        )

    @property
    def _num_sampleable(self) -> int:
        return min(self._num_steps, self.size)

    def _draw_unique(self, batch_size: int) -> list[int]:
        """Draw as the original does, one number at a time until all are different, in linear time."""
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
            storage=self._storage,
            threads=self._threads,
            seed=0,  # of a generator that this class does not draw from
        )

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.float32 if self.lander else np.uint8)

    def _as_stored(self, frame: npt.ArrayLike) -> npt.NDArray[Any]:
        """Give ``frame`` in the buffer's dtype; floats may lose precision under ``lander``, nothing else is altered."""
        given = np.asarray(frame)
        if self._frame_shape is not None and given.shape != self._frame_shape:
            raise InvalidStepError(
                f"frame has shape {given.shape}: this buffer's have {self._frame_shape}, as the first; make another "
                "buffer for other frames"
            )
        if given.dtype == self._dtype:
            return given
        with np.errstate(over="ignore", invalid="ignore"):
            kept = given.astype(self._dtype)
        if not (self.lander and given.dtype.kind == "f") and not (given.dtype.kind in "iub" and (kept == given).all()):
            raise InvalidStepError(
                f"frame has dtype {given.dtype}: this buffer keeps {self._dtype} and alters nothing; give pixels of 0 "
                "to 255, or make the buffer with lander=True for floats"
            )
        return kept

    def __getstate__(self) -> dict[str, Any]:
        memory = None if self._memory is None else memory_to_bytes(self._memory)
        return {**self.__dict__, "_memory": memory, "_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state["_memory"]
        memory = None if files is None else memory_from_bytes(files, state["_threads"])
        self.__dict__ |= {**state, "_memory": memory, "_pool": OutputPool()}


def _channels_last(
    stacks: npt.NDArray[Any], empty: Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]] = np.empty
) -> npt.NDArray[Any]:
    """Give ``(n, stack, H, W, C)`` as ``(n, H, W, stack * C)``, ``(n, 1, D)`` as ``(n, D)``; a view where it can be.

    ``empty`` makes the array where it cannot.

    >>> _channels_last(np.zeros((32, 4, 84, 84, 3))).shape
    (32, 84, 84, 12)
    """
    if stacks.ndim < 4:
        return stacks[:, -1]
    if stacks.ndim == 4:  # frames without an axis of channels
        return np.moveaxis(stacks, 1, -1)
    last = np.moveaxis(stacks, 1, -2)
    if last.shape[-1] == 1:
        return last[..., 0]
    if last.shape[-1] > MAX_CHANNELS_LAST:
        return last.reshape(*last.shape[:-2], -1)
    joined = empty(last.shape, last.dtype)
    for place in np.ndindex(last.shape[-2:]):  # a fourth of the time that copying pixel by pixel takes
        joined[(..., *place)] = last[(..., *place)]
    return joined.reshape(*last.shape[:-2], -1)


def _checked_action(action: Any) -> int:
    number = action if type(action) is int else _only_number(action, "iub")
    if number is None or not INT32.min <= number <= INT32.max:
        raise InvalidStepError(f"action is {action!r}: it must be one integer of 32 bits; give its number")
    return int(number)


def _checked_reward(reward: Any) -> float:
    number = reward if type(reward) is float else _only_number(reward, "fiub")
    if number is None or not abs(number) <= LARGEST_REWARD:
        raise InvalidStepError(
            f"reward is {reward!r}: it must be one number, finite in float32; correct the environment"
        )
    return float(number)


def _only_number(value: Any, kinds: str) -> Any:
    """The only element of ``value`` as Python has it; ``None`` where there are others, or of other kinds."""
    array = np.asarray(value)
    return array.item() if array.size == 1 and array.dtype.kind in kinds else None

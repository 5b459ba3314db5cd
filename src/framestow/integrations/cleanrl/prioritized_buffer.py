"""``PrioritizedReplayBuffer`` for CleanRL's ``rainbow_atari.py``: n-step returns, sampled by priority.

``SettledSteps`` tracks the sampleable steps: those whose n-step return is complete. It numbers slots as CleanRL's tree
does, so that the same random numbers draw the same transitions.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack, cast

import numpy as np
import numpy.typing as npt
import torch

from framestow.checks import as_array, as_flags, real_number, whole_number
from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.integrations.drop_in.memory_options import MemoryOptions, take_options
from framestow.integrations.drop_in.paired_steps import PairedSteps, check_frame_stack, steps_following
from framestow.integrations.drop_in.row_buffer import as_rows_of
from framestow.interface import one_line, plural
from framestow.replay.memory import ReplayMemory, check_batch_size, describe_memory
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import check_priorities
from framestow.replay.settings.action_spec import ActionSpec
from framestow.torch.tensor_batch import usable_device

Indices = npt.NDArray[np.int64]

SLOT_OF_EACH_ROW = "the priorities are by row of a full buffer; give a smaller capacity, or a directory"


class SettledSteps:
    """Index of the sampleable steps: the newest steps of each environment whose n-step return is complete.

    The step of row ``row`` and environment ``env_id`` has the number ``row * num_envs + env_id``. Its slot is its
    offset in a ring of ``num_slots``, counted from ``first_offset``. The next step with the same slot replaces it.

    A step is *settled* once it is known whether its return can be completed. The steps of an environment are settled in
    order, as sampleable or not.
    """

    def __init__(self, num_rows: int, num_envs: int, first_offset: int = 0) -> None:
        self.num_slots, self._num_envs, self._first_offset = num_rows * num_envs, num_envs, first_offset
        self._is_sampleable = np.zeros(self.num_slots, bool)  # by slot
        self.newest = np.full(num_envs, -1, np.int64)
        """Row of each environment's newest settled step; -1 before the first."""

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return self._is_sampleable.nbytes

    def settle(self, numbers: Indices, are_sampleable: npt.NDArray[np.bool_]) -> None:
        """Settle the next steps of some environments. Call it again if an interrupt stopped it."""
        self._is_sampleable[self.slots_for(numbers)] = are_sampleable
        rows, env_ids = np.divmod(numbers, self._num_envs)
        np.maximum.at(self.newest, env_ids, rows)

    def slots_for(self, numbers: Indices) -> Indices:
        """Return the slots of steps, whether or not they are settled."""
        return (numbers - self._first_offset) % self.num_slots

    def __len__(self) -> int:
        return int(np.count_nonzero(self._is_sampleable))

    def indices_in(self, slots: Indices) -> Indices:
        """Return the numbers of the steps in ``slots``; -1 for a slot without a sampleable step."""
        numbers = self._newest_in(slots)
        return np.where(self._is_sampleable[slots], numbers, -1)

    def find_slots(self, indices: Indices) -> Indices:
        """Return the slots of steps; -1 for steps that are not sampleable."""
        slots = self.slots_for(indices)
        return np.where(self._is_sampleable[slots] & (self._newest_in(slots) == indices), slots, -1)

    def slots_of(self, indices: Indices) -> Indices:
        """Return the slots of sampleable steps; raise ``IndexError`` for other steps."""
        slots = self.find_slots(indices)
        if (slots < 0).any():
            raise IndexError(f"step {indices[slots < 0][0]} is not sampleable; take indices from sample()")
        return slots

    def is_sampleable(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Return which of ``indices`` are sampleable."""
        return np.asarray(self.find_slots(indices) >= 0)

    def sampleable_indices(self) -> Indices:
        """Return the numbers of all sampleable steps, ascending."""
        return np.sort(self._newest_in(np.flatnonzero(self._is_sampleable)))

    def sampleable_at(self, ranks: Indices) -> Indices:
        """Return the numbers of the sampleable steps of these ranks; rank 0 is the oldest."""
        return self.sampleable_indices()[ranks]

    def sampleable_spans(self) -> Indices:
        """Return all sampleable numbers as spans of consecutive ones, ``(spans, 2)``: first number and length."""
        numbers = self.sampleable_indices()
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        return np.stack([numbers[starts], np.diff(starts, append=len(numbers))], axis=1)

    def _newest_in(self, slots: Indices) -> Indices:
        """Return the numbers of the newest settled steps with these slots."""
        offsets = (slots + self._first_offset) % self.num_slots
        newest = self.newest[offsets % self._num_envs] * self._num_envs + offsets % self._num_envs
        return np.asarray(newest - (newest - offsets) % self.num_slots)


Array = npt.NDArray[Any]

ACTIONS = ActionSpec((), "int64", 0, 2**16 - 1)  # large enough for every Discrete space; stored in two bytes


class PrioritizedBatch(NamedTuple):
    """``B`` transitions sampled by priority; all but ``indices`` are tensors on the buffer's device.

    =====================  ===============  =======  ========================================================
    field                  shape            dtype    meaning
    =====================  ===============  =======  ========================================================
    ``observations``       ``(B, *shape)``  uint8    observations
    ``actions``            ``(B, 1)``       int64    actions
    ``rewards``            ``(B, 1)``       float32  n-step returns
    ``next_observations``  ``(B, *shape)``  uint8    observations after the n steps
    ``dones``              ``(B, 1)``       bool     whether the episode terminated within the n steps
    ``indices``            ``(B,)``         int64    NumPy array of transition numbers; numbers are never reused
    ``weights``            ``(B, 1)``       float32  importance weights; the largest of the batch is 1
    =====================  ===============  =======  ========================================================
    """

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    indices: npt.NDArray[np.int64]
    weights: torch.Tensor


class PrioritizedReplayBuffer:
    """Drop-in for the class of that name in ``rainbow_atari.py``, with packed observations.

    Import it after the script's own class.

    Same as CleanRL's class: arguments, calls, probabilities and weights, and the use of ``np.random``. CleanRL's
    ``float32`` tree rounds its sums and this one does not. So about one random number in a hundred draws a neighbouring
    transition, if the buffer has a million.

    Different, because CleanRL's class is wrong there:

    - No return crosses a truncation. ``add`` has no truncation flag, and CleanRL's returns continue into the next
      episode. Here the return that ends there bootstraps from the true last observation. Not detected: a new episode
      whose first observation equals the last one of the truncated episode.
    - The last ``n_step - 1`` steps of a terminated episode are transitions with shorter returns. CleanRL drops them.
      If the episode is shorter than ``n_step``, CleanRL also drops the first steps of the next one.
    - A draw never returns an empty slot. In CleanRL's script an empty slot makes the loss NaN.
    - ``update_priorities`` ignores evicted transitions and refuses priorities that are not finite.

    The memory stores single steps, and a draw sums their rewards, in CleanRL's order: its script multiplies the next
    value by ``gamma ** n_step`` in any case, and reads the rewards as returns. A memory with this ``n_step`` gives each
    transition a ``discount`` of its own, which the script does not take.

    Arguments:
        num_envs: number of environments. ``add`` then takes arrays of ``num_envs`` rows. They share the ``capacity``.
        frame_stack: frames per observation; ``None`` decides by shape.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``, ``directory``,
            ``flush_every`` (``MemoryOptions``). A buffer that is built with a used ``directory`` resumes its steps,
            with a warning and with the priorities of new ones. Its pickle names the folder, and has the priorities.

    You may set ``beta`` at any time.

    Raises:
        InvalidSettingsError: invalid settings.
        InvalidStepError: an invalid step, before it is stored.
    """

    def __init__(
        self,
        capacity: int,
        obs_shape: tuple[int, ...],
        device: Any,
        n_step: int,
        gamma: float,
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-6,
        *,
        num_envs: int = 1,
        frame_stack: int | None = None,
        **memory: Unpack[MemoryOptions],
    ) -> None:
        reasons = {"max_bytes": f"not possible here: {SLOT_OF_EACH_ROW}"}
        options = take_options(type(self), MemoryOptions, memory, reasons)
        capacity = whole_number("capacity", capacity, 1, rule="a buffer stores at least 1 transition")
        num_envs = whole_number("num_envs", num_envs, 1, rule="a buffer has at least 1 environment")
        n_step = whole_number("n_step", n_step, 1, rule="a return has at least 1 reward")
        gamma = real_number("gamma", gamma, 0, 1, rule="it must be from 0 to 1")
        eps = real_number("eps", eps, 0, rule="it must be at least 0, and is added to each priority; CleanRL uses 1e-6")
        check_frame_stack(frame_stack)
        num_rows = capacity // num_envs
        if n_step > num_rows:
            raise InvalidSettingsError(
                f"capacity is {capacity}, num_envs {num_envs} and n_step {n_step}: the capacity must be at least "
                "n_step * num_envs, and n_step at least 1; increase the capacity"
            )
        self.device, self.gamma, self.beta = usable_device(device), gamma, beta
        self.capacity, self._n_step = capacity, n_step
        self._frame = FrameSpec(obs_shape)
        # Draws slots of ``_settled``; the memory's own sampler is not used.
        self._sampler = Prioritized(alpha, beta, epsilon=eps)
        # The newest n_step - 1 steps of each environment have no complete return yet. One more row is stored, because
        # the memory evicts the oldest row before it stores the next one, and Ctrl-C may come in between.
        self._steps = PairedSteps(
            self._frame,
            frame_stack,
            capacity=(num_rows + n_step) * num_envs,
            action_space=ACTIONS,
            num_envs=num_envs,
            **options,
        )
        # CleanRL's tree is a heap; this is its leftmost leaf.
        num_leaves = num_rows * num_envs
        # Which steps can be sampled, and their slots.
        self._settled = SettledSteps(num_rows, num_envs, (1 << (num_leaves - 1).bit_length()) - num_leaves)
        self._num_rows_seen = 0
        self._pending_slots = np.empty(0, np.int64)  # changed slots, to pass to the sampler
        # The rows of a resumed memory are settled again; of two with one slot, the newer one stays.
        self._settled.newest[:] = self._steps.oldest_row - 1
        self._settle_rows()

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the steps."""
        return self._steps.memory

    @property
    def n_step(self) -> int:
        """Number of rewards per return."""
        return self._n_step

    @property
    def alpha(self) -> float:
        """Exponent of the priorities."""
        return self._sampler.alpha

    @property
    def eps(self) -> float:
        """Constant added to each priority."""
        return self._sampler.epsilon

    @property
    def size(self) -> int:
        """Number of sampleable transitions."""
        return len(self._settled)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, the priorities and the index."""
        return self.memory.nbytes + self._sampler.nbytes + self._settled.nbytes

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return one_line(
            self, lambda: [*describe_memory(self.memory, self.size, self.capacity), f"n_step {self._n_step}"]
        )

    def add(self, obs: Array, action: Array, reward: Array, next_obs: Array, done: Array) -> None:
        """Store one step of each environment; all arrays are copied.

        ``obs`` and ``next_obs`` are ``(num_envs, *obs_shape)``, or ``obs_shape`` for one environment. If the episode
        was truncated, ``next_obs`` is its last observation. ``done`` is true if the episode terminated.
        """
        num_envs = self.memory.num_envs
        terminated = _each("dones", as_flags("done", done), num_envs)
        self._steps.add(
            as_rows_of(obs, num_envs, self._frame),
            _each("actions", action, num_envs),
            _each("rewards", reward, num_envs),
            as_rows_of(next_obs, num_envs, self._frame),
            terminated,
            np.zeros(num_envs, bool),
        )
        if self._num_rows_seen == self._steps.num_rows - 1:
            self._settle_newest_row(terminated)
        else:
            self._settle_rows()

    def sample(self, batch_size: int) -> PrioritizedBatch:
        """Sample ``batch_size`` transitions by priority, one from each of ``batch_size`` equal parts of sum(p^alpha).

        Raises:
            NothingToSampleError: no transition is complete.
        """
        batch_size = check_batch_size(batch_size)
        self._settle_rows()
        if not self.size:
            raise NothingToSampleError(
                f"the buffer has no transition with all of its {self.n_step} steps: there is nothing to sample; add "
                "more steps first"
            )
        self._sampler.beta = real_number("beta", self.beta, 0, 1, rule="it must be from 0 to 1")
        numbers, weights = self._sampler.draw(batch_size, self._settled, cast(np.random.Generator, _GlobalGenerator()))
        first = self._steps.indices(*np.divmod(numbers, self.memory.num_envs))
        steps = steps_following(self._steps, first, self.n_step)
        returns = np.zeros(batch_size)
        for power, rewards in enumerate(steps.rewards.T.astype(np.float64)):  # CleanRL's order, for equal last bits
            returns += self.gamma**power * rewards
        return PrioritizedBatch(
            self._tensor(steps.observation),
            self._tensor(steps.action.reshape(-1, 1)),
            self._tensor(returns.astype(np.float32).reshape(-1, 1)),
            self._tensor(steps.next_observation),
            self._tensor(steps.terminated.reshape(-1, 1)),
            numbers,
            self._tensor((weights / weights.max()).reshape(-1, 1)),
        )

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Set the priorities of the transitions with these ``indices`` to the absolute values of ``priorities``.

        Arguments:
            indices: Indices of a batch.
            priorities: Losses or TD errors, one for each index.

        Raises:
            InvalidSettingsError: before any change, if the shapes differ or a value is not finite.
        """
        numbers, errors = check_priorities(indices, priorities)
        self._sampler.update_priorities(numbers, errors, self._settled)
        self._keep_largest(numbers, errors)

    def _keep_largest(self, numbers: npt.NDArray[np.int64], errors: npt.NDArray[np.floating[Any]]) -> None:
        """Use CleanRL's largest priority for new transitions, even if a later row of the same update replaced it."""
        are_stored = self._settled.find_slots(numbers) >= 0
        numbers, errors = numbers[are_stored], errors[are_stored]
        if not len(numbers):
            return
        largest = np.abs(errors).argmax()
        last = np.flatnonzero(numbers == numbers[largest])[-1]
        if last != largest:
            for row in (largest, last):
                self._sampler.update_priorities(numbers[[row]], errors[[row]], self._settled)

    def _settle_newest_row(self, terminated: Array) -> None:
        """Settle steps after one new row: like ``_settle_rows``, in a quarter of the time."""
        num_envs, row = self.memory.num_envs, self._steps.num_rows - 1
        numbers: list[int] = []
        are_sampleable: list[bool] = []
        for env_id, (newest, first) in enumerate(zip(self._settled.newest, self._steps.episode_rows, strict=True)):
            last = row if terminated[env_id] else row - self.n_step + 1
            for waiting in range(newest + 1, max(last + 1, first)):
                numbers.append(waiting * num_envs + env_id)
                are_sampleable.append(waiting >= first)
        self._settle(np.array(numbers, np.int64), np.array(are_sampleable, bool))

    def _settle_rows(self) -> None:
        """Settle steps after new rows, or again after an interrupt (Ctrl-C)."""
        steps = self._steps
        if self._num_rows_seen == steps.num_rows:
            return
        num_envs, newest_row = self.memory.num_envs, steps.num_rows - 1
        waiting = [np.arange(newest + 1, newest_row + 1) for newest in self._settled.newest]
        rows, env_ids = np.concatenate(waiting), np.repeat(np.arange(num_envs), [len(some) for some in waiting])
        found = self.memory.steps_from(steps.indices(rows, env_ids), self.n_step)
        is_sampleable = (found.index[:, -1] >= 0) | found.terminated.any(axis=1)
        # Steps that still reach the newest row wait. A new episode cut off the others, with too few rewards.
        is_settled = is_sampleable | (found.index.max(axis=1) < steps.indices(newest_row, env_ids))
        self._settle((rows * num_envs + env_ids)[is_settled], is_sampleable[is_settled])

    def _settle(self, numbers: npt.NDArray[np.int64], are_sampleable: npt.NDArray[np.bool_]) -> None:
        if len(numbers):
            self._pending_slots = np.concatenate([self._pending_slots, self._settled.slots_for(numbers)])
            self._settled.settle(numbers, are_sampleable)
        if len(self._pending_slots):
            self._sampler.slots_changed(self._pending_slots, self._settled)
            self._pending_slots = self._pending_slots[:0]
        self._num_rows_seen = self._steps.num_rows

    def _tensor(self, array: Array) -> torch.Tensor:
        return torch.from_numpy(self._steps.copies.of(array)).to(self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sampler": self._sampler.state(self._settled)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._sampler = Prioritized(**state["_sampler"]["settings"])
        self._sampler.restore(state["_sampler"], self._settled)


class _GlobalGenerator:
    """``np.random`` as a sampler's generator, so that the script's ``np.random.seed`` determines the draws."""

    @staticmethod
    def random(count: int) -> npt.NDArray[np.float64]:
        """Return ``count`` uniform random numbers in [0, 1)."""
        return np.random.random(count)


def _each(name: str, values: Any, num_envs: int) -> Array:
    """Return one value per environment; a single value is repeated."""
    array = as_array(name, values, InvalidStepError)
    if array.shape == (num_envs,):
        return array
    if array.shape not in ((), (1,)):
        there_are = "is 1 environment" if num_envs == 1 else f"are {plural(num_envs, 'environment')}"
        raise InvalidStepError(
            f"{name} have shape {array.shape}: there {there_are}; give one value for each, or create the buffer with "
            f"num_envs={array.size}"
        )
    return np.broadcast_to(array, num_envs)

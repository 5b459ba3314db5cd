"""The buffer of rainbow_atari.py: returns of n steps, drawn by priority."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.integrations.cleanrl.replay_buffer import copied_tensor
from framestow.integrations.drop_in.paired_steps import PairedSteps, steps_following
from framestow.integrations.drop_in.row_buffer import RowMemoryFactory, as_rows_of
from framestow.replay.action_spec import ActionSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.sampler import checked_priorities

Indices = npt.NDArray[np.int64]


class SettledSteps:
    """What a `Sampler` is told of as held: of each stream the steps whose returns are known, the newest of them.

    Step ``row`` of ``stream`` has the number ``row * num_envs + stream``, which is its index here. This modulo
    ``num_slots`` is its place in a ring, whose place ``first_place`` is slot 0. It leaves when the step that takes its
    slot is settled. The steps of a stream are settled in order: as drawable, or as passed over, where their return can
    never be known.
    """

    def __init__(self, num_rows: int, num_envs: int, first_place: int = 0) -> None:
        self.num_slots, self._num_streams, self._first_place = num_rows * num_envs, num_envs, first_place
        self._is_sampleable = np.zeros(self.num_slots, bool)
        self.newest = np.full(num_envs, -1, np.int64)
        """Row of each stream's newest settled step; -1 before the first."""

    @property
    def nbytes(self) -> int:
        """Bytes of what is known of each slot."""
        return self._is_sampleable.nbytes

    def settle(self, numbers: Indices, are_sampleable: npt.NDArray[np.bool_]) -> None:
        """Settle the next steps of any streams; broken off by an interrupt it may be called again."""
        self._is_sampleable[self.slots_for(numbers)] = are_sampleable
        rows, streams = np.divmod(numbers, self._num_streams)
        np.maximum.at(self.newest, streams, rows)

    def slots_for(self, numbers: Indices) -> Indices:
        """Give the slots that steps have, settled or not."""
        return (numbers - self._first_place) % self.num_slots

    def __len__(self) -> int:
        return int(np.count_nonzero(self._is_sampleable))

    def indices_in(self, slots: Indices) -> Indices:
        """Give the numbers of the steps in ``slots``, -1 where there is none that may be drawn."""
        numbers = self._newest_in(slots)
        return np.where(self._is_sampleable[slots], numbers, -1)

    def find_slots(self, indices: Indices) -> Indices:
        """Give the slots of steps, -1 for those that may not be drawn."""
        slots = self.slots_for(indices)
        return np.where(self._is_sampleable[slots] & (self._newest_in(slots) == indices), slots, -1)

    def slots_of(self, indices: Indices) -> Indices:
        """Give the slots of steps that may be drawn; ``IndexError`` for another one."""
        slots = self.find_slots(indices)
        if (slots < 0).any():
            raise IndexError(f"step {indices[slots < 0][0]} may not be drawn")
        return slots

    def is_held(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Which of ``indices`` may be drawn."""
        return np.asarray(self.find_slots(indices) >= 0)

    def held_indices(self) -> Indices:
        """Give the numbers of all steps that may be drawn, ascending."""
        return np.sort(self._newest_in(np.flatnonzero(self._is_sampleable)))

    def held_at(self, ranks: Indices) -> Indices:
        """Give the numbers of the steps of those ranks, 0 being the oldest."""
        return self.held_indices()[ranks]

    def held_runs(self) -> Indices:
        """Give all numbers as runs of consecutive ones: first and how many of each, ``(runs, 2)``."""
        numbers = self.held_indices()
        starts = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        return np.stack([numbers[starts], np.diff(starts, append=len(numbers))], axis=1)

    def _newest_in(self, slots: Indices) -> Indices:
        """Give the newest settled steps that these slots can hold."""
        places = (slots + self._first_place) % self.num_slots
        newest = self.newest[places % self._num_streams] * self._num_streams + places % self._num_streams
        return np.asarray(newest - (newest - places) % self.num_slots)


Array = npt.NDArray[Any]

ACTIONS = ActionSpec((), "int64", 0, 2**16 - 1)  # of any Discrete space there is; two bytes each


class PrioritizedBatch(NamedTuple):
    """What is sampled by priority, ``B`` transitions; tensors on the buffer's device but for ``indices``.

    =====================  ===============  =======  ========================================================
    field                  shape            dtype    meaning
    =====================  ===============  =======  ========================================================
    ``observations``       ``(B, *shape)``  uint8    what the policy saw
    ``actions``            ``(B, 1)``       int64    what it did
    ``rewards``            ``(B, 1)``       float32  the n-step return
    ``next_observations``  ``(B, *shape)``  uint8    what it saw after these steps
    ``dones``              ``(B, 1)``       bool     the episode terminated within them
    ``indices``            ``(B,)``         int64    numbers of the transitions, an array; never given twice
    ``weights``            ``(B, 1)``       float32  importance weights, the largest of the batch 1
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
    """The class of that name in ``rainbow_atari.py``: its arguments, its calls, its draws by ``np.random``.

    A transition is as likely to be drawn as there, by the same numbers of ``np.random``, and has the same weight, but
    for what ``float32`` rounds: CleanRL's tree rounds its sums, this one does not, so that a number at the edge of two
    transitions may take the other one (of a million transitions, one number in a hundred).

    What is otherwise, because CleanRL's is wrong there:

    - A return that would go on behind a truncation is no transition. ``add`` is told of no truncation, and CleanRL's
      returns go on into the next episode. The one that ends there bootstraps from the true last observation. (Where the
      next episode begins with the very observation that the one before was cut off at, nobody can tell.)
    - Each of the last ``n_step`` - 1 steps of a terminated episode is a transition too, with the shorter return that is
      there. CleanRL forgets them, and where an episode is shorter than ``n_step`` the beginning of the next one too.
    - A draw never takes an empty slot, which gives CleanRL's script a loss of NaN.
    - A priority for a transition that has left meanwhile is left out, and one that is not finite is refused.

    ``num_envs`` environments feed it, each with its own returns; ``add`` then takes arrays of so many rows, and they
    share the ``capacity``. ``frame_stack``: frames of an observation; ``None`` finds out. ``threads``: how many unpack
    a batch. ``storage``: ``"packed"``, or ``"raw"`` for frames as they are, each once. ``beta`` may be set at any time.

    Raises ``InvalidSettingsError`` for what cannot work, ``InvalidStepError``, before it is stored, for a step that
    breaks a rule of the memory's.
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
        threads: int = 1,
        storage: str = "packed",
    ) -> None:
        num_rows = capacity // num_envs if num_envs > 0 else 0
        if num_rows < 1 or not 1 <= n_step <= num_rows:
            raise InvalidSettingsError(
                f"capacity is {capacity}, num_envs {num_envs} and n_step {n_step}: each environment has at least "
                "n_step transitions of the capacity, and n_step is at least 1; give a larger capacity"
            )
        self.device, self.gamma, self.beta = device, gamma, beta
        self.capacity, self._n_step = capacity, n_step
        self._frame = FrameSpec(tuple(obs_shape))
        # A transition is drawn until as many newer ones are complete, which the newest n_step - 1 steps are not. The
        # oldest step goes before the next one is there: one more is kept, in case Ctrl-C comes between.
        make_memory = RowMemoryFactory((num_rows + n_step) * num_envs, ACTIONS, num_envs, threads, storage)
        self._steps = PairedSteps(make_memory, self._frame, frame_stack)
        # CleanRL's tree is a heap: its leaves, from left to right, begin with this one.
        num_leaves = num_rows * num_envs
        self._settled = SettledSteps(num_rows, num_envs, (1 << (num_leaves - 1).bit_length()) - num_leaves)
        self._sampler = Prioritized(alpha, beta, epsilon=eps)
        self._num_rows_seen, self._pending_slots = (
            0,
            np.empty(0, np.int64),
        )  # slots that the sampler does not know of yet

    @property
    def memory(self) -> ReplayMemory:
        """What holds the steps; another one where observations turn out not to be stacks."""
        return self._steps.memory

    @property
    def n_step(self) -> int:
        """Rewards of a return."""
        return self._n_step

    @property
    def alpha(self) -> float:
        """How much priorities count."""
        return self._sampler.alpha

    @property
    def eps(self) -> float:
        """What is added to each priority."""
        return self._sampler.epsilon

    @property
    def size(self) -> int:
        """How many transitions may be drawn."""
        return len(self._settled)

    @property
    def nbytes(self) -> int:
        """Bytes of the memory, the priorities and what finds them."""
        return self.memory.nbytes + self._sampler.nbytes + self._settled.nbytes

    def __len__(self) -> int:
        return self.size

    def add(self, obs: Array, action: Array, reward: Array, next_obs: Array, done: Array) -> None:
        """Store a step of each environment; all is copied.

        ``obs``, ``next_obs``: ``(num_envs, *obs_shape)``, of one environment without the first axis too; ``next_obs``
        is the episode's last observation where it was truncated. ``done``: whether it terminated.
        """
        num_envs = self.memory.num_envs
        terminated = _each("dones", done, num_envs).astype(bool)
        self._steps.add(
            as_rows_of(obs, num_envs, self._frame),
            _each("actions", action, num_envs),
            _each("rewards", reward, num_envs),
            terminated,
            np.zeros(num_envs, bool),
            as_rows_of(next_obs, num_envs, self._frame),
        )
        if self._num_rows_seen == self._steps.num_rows - 1:
            self._settle_newest_row(terminated)
        else:
            self._settle_rows()

    def sample(self, batch_size: int) -> PrioritizedBatch:
        """Draw ``batch_size`` transitions, one from each of as many equal parts of the sum of p^alpha.

        Raises ``NothingToSampleError`` while there is none.
        """
        self._settle_rows()
        if not self.size:
            raise NothingToSampleError(
                f"the buffer holds no transition with all of its {self.n_step} steps: nothing can be sampled; add more"
            )
        self._sampler.beta = float(self.beta)
        numbers, weights = self._sampler.draw(batch_size, self._settled, cast(np.random.Generator, _GlobalGenerator()))
        first = self._steps.indices(*np.divmod(numbers, self.memory.num_envs))
        steps = steps_following(self._steps, first, self.n_step)
        returns = np.zeros(batch_size)
        for power, rewards in enumerate(steps.rewards.T.astype(np.float64)):  # another order gives other last bits
            returns += self.gamma**power * rewards
        return PrioritizedBatch(
            self._tensor(steps.observation),
            self._tensor(steps.action[:, None]),
            self._tensor(returns.astype(np.float32)[:, None]),
            self._tensor(steps.next_observation),
            self._tensor(steps.terminated[:, None]),
            numbers,
            self._tensor((weights / weights.max())[:, None]),
        )

    def update_priorities(self, indices: npt.ArrayLike, priorities: npt.ArrayLike) -> None:
        """Take the losses or TD errors, of any sign, of the transitions with these ``indices`` of a batch.

        Raises ``InvalidSettingsError``, and changes nothing, for shapes that differ and for what is not finite.
        """
        numbers, errors = checked_priorities(indices, priorities)
        self._sampler.update_priorities(numbers, errors, self._settled)
        self._keep_largest(numbers, errors)

    def _keep_largest(self, numbers: npt.NDArray[np.int64], errors: npt.NDArray[np.floating[Any]]) -> None:
        """Give new transitions CleanRL's largest priority, also one that a later row of the same update replaced."""
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
        """Find what can be drawn since one new row came: as ``_settle_rows`` does, in a quarter of the time."""
        num_envs, row = self.memory.num_envs, self._steps.num_rows - 1
        numbers: list[int] = []
        are_sampleable: list[bool] = []
        for stream, (newest, first) in enumerate(zip(self._settled.newest, self._steps.episode_rows, strict=True)):
            last = row if terminated[stream] else row - self.n_step + 1
            for waiting in range(newest + 1, max(last + 1, first)):
                numbers.append(waiting * num_envs + stream)
                are_sampleable.append(waiting >= first)
        self._settle(np.array(numbers, np.int64), np.array(are_sampleable, bool))

    def _settle_rows(self) -> None:
        """Find what can be drawn since new rows came, after an interrupt (Ctrl-C) all of it again."""
        steps = self._steps
        if self._num_rows_seen == steps.num_rows:
            return
        num_envs, newest_row = self.memory.num_envs, steps.num_rows - 1
        waiting = [np.arange(newest + 1, newest_row + 1) for newest in self._settled.newest]
        rows, streams = np.concatenate(waiting), np.repeat(np.arange(num_envs), [len(some) for some in waiting])
        found = self.memory.steps_from(steps.indices(rows, streams), self.n_step)
        is_sampleable = (found.index[:, -1] >= 0) | found.terminated.any(axis=1)
        # What else goes on to the newest row waits. The rest was cut off by a beginning, with too few rewards.
        is_settled = is_sampleable | (found.index.max(axis=1) < steps.indices(newest_row, streams))
        self._settle((rows * num_envs + streams)[is_settled], is_sampleable[is_settled])

    def _settle(self, numbers: npt.NDArray[np.int64], are_sampleable: npt.NDArray[np.bool_]) -> None:
        if len(numbers):
            self._pending_slots = np.concatenate([self._pending_slots, self._settled.slots_for(numbers)])
            self._settled.settle(numbers, are_sampleable)
        if len(self._pending_slots):
            self._sampler.slots_changed(self._pending_slots, self._settled)
            self._pending_slots = self._pending_slots[:0]
        self._num_rows_seen = self._steps.num_rows

    def _tensor(self, array: Array) -> torch.Tensor:
        return copied_tensor(array, self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sampler": self._sampler.state(self._settled)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._sampler = Prioritized(**state["_sampler"]["settings"])
        self._sampler.restore(state["_sampler"], self._settled)


class _GlobalGenerator:
    """``np.random``, where a sampler takes a generator: so the script's ``np.random.seed`` settles its draws."""

    @staticmethod
    def random(count: int) -> npt.NDArray[np.float64]:
        """Give ``count`` numbers from 0 to 1, 1 excluded."""
        return np.random.random(count)


def _each(name: str, values: Any, num_envs: int) -> Array:
    """Give one value an environment; a lone one counts for all, as NumPy would assign it."""
    array = np.asarray(values)
    if array.shape == (num_envs,):
        return array
    if array.shape not in ((), (1,)):
        there_are = "is 1 environment" if num_envs == 1 else f"are {num_envs} environments"
        raise InvalidStepError(f"{name} have shape {array.shape}: there {there_are}; give one value for each")
    return np.broadcast_to(array, num_envs)

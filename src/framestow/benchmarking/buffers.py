"""Each library's own calls behind one protocol, ``Buffer``: over that library's buffers, and over framestow's drop-ins.

``framestow bench`` and the scripts in ``benchmarks/`` choose settings, and build the buffers that are given here.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Row


class BatchArrays(NamedTuple):
    """What of a batch is compared with the play; shapes begin with ``(batch,)``, of sequences ``(batch, L)``."""

    observations: npt.NDArray[np.uint8]  # (..., stack, *frame)
    next_observations: npt.NDArray[np.uint8] | None  # None where the next step of a sequence shows them
    rewards: npt.NDArray[Any]  # of one step, or of n steps
    actions: npt.NDArray[Any]
    discounts: npt.NDArray[Any] | None = None  # of the values after the transitions
    mask: npt.NDArray[np.bool_] | None = None  # which steps of a sequence are of its episode; None if all are


class Buffer(Protocol):
    """A replay memory, by its library's own calls."""

    def prepare(self, row: Row) -> Any:
        """Return what the library's own collector passes to ``add``."""

    def add(self, prepared: Any) -> object:
        """Store what ``prepare`` returned."""

    def sample(self, batch_size: int) -> Any:
        """Sample a batch uniformly, as a learner does."""

    def as_arrays(self, batch: Any) -> BatchArrays:
        """Convert what ``sample`` returned to arrays."""

    def read_reported_bytes(self) -> int:
        """Return the bytes that the memory itself reports; 0 if it reports none."""
        return 0


class LibraryBuffer(Buffer):
    """A buffer of a library, or a drop-in, whose memory reports its bytes."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer

    def sample(self, batch_size: int) -> Any:
        return self.buffer.sample(batch_size)

    def read_reported_bytes(self) -> int:
        return self.buffer.memory.nbytes if hasattr(self.buffer, "memory") else 0


class FramestowBuffer(Buffer):
    """``ReplayMemory``, by ``begin`` and ``append``."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory

    def prepare(self, row: Row) -> Any:
        return row

    def add(self, prepared: Row) -> None:
        if prepared.starting:
            self.memory.begin(prepared.observations[prepared.starting, -1], prepared.starting)
        self.memory.append(
            prepared.actions,
            prepared.rewards,
            prepared.terminated,
            prepared.truncated,
            prepared.next_observations[:, -1],
        )

    def sample(self, batch_size: int) -> Any:
        return self.memory.sample(batch_size)

    def as_arrays(self, batch: Any) -> BatchArrays:
        mask = getattr(batch, "mask", None)  # of sequences
        parts = batch.observation, batch.next_observation, batch.reward, batch.action, batch.discount
        return BatchArrays(*parts, mask=mask)

    def read_reported_bytes(self) -> int:
        nbytes: int = self.memory.nbytes
        return nbytes


class StableBaselines3Buffer(LibraryBuffer):
    """Stable-Baselines3's calls, which CleanRL's buffer and sb3-extra-buffers have too."""

    def prepare(self, row: Row) -> Any:
        infos = [{"TimeLimit.truncated": truncated} for truncated in (row.truncated & ~row.terminated).tolist()]
        return row.observations, row.next_observations, row.actions, row.rewards, row.ended, infos

    def add(self, prepared: Any) -> object:
        return self.buffer.add(*prepared)

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(
            batch.observations.numpy(),
            batch.next_observations.numpy(),
            batch.rewards.numpy().ravel(),
            batch.actions.numpy().ravel(),
        )


class TianshouBuffer(LibraryBuffer):
    """Tianshou's calls. ``buffer_ids`` is ``[0]`` for a buffer of one environment, None for one of several."""

    def __init__(self, buffer: Any, buffer_ids: Sequence[int] | None = None) -> None:
        from tianshou.data import Batch

        super().__init__(buffer)
        self._batch_type, self._buffer_ids = Batch, buffer_ids

    def prepare(self, row: Row) -> Any:
        return self._batch_type(
            obs=row.observations,
            act=row.actions,
            rew=row.rewards,
            terminated=row.terminated,
            truncated=row.truncated,
            obs_next=row.next_observations,
            info=self._batch_type(),
        )

    def add(self, prepared: Any) -> object:
        return self.buffer.add(prepared, self._buffer_ids)

    def sample(self, batch_size: int) -> Any:
        return self.buffer.sample(batch_size)[0]

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(batch.obs, batch.obs_next, batch.rew, batch.act)


def quiet_torchrl() -> None:
    """Import TorchRL without its messages."""
    import torchrl.data  # noqa: F401 -- sets up its logger

    logging.getLogger("torchrl").setLevel(logging.WARNING)


class TorchRLBuffer(LibraryBuffer):
    """TorchRL's calls: TensorDicts of any number of steps, whose ``next`` has what follows."""

    def prepare(self, row: Row) -> Any:
        import torch
        from tensordict import TensorDict

        columns = {"reward": row.rewards, "terminated": row.terminated, "truncated": row.truncated, "done": row.ended}
        following = {name: torch.from_numpy(column)[:, None] for name, column in columns.items()}
        following["observation"] = torch.from_numpy(np.array(row.next_observations))
        step = {"action": torch.from_numpy(row.actions), "observation": torch.from_numpy(np.array(row.observations))}
        return TensorDict({**step, "next": TensorDict(following, [len(row.actions)])}, [len(row.actions)])

    def add(self, prepared: Any) -> object:
        return self.buffer.extend(prepared)

    def as_arrays(self, batch: Any) -> BatchArrays:
        following = batch["next"]
        return BatchArrays(
            batch["observation"].numpy(),
            following["observation"].numpy(),
            following["reward"].numpy().squeeze(-1),
            batch["action"].numpy(),
        )


class TorchRLFlatBuffer(TorchRLBuffer):
    """TorchRL's calls with the next observation beside the observation.

    ``CompressedListStorage`` compresses the tensors at the root of a TensorDict only.
    """

    def prepare(self, row: Row) -> Any:
        step = super().prepare(row)
        following = step.pop("next")
        step["next_observation"] = following.pop("observation")
        return step.update(following)

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(
            batch["observation"].numpy(),
            batch["next_observation"].numpy(),
            batch["reward"].numpy().squeeze(-1),
            batch["action"].numpy(),
        )


class FlashbaxBuffer(Buffer):
    """flashbax's calls, of one environment; the next observation is that of the following step."""

    def __init__(self, buffer: Any, stack_shape: tuple[int, ...], seed: int) -> None:
        import jax

        self._jax = jax
        self._add, self._sample = jax.jit(buffer.add, donate_argnums=0), jax.jit(buffer.sample)
        self._state = buffer.init(self._step(np.zeros(stack_shape, np.uint8), 0, 0, False))
        self._key = jax.random.key(seed)

    @staticmethod
    def _step(observation: npt.NDArray[np.uint8], action: Any, reward: Any, terminated: Any) -> dict[str, Any]:
        numbers = {"action": np.int32(action), "reward": np.float32(reward), "terminated": np.bool_(terminated)}
        return {"observation": observation, **numbers}

    def prepare(self, row: Row) -> Any:
        return self._step(row.observations[0], row.actions[0], row.rewards[0], row.terminated[0])

    def add(self, prepared: Any) -> None:
        self._state = self._add(self._state, prepared)

    def sample(self, batch_size: int) -> Any:  # noqa: ARG002 -- the buffer was built with it
        self._key, key = self._jax.random.split(self._key)
        return self._jax.block_until_ready(self._sample(self._state, key).experience)

    def as_arrays(self, batch: Any) -> BatchArrays:
        first, second = batch.first, batch.second
        parts = first["observation"], second["observation"], first["reward"], first["action"]
        return BatchArrays(*map(np.asarray, parts))


class CpprbBuffer(LibraryBuffer):
    """cpprb's calls, of steps that are one after another; the stack is the last axis, as the library requires."""

    @staticmethod
    def columns(stack_shape: tuple[int, ...], *observations: str) -> dict[str, Any]:
        """Return what cpprb's buffers are built with; ``stack_shape`` is ``(*frame, stack)``."""
        stacks = {name: {"shape": stack_shape, "dtype": np.uint8} for name in observations}
        return {**stacks, "act": {"dtype": np.int64}, "rew": {"dtype": np.float32}, "done": {"dtype": np.bool_}}

    def prepare(self, row: Row) -> Any:
        columns = {
            "obs": np.moveaxis(row.observations, 1, -1),
            "act": row.actions,
            "rew": row.rewards,
            "done": row.terminated,
            "next_obs": np.moveaxis(row.next_observations, 1, -1),
        }
        return columns, bool(row.ended[-1])

    def add(self, prepared: Any) -> None:
        columns, has_ended = prepared
        self.buffer.add(**columns)
        if has_ended:
            self.buffer.on_episode_end()

    def as_arrays(self, batch: Any) -> BatchArrays:
        observations, next_observations = (np.moveaxis(batch[name], -1, 1) for name in ("obs", "next_obs"))
        return BatchArrays(observations, next_observations, batch["rew"].ravel(), batch["act"].ravel())


class LazyFrames:
    """A stack that shares its frames with its neighbours; an array of it is built when one is requested."""

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[npt.NDArray[np.uint8], ...]) -> None:
        self.frames = frames

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Stack the frames; keeping the result would undo the sharing (Baselines issues 295 and 896)."""
        return np.stack(self.frames).astype(dtype or np.uint8, copy=False)


class LazyFramesBuffer(Buffer):
    """A list of Python tuples, as the DQN of OpenAI Baselines has it, of one environment.

    One object is a step's next observation and the following step's observation.
    """

    def __init__(self, seed: int) -> None:
        self._transitions: list[tuple[LazyFrames, int, float, LazyFrames, bool]] = []
        self._generator = np.random.default_rng(seed)
        self._newest: LazyFrames | None = None

    def prepare(self, row: Row) -> Any:
        return row

    def add(self, prepared: Row) -> None:
        [stack], [next_stack], observation = prepared.observations, prepared.next_observations, self._newest
        if prepared.starting or observation is None:
            observation = LazyFrames((stack[-1].copy(),) * len(stack))
        self._newest = LazyFrames((*observation.frames[1:], next_stack[-1].copy()))
        step = int(prepared.actions[0]), float(prepared.rewards[0]), self._newest, bool(prepared.terminated[0])
        self._transitions.append((observation, *step))

    def sample(self, batch_size: int) -> Any:
        indices = self._generator.integers(len(self._transitions), size=batch_size).tolist()
        observations, actions, rewards, next_observations, terminated = zip(
            *[self._transitions[index] for index in indices], strict=True
        )
        return (
            np.stack([np.asarray(observation) for observation in observations]),
            np.array(actions),
            np.array(rewards, np.float32),
            np.stack([np.asarray(observation) for observation in next_observations]),
            np.array(terminated),
        )

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(batch[0], batch[3], batch[2], batch[1])

"""The memories that are measured: one protocol, an adapter for each library, and the registry."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from framestow.benchmarking.play import Step
from framestow.errors import InvalidSettingsError, MissingExtraError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.batch import Batch
from framestow.replay.memory import ReplayMemory
from framestow.storage.storages import STORAGES


@dataclass(frozen=True)
class Task:
    """What a system has to keep and to hand out."""

    capacity: int  # transitions
    frame_shape: tuple[int, ...]
    stack: int  # frames an observation
    num_actions: int
    batch_size: int
    threads: int
    """Threads that framestow unpacks a batch with."""
    seed: int

    @property
    def stack_shape(self) -> tuple[int, ...]:
        """Shape of an observation, oldest frame first."""
        return (self.stack, *self.frame_shape)

    @property
    def stack_bytes(self) -> int:
        """Bytes of an observation."""
        return int(np.prod(self.stack_shape))


class Pictures(NamedTuple):
    """What of a batch can be held against the play: ``(batch, stack, *frame)`` twice, and ``(batch,)``."""

    observations: npt.NDArray[np.uint8]
    next_observations: npt.NDArray[np.uint8]
    rewards: npt.NDArray[Any]


class System(Protocol):
    """A memory of one stream of steps: fed, sampled from uniformly, and asked what it gave.

    ``__init__`` takes a `Task` and imports what it needs; whatever it raises leaves the system out of the table.
    """

    name: ClassVar[str]
    setting: ClassVar[str]
    gives_up: ClassVar[str]
    """What is lost at this setting, in words; empty if nothing."""
    keeps_final_frames: ClassVar[bool]
    """Whether the observation after an episode's last step comes back."""
    uses_torch: ClassVar[bool]
    """Whether PyTorch's number of threads matters to ``sample``."""

    def __init__(self, task: Task) -> None: ...

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Bytes that are reserved for each transition beforehand."""

    def append(self, step: Step) -> None:
        """Keep one step."""

    def sample(self) -> Any:
        """Draw a batch uniformly, as a learner would."""

    def pictures(self, batch: Any) -> Pictures:
        """Give what ``sample`` returned as arrays."""

    def bytes_told(self) -> int:
        """Bytes that the system itself says it takes; 0 if it does not tell."""
        return 0


class OwnMemory(System):
    """`ReplayMemory` with one stream; the subclasses name the storage."""

    _storage: ClassVar[str]
    setting = ""
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, task: Task) -> None:
        self._memory = ReplayMemory(
            task.capacity,
            FrameSpec(task.frame_shape),
            task.num_actions,
            stack=task.stack,
            storage=self._storage,
            threads=task.threads,
            seed=task.seed,
        )
        self._batch_size = task.batch_size

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves its columns; frames come as they come."""
        return 12

    def append(self, step: Step) -> None:
        """Store the newest frame, and at an episode's beginning its first."""
        if step.starts_episode:
            self._memory.begin(step.observation[-1:])
        self._memory.append(
            [step.action], [step.reward], [step.terminated], [step.truncated], step.next_observation[-1:]
        )

    def sample(self) -> Batch:
        """Draw a batch into recycled arrays."""
        return self._memory.sample(self._batch_size)

    def pictures(self, batch: Batch) -> Pictures:
        """Give the batch's own arrays."""
        return Pictures(batch.observation, batch.next_observation, batch.reward)

    def bytes_told(self) -> int:
        """Count all parts of the memory."""
        return self._memory.nbytes


OWN_SYSTEMS: tuple[type[OwnMemory], ...] = tuple(
    type(f"Own{storage.title()}", (OwnMemory,), {"name": f"framestow, {storage}", "_storage": storage})
    for storage in STORAGES
)


class StableBaselines3(System):
    """``optimize_memory_usage`` halves the bytes; the library forbids ``handle_timeout_termination`` beside it."""

    name = "Stable-Baselines3"
    setting = "optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False
    uses_torch = True

    def __init__(self, task: Task) -> None:
        from gymnasium.spaces import Box, Discrete
        from stable_baselines3.common.buffers import ReplayBuffer

        self._batch_size = task.batch_size
        self._buffer = ReplayBuffer(
            task.capacity,
            Box(0, 255, task.stack_shape, np.uint8),
            Discrete(task.num_actions),
            device="cpu",
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves a stack a transition."""
        return task.stack_bytes + 20

    def append(self, step: Step) -> None:
        """Add the step as a vector environment of one would."""
        self._buffer.add(
            step.observation[None],
            step.next_observation[None],
            np.array([step.action]),
            np.array([step.reward]),
            np.array([step.terminated or step.truncated]),
            [{}],
        )

    def sample(self) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample(self._batch_size)

    def pictures(self, batch: Any) -> Pictures:
        """Look at the tensors as arrays."""
        return Pictures(batch.observations.numpy(), batch.next_observations.numpy(), batch.rewards.numpy().ravel())


class Tianshou(System):
    """Single frames, stacked when sampled: the least memory that the buffer can do with."""

    name = "Tianshou"
    setting = "stack_num, save_only_last_obs, ignore_obs_next"
    gives_up = "the final frame of an episode"
    keeps_final_frames = False
    uses_torch = False

    def __init__(self, task: Task) -> None:
        from tianshou.data import Batch, ReplayBuffer

        self._step_type = Batch
        self._batch_size = task.batch_size
        self._buffer = ReplayBuffer(
            task.capacity,
            stack_num=task.stack,
            ignore_obs_next=True,
            save_only_last_obs=True,
            random_seed=task.seed,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves a frame a transition."""
        return task.stack_bytes // task.stack + 40

    def append(self, step: Step) -> None:
        """Add the step; the buffer takes the newest frame out of the stack."""
        self._buffer.add(
            self._step_type(
                obs=step.observation,
                act=step.action,
                rew=step.reward,
                terminated=step.terminated,
                truncated=step.truncated,
                obs_next=step.next_observation,
                info={},
            )
        )

    def sample(self) -> Any:
        """Draw a batch of arrays."""
        batch, _ = self._buffer.sample(self._batch_size)
        return batch

    def pictures(self, batch: Any) -> Pictures:
        """Give the batch's own arrays."""
        return Pictures(batch.obs, batch.obs_next, batch.rew)


class TorchRL(System):
    """Stacks and next stacks as one flat TensorDict in a tensor storage, without prefetching.

    A thread that samples ahead could be put before every system here; what is measured is a batch that is asked for.
    Three quarters of the time is PyTorch's indexing of ``uint8`` tensors (820 of 1,170 µs on a busy machine), so
    LazyMemmapStorage takes as long; ListStorage took a tenth less, with a dozen Python objects a transition.
    """

    name = "TorchRL"
    setting = "LazyTensorStorage"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = True

    def __init__(self, task: Task) -> None:
        import torch
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, ReplayBuffer

        logging.getLogger("torchrl").setLevel(logging.WARNING)

        self._torch, self._dict_type = torch, TensorDict
        self._buffer = ReplayBuffer(storage=LazyTensorStorage(task.capacity), batch_size=task.batch_size)

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves two stacks a transition."""
        return 2 * task.stack_bytes + 20

    def append(self, step: Step) -> None:
        """Add the step as a TensorDict without a batch dimension."""
        tensor = self._torch.as_tensor
        self._buffer.add(
            self._dict_type(
                {
                    "observation": tensor(np.array(step.observation)),
                    "action": tensor(step.action),
                    "reward": tensor(step.reward),
                    "terminated": tensor(step.terminated),
                    "truncated": tensor(step.truncated),
                    "next_observation": tensor(np.array(step.next_observation)),
                }
            )
        )

    def sample(self) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample()

    def pictures(self, batch: Any) -> Pictures:
        """Look at the tensors as arrays."""
        return Pictures(batch["observation"].numpy(), batch["next_observation"].numpy(), batch["reward"].numpy())


class Cpprb(System):
    """Shares next observations and stacks; the stack is the last axis, as the library asks for."""

    name = "cpprb"
    setting = "next_of, stack_compress"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, task: Task) -> None:
        from cpprb import ReplayBuffer

        self._batch_size = task.batch_size
        self._buffer = ReplayBuffer(
            task.capacity,
            {
                "obs": {"shape": (*task.frame_shape, task.stack), "dtype": np.uint8},
                "act": {"dtype": np.int64},
                "rew": {"dtype": np.float32},
                "done": {"dtype": np.bool_},
            },
            next_of="obs",
            stack_compress="obs",
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves a frame a transition."""
        return task.stack_bytes // task.stack + 20

    def append(self, step: Step) -> None:
        """Add the step, and tell where an episode ends."""
        self._buffer.add(
            obs=np.moveaxis(step.observation, 0, -1),
            act=step.action,
            rew=step.reward,
            done=step.terminated,
            next_obs=np.moveaxis(step.next_observation, 0, -1),
        )
        if step.terminated or step.truncated:
            self._buffer.on_episode_end()

    def sample(self) -> Any:
        """Draw a batch of arrays."""
        return self._buffer.sample(self._batch_size)

    def pictures(self, batch: Any) -> Pictures:
        """Move the stack back to where the others have it."""
        return Pictures(np.moveaxis(batch["obs"], -1, 1), np.moveaxis(batch["next_obs"], -1, 1), batch["rew"].ravel())


# Of the LZ4 methods and levels the quickest to sample, and within 3 % of the smallest (level 9, three times as slow to
# add): on Breakout 1,302 bytes a transition, where lz4-frame/1 has 1,604.
COMPRESSION = "lz4-block/5"


class _ExtraBuffer(System):
    """Each stack is compressed on its own; the subclasses say whether the next one is kept beside it."""

    uses_torch = True

    def __init__(self, task: Task) -> None:
        from gymnasium.spaces import Box, Discrete

        logging.getLogger("sb3_extra_buffers").setLevel(logging.ERROR)
        import lz4.frame  # noqa: F401 -- without it the buffer would fall back to another method
        from sb3_extra_buffers.compressed import CompressedReplayBuffer, find_buffer_dtypes

        self._batch_size = task.batch_size
        self._buffer = CompressedReplayBuffer(
            task.capacity,
            Box(0, 255, task.stack_shape, np.uint8),
            Discrete(task.num_actions),
            device="cpu",
            optimize_memory_usage=not self.keeps_final_frames,
            handle_timeout_termination=self.keeps_final_frames,
            dtypes=find_buffer_dtypes(task.stack_shape, np.uint8, COMPRESSION),
            compression_method=COMPRESSION,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserves two references and the scalars."""
        return 40

    def append(self, step: Step) -> None:
        """Add the step as a vector environment of one would."""
        self._buffer.add(
            step.observation[None],
            step.next_observation[None],
            np.array([step.action]),
            np.array([step.reward]),
            np.array([step.terminated or step.truncated]),
            [{"TimeLimit.truncated": step.truncated and not step.terminated}],
        )

    def sample(self) -> Any:
        """Draw a batch of tensors."""
        return self._buffer.sample(self._batch_size)

    def pictures(self, batch: Any) -> Pictures:
        """Look at the tensors as arrays."""
        return Pictures(batch.observations.numpy(), batch.next_observations.numpy(), batch.rewards.numpy().ravel())


class ExtraBufferWithTruncation(_ExtraBuffer):
    """Keeps the next stack beside each stack."""

    name = "sb3-extra-buffers"
    setting = f"{COMPRESSION}, truncation kept"
    gives_up = ""
    keeps_final_frames = True


class ExtraBufferWithoutTruncation(_ExtraBuffer):
    """Takes the following stack for the next one."""

    name = "sb3-extra-buffers, halved"
    setting = f"{COMPRESSION}, optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False


class LazyFrames:
    """A stack that shares its frames with its neighbours and is put together when an array is asked for."""

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[npt.NDArray[np.uint8], ...]) -> None:
        self.frames = frames

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Stack the frames; the result is not kept, as that would undo the sharing (Baselines issues 295 and 896)."""
        return np.stack(self.frames).astype(dtype or np.uint8, copy=False)


class LazyFramesList(System):
    """Python tuples in a list; an observation is one object, shared as this step's and as the last one's next."""

    name = "LazyFrames in a list"
    setting = "np.stack of the batch"
    gives_up = ""
    keeps_final_frames = True
    uses_torch = False

    def __init__(self, task: Task) -> None:
        self._transitions: list[tuple[LazyFrames, int, float, LazyFrames, bool]] = []
        self._generator = np.random.default_rng(task.seed)
        self._batch_size = task.batch_size
        self._newest: LazyFrames | None = None

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Reserve a reference; frames come as they come."""
        return 8

    def append(self, step: Step) -> None:
        """Keep one new frame, and the stack that it ends."""
        observation = self._newest
        if step.starts_episode or observation is None:
            observation = LazyFrames((step.observation[-1].copy(),) * len(step.observation))
        self._newest = LazyFrames((*observation.frames[1:], step.next_observation[-1].copy()))
        self._transitions.append((observation, step.action, step.reward, self._newest, step.terminated))

    def sample(self) -> Any:
        """Draw a batch of arrays."""
        drawn = self._generator.integers(len(self._transitions), size=self._batch_size).tolist()
        observations, actions, rewards, next_observations, ends = zip(
            *[self._transitions[index] for index in drawn], strict=True
        )
        return (
            np.stack([np.asarray(observation) for observation in observations]),
            np.array(actions),
            np.array(rewards, np.float32),
            np.stack([np.asarray(observation) for observation in next_observations]),
            np.array(ends),
        )

    def pictures(self, batch: Any) -> Pictures:
        """Give the batch's own arrays."""
        return Pictures(batch[0], batch[3], batch[2])


@dataclass(frozen=True)
class Peer:
    """A library, what has to be importable for it, what installs it, and the systems that are measured with it."""

    key: str
    modules: tuple[str, ...]
    requirement: str
    systems: tuple[type[System], ...]

    @property
    def is_installed(self) -> bool:
        """Whether all its modules are there; nothing is imported."""
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def version(self) -> str:
        """Version of the library, empty where it is none of its own."""
        try:
            return version(self.requirement.partition("[")[0]) if self.requirement else ""
        except PackageNotFoundError:
            return ""

    @property
    def install_command(self) -> str:
        """What to type to have it."""
        return f'pip install "{self.requirement}"'


PEERS: dict[str, Peer] = {
    peer.key: peer
    for peer in (
        Peer("stable-baselines3", ("stable_baselines3",), "stable-baselines3", (StableBaselines3,)),
        Peer("tianshou", ("tianshou",), "tianshou", (Tianshou,)),
        Peer("torchrl", ("torchrl", "tensordict"), "torchrl", (TorchRL,)),
        Peer("cpprb", ("cpprb",), "cpprb", (Cpprb,)),
        Peer(
            "sb3-extra-buffers",
            ("sb3_extra_buffers", "lz4"),
            "sb3-extra-buffers[lz4]",
            (ExtraBufferWithTruncation, ExtraBufferWithoutTruncation),
        ),
        Peer("lazy-frames", (), "", (LazyFramesList,)),
    )
}


def chosen_peers(names: Sequence[str]) -> tuple[list[Peer], list[Peer]]:
    """Resolve what ``--peers`` says into the peers to measure and those that are not installed.

    ``["auto"]`` is all that are installed, ``["none"]`` none of them, anything else names of peers. Raises
    ``InvalidSettingsError`` for a name that is none, ``MissingExtraError`` for a named peer that is not installed.
    """
    if list(names) == ["none"]:
        return [], []
    if list(names) == ["auto"]:
        installed = [peer for peer in PEERS.values() if peer.is_installed]
        return installed, [peer for peer in PEERS.values() if peer not in installed]
    named = [_named(name) for name in dict.fromkeys(names)]
    for peer in named:
        if not peer.is_installed:
            raise MissingExtraError(f"peer {peer.key} is not installed: it cannot be measured; {peer.install_command}")
    return named, []


def _named(name: str) -> Peer:
    if name in PEERS:
        return PEERS[name]
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), PEERS, n=1, cutoff=0.5)
    way_out = f"did you mean {nearest[0]}?" if nearest else f"there are auto, none, {', '.join(PEERS)}"
    raise InvalidSettingsError(f"peers has {name!r}: it names none; {way_out}")

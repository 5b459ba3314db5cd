"""The replay memories that are measured: one protocol, an adapter for each library, and the registry.

Each adapter uses its library at the setting that suits it best, and says what this setting gives up.
"""

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
from framestow.storage.frame_storage import STORAGES, Storage


@dataclass(frozen=True)
class Task:
    """The shapes and sizes that each system stores and samples."""

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
    def frame_bytes(self) -> int:
        """Bytes of a frame."""
        return int(np.prod(self.frame_shape))

    @property
    def stack_bytes(self) -> int:
        """Bytes of an observation."""
        return self.stack * self.frame_bytes


class BatchArrays(NamedTuple):
    """The part of a batch that is compared with the play: ``(batch, stack, *frame)`` twice, and ``(batch,)``."""

    observations: npt.NDArray[np.uint8]
    next_observations: npt.NDArray[np.uint8]
    rewards: npt.NDArray[Any]


class System(Protocol):
    """A replay memory of one environment's steps, at one setting.

    ``__init__`` imports the library. If it raises, the system is left out of the table.
    """

    name: ClassVar[str]
    setting: ClassVar[str]
    gives_up: ClassVar[str]
    """What is lost at this setting, in words; empty if nothing."""
    keeps_final_frames: ClassVar[bool]
    """Whether the next observation of an episode's last step is returned."""
    uses_torch: ClassVar[bool]
    """Whether PyTorch's number of threads matters to ``sample``."""

    def __init__(self, task: Task) -> None: ...

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        """Return the bytes that the memory reserves for each transition when it is built."""

    def append(self, step: Step) -> None:
        """Store one step."""

    def sample(self) -> Any:
        """Sample a batch uniformly, as a learner would."""

    def as_arrays(self, batch: Any) -> BatchArrays:
        """Convert what ``sample`` returned to arrays."""

    def read_reported_bytes(self) -> int:
        """Return the bytes that the memory itself reports; 0 if it reports none."""
        return 0


class Framestow(System):
    """``ReplayMemory`` with one environment; the subclasses name the storage."""

    _storage: ClassVar[Storage]
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
        return 12  # action, reward and flags; memory for frames is taken as they are added

    def append(self, step: Step) -> None:
        if step.starts_episode:
            self._memory.begin(step.observation[-1:])
        self._memory.append(
            [step.action], [step.reward], [step.terminated], [step.truncated], step.next_observation[-1:]
        )

    def sample(self) -> Batch:
        return self._memory.sample(self._batch_size)

    def as_arrays(self, batch: Batch) -> BatchArrays:
        return BatchArrays(batch.observation, batch.next_observation, batch.reward)

    def read_reported_bytes(self) -> int:
        return self._memory.nbytes


FRAMESTOW_SYSTEMS: tuple[type[Framestow], ...] = tuple(
    type(f"Framestow{storage.title()}", (Framestow,), {"name": f"framestow, {storage}", "_storage": storage})
    for storage in STORAGES
)


class _StableBaselines3Buffer(System):
    """A buffer with the methods of Stable-Baselines3's ``ReplayBuffer``; the subclasses build it."""

    _buffer: Any
    _batch_size: int
    uses_torch = True

    def append(self, step: Step) -> None:
        # As a vector environment of one would call it.
        is_timeout = step.truncated and not step.terminated
        self._buffer.add(
            step.observation[None],
            step.next_observation[None],
            np.array([step.action]),
            np.array([step.reward]),
            np.array([step.terminated or step.truncated]),
            [{"TimeLimit.truncated": is_timeout}] if self.keeps_final_frames else [{}],
        )

    def sample(self) -> Any:
        return self._buffer.sample(self._batch_size)

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(batch.observations.numpy(), batch.next_observations.numpy(), batch.rewards.numpy().ravel())


class StableBaselines3(_StableBaselines3Buffer):
    """``optimize_memory_usage`` halves the bytes; it excludes ``handle_timeout_termination``."""

    name = "Stable-Baselines3"
    setting = "optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False

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
        return task.stack_bytes + 20


# Of the LZ4 methods and levels the quickest to sample, and within 3 % of the smallest (level 9, three times as slow to
# add): on Breakout 1,302 bytes a transition, where lz4-frame/1 has 1,604.
SB3_EXTRA_COMPRESSION = "lz4-block/5"


class _ExtraBuffer(_StableBaselines3Buffer):
    """Compresses each stack alone; the subclasses say whether the next stack is stored beside it."""

    def __init__(self, task: Task) -> None:
        from gymnasium.spaces import Box, Discrete

        logging.getLogger("sb3_extra_buffers").setLevel(logging.ERROR)
        import lz4.frame  # noqa: F401 -- without it the buffer would use another method
        from sb3_extra_buffers.compressed import CompressedReplayBuffer, find_buffer_dtypes

        self._batch_size = task.batch_size
        self._buffer = CompressedReplayBuffer(
            task.capacity,
            Box(0, 255, task.stack_shape, np.uint8),
            Discrete(task.num_actions),
            device="cpu",
            optimize_memory_usage=not self.keeps_final_frames,
            handle_timeout_termination=self.keeps_final_frames,
            dtypes=find_buffer_dtypes(task.stack_shape, np.uint8, SB3_EXTRA_COMPRESSION),
            compression_method=SB3_EXTRA_COMPRESSION,
        )

    @staticmethod
    def bytes_reserved(task: Task) -> int:
        return 40  # two references, and the scalars


class ExtraBufferWithTruncation(_ExtraBuffer):
    """Stores the next stack beside each stack."""

    name = "sb3-extra-buffers"
    setting = f"{SB3_EXTRA_COMPRESSION}, truncation kept"
    gives_up = ""
    keeps_final_frames = True


class ExtraBufferWithoutTruncation(_ExtraBuffer):
    """Returns the following stack as the next one."""

    name = "sb3-extra-buffers, halved"
    setting = f"{SB3_EXTRA_COMPRESSION}, optimize_memory_usage"
    gives_up = "truncation, and the final frame of an episode"
    keeps_final_frames = False


class Tianshou(System):
    """Stores single frames and stacks them when sampled: the least memory that the buffer needs."""

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
        return task.frame_bytes + 40

    def append(self, step: Step) -> None:
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
        batch, _ = self._buffer.sample(self._batch_size)
        return batch

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(batch.obs, batch.obs_next, batch.rew)


class TorchRL(System):
    """Stores stacks and next stacks as one flat TensorDict in a tensor storage, without prefetching.

    A thread that samples ahead could be put before every system here; a batch is measured from request to return.
    PyTorch's indexing of ``uint8`` tensors takes three quarters of the time (820 of 1,170 µs on a busy machine), so
    LazyMemmapStorage is as slow. ListStorage is 10 % quicker and makes a dozen Python objects a transition.
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
        return 2 * task.stack_bytes + 20

    def append(self, step: Step) -> None:
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
        return self._buffer.sample()

    def as_arrays(self, batch: Any) -> BatchArrays:
        return BatchArrays(batch["observation"].numpy(), batch["next_observation"].numpy(), batch["reward"].numpy())


class Cpprb(System):
    """Shares next observations and stacks; the stack is the last axis, as the library requires."""

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
        return task.frame_bytes + 20

    def append(self, step: Step) -> None:
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
        return self._buffer.sample(self._batch_size)

    def as_arrays(self, batch: Any) -> BatchArrays:
        observations, next_observations = (np.moveaxis(batch[name], -1, 1) for name in ("obs", "next_obs"))
        return BatchArrays(observations, next_observations, batch["rew"].ravel())


class LazyFrames:
    """A stack that shares its frames with its neighbours; an array of it is built when one is requested."""

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[npt.NDArray[np.uint8], ...]) -> None:
        self.frames = frames

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """Stack the frames; keeping the result would undo the sharing (Baselines issues 295 and 896)."""
        return np.stack(self.frames).astype(dtype or np.uint8, copy=False)


class LazyFramesList(System):
    """A list of Python tuples, as the DQN of OpenAI Baselines has it.

    One object is a step's next observation and the following step's observation.
    """

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
        return 8  # a reference; memory for frames is taken as they are added

    def append(self, step: Step) -> None:
        observation = self._newest
        if step.starts_episode or observation is None:
            observation = LazyFrames((step.observation[-1].copy(),) * len(step.observation))
        self._newest = LazyFrames((*observation.frames[1:], step.next_observation[-1].copy()))
        self._transitions.append((observation, step.action, step.reward, self._newest, step.terminated))

    def sample(self) -> Any:
        indices = self._generator.integers(len(self._transitions), size=self._batch_size).tolist()
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
        return BatchArrays(batch[0], batch[3], batch[2])


@dataclass(frozen=True)
class Library:
    """A library, the modules that it needs, the requirement that installs it, and its systems."""

    key: str
    modules: tuple[str, ...]
    requirement: str
    systems: tuple[type[System], ...]

    @property
    def is_installed(self) -> bool:
        """Whether all its modules can be found; nothing is imported."""
        return all(find_spec(module) is not None for module in self.modules)

    @property
    def version(self) -> str:
        """Version of the installed library; empty for code of our own."""
        try:
            return version(self.requirement.partition("[")[0]) if self.requirement else ""
        except PackageNotFoundError:
            return ""

    @property
    def install_command(self) -> str:
        """Command that installs the library."""
        return f'pip install "{self.requirement}"'


LIBRARIES: dict[str, Library] = {
    library.key: library
    for library in (
        Library("stable-baselines3", ("stable_baselines3",), "stable-baselines3", (StableBaselines3,)),
        Library("tianshou", ("tianshou",), "tianshou", (Tianshou,)),
        Library("torchrl", ("torchrl", "tensordict"), "torchrl", (TorchRL,)),
        Library("cpprb", ("cpprb",), "cpprb", (Cpprb,)),
        Library(
            "sb3-extra-buffers",
            ("sb3_extra_buffers", "lz4"),
            "sb3-extra-buffers[lz4]",
            (ExtraBufferWithTruncation, ExtraBufferWithoutTruncation),
        ),
        Library("lazy-frames", (), "", (LazyFramesList,)),
    )
}


def choose_libraries(names: Sequence[str]) -> tuple[list[Library], list[Library]]:
    """Return the libraries to measure and those that are not installed, as ``--libraries`` names them.

    ``["auto"]`` chooses all that are installed, ``["none"]`` none. Raises ``InvalidSettingsError`` for an unknown name
    and ``MissingExtraError`` for a named library that is not installed.
    """
    if list(names) == ["none"]:
        return [], []
    if list(names) == ["auto"]:
        installed = [library for library in LIBRARIES.values() if library.is_installed]
        return installed, [library for library in LIBRARIES.values() if library not in installed]
    named = [_find_library(name) for name in dict.fromkeys(names)]
    for library in named:
        if not library.is_installed:
            raise MissingExtraError(
                f"library {library.key} is not installed: it cannot be measured; {library.install_command}"
            )
    return named, []


def _find_library(name: str) -> Library:
    if name in LIBRARIES:
        return LIBRARIES[name]
    nearest = difflib.get_close_matches(name.lower().replace("_", "-"), LIBRARIES, n=1, cutoff=0.5)
    way_out = f"did you mean {nearest[0]}?" if nearest else f"choose from auto, none, {', '.join(LIBRARIES)}"
    raise InvalidSettingsError(f"libraries has {name!r}: no library has this name; {way_out}")

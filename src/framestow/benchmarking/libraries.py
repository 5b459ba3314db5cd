"""The replay memories that ``framestow bench`` measures: each library at the setting that suits it best.

Each ``System`` says what its setting gives up. The calls are those of ``framestow.benchmarking.buffers``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import numpy as np

from framestow.benchmarking.buffers import (
    Buffer,
    CpprbBuffer,
    FlashbaxBuffer,
    FramestowBuffer,
    LazyFramesBuffer,
    StableBaselines3Buffer,
    TianshouBuffer,
    TorchRLBuffer,
    TorchRLFlatBuffer,
    quiet_torchrl,
)
from framestow.checks import nearest_name
from framestow.errors import InvalidSettingsError, MissingExtraError
from framestow.frames.frame_spec import FrameSpec
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
    num_envs: int = 1

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


@dataclass(frozen=True)
class System:
    """A replay memory of one environment's steps, at one setting.

    ``build`` imports the library. If it raises, the system is left out of the table.
    """

    name: str
    bytes_reserved: Callable[[Task], int]
    """Returns the bytes that the memory reserves for each transition when it is built."""
    build: Callable[[Task], Buffer]
    setting: str = ""
    gives_up: str = ""
    """What is lost at this setting, in words; empty if nothing."""
    keeps_final_frames: bool = True
    """Whether the next observation of an episode's last step is returned."""
    pads_as_played: bool = True
    """Whether the first observations of an episode are padded with its first frame."""
    uses_torch: bool = False
    """Whether PyTorch's number of threads matters to ``sample``."""


def _framestow(storage: Storage, task: Task) -> Buffer:
    """``ReplayMemory`` with one environment."""
    memory = ReplayMemory(
        task.capacity,
        FrameSpec(task.frame_shape),
        task.num_actions,
        stack=task.stack,
        storage=storage,
        threads=task.threads,
        seed=task.seed,
    )
    return FramestowBuffer(memory)


FRAMESTOW_SYSTEMS: tuple[System, ...] = tuple(
    System(
        name=f"framestow, {storage}",
        bytes_reserved=lambda _: 12,  # action, reward and flags; memory for frames is taken as they are added
        build=partial(_framestow, storage),
    )
    for storage in STORAGES
)

WITHOUT_TRUNCATION = "truncation, and the final frame of an episode"


def reserve_stacks(count: int) -> Callable[[Task], int]:
    """Return what computes the bytes of a transition with ``count`` stacks."""
    return lambda task: count * task.stack_bytes + 20  # action, reward and flags


def stable_baselines3(kind: Any, keeps_truncation: bool, task: Task, **settings: Any) -> StableBaselines3Buffer:
    """Build a buffer that has Stable-Baselines3's arguments.

    ``optimize_memory_usage`` halves the bytes; it excludes ``handle_timeout_termination``.
    """
    from gymnasium.spaces import Box, Discrete

    observations, actions = Box(0, 255, task.stack_shape, np.uint8), Discrete(task.num_actions)
    halved = {"optimize_memory_usage": not keeps_truncation, "handle_timeout_termination": keeps_truncation}
    return StableBaselines3Buffer(
        kind(task.capacity, observations, actions, device="cpu", n_envs=task.num_envs, **halved, **settings)
    )


def _stable_baselines3(keeps_truncation: bool, task: Task) -> Buffer:
    from stable_baselines3.common.buffers import ReplayBuffer

    return stable_baselines3(ReplayBuffer, keeps_truncation, task)


STABLE_BASELINES3 = tuple(
    System(
        name=name,
        setting=setting,
        gives_up="" if keeps_truncation else WITHOUT_TRUNCATION,
        keeps_final_frames=keeps_truncation,
        uses_torch=True,
        bytes_reserved=reserve_stacks(stacks),
        build=partial(_stable_baselines3, keeps_truncation),
    )
    for name, setting, keeps_truncation, stacks in (
        ("Stable-Baselines3", "truncation kept", True, 2),
        ("Stable-Baselines3, halved", "optimize_memory_usage", False, 1),
    )
)

# Of the LZ4 methods and levels the quickest to sample, and within 3 % of the smallest (level 9, three times as slow to
# add): on Breakout 1,302 bytes per transition, where lz4-frame/1 has 1,604.
SB3_EXTRA_COMPRESSION = "lz4-block/5"


def _sb3_extra(keeps_truncation: bool, task: Task) -> Buffer:
    """Compresses each stack alone. To keep truncation, the next stack is stored beside it."""
    logging.getLogger("sb3_extra_buffers").setLevel(logging.ERROR)
    import lz4.frame  # noqa: F401 -- without it the buffer would use another method
    from sb3_extra_buffers.compressed import CompressedReplayBuffer, find_buffer_dtypes

    dtypes = find_buffer_dtypes(task.stack_shape, np.uint8, SB3_EXTRA_COMPRESSION)
    compression = {"dtypes": dtypes, "compression_method": SB3_EXTRA_COMPRESSION}
    return stable_baselines3(CompressedReplayBuffer, keeps_truncation, task, **compression)


SB3_EXTRA_BUFFERS = tuple(
    System(
        name=name,
        setting=f"{SB3_EXTRA_COMPRESSION}, {setting}",
        gives_up="" if keeps_truncation else WITHOUT_TRUNCATION,
        keeps_final_frames=keeps_truncation,
        uses_torch=True,
        bytes_reserved=lambda _: 40,  # two references, and the scalars
        build=partial(_sb3_extra, keeps_truncation),
    )
    for name, setting, keeps_truncation in (
        ("sb3-extra-buffers", "truncation kept", True),
        ("sb3-extra-buffers, halved", "optimize_memory_usage", False),
    )
)


def _tianshou(task: Task) -> Buffer:
    """Stores single frames and stacks them when sampled: the least memory that the buffer needs."""
    from tianshou.data import ReplayBuffer

    buffer = ReplayBuffer(task.capacity, random_seed=task.seed, **tianshou_settings(task))
    return TianshouBuffer(buffer, buffer_ids=[0])


def tianshou_settings(task: Task) -> dict[str, Any]:
    """Return Tianshou's settings of the fewest bytes."""
    return {"stack_num": task.stack, "ignore_obs_next": True, "save_only_last_obs": True}


TIANSHOU = System(
    name="Tianshou",
    setting="stack_num, save_only_last_obs, ignore_obs_next",
    gives_up="the final frame of an episode",
    keeps_final_frames=False,
    bytes_reserved=lambda task: task.frame_bytes + 40,
    build=_tianshou,
)


def _torchrl(storage: str, task: Task) -> Buffer:
    """Stores stacks and next stacks as a TensorDict, without prefetching.

    A thread that samples ahead could be put before every system here; a batch is measured from request to return.
    PyTorch's indexing of ``uint8`` tensors takes most of the time. ListStorage is little quicker and makes a dozen
    Python objects a transition.
    """
    quiet_torchrl()
    from torchrl import data

    return TorchRLBuffer(data.ReplayBuffer(storage=getattr(data, storage)(task.capacity), batch_size=1))


# On stacks of Breakout, level 6 takes a third fewer bytes than the default level 3, and as long to unpack.
TORCHRL_COMPRESSION_LEVEL = 6


def _torchrl_compressed(task: Task) -> Buffer:
    """Compresses each tensor of a transition alone, with zstd from Python 3.14 on and with zlib before."""
    quiet_torchrl()
    from torchrl.data import CompressedListStorage, ReplayBuffer

    storage = CompressedListStorage(task.capacity, compression_level=TORCHRL_COMPRESSION_LEVEL)
    return TorchRLFlatBuffer(ReplayBuffer(storage=storage, batch_size=1))


TORCHRL = (
    *(
        System(
            name=name,
            setting=storage,
            uses_torch=True,
            bytes_reserved=reserve_stacks(2),
            build=partial(_torchrl, storage),
        )
        for name, storage in (("TorchRL", "LazyTensorStorage"), ("TorchRL, files", "LazyMemmapStorage"))
    ),
    System(
        name="TorchRL, compressed",
        setting=f"CompressedListStorage, level {TORCHRL_COMPRESSION_LEVEL}",
        uses_torch=True,
        bytes_reserved=lambda _: 40,  # references; memory is taken as transitions are added
        build=_torchrl_compressed,
    ),
)


def _flashbax(task: Task) -> Buffer:
    """Shares next observations: a flat buffer stores each stack once and samples pairs of steps that follow.

    An item buffer stores both stacks and with them the last observation, in twice the bytes.
    """
    import flashbax

    buffer = flashbax.make_flat_buffer(task.capacity, min_length=2, sample_batch_size=task.batch_size)
    return FlashbaxBuffer(buffer, task.stack_shape, task.seed)


FLASHBAX = System(
    name="flashbax",
    setting="flat buffer, on the CPU",
    gives_up="the final frame of an episode",
    keeps_final_frames=False,
    bytes_reserved=reserve_stacks(1),
    build=_flashbax,
)


def _cpprb(task: Task) -> Buffer:
    """Shares next observations and stacks; the stack is the last axis, as the library requires."""
    from cpprb import ReplayBuffer

    columns = CpprbBuffer.columns((*task.frame_shape, task.stack), "obs")
    return CpprbBuffer(ReplayBuffer(task.capacity, columns, next_of="obs", stack_compress="obs"))


CPPRB = System(
    name="cpprb",
    setting="next_of, stack_compress",
    bytes_reserved=lambda task: task.frame_bytes + 20,
    build=_cpprb,
)

LAZY_FRAMES = System(
    name="LazyFrames in a list",
    setting="np.stack of the batch",
    bytes_reserved=lambda _: 8,  # a reference; memory for frames is taken as they are added
    build=lambda task: LazyFramesBuffer(task.seed),
)


@dataclass(frozen=True)
class Library:
    """A library, the modules that it needs, the requirement that installs it, and its systems."""

    key: str
    modules: tuple[str, ...]
    requirement: str
    systems: tuple[System, ...]

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
        Library("stable-baselines3", ("stable_baselines3",), "stable-baselines3", STABLE_BASELINES3),
        Library("tianshou", ("tianshou",), "tianshou", (TIANSHOU,)),
        Library("torchrl", ("torchrl", "tensordict"), "torchrl", TORCHRL),
        Library("cpprb", ("cpprb",), "cpprb", (CPPRB,)),
        Library("sb3-extra-buffers", ("sb3_extra_buffers", "lz4"), "sb3-extra-buffers[lz4]", SB3_EXTRA_BUFFERS),
        Library("flashbax", ("flashbax",), "flashbax", (FLASHBAX,)),
        Library("lazy-frames", (), "", (LAZY_FRAMES,)),
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
    if {"auto", "none"} & set(names):
        raise InvalidSettingsError(f"libraries is {list(names)}: auto and none stand alone; give one of them, or names")
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
    nearest = nearest_name(name.replace("_", "-"), ["auto", "none", *LIBRARIES])
    raise InvalidSettingsError(f"libraries has {name!r}: no library has this name; {nearest}")

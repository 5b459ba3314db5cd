"""A run: environments, memory, agent, its learner and counts, built from settings or from a checkpoint."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from framestow.agents.dqn import DQN
from framestow.envs import Recorder, find_preset, finished_games, lost_episodes, make_atari
from framestow.errors import IncompatibleError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import observation_spec
from framestow.interface import Closing, plural
from framestow.process import keep_freed_bytes, num_cores
from framestow.replay.eviction.byte_amounts import parse_bytes
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.torch.batch_loader import BatchLoader
from framestow.training.checkpoint import (
    STATE,
    RunState,
    load_memory,
    read_rest,
    reading,
    restore_agent,
    write_checkpoint,
)
from framestow.training.settings import Settings, memory_errors_name_options
from framestow.training.training_run import Event, Learned, MakeEnv, RunMemory, StepTaken, Tally

NUM_MEASURED = 64  # observations that measure how many units are dormant
BATCHES_AHEAD_ON_CUDA = 2  # batches that a thread prepares; 0 on other devices
KEPT_BYTES = 64 * 2**20  # an update's tensors; without, 700 page faults took a tenth of an update of laptop


_MEMORY_SEED, _AGENT_SEED = 1_000_001, 1_000_002  # spawn keys; the environments use 0, 1, 2, …


def make_game(settings: Settings) -> VectorEnv[Any, Any, Any]:
    """Return the Atari environments of ``settings``. A worker process that dies or hangs is replaced."""
    return make_atari(
        settings.game,
        settings.num_envs,
        settings.preset,
        settings.seed,
        workers=settings.workers,
        on_worker_lost="restart",
    )


def set_up_learning(settings: Settings) -> None:
    """Give PyTorch its CPU threads, and let this process keep the memory that one update frees for the next one."""
    torch.set_num_threads(settings.threads or num_cores())
    keep_freed_bytes(KEPT_BYTES)


class Run:
    """Environments, memory, agent and counts of a training run in this process: a ``TrainingRun``.

    Arguments:
        settings: The settings of the run.
        make_env: Returns a Gymnasium ``VectorEnv`` of ``settings.num_envs`` environments; the default makes Atari
            games. An observation is one uint8 frame, actions are ``Discrete``, autoreset is ``NEXT_STEP`` or
            ``SAME_STEP``.
        checkpoint: The checkpoint to resume from; ``None`` starts a new run.
        store: The folder for the memory of a new run with ``memory_on_disk``.
    """

    def __init__(
        self,
        settings: Settings,
        make_env: MakeEnv = make_game,
        checkpoint: Path | None = None,
        store: Path | None = None,
    ) -> None:
        self.settings = settings
        self.device = choose_device(settings.device)
        set_up_learning(settings)
        env = make_env(settings)
        with contextlib.ExitStack() as unless_built:
            unless_built.callback(env.close)
            num_actions = check_spaces(env)
            _check_vector(env, settings)
            self.memory = (
                load_memory(checkpoint, settings.memory_on_disk) if checkpoint else _new_memory(settings, env, store)
            )
            unless_built.callback(self._close_memory)
            _check_saved(self.memory, settings)
            self.env = Recorder(env, self.memory, reward_limit=settings.reward_limit)
            frame_shape = env.single_observation_space.shape or ()
            agent_seed = _derive_seed(settings.seed, _AGENT_SEED)
            self.agent = DQN((settings.stack, *frame_shape), num_actions, settings.agent(), self.device, agent_seed)
            self.learner = self._new_learner()
            unless_built.callback(self.learner.close)
            self.tally = Tally()
            # Whether a step may be a reset, which is no agent step.
            self.resets_itself = env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
            self.has_ended = np.zeros(settings.num_envs, np.bool_)  # environments whose episode ended in the last step
            if checkpoint:
                self._restore(checkpoint)
            else:
                self.env.reset()
            unless_built.pop_all()

    @classmethod
    def resume(cls, checkpoint: Path, settings: Settings, make_env: MakeEnv = make_game) -> Run:
        """Return the run of a checkpoint with these settings.

        On the CPU, with the same number of threads, it equals the uninterrupted run bit for bit. GPU kernels may
        round differently each time.
        """
        return cls(settings, make_env, checkpoint)

    def _new_learner(self) -> Learner:
        settings, on_cuda = self.settings, self.device == "cuda"
        if on_cuda:
            torch.backends.cudnn.benchmark = True  # choose the quickest kernels: the shapes stay the same
            torch.set_float32_matmul_precision("high")  # linear layers in TF32, as convolutions are by default
        ahead = BATCHES_AHEAD_ON_CUDA if on_cuda else 0
        return Learner(self.agent, self.memory, settings.batch_size, settings.gives_priorities, ahead)

    def events(self) -> Iterator[Event]:
        """Train up to ``settings.steps`` agent steps and yield the events.

        Deep Q-learning as in algorithm 1 of Mnih et al. 2015, with several environments. They step while the agent
        learns from the steps stored before. The run can be saved after each ``StepTaken``.
        """
        agent, env, tally = self.agent, self.env, self.tally
        observations = self.memory.observations()
        while tally.agent_steps < self.settings.steps:
            actions = agent.act(observations, tally.agent_steps)
            env.step_async(actions)

            yield from self.learner.update(self._updates_due())
            observations, _, terminated, truncated, infos = env.step_wait()  # stores the step in the memory
            lost = lost_episodes(infos)
            tally.agent_steps += self.settings.num_envs - len(lost)  # the step of a lost episode is not stored
            if self.resets_itself:
                tally.agent_steps -= int(self.has_ended.sum())  # these environments were reset instead of stepped
            self.has_ended = terminated | truncated

            yield from tally.count_games(finished_games(infos))
            yield from tally.list_lost_episodes(lost)
            yield StepTaken(tally.agent_steps)
        yield from self.learner.finish()

    def _updates_due(self) -> int:
        """Return the number of updates that are due after the agent steps so far."""
        steps_after_warmup = self.tally.agent_steps - self.settings.warmup
        return max(0, steps_after_warmup // self.settings.train_every - self.agent.num_updates)

    def describe_players(self) -> str:
        """Return the number of environments, and where they are."""
        workers = self.settings.workers
        where = f"in {plural(workers, 'worker')}" if workers else "in this process"
        return f"{plural(self.settings.num_envs, 'environment')} {where}"

    def other_processes(self) -> dict[str, str]:
        """Return what the display of the progress says about other processes: nothing."""
        return {}

    def dormant_units(self) -> list[float]:
        """Return the share of dormant units of each layer, over 64 stored observations; nothing if none is stored."""
        stored = self.memory.sampleable_indices()
        if not len(stored):
            return []
        spread = np.linspace(0, len(stored) - 1, NUM_MEASURED).astype(np.int64)
        return self.agent.dormant_units(self.memory.get(stored[spread]).observation)

    def state(self) -> RunState[ReplayMemory]:
        """Return the state that a checkpoint saves, without copying it. Call it between two steps.

        The device completes the updates that were begun.
        """
        self.learner.settle()
        rest = {
            "environment": self.env.state_dict(),
            "tally": self.tally.state_dict(),
            "has_ended": self.has_ended,
            "torch_generator": torch.get_rng_state().numpy(),
        }
        return RunState(self.tally.agent_steps, self.agent.state_dict(), self.memory, rest)

    def save(self, checkpoints: Path) -> Path:
        """Write a checkpoint and return its path. Call it between two steps.

        Raises:
            CheckpointError: the checkpoint could not be written; the last one stays.
        """
        return write_checkpoint(checkpoints, self.state())

    def close(self) -> None:
        """Close the environments, the learner, and the files of a memory on disk, also if some of them raise."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._close_memory)
            closing.callback(self.learner.close)
            closing.callback(self.env.close)

    def _close_memory(self) -> None:
        if self.settings.memory_on_disk:
            with contextlib.suppress(OSError):  # no checkpoint needs this last flush
                self.memory.close()

    def _restore(self, checkpoint: Path) -> None:
        restore_agent(checkpoint, self.agent)
        rest = read_rest(checkpoint)
        with reading(checkpoint / STATE):
            has_ended = rest["has_ended"]
            if (has_ended.dtype, has_ended.shape) != (self.has_ended.dtype, self.has_ended.shape):
                raise ValueError(f"has_ended is {has_ended.dtype} of shape {has_ended.shape}")
            self.env.load_state_dict(rest["environment"])
            self.tally = Tally.from_state(rest["tally"])
            self.has_ended = has_ended
            torch.set_rng_state(torch.from_numpy(rest["torch_generator"]))


def choose_device(asked: str) -> str:
    """Return ``asked``, or for ``auto`` the first available of cuda, mps and cpu.

    Raises:
        InvalidSettingsError: this machine or this PyTorch does not have the device.
    """
    is_available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if asked == "auto":
        return next(device for device, available in is_available.items() if available)
    if not is_available.get(asked, False):
        raise InvalidSettingsError(
            f"device is {asked!r}: PyTorch {torch.__version__} finds no such device on this machine; take auto or cpu"
        )
    return asked


def check_spaces(env: VectorEnv[Any, Any, Any]) -> int:
    """Return the number of actions; ``InvalidSettingsError`` unless they are ``Discrete`` and frames are uint8."""
    frame, space = env.single_observation_space, env.single_action_space
    if not isinstance(space, Discrete) or space.start != 0:
        raise InvalidSettingsError(f"action space is {space}: DQN needs Discrete(n) with start 0; wrap the environment")
    if frame.dtype != np.uint8:
        raise InvalidSettingsError(
            f"observation space is {frame}, of dtype {frame.dtype}: DQN needs one uint8 frame; wrap the environment"
        )
    return int(space.n)


def _check_saved(memory: ReplayMemory, settings: Settings) -> None:
    if (memory.capacity, memory.num_envs) != (settings.memory, settings.num_envs):
        raise IncompatibleError(
            f"the saved memory has capacity {memory.capacity:,} and {plural(memory.num_envs, 'environment')}: "
            f"the settings have {settings.memory:,} and {settings.num_envs}; restore settings.json"
        )
    retention = memory.inner.settings.retention
    if retention != settings.retention:
        raise IncompatibleError(
            f"the saved memory has retention {retention!r}: the settings have {settings.retention!r}; "
            "restore settings.json"
        )


def check_memory(settings: Settings) -> None:
    """Raise ``InvalidSettingsError``, naming the option, if ``settings`` allow no memory for an Atari game."""
    frame = observation_spec(FrameSpec(find_preset(settings.preset).frame_shape))
    with memory_errors_name_options():
        max_bytes = None if settings.memory_bytes is None else parse_bytes(settings.memory_bytes)
        arguments = memory_arguments(settings) | {"max_bytes": max_bytes, "is_on_disk": settings.memory_on_disk}
        MemorySettings(frame=frame, action=ActionSpec.from_space(1), **arguments)


def _new_memory(settings: Settings, env: VectorEnv[Any, Any, Any], store: Path | None) -> ReplayMemory:
    # Each checkpoint flushes. A background flush would write generations that no checkpoint uses.
    on_disk: dict[str, Any] = {"directory": store, "flush_every": None} if settings.memory_on_disk else {}
    with memory_errors_name_options():
        return ReplayMemory(
            observation_space=env.single_observation_space,
            action_space=env.single_action_space,
            sampler=settings.sampler(),
            seed=_derive_seed(settings.seed, _MEMORY_SEED),
            label=settings.game,
            max_bytes=settings.memory_bytes,
            **memory_arguments(settings),
            **on_disk,
        )


def memory_arguments(settings: Settings) -> dict[str, Any]:
    """Return the arguments that ``ReplayMemory``, ``MemorySettings`` and ``ShardedReplay`` share."""
    return {
        "capacity": settings.memory,
        "stack": settings.stack,
        "stack_padding": find_preset(settings.preset).stack_padding,
        "num_envs": settings.num_envs,
        "n_step": settings.n_step,
        "discount": settings.discount,
        "storage": settings.storage,
        "retention": settings.retention,
    }


def _check_vector(env: VectorEnv[Any, Any, Any], settings: Settings) -> None:
    if env.num_envs != settings.num_envs:
        raise InvalidSettingsError(
            f"num_envs is {settings.num_envs}: make_env returned {plural(env.num_envs, 'environment')}; "
            "return settings.num_envs of them"
        )
    if env.metadata.get("autoreset_mode") not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        raise InvalidSettingsError(
            f"autoreset_mode is {env.metadata.get('autoreset_mode')}: the training loop does not reset environments; "
            "make the environment with NEXT_STEP or SAME_STEP"
        )


def _derive_seed(seed: int, spawn_key: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(spawn_key,)).generate_state(1, np.uint32)[0])


class Learner(Closing):
    """Updates the agent, at once or with some updates still being computed by the device.

    Arguments:
        agent, memory: Both are changed by updates, the memory only in its priorities.
        batch_size: Transitions per update.
        gives_priorities: Whether the memory gets the priorities of each update.
        ahead: 0 draws, learns and gives priorities one after another. From 1 on, a thread unpacks and copies this many
            batches beforehand, and an update is yielded after this many later ones were begun: the device never waits
            for the CPU, nor the CPU for the device. A batch is then drawn before the last ``2 * ahead`` updates gave
            their priorities. The order of all draws and priorities is fixed, so the same seed gives the same run.
    """

    def __init__(self, agent: DQN, memory: RunMemory, batch_size: int, gives_priorities: bool, ahead: int) -> None:
        self._agent, self._memory, self._batch_size = agent, memory, batch_size
        self._gives_priorities, self._ahead = gives_priorities, ahead
        # None if nothing is drawn ahead.
        self._loader = BatchLoader(memory, batch_size, agent.device, ahead=ahead) if ahead else None
        # Updates without an event, oldest first; at most ``ahead`` between two calls.
        self._begun: deque[_BegunUpdate] = deque()
        # Events of updates that ``settle`` completed, to be yielded next.
        self._settled: list[Learned] = []

    def update(self, num_updates: int) -> Iterator[Learned]:
        """Begin this many updates and yield those that are complete.

        The memory gets the priorities of an update after it was yielded.
        """
        for _ in range(num_updates):
            batch = self._memory.sample(self._batch_size) if self._loader is None else next(self._loader)
            update = self._agent.learn(batch)
            indices = batch.index if isinstance(batch, Batch) else batch.index.numpy()
            self._begun.append(_BegunUpdate(self._agent.num_updates, indices, update.fetch()))
            if self._settled:
                yield from self._take_settled()
            while len(self._begun) > self._ahead:
                yield from self._complete(self._begun.popleft())

    def settle(self) -> None:
        """Wait until the device has computed all updates, and give the memory their priorities.

        They are yielded by the next ``update`` or ``finish``.
        """
        while self._begun:
            self._settled.extend(self._complete(self._begun.popleft()))

    def finish(self) -> Iterator[Learned]:
        """Complete and yield all updates that were begun."""
        self.settle()
        yield from self._take_settled()

    def close(self) -> None:
        """Stop the thread."""
        if self._loader is not None:
            self._loader.close()

    def _take_settled(self) -> Iterator[Learned]:
        settled, self._settled = self._settled, []
        yield from settled

    def _complete(self, begun: _BegunUpdate) -> Iterator[Learned]:
        numbers = begun.fetch()
        loss, mean_value = numbers[:2].tolist()
        yield Learned(begun.num_updates, loss, mean_value)
        if self._gives_priorities and math.isfinite(loss):  # a training that diverged ends
            self._memory.update_priorities(begun.indices, numbers[2:])


class _BegunUpdate(NamedTuple):
    """An update that the device may still be computing."""

    num_updates: int
    indices: NDArray[np.int64]  # of the batch, for its priorities
    fetch: Callable[[], NDArray[np.float32]]  # waits for the numbers of ``Update``

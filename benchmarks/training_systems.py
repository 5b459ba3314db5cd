"""The trainers that training.py measures, and the bare learner: the same DQN, by different loops.

All of them train the Nature network on Breakout by plain DQN: batches of 32, one update every 4 steps, Adam with 1e-4,
discount 0.99, a copy to the target network every 1,000 steps, a random action with probability 0.01 throughout. The
games follow the rules of Stable-Baselines3's ``AtariWrapper``, which are framestow's preset ``baselines``.
"""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from framestow.process import available_bytes

GAME, NUM_ACTIONS = "Breakout", 4
STACK, FRAME_SIDE = 4, 84
CAPACITY = 100_000  # transitions: the buffer of RL Baselines3 Zoo
WARMUP = 200  # steps before the first update
STEPS_AN_UPDATE, BATCH_SIZE = 4, 32
LEARNING_RATE, DISCOUNT, EPSILON = 1e-4, 0.99, 0.01
UPDATES_A_TARGET = 250


class Stored(NamedTuple):
    """What a trainer's memory stores, by its own count."""

    transitions: int
    nbytes: float


class Trainer(Protocol):
    """A training that takes turns. Its first ``WARMUP`` steps make no update."""

    def train(self, steps: int) -> int:
        """Make at least ``steps`` agent steps with their updates; return how many."""

    def update(self, updates: int) -> None:
        """Make updates from one fixed batch. Do not train afterwards: some trainers count their updates."""

    def stored(self) -> Stored:
        """Return what the memory stores."""

    def close(self) -> None:
        """Close the environments and end the processes."""


class FramestowTrainer:
    """framestow's trainer, as ``framestow train`` runs it but without listeners.

    With ``spins_long`` PyTorch's threads wait for one another as PyTorch has it, and not as ``framestow train`` does.
    """

    def __init__(self, make_settings: Callable[[], Any], spins_long: bool = False) -> None:
        from framestow.cli import limit_spinning

        if not spins_long:
            limit_spinning()
        from framestow.training import RunFolder, start_run

        self._folder = tempfile.TemporaryDirectory()
        settings = make_settings()
        self.run = start_run(RunFolder.create(Path(self._folder.name) / "run", settings))
        self._events = self.run.events()

    def train(self, steps: int) -> int:
        from framestow.training.training_run import StepTaken

        before = now = self.run.tally.agent_steps
        while now - before < steps:
            event = next(self._events)
            if isinstance(event, StepTaken):
                now = event.agent_steps
        return now - before

    def update(self, updates: int) -> None:
        batch = self.run.memory.sample(self.run.settings.batch_size)
        for _ in range(updates):
            self.run.agent.learn(batch)

    def stored(self) -> Stored:
        return Stored(len(self.run.memory), float(self.run.memory.nbytes))

    def close(self) -> None:
        self._events.close()
        self.run.close()
        self._folder.cleanup()


def plain_dqn(**others: Any) -> Any:
    """Return framestow's settings for the algorithm that all systems have; Adam's epsilon is 1e-8 by default."""
    from framestow.training import Settings

    recipe = {"recipe": "dqn"} if "recipe" in {field.name for field in fields(Settings)} else {}
    return Settings(
        game=GAME,
        preset="baselines",
        steps=1_000_000_000,
        memory=CAPACITY,
        warmup=WARMUP,
        train_every=STEPS_AN_UPDATE,
        batch_size=BATCH_SIZE,
        target_every=UPDATES_A_TARGET,
        learning_rate=LEARNING_RATE,
        discount=DISCOUNT,
        double=False,
        epsilon_start=EPSILON,
        epsilon_end=EPSILON,
        epsilon_steps=0,
        device="cpu",
        **recipe,
        **others,
    )


class StableBaselines3Trainer:
    """Stable-Baselines3's DQN with the settings of RL Baselines3 Zoo."""

    def __init__(self, threads: int, optimize_memory_usage: bool = False, **others: Any) -> None:
        import torch
        from stable_baselines3 import DQN
        from stable_baselines3.common.env_util import make_atari_env
        from stable_baselines3.common.vec_env import VecFrameStack

        torch.set_num_threads(threads)
        _register_atari()
        env = VecFrameStack(make_atari_env(f"{GAME}NoFrameskip-v4", seed=0), n_stack=STACK)
        buffer: dict[str, Any] = {"buffer_size": CAPACITY, "optimize_memory_usage": optimize_memory_usage}
        if optimize_memory_usage:
            buffer["replay_buffer_kwargs"] = {"handle_timeout_termination": False}
        self._model = DQN(
            "CnnPolicy",
            env,
            learning_rate=LEARNING_RATE,
            learning_starts=WARMUP,
            batch_size=BATCH_SIZE,
            gamma=DISCOUNT,
            train_freq=STEPS_AN_UPDATE,
            gradient_steps=1,
            target_update_interval=UPDATES_A_TARGET * STEPS_AN_UPDATE,
            exploration_initial_eps=EPSILON,
            exploration_final_eps=EPSILON,
            seed=0,
            device="cpu",
            **buffer | others,
        )

    def weights(self) -> str:
        """Return a hash of all weights of the network and its target: equal hashes mean weights equal to the bit."""
        digest = hashlib.sha256()
        for name, tensor in sorted(self._model.policy.state_dict().items()):
            digest.update(name.encode() + tensor.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def train(self, steps: int) -> int:
        before = self._model.num_timesteps
        self._model.learn(steps, reset_num_timesteps=False)
        return int(self._model.num_timesteps - before)

    def update(self, updates: int) -> None:
        batch = self._model.replay_buffer.sample(BATCH_SIZE)
        self._model.replay_buffer.sample = lambda *_, **__: batch
        self._model.train(updates, BATCH_SIZE)

    def stored(self) -> Stored:
        return _stored_arrays(self._model.replay_buffer)

    def close(self) -> None:
        self._model.get_env().close()


class CleanRLTrainer:
    """The algorithm that CleanRL publishes as ``dqn_atari``, rewritten on the libraries that it uses.

    One environment with Gymnasium's and Stable-Baselines3's wrappers, Stable-Baselines3's buffer, the squared error.
    """

    def __init__(self, threads: int) -> None:
        import torch
        from gymnasium.vector import AutoresetMode, SyncVectorEnv
        from stable_baselines3.common.buffers import ReplayBuffer

        torch.set_num_threads(threads)
        _register_atari()
        self._env = SyncVectorEnv([_wrapped_game], autoreset_mode=AutoresetMode.SAME_STEP)
        space = self._env.single_observation_space
        self._buffer = ReplayBuffer(
            CAPACITY,
            space,
            self._env.single_action_space,
            "cpu",
            optimize_memory_usage=True,
            handle_timeout_termination=False,
        )
        self._online, self._target = nature_network(), nature_network()
        self._target.load_state_dict(self._online.state_dict())
        self._optimizer = torch.optim.Adam(self._online.parameters(), lr=LEARNING_RATE)
        self._random = random.Random(0)
        self._steps = self._loop()

    def _loop(self) -> Iterator[None]:
        """Make one step after the other, for ever."""
        import torch

        observations, _ = self._env.reset(seed=0)
        num_steps = 0
        while True:
            if self._random.random() < EPSILON:
                actions = np.array([self._random.randrange(NUM_ACTIONS)])
            else:
                values = self._online(torch.as_tensor(observations, dtype=torch.float32) / 255.0)
                actions = values.argmax(dim=1).numpy()
            next_observations, rewards, terminated, truncated, infos = self._env.step(actions)
            true_next = next_observations.copy()
            for env_id in np.flatnonzero(truncated):
                true_next[env_id] = infos["final_obs"][env_id]
            self._buffer.add(observations, true_next, actions, rewards, terminated, [{}])
            observations = next_observations
            num_steps += 1
            if num_steps > WARMUP and num_steps % STEPS_AN_UPDATE == 0:
                self._learn(self._buffer.sample(BATCH_SIZE))
            if num_steps % (UPDATES_A_TARGET * STEPS_AN_UPDATE) == 0:
                self._target.load_state_dict(self._online.state_dict())
            yield

    def _learn(self, batch: Any) -> None:
        import torch

        with torch.no_grad():
            best = self._target(batch.next_observations.float() / 255.0).amax(dim=1)
            target = batch.rewards.flatten() + DISCOUNT * best * (1 - batch.dones.flatten())
        values = self._online(batch.observations.float() / 255.0).gather(1, batch.actions).squeeze(1)
        loss = torch.nn.functional.mse_loss(values, target)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()

    def train(self, steps: int) -> int:
        for _ in range(steps):
            next(self._steps)
        return steps

    def update(self, updates: int) -> None:
        batch = self._buffer.sample(BATCH_SIZE)
        for _ in range(updates):
            self._learn(batch)

    def stored(self) -> Stored:
        return _stored_arrays(self._buffer)

    def close(self) -> None:
        self._steps.close()
        self._env.close()


class BareLearner:
    """PyTorch updating from one fixed batch: no environment, no memory, nobody acts.

    Arguments:
        tuned: Channels-last tensors, the native conversion of pixels and the fused Adam, as framestow's agent has them,
            instead of PyTorch's defaults.
    """

    def __init__(self, threads: int, tuned: bool) -> None:
        import torch

        from framestow.agents.networks import network_input

        torch.set_num_threads(threads)
        memory_format = torch.channels_last if tuned else torch.contiguous_format
        self._scale = network_input if tuned else lambda pixels: pixels.float().mul_(1 / 255)
        self.online = nature_network().to(memory_format=memory_format)
        self.target = nature_network().to(memory_format=memory_format)
        self.target.load_state_dict(self.online.state_dict())
        self._optimizer = torch.optim.Adam(self.online.parameters(), lr=LEARNING_RATE, fused=tuned)
        generator = np.random.default_rng(0)
        shape = (BATCH_SIZE, STACK, FRAME_SIDE, FRAME_SIDE)
        self._batch = [
            torch.from_numpy(generator.integers(256, size=shape, dtype=np.uint8)),
            torch.from_numpy(generator.integers(NUM_ACTIONS, size=BATCH_SIZE)),
            torch.zeros(BATCH_SIZE),
            torch.full((BATCH_SIZE,), DISCOUNT),
            torch.from_numpy(generator.integers(256, size=shape, dtype=np.uint8)),
        ]
        self._num_steps = self._num_updates = 0

    def learn(self, pixels: Any, actions: Any, rewards: Any, discounts: Any, next_pixels: Any) -> Any:
        """Make one update from uint8 observations; return the loss, a tensor."""
        import torch

        with torch.no_grad():
            target = rewards + discounts * self.target(self._scale(next_pixels)).amax(dim=1)
        values = self.online(self._scale(pixels)).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = torch.nn.functional.smooth_l1_loss(values, target)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def train(self, steps: int) -> int:
        """Make the updates of this many steps."""
        self._num_steps += steps
        due = max(0, self._num_steps - WARMUP) // STEPS_AN_UPDATE
        self.update(due - self._num_updates)
        self._num_updates = due
        return steps

    def update(self, updates: int) -> None:
        for _ in range(updates):
            self.learn(*self._batch)

    def stored(self) -> Stored:
        """Return that nothing is stored."""
        return Stored(0, 0)

    def close(self) -> None:
        """Do nothing: there is no environment."""


def nature_network() -> Any:
    """Return a new network of Mnih et al. 2015, which takes floats from 0 to 1."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(STACK, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(3136, 512),
        nn.ReLU(),
        nn.Linear(512, NUM_ACTIONS),
    )


def _wrapped_game() -> Any:
    import gymnasium
    from gymnasium import wrappers
    from stable_baselines3.common import atari_wrappers

    env: Any = gymnasium.make(f"{GAME}NoFrameskip-v4")
    env = wrappers.RecordEpisodeStatistics(env)
    env = atari_wrappers.NoopResetEnv(env, noop_max=30)
    env = atari_wrappers.MaxAndSkipEnv(env, skip=4)
    env = atari_wrappers.EpisodicLifeEnv(env)
    env = atari_wrappers.FireResetEnv(env)
    env = atari_wrappers.ClipRewardEnv(env)
    env = wrappers.ResizeObservation(env, (FRAME_SIDE, FRAME_SIDE))
    env = wrappers.GrayscaleObservation(env)
    return wrappers.FrameStackObservation(env, STACK)


def _register_atari() -> None:
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)


def _stored_arrays(buffer: Any) -> Stored:
    """Return the filled part of a buffer of Stable-Baselines3, or what framestow's counts."""
    if hasattr(buffer, "memory"):
        return Stored(buffer.size(), float(buffer.memory.nbytes))
    arrays = [array for array in vars(buffer).values() if isinstance(array, np.ndarray)]
    filled = buffer.size() / buffer.buffer_size
    return Stored(buffer.size(), sum(array.nbytes for array in arrays) * filled)


@dataclass(frozen=True)
class System:
    """A trainer's constructor, which takes the number of PyTorch threads, and how it differs from the others."""

    make: Callable[[int], Trainer]
    note: str = ""
    library: str = ""  # distribution that must be installed


def _framestow(num_envs: int, workers: int = 0, spins_long: bool = False) -> Callable[[int], Trainer]:
    return lambda threads: FramestowTrainer(
        lambda: plain_dqn(num_envs=num_envs, workers=workers, threads=threads), spins_long
    )


def laptop(**others: Any) -> Any:
    """Return the settings of recipe ``laptop`` with a short warm-up."""
    from framestow.training import Settings

    return Settings(game=GAME, recipe="laptop", steps=1_000_000_000, warmup=WARMUP, device="cpu", **others)


_SB3_NOTE = f"Huber loss, gradient norm clipped to 10; buffer of {CAPACITY:,} as in RL Baselines3 Zoo"
BARE, SB3 = "bare learner", "Stable-Baselines3"
SPINNING = ", threads that spin"
SYSTEMS = {
    "framestow": System(_framestow(1), "Huber loss; 1 environment"),
    "framestow, 1 worker": System(_framestow(1, 1), "1 environment, in a process of its own"),
    "framestow, 8 environments": System(_framestow(8), "8 environments"),
    "framestow, 8 environments, 1 worker": System(_framestow(8, 1), "8 environments, in a process of their own"),
    f"framestow{SPINNING}": System(_framestow(1, spins_long=True), "threads that wait as PyTorch has it"),
    f"framestow, 8 environments{SPINNING}": System(_framestow(8, spins_long=True), "the same, 8 environments"),
    SB3: System(lambda threads: StableBaselines3Trainer(threads, False), _SB3_NOTE, "stable-baselines3"),
    f"{SB3}, optimize_memory_usage": System(
        lambda threads: StableBaselines3Trainer(threads, True), f"{_SB3_NOTE}; gives up truncation", "stable-baselines3"
    ),
    "CleanRL's dqn_atari": System(
        CleanRLTrainer, "squared error; the published algorithm, not its file; gives up truncation", "stable-baselines3"
    ),
    BARE: System(lambda threads: BareLearner(threads, True), "channels-last, fused Adam, Huber loss"),
    f"{BARE}, PyTorch's defaults": System(lambda threads: BareLearner(threads, False), "contiguous, Adam as it comes"),
}
RECIPES = {
    "laptop": System(lambda _: FramestowTrainer(laptop), "the recipe, with its one PyTorch thread"),
    "laptop, network nature": System(
        lambda _: FramestowTrainer(lambda: laptop(network="nature")), "one PyTorch thread"
    ),
    "laptop, network nature, all cores": System(
        lambda threads: FramestowTrainer(lambda: laptop(network="nature", threads=threads, workers=0)),
        "environments in this process",
    ),
}
"""The same samples a step; measured by `training.py --recipes`."""


MILLION = 1_000_000


def _affordable(stacks: int) -> int:
    """Return how many transitions of so many stacks fit into half of the free memory, at most a million."""
    return min(MILLION, available_bytes() // 2 // (stacks * STACK * FRAME_SIDE**2))


def _framestows_buffer(threads: int) -> StableBaselines3Trainer:
    from framestow.integrations.stable_baselines3 import ReplayBuffer

    return StableBaselines3Trainer(threads, replay_buffer_class=ReplayBuffer, buffer_size=MILLION)


BUFFERS = {
    "framestow's buffer": System(_framestows_buffer),
    f"{SB3}'s buffer": System(lambda threads: StableBaselines3Trainer(threads, buffer_size=_affordable(2))),
    f"{SB3}'s buffer, optimize_memory_usage": System(
        lambda threads: StableBaselines3Trainer(threads, True, buffer_size=_affordable(1)),
        "truncation, and the last frame of an episode",
    ),
}
"""Stable-Baselines3's DQN with three buffers; measured by drop_in_training.py. The notes say what they give up."""

"""What a run has learnt, playing in environments of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium.vector import VectorEnv

from framestow.agents.dqn import DQN
from framestow.agents.settings import EpsilonGreedy, LinearSchedule
from framestow.envs import FinishedGame, Recorder, finished_games
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.stacking import StackPadding
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import read_agent, saved_agent_steps
from framestow.training.run import choose_device, num_actions_of
from framestow.training.run_folder import RunFolder

_READ_ATTEMPTS = 10


class Player:
    """The last checkpoint's network, playing in environments of its own.

    Reads the run folder and never writes to it, so it may be used while the run goes on. ``env`` must have the frames
    and the actions of what the run was trained on, and belongs to the player from then on. ``stack_padding`` is what
    fills a stack at an episode's beginning.
    """

    def __init__(
        self,
        folder: RunFolder,
        env: VectorEnv[Any, Any, Any],
        epsilon: float,
        seed: int,
        device: str = "auto",
        *,
        stack_padding: StackPadding = "first_frame",
    ) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise InvalidSettingsError(
                f"epsilon is {epsilon}: it must be a probability from 0 to 1; give another --epsilon"
            )
        settings = folder.settings()
        num_actions = num_actions_of(env)
        self._policy = EpsilonGreedy(LinearSchedule(epsilon, epsilon, 0), num_actions, seed)
        # Stacks come from a memory, as in training: what the policy sees here is what it saw there.
        memory = ReplayMemory(
            env.num_envs,
            env.single_observation_space,
            env.single_action_space,
            stack=settings.stack,
            stack_padding=stack_padding,
            num_envs=env.num_envs,
            storage="raw",
        )
        self.env = Recorder(env, memory)
        shape = self.env.single_observation_space.shape or ()
        self._agent = DQN(shape, num_actions, settings.agent(), choose_device(device), seed)
        state, self.agent_steps = _read_newest_agent(folder, str(self._agent.device))
        self._agent.load_state_dict(state)

    def steps(self) -> Iterator[list[FinishedGame]]:
        """Play without end, from a reset; after each step give the games that it finished."""
        observations, _ = self.env.reset()
        while True:
            actions = self._policy.act(observations, 0, self._agent.choose_greedily)
            observations, _, _, _, infos = self.env.step(actions)
            yield finished_games(infos)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def _read_newest_agent(folder: RunFolder, device: str) -> tuple[dict[str, Any], int]:
    """Read the last checkpoint's agent; a run that goes on may replace the checkpoint while it is read."""
    for _ in range(_READ_ATTEMPTS - 1):
        checkpoint = folder.newest_checkpoint()
        try:
            return read_agent(checkpoint, device), saved_agent_steps(checkpoint)
        except (FileNotFoundError, DamagedDataError):  # a file that is gone is one that cannot be read
            if checkpoint == folder.newest_checkpoint():
                raise
    checkpoint = folder.newest_checkpoint()
    return read_agent(checkpoint, device), saved_agent_steps(checkpoint)

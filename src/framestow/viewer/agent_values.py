"""``AgentValues``: what the agent of a checkpoint thinks of the steps in a memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from framestow.agents.dqn import DQN
from framestow.envs.atari.games import list_games
from framestow.envs.atari.presets import find_preset
from framestow.errors import IncompatibleError
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.batch import Batch
from framestow.training.checkpoint import read_agent_steps, restore_agent
from framestow.training.playing import action_names
from framestow.training.run_folder import RunFolder


class AgentValues:
    """The agent of a run at a checkpoint: its value of every action, and the TD errors of transitions.

    The TD error is that of Q-learning: the return, plus the discount times the highest value of the next observation,
    minus the value of the action.

    Arguments:
        folder: The run folder.
        memory: The memory that the run learnt from.
        checkpoint: The checkpoint; ``None`` takes the newest.

    Raises:
        InvalidSettingsError: the run has no checkpoint yet.
        IncompatibleError: the network does not take the observations of this memory.
    """

    def __init__(self, folder: RunFolder, memory: ReplayMemory, checkpoint: Path | None = None) -> None:
        settings, chosen = folder.settings(), checkpoint or folder.newest_checkpoint()
        observed, num_actions = memory.inner.settings.layout.spec, memory.inner.settings.action.num_actions
        shape = observed.arrays[0].frame.shape if observed.is_one_array else ()
        self._agent = DQN(shape, num_actions, settings.agent(), "cpu", seed=0)
        try:
            restore_agent(chosen, self._agent)
        except IncompatibleError as error:
            raise IncompatibleError(
                f"{chosen}: its network does not take the observations of the memory ({error}); show the memory alone, "
                "by its own folder"
            ) from error
        self.agent_steps = read_agent_steps(chosen)
        self.names = [str(action) for action in range(num_actions)]
        if settings.game in list_games():
            self.names = action_names(settings.game, find_preset(settings.preset))

    def of_batch(self, batch: Batch) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the value of every action, ``(n, num_actions)``, and the TD error of each transition."""
        values = self._agent.values(np.ascontiguousarray(batch.observation))
        next_values = self._agent.values(np.ascontiguousarray(batch.next_observation)).max(axis=1)
        chosen = values[np.arange(len(batch)), batch.action]
        errors: npt.NDArray[np.float32] = batch.reward + batch.discount * next_values - chosen
        return values, errors

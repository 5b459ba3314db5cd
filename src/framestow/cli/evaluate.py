"""``framestow evaluate``: how well a run plays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import track


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play whole games with a run's last checkpoint; print mean, median and standard error of the scores.

    Works while the run goes on. Writes evaluation.json into the run folder.
    """

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: int = 10
    """Games to play."""

    epsilon: float | None = None
    """Probability of a random action; None takes 0.05 for nature (Mnih et al. 2015), else 0.001 (Dopamine)."""

    seed: int = 1_000_000
    """Seed of environments and random actions; far from those that one trains with."""

    device: str = "auto"
    """Where the network runs: auto, cpu, cuda or mps."""

    def run(self, console: Console) -> int:
        """Play, print and write; return the exit code."""
        # PyTorch takes seconds to load, and help does not wait for it.
        from framestow.training.playing.evaluation import evaluation_settings, play_episodes, summed_up  # noqa: PLC0415
        from framestow.training.playing.player import Player, usual_epsilon  # noqa: PLC0415
        from framestow.training.run import make_game  # noqa: PLC0415
        from framestow.training.run_folder import RunFolder  # noqa: PLC0415

        folder = RunFolder.open(self.run_folder)
        settings = folder.settings()
        epsilon = usual_epsilon(settings.preset) if self.epsilon is None else self.epsilon
        env = make_game(evaluation_settings(settings, self.episodes, self.seed))
        player = Player(folder, env, epsilon, self.seed, self.device)
        try:
            played = play_episodes(player, self.episodes)
            games = list(
                track(
                    played, "playing", self.episodes, console=console, transient=True, disable=not console.is_terminal
                )
            )
        finally:
            player.close()
        evaluation = summed_up(games, settings, player.agent_steps, epsilon, self.seed)
        evaluation.write(folder.evaluation)
        error = evaluation.standard_error
        console.print(
            f"{settings.game}, trained with the preset {settings.preset} for {player.agent_steps:,} agent steps; "
            f"{self.episodes} games at epsilon {epsilon:g}, seed {self.seed:_}\n"
            f"mean {evaluation.mean:.2f} · median {evaluation.median:g} · standard error "
            f"{'-' if error is None else f'{error:.2f}'} · written to {folder.evaluation}",
            soft_wrap=True,
            highlight=False,
        )
        return 0

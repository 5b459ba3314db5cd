"""``framestow evaluate``: play games with a trained agent and report the scores."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.progress import track

if TYPE_CHECKING:
    from framestow.training.playing import Evaluation


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Play whole games with the last checkpoint of a run; print mean, median and standard error of the scores.

    Works while the run is still training. Writes evaluation.json into the run folder.
    """

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    episodes: int = 10
    """Games to play."""

    preset: str | None = None
    """Preset of the environment; None takes the preset that the run was trained with."""

    epsilon: float | None = None
    """Probability of a random action; None takes 0.05 for nature, 0.01 for baselines and 0.001 for other presets."""

    seed: int = 1_000_000
    """Seed of the environments and the random actions. Choose a seed that training does not use."""

    device: str = "auto"
    """Where the network runs: auto, cpu, cuda or mps."""

    def run(self, console: Console) -> int:
        """Play the games, print the scores, write evaluation.json and return the exit code."""
        # Imported here: --help must not wait seconds for PyTorch.
        from framestow.envs import find_preset  # noqa: PLC0415
        from framestow.training.playing import (  # noqa: PLC0415
            Player,
            evaluation_settings,
            play_episodes,
            preset_warning,
            summarize,
        )
        from framestow.training.run import make_game  # noqa: PLC0415
        from framestow.training.run_folder import RunFolder  # noqa: PLC0415

        folder = RunFolder.open(self.run_folder)
        trained = folder.settings()
        preset = find_preset(self.preset or trained.preset)
        played = evaluation_settings(trained, self.episodes, self.seed, preset.name)
        warning = preset_warning(trained.game, find_preset(trained.preset), preset)
        if warning:
            console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
        epsilon = preset.evaluation_epsilon if self.epsilon is None else self.epsilon
        env = make_game(played)
        player = Player(folder, env, epsilon, self.seed, self.device, stack_padding=preset.stack_padding)
        try:
            finished = play_episodes(player, self.episodes)
            games = list(
                track(
                    finished, "playing", self.episodes, console=console, transient=True, disable=not console.is_terminal
                )
            )
        finally:
            player.close()
        evaluation = summarize(games, trained, played, player.agent_steps, epsilon)
        evaluation.write(folder.evaluation)
        console.print(f"{_score_lines(evaluation)} · written to {folder.evaluation}", soft_wrap=True, highlight=False)
        return 0


def _score_lines(evaluation: Evaluation) -> str:
    played, error = evaluation.played_preset, evaluation.standard_error
    num_games = "1 game" if len(evaluation.scores) == 1 else f"{len(evaluation.scores):,} games"
    return (
        f"{evaluation.game}, trained with preset {evaluation.preset} for {evaluation.agent_steps:,} agent steps; "
        f"{num_games} played{f' with preset {played}' if played != evaluation.preset else ''} "
        f"at epsilon {evaluation.epsilon:g}, seed {evaluation.seed:_}\n"
        f"mean {evaluation.mean:.2f} · median {evaluation.median:g} · standard error "
        f"{'-' if error is None else f'{error:.2f}'}"
    )

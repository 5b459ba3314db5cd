"""``framestow watch``: a video of how a run plays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro
from rich.console import Console
from rich.progress import Progress

from framestow.errors import InvalidSettingsError


@dataclasses.dataclass(frozen=True)
class Watch:
    """Play one game with a run's last checkpoint and write it as a video. Works while the run goes on."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    output: Path | None = None
    """File to write; by default GAME-STEPS.mp4 in the run folder. The ending chooses the format."""

    scale: int = 3
    """Side, in pixels of the video, of a pixel of the console."""

    max_steps: int | None = None
    """Agent steps to show at most, 15 a second; None shows the whole game."""

    preset: str | None = None
    """Recipe of the environment to play with; None takes the one that the run was trained with."""

    epsilon: float | None = None
    """Probability of a random action; None takes the preset's: 0.05 for nature, 0.01 for baselines, else 0.001."""

    seed: int = 1_000_000
    """Seed of the environment and of the random actions."""

    device: str = "auto"
    """Where the network runs: auto, cpu, cuda or mps."""

    def run(self, console: Console) -> int:
        """Play, write and tell; return the exit code."""
        # PyTorch takes seconds to load, and help does not wait for it.
        from framestow.envs import find_preset, make_atari  # noqa: PLC0415
        from framestow.training.playing import (  # noqa: PLC0415
            Player,
            check_video_path,
            record_game,
            warning_of_other_preset,
        )
        from framestow.training.run_folder import RunFolder  # noqa: PLC0415

        for name in ("scale", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSettingsError(f"{name} is {value}: it must be at least 1; give another value")
        if self.output is not None:
            check_video_path(self.output)
        folder = RunFolder.open(self.run_folder)
        settings = folder.settings()
        preset = find_preset(self.preset or settings.preset)
        warning = warning_of_other_preset(settings.game, find_preset(settings.preset), preset)
        if warning:
            console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
        epsilon = preset.evaluation_epsilon if self.epsilon is None else self.epsilon
        env = make_atari(settings.game, 1, preset, self.seed, render_mode="rgb_array")
        player = Player(folder, env, epsilon, self.seed, self.device, stack_padding=preset.stack_padding)
        path = self.output or folder.path / f"{settings.game}-{player.agent_steps}.mp4"
        try:
            with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
                task = progress.add_task("playing", total=self.max_steps)
                shown, game = record_game(
                    player, path, self.scale, self.max_steps, lambda steps: progress.update(task, completed=steps)
                )
        finally:
            player.close()
        ending = f"score {game.score:g}" if game else "cut off before the game ended"
        console.print(
            f"{settings.game}, trained with the preset {settings.preset} for {player.agent_steps:,} agent steps; "
            f"{shown:,} steps at epsilon {epsilon:g}, {ending} · written to {path}",
            soft_wrap=True,
            highlight=False,
        )
        return 0

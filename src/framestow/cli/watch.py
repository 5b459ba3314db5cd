"""``framestow watch``: record a video of a trained agent."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.printing import print_line, print_warning
from framestow.cli.progress_bars import ProgressDisplay
from framestow.errors import InvalidSettingsError


@dataclasses.dataclass(frozen=True)
class Watch:
    """Play one game with the last checkpoint of a run and record a video. Works while the run is still training.

      framestow watch runs/Breakout-baselines-s0-20260131-174500
      framestow watch runs/Breakout-baselines-s0-20260131-174500 --output game.mp4

    Beside the picture stands the agent's value of each action. The action that it takes next is marked.
    """

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    output: Path | None = None
    """Video file; None takes GAME-STEPS.mp4 in the run folder. The file extension selects the format."""

    scale: int = 3
    """Enlargement: each pixel of the game becomes a square of this many pixels a side."""

    max_steps: int | None = None
    """Maximum number of agent steps to record, 15 per second; None records the whole game."""

    values: bool = True
    """Draw the agent's value of each action beside the picture."""

    preset: str | None = None
    """Preset of the environment; None takes the preset that the run was trained with."""

    epsilon: float | None = None
    """Probability of a random action; None takes 0.05 for nature, 0.01 for baselines and 0.001 for other presets."""

    seed: int = 1_000_000
    """Seed of the environment and the random actions."""

    device: str = "auto"
    """Where the network runs: auto, cpu, cuda or mps."""

    follow_links: bool = False
    """Follow checkpoints or a memory in the run folder that are links to folders elsewhere. Only for runs you trust."""

    def run(self, console: Console) -> int:
        """Play the game, write the video and return the exit code."""
        with ProgressDisplay(console, "loading PyTorch"):  # imported here: --help must not wait seconds for it
            from framestow.envs import find_preset, make_atari  # noqa: PLC0415
            from framestow.training.playing import (  # noqa: PLC0415
                Player,
                action_names,
                check_video_path,
                preset_warning,
                record_game,
            )
            from framestow.training.run_folder import RunFolder  # noqa: PLC0415

        for name in ("scale", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSettingsError(f"{name} is {value}: it must be at least 1; give another value")
        if self.output is not None:
            check_video_path(self.output)
        folder = RunFolder.open(self.run_folder, follow_links=self.follow_links)
        check_output("output", self.output or folder.path / "video.mp4")
        settings = folder.settings()
        preset = find_preset(self.preset or settings.preset)
        warning = preset_warning(settings.game, find_preset(settings.preset), preset)
        if warning:
            print_warning(console, warning)
        epsilon = preset.evaluation_epsilon if self.epsilon is None else self.epsilon
        with ProgressDisplay(console, "loading the agent"):
            env = make_atari(settings.game, 1, preset, self.seed, render_mode="rgb_array")
            player = Player(folder, env, epsilon, self.seed, self.device, stack_padding=preset.stack_padding)
        path = self.output or folder.path / f"{settings.game}-{player.agent_steps}.mp4"
        try:
            with ProgressDisplay(console, "playing", "items") as progress:
                shown, game = record_game(
                    player,
                    path,
                    self.scale,
                    self.max_steps,
                    lambda steps: progress(steps, self.max_steps),
                    action_names(settings.game, preset) if self.values else None,
                )
        finally:
            player.close()
        ending = f"score {game.score:g}" if game else "stopped before the game ended"
        print_line(
            console,
            f"{settings.game}, trained with preset {settings.preset} for {player.agent_steps:,} agent steps; "
            f"{shown:,} steps at epsilon {epsilon:g}, {ending} · written to {path}",
        )
        return 0

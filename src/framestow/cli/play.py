"""``framestow evaluate`` and ``framestow watch``: play games with a trained agent, for scores or a video."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.printing import ProgressDisplay, print_line, print_warning
from framestow.errors import InvalidSettingsError
from framestow.interface import plural

if TYPE_CHECKING:
    from framestow.training.playing import Evaluation, EvaluationProtocol


DEFAULT_EPISODES = 10
MOST_SCALE = 32  # pictures of 5,120 pixels


@dataclasses.dataclass(frozen=True)
class _TrainedAgent:
    """The agent that plays, and how."""

    run_folder: tyro.conf.Positional[Path]
    """Folder of the run."""

    preset: str | None = None
    """Preset of the environment; None takes the preset that the run was trained with."""

    epsilon: float | None = None
    """Probability of a random action; None takes 0.05 for nature, 0.01 for baselines and 0.001 for other presets."""

    seed: int = 1_000_000
    """Seed of the environments and the random actions. Choose a seed that training does not use."""

    device: str = "auto"
    """Where the network runs: auto, cpu, cuda or mps."""

    follow_links: bool = False
    """Follow checkpoints or a memory in the run folder that are links to folders elsewhere. Only for runs you trust."""


@dataclasses.dataclass(frozen=True)
class Evaluate(_TrainedAgent):
    """Play whole games with the last checkpoint of a run; print mean, median and standard error of the scores.

      framestow evaluate runs/Breakout-baselines-s0-20260131-174500
      framestow evaluate runs/Breakout-baselines-s0-20260131-174500 --episodes 30

    Prints the human-normalised mean too. Works while the run is still training. Writes evaluation.json into the run
    folder.
    """

    protocol: str | None = None
    """Published protocol, which decides --preset, --episodes and --epsilon: machado2018 (100 games, sticky actions,
    and the mean of the last 100 training games) or nature (30 games, no-op starts, epsilon 0.05)."""

    episodes: int | None = None
    """Games to play; None takes 10, or the number of the protocol."""

    def run(self, console: Console) -> int:
        """Play the games, print the scores, write evaluation.json and return the exit code."""
        with ProgressDisplay(console, "loading PyTorch"):  # imported here: --help must not wait seconds for it
            from framestow.envs import find_preset, make_atari  # noqa: PLC0415
            from framestow.training.listeners import last_scores  # noqa: PLC0415
            from framestow.training.playing import (  # noqa: PLC0415
                Player,
                evaluation_settings,
                find_protocol,
                play_episodes,
                preset_warning,
                summarize,
            )
            from framestow.training.run_folder import RunFolder  # noqa: PLC0415

        folder = RunFolder.open(self.run_folder, follow_links=self.follow_links)
        check_output("", folder.evaluation)
        trained = folder.settings()
        protocol = None if self.protocol is None else find_protocol(self.protocol)
        if protocol:
            self._check_agrees(protocol)
        preset = protocol.preset if protocol else find_preset(self.preset or trained.preset)
        episodes = protocol.episodes if protocol else DEFAULT_EPISODES if self.episodes is None else self.episodes
        epsilon = preset.evaluation_epsilon if self.epsilon is None else self.epsilon
        played = evaluation_settings(trained, episodes, self.seed, preset.name)
        warning = preset_warning(trained.game, find_preset(trained.preset), find_preset(preset.name))
        if warning:
            print_warning(console, warning)
        with ProgressDisplay(console, "loading the agent"):
            env = make_atari(
                played.game, played.num_envs, preset, played.seed, workers=played.workers, on_worker_lost="restart"
            )
            player = Player(folder, env, epsilon, self.seed, self.device, stack_padding=preset.stack_padding)
        try:
            games = []
            with ProgressDisplay(console, "playing", "items") as progress:
                progress(0, episodes)
                for game in play_episodes(player, episodes):
                    games.append(game)
                    progress(len(games), episodes)
        finally:
            player.close()
        training_scores: list[float] = []
        if protocol and protocol.name == trained.preset == "machado2018":
            training_scores = last_scores(folder.episodes, protocol.episodes, player.agent_steps)
        evaluation = summarize(games, trained, played, player.agent_steps, epsilon, protocol, training_scores)
        evaluation.write(folder.evaluation)
        if protocol:
            print_line(console, str(protocol))
        for line in [*_score_lines(evaluation), f"written to {folder.evaluation}"]:
            print_line(console, line)
        return 0

    def _check_agrees(self, protocol: EvaluationProtocol) -> None:
        """Raise ``InvalidSettingsError`` if an option contradicts the protocol."""
        for name, given, fixed in (
            ("preset", self.preset, protocol.preset.name),
            ("episodes", self.episodes, protocol.episodes),
            ("epsilon", self.epsilon, protocol.epsilon),
        ):
            if given is not None and given != fixed:
                raise InvalidSettingsError(
                    f"{name} is {given}: protocol {protocol.name!r} has {fixed}; leave out --{name} or --protocol"
                )


def _score_lines(evaluation: Evaluation) -> list[str]:
    from framestow.training.scores import human_normalized, random_and_human_scores  # noqa: PLC0415

    played, error, game = evaluation.played_preset, evaluation.standard_error, evaluation.game
    num_games = plural(len(evaluation.scores), "game")
    lines = [
        f"{game}, trained with preset {evaluation.preset} for {evaluation.agent_steps:,} agent steps; "
        f"{num_games} played{f' with preset {played}' if played != evaluation.preset else ''} "
        f"at epsilon {evaluation.epsilon:g}, seed {evaluation.seed:_}",
        f"mean {evaluation.mean:.2f} · median {evaluation.median:g} · standard error "
        f"{'-' if error is None else f'{error:.2f}'}",
    ]
    if evaluation.training_mean is not None:
        lines.append(
            f"mean {evaluation.training_mean:.2f} of the last "
            f"{plural(len(evaluation.training_scores), 'training game')}: the "
            "paper reports the mean of the last 100"
        )
    normalized = human_normalized(game, evaluation.mean)
    if normalized is None:
        lines.append(f"human-normalised -: {game} is not among the 57 games with a human score")
    else:
        lines.append(f"human-normalised mean {normalized:.3f} ({random_and_human_scores(game)})")
    return lines


@dataclasses.dataclass(frozen=True)
class Watch(_TrainedAgent):
    """Play one game with the last checkpoint of a run and record a video. Works while the run is still training.

      framestow watch runs/Breakout-baselines-s0-20260131-174500
      framestow watch runs/Breakout-baselines-s0-20260131-174500 --output game.mp4

    Beside the picture stands the agent's value of each action. The action that it takes next is marked.
    """

    output: Path | None = None
    """Video file; None takes GAME-STEPS.mp4 in the run folder. The file extension selects the format."""

    scale: int = 3
    """Enlargement: each pixel of the game becomes a square of this many pixels a side."""

    max_steps: int | None = None
    """Maximum number of agent steps to record, 15 per second; None records the whole game."""

    values: bool = True
    """Draw the agent's value of each action beside the picture."""

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

        if self.max_steps is not None and self.max_steps < 1:
            raise InvalidSettingsError(f"max_steps is {self.max_steps}: it must be at least 1; give another value")
        if not 1 <= self.scale <= MOST_SCALE:
            raise InvalidSettingsError(f"scale is {self.scale}: it must be from 1 to {MOST_SCALE}; give another value")
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
        path = self.output or folder.path / f"{settings.file_stem}-{player.agent_steps}.mp4"
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

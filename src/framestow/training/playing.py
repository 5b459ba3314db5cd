"""Play games with a trained run: to evaluate it, or to record a video."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from framestow.agents.dqn import DQN
from framestow.agents.settings import EpsilonGreedy, LinearSchedule
from framestow.envs import FinishedGame, Recorder, finished_games
from framestow.envs.atari.atari_env import AtariEnv
from framestow.envs.atari.presets import PRESETS, Preset, differing_fields
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.frames.stacking import StackPadding
from framestow.replay.memory import ReplayMemory
from framestow.training.checkpoint import read_agent, saved_agent_steps
from framestow.training.run import choose_device, num_actions_of
from framestow.training.run_folder import RunFolder
from framestow.training.settings import Settings

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


MAX_ENVS = 8  # side by side; more gain nothing on a few cores


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Scores of whole games, unclipped, and how they were played."""

    game: str
    preset: str  # that the run was trained with
    played_preset: str  # that these games were played with
    agent_steps: int  # that the run had made
    epsilon: float
    seed: int
    scores: tuple[float, ...]
    lengths: tuple[int, ...]  # agent steps

    @property
    def mean(self) -> float:
        """Mean score."""
        return statistics.fmean(self.scores)

    @property
    def median(self) -> float:
        """Median score."""
        return statistics.median(self.scores)

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for a single game, which tells nothing about it."""
        return statistics.stdev(self.scores) / len(self.scores) ** 0.5 if len(self.scores) > 1 else None

    def write(self, path: Path) -> None:
        """Write everything as JSON, replacing what was there in one step."""
        summary = {"mean": self.mean, "median": self.median, "standard_error": self.standard_error}
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps({**dataclasses.asdict(self), **summary}, indent=2) + "\n", encoding="utf-8")
        new.replace(path)


def play_episodes(player: Player, episodes: int) -> Iterator[FinishedGame]:
    """Yield ``episodes`` games as they end.

    Each environment has a share of them fixed beforehand: taking the first to end would favour short games.
    """
    num_envs = player.env.num_envs
    left = np.full(num_envs, episodes // num_envs)
    left[: episodes % num_envs] += 1
    for games in player.steps():
        for game in games:
            if left[game.env_id] > 0:
                left[game.env_id] -= 1
                yield game
        if not left.any():
            return


def evaluation_settings(settings: Settings, episodes: int, seed: int, preset: str | None = None) -> Settings:
    """Return the settings to make environments from for so many episodes; raises for fewer than one.

    ``preset`` is what to play with; None keeps what the run was trained with.
    """
    if episodes < 1:
        raise InvalidSettingsError(f"episodes is {episodes}: it must be at least 1; give another --episodes")
    num_envs = min(episodes, MAX_ENVS)
    return dataclasses.replace(
        settings,
        num_envs=num_envs,
        workers=min(settings.workers, num_envs),
        seed=seed,
        preset=preset or settings.preset,
    )


def summed_up(
    games: list[FinishedGame], trained: Settings, played: Settings, agent_steps: int, epsilon: float
) -> Evaluation:
    """Sum up the games of a player: the settings of the run, and those that its environments were made from."""
    return Evaluation(
        game=trained.game,
        preset=trained.preset,
        played_preset=played.preset,
        agent_steps=agent_steps,
        epsilon=epsilon,
        seed=played.seed,
        scores=tuple(game.score for game in games),
        lengths=tuple(game.agent_steps for game in games),
    )


def warning_of_other_preset(game: str, trained: Preset, played: Preset) -> str | None:
    """Say that scores are not comparable, and in what the presets differ; None where they are one and the same.

    Raises:
        IncompatibleError: the network that was trained does not fit the other preset's actions or frames.
    """
    if trained == played:
        return None
    _check_actions(game, trained, played)
    if trained.frame_shape != played.frame_shape:
        raise IncompatibleError(
            f"preset {played.name!r} has frames of {played.frame_shape}: the run was trained with {trained.name!r}, of "
            f"{trained.frame_shape}, and its network takes no others; play with frames of that shape"
        )
    return (
        f"trained with the preset {trained.name}, played with {played.name}: the scores are not comparable with others "
        f"of {trained.name}, nor with those of agents trained with {played.name}. They differ (trained against played) "
        f"in {', '.join(differing_fields(trained.to_dict(), played))}"
    )


def _check_actions(game: str, trained: Preset, played: Preset) -> None:
    if trained.action_set == played.action_set:
        return
    learnt, offered = _actions(game, trained), _actions(game, played)
    if learnt != offered:
        fitting = [preset.name for preset in PRESETS.values() if preset.action_set == trained.action_set]
        raise IncompatibleError(
            f"preset {played.name!r} has {len(offered)} actions in {game}: the run was trained with {trained.name!r}, "
            f"of {len(learnt)}, and its network has an output for each of these; play with {' or '.join(fitting)}"
        )


def _actions(game: str, preset: Preset) -> list[str]:
    env = AtariEnv(game, preset)
    actions = env.action_meanings()
    env.close()
    return actions


ENDINGS = (".avi", ".flv", ".m4v", ".mkv", ".mov", ".mp4", ".mpg", ".ts", ".wmv")  # that ffmpeg writes by itself


def check_video_path(path: Path) -> None:
    """Raise ``InvalidSettingsError`` where ``path`` has no video's ending, no folder, or is one."""
    if path.suffix.lower() not in ENDINGS:
        raise InvalidSettingsError(
            f"output is {path}: a video's name must end in one of {' '.join(ENDINGS)}; "
            f"give --output {path.with_suffix('.mp4')}"
        )
    if not path.parent.is_dir():
        raise InvalidSettingsError(
            f"output is {path}: there is no folder {path.parent}; make it, or give another --output"
        )
    if path.is_dir():
        raise InvalidSettingsError(f"output is {path}: that is a folder; give the name of a file in it with --output")


def record_game(
    player: Player, path: Path, scale: int, max_steps: int | None, notice: Callable[[int], None]
) -> tuple[int, FinishedGame | None]:
    """Write the first game that ``player``, of one environment with ``render_mode="rgb_array"``, plays to ``path``.

    One picture an agent step at the speed of the console, each pixel a square of ``scale``. Stops at ``max_steps``.
    ``notice`` is called with the number of agent steps after each. The file appears when it is whole. Returns the
    agent steps shown, and the game if it ended.
    """
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    game: FinishedGame | None = None
    num_steps = 0
    writer: Any = None
    try:
        partial.touch()  # where the system refuses, it says why; ffmpeg's pipe only breaks
        for num_steps, games in enumerate(player.steps(), start=1):
            picture = _upscaled(_picture(player), scale)
            if writer is None:
                writer = _opened(partial, picture, float(player.env.metadata.get("render_fps", 15)))
            writer.send(np.ascontiguousarray(picture))
            notice(num_steps)
            game = games[0] if games else None
            if game or num_steps == max_steps:
                break
        writer.close()
        writer = None
        partial.replace(path)
    finally:
        if writer is not None:
            writer.close()
        partial.unlink(missing_ok=True)
    return num_steps, game


def _opened(path: Path, picture: NDArray[np.uint8], frames_per_second: float) -> Any:
    height, width, _ = picture.shape
    writer = imageio_ffmpeg.write_frames(
        str(path), (width, height), fps=frames_per_second, macro_block_size=2, quality=7, ffmpeg_log_level="error"
    )
    writer.send(None)
    return writer


def _picture(player: Player) -> NDArray[np.uint8]:
    pictures = player.env.render()
    if not pictures:
        raise ValueError("the environment renders nothing: make it with render_mode='rgb_array'")
    return np.asarray(pictures[0], np.uint8)


def _upscaled(picture: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    return picture.repeat(times, axis=0).repeat(times, axis=1)

"""Play games with the agent of a trained run, to evaluate it or to record a video."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from framestow.agents.dqn import DQN
from framestow.agents.settings import EpsilonGreedy, LinearSchedule
from framestow.checks import find_by_name
from framestow.envs import AtariEnv, FinishedGame, Recorder, finished_games
from framestow.envs.atari.presets import PRESETS, Preset, differing_fields, find_preset
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.frames.stacking import StackPadding
from framestow.interface import plural
from framestow.replay.memory import ReplayMemory
from framestow.storage.files.file_system import (
    DISK,
    check_can_write,
    remove_if_possible,
    temporary_path,
    write_atomically,
)
from framestow.training.checkpoint import read_agent_steps, restore_agent
from framestow.training.run import check_spaces, choose_device
from framestow.training.run_folder import VIDEO_FORMATS, RunFolder
from framestow.training.scores import RANDOM_AND_HUMAN, human_normalized
from framestow.training.settings import Settings

_READ_ATTEMPTS = 10  # to read a checkpoint, which the training may replace meanwhile


class Player:
    """Plays with the network of a run's newest checkpoint. It only reads the run folder, so the run may continue.

    Arguments:
        folder: The run folder.
        env: Environments with the frames and actions of the training; ``close`` closes them.
        epsilon: Probability of a random action.
        seed: Seed of the random actions.
        device: Where the network runs: auto, cpu, cuda or mps.
        stack_padding: Padding of a stack at the beginning of an episode.
        capacity: Number of transitions that ``memory`` keeps of the play; ``None`` keeps each environment's newest one.
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
        capacity: int | None = None,
    ) -> None:
        if not 0.0 <= epsilon <= 1.0:
            raise InvalidSettingsError(
                f"epsilon is {epsilon}: it must be a probability from 0 to 1; give another --epsilon"
            )
        settings = folder.settings()
        num_actions = check_spaces(env)
        self._policy = EpsilonGreedy(LinearSchedule(epsilon, epsilon, 0), num_actions, seed)
        # A memory stacks the frames, as in training, so the network gets the same observations.
        self.memory = ReplayMemory(
            env.num_envs if capacity is None else capacity,
            env.single_observation_space,
            env.single_action_space,
            stack=settings.stack,
            stack_padding=stack_padding,
            num_envs=env.num_envs,
            storage="raw" if capacity is None else "packed",
        )
        self.env = Recorder(env, self.memory)
        shape = self.env.single_observation_space.shape or ()
        self._agent = DQN(shape, num_actions, settings.agent(), choose_device(device), seed)
        self.agent_steps = _restore_newest_agent(folder, self._agent)
        # The current stacks, ``(num_envs, stack, H, W)``, which ``actions`` are for.
        self._observations: NDArray[np.uint8] = np.zeros((env.num_envs, *shape), np.uint8)
        self.actions: NDArray[np.int64] = np.zeros(env.num_envs, np.int64)
        """The action of each environment in its next step."""

    def steps(self) -> Iterator[list[FinishedGame]]:
        """Reset and play without end; after each step yield the games that finished."""
        self._observe(self.env.reset()[0])
        while True:
            observations, _, _, _, infos = self.env.step(self.actions)
            self._observe(observations)
            yield finished_games(infos)

    def values(self) -> NDArray[np.float32]:
        """Return the agent's value of every action now, ``(num_envs, num_actions)``."""
        return self._agent.values(self._observations)

    def _observe(self, observations: NDArray[np.uint8]) -> None:
        self._observations = observations
        self.actions = self._policy.act(observations, 0, self._agent.choose_greedily)

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def _restore_newest_agent(folder: RunFolder, agent: DQN) -> int:
    """Give ``agent`` the state of the newest checkpoint, return its agent steps. Training may replace it meanwhile."""
    for attempts_left in reversed(range(_READ_ATTEMPTS)):
        checkpoint = folder.newest_checkpoint()
        try:
            agent_steps = read_agent_steps(checkpoint)
            restore_agent(checkpoint, agent)
        except (FileNotFoundError, DamagedDataError):  # the training removed it while it was read
            if not attempts_left or checkpoint == folder.newest_checkpoint():
                raise
        else:
            return agent_steps
    raise AssertionError("the last attempt returns or raises")


MAX_ENVS = 8  # more environments are not faster on a few cores


@dataclasses.dataclass(frozen=True)
class EvaluationProtocol:
    """A published way to evaluate an agent: the environment, the number of games and the random actions."""

    name: str
    source: str  # paper or code that it is from
    preset: Preset
    episodes: int  # games to play

    @property
    def epsilon(self) -> float:
        """Probability of a random action."""
        return self.preset.evaluation_epsilon

    def __str__(self) -> str:
        preset = self.preset
        return (
            f"protocol {self.name} ({self.source}): {plural(self.episodes, 'game')} of at most "
            f"{preset.max_episode_frames:,} "
            f"emulator frames, sticky actions {preset.sticky_probability:g}, up to {preset.max_noops} no-ops, "
            f"{preset.action_set} action set, lost lives {preset.life_loss}, epsilon {self.epsilon:g}"
        )


PROTOCOLS: dict[str, EvaluationProtocol] = {
    protocol.name: protocol
    for protocol in (
        EvaluationProtocol("machado2018", "Machado et al. 2018", find_preset("machado2018"), 100),
        # A lost life ends an episode in the paper's training, but not in its evaluation.
        EvaluationProtocol(
            "nature", "Mnih et al. 2015", dataclasses.replace(find_preset("nature"), life_loss="ignored"), 30
        ),
    )
}


def find_protocol(name: str) -> EvaluationProtocol:
    """Return the protocol of that name.

    Raises:
        InvalidSettingsError: no protocol has this name; the message gives the nearest name, or all names.
    """
    return find_by_name("protocol", name, PROTOCOLS)


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Unclipped scores of whole games, and how they were played."""

    game: str
    preset: str  # of the training
    played_preset: str  # of these games
    agent_steps: int  # of the training so far
    epsilon: float
    seed: int
    scores: tuple[float, ...]
    lengths: tuple[int, ...]  # agent steps
    protocol: str | None = None  # name of the protocol; None for games played with other options
    training_scores: tuple[float, ...] = ()  # of the last training games, where the protocol reports these

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
        """Standard error of the mean; ``None`` for a single game."""
        return statistics.stdev(self.scores) / len(self.scores) ** 0.5 if len(self.scores) > 1 else None

    @property
    def training_mean(self) -> float | None:
        """Mean of ``training_scores``; ``None`` if there are none."""
        return statistics.fmean(self.training_scores) if self.training_scores else None

    def write(self, path: Path) -> None:
        """Write the evaluation as JSON, and replace an older file atomically."""
        random_score, human_score = RANDOM_AND_HUMAN.get(self.game, (None, None))
        summary = {
            "mean": self.mean,
            "median": self.median,
            "standard_error": self.standard_error,
            "human_normalized_mean": human_normalized(self.game, self.mean),
            "random_score": random_score,
            "human_score": human_score,
            "training_mean": self.training_mean,
        }
        text = json.dumps({**dataclasses.asdict(self), **summary}, indent=2) + "\n"
        write_atomically(path, text.encode(), is_durable=False)


def play_episodes(player: Player, episodes: int) -> Iterator[FinishedGame]:
    """Yield ``episodes`` games as they finish.

    Each environment plays a fixed number of them. Counting the first games to finish would favour short games.
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
    """Return the settings of the environments that play ``episodes`` games.

    Arguments:
        settings: The settings of the run.
        episodes: Number of games, at least 1.
        seed: Seed of the environments.
        preset: Preset to play with; ``None`` keeps the preset of the training.
    """
    if episodes < 1:
        raise InvalidSettingsError(f"episodes is {episodes}: it must be at least 1; give another --episodes")
    num_envs = min(episodes, MAX_ENVS)
    return dataclasses.replace(
        settings,
        # No rule of the training about its memory and the number of its environments applies to these.
        memory=MAX_ENVS,
        retention="fifo",
        actors=0,
        shards=1,
        warmup=num_envs * settings.n_step,
        num_envs=num_envs,
        workers=min(settings.workers, num_envs),
        seed=seed,
        preset=preset or settings.preset,  # type: ignore[arg-type]  # Settings checks it
    )


def summarize(
    games: list[FinishedGame],
    trained: Settings,
    played: Settings,
    agent_steps: int,
    epsilon: float,
    protocol: EvaluationProtocol | None = None,
    training_scores: Sequence[float] = (),
) -> Evaluation:
    """Return the evaluation of ``games``, from the settings of the run and those of the environments played.

    ``training_scores`` are those of the last training games, where the protocol reports these.
    """
    return Evaluation(
        game=trained.game,
        preset=trained.preset,
        played_preset=played.preset,
        agent_steps=agent_steps,
        epsilon=epsilon,
        seed=played.seed,
        scores=tuple(game.score for game in games),
        lengths=tuple(game.agent_steps for game in games),
        protocol=protocol.name if protocol else None,
        training_scores=tuple(training_scores),
    )


def preset_warning(game: str, trained: Preset, played: Preset) -> str | None:
    """Return a warning that names the differences of two presets; ``None`` if they are equal.

    Raises:
        IncompatibleError: the trained network does not fit the actions or frames of ``played``.
    """
    if trained == played:
        return None
    _check_actions(game, trained, played)
    if trained.frame_shape != played.frame_shape:
        raise IncompatibleError(
            f"preset {played.name!r} has frames of shape {played.frame_shape}: the network was trained with "
            f"{trained.name!r}, on frames of shape {trained.frame_shape}; play with a preset of that frame shape"
        )
    return (
        f"trained with preset {trained.name}, played with preset {played.name}: do not compare the scores with scores "
        f"of {trained.name}, or of agents trained with {played.name}. Differences (trained against played): "
        f"{', '.join(differing_fields(trained.to_dict(), played))}"
    )


def _check_actions(game: str, trained: Preset, played: Preset) -> None:
    if trained.action_set == played.action_set:
        return
    learnt, offered = action_names(game, trained), action_names(game, played)
    if learnt != offered:
        fitting = [preset.name for preset in PRESETS.values() if preset.action_set == trained.action_set]
        raise IncompatibleError(
            f"preset {played.name!r} has {len(offered)} actions in {game}: the network was trained with "
            f"{trained.name!r}, which has {len(learnt)}; play with {' or '.join(fitting)}"
        )


def action_names(game: str, preset: Preset) -> list[str]:
    """Return the names of the actions of an Atari game in order: ``NOOP``, ``FIRE``, ``UP``, ..."""
    env = AtariEnv(game, preset)
    actions = env.action_meanings()
    env.close()
    return actions


def check_video_path(path: Path) -> None:
    """Raise ``InvalidSettingsError`` if ``path`` has no video extension."""
    if path.suffix.lower() not in VIDEO_FORMATS:
        raise InvalidSettingsError(
            f"output is {path}: the name of a video must end in one of {' '.join(VIDEO_FORMATS)}; "
            f"give --output {path.with_suffix('.mp4') if path.name else path / 'game.mp4'}"
        )


def record_game(
    player: Player,
    path: Path,
    scale: int,
    max_steps: int | None,
    on_step: Callable[[int], None],
    action_names: Sequence[str] | None = None,
) -> tuple[int, FinishedGame | None]:
    """Record one game as a video: one picture per agent step, at the speed of the console.

    The file appears when it is complete.

    Arguments:
        player: Plays one environment with ``render_mode="rgb_array"``.
        path: The video file.
        scale: Side of the square, in pixels, that each pixel of the game becomes.
        max_steps: Maximum number of agent steps; ``None`` records the whole game.
        on_step: Called after each step with the number of agent steps.
        action_names: Name of each action. If given, the agent's values stand right of the picture, a bar for each
            action; the action that the agent takes next is marked.

    Returns:
        The number of recorded agent steps, and the game if it finished.
    """
    check_can_write(path)
    partial = temporary_path(path)
    game: FinishedGame | None = None
    num_steps = 0
    writer: Any = None
    try:
        DISK.create(partial).close()  # exclusively; ffmpeg then writes into it
        for num_steps, games in enumerate(player.steps(), start=1):
            game = games[0] if games else None
            picture = _enlarge(_render(player), scale)
            if action_names is not None:
                chosen = None if game else int(player.actions[0])
                picture = beside(picture, draw_values(player.values()[0], action_names, chosen, len(picture)))
            if writer is None:
                frames_per_second = float(player.env.metadata.get("render_fps", 15))
                writer = _video_writer(partial, path.suffix.lower(), picture, frames_per_second)
            writer.send(np.ascontiguousarray(picture))
            on_step(num_steps)
            if game or num_steps == max_steps:
                break
        writer.close()
        writer = None
        DISK.replace(partial, path)
    finally:
        if writer is not None:
            writer.close()
        remove_if_possible(partial, DISK)
    return num_steps, game


def _video_writer(path: Path, extension: str, picture: NDArray[np.uint8], frames_per_second: float) -> Any:
    height, width, _ = picture.shape
    palette = ["-vf", "split[a][b];[a]palettegen[c];[b][c]paletteuse=dither=none"]  # of the colours that the game has
    writer = imageio_ffmpeg.write_frames(
        str(path.absolute()),  # a relative name may look like a protocol or an option to ffmpeg
        (width, height),
        pix_fmt_out="pal8" if extension == ".gif" else "yuv420p",
        fps=frames_per_second,
        codec={".gif": "gif", ".wmv": "msmpeg4"}.get(extension),
        macro_block_size=2,
        quality=7,
        ffmpeg_log_level="error",
        output_params=["-f", VIDEO_FORMATS[extension], *(palette if extension == ".gif" else [])],
    )
    writer.send(None)
    return writer


def _render(player: Player) -> NDArray[np.uint8]:
    pictures = player.env.render()
    if not pictures:
        raise ValueError(
            "the environment renders nothing: a video needs pictures; create it with render_mode='rgb_array'"
        )
    return np.asarray(pictures[0], np.uint8)


def _enlarge(picture: NDArray[np.uint8], times: int) -> NDArray[np.uint8]:
    return picture.repeat(times, axis=0).repeat(times, axis=1)


WIDTH = 340  # pixels
MIN_ROW, MAX_ROW = 18, 34  # pixels; height of an action's row
MARGIN, GAP = 12, 8  # pixels
NUMBER_WIDTH, LEAST_BAR = 64, 2  # pixels; of the number beside a bar, and of the shortest bar
BACKGROUND, INK, PALE, BAR, CHOSEN = (24, 26, 30), (236, 236, 236), (150, 154, 162), (84, 112, 156), (255, 160, 60)


def draw_values(
    values: NDArray[np.float32], action_names: Sequence[str], chosen: int | None, height: int
) -> NDArray[np.uint8]:
    """Return a picture ``(height or more, 340, 3)`` with a row for each action: its name, a bar, and its value.

    The values of one observation often differ by little. So the shortest bar is the lowest value, and the longest bar
    is the highest one.

    Arguments:
        values: The value of each action.
        action_names: The name of each action.
        chosen: The action to mark; ``None`` marks none.
        height: Height in pixels; the picture is higher if the rows need it.
    """
    rows = len(values) + 2  # the heading takes two
    row = min(MAX_ROW, max(MIN_ROW, (height - 2 * MARGIN) // rows))
    picture = Image.new("RGB", (WIDTH, max(height, rows * row + 2 * MARGIN)), BACKGROUND)
    draw = ImageDraw.Draw(picture)
    font = _font(min(18, row - 4))
    draw.text((MARGIN, MARGIN + row // 2), "value of each action", INK, font, anchor="lm")
    note = f"bars: {min(values):.3g} to {max(values):.3g}"
    draw.text((MARGIN, MARGIN + row * 3 // 2), note, PALE, font, anchor="lm")
    left = MARGIN + max(int(font.getlength(name)) for name in action_names) + GAP
    longest = WIDTH - MARGIN - NUMBER_WIDTH - left
    shares = (values - min(values)) / max(float(max(values) - min(values)), 1e-9)
    for number, (value, share) in enumerate(zip(values, shares, strict=True)):
        top = MARGIN + (number + 2) * row
        middle, is_chosen = top + row // 2, number == chosen
        draw.text((MARGIN, middle), action_names[number], CHOSEN if is_chosen else INK, font, anchor="lm")
        length = LEAST_BAR + round(float(share) * (longest - LEAST_BAR))
        draw.rectangle((left, top + 3, left + length, top + row - 4), CHOSEN if is_chosen else BAR)
        draw.text((WIDTH - MARGIN, middle), f"{value:.3f}", CHOSEN if is_chosen else INK, font, anchor="rm")
    return np.asarray(picture, np.uint8)


def beside(left: NDArray[np.uint8], right: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return two pictures beside each other; black fills the space below the lower one."""
    height = max(len(left), len(right))
    return np.concatenate([np.pad(each, ((0, height - len(each)), (0, 0), (0, 0))) for each in (left, right)], axis=1)


@lru_cache(maxsize=4)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)

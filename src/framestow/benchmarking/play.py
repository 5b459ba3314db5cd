"""Record the play of a game once, and repeat it step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.envs import find_preset, make_atari
from framestow.envs.atari.games import find_rom, title
from framestow.errors import InvalidSettingsError

Frames = npt.NDArray[np.uint8]

# A step's reward is its number, which identifies a sampled transition. Memories store rewards as float32.
MOST_STEPS = 1 << 24


@dataclass(frozen=True)
class Step:
    """One transition, as an agent sees it; observations are read-only views or copies, ``(stack, *frame)``."""

    observation: Frames
    action: int
    reward: float
    terminated: bool
    truncated: bool
    next_observation: Frames
    starts_episode: bool


class Row(NamedTuple):
    """One step of each environment, as a vector environment returns it, or several steps of one environment."""

    observations: Frames  # (n, stack, *frame); of one step a view
    actions: npt.NDArray[np.int64]  # (n,), likewise the following
    rewards: npt.NDArray[np.float32]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    next_observations: Frames
    starting: list[int]  # the rows whose episode begins with this step

    @property
    def ended(self) -> npt.NDArray[np.bool_]:
        """Which episodes ended with this step."""
        return self.terminated | self.truncated

    @classmethod
    def of(cls, *steps: Step) -> Row:
        """Return these steps as rows."""
        parts = [step.observation for step in steps], [step.next_observation for step in steps]
        observations, next_observations = (part[0][None] if len(part) == 1 else np.stack(part) for part in parts)
        return cls(
            observations,
            np.array([step.action for step in steps]),
            np.array([step.reward for step in steps], np.float32),
            np.array([step.terminated for step in steps]),
            np.array([step.truncated for step in steps]),
            next_observations,
            [row for row, step in enumerate(steps) if step.starts_episode],
        )

    def copy(self) -> Row:
        """Return rows in new arrays, as a vector environment returns them."""
        parts: dict[str, Any] = {name: np.array(part) for name, part in self._asdict().items() if name != "starting"}
        return self._replace(**parts)


@dataclass(frozen=True)
class Play:
    """The frames of some episodes, and the transitions between them.

    ============== ====================================================================
    frames         ``(num_frames, *frame)``, true final frames included
    episode_starts for each frame, the position of its episode's first frame
    positions      for each transition, the position of the observation's newest frame
    actions        for each transition, like ``terminated`` and ``truncated``
    ============== ====================================================================
    """

    game: str
    num_actions: int
    frames: Frames
    episode_starts: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    actions: npt.NDArray[np.int64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]

    def observations(self, numbers: npt.NDArray[np.int64], stack: int, steps_later: int = 0) -> Frames:
        """Return the observations of these steps, or with ``steps_later=1`` their next observations.

        Numbers continue when the play repeats. The shape is ``(len(numbers), stack, *frame)``; the episode's first
        frame pads its first observations.
        """
        newest = self.positions[numbers % len(self.positions)] + steps_later
        window = newest[:, None] + np.arange(1 - stack, 1)
        stacked: Frames = self.frames[np.maximum(window, self.episode_starts[newest][:, None])]
        return stacked

    def has_ended(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each of these steps whether its episode ended with it."""
        which = numbers % len(self.positions)
        return self.terminated[which] | self.truncated[which]

    def steps(self, num_steps: int, stack: int, first: int = 0) -> Iterator[Step]:
        """Yield ``num_steps`` steps from number ``first`` on; the play repeats when it is over."""
        for number in range(first, first + num_steps):
            which = number % len(self.positions)
            newest = int(self.positions[which])
            yield Step(
                observation=self._stack_frames(newest, stack),
                action=int(self.actions[which]),
                reward=float(number),
                terminated=bool(self.terminated[which]),
                truncated=bool(self.truncated[which]),
                next_observation=self._stack_frames(newest + 1, stack),
                starts_episode=newest == self.episode_starts[newest],
            )

    def _stack_frames(self, newest: int, stack: int) -> Frames:
        oldest, start = newest - stack + 1, int(self.episode_starts[newest])
        if oldest >= start:
            return self.frames[oldest : newest + 1]
        return self.frames[np.maximum(np.arange(oldest, newest + 1), start)]


def record_play(
    game: str,
    num_frames: int,
    preset: str = "machado2018",
    seed: int = 0,
    on_frame: Callable[[int], object] | None = None,
) -> Play:
    """Play ``num_frames`` frames of ``game`` at random by the preset's rules, sticky actions included.

    The same arguments give the same play. The last episode is truncated where the frames end. ``on_frame`` is called
    with the number of frames so far. Raises ``UnknownGameError`` and ``InvalidSettingsError``.
    """
    if num_frames < 2:
        raise InvalidSettingsError(f"frames is {num_frames}: a transition needs 2; give a larger number")
    env = make_atari(game, preset=find_preset(preset), seed=seed)
    generator = np.random.default_rng(seed)
    num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
    frames = np.empty((num_frames, *env.preset.frame_shape), np.uint8)
    starts = np.empty(num_frames, np.int64)
    transitions: list[tuple[int, int, bool, bool]] = []
    start, has_ended = 0, True
    for position in range(num_frames):
        if has_ended:
            frames[position], _ = env.reset()
            start, has_ended = position, False
        else:
            action = int(generator.integers(num_actions))
            frames[position], _, terminated, truncated, _ = env.step(action)
            transitions.append((position - 1, action, terminated, truncated))
            has_ended = terminated or truncated
        starts[position] = start
        if on_frame is not None:
            on_frame(position + 1)
    env.close()
    frames.flags.writeable = False
    positions, actions, was_terminated, was_truncated = (np.array(column) for column in zip(*transitions, strict=True))
    was_truncated[-1] |= not was_terminated[-1]
    return Play(title(find_rom(game)), num_actions, frames, starts, positions, actions, was_terminated, was_truncated)

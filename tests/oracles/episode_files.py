"""Write logged episodes as their libraries describe them, with rewards, actions and observations that are numbered.

Step k of episode e leads from observation (e, k) to (e, k + 1) by the action and reward ``number_of(e, k)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

ACTION = 3  # numbers in an action


def number_of(episode: int, step: int) -> float:
    """Return the number of a step; never 0, which only the row of a reset has."""
    return 1 + 100 * episode + step


class Expected(NamedTuple):
    """A step as it should be stored."""

    episode: int
    step: int
    terminated: bool
    truncated: bool


@dataclass(frozen=True)
class Played:
    """Episodes as (number of steps, how it ended): ``"terminated"``, ``"truncated"`` or ``"cut"``."""

    episodes: tuple[tuple[int, str], ...]

    def expected(self, ends: dict[str, tuple[bool, bool]]) -> list[Expected]:
        """Return all steps, with the flags that a layout gives to each kind of end."""
        return [
            Expected(episode, step, *(ends[end] if step == length - 1 else (False, False)))
            for episode, (length, end) in enumerate(self.episodes)
            for step in range(length)
        ]


def picture(episode: int, row: int, shape=(3, 8, 8)) -> np.ndarray:
    """Return an observation that says its episode and row."""
    observation = np.zeros(shape, np.uint8)
    observation.reshape(-1)[:2] = episode + 1, row + 1
    return observation


def actions_led_to(episode: int, length: int) -> np.ndarray:
    """Return an action for each row: zeros for the reset, then the one that led to the row's observation."""
    rows = [[0.0] * ACTION, *([number_of(episode, step)] * ACTION for step in range(length))]
    return np.array(rows, np.float32)


def rewards_led_to(episode: int, length: int) -> np.ndarray:
    return np.array([0.0, *(number_of(episode, step) for step in range(length))], np.float32)


def drq_v2(played: Played, folder: Path) -> None:
    """DrQ-v2: a file for each episode; the reset has a discount of 1, and so has every other row."""
    folder.mkdir()
    for episode, (length, _) in enumerate(played.episodes):
        rows = length + 1
        np.savez_compressed(
            folder / f"20220101T{episode:06}_{episode}_{length}.npz",
            observation=np.stack([picture(episode, row, (9, 32, 32)) for row in range(rows)]),
            action=actions_led_to(episode, length),
            reward=rewards_led_to(episode, length)[:, None],
            discount=np.ones((rows, 1), np.float32),
        )


def dreamer_v1(played: Played, folder: Path) -> None:
    """DreamerV1: ``image`` instead of ``observation``; the discount of the last row is 0 after a termination."""
    folder.mkdir()
    for episode, (length, end) in enumerate(played.episodes):
        discount = np.ones(length + 1, np.float32)
        discount[-1] = 0.0 if end == "terminated" else 1.0
        np.savez_compressed(
            folder / f"{episode + 1}-of-a-run-{length + 1}.npz",
            image=np.stack([picture(episode, row, (8, 8, 3)) for row in range(length + 1)]),
            action=actions_led_to(episode, length),
            reward=rewards_led_to(episode, length),
            discount=discount,
        )


def dreamer_v2(played: Played, folder: Path) -> None:
    """DreamerV2: flags for the first, the last and the terminal row."""
    folder.mkdir()
    for episode, (length, end) in enumerate(played.episodes):
        rows = np.arange(length + 1)
        np.savez_compressed(
            folder / f"20220101T000000-{episode + 1}-{length + 1}.npz",
            image=np.stack([picture(episode, row, (8, 8, 3)) for row in rows]),
            action=actions_led_to(episode, length),
            reward=rewards_led_to(episode, length),
            is_first=rows == 0,
            is_last=(rows == length) & (end != "cut"),
            is_terminal=(rows == length) & (end == "terminated"),
        )


def v_d4rl(played: Played, folder: Path, episodes_a_file: int = 2) -> None:
    """v-d4rl at 84 pixels: HDF5 with episodes one after the other; ``step_type`` is 0, 1 … 1, 2."""
    import h5py  # noqa: PLC0415 -- an optional package

    folder.mkdir()
    for number in range(0, len(played.episodes), episodes_a_file):
        arrays: dict[str, list[np.ndarray]] = {}
        for episode in range(number, min(number + episodes_a_file, len(played.episodes))):
            length, end = played.episodes[episode]
            step_type = np.ones(length + 1, np.int64)
            step_type[0] = 0
            step_type[-1] = 1 if end == "cut" else 2
            discount = np.ones(length + 1, np.float32)
            discount[-1] = 0.0 if end == "terminated" else 1.0
            for name, values in {
                "observation": np.stack([picture(episode, row) for row in range(length + 1)]),
                "action": actions_led_to(episode, length),
                "reward": rewards_led_to(episode, length),
                "discount": discount,
                "step_type": step_type,
            }.items():
                arrays.setdefault(name, []).append(values)
        with h5py.File(folder / f"shard_{number}.hdf5", "w") as file:
            for name, parts in arrays.items():
                file.create_dataset(name, data=np.concatenate(parts), compression="gzip")


def dreamer_v3(played: Played, folder: Path) -> None:
    """DreamerV3: the action of a row was taken at its observation; a file is a chunk of steps."""
    folder.mkdir()
    for episode, (length, end) in enumerate(played.episodes):
        rows = np.arange(length + 1)
        np.savez_compressed(
            folder / f"20230101T000000F{episode:06}-{'a' * 22}-{'b' * 22}-{length + 1}.npz",
            image=np.stack([picture(episode, row, (8, 8, 3)) for row in rows]),
            action=np.roll(actions_led_to(episode, length), -1, axis=0),
            reward=rewards_led_to(episode, length),
            is_first=rows == 0,
            is_last=rows == length,
            is_terminal=(rows == length) & (end == "terminated"),
        )


def robomimic(played: Played, path: Path, *, has_next: bool = True, dones_at: tuple[int, ...] = ()) -> None:
    """robomimic: row t has observation t, the action taken at it, and what followed; ``dones`` where it succeeded."""
    import h5py  # noqa: PLC0415 -- an optional package

    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = "{}"
        for episode, (length, end) in enumerate(played.episodes):
            demo = file.create_group(f"data/demo_{episode}")
            demo.attrs["num_samples"] = length
            numbers = [number_of(episode, step) for step in range(length)]
            demo.create_dataset("actions", data=np.array([[number] * ACTION for number in numbers]))
            demo.create_dataset("rewards", data=np.array(numbers))
            dones = np.zeros(length, np.int64)
            dones[-1] = end == "terminated"
            dones[[step for step in dones_at if step < length]] = 1
            demo.create_dataset("dones", data=dones)
            demo.create_dataset("states", data=np.zeros((length, 7)))
            for name, offset in (("obs", 0), ("next_obs", 1)) if has_next else (("obs", 0),):
                rows = range(offset, offset + length)
                demo.create_dataset(f"{name}/image", data=np.stack([picture(episode, row, (8, 8, 3)) for row in rows]))
                demo.create_dataset(f"{name}/joints", data=np.array([[episode, row] for row in rows], np.float64))
        even = [f"demo_{episode}" for episode in range(0, len(played.episodes), 2)]
        file.create_dataset("mask/even", data=np.array(even, dtype="S"))

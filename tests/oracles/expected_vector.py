"""Oracle of a vector environment whose workers are lost and replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs.seeding import spawn_seeds
from oracles.failing_envs import SHAPE, FailingEnv, Plan

Row = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


def replacement_seed(seed: int, environment: int, replacement: int) -> int:
    """Return the seed of the ``replacement``-th replacement, from 0, of an environment."""
    sequence = np.random.SeedSequence(seed, spawn_key=(environment, replacement))
    return int(sequence.generate_state(1, np.uint32)[0])


class ExpectedVector:
    """Play `FailingEnv`s in this process; the caller names those that are lost in a step."""

    def __init__(self, plans: list[Plan], mode: AutoresetMode, seed: int) -> None:
        self.plans, self.mode, self.seed = [_without_failure(plan) for plan in plans], mode, seed
        self.envs = [FailingEnv(plan) for plan in self.plans]
        self.next_seeds: list[int | None] = list(spawn_seeds(seed, len(plans)))
        self.replacements = [0] * len(plans)
        self.has_ended = [False] * len(plans)
        self.last_frames = [np.zeros(SHAPE, np.uint8) for _ in plans]
        self.unreported: set[int] = set()

    def reset(self, mask: Collection[int] | None = None, lost: Collection[int] = ()) -> list[np.ndarray]:
        """Reset the environments in ``mask`` and replace those in ``lost``; others report theirs later.

        A replacement uses the seed that was given for this reset.
        """
        chosen = range(len(self.envs)) if mask is None else mask
        for number in lost:
            given = self.next_seeds[number]
            self._replace(number)
            self.next_seeds[number] = self.next_seeds[number] if given is None else given
            if number not in chosen and not self.has_ended[number]:
                self.unreported.add(number)
        for number in chosen:
            self.last_frames[number], _ = self._begin(number)
            self.unreported.discard(number)
        return [frame.copy() for frame in self.last_frames]

    def step(self, actions: Any, lost: Collection[int] = ()) -> list[Row]:
        """Return a row for each environment: observation, reward, terminated, truncated, info."""
        for number in lost:
            self._replace(number)
        return [self._row(number, int(action), number in lost) for number, action in enumerate(actions)]

    def _row(self, number: int, action: int, is_lost: bool) -> Row:
        if self.mode is AutoresetMode.NEXT_STEP and self.has_ended[number] and number not in self.unreported:
            self.last_frames[number], info = self._begin(number)
            return self.last_frames[number].copy(), 0.0, False, False, info
        if is_lost or number in self.unreported:
            self.unreported.discard(number)
            return self._lost_row(number)
        frame, reward, terminated, truncated, info = self.envs[number].step(action)
        self.last_frames[number], self.has_ended[number] = frame, terminated or truncated
        if self.mode is AutoresetMode.SAME_STEP and self.has_ended[number]:
            self.last_frames[number], next_info = self._begin(number)
            info = {**next_info, "final_obs": frame, "final_info": info}
        return self.last_frames[number].copy(), reward, terminated, truncated, info

    def _lost_row(self, number: int) -> Row:
        last, info = self.last_frames[number].copy(), {"episode_lost": True}
        self.has_ended[number] = True
        if self.mode is AutoresetMode.SAME_STEP:
            self.last_frames[number], next_info = self._begin(number)
            info = {**next_info, **info, "final_obs": last, "final_info": {}}
        return self.last_frames[number].copy(), 0.0, False, True, info

    def _begin(self, number: int) -> tuple[np.ndarray, dict[str, Any]]:
        seed, self.next_seeds[number], self.has_ended[number] = self.next_seeds[number], None, False
        return self.envs[number].reset(seed=seed)

    def _replace(self, number: int) -> None:
        env = FailingEnv(self.plans[number])
        env.replacement = self.envs[number].replacement + 1
        self.envs[number] = env
        self.next_seeds[number] = replacement_seed(self.seed, number, self.replacements[number])
        self.replacements[number] += 1


def _without_failure(plan: Plan) -> Plan:
    return Plan(plan.environment, plan.process_folder, None, plan.lengths, plan.endings)


def row_of(answer: tuple, number: int) -> Row:
    """Return the row of one environment, with its own info, from the result of a vector environment."""
    frames, rewards, terminated, truncated, infos = answer
    return (
        frames[number],
        float(rewards[number]),
        bool(terminated[number]),
        bool(truncated[number]),
        _info(infos, number),
    )


def _info(infos: dict[str, Any], number: int) -> dict[str, Any]:
    info = {}
    for key, values in infos.items():
        if key.startswith("_") or not infos[f"_{key}"][number]:
            continue
        info[key] = _info(values, number) if isinstance(values, dict) else values[number]
    return info


def assert_rows(expected: list[Row], answer: tuple, when: str = "") -> None:
    """Compare every row of a result; ``episode_lost`` needs any text."""
    for number, wanted in enumerate(expected):
        actual = row_of(answer, number)
        where = f"environment {number} {when}"
        np.testing.assert_array_equal(wanted[0], actual[0], f"observation of {where}")
        assert wanted[1:4] == actual[1:4], where
        assert wanted[4].keys() == actual[4].keys(), where
        for key, value in wanted[4].items():
            if key == "episode_lost":
                assert isinstance(actual[4][key], str), where
                assert actual[4][key], where
            else:
                np.testing.assert_equal(actual[4][key], value, f"info {key} of {where}")


def play(
    vector: Any,
    expected: ExpectedVector,
    num_steps: int,
    find_lost: Callable[[int, tuple], Collection[int]] = lambda number, answer: (),
    actions_seed: int = 0,
) -> list[tuple]:
    """Play random actions and compare every result; ``find_lost`` returns the environments lost in a step."""
    generator = np.random.default_rng(actions_seed)
    answers = []
    for number in range(1, num_steps + 1):
        actions = generator.integers(5, size=len(expected.envs))
        answer = vector.step(actions)
        assert_rows(expected.step(actions, find_lost(number, answer)), answer, f"in step {number}")
        answers.append(answer)
        ended = np.asarray(answer[2]) | np.asarray(answer[3])
        if expected.mode is AutoresetMode.DISABLED and ended.any():
            frames, _ = vector.reset(options={"reset_mask": ended})
            np.testing.assert_array_equal(expected.reset(np.flatnonzero(ended).tolist()), frames)
    return answers

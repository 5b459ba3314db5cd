"""What a vector environment must answer when workers are lost and replaced, written down as plainly as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs.seeding import spawn_seeds
from oracles.failing_envs import SHAPE, FailingEnv, Plan

Row = tuple[np.ndarray, float, bool, bool, dict[str, Any]]


def replacement_seed(seed: int, environment: int, replacement: int) -> int:
    """The seed of the ``replacement``-th replacement (the first is 0) of an environment."""
    sequence = np.random.SeedSequence(seed, spawn_key=(environment, replacement))
    return int(sequence.generate_state(1, np.uint32)[0])


class ExpectedVector:
    """Plays `FailingEnv`s in this process; which of them are lost in a step is said by the caller."""

    def __init__(self, plans: list[Plan], mode: AutoresetMode, seed: int) -> None:
        self.plans, self.mode, self.seed = [_peaceful(plan) for plan in plans], mode, seed
        self.envs = [FailingEnv(plan) for plan in self.plans]
        self.next_seeds: list[int | None] = list(spawn_seeds(seed, len(plans)))
        self.replacements = [0] * len(plans)
        self.has_ended = [False] * len(plans)
        self.shown = [np.zeros(SHAPE, np.uint8) for _ in plans]
        self.untold: set[int] = set()

    def reset(self, mask: Collection[int] | None = None, lost: Collection[int] = ()) -> list[np.ndarray]:
        """Reset those of ``mask``; an environment that is lost in it is replaced, and told of later if it played on.

        A seed that was given for this reset is the replacement's too.
        """
        chosen = range(len(self.envs)) if mask is None else mask
        for number in lost:
            given = self.next_seeds[number]
            self._replace(number)
            self.next_seeds[number] = self.next_seeds[number] if given is None else given
            if number not in chosen and not self.has_ended[number]:
                self.untold.add(number)
        for number in chosen:
            self.shown[number], _ = self._begin(number)
            self.untold.discard(number)
        return [frame.copy() for frame in self.shown]

    def step(self, actions: Any, lost: Collection[int] = ()) -> list[Row]:
        """One row an environment: observation, reward, terminated, truncated, info."""
        for number in lost:
            self._replace(number)
        return [self._row(number, int(action), number in lost) for number, action in enumerate(actions)]

    def _row(self, number: int, action: int, is_lost: bool) -> Row:
        if self.mode is AutoresetMode.NEXT_STEP and self.has_ended[number] and number not in self.untold:
            self.shown[number], info = self._begin(number)
            return self.shown[number].copy(), 0.0, False, False, info
        if is_lost or number in self.untold:
            self.untold.discard(number)
            return self._lost_row(number)
        frame, reward, terminated, truncated, info = self.envs[number].step(action)
        self.shown[number], self.has_ended[number] = frame, terminated or truncated
        if self.mode is AutoresetMode.SAME_STEP and self.has_ended[number]:
            self.shown[number], next_info = self._begin(number)
            info = {**next_info, "final_obs": frame, "final_info": info}
        return self.shown[number].copy(), reward, terminated, truncated, info

    def _lost_row(self, number: int) -> Row:
        last, info = self.shown[number].copy(), {"episode_lost": True}
        self.has_ended[number] = True
        if self.mode is AutoresetMode.SAME_STEP:
            self.shown[number], next_info = self._begin(number)
            info = {**next_info, **info, "final_obs": last, "final_info": {}}
        return self.shown[number].copy(), 0.0, False, True, info

    def _begin(self, number: int) -> tuple[np.ndarray, dict[str, Any]]:
        seed, self.next_seeds[number], self.has_ended[number] = self.next_seeds[number], None, False
        return self.envs[number].reset(seed=seed)

    def _replace(self, number: int) -> None:
        env = FailingEnv(self.plans[number])
        env.life = self.envs[number].life + 1
        self.envs[number] = env
        self.next_seeds[number] = replacement_seed(self.seed, number, self.replacements[number])
        self.replacements[number] += 1


def _peaceful(plan: Plan) -> Plan:
    return Plan(plan.environment, plan.lives_folder, None, plan.lengths, plan.endings)


def row_of(answer: tuple, number: int) -> Row:
    """What a vector environment's answer says about one environment; infos as the environment gave them."""
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
    """Compare every row of an answer; the text of ``episode_lost`` is compared elsewhere."""
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
    """Play by drawn actions and compare every answer; ``find_lost`` says who was lost in step so and so."""
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

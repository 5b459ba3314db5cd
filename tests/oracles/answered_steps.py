"""The memory that a recorder must have left, worked out from the answers of a vector environment alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs import WorkerVectorEnv
from oracles.failing_envs import place_of
from oracles.list_memory import ListMemory


class LoggedWorkers(WorkerVectorEnv):
    """Keeps a copy of every answer that it gives."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.log: list[tuple[Any, tuple | None, np.ndarray]] = []
        super().__init__(*args, **settings)

    def reset(self, *, seed=None, options=None):
        answer = super().reset(seed=seed, options=options)
        mask = np.ones(self.num_envs, np.bool_) if options is None else options["reset_mask"]
        self.log.append((None, deepcopy(answer), np.array(mask)))
        return answer

    def step_async(self, actions):
        super().step_async(actions)
        self.actions = np.array(actions)

    def step_wait(self, timeout=None):
        answer = super().step_wait(timeout)
        self.log.append((self.actions, deepcopy(answer), np.ones(self.num_envs, np.bool_)))
        return answer


def fill(oracle: ListMemory, log: list[tuple[Any, Any, np.ndarray]], mode: AutoresetMode) -> dict[str, int]:
    """Feed the oracle by the numbers in the frames: a step is real where they go on by one, whatever else was said.

    Gives how many steps were real, and how many episodes were told as lost.
    """
    counts = {"real": 0, "lost": 0}
    shown: dict[int, np.ndarray] = {}
    for actions, answer, mask in log:
        for number in np.flatnonzero(mask).tolist():
            frame = answer[0][number]
            if actions is None:
                _begin(oracle, number, frame)
            else:
                _take_step(oracle, number, shown[number], actions, answer, mode, counts)
            shown[number] = frame
    return counts


def _begin(oracle: ListMemory, number: int, frame: np.ndarray) -> None:
    assert place_of(frame).step == 0
    assert place_of(frame).environment == number
    oracle.begin(frame[None], [number])


def _take_step(oracle, number, before, actions, answer, mode, counts) -> None:
    frames, rewards, terminated, truncated, infos = answer
    frame, is_lost = frames[number], "episode_lost" in infos and infos["_episode_lost"][number]
    is_final_told = "final_obs" in infos and infos["_final_obs"][number]
    led_to = infos["final_obs"][number] if is_final_told else frame
    was, now = place_of(before), place_of(led_to)
    counts["lost"] += bool(is_lost)
    if now == was._replace(step=was.step + 1):
        assert not is_lost
        flags = [terminated[number]], [truncated[number]]
        oracle.append([actions[number]], [rewards[number]], *flags, led_to[None], [number])
        counts["real"] += 1
    elif is_lost:
        assert now == was, "a lost episode shows what was seen last"
        assert (rewards[number], terminated[number], truncated[number]) == (0, False, True)
    else:
        assert mode is AutoresetMode.NEXT_STEP, f"environment {number} went from {was} to {now}"
        assert now.step == 0
    if now.step == 0 and now != was:
        _begin(oracle, number, led_to)
    elif is_final_told:
        assert mode is AutoresetMode.SAME_STEP
        _begin(oracle, number, frame)


def fill_by_flags(oracle: ListMemory, log: list[tuple[Any, Any, np.ndarray]], mode: AutoresetMode) -> int:
    """Feed the oracle by what the answers say, for frames that carry no number; gives how many episodes were lost."""
    num_lost, has_ended = 0, np.zeros(len(log[0][2]), np.bool_)
    for actions, (frames, *others), mask in log:
        if actions is None:
            oracle.begin(frames[mask], np.flatnonzero(mask).tolist())
            has_ended[mask] = False
            continue
        rewards, terminated, truncated, infos = others
        lost = infos.get("_episode_lost", np.zeros(len(frames), np.bool_))
        was_reset = has_ended if mode is AutoresetMode.NEXT_STEP else np.zeros(len(frames), np.bool_)
        ended = terminated | truncated
        for number in range(len(frames)):
            is_over = mode is AutoresetMode.SAME_STEP and ended[number]
            if not (lost[number] or was_reset[number]):
                led_to = infos["final_obs"][number] if is_over else frames[number]
                flags = [terminated[number]], [truncated[number]]
                oracle.append([actions[number]], [rewards[number]], *flags, led_to[None], [number])
            if is_over or was_reset[number]:
                oracle.begin(frames[number][None], [number])
        num_lost, has_ended = num_lost + int(lost.sum()), ended
    return num_lost

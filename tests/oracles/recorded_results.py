"""Oracle of a recorder: derive the memory from the results of a vector environment."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from framestow.envs import WorkerVectorEnv
from oracles.failing_envs import numbers_of
from oracles.list_memory import ListMemory


class LoggedWorkers(WorkerVectorEnv):
    """Keep a copy of every result."""

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
    """Fill the oracle from the numbers in the frames: a step is real if its step number increases by one.

    Returns the numbers of real steps and of reported lost episodes.
    """
    counts = {"real": 0, "lost": 0}
    last_frames: dict[int, np.ndarray] = {}
    for actions, answer, mask in log:
        for number in np.flatnonzero(mask).tolist():
            frame = answer[0][number]
            if actions is None:
                _begin(oracle, number, frame)
            else:
                _take_step(oracle, number, last_frames[number], actions, answer, mode, counts)
            last_frames[number] = frame
    return counts


def _begin(oracle: ListMemory, number: int, frame: np.ndarray) -> None:
    assert numbers_of(frame).step == 0
    assert numbers_of(frame).environment == number
    oracle.begin(frame[None], [number])


def _take_step(oracle, number, before, actions, answer, mode, counts) -> None:
    frames, rewards, terminated, truncated, infos = answer
    frame, is_lost = frames[number], "episode_lost" in infos and infos["_episode_lost"][number]
    has_final_obs = "final_obs" in infos and infos["_final_obs"][number]
    next_frame = infos["final_obs"][number] if has_final_obs else frame
    was, now = numbers_of(before), numbers_of(next_frame)
    counts["lost"] += bool(is_lost)
    if now == was._replace(step=was.step + 1):
        assert not is_lost
        flags = [terminated[number]], [truncated[number]]
        oracle.append([actions[number]], [rewards[number]], *flags, next_frame[None], [number])
        counts["real"] += 1
    elif is_lost:
        assert now == was, "a lost episode ends with its last received frame"
        assert (rewards[number], terminated[number], truncated[number]) == (0, False, True)
    else:
        assert mode is AutoresetMode.NEXT_STEP, f"environment {number} went from {was} to {now}"
        assert now.step == 0
    if now.step == 0 and now != was:
        _begin(oracle, number, next_frame)
    elif has_final_obs:
        assert mode is AutoresetMode.SAME_STEP
        _begin(oracle, number, frame)


def fill_by_flags(oracle: ListMemory, log: list[tuple[Any, Any, np.ndarray]], mode: AutoresetMode) -> int:
    """Fill the oracle from flags and infos, for frames without numbers; return the number of lost episodes."""
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
                next_frame = infos["final_obs"][number] if is_over else frames[number]
                flags = [terminated[number]], [truncated[number]]
                oracle.append([actions[number]], [rewards[number]], *flags, next_frame[None], [number])
            if is_over or was_reset[number]:
                oracle.begin(frames[number][None], [number])
        num_lost, has_ended = num_lost + int(lost.sum()), ended
    return num_lost

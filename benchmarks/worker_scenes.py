"""Check that Super Mario Bros, an environment of the old Gym, plays in worker processes and survives a killed worker.

    make worker-scenes        .venv-scenes with framestow in it, then this

gym-super-mario-bros (Kauten 2018) supports only the old Gym's calls and NumPy before 2. `SuperMario` is the only
adapter needed: a Gymnasium environment around it, frame skip 4, 84x84 grey. Under each start method four of them play
in two workers with random actions drawn beforehand, and the same four in this process. Halfway one worker is killed
during a step. Until then all frames must be equal, and to the end those of the other worker. The memory must store
every returned step, frame for frame, and no process may remain. Anything else ends with an error.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
import psutil
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from framestow import ReplayMemory
from framestow.benchmarking.result_files import write_result
from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv

RESULT = Path(__file__).parent / "results" / "worker_scenes.json"
START_METHODS = ("fork", "spawn", "forkserver")
NUM_ENVS, NUM_WORKERS = 4, 2
KILLED_WORKER = 1
FRAME_SKIP = 4  # screens per agent step
FRAME_SIDE = 84  # pixels


class SuperMario(gymnasium.Env[NDArray[np.uint8], int]):
    """Super Mario Bros with the seven actions of SIMPLE_MOVEMENT, as a Gymnasium environment."""

    def __init__(self) -> None:
        from gym_super_mario_bros import SuperMarioBrosEnv
        from gym_super_mario_bros.actions import SIMPLE_MOVEMENT
        from nes_py.wrappers import JoypadSpace

        self._game = JoypadSpace(SuperMarioBrosEnv(), SIMPLE_MOVEMENT)
        self.observation_space = Box(0, 255, (FRAME_SIDE, FRAME_SIDE), np.uint8)
        self.action_space = Discrete(len(SIMPLE_MOVEMENT))

    def reset(
        self,
        *,
        seed: int | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Restart the game."""
        super().reset(seed=seed)  # the game itself is deterministic
        return grey(self._game.reset()), {}

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Press the buttons of ``action`` for four screens and return the last."""
        total = 0.0
        for _ in range(FRAME_SKIP):
            screen, reward, has_ended, info = self._game.step(int(action))
            total += float(reward)
            if has_ended:
                break
        return grey(screen), total, bool(has_ended), False, {"x_pos": int(info["x_pos"]), "life": int(info["life"])}

    def close(self) -> None:
        """Close the emulator."""
        self._game.close()


def grey(screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
    small = cv2.resize(cv2.cvtColor(screen, cv2.COLOR_RGB2GRAY), (FRAME_SIDE, FRAME_SIDE), interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.uint8)


class AnsweredSteps:
    """The real steps that the vector environment returned, in the order in which a memory stores them."""

    def __init__(self) -> None:
        self.before: list[NDArray[np.uint8]] = []
        self.after: list[NDArray[np.uint8]] = []
        self.actions: list[int] = []
        self.rewards: list[float] = []

    def take(self, shown: NDArray[np.uint8], actions: NDArray[np.int64], answer: Any, was_reset: Any) -> None:
        """Record the steps of one result, without environments that were reset in it or lost."""
        frames, rewards, _, _, infos = answer
        is_lost = infos.get("_episode_lost", np.zeros(len(frames), np.bool_))
        for number in np.flatnonzero(~(was_reset | is_lost)):
            self.before.append(shown[number])
            self.after.append(frames[number].copy())
            self.actions.append(int(actions[number]))
            self.rewards.append(float(rewards[number]))

    def check(self, memory: ReplayMemory) -> None:
        """Compare with everything that the memory stores."""
        batch = memory.get(memory.sampleable_indices())
        np.testing.assert_array_equal(np.arange(len(self.after)), batch.index)
        np.testing.assert_array_equal(self.before, batch.observation[:, -1])
        np.testing.assert_array_equal(self.after, batch.next_observation[:, -1])
        np.testing.assert_array_equal(self.actions, batch.action)
        np.testing.assert_array_equal(np.float32(self.rewards), batch.reward)


class SeenWorkers(WorkerVectorEnv):
    """Keeps its last result, since the recorder returns stacks of its frames."""

    answer: Any = None

    def step_wait(self, timeout: float | None = None) -> Any:
        """Wait for the step."""
        answer = super().step_wait(timeout)
        self.answer = (answer[0].copy(), *answer[1:])
        return answer


def play(start_method: str, num_steps: int) -> dict[str, Any]:
    """Play beside the same environments in this process, kill a worker halfway, and compare everything."""
    workers = SeenWorkers(
        [SuperMario] * NUM_ENVS, num_workers=NUM_WORKERS, start_method=start_method, on_worker_lost="restart", seed=0
    )
    pids = workers.worker_pids
    serial = SerialVectorEnv([SuperMario] * NUM_ENVS, seed=0)
    memory = ReplayMemory(
        num_steps * NUM_ENVS, Box(0, 255, (FRAME_SIDE, FRAME_SIDE), np.uint8), 7, stack=4, num_envs=NUM_ENVS, seed=0
    )
    recorder, steps = Recorder(workers, memory), AnsweredSteps()
    shown = recorder.reset()[0][:, -1]
    np.testing.assert_array_equal(serial.reset()[0], shown)
    was_reset, survivors, lost, slowest_s = np.zeros(NUM_ENVS, np.bool_), np.arange(NUM_ENVS), {}, 0.0
    for step, actions in enumerate(np.random.default_rng(0).integers(7, size=(num_steps, NUM_ENVS))):
        recorder.step_async(actions)
        if step == num_steps // 2:
            os.kill(pids[KILLED_WORKER] or 0, signal.SIGKILL)
        began_s = time.perf_counter()
        recorder.step_wait()
        took_s = time.perf_counter() - began_s
        steps.take(shown, actions, workers.answer, was_reset)
        shown, _, terminated, truncated, infos = workers.answer
        was_reset = terminated | truncated
        if "episode_lost" in infos:
            lost = {int(each): str(infos["episode_lost"][each]) for each in np.flatnonzero(infos["_episode_lost"])}
            survivors, slowest_s = np.flatnonzero(~infos["_episode_lost"]), took_s
        np.testing.assert_array_equal(serial.step(actions)[0][survivors], shown[survivors])
    steps.check(memory)
    processes = [psutil.Process(pid) for pid in workers.worker_pids if pid]
    recorder.close()
    serial.close()
    left = [process.pid for process in processes if process.is_running()]
    if not lost or left:
        raise AssertionError(f"lost environments {lost}, processes left {left}: some and none were expected")
    return {
        "vector steps": num_steps,
        "transitions, each equal to what was answered": len(memory),
        "environments with equal frames to the end": survivors.tolist(),
        "episodes lost": lost,
        "milliseconds of the step that lost and replaced the worker": round(1000 * slowest_s),
        "bytes a frame": round(memory.nbytes / len(memory), 1),
        "processes left": len(left),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000, help="vector steps under each start method")
    arguments = parser.parse_args()
    figures = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Gym has been unmaintained|.*it is replaced")
        for start_method in START_METHODS:
            figures[start_method] = play(start_method, arguments.steps)
            print(start_method, figures[start_method], flush=True)
    game = "Super Mario Bros (gym-super-mario-bros 7.4.0)"
    write_result(RESULT, {"game": game, "numpy": np.__version__, "start_methods": figures})


if __name__ == "__main__":
    main()

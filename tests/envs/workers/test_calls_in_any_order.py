"""Steps, resets, calls and saves in any order, with killed workers: each result follows from the one before."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import WorkerVectorEnv
from framestow.errors import WorkerLostError
from oracles.known_sequences import NUM_ACTIONS, KnownEnv, KnownSequence

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")

WORKER_OF = [0, 0, 0, 1, 1]
NUM_ENVS = len(WORKER_OF)


class RandomCalls:
    """Make random calls, and compare every result with the previous ones."""

    def __init__(self, mode: AutoresetMode, seed: int) -> None:
        self.mode, self.seed, self.random = mode, seed, np.random.default_rng(seed)
        self.env = self.made()
        self.sequences = [KnownSequence(number, mode) for number in range(NUM_ENVS)]
        self.in_flight: list[int] | None = None  # the actions of the step in flight
        self.may_kill = {0, 1}  # the third loss without a step in between is an error
        self.reset_all()

    def make_one(self) -> None:
        calls = [self.step, self.begin_step, self.end_step, self.reset_some, self.call, self.kill, self.save]
        self.random.choice([*calls, self.reset_all], p=[0.25, 0.2, 0.25, 0.08, 0.06, 0.11, 0.03, 0.02])()

    def step(self) -> None:
        self.begin_step()
        self.end_step()

    def begin_step(self) -> None:
        if self.in_flight is None and not any(map(self.needs_a_reset, range(NUM_ENVS))):
            actions = self.random.integers(0, NUM_ACTIONS, NUM_ENVS)
            self.env.step_async(actions)
            self.in_flight = actions.tolist()

    def end_step(self) -> None:
        if self.in_flight is not None:
            self.take(self.in_flight, *self.env.step_wait())
            self.in_flight = None
            self.may_kill = {0, 1}

    def reset_some(self) -> None:
        mask = self.random.random(NUM_ENVS) < 0.4
        mask |= [self.needs_a_reset(number) for number in range(NUM_ENVS)]
        if self.in_flight is None and mask.any() and not mask.all():
            observations, _ = self.env.reset(options={"reset_mask": mask})
            for sequence, is_reset, shown in zip(self.sequences, mask, shown_by(observations), strict=True):
                if is_reset:
                    sequence.begin(shown)
                else:
                    assert sequence.last == shown

    def call(self) -> None:
        if self.in_flight is None:
            with suppress(WorkerLostError):
                assert tuple(range(NUM_ENVS)) == self.env.get_attr("number")

    def kill(self) -> None:
        worker = int(self.random.integers(2))
        pid = self.env.worker_pids[worker]  # none where it is lost, and not replaced yet
        if worker in self.may_kill and pid is not None:
            self.may_kill.remove(worker)
            os.kill(pid, signal.SIGKILL)
            time.sleep(self.random.choice([0.0, 0.01]))
            for number in np.flatnonzero(np.array(WORKER_OF) == worker).tolist():
                self.sequences[number].note_kill(self.in_flight is not None)

    def save(self) -> None:
        """Go on in new processes from the state of these."""
        if self.in_flight is None:
            with suppress(WorkerLostError):
                state = self.env.state_dict()
                self.env.close()
                self.env = self.made()
                self.env.load_state_dict(state)

    def made(self) -> WorkerVectorEnv:
        env = WorkerVectorEnv(
            [partial(KnownEnv, number) for number in range(NUM_ENVS)],
            self.mode,
            num_workers=2,
            start_method="fork",
            on_worker_lost="restart",
            seed=self.seed,
        )
        env.copies_observations = bool(self.seed % 2)
        return env

    def reset_all(self) -> None:
        observations, _ = self.env.reset()
        self.in_flight = None
        for sequence, shown in zip(self.sequences, shown_by(observations), strict=True):
            sequence.begin(shown)

    def take(self, actions, observations, rewards, terminated, truncated, infos) -> None:
        shown = shown_by(observations)
        for number, action in enumerate(actions):
            is_final = "final_obs" in infos and infos["_final_obs"][number]
            final = shown_by(infos["final_obs"][number : number + 1])[0] if is_final else None
            is_told_lost = "episode_lost" in infos and bool(infos["_episode_lost"][number])
            flags = bool(terminated[number]), bool(truncated[number])
            self.sequences[number].take(action, shown[number], float(rewards[number]), flags, final, is_told_lost)

    def needs_a_reset(self, number: int) -> bool:
        return self.mode is AutoresetMode.DISABLED and self.sequences[number].has_ended


def shown_by(observations) -> list[tuple[int, ...]]:
    return [tuple(observation.tolist()) for observation in observations]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 60), marks=pytest.mark.exhaustive)], ids=str)
def test_every_answer_follows_from_the_one_before_it(mode, seeds):
    for seed in seeds:
        calls = RandomCalls(mode, seed)
        try:
            for _ in range(120):
                calls.make_one()
        except WorkerLostError as error:  # a worker was killed three times without a step of it in between
            if "times without a completed step" not in str(error):
                raise
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        finally:
            calls.env.close()

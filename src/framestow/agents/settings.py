"""Exploration and the settings of a DQN agent. The module imports without PyTorch, so ``--help`` is fast."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from framestow.checks import real_number, whole_number
from framestow.errors import InvalidSettingsError

ChooseGreedily = Callable[[NDArray[np.uint8]], NDArray[np.int64]]


@dataclasses.dataclass(frozen=True)
class LinearSchedule:
    """A value that changes linearly from ``start`` to ``end`` over ``over_steps`` agent steps, then stays at ``end``.

    >>> schedule = LinearSchedule(start=1.0, end=0.5, over_steps=100)
    >>> [schedule.at(step) for step in (0, 50, 100, 1_000)]
    [1.0, 0.75, 0.5, 0.5]
    """

    start: float
    end: float
    over_steps: int

    def __post_init__(self) -> None:
        rule = "it must be at least 0 agent steps; 0 starts the schedule at its end value"
        whole_number("over_steps", self.over_steps, 0, rule=rule)

    def at(self, agent_steps: int) -> float:
        """Return the value after ``agent_steps`` steps."""
        if agent_steps >= self.over_steps:
            return self.end
        return self.start + (self.end - self.start) * agent_steps / self.over_steps


class EpsilonGreedy:
    """Chooses a random action with probability epsilon, else the greedy action.

    Each row draws two random numbers, so the random sequence does not depend on the network. The greedy actions are
    computed only for the rows that need them. ``schedule`` may be a constant epsilon for each row instead.
    """

    def __init__(
        self, schedule: LinearSchedule | NDArray[np.float64], num_actions: int, seed: int | np.random.SeedSequence
    ) -> None:
        if isinstance(schedule, LinearSchedule):
            probabilities = {"start": schedule.start, "end": schedule.end}
        else:
            probabilities = {f"of row {row}": float(value) for row, value in enumerate(schedule)}
        for name, value in probabilities.items():
            real_number(f"epsilon {name}", value, 0, 1, rule="a probability must be from 0 to 1; give another value")
        whole_number("num_actions", num_actions, 1, rule="an agent needs at least 1; check the action space")
        self._schedule = schedule
        self._num_actions = num_actions
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def epsilon(self, agent_steps: int) -> float | NDArray[np.float64]:
        """Return the probability of a random action after ``agent_steps`` steps, of all rows or of each."""
        schedule = self._schedule
        return schedule.at(agent_steps) if isinstance(schedule, LinearSchedule) else schedule

    def act(
        self,
        observations: NDArray[np.uint8],
        agent_steps: int,
        choose_greedily: ChooseGreedily,
        every_row: bool = False,
    ) -> NDArray[np.int64]:
        """Return one action per row of ``observations`` ``(n, stack, H, W)`` as a new int64 array ``(n,)``.

        ``every_row`` computes the greedy actions of all rows, unless none is needed.
        """
        num_rows = len(observations)
        explores = self._generator.random(num_rows) < self.epsilon(agent_steps)
        actions = self._generator.integers(self._num_actions, size=num_rows)
        if not explores.all():
            is_greedy = ~explores
            if every_row:
                actions[is_greedy] = choose_greedily(observations)[is_greedy]
            else:
                actions[is_greedy] = choose_greedily(observations[is_greedy])
        return actions

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the random generator as nested dicts of ints and strings."""
        return {"generator": dict(self._generator.bit_generator.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that ``state_dict`` returned."""
        self._generator.bit_generator.state = state["generator"]


Network: TypeAlias = Literal["nature", "layernorm", "layernorm-nature", "impala"]
Distribution: TypeAlias = Literal["none", "hl-gauss", "c51", "qr", "iqn"]
Optimizer: TypeAlias = Literal["adam", "rmsprop"]
Precision: TypeAlias = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True)
class AgentSettings:
    """Settings of a DQN agent. ``framestow.training.recipes`` has the values that papers chose.

    Raises:
        InvalidSettingsError: two settings contradict one another.
    """

    network: Network
    distribution: Distribution  # what the network predicts of a return
    atoms: int  # bins of hl-gauss, returns of c51, quantiles of qr and iqn
    support: float  # the returns of hl-gauss and c51 are -support … support
    double: bool  # the online network chooses the next action (van Hasselt et al. 2016)
    dueling: bool  # separate streams for value and advantage (Wang et al. 2016)
    noisy: bool  # noisy linear layers (Fortunato et al. 2018)
    munchausen_after: int | None  # updates, then add the log-policy to the reward (Vieillard et al. 2020); None: never
    spectral_norm: bool  # normalise the residual blocks of impala
    optimizer: Optimizer
    learning_rate: float  # of the first update
    learning_rate_falls_after: int | None  # updates at this rate; after twice as many it is half, …; None keeps it
    optimizer_epsilon: float
    max_grad_norm: float | None  # clip the norm of an update's gradient
    precision: Precision  # of the network's arithmetic, where the device has it. Weights and losses are float32
    target_every: int  # updates between two copies of the online network to the target network
    exploration: LinearSchedule  # epsilon by agent steps

    def __post_init__(self) -> None:
        conflicts = [
            (
                self.munchausen_after is not None and self.double,
                "munchausen_after and double are on",
                "Munchausen averages over the policy of the target network, so no network chooses an action",
                "--no-double or --munchausen-after None",
            ),
            (
                self.munchausen_after is not None and self.distribution == "c51",
                "munchausen_after is on and distribution is 'c51'",
                "the log-policy shifts the return of each action, for which C51 has no atoms",
                "--distribution iqn or --munchausen-after None",
            ),
            (
                self.spectral_norm and self.network != "impala",
                f"spectral_norm is on and network is {self.network!r}",
                "it normalises residual blocks, which only impala has",
                "--no-spectral-norm or --network impala",
            ),
        ]
        for is_violated, values, rule, way_out in conflicts:
            if is_violated:
                raise InvalidSettingsError(f"{values}: {rule}; give {way_out}")

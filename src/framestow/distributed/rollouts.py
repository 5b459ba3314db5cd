"""Rollouts: actors that play environments with a policy and store the steps in a ``ShardedReplay``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from framestow.checks import whole_number
from framestow.distributed.ray import START_S, ActorPlacement, Calls, RayCalls, start_actors
from framestow.distributed.writer import Priorities, ShardWriter, WriterCounts
from framestow.errors import ActorLostError, InvalidSettingsError
from framestow.interface import Closing, one_line, plural
from framestow.keywords import suggests_keywords

if TYPE_CHECKING:
    from gymnasium.vector import AutoresetMode, VectorEnv

    from framestow.distributed.replay import ShardedReplay
    from framestow.envs import FinishedGame
    from framestow.envs.recording.step_recording import LastFrame
    from framestow.envs.vector.one_env import AutoresetName


class PolicyStep(NamedTuple):
    """``actions`` of all environments, ``(n, *action)``, and optionally the values that give initial priorities.

    ``chosen`` is the value of each action, and ``best`` the largest value of any action.
    """

    actions: npt.NDArray[Any]
    chosen: npt.NDArray[np.float32] | None = None
    best: npt.NDArray[np.float32] | None = None


class Policy(Protocol):
    """A policy of an actor."""

    def load(self, weights: Any) -> None:
        """Take over the weights that the learner gave."""

    def act(self, observations: Any) -> PolicyStep:
        """Return an action for each row of ``observations``, ``(n, stack, *frame)``."""


MakeActorEnv = Callable[[int, int], "VectorEnv[Any, Any, Any]"]  # of the actor's number and a seed
MakePolicy = Callable[[int, int], Policy]  # likewise


@dataclass(frozen=True)
class RolloutSettings:
    """Arguments of an actor, in any process."""

    number: int  # of the actor
    make_env: MakeActorEnv
    make_policy: MakePolicy
    writer: ShardWriter
    seed: int = 0  # of the run; the actor derives its own
    reward_limit: float | None = None  # this and the next ones as of a Recorder
    autoreset_mode: AutoresetMode | AutoresetName | None = None
    last_frame: LastFrame = "given"


@dataclass(frozen=True)
class RolloutReport:
    """Report of one call of an actor."""

    actor: int
    steps: int  # of all its environments
    games: list[FinishedGame]  # env_id is that of the replay
    lost: dict[int, str]  # environments of the replay whose episode was lost, with the reason
    counts: WriterCounts  # since the actor was started


class RolloutActor:
    """Plays a Gymnasium vector environment with a policy; a ``ShardWriter`` sends the steps to the shards.

    Arguments:
        settings: What the actor is built from. ``make_env`` returns environments of single frames with autoreset
            ``NEXT_STEP`` or ``SAME_STEP``, as for a ``Recorder``.
        num_restarts: Changes the seed, so that a restarted actor does not play the same episodes again.
    """

    def __init__(self, settings: RolloutSettings, num_restarts: int = 0) -> None:
        seed = np.random.SeedSequence([settings.seed, settings.number, num_restarts])
        env_seed, policy_seed = (int(number) for number in seed.generate_state(2, np.uint32) // 2)
        self._number, self._writer = settings.number, settings.writer
        self._policy = settings.make_policy(settings.number, policy_seed)
        from framestow.envs import Recorder  # noqa: PLC0415 -- imports Gymnasium, which shards do not need

        env = settings.make_env(settings.number, env_seed)
        self._env = Recorder(
            env,
            self._writer,
            reward_limit=settings.reward_limit,
            autoreset_mode=settings.autoreset_mode,
            last_frame=settings.last_frame,
        )
        # Of the last step; None before the first one, and after an error, so that all environments are reset.
        self._observations: Any = None
        # Seed of the first reset; None afterwards.
        self._env_seed: int | None = env_seed
        self._version = -1  # of the loaded weights

    def run(self, num_steps: int, weights: Any, version: int) -> RolloutReport:
        """Play ``num_steps`` steps of each environment with ``weights``, unless this ``version`` is loaded already."""
        from framestow.envs import finished_games, lost_episodes  # noqa: PLC0415 -- likewise

        if version != self._version:
            self._policy.load(weights)
            self._version = version
        games: list[FinishedGame] = []
        lost: dict[int, str] = {}
        first_env, before = self._number * self._writer.num_envs, self._writer.counts.appended
        try:
            if self._observations is None:
                self._observations = self._env.reset(seed=self._env_seed)[0]
                self._env_seed = None  # a later reset continues the environments' generators
            for _ in range(num_steps):
                step = self._policy.act(self._observations)
                if step.chosen is not None and step.best is not None:
                    self._writer.set_values(step.chosen, step.best)
                self._observations, _, _, _, infos = self._env.step(step.actions)
                games += [game._replace(env_id=first_env + game.env_id) for game in finished_games(infos)]
                lost |= {first_env + env_id: why for env_id, why in lost_episodes(infos).items()}
        except BaseException:
            self._observations = None  # after an error, such as of a shard that does not come back, new episodes begin
            raise
        counts = self._writer.counts
        return RolloutReport(self._number, counts.appended - before, games, lost, counts)

    def flush(self) -> None:
        """Send all steps, and wait until the shards have stored them."""
        self._writer.flush()

    def close(self) -> None:
        """Close the environments."""
        self._env.close()


StartRollouts = Callable[[Sequence[RolloutSettings]], Calls]


def start_ray_rollouts(settings: Sequence[RolloutSettings], placement: ActorPlacement | None = None) -> RayCalls:
    """Start a Ray actor for each rollout, spread over the nodes."""
    return start_actors(RolloutActor, settings, placement)


@suggests_keywords
class Rollouts(Closing):
    """Actors that play until they are closed, each with its part of the environments of a replay.

    One call of ``steps_per_call`` steps is in flight to each actor. An actor that dies is restarted, and its next
    episode closes the one that was open. One that does not answer for ``silent_s`` seconds is ended, unless it waits
    for the rate limiter or for a shard.

    Arguments:
        replay: Stores the steps; actor k has the environments ``k * envs_per_actor`` and following.
        make_env: Returns the environments of an actor, given its number and a seed.
        make_policy: Returns the policy of an actor, given its number and a seed.
        num_actors: Number of actors; ``replay.num_envs`` is a multiple of it.
        steps_per_call: Steps of each environment between two reports, and between two versions of the weights.
        weights: The first weights of the policies.
        reward_limit: As of ``Recorder``, for each actor.
        autoreset_mode: As of ``Recorder``.
        last_frame: As of ``Recorder``.
        priority: Initial priorities of transitions from their n-step TD errors, if the policies give values;
            ``None`` gives new transitions the largest priority so far.
        start: Starts the actors; Ray actors by default.
    """

    def __init__(
        self,
        replay: ShardedReplay,
        make_env: MakeActorEnv,
        make_policy: MakePolicy,
        num_actors: int,
        *,
        steps_per_call: int = 100,
        weights: Any = None,
        seed: int = 0,
        reward_limit: float | None = None,
        autoreset_mode: AutoresetMode | AutoresetName | None = None,
        last_frame: LastFrame = "given",
        priority: Priorities | None = None,
        silent_s: float = 120.0,
        start: StartRollouts | None = None,
    ) -> None:
        whole_number("num_actors", num_actors, 1, rule="it must be at least 1")
        envs, rest = divmod(replay.num_envs, num_actors)
        if rest or not envs:
            raise InvalidSettingsError(
                f"num_actors is {num_actors}: each actor has an equal part of the "
                f"{plural(replay.num_envs, 'environment')}; give "
                "a number that divides them, or build the replay with another num_envs"
            )
        self._replay, self._steps, self._silent_s = replay, steps_per_call, silent_s
        self.envs_per_actor = envs
        writers = [replay.writer(self.env_ids(number), priority=priority) for number in range(num_actors)]
        settings = [
            RolloutSettings(
                number,
                make_env,
                make_policy,
                writer,
                seed,
                reward_limit,
                autoreset_mode=autoreset_mode,
                last_frame=last_frame,
            )
            for number, writer in enumerate(writers)
        ]
        # Calls to the actors.
        self.calls = (start or start_ray_rollouts)(settings)
        self.num_lost = 0
        """Number of calls to actors that ended with the death of the actor."""
        # By actor: its call and the time since when it may be silent, by ``time.monotonic``.
        self._in_flight: dict[int, tuple[Any, float]] = {}
        self._has_answered: set[int] = set()  # actors since their last start
        # The newest weights as ``Calls.share`` returned them, and their version.
        self._weights, self._version = self.calls.share(weights), 0

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield plural(self.calls.num_objects, "actor")
            yield f"{plural(self.envs_per_actor, 'environment')} each"
            yield repr(self._replay)

        return one_line(self, details)

    def env_ids(self, actor: int) -> range:
        """Return the environments of the replay that an actor plays."""
        return range(actor * self.envs_per_actor, (actor + 1) * self.envs_per_actor)

    @property
    def num_playing(self) -> int:
        """Number of actors that have answered since their last start."""
        return len(self._has_answered)

    def set_weights(self, weights: Any) -> None:
        """Give the policies new weights; each actor loads them with its next call."""
        self._weights, self._version = self.calls.share(weights), self._version + 1

    def poll(self, timeout_s: float = 0.0) -> tuple[list[RolloutReport], list[int]]:
        """Return the reports that arrived, after waiting for the first, and the lost actors; submit the next calls.

        While the rate limiter holds actors back, calls are not submitted again.
        """
        if self._replay.who_waits != "actors":
            for number in range(self.calls.num_objects):
                if number not in self._in_flight:
                    handle = self.calls.call(number, "run", self._steps, self._weights, self._version)
                    self._in_flight[number] = handle, time.monotonic()
        handles = {number: handle for number, (handle, _) in self._in_flight.items()}
        done = {id(handle) for handle in self.calls.wait(list(handles.values()), timeout_s)}
        reports, lost = [], []
        for number, handle in handles.items():
            if id(handle) in done:
                del self._in_flight[number]
                report = self._result(number, handle)
                if report is None:
                    lost.append(number)
                else:
                    reports.append(report)
            elif self._is_silent(number):
                self.calls.replace(number)  # its call raises, and the next poll counts it as lost
                self._has_answered.discard(number)
                self._in_flight[number] = handle, time.monotonic()
        return reports, lost

    def _result(self, number: int, handle: Any) -> RolloutReport | None:
        try:
            report: RolloutReport = self.calls.result(handle, self._silent_s)
        except ActorLostError:
            self.num_lost += 1
            self._has_answered.discard(number)
            return None
        self._has_answered.add(number)
        return report

    def _is_silent(self, number: int) -> bool:
        since = self._in_flight[number][1]
        # Actors may wait for inserts, or for a shard to come back.
        if self._replay.who_waits == "actors" or self._replay.group.num_lost:
            self._in_flight[number] = self._in_flight[number][0], time.monotonic()
            return False
        return time.monotonic() - since > (self._silent_s if number in self._has_answered else START_S)

    def flush(self, timeout_s: float = 60.0) -> None:
        """Finish the calls in flight, and send all steps to the shards; the next ``poll`` plays on."""
        for number in list(self._in_flight):
            self._result(number, self._in_flight.pop(number)[0])
        handles = [self.calls.call(number, "flush") for number in range(self.calls.num_objects)]
        for handle in handles:
            self.calls.result(handle, timeout_s)

    def close(self) -> None:
        """End the actors; steps that they have not sent are lost."""
        self.calls.close()

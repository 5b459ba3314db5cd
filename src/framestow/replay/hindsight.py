"""Hindsight: transitions learnt from as if what their episode achieved later had been its goal all along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from framestow.argument_checks import check_callable, one_of, real_number
from framestow.errors import DamagedSegmentError, InvalidSettingsError
from framestow.frames.observation_spec import AnySpec, Leaf
from framestow.replay.batch import Batch
from framestow.replay.memory import DrawnMemory
from framestow.replay.sampling import PendingBatch
from framestow.storage.keyed_storage import KeyedReading

GoalStrategy = Literal["future", "final", "episode"]
OfGoals = Callable[[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, npt.NDArray[Any]]], npt.ArrayLike]
"""``compute(achieved_goal, desired_goal, info)`` of ``n`` transitions at once: ``(n, *goal)`` twice, gives ``(n,)``."""

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
FORM = "compute(achieved_goal, desired_goal, info), of all relabelled transitions at once"
TRIES = 8  # before all frames of an episode are looked at: more than one only where some of them have left

Numbers = npt.NDArray[np.int64]


class _Episodes(NamedTuple):
    """Of some transitions: their streams, where they start, and the frames of their episodes, the last one included."""

    streams: Numbers
    positions: Numbers
    firsts: Numbers
    lasts: Numbers


class HindsightGoals:
    """Samples a memory of a goal environment with a ``share`` of the goals replaced (Andrychowicz et al. 2017, HER).

    Observations are Gymnasium-Robotics' dicts: ``"achieved_goal"`` and ``"desired_goal"`` of one shape and dtype, and
    whatever else. A relabelled transition gets as its desired goal what the same episode achieved in some frame:

    ==============  ==========================================================================
    ``strategy``    that frame, each equally likely
    ==============  ==========================================================================
    ``"future"``    any that comes after the observation, up to the episode's last
    ``"final"``     the episode's last; of an episode that goes on, its newest so far
    ``"episode"``   any but the episode's first, which nobody achieved
    ==============  ==========================================================================

    Only frames that the memory still holds are taken. The new goal stands in every frame of ``observation`` and
    ``next_observation``; the reward is what ``compute_reward(achieved_goal, desired_goal, info)`` gives for what the
    step achieved, one call for all relabelled transitions. ``info`` has their extras by name, for rewards that
    need more than the goals. Nothing but these and ``terminated`` and ``discount`` changes, and the memory does not:
    what is drawn with which index and weight is the sampler's choice.

    ``compute_terminated``, called alike, says which steps end the episode by their goal: Gymnasium-Robotics'
    ``env.compute_terminated``. A relabelled step is then ``terminated``, and its ``discount`` 0, in the rows where

    ==============================================  ====================================
    the step as recorded                            relabelled, it is ``terminated``
    ==============================================  ====================================
    did not terminate, or was truncated             if it reaches the new goal
    terminated by reaching its recorded goal        if it reaches the new goal
    terminated by anything else (a fall, a crash)   always
    ==============================================  ====================================

    To tell the last two apart, it is asked about the recorded goals of recorded terminations too. Where a step reaches
    its goal and falls at once, the goal counts. Without ``compute_terminated`` both stay what they were.

    Of ``B`` transitions ``share * B`` are relabelled, rounded up or down at random so that it is right on average, in
    rows drawn at random. All of this is drawn from the memory's own generator, after the transitions: the same seed
    gives the same batches, also after ``save`` and ``load``. The paper's k goals a transition are a share of k / (k+1):
    0.8 for its k = 4.

    Threads: as ``ReplayMemory.sample``; ``compute_reward`` runs in the caller's thread, without the memory's lock.
    """

    def __init__(
        self,
        memory: DrawnMemory,
        compute_reward: OfGoals,
        *,
        share: float = 0.8,
        strategy: GoalStrategy = "future",
        compute_terminated: OfGoals | None = None,
    ) -> None:
        if not isinstance(memory, DrawnMemory):
            raise InvalidSettingsError(f"memory is {memory!r}: goals are relabelled of a ReplayMemory; give one")
        check_callable("compute_reward", compute_reward, FORM)
        if compute_terminated is not None:
            check_callable("compute_terminated", compute_terminated, FORM)
        settings = memory._parts.settings
        share = real_number("share", share, 0, 1, rule="it must be a part of the batch, 0 to 1; the paper's is 0.8")
        one_of("strategy", strategy, get_args(GoalStrategy), "take 'future'")
        if settings.n_step != 1:
            raise InvalidSettingsError(
                f"n_step is {settings.n_step}: rewards of several steps cannot be computed anew; build the memory with "
                "n_step=1"
            )
        self.share, self.strategy = share, strategy
        self._compute_reward, self._compute_terminated = compute_reward, compute_terminated
        self._parts, self._memory = memory._parts, memory
        self._leaf_number, self._leaf = _goal_leaf(settings.frame)

    def sample(self, batch_size: int) -> Batch:
        """Draw ``batch_size`` transitions as ``ReplayMemory.sample`` does, a share of them with other goals.

        Raises what that raises, and ``InvalidSettingsError`` where ``compute_reward`` or ``compute_terminated`` give
        another shape than ``(n,)``.
        """
        while True:
            try:
                batch, rows, goals = self._drawn(batch_size)
            except DamagedSegmentError as error:
                with self._parts.lock:
                    self._parts.damage.skip(error)
            else:
                return self._relabelled(batch, rows, goals) if rows.size else batch

    def _drawn(self, batch_size: int) -> tuple[Batch, Numbers, npt.NDArray[Any]]:
        """A batch as it was stored, the rows to relabel, and their goals."""
        with self._parts.lock:  # so that nothing leaves between the draw and the choice of goals
            pending = self._memory._draw_ahead(batch_size)
            try:
                rows = self._rows(batch_size)
                streams, positions = self._chosen_frames(pending.draw.indices[rows])
            except BaseException:
                pending.stop()
                raise
        try:
            goals = self._goals(pending, streams, positions)
            return pending.unpack(), rows, goals
        finally:
            pending.stop()

    def _rows(self, batch_size: int) -> Numbers:
        exact = self.share * batch_size
        count = int(exact) + int(self._parts.generator.random() < exact - int(exact))
        return np.sort(self._parts.generator.permutation(batch_size)[:count])

    def _chosen_frames(self, indices: Numbers) -> tuple[Numbers, Numbers]:
        """Streams and positions of the frames whose achieved goals the transitions ``indices`` get."""
        episodes = _Episodes(*self._parts.timeline.episode_spans(indices))
        firsts = episodes.firsts if self.strategy == "episode" else episodes.positions
        # The step that leads to a frame starts at the one before it; it tells whether that frame may be read.
        stops = episodes.lasts
        steps = stops - 1 if self.strategy == "final" else self._uniform(firsts, stops)
        for attempt in range(TRIES):
            lost = np.flatnonzero(self._parts.timeline.find_steps(episodes.streams, steps) < 0)
            if not lost.size:
                break
            if self.strategy == "final" or attempt == TRIES - 1:
                for row in lost.tolist():
                    steps[row] = self._step_among(int(episodes.streams[row]), int(firsts[row]), int(stops[row]))
                break
            steps[lost] = self._uniform(firsts[lost], stops[lost])
        return episodes.streams, steps + 1

    def _uniform(self, firsts: Numbers, stops: Numbers) -> Numbers:
        return self._parts.generator.integers(firsts, stops)

    def _step_among(self, stream: int, first: int, stop: int) -> int:
        """Where a step starts that is held, the last one or any, of those of a stream from ``first`` to ``stop``."""
        positions = np.arange(first, stop)
        held = positions[self._parts.timeline.find_steps(np.full(len(positions), stream), positions) >= 0]
        return int(held[-1] if self.strategy == "final" else self._parts.generator.choice(held))

    def _goals(self, pending: PendingBatch, streams: Numbers, positions: Numbers) -> npt.NDArray[Any]:
        """What was achieved in these frames, ``(n, *goal)``, read while ``pending`` keeps them."""
        frames = self._leaf.frame.empty(len(streams), 1)
        if len(streams) and isinstance(pending.reading, KeyedReading):
            one_each = np.ones(len(streams), np.int32)
            of_goals = pending.reading.of_leaf(self._leaf_number)
            of_goals.windows(streams.astype(np.int32), positions, one_each, frames)
        return self._leaf.as_observed(frames[:, 0])

    def _relabelled(self, batch: Batch, rows: Numbers, goals: npt.NDArray[Any]) -> Batch:
        ended = rows[batch.terminated[rows]]
        ended = ended[~self._are_terminated_by(batch, ended, batch.next_observation[DESIRED][ended, -1])]
        for observation in (batch.observation, batch.next_observation):
            observation[DESIRED][rows] = goals[:, None]  # the arrays of a batch are its own until it is let go
        batch.reward[rows] = _one_each("compute_reward", self._compute_reward(*_of(batch, rows, goals)), len(rows))
        if self._compute_terminated is not None:
            batch.terminated[rows] = self._are_terminated_by(batch, rows, goals)
            batch.terminated[ended] = True
            batch.discount[rows] = np.where(batch.terminated[rows], 0.0, self._parts.settings.discount)
        return batch

    def _are_terminated_by(self, batch: Batch, rows: Numbers, goals: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Which of ``rows`` end their episode where ``goals`` are theirs; none where nobody says so."""
        if self._compute_terminated is None or not len(rows):
            return np.zeros(len(rows), np.bool_)
        terminated = self._compute_terminated(*_of(batch, rows, goals))
        return _one_each("compute_terminated", terminated, len(rows)).astype(np.bool_)


def _goal_leaf(spec: AnySpec) -> tuple[int, Leaf]:
    """Number of the achieved goal among the leaves, and what it is; ``InvalidSettingsError`` unless there are goals."""
    leaves = {leaf.path: (number, leaf) for number, leaf in enumerate(getattr(spec, "leaves", ()))}
    number, achieved = leaves.get((ACHIEVED,), (0, None))
    _, desired = leaves.get((DESIRED,), (0, None))
    if achieved is None or desired is None:
        keys = ", ".join(leaf.key for _, leaf in leaves.values()) or "one array"
        raise InvalidSettingsError(
            f"observations are of {keys}: hindsight needs {ACHIEVED!r} and {DESIRED!r}, an array each; "
            "build the memory of a Dict space with them"
        )
    if (achieved.frame, achieved.has_axes) != (desired.frame, desired.has_axes):
        raise InvalidSettingsError(
            f"{ACHIEVED} is {achieved.frame} and {DESIRED} {desired.frame}: one takes the place of the other; "
            "give both one shape and dtype"
        )
    return number, achieved


def _of(
    batch: Batch, rows: Numbers, goals: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, npt.NDArray[Any]]]:
    """What ``compute_reward`` and ``compute_terminated`` are called with."""
    achieved = batch.next_observation[ACHIEVED][rows, -1]
    return achieved, goals, {name: values[rows] for name, values in batch.extras.items()}


def _one_each(name: str, values: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
    array = np.asarray(values)
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise InvalidSettingsError(
            f"{name} gave shape {array.shape} and dtype {array.dtype} for {count} transitions: it must give ({count},) "
            "numbers for all of them at once; vectorise it"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise InvalidSettingsError(f"{name} gave {array[row]} for row {row}: numbers must be finite; correct it")
    return array

"""``HindsightGoals``: batches in which a share of the goals is replaced by achieved goals (HER)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from framestow._core import BORDER, Windows
from framestow.checks import as_array, as_flags, check_callable, one_of, real_number, truth_value
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import ArraySpec
from framestow.frames.observation_spec import ObservationSpec
from framestow.interface import listed, one_line
from framestow.keywords import suggests_keywords
from framestow.replay.memory import ReplayMemory, check_batch_size
from framestow.replay.reading.batch import Batch
from framestow.replay.reading.sampling import PendingBatch, drawn, read_pending
from framestow.storage.frame_storage import FrameSnapshot

GoalStrategy = Literal["future", "final", "episode"]
GoalFunction = Callable[[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, npt.NDArray[Any]]], npt.ArrayLike]
"""``compute(achieved_goal, desired_goal, info)`` of ``n`` transitions: two arrays ``(n, *goal)`` to one ``(n,)``."""

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
FORM = "compute(achieved_goal, desired_goal, info) for all relabelled transitions at once"
TRIES = 8  # draws before all frames of an episode are checked; only evicted or lost frames need more than one

Numbers = npt.NDArray[np.int64]


class _Episodes(NamedTuple):
    """Environments and positions of some transitions, and the first and last frame of their episodes."""

    env_ids: Numbers
    positions: Numbers
    firsts: Numbers
    lasts: Numbers


@suggests_keywords
class HindsightGoals:
    """Samples batches with a ``share`` of the goals replaced (Andrychowicz et al. 2017, HER).

    Observations are dicts as in Gymnasium-Robotics, with ``"achieved_goal"`` and ``"desired_goal"`` of one shape and
    dtype, and any other keys. A relabelled transition gets as its desired goal the goal that was achieved in another
    frame of its episode. Each possible frame is equally likely:

    ==============  ===================================================================
    ``strategy``    possible frames, as far as they are stored
    ==============  ===================================================================
    ``"future"``    all frames after the observation, up to the episode's last
    ``"final"``     the episode's last frame; of an open episode, the newest
    ``"episode"``   all frames of the episode but the first
    ==============  ===================================================================

    Arguments:
        memory: ``ReplayMemory`` with ``n_step=1``; it is not changed.
        compute_reward: ``compute_reward(achieved_goal, desired_goal, info)`` for all relabelled transitions at once:
            two arrays ``(n, *goal)``, and their extras by name as ``info``. Returns the rewards, ``(n,)``.
        share: Share of relabelled transitions, 0 to 1. The paper's k goals for each transition are a share of
            k / (k + 1): 0.8 for its k = 4.
        strategy: One of the table above.
        compute_terminated: Called as ``compute_reward``; returns which steps end their episode by reaching the goal,
            as ``env.compute_terminated`` of Gymnasium-Robotics does. If ``None``, ``terminated`` and ``discount`` do
            not change.

    The new goal is in ``observation`` and ``next_observation``, and in every frame of a memory built with ``stack``. A
    memory built without it takes and gives whole goals, whatever their shape. With ``compute_terminated``, relabelled
    steps get a new ``terminated``, and a ``discount`` of 0 if it is true:

    ==============================================  ====================================
    recorded step                                   relabelled step is ``terminated``
    ==============================================  ====================================
    did not terminate, or was truncated             if it reaches the new goal
    terminated by reaching its recorded goal        if it reaches the new goal
    terminated for another reason (a fall)          always
    ==============================================  ====================================

    To distinguish the last two, ``compute_terminated`` is also called with the recorded goals of recorded
    terminations. A step that reaches its recorded goal and falls at the same time counts as reaching it.

    ``share * B`` of ``B`` transitions are relabelled, rounded up or down at random so that the mean is exact, in random
    rows. All choices use the memory's generator, after the transitions are drawn. So the same seed gives the same
    batches, also after ``save`` and ``load``.

    Threads: as ``ReplayMemory.sample``; both functions run in the caller's thread, those of a loader's batches in the
    loader's, without the memory's lock.
    """

    def __init__(
        self,
        memory: ReplayMemory,
        compute_reward: GoalFunction,
        *,
        share: float = 0.8,
        strategy: GoalStrategy = "future",
        compute_terminated: GoalFunction | None = None,
    ) -> None:
        if not isinstance(memory, ReplayMemory):
            raise InvalidSettingsError(f"memory is {memory!r}: it must be a ReplayMemory; give one")
        check_callable("compute_reward", compute_reward, FORM)
        if compute_terminated is not None:
            check_callable("compute_terminated", compute_terminated, FORM)
        settings = memory.inner.settings
        share = real_number("share", share, 0, 1, rule="it must be a share from 0 to 1; the paper takes 0.8")
        one_of("strategy", strategy, get_args(GoalStrategy), "take 'future'")
        if settings.n_step != 1:
            raise InvalidSettingsError(
                f"n_step is {settings.n_step}: hindsight computes rewards of single steps; build the memory with "
                "n_step=1"
            )
        self.share, self.strategy = share, strategy
        self._compute_reward, self._compute_terminated = compute_reward, compute_terminated
        self._parts, self._memory = memory.inner.parts, memory
        layout = settings.layout
        # Which array of an observation the achieved goal is: its number, and the spec of a goal. That is a frame if the
        # memory was built with ``stack``; otherwise the whole array, even where the memory stores it as a stack.
        self._is_frame = layout.takes_frames
        self._array_number, self._array = _goal_array(settings.frame if self._is_frame else layout.spec)
        self._stacks = {array.key: stacks for array, stacks in zip(layout.arrays, layout.stacks, strict=True)}
        self._depth = 1 if self._is_frame else layout.depths[self._array_number]  # frames of a goal

    def __repr__(self) -> str:
        return one_line(self, lambda: (f"share {self.share}", f"strategy {self.strategy!r}", repr(self._memory)))

    def sample(self, batch_size: int, *, copy: bool = False) -> Batch:
        """Sample ``batch_size`` transitions as ``ReplayMemory.sample`` does, with a share of them relabelled.

        ``copy`` is as of ``ReplayMemory.sample``.

        Raises the errors of ``ReplayMemory.sample``, and ``InvalidSettingsError`` if ``compute_reward`` returns a shape
        other than ``(n,)`` or numbers that are not finite in ``float32``, or ``compute_terminated`` anything but
        booleans (or 0 and 1) of that shape.
        """
        copy = truth_value("copy", copy)
        batch = read_pending(PendingGoals(self, self._memory, check_batch_size(batch_size)))
        return batch.copy() if copy else batch

    def draw_ahead(self, batch_size: int) -> PendingGoals:
        """Draw now as ``sample`` does, for a loader; ``unpack`` calls both functions, in the loader's thread."""
        return drawn(PendingGoals(self, self._memory, check_batch_size(batch_size)))

    def choose_rows(self, batch_size: int) -> Numbers:
        """Draw the rows to relabel, ascending."""
        exact = self.share * batch_size
        count = int(exact) + int(self._parts.generator.random() < exact - int(exact))
        return np.sort(self._parts.generator.permutation(batch_size)[:count])

    def choose_frames(self, indices: Numbers) -> Windows:
        """Return the windows of the achieved goals that the transitions ``indices`` get."""
        episodes = _Episodes(*self._parts.steps.episode_spans(indices))
        firsts = episodes.firsts if self.strategy == "episode" else episodes.positions
        # A frame is readable if the step that led to it is; that step starts at the frame before.
        stops = episodes.lasts
        steps = stops - 1 if self.strategy == "final" else self._uniform(firsts, stops)
        for attempt in range(TRIES):
            lost = np.flatnonzero(self._parts.steps.find_steps(episodes.env_ids, steps) < 0)
            if not lost.size:
                break
            if self.strategy == "final" or attempt == TRIES - 1:
                for row in lost.tolist():
                    steps[row] = self._step_among(int(episodes.env_ids[row]), int(firsts[row]), int(stops[row]))
                break
            steps[lost] = self._uniform(firsts[lost], stops[lost])
        chosen = self._parts.steps.find_steps(episodes.env_ids, steps)
        windows, _ = self._parts.steps.resolve_steps(chosen, with_extras=False)
        are_borders = self._parts.steps.flags_of(chosen) & BORDER > 0
        counts = np.where(are_borders, 1, np.minimum(windows.counts, self._depth)).astype(np.int32)
        return windows._replace(counts=counts)

    def _uniform(self, firsts: Numbers, stops: Numbers) -> Numbers:
        return self._parts.generator.integers(firsts, stops)

    def _step_among(self, env_id: int, first: int, stop: int) -> int:
        """Return where a stored step between ``first`` and ``stop`` starts: the last one for "final", else any."""
        positions = np.arange(first, stop)
        stored = positions[self._parts.steps.find_steps(np.full(len(positions), env_id), positions) >= 0]
        return int(stored[-1] if self.strategy == "final" else self._parts.generator.choice(stored))

    def read_goals(self, snapshot: FrameSnapshot, windows: Windows) -> npt.NDArray[Any]:
        """Return the achieved goals of these windows, ``(n, *goal)``."""
        settings = self._parts.settings
        frames = settings.frame.frame_specs[self._array_number].empty(len(windows.env_ids), self._depth)
        if len(frames):
            snapshot.windows(*windows, frames, settings.stack_padding, self._array_number)
        stacks = self._stacks[self._array.key]
        return self._array.as_observed(frames[:, 0]) if self._is_frame or stacks is None else stacks.join(frames)

    def relabel(self, batch: Batch, rows: Numbers, goals: npt.NDArray[Any]) -> Batch:
        """Return ``batch`` with new goals, rewards and terminations in ``rows``; changes its arrays in place."""
        if not rows.size:
            return batch
        ended = rows[batch.terminated[rows]]
        ended = ended[~self._are_terminated_by(batch, ended, self._frames(batch.next_observation, DESIRED)[ended, -1])]
        if not self._is_frame and self._stacks[DESIRED] is not None:  # the two goals may be views of the same frames
            batch.observation[DESIRED] = batch.observation[DESIRED].copy()
        for observation in (batch.observation, batch.next_observation):
            self._frames(observation, DESIRED)[rows] = goals[:, None]  # no other batch uses these arrays yet
        name, rewards = "compute_reward", self._compute_reward(*self._goal_arguments(batch, rows, goals))
        batch.reward[rows] = _finite(name, _one_each(name, rewards, len(rows)), batch.reward.dtype)
        if self._compute_terminated is not None:
            batch.terminated[rows] = self._are_terminated_by(batch, rows, goals)
            batch.terminated[ended] = True
            batch.discount[rows] = np.where(batch.terminated[rows], 0.0, self._parts.settings.discount)
        return batch

    def _are_terminated_by(self, batch: Batch, rows: Numbers, goals: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which of ``rows`` end their episode with these ``goals``; none without ``compute_terminated``."""
        if self._compute_terminated is None or not len(rows):
            return np.zeros(len(rows), np.bool_)
        terminated = self._compute_terminated(*self._goal_arguments(batch, rows, goals))
        name = "compute_terminated"
        return as_flags(f"the result of {name}", _one_each(name, terminated, len(rows)), InvalidSettingsError)

    def _goal_arguments(
        self, batch: Batch, rows: Numbers, goals: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any], Mapping[str, npt.NDArray[Any]]]:
        """Return the arguments of ``compute_reward`` and ``compute_terminated``."""
        achieved = self._frames(batch.next_observation, ACHIEVED)[rows, -1]
        return achieved, goals, {name: values[rows] for name, values in batch.extras.items()}

    def _frames(self, observation: Any, key: str) -> npt.NDArray[Any]:
        """Return a view of a batch's goals, ``(B, depth, *goal)``: ``stack`` frames, or one whole array."""
        stacks = self._stacks[key] if self._is_frame else None
        return observation[key][:, None] if stacks is None else stacks.split(observation[key])


class PendingGoals(PendingBatch):
    """A draw whose batch gets its new goals when it is unpacked."""

    __slots__ = ("_goals", "_hindsight", "_rows", "_windows")

    def __init__(self, hindsight: HindsightGoals, memory: ReplayMemory, batch_size: int) -> None:
        super().__init__(memory.inner.parts, memory.inner.batches, batch_size)
        self._hindsight = hindsight

    def draw_steps(self) -> None:  # noqa: D102
        with self._parts.lock:  # no eviction between the draw and the choice of goals
            super().draw_steps()
            self._rows = self._hindsight.choose_rows(self._batch_size)
            self._windows = self._hindsight.choose_frames(self.draw.indices[self._rows])

    def _read_frames(self, snapshot: FrameSnapshot) -> None:
        super()._read_frames(snapshot)
        self._goals = self._hindsight.read_goals(snapshot, self._windows)

    def _make_batch(self) -> Batch:
        return self._hindsight.relabel(super()._make_batch(), self._rows, self._goals)


def _goal_array(spec: ObservationSpec) -> tuple[int, ArraySpec]:
    """Return number and array of the achieved goal; raise ``InvalidSettingsError`` if there are no two goals."""
    arrays = {array.path: (number, array) for number, array in enumerate(spec.arrays)}
    number, achieved = arrays.get((ACHIEVED,), (0, None))
    _, desired = arrays.get((DESIRED,), (0, None))
    if achieved is None or desired is None:
        keys = listed(array.key for _, array in arrays.values()) or "one array"
        raise InvalidSettingsError(
            f"observations have {keys}: hindsight needs an array for each of {ACHIEVED!r} and {DESIRED!r}; "
            "build the memory with a Dict space that has them"
        )
    if (achieved.frame, achieved.has_axes) != (desired.frame, desired.has_axes):
        raise InvalidSettingsError(
            f"{ACHIEVED} is {achieved.frame} and {DESIRED} is {desired.frame}: one replaces the other; "
            "give both the same shape and dtype"
        )
    return number, achieved


def _one_each(name: str, values: npt.ArrayLike, count: int) -> npt.NDArray[Any]:
    """Return ``values`` as an array ``(count,)``; raise ``InvalidSettingsError`` for other shapes."""
    array = as_array(f"the result of {name}", values)
    if array.shape != (count,) or array.dtype.kind not in "biuf":
        raise InvalidSettingsError(
            f"{name} returned shape {array.shape} and dtype {array.dtype} for {count} transitions: it must return "
            f"numbers of shape ({count},), for all of them at once; vectorise it"
        )
    return array


def _finite(name: str, values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return ``values`` as ``dtype``; raise ``InvalidSettingsError`` unless all are finite in it."""
    with np.errstate(over="ignore"):  # refused below
        array = values.astype(dtype)
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array)))
        raise InvalidSettingsError(
            f"{name} returned {values[row]} for row {row}: its values must be finite in {dtype}; correct the function"
        )
    return array

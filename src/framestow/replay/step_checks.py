"""Check and convert the steps that a caller passes to ``begin`` and ``append``, before anything is stored.

A rule stands in two places. The native ``Planner`` takes the usual forms of an argument, and refuses whatever breaks a
rule (``_core/bindings/step_arguments.cpp``). Then the functions here convert the other forms, or raise the error that
names the rule. A rule that only stands here is not checked for the usual forms
(``tests/replay/test_forms_of_a_step.py``).

=====================  ==================================================  ===========================
argument               native                                              here
=====================  ==================================================  ===========================
env_ids                ``read_env_ids``, ``are_known``                     ``check_env_ids``
open episodes          ``may_append``                                      ``check_episodes_are_open``
actions                ``read_counted_actions``, ``read_array_actions``    ``ActionSpec.check_actions``
rewards                ``read_rewards``                                    ``check_rewards``
terminated, truncated  ``read_flags``                                      ``check_flags``
frames                 ``Planner::borrow``                                 ``check_arrays``
extras                 ``read_columns``                                    ``ExtrasSpec.check_extras``
=====================  ==================================================  ===========================

``append`` and ``add`` pass the fields of a step in the order of ``Step``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED, Planner
from framestow.checks import as_array
from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import ArraySpec
from framestow.frames.observation_spec import FRAMES, Frames, ObservationSpec, as_native, refuse_none
from framestow.interface import clause
from framestow.refusals import Refusal
from framestow.replay.settings.memory_settings import MemorySettings

CheckedEnvIds = npt.NDArray[np.int32]
LARGEST_REWARD = np.finfo(np.float32).max


class Step(NamedTuple):
    """One step of each of some environments, in any form that ``append`` takes, or in stored form; in C++'s order."""

    env_ids: Any
    """Numbers of the environments; ``None`` means all."""
    actions: Any
    rewards: Any
    terminated: Any
    truncated: Any
    frames: Any
    """A tuple with an array for each of the space, of the frames or the whole next observations."""
    extras: Any = None


def check_begin(
    settings: MemorySettings, planner: Planner, frames: Any, env_ids: Any, are_whole: bool = False
) -> tuple[Sequence[Any], CheckedEnvIds, bool]:
    """Return the arguments of ``Planner.plan_begin`` in the form that it takes; raise ``InvalidStepError``."""
    checked = check_env_ids(env_ids, planner.num_envs)
    return _check_parts(settings, frames, len(checked), are_whole, "observation"), checked, are_whole


def check_append(
    settings: MemorySettings,
    planner: Planner,
    env_ids: Any,
    actions: Any,
    rewards: Any,
    terminated: Any,
    truncated: Any,
    frames: Any,
    extras: Any,
    are_whole: bool = False,
) -> tuple[Any, ...]:
    """Return the arguments of ``Planner.plan_append`` in the form that it takes; raise ``InvalidStepError``."""
    checked = check_env_ids(env_ids, planner.num_envs)
    check_episodes_are_open(planner.open_episodes, checked)
    step = check_values(settings, Step(checked, actions, rewards, terminated, truncated, frames, extras))
    parts = _check_parts(settings, frames, len(checked), are_whole, "next_observation")
    return *step._replace(frames=parts), are_whole


def _check_parts(settings: MemorySettings, parts: Any, num_envs: int, are_whole: bool, name: str) -> Sequence[Any]:
    """Return the arrays of frames or of whole observations; ``name``: of the latter, for messages."""
    if settings.layout.stores_as_given and not are_whole:
        return check_arrays(parts, num_envs, settings.frame)
    return tuple(settings.layout.check(parts, num_envs, name))


def check_values(settings: MemorySettings, step: Step) -> Step:
    """Return ``step`` with all but its environments and frames, which are checked elsewhere, in stored form."""
    num_steps = len(step.env_ids)
    return Step(
        step.env_ids,
        settings.action.check_actions(step.actions, num_steps),
        check_rewards(step.rewards, num_steps),
        check_flags("terminated", step.terminated, num_steps),
        check_flags("truncated", step.truncated, num_steps),
        step.frames,
        settings.extras.check_extras(step.extras, num_steps),
    )


def check_env_ids(env_ids: Sequence[int] | npt.NDArray[Any] | None, num_envs: int) -> CheckedEnvIds:
    """Return environment numbers as ``int32``; ``None`` means all. Raise if one is unknown or repeated."""
    if env_ids is None:
        return np.arange(num_envs, dtype=np.int32)
    array = as_array("env_ids", env_ids, InvalidStepError)
    if array.size == 0:
        return np.empty(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise Refusal.ENV_IDS_FORM.error(given=env_ids)
    if array.min() < 0 or array.max() >= num_envs:
        raise Refusal.ENV_IDS_UNKNOWN.error(given=array.tolist(), last=num_envs - 1)
    if len(array) > 1 and len(np.unique(array)) != len(array):
        raise Refusal.ENV_IDS_REPEATED.error(given=array.tolist())
    return array.astype(np.int32)


def check_frames(frames: Any, num_steps: int, spec: ObservationSpec) -> Frames:
    """Return ``frames`` as arrays ``(num_steps, *frame)`` in C order; never cast or clip them."""
    checked = check_arrays(spec.flatten(frames), num_steps, spec)
    return tuple(array_spec.as_stored(part) for array_spec, part in zip(spec.arrays, checked, strict=True))


def check_arrays(frames: Sequence[Any], num_steps: int, spec: ObservationSpec) -> Frames:
    """Return the arrays of a space's frames in C order, in the shapes of the space; never cast or clip them."""
    parts = zip(spec.arrays, frames, strict=True)
    return tuple(_check_array(part, num_steps, array_spec) for array_spec, part in parts)


def _check_array(frames: npt.ArrayLike, num_steps: int, array_spec: ArraySpec) -> npt.NDArray[Any]:
    name = f"{FRAMES}{array_spec.subscript}"
    refuse_none(name, frames)
    array = as_array(name, frames, InvalidStepError)
    if array.dtype != array_spec.frame.dtype:
        raise Refusal.FRAMES_DTYPE.error(name=name, dtype=array.dtype, stored=array_spec.frame.dtype)
    shape = num_steps, *array_spec.observed_shape
    if array.shape != shape:
        take = clause(num_steps, "environment", "take")
        raise Refusal.FRAMES_SHAPE.error(name=name, shape=array.shape, take=take, rows=shape)
    return as_native(array, array_spec.frame.dtype)


def check_rewards(
    rewards: npt.ArrayLike, num_steps: int, way_out: str = "correct the environment, or end the episode"
) -> npt.NDArray[np.float32]:
    """Return ``rewards`` as ``float32`` of shape ``(num_steps,)``; raise if one is not finite."""
    array = as_array("rewards", rewards, InvalidStepError)
    if array.shape != (num_steps,):
        take = clause(num_steps, "environment", "take")
        raise Refusal.REWARDS_SHAPE.error(shape=array.shape, take=take, count=num_steps)
    if array.dtype.kind not in "fiu" and array.size:
        raise Refusal.REWARDS_DTYPE.error(reward=array.tolist()[0], dtype=array.dtype)
    if not array.size:
        return np.zeros(0, np.float32)
    is_storable = np.abs(array) <= LARGEST_REWARD  # False for NaN
    if not is_storable.all():
        row = int(np.argmin(is_storable))
        raise Refusal.REWARD_NOT_FINITE.error(reward=array[row], row=row, way_out=way_out)
    return array.astype(np.float32)


def check_flags(name: str, flags: npt.ArrayLike, num_steps: int) -> npt.NDArray[np.bool_]:
    """Return ``flags`` as booleans of shape ``(num_steps,)``."""
    array = as_array(name, flags, InvalidStepError)
    if array.shape != (num_steps,) or (array.dtype != np.bool_ and array.size):
        take = clause(num_steps, "environment", "take")
        raise Refusal.FLAGS.error(name=name, shape=array.shape, dtype=array.dtype, take=take, count=num_steps)
    return np.ascontiguousarray(array, np.bool_)


def check_episodes_are_open(is_open: npt.NDArray[np.bool_], env_ids: CheckedEnvIds) -> None:
    """Raise ``InvalidStepError`` if one of ``env_ids`` has no open episode."""
    closed = env_ids[~is_open[env_ids]]
    if closed.size:
        raise Refusal.NO_OPEN_EPISODE.error(env_id=closed[0], closed=closed.tolist())


STEP_BITS = TERMINATED | TRUNCATED | BORDER  # of a frame that a step led to


@dataclass(frozen=True)
class SegmentSteps:
    """The steps of consecutive frames of one environment.

    Each frame has a byte of bits: ``BEGINS_EPISODE`` for the first frame of an episode, otherwise ``TERMINATED``,
    ``TRUNCATED`` and ``BORDER`` of the step that led to it. The other arrays have a row for each of the latter.
    """

    bits: npt.NDArray[np.uint8]
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[np.float32]
    extras: dict[str, npt.NDArray[Any]] | None = None

    @property
    def num_steps(self) -> int:
        """Number of frames that a step led to."""
        return int(np.count_nonzero(self.bits != BEGINS_EPISODE))

    def check_arrays(self, settings: MemorySettings, is_open: bool) -> SegmentSteps:
        """Return the steps with their arrays in stored form.

        ``is_open``: whether an episode is open before the first frame. Raises ``InvalidStepError`` for steps that
        break a rule of ``append``, and for a step outside of an episode.
        """
        num_steps = self.num_steps
        for index, bits in enumerate(self.bits.tolist()):
            if bits != BEGINS_EPISODE and bits & ~STEP_BITS:
                raise Refusal.SEGMENT_BITS.error(frame=index, bits=bits, begins=BEGINS_EPISODE, step=STEP_BITS)
            if bits != BEGINS_EPISODE and not is_open:
                raise Refusal.SEGMENT_OUTSIDE.error(frame=index, count=len(self.bits))
            is_open = not bits & (TERMINATED | TRUNCATED)
        return SegmentSteps(
            self.bits,
            settings.action.check_actions(self.actions, num_steps),
            check_rewards(self.rewards, num_steps),
            settings.extras.check_extras(self.extras, num_steps),
        )

    def each(self) -> Iterator[Step | None]:
        """Yield for each frame the step that led to it, as arrays with one row; ``None`` where an episode begins.

        A step lacks its environment and its frames.
        """
        row = 0
        for bits in self.bits.tolist():
            if bits == BEGINS_EPISODE:
                yield None
                continue
            one = slice(row, row + 1)
            terminated, truncated = np.array([[bits & bit] for bit in (TERMINATED, TRUNCATED)], np.bool_)
            of_step = None if self.extras is None else {name: values[one] for name, values in self.extras.items()}
            yield Step(None, self.actions[one], self.rewards[one], terminated, truncated, None, of_step)
            row += 1

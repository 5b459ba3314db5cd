"""Say why native code refuses a step: the sentence of a row of ``framestow.refusals``, with the step's values.

A function raises the error itself if NumPy makes no array of the argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from framestow._core import Planner
from framestow.checks import as_array, as_flags
from framestow.errors import InvalidStepError
from framestow.frames.frame_spec import ArraySpec
from framestow.frames.observation_spec import FRAMES
from framestow.interface import clause, listed
from framestow.refusals import Refusal
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.observation_layout import ONE_ENVIRONMENT_S, ObservationLayout
from framestow.replay.settings.step_fields import ExtrasSpec
from framestow.replay.step_forms import Array, Step, lost_elements

Refused = tuple[str, str, int, int, int]
"""What native code refuses: row of ``Refusal``, argument, number of the array or extra, row, element."""
OF_REWARD = "correct the environment, or end the episode"


def explain_begin(
    settings: MemorySettings, planner: Planner, frames: Any, env_ids: Any, are_whole: bool = False
) -> InvalidStepError:
    """Return why ``planner`` refuses to begin episodes."""
    step = Step(env_ids, None, None, None, None, frames)
    are_frames = settings.layout.stores_as_given and not are_whole
    return _RefusedStep(settings, planner, step, are_frames=are_frames).explain()


def explain_append(settings: MemorySettings, planner: Planner, *step: Any) -> InvalidStepError:
    """Return why ``planner`` refuses to append steps: the fields of a ``Step``, and whether its frames are whole."""
    *fields, are_whole = step if len(step) > len(Step._fields) else (*step, False)
    are_frames = settings.layout.stores_as_given and not are_whole
    return _RefusedStep(settings, planner, Step(*fields), are_frames=are_frames).explain()


def explain_add(settings: MemorySettings, planner: Planner, *step: Any) -> InvalidStepError:
    """Return why ``planner`` refuses to add steps: the fields of a ``Step``, and its observations."""
    *fields, observations = step
    return _RefusedStep(settings, planner, Step(*fields), observations).explain()


class _RefusedStep:
    """A step that a planner refuses; ``observations`` are those of ``add``."""

    def __init__(
        self,
        settings: MemorySettings,
        planner: Planner,
        step: Step,
        observations: Sequence[Any] | None = None,
        are_frames: bool = False,
    ) -> None:
        if planner.refusal is None:
            raise AssertionError("the planner refuses nothing")
        self.settings, self.layout, self.step, self.observations = settings, settings.layout, step, observations
        self.refused, self.are_frames = planner.refusal, are_frames
        self.num_envs, self.open_episodes = planner.num_envs, planner.open_episodes
        self.refusal = Refusal[self.refused[0]]

    def explain(self) -> InvalidStepError:
        """Return the error; raise it if an argument is no array at all."""
        name = self.refusal.name
        by_name = {
            "ENV_IDS": self._of_env_ids,
            "NO_OPEN_EPISODE": self._of_env_ids,
            "ONE_OBSERVATION": self._of_one_observation,
            "ACTION": self._of_actions,
            "REWARD": self._of_rewards,
            "FLAGS": self._of_flags,
            "EXTRA": self._of_extras,
        }
        return next((of for start, of in by_name.items() if name.startswith(start)), self._of_observations)()

    def _env_ids(self) -> list[int]:
        given = self.step.env_ids
        return list(range(self.num_envs)) if given is None else np.atleast_1d(np.asarray(given)).tolist()

    @property
    def _count(self) -> int:
        return len(self._env_ids())

    def _of_env_ids(self) -> InvalidStepError:
        array = as_array("env_ids", self.step.env_ids, InvalidStepError)
        if self.refusal is Refusal.ENV_IDS_FORM:
            return self.refusal.error(given=self.step.env_ids)
        if self.refusal is Refusal.ENV_IDS_UNKNOWN:
            return self.refusal.error(given=np.atleast_1d(array).tolist(), last=self.num_envs - 1)
        if self.refusal is Refusal.ENV_IDS_REPEATED:
            return self.refusal.error(given=array.tolist())
        closed = [env_id for env_id in self._env_ids() if not self.open_episodes[env_id]]
        return self.refusal.error(env_id=closed[0], closed=closed)

    def _of_one_observation(self) -> InvalidStepError:
        """Say that an observation of one environment is in a step of several, or of none."""
        spec = self.layout.arrays[0]
        values = {"subscript": spec.subscript, "shape": spec.observed_shape}
        if self.step.env_ids is not None:
            return Refusal.ONE_OBSERVATION_FOR_ENV_IDS.error(given=self._env_ids(), **values)
        way_out = "give env_ids=i, the number of that environment, or the observations of all along a first axis"
        if self.layout.has_axis_of(self.num_envs):
            way_out = ONE_ENVIRONMENT_S
        return self.refusal.error(count=self.num_envs, way_out=way_out, **values)

    def _of_observations(self) -> InvalidStepError:
        _, argument, number, _, _ = self.refused
        parts = self.observations if argument == "observation" and self.observations is not None else self.step.frames
        spec, part = self.layout.arrays[number], parts[number]
        name = f"{FRAMES if self.are_frames else argument}{spec.subscript}"
        if self.refusal is Refusal.NO_OBSERVATION:
            return self.refusal.error(name=name)
        array = as_array(name, part, InvalidStepError)
        if self.refusal is Refusal.AXES_DIFFER:
            first = np.asarray(self.observations[0]) if self.observations else array
            return explain_axes(self.layout, spec, name, array, first)
        count = self._count
        if self.are_frames:
            return explain_frames(self.layout.frame_space.arrays[number], name, array, count, self.refusal)
        if self.refusal is Refusal.OBSERVATION_DTYPE:
            return self.refusal.error(name=name, dtype=array.dtype, stored=spec.frame.dtype)
        has_env_axis = self.observations is None or np.ndim(self.observations[0]) > self.layout.arrays[0].num_axes
        return explain_shape(self.layout, spec, name, array.shape, count if has_env_axis else None)

    def _of_actions(self) -> InvalidStepError:
        spec, actions = self.settings.action, self.step.actions
        named = self._refuse_row("action", actions, spec.shape)
        return named or explain_actions(spec, actions, self._count, self.refused)

    def _of_rewards(self) -> InvalidStepError:
        named = self._refuse_row("reward", self.step.rewards)
        return named or explain_rewards(self.step.rewards, self._count, self.refused)

    def _of_flags(self) -> InvalidStepError:
        name, count = self.refused[1], self._count
        given = getattr(self.step, name)
        if self.observations is not None:
            given = as_flags(name, given)
        array = as_array(name, given, InvalidStepError)
        take = clause(count, "environment", "take")
        named = self._refuse_row(name, array)
        return named or self.refusal.error(name=name, shape=array.shape, dtype=array.dtype, take=take, count=count)

    def _of_extras(self) -> InvalidStepError:
        spec, extras = self.settings.extras, self.step.extras
        if self.refusal is Refusal.EXTRA_SHAPE:
            extra = spec.extras[self.refused[2]]
            named = self._refuse_row(f"extra {extra.name!r}", extras[extra.name], extra.shape)
            if named is not None:
                return named
        return explain_extras(spec, extras, self._count, self.refused)

    def _refuse_row(self, name: str, value: Any, shape: tuple[int, ...] = ()) -> InvalidStepError | None:
        """Return the error about the shape of a value of one environment in ``add``; ``None`` for another fault."""
        if self.observations is None or self._count != 1:
            return None
        array = as_array(name, value, InvalidStepError)
        if array.shape in (shape, (1, *shape)):
            return None
        way_out = "give that of one environment"
        if array.ndim and self.layout.has_axis_of(len(array)):
            way_out = ONE_ENVIRONMENT_S
        return Refusal.ONE_ROW.error(name=name, shape=array.shape, alone=shape, row=(1, *shape), way_out=way_out)


def explain_actions(spec: ActionSpec, actions: Any, count: int, refused: Refused) -> InvalidStepError:
    """Return why native code refuses the actions of ``count`` environments."""
    name, _, _, row, element = refused
    refusal, array = Refusal[name], as_array("actions", actions, InvalidStepError)
    if refusal is Refusal.ACTIONS_SHAPE:
        is_of_all = array.shape == spec.shape and spec.shape[:1] == (count,)
        way_out = "build the memory with env.single_action_space, " if is_of_all else ""
        need, rows = clause(count, "environment", "need"), (count, *spec.shape)
        return refusal.error(shape=array.shape, need=need, rows=rows, way_out=way_out)
    if refusal is Refusal.ACTION_OUTSIDE:
        at = np.unravel_index(element, spec.shape) if spec.shape else ()
        subject = f"element {', '.join(map(str, at))} runs" if spec.shape else "actions run"
        action = array.reshape(count, *spec.shape)[row].tolist()
        low, high = spec.ranges[element]
        return refusal.error(action=action, row=row, subject=subject, low=low, high=high)
    if refusal is Refusal.ACTION_NOT_FINITE:
        return refusal.error(action=array.reshape(count, *spec.shape)[row], row=row)
    return refusal.error(dtype=array.dtype, stored=spec.dtype)


def explain_rewards(rewards: Any, count: int, refused: Refused, way_out: str = OF_REWARD) -> InvalidStepError:
    """Return why native code refuses the rewards of ``count`` environments."""
    refusal, row, array = Refusal[refused[0]], refused[3], as_array("rewards", rewards, InvalidStepError)
    if refusal is Refusal.REWARDS_SHAPE:
        return refusal.error(shape=array.shape, take=clause(count, "environment", "take"), count=count)
    if refusal is Refusal.REWARDS_DTYPE:
        return refusal.error(reward=array.ravel().tolist()[0], dtype=array.dtype)
    return refusal.error(reward=array.ravel()[row], row=row, way_out=way_out)


def explain_extras(spec: ExtrasSpec, extras: Any, count: int, refused: Refused) -> InvalidStepError:
    """Return why native code refuses the extras of ``count`` environments."""
    refusal, number = Refusal[refused[0]], refused[2]
    if refusal is Refusal.EXTRAS_NO_DICT:
        return refusal.error(given=extras)
    given = {} if extras is None else extras
    if refusal is Refusal.EXTRAS_UNKNOWN:
        unknown = sorted(str(name) for name in given.keys() - set(spec.names))
        return refusal.error(unknown=listed(unknown), stored=spec.description)
    if refusal is Refusal.EXTRAS_MISSING:
        missing = [name for name in spec.names if name not in given]
        return refusal.error(missing=listed(missing), names=listed(spec.names), first=missing[0])
    extra = spec.extras[number]
    array, dtype = as_array(f"extra {extra.name!r}", given[extra.name], InvalidStepError), np.dtype(extra.dtype)
    if refusal is Refusal.EXTRA_SHAPE:
        need, rows = clause(count, "environment", "need"), (count, *extra.shape)
        return refusal.error(name=extra.name, shape=array.shape, need=need, rows=rows)
    are_lost = lost_elements(array, dtype)
    if are_lost is None:
        return refusal.error(name=extra.name, dtype=array.dtype, stored=dtype)
    index = tuple(np.argwhere(are_lost)[0].tolist())
    row = index[0] if index else 0
    return Refusal.EXTRA_VALUE.error(name=extra.name, value=array[index], row=row, stored=dtype)


def explain_frames(spec: ArraySpec, name: str, array: Array, count: int, refusal: Refusal) -> InvalidStepError:
    """Return why native code refuses the frames of ``count`` environments."""
    if refusal in (Refusal.FRAMES_DTYPE, Refusal.OBSERVATION_DTYPE):
        return Refusal.FRAMES_DTYPE.error(name=name, dtype=array.dtype, stored=spec.frame.dtype)
    take, rows = clause(count, "environment", "take"), (count, *spec.observed_shape)
    return Refusal.FRAMES_SHAPE.error(name=name, shape=array.shape, take=take, rows=rows)


def explain_axes(layout: ObservationLayout, spec: ArraySpec, name: str, array: Array, first: Array) -> InvalidStepError:
    """Return why an array of observations has other axes than the first."""
    more = array.ndim - spec.num_axes
    if more not in (0, 1):
        return explain_shape(layout, spec, name, array.shape, None)
    kinds = ("several environments", "one") if more else ("one environment", "several")
    return Refusal.AXES_DIFFER.error(
        name=name,
        shape=array.shape,
        kind=kinds[0],
        first=f"observation{layout.arrays[0].subscript}",
        first_shape=first.shape,
        first_kind=kinds[1],
    )


def explain_shape(
    layout: ObservationLayout, spec: ArraySpec, name: str, shape: tuple[int, ...], count: int | None
) -> InvalidStepError:
    """Return why an observation has no such shape; ``count``: number of environments, ``None`` if it is not known."""
    observed = spec.observed_shape
    takes = f"one environment takes {observed}, and n environments (n, {str(observed)[1:]}"
    if count is not None:
        takes = f"{clause(count, 'environment', 'take')} {(count, *observed)}"
    way_out = "give observations of the observation_space, of several environments along a first axis"
    frame = layout.frame_space.arrays[layout.arrays.index(spec)].observed_shape
    if None not in layout.stacks and frame in (shape, shape[1:]) and shape != observed:
        other = f"or build the memory for frames of shape {frame} with stack={layout.depth}, and give single frames"
        if layout.takes_frames:
            other = "leave out stack= (it stacks frames of that space), or give single frames"
        way_out = f"give whole stacks, {other} to begin and append"
    elif count is not None and shape == observed and layout.has_axis_of(count):
        way_out = ONE_ENVIRONMENT_S
    return Refusal.OBSERVATION_SHAPE.error(name=name, shape=shape, takes=takes, way_out=way_out)

"""Check the arguments of a step: native code judges, in the forms that it reads.

Every rule of a step stands in native code (``_core/bindings/step_arguments.cpp``, ``planner.cpp``). It takes the usual
forms of an argument. What it refuses is converted once (``step_forms.py``), and it is asked again. If it refuses arrays
too, it names a row of ``framestow.refusals``, and ``refused_steps.py`` writes that row's sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow._core import BEGINS_EPISODE, BORDER, TERMINATED, TRUNCATED, StepFieldReader
from framestow.checks import as_array, check_indices, check_rows
from framestow.errors import InvalidStepError
from framestow.frames.observation_spec import FRAMES, ObservationSpec
from framestow.refusals import Refusal
from framestow.replay.refused_steps import (
    OF_REWARD,
    Refused,
    explain_actions,
    explain_add,
    explain_append,
    explain_begin,
    explain_extras,
    explain_frames,
    explain_rewards,
)
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.memory_settings import MemorySettings
from framestow.replay.settings.step_fields import NO_EXTRAS, ExtrasSpec
from framestow.replay.step_forms import (
    Array,
    Step,
    as_actions,
    as_extras,
    as_rewards,
    convert_add,
    convert_append,
    convert_begin,
)
from framestow.replay.steps.step_store import StepSettings

LARGEST_REWARD = np.finfo(np.float32).max


class Forms(NamedTuple):
    """What a call of a planner does with arguments that are refused: first convert, then explain."""

    convert: Callable[..., tuple[Any, ...]]
    explain: Callable[..., InvalidStepError]


BEGIN, APPEND, ADD = (
    Forms(convert_begin, explain_begin),
    Forms(convert_append, explain_append),
    Forms(convert_add, explain_add),
)


@lru_cache(maxsize=64)
def _reader(action: ActionSpec, extras: ExtrasSpec = NO_EXTRAS) -> StepFieldReader:
    return StepFieldReader(StepSettings(1, 1, 1, action, extras=extras))


_ANY_ACTION = ActionSpec.from_space(1)


def check_actions(spec: ActionSpec, actions: npt.ArrayLike, count: int) -> Array:
    """Return ``actions`` as stored, ``(count, *shape)``; raise ``InvalidStepError`` for what ``append`` refuses."""
    stored: Array
    stored, refused = _reader(spec).actions(as_actions(spec, actions), count)
    if refused is not None:
        raise explain_actions(spec, actions, count, refused)
    return stored


def check_rewards(rewards: npt.ArrayLike, count: int, way_out: str = OF_REWARD) -> npt.NDArray[np.float32]:
    """Return ``rewards`` as ``float32``, ``(count,)``; raise ``InvalidStepError`` for what ``append`` refuses."""
    stored: npt.NDArray[np.float32]
    stored, refused = _reader(_ANY_ACTION).rewards(as_rewards(rewards), count)
    if refused is not None:
        raise explain_rewards(rewards, count, refused, way_out)
    return stored


def check_extras(spec: ExtrasSpec, extras: Mapping[str, npt.ArrayLike] | None, count: int) -> dict[str, Array] | None:
    """Return ``extras`` as stored, ``(count, *shape)`` each; raise ``InvalidStepError`` for what ``append`` refuses.

    NaN and infinity are allowed. Values are cast if the cast loses nothing but float precision.
    """
    stored, refused = _reader(_ANY_ACTION, spec).extras(as_extras(spec, extras), count)
    if refused is not None:
        raise explain_extras(spec, extras, count, refused)
    return stored or None


def check_changed_extras(
    spec: ExtrasSpec, indices: npt.ArrayLike, extras: Mapping[str, npt.ArrayLike]
) -> tuple[npt.NDArray[np.int64], dict[str, Array]]:
    """Return indices without -1, and some of the extras as stored, with a row for each; raise as ``check_extras``.

    Each is ``(*indices.shape, *shape)``.
    """
    if not isinstance(extras, Mapping):
        raise Refusal.EXTRAS_NO_DICT.error(given=extras)
    if extras.keys() - set(spec.names):
        raise explain_extras(spec, extras, 0, (Refusal.EXTRAS_UNKNOWN.name, "", 0, 0, 0))
    asked = check_indices(indices)
    steps = asked[asked != -1]
    changed = replace(spec, extras=tuple(extra for extra in spec.extras if extra.name in extras))
    rows = dict(extras)
    for extra in changed.extras:
        steps, rows[extra.name] = check_rows(indices, f"extra {extra.name!r}", extras[extra.name], extra.shape)
    return steps, check_extras(changed, rows, len(steps)) or {}


def check_frames(frames: Any, count: int, spec: ObservationSpec) -> None:
    """Raise ``InvalidStepError`` unless ``frames`` are arrays ``(count, *frame)`` of the dtypes of ``spec``."""
    for array_spec, part in zip(spec.arrays, spec.flatten(frames), strict=True):
        name = f"{FRAMES}{array_spec.subscript}"
        array = as_array(name, part, InvalidStepError)
        if array.shape != (count, *array_spec.observed_shape):
            raise explain_frames(array_spec, name, array, count, Refusal.FRAMES_SHAPE)
        if array.dtype != array_spec.frame.dtype:
            raise explain_frames(array_spec, name, array, count, Refusal.FRAMES_DTYPE)


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

    def convert(self, settings: MemorySettings) -> tuple[Any, Any, Any]:
        """Return actions, rewards and extras as native code reads them."""
        actions, extras = as_actions(settings.action, self.actions), as_extras(settings.extras, self.extras)
        return actions, as_rewards(self.rewards), extras

    def explain(self, settings: MemorySettings, refused: Refused) -> InvalidStepError:
        """Return why native code refuses these steps."""
        refusal, frame, count = Refusal[refused[0]], refused[3], self.num_steps
        if refusal is Refusal.SEGMENT_BITS:
            return refusal.error(frame=frame, bits=int(self.bits[frame]), begins=BEGINS_EPISODE, step=STEP_BITS)
        if refusal is Refusal.SEGMENT_OUTSIDE:
            return refusal.error(frame=frame, count=len(self.bits))
        if refusal.name.startswith("ACTION"):
            return explain_actions(settings.action, self.actions, count, refused)
        if refusal.name.startswith("REWARD"):
            return explain_rewards(self.rewards, count, refused)
        return explain_extras(settings.extras, self.extras, count, refused)

    def check_arrays(self, settings: MemorySettings, is_open: bool) -> SegmentSteps:
        """Return the steps with their arrays in stored form.

        ``is_open``: whether an episode is open before the first frame. Raises ``InvalidStepError`` for steps that
        break a rule of ``append``, and for a step outside of an episode.
        """
        refused = _reader(settings.action, settings.extras).bits(self.bits, is_open)
        if refused is not None:
            raise self.explain(settings, refused)
        count = self.num_steps
        return SegmentSteps(
            self.bits,
            check_actions(settings.action, self.actions, count),
            check_rewards(self.rewards, count),
            check_extras(settings.extras, self.extras, count),
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

"""Observations of several streams, by stream and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import SCALED_DTYPES, FrameSpec
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.tianshou.lane import Indices, Lane, LaneSettings, Pair, Step
from framestow.replay.memory import ReplayMemory

Numbers = npt.NDArray[np.uint32]
NUMBERS = "biuf"  # kinds of dtypes
ROWS_AT_ONCE = 64  # are unpacked together where so many are asked for as never before, a whole episode for instance


class ObservationStore:
    """Observations and next observations of the newest steps of each of several streams.

    The steps of a stream are numbered from 1 on; 0 is no step, and its observations are zeros. What observations are,
    in shape and dtype, shows in the first one.

    As long as all streams step together their observations are in one memory (``Lane``). Once some step without the
    others, each stream goes on in a memory of its own, for no memory could hold the same number of steps of each.

    Arguments:
        sizes: how many steps of each stream are kept.
        stack: where more than 1, what comes are single frames, and observations are stacks of so many of them; the
            first frame of an episode stands for those before it.
        frame_stack: where ``stack`` is 1, of how many frames the observations that come are stacks; ``None`` finds out.
        threads: how many unpack a batch.
        storage: ``"packed"`` or ``"raw"``.
    """

    def __init__(self, sizes: Sequence[int], stack: int, frame_stack: int | None, threads: int, storage: str) -> None:
        if stack > 1 and frame_stack not in (None, 1):
            raise InvalidSettingsError(
                f"frame_stack is {frame_stack} with stack_num {stack}: the buffer stacks single frames then; leave one "
                "of them out"
            )
        self.sizes = tuple(sizes)
        nothing = FrameSpec((1,))
        self._settings = LaneSettings(nothing, max(sizes), stack, frame_stack, threads, storage, len(sizes))
        if max(sizes):
            self._settings(nothing, 1, "first_frame")  # refuses what cannot work, before anything comes
        self.clear()

    def clear(self) -> None:
        """Forget every step."""
        self._together: Lane | None = None
        self._apart: dict[int, Lane] = {}
        self._form: Any = None
        self.knows_next = True
        """Whether every step came with its next observation."""
        self.batch_size = 0
        """How many are asked for again and again: arrays for so many are kept, and none for larger numbers."""
        self.had_nan = False
        """Whether some of what came was NaN."""

    @property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """What holds the steps: none before the first one, then one, or one of each stream that stepped."""
        if self._together is not None:
            return (self._together.memory,)
        return tuple(self._apart[stream].memory for stream in sorted(self._apart))

    @property
    def stack(self) -> int:
        """Frames of an observation where single frames come."""
        return self._settings.stack

    def add(self, streams: Sequence[int], step: Step) -> Numbers:
        """Store a step of some streams, each at most once, and give their numbers.

        Raises ``InvalidStepError`` before anything is stored.
        """
        step = self._checked(step)
        self._make_lanes(streams)
        self.knows_next &= step.next_observation is not None
        map_arrays(self._look_for_nan, tuple(part for part in step[:2] if part is not None))
        if self._together is not None:
            order = np.argsort(streams)
            self._together.add(step if (np.diff(order) == 1).all() else step.of(order))
            return np.full(len(streams), self._together.num_rows, np.uint32)
        numbers = np.zeros(len(streams), np.uint32)
        for at, stream in enumerate(streams):
            self._apart[stream].add(step.of([at]))
            numbers[at] = self._apart[stream].num_rows
        return numbers

    def pairs(self, streams: Indices, numbers: npt.NDArray[Any], stack: int) -> Pair:
        """Give the observations and next observations of these steps, ``(n,)``, in arrays that share nothing.

        ``stack``: frames of an observation, at most those of the store; with 1 they have no axis for them.
        """
        rows = numbers.astype(np.int64) - 1
        is_usual = len(rows) <= ROWS_AT_ONCE or len(rows) == self.batch_size
        if is_usual and self._together is not None and (rows >= self._together.oldest_row).all():
            pair = self._together.pairs(rows, streams)
        else:
            pair = self._scattered(rows, streams)
        return self._given(pair[0], stack), self._given(pair[1], stack)

    def _given(self, came: Any, stack: int) -> Any:
        """Observations in the caller's order of keys, numbers without an axis, stacks as deep as was asked.

        Arrays of their own, in C order: those of the memory share frames, and are lent again.
        """
        if self.stack > 1:
            came = map_arrays(lambda part: part[:, -1] if stack == 1 else part[:, -stack:], came)
        return _arranged_as(self._form, map_arrays(lambda part: np.array(part, order="C"), came))

    def _scattered(self, rows: Indices, streams: Indices) -> Pair:
        """What the lanes have of these steps, each at its place; zeros for those that are none, or gone."""
        lanes = self._apart if self._together is None else {0: self._together}
        lane_of, stream_in_lane = (streams, 0 * streams) if self._together is None else (0 * streams, streams)
        pair: list[Any] = []
        for stream, lane in lanes.items():
            here = np.flatnonzero((lane_of == stream) & (rows >= lane.oldest_row))
            for at in np.split(here, range(ROWS_AT_ONCE, len(here), ROWS_AT_ONCE)):
                parts = lane.pairs(rows[at], stream_in_lane[at])
                pair = pair or [map_arrays(partial(_zeros, len(rows)), part) for part in parts]
                for which, part in enumerate(parts):
                    map_arrays(lambda out, array, at=at: out.__setitem__(at, array), pair[which], part)
        return pair[0], pair[1]

    def _make_lanes(self, streams: Sequence[int]) -> None:
        """Have one lane as long as all streams step together, and then one for each stream that steps."""
        if len(set(streams)) == len(self.sizes) and len(set(self.sizes)) == 1 and not self._apart:
            if self._together is None:
                self._together = Lane(self._settings)
            return
        if self._together is not None:
            self._apart = {stream: self._together.alone(stream) for stream in range(len(self.sizes))}
            self._together = None
        for stream in streams:
            if stream not in self._apart:
                self._apart[stream] = Lane(replace(self._settings, num_envs=1, size=self.sizes[stream]))

    def _checked(self, step: Step) -> Step:
        """Give the step with arrays ``(n, *shape)`` of numbers, all made as the first ones were."""
        arrays = [None if part is None else map_arrays(_array_of_numbers, part) for part in step[:2]]
        forms = [map_arrays(lambda part: part[:0], part) for part in arrays if part is not None]
        form = forms[0] if self._form is None else self._form
        for came in forms:
            _check_form(came, form)
        if self._form is None:
            self._settings = replace(self._settings, space=map_arrays(_frame_spec, form))
            self._form = form
        taken = [None if part is None else map_arrays(_with_axis, part) for part in arrays]
        return Step(taken[0], taken[1], step.terminated, step.truncated)

    def _look_for_nan(self, part: npt.NDArray[Any]) -> None:
        self.had_nan |= part.dtype.kind == "f" and bool(np.isnan(part).any())


def _array_of_numbers(observations: Any) -> npt.NDArray[Any]:
    array = np.asarray(observations)
    if array.dtype.kind not in NUMBERS:
        raise InvalidStepError(
            f"observations are of dtype {array.dtype}: only arrays of numbers of one shape are packed; convert them in "
            "a wrapper, or keep them in the library's own buffer"
        )
    return array


def _zeros(num: int, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.zeros((num, *part.shape[1:]), part.dtype)


def _with_axis(part: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers as vectors of one, and all else as it is."""
    return part if part.ndim > 1 else part[:, None]


def _frame_spec(part: npt.NDArray[Any]) -> FrameSpec:
    is_picture = part.ndim > 2
    return FrameSpec(part.shape[1:] or (1,), part.dtype, is_scaled=is_picture and part.dtype in SCALED_DTYPES)


def _check_form(came: Any, form: Any) -> None:
    told, kept = (map_arrays(lambda part: f"{part.dtype}{list(part.shape[1:])}", each) for each in (came, form))
    if told != kept:
        raise InvalidStepError(
            f"observations are {told}: those before were {kept}; make them alike in a wrapper, or begin a buffer of "
            "its own"
        )


def _arranged_as(form: Any, came: Any) -> Any:
    """Give ``came`` with the keys in the order of ``form``, and numbers as they came, without an axis of their own."""
    if isinstance(form, Mapping):
        return {key: _arranged_as(part, came[key]) for key, part in form.items()}
    return came if form.ndim > 1 else came[..., 0]

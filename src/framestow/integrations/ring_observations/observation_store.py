"""Observations of several streams, by stream and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.array_trees import map_arrays
from framestow.frames.frame_spec import SCALED_DTYPES, FrameSpec
from framestow.integrations.ring_observations.lane import Indices, Lane, LaneSettings, Pair, Step
from framestow.replay.drawing.output_pool import OutputPool
from framestow.replay.memory import ReplayMemory

Numbers = npt.NDArray[np.uint32]
NUMBERS = "biuf"  # kinds of dtypes


class ObservationStore:
    """Observations and next observations of the newest ``size`` steps of each of ``num_streams`` streams.

    The steps of a stream are numbered from 1 on; 0 is no step, and its observations are zeros. What observations are,
    in shape and dtype, shows in the first one.

    As long as all streams step together their observations are in one memory (``Lane``). Once some step without the
    others, each stream goes on in a memory of its own, for no memory could hold the same number of steps of each.

    Arguments:
        num_streams, size: as above.
        stack: where more than 1, what comes are single frames, and observations are stacks of so many of them; the
            first frame of an episode stands for those before it.
        frame_stack: where ``stack`` is 1, of how many frames the observations that come are stacks; ``None`` finds out.
        threads: how many unpack a batch.
        storage: ``"packed"`` or ``"raw"``.
    """

    def __init__(
        self, num_streams: int, size: int, stack: int, frame_stack: int | None, threads: int, storage: str
    ) -> None:
        if stack > 1 and frame_stack not in (None, 1):
            raise InvalidSettingsError(
                f"frame_stack is {frame_stack} with stack_num {stack}: the buffer stacks single frames then; leave one "
                "of them out"
            )
        self.num_streams = num_streams
        self._settings = LaneSettings(FrameSpec((1,)), size, stack, frame_stack, threads, storage, num_streams)
        if size:
            self._settings(FrameSpec((1,)), 1, "first_frame")  # refuses what cannot work, before anything comes
        self.clear()

    def clear(self) -> None:
        """Forget every step."""
        self._lanes: list[Lane] = []
        self._form: Any = None
        self._pool = OutputPool()

    @property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """What holds the steps: none before the first one, then one, or one a stream."""
        return tuple(lane.memory for lane in self._lanes)

    @property
    def stack(self) -> int:
        """Frames of an observation where single frames come."""
        return self._settings.stack

    @property
    def has_floats(self) -> bool:
        """Whether some of what comes are floats."""
        kinds: list[str] = []
        map_arrays(lambda part: kinds.append(part.dtype.kind), self._form)
        return "f" in kinds

    def add(self, streams: Sequence[int], step: Step) -> Numbers:
        """Store a step of some streams, each at most once, and give their numbers.

        Raises ``InvalidStepError`` before anything is stored.
        """
        step = self._checked(step)
        self._make_lanes(streams)
        if len(self._lanes) == 1:
            lane, order = self._lanes[0], np.argsort(streams)
            lane.add(step if (np.diff(order) == 1).all() else step.of(order))
            return np.full(len(streams), lane.num_rows, np.uint32)
        for at, stream in enumerate(streams):
            self._lanes[stream].add(step.of([at]))
        return np.array([self._lanes[stream].num_rows for stream in streams], np.uint32)

    def pairs(self, streams: Indices, numbers: npt.NDArray[Any], stack: int) -> Pair:
        """Give the observations and next observations of these steps, ``(n,)``, in arrays that share nothing.

        ``stack``: frames of an observation, at most those of the store; with 1 they have no axis for them.
        """
        rows = numbers.astype(np.int64) - 1
        if len(self._lanes) == 1 and (rows >= 0).all():
            observation, next_observation = self._lanes[0].pairs(rows, streams)
            pair = observation, map_arrays(self._copied, next_observation)
        else:
            pair = self._scattered(rows, streams)
        return self._given(pair[0], stack), self._given(pair[1], stack)

    def _given(self, came: Any, stack: int) -> Any:
        """Observations in the caller's order of keys, numbers without an axis, stacks as deep as was asked."""
        if self.stack > 1:
            came = map_arrays(lambda part: part[:, -1] if stack == 1 else part[:, -stack:], came)
        return _arranged_as(self._form, came)

    def _copied(self, part: npt.NDArray[Any]) -> npt.NDArray[Any]:
        copied = self._pool.take(part.shape, part.dtype)
        np.copyto(copied, part)
        return copied

    def _scattered(self, rows: Indices, streams: Indices) -> Pair:
        """What the lanes have of these steps, each at its place; zeros for those that are none."""
        together = len(self._lanes) == 1
        pair: list[Any] = [None, None]
        for place, lane in enumerate(self._lanes):
            at = np.flatnonzero((rows >= 0) if together else (rows >= 0) & (streams == place))
            if not at.size and place:
                continue
            for which, part in enumerate(lane.pairs(rows[at], streams[at] if together else 0 * at)):
                if pair[which] is None:
                    pair[which] = map_arrays(lambda array: np.zeros((len(rows), *array.shape[1:]), array.dtype), part)
                map_arrays(lambda out, array, at=at: out.__setitem__(at, array), pair[which], part)
        return pair[0], pair[1]

    def _make_lanes(self, streams: Sequence[int]) -> None:
        """Have one lane as long as all streams step together, and then one a stream."""
        is_all = len(set(streams)) == self.num_streams
        if not self._lanes and is_all:
            self._lanes = [Lane(self._settings)]
        elif not self._lanes:
            self._lanes = [Lane(replace(self._settings, num_streams=1)) for _ in range(self.num_streams)]
        elif len(self._lanes) == 1 and not is_all:
            self._lanes = [self._lanes[0].alone(stream) for stream in range(self.num_streams)]

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

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_pool"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= {**state, "_pool": OutputPool()}


def _array_of_numbers(observations: Any) -> npt.NDArray[Any]:
    array = np.asarray(observations)
    if array.dtype.kind not in NUMBERS:
        raise InvalidStepError(
            f"observations are of dtype {array.dtype}: only arrays of numbers of one shape are packed; convert them in "
            "a wrapper, or keep them in the library's own buffer"
        )
    return array


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

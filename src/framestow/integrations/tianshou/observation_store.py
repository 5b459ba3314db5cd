"""Observations of several streams, by stream and number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import SCALED_DTYPES, FrameSpec
from framestow.frames.observation_spec import ObservationSpec, map_arrays
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import ObservationLayout, layouts_of_depth, layouts_to_try
from framestow.integrations.drop_in.paired_steps import PairedSteps
from framestow.replay.memory import ReplayMemory

Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Pair = tuple[Any, Any]
"""Observations and next observations: an array ``(n, ...)``, or dicts of them made like the observation."""


class ObservationStep(NamedTuple):
    """One step of some streams: observations ``(num_envs, *shape)``, the next ones perhaps not known."""

    observation: Any
    next_observation: Any | None
    terminated: Flags
    truncated: Flags

    def of(self, streams: Any) -> ObservationStep:
        """The same step of some of its streams, copied."""

        def taken(part: Any) -> Any:
            return None if part is None else map_arrays(lambda array: array[streams].copy(), part)

        return ObservationStep(taken(self[0]), taken(self[1]), taken(self[2]), taken(self[3]))


@dataclass(frozen=True)
class StreamGroupSettings:
    """What a group is made by: see ``ObservationStore``."""

    space: Any
    size: int
    stack: int
    frame_stack: int | None
    threads: int
    storage: str
    num_envs: int

    def __call__(self, space: Any, depth: int, padding: StackPadding) -> ReplayMemory:
        """Make a memory of ``size`` steps of each stream; they have observations and flags split_off."""
        return ReplayMemory(
            self.size * self.num_envs,
            space,
            1,
            stack=max(depth, self.stack),
            stack_padding=padding,
            num_envs=self.num_envs,
            seed=0,  # nothing is ever drawn: the library draws
            threads=self.threads,
            storage=self.storage,
        )


class StreamGroup:
    """Observations of streams that step together: in every step all of them, or none.

    A step of all of them is a *row*; rows are numbered from ``first_row``. Where ``settings.stack`` is more than 1 the
    streams give single frames, and observations are stacks of so many of them. Otherwise they are what came.

    A row whose next observations did not come waits until those of the next row tell them. While it waits, and where
    its episode ended, nobody knows them: the observation stands for them, as in Tianshou, its newest frame repeated.
    """

    def __init__(
        self, settings: StreamGroupSettings, first_row: int = 0, first_layout: ObservationLayout | None = None
    ) -> None:
        self._settings, self._first_row = settings, first_row
        self._steps = PairedSteps(settings, settings.space, layouts=_layouts(settings, first_layout))
        self._waiting: ObservationStep | None = None

    @property
    def memory(self) -> ReplayMemory:
        """What holds the rows."""
        return self._steps.memory

    @property
    def num_rows(self) -> int:
        """Number of the row that comes next."""
        return self._first_row + self._steps.num_rows + (self._waiting is not None)

    @property
    def oldest_row(self) -> int:
        """Number of the oldest row that is held."""
        return self._first_row + self._steps.oldest_row

    def add(self, step: ObservationStep) -> None:
        """Store a row; raises ``InvalidStepError`` before it is stored."""
        if self._waiting is not None:
            self._feed(
                self._waiting._replace(next_observation=self._next_observation_of(self._waiting, step.observation))
            )
            self._waiting = None
        if step.next_observation is None:
            self._waiting = step.of(np.s_[:])
        else:
            self._feed(step)

    def pairs(self, rows: Indices, streams: Indices) -> Pair:
        """Give the observations and next observations of these rows and streams, ``(n,)`` each, all of them held."""
        if self._waiting is None or not (waits := rows == self.num_rows - 1).any():
            return self._stored_pairs(rows, streams)
        shown = map_arrays(lambda part: part[streams[waits]], self._waiting_observation())
        if waits.all():
            return shown, shown
        held = self._stored_pairs(rows[~waits], streams[~waits])
        merged = [map_arrays(lambda now, part: _merged(waits, now, part), shown, each) for each in held]
        return merged[0], merged[1]

    def split_off(self, stream: int) -> StreamGroup:
        """Give a group of its own to one of the streams, with all that it has here under the same numbers."""
        oldest = self._steps.oldest_row
        rows = np.arange(oldest, self._steps.num_rows)
        group = StreamGroup(replace(self._settings, num_envs=1), self._first_row + oldest, self._steps.layout)
        for first in range(0, len(rows), 64):
            indices = self._steps.indices(rows[first : first + 64], stream)
            batch = self.memory.get(indices)
            group._copy_steps(batch.observation, batch.next_observation, batch.terminated, batch.truncated, self)
        group._waiting = None if self._waiting is None else self._waiting.of([stream])
        return group

    def _copy_steps(
        self, observation: Any, next_observation: Any, terminated: Flags, truncated: Flags, old: StreamGroup
    ) -> None:
        """Store what another group's memory gave of one stream, ``(n, stack, *frame)`` each."""
        if not self._steps.num_rows:
            self._copy_history(observation, old)
        came, came_next = map(old._steps.layout.to_library, (observation, next_observation))
        for at in range(len(terminated)):
            one = np.s_[at : at + 1]
            self._feed(ObservationStep(came, came_next, terminated, truncated).of(one))

    def _copy_history(self, observation: Any, old: StreamGroup) -> None:
        """Store the frames before the first step that is taken over, as steps that nobody has a number of."""
        depth = old.memory.stack
        for shown in range(1, depth):
            windows = [
                map_arrays(lambda part, n=n: _padded(part[:1], n, old._steps.layout.padding), observation)
                for n in (shown, shown + 1)
            ]
            ongoing = np.zeros(1, bool)
            before, after = map(old._steps.layout.to_library, windows)
            self._feed(ObservationStep(before, after, ongoing, ongoing))
        self._first_row -= depth - 1

    def _feed(self, step: ObservationStep) -> None:
        nothing = np.zeros(self._settings.num_envs)
        self._steps.add(
            step.observation, nothing.astype(int), nothing, step.terminated, step.truncated, step.next_observation
        )

    def _stored_pairs(self, rows: Indices, streams: Indices) -> Pair:
        batch = self.memory.get(self._steps.indices(rows - self._first_row, streams))
        if self._settings.stack > 1:
            return batch.observation, batch.next_observation
        layout = self._steps.layout
        return layout.to_library(batch.observation), layout.to_library(batch.next_observation)

    def _next_observation_of(self, waiting: ObservationStep, observation: Any) -> Any:
        """The next observation of each stream of a row that waited: the one that has come, unless its episode ended."""
        ended = waiting.terminated | waiting.truncated
        return map_arrays(
            lambda own, next_: _merged(ended, own[ended], next_[~ended]),
            self._repeat_newest_frame(waiting),
            observation,
        )

    def _repeat_newest_frame(self, waiting: ObservationStep) -> Any:
        """The observation moved on by its newest frame, which any layout can have for a next one."""
        layout = self._steps.layout
        stacks = layout.stacks_of(layout.arrays_of(waiting.observation, self._settings.num_envs))
        moved = [np.concatenate([part[:, 1:], part[:, -1:]], 1) for part in stacks]
        return layout.to_library(layout.spec.arranged(moved) if isinstance(layout.spec, ObservationSpec) else moved[0])

    def _waiting_observation(self) -> Any:
        """The observation of the row that waits, of every stream."""
        assert self._waiting is not None
        came = self._waiting.observation
        if self._settings.stack == 1:
            return came
        goes_on = self.memory.open_episodes
        begun = map_arrays(lambda part: np.repeat(part[:, None], self._settings.stack, 1), came)
        return map_arrays(
            lambda new, now: _merged(goes_on, now[goes_on], new[~goes_on]), begun, self.memory.observations()
        )


def _layouts(settings: StreamGroupSettings, first: ObservationLayout | None) -> list[ObservationLayout]:
    """How observations may be stacks, in the order in which that is tried."""
    depth = 1 if settings.stack > 1 else settings.frame_stack
    layouts = list(layouts_to_try(settings.space) if depth is None else layouts_of_depth(settings.space, depth))
    return sorted(layouts, key=lambda layout: layout != first)


def _merged(at: Flags, these: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Give one array with ``these`` where ``at`` holds, and ``others`` elsewhere."""
    merged = np.empty((len(at), *these.shape[1:]), these.dtype)
    merged[at], merged[~at] = these, others
    return merged


def _padded(stack: npt.NDArray[Any], num_frames: int, padding: StackPadding) -> npt.NDArray[Any]:
    """Give stacks ``(n, depth, *frame)`` as they were when only the first ``num_frames`` of their frames were there."""
    depth = stack.shape[1]
    padded = np.empty_like(stack)
    padded[:, depth - num_frames :] = stack[:, :num_frames]
    padded[:, : depth - num_frames] = stack[:, :1] if padding == "first_frame" else 0
    return padded


Numbers = npt.NDArray[np.uint32]
NUMBERS = "biuf"  # kinds of dtypes
ROWS_AT_ONCE = 64  # are unpacked together where so many are asked for as never before, a whole episode for instance


class ObservationStore:
    """Observations and next observations of the newest steps of each of several streams.

    The steps of a stream are numbered from 1 on; 0 is no step, and its observations are zeros. What observations are,
    in shape and dtype, shows in the first one.

    As long as all streams step together their observations are in one memory (``StreamGroup``). Once some step without the
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
        self._settings = StreamGroupSettings(nothing, max(sizes), stack, frame_stack, threads, storage, len(sizes))
        if max(sizes):
            self._settings(nothing, 1, "first_frame")  # refuses what cannot work, before anything comes
        self.clear()

    def clear(self) -> None:
        """Forget every step."""
        self._together: StreamGroup | None = None
        self._apart: dict[int, StreamGroup] = {}
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

    def add(self, streams: Sequence[int], step: ObservationStep) -> Numbers:
        """Store a step of some streams, each at most once, and give their numbers.

        Raises ``InvalidStepError`` before anything is stored.
        """
        step = self._checked(step)
        self._make_groups(streams)
        self.knows_next &= step.next_observation is not None
        map_arrays(self._note_nan, tuple(part for part in step[:2] if part is not None))
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
            pair = self._gather_pairs(rows, streams)
        return self._as_requested(pair[0], stack), self._as_requested(pair[1], stack)

    def _as_requested(self, came: Any, stack: int) -> Any:
        """Observations in the caller's order of keys, numbers without an axis, stacks as deep as was asked.

        Arrays of their own, in C order: those of the memory share frames, and are lent again.
        """
        if self.stack > 1:
            came = map_arrays(lambda part: part[:, -1] if stack == 1 else part[:, -stack:], came)
        return _in_form(self._form, map_arrays(lambda part: np.array(part, order="C"), came))

    def _gather_pairs(self, rows: Indices, streams: Indices) -> Pair:
        """What the groups have of these steps, each at its place; zeros for those that are none, or gone."""
        groups = self._apart if self._together is None else {0: self._together}
        group_of, stream_in_group = (streams, 0 * streams) if self._together is None else (0 * streams, streams)
        pair: list[Any] = []
        for stream, group in groups.items():
            here = np.flatnonzero((group_of == stream) & (rows >= group.oldest_row))
            for at in np.split(here, range(ROWS_AT_ONCE, len(here), ROWS_AT_ONCE)):
                parts = group.pairs(rows[at], stream_in_group[at])
                pair = pair or [map_arrays(partial(_zeros, len(rows)), part) for part in parts]
                for which, part in enumerate(parts):
                    map_arrays(lambda out, array, at=at: out.__setitem__(at, array), pair[which], part)
        return pair[0], pair[1]

    def _make_groups(self, streams: Sequence[int]) -> None:
        """Have one group as long as all streams step together, and then one for each stream that steps."""
        if len(set(streams)) == len(self.sizes) and len(set(self.sizes)) == 1 and not self._apart:
            if self._together is None:
                self._together = StreamGroup(self._settings)
            return
        if self._together is not None:
            self._apart = {stream: self._together.split_off(stream) for stream in range(len(self.sizes))}
            self._together = None
        for stream in streams:
            if stream not in self._apart:
                self._apart[stream] = StreamGroup(replace(self._settings, num_envs=1, size=self.sizes[stream]))

    def _checked(self, step: ObservationStep) -> ObservationStep:
        """Give the step with arrays ``(n, *shape)`` of numbers, all made as the first ones were."""
        arrays = [None if part is None else map_arrays(_array_of_numbers, part) for part in step[:2]]
        forms = [map_arrays(lambda part: part[:0], part) for part in arrays if part is not None]
        form = forms[0] if self._form is None else self._form
        for came in forms:
            _check_same_form(came, form)
        if self._form is None:
            self._settings = replace(self._settings, space=map_arrays(_frame_spec, form))
            self._form = form
        taken = [None if part is None else map_arrays(_with_axis, part) for part in arrays]
        return ObservationStep(taken[0], taken[1], step.terminated, step.truncated)

    def _note_nan(self, part: npt.NDArray[Any]) -> None:
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


def _check_same_form(came: Any, form: Any) -> None:
    told, kept = (map_arrays(lambda part: f"{part.dtype}{list(part.shape[1:])}", each) for each in (came, form))
    if told != kept:
        raise InvalidStepError(
            f"observations are {told}: those before were {kept}; make them alike in a wrapper, or begin a buffer of "
            "its own"
        )


def _in_form(form: Any, came: Any) -> Any:
    """Give ``came`` with the keys in the order of ``form``, and numbers as they came, without an axis of their own."""
    if isinstance(form, Mapping):
        return {key: _in_form(part, came[key]) for key, part in form.items()}
    return came if form.ndim > 1 else came[..., 0]

"""Import of Minari datasets (Farama Foundation): ``MinariData``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from framestow.checks import as_array, one_of, truth_value
from framestow.errors import DamagedDataError, FramestowError, InvalidSettingsError, InvalidStepError
from framestow.frames.observation_spec import ObservationSpec, equal_rows, map_arrays, observation_spec
from framestow.frames.stacking import STACK_PADDINGS, StackPadding, pad_window
from framestow.interface import one_line, plural
from framestow.offline.minari_files import HAS_BEGINNING, HAS_END, MinariFiles, open_files
from framestow.offline.transfer import SKIP_BAD, Progress, Transferred, check_transfer, no_progress, note_bad
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.action_spec import ActionSpec
from framestow.replay.settings.observation_layout import StackLayout
from framestow.replay.step_checks import check_actions, check_rewards

StackedOn: TypeAlias = Literal["no", "first_axis", "last_axis"]
"""Stack axis: ``first_axis`` for ``(4, 84, 84)``, ``last_axis`` for ``(84, 84, 4)``, ``no`` for none; newest last."""

STACKED_ON: tuple[StackedOn, ...] = get_args(StackedOn)

COLUMNS = ("actions", "rewards", "terminations", "truncations")


class _Episode(NamedTuple):
    number: int
    frames: Any
    stacks: Any  # ``(T + 1, depth, *frame)``, or ``None``
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[Any]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MinariData:
    """An open Minari dataset.

    ::

        data = MinariData.open("atari/breakout/expert-v0", stacked_on="first_axis")
        transferred = data.import_into(memory)

    Observations must be a ``Box``, or a ``Dict`` or ``Tuple`` of boxes. Actions must be a ``Discrete``,
    ``MultiDiscrete``, ``MultiBinary`` or ``Box``.

    Imported: the true last frames and both end flags. An episode without an end flag is cut off by the next one. An
    episode that continues after an end flag is split there. Rewards become ``float32``. Not imported: seeds, ids,
    options and infos.
    """

    files: MinariFiles
    frame: ObservationSpec
    action: ActionSpec
    stacks: StackLayout | None
    stack_padding: StackPadding
    notes: tuple[str, ...] = field(default=())
    skip_bad: bool = False

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield self.name
            yield plural(self.files.total_episodes, "episode")
            yield plural(self.num_steps, "step")

        return one_line(self, details)

    @classmethod
    def open(
        cls,
        dataset: str | Path,
        stacked_on: StackedOn = "no",
        stack_padding: StackPadding | None = None,
        leave_out: Sequence[str] = (),
        *,
        skip_bad: bool = False,
    ) -> MinariData:
        """Open a dataset and read its metadata.

        Arguments:
            dataset: folder of the dataset, or the id of a local one.
            stacked_on: axis along which observations are stacks of frames (``StackedOn``). The memory then stores
                single frames. The import checks that stacking them again restores every observation.
            stack_padding: padding of these stacks; ``None`` detects it from the first episode's first observation.
            leave_out: keys of a ``Dict`` that are not imported, such as a ``Text``; ``"robot/name"`` for a nested one.
            skip_bad: leave out episodes that cannot be imported. ``left_out`` of the import's result counts them, and
                its ``notes`` name them. Otherwise the first one raises its error.

        Raises:
            InvalidSettingsError: the dataset does not exist or has unsupported spaces.
            MissingExtraError: Minari is not installed.
            DamagedDataError: the dataset cannot be read, or leads out of its folder.
        """
        one_of("stacked_on", stacked_on, STACKED_ON)
        truth_value("skip_bad", skip_bad)
        if stack_padding is not None:
            one_of("stack_padding", stack_padding, STACK_PADDINGS, "leave it out to detect it")
        opened = open_files(dataset)
        space = _without(opened.storage.observation_space, leave_out)
        stacks, frame = _kind_of(opened.id, space, stacked_on)
        action = ActionSpec.from_space(opened.storage.action_space)
        if not opened.total_steps:
            raise InvalidSettingsError(
                f"{opened.id}: the dataset has no step: there is nothing to import; give another dataset"
            )
        notes = [f"left out of the observations: {', '.join(leave_out)}"] if leave_out else []
        if opened.has_lossy_pictures():
            notes.append("the dataset stores images as JPEG: they differ from the environment's frames")
        data = cls(opened, frame, action, stacks, stack_padding or "first_frame", tuple(notes), skip_bad)
        return data if stacks is None or stack_padding else replace(data, stack_padding=data._padding(stacks))

    @property
    def name(self) -> str:
        """Id of the environment if known, or else of the dataset."""
        return self.files.environment or self.files.id

    @property
    def num_steps(self) -> int:
        """Number of transitions."""
        return self.files.total_steps

    @property
    def file_bytes(self) -> int:
        """Bytes of the dataset's files."""
        return self.files.file_bytes

    @property
    def array_bytes(self) -> int:
        """Bytes of the loaded arrays in RAM: observations, actions, float64 rewards, flags."""
        observations = self.num_steps + self.files.total_episodes
        depth = 1 if self.stacks is None else self.stacks.depth
        action = self.files.storage.action_space
        action_bytes = math.prod(action.shape) * np.dtype(action.dtype).itemsize
        return int(observations * depth * self.frame.nbytes + self.num_steps * (action_bytes + 8 + 2))

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append all episodes to environment 0 of ``memory``, with one episode in RAM at a time.

        Arguments:
            memory: Memory of single frames that the episodes are appended to.
            progress: Called with the bytes of the observations that are done, and their total.

        Raises:
            InvalidStepError: an episode has a reward or an action that no memory takes.
            InvalidSettingsError: observations are not stacks as given by ``stacked_on`` and ``stack_padding``.
            DamagedDataError: an episode cannot be read or is inconsistent.
        """
        check_transfer(memory, progress)
        self._check_memory(memory)
        transferred = Transferred(notes=list(self.notes))
        total = (self.num_steps + self.files.total_episodes) * self.frame.nbytes
        done = num_split = 0
        bad: dict[int, FramestowError] = {}
        for number in range(self.files.total_episodes):
            try:
                episode = self._read(number)
            except (DamagedDataError, InvalidSettingsError, InvalidStepError) as error:
                if not self.skip_bad:
                    raise type(error)(f"{error}; {SKIP_BAD}") from error
                bad[number] = error
                continue
            num_split += _append(memory, episode, transferred)
            done += (len(episode.rewards) + 1) * self.frame.nbytes
            progress(done, total)
        if num_split:
            transferred.notes.append(f"split because they continued after an end flag: {num_split:,} of the episodes")
        note_bad(transferred, bad)
        return transferred

    def _check_memory(self, memory: ReplayMemory) -> None:
        if self.stacks is None:
            return
        wanted, present = (self.stacks.depth, self.stack_padding), (memory.stack, memory.inner.settings.stack_padding)
        if wanted != present or not memory.inner.settings.layout.stores_as_given:
            raise InvalidSettingsError(
                f"the memory stacks {present[0]} frames padded by {present[1]!r}: the dataset's observations are "
                f"stacks of {wanted[0]} padded by {wanted[1]!r}; create the memory with the dataset's frame and these"
            )

    def _padding(self, stacks: StackLayout) -> StackPadding:
        """Return the padding of the first episode whose beginning is there."""
        for number in range(self.files.total_episodes):
            where = f"{self.files.id}: episode {number}"
            try:
                data, metadata = self.files.read(number)
                if not metadata.get(HAS_BEGINNING, True):
                    continue
                [observations] = self._arrays(data["observations"], where)
                fitting = _paddings_of(observations[0], stacks)
                if fitting:
                    return "first_frame" if "first_frame" in fitting else "zeros"
                raise InvalidSettingsError(
                    f"{where}: the first observation is padded neither by its newest frame nor by zeros: a memory "
                    "would return another observation; use stacked_on='no'"
                )
            except (DamagedDataError, InvalidSettingsError) as error:
                if not self.skip_bad:
                    raise type(error)(f"{error}; {SKIP_BAD}") from error
        return "first_frame"

    def _read(self, number: int) -> _Episode:
        where = f"{self.files.id}: episode {number}"
        data, metadata = self.files.read(number)
        observations = self._arrays(data["observations"], where)
        actions, rewards, *flags = (as_array(key, data[key], DamagedDataError) for key in COLUMNS)
        counts = [len(part) - 1 for part in observations]
        lengths = [*counts, *(len(each) if each.ndim else 0 for each in (actions, rewards, *flags))]
        if len(set(lengths)) != 1 or not lengths[0] or any(each.ndim != 1 for each in flags):
            raise DamagedDataError(
                f"{where}: it has {counts[0] + 1} observations and {lengths[-4:]} actions, rewards and flags: "
                "there must be at least 1 step, and 1 more observation than steps; download the dataset again"
            )
        terminated, truncated = (each.astype(np.bool_) for each in flags)
        if not metadata.get(HAS_END, True):  # the export added this flag, because Minari requires an end
            truncated = truncated & False
        frames = self._frames(observations, metadata, where)
        try:
            actions, rewards = check_actions(self.action, actions, lengths[0]), check_rewards(rewards, lengths[0])
        except InvalidStepError as error:
            raise InvalidStepError(f"{where}: {error}") from error
        stacks = None if self.stacks is None else self.stacks.split(observations[0])
        return _Episode(number, frames, stacks, actions, rewards, terminated, truncated)

    def _arrays(self, observations: Any, where: str) -> list[npt.NDArray[Any]]:
        """Return the observations as one array per key, in the dtypes of the space."""
        try:
            observations = _chosen(self.frame.structure, observations)
            parts = [np.asarray(part) for part in self.frame.flatten(observations)]
        except InvalidStepError as error:
            raise DamagedDataError(
                f"{where}: its observations do not match its space ({error}); download the dataset again"
            ) from error
        for array, part in zip(self.frame.arrays, parts, strict=True):
            shape = array.observed_shape if self.stacks is None else self.stacks.observation_shape(array.frame.shape)
            if not part.size or part.shape[1:] != shape:
                raise DamagedDataError(
                    f"{where}: observations{array.subscript} have shape {part.shape}: its space has {shape}, and there "
                    "must be one; download the dataset again"
                )
        pairs = zip(self.frame.arrays, parts, strict=True)
        return [_as_dtype(part, array.frame.dtype, where + array.subscript) for array, part in pairs]

    def _frames(self, arrays: list[npt.NDArray[Any]], metadata: dict[str, Any], where: str) -> Any:
        if self.stacks is None:
            parts = zip(self.frame.arrays, arrays, strict=True)
            return self.frame.rebuild([array.as_stored(part) for array, part in parts])
        (observations,) = arrays
        if metadata.get(HAS_BEGINNING, True) and self.stack_padding not in _paddings_of(observations[0], self.stacks):
            raise InvalidSettingsError(
                f"{where}: its first observation is not padded by {self.stack_padding!r}: a memory would return "
                "another observation; use the other stack_padding, or stacked_on='no'"
            )
        return _newest_frames(observations, self.stacks, where)


def _append(memory: ReplayMemory, episode: _Episode, transferred: Transferred) -> bool:
    """Append an episode; return whether it was split after an end flag."""
    first = np.zeros(1, np.int32)
    _begin(memory, episode, 0)
    last_step = len(episode.rewards) - 1
    num_parts = 1
    for step in range(last_step + 1):
        here = slice(step, step + 1)
        frame = _rows(episode.frames, np.s_[step + 1 : step + 2])
        flags = episode.terminated[here], episode.truncated[here]
        memory.append(episode.actions[here], episode.rewards[here], *flags, frame, first)
        if step < last_step and (flags[0][0] or flags[1][0]):
            _begin(memory, episode, step + 1)
            num_parts += 1
    transferred.episodes += num_parts
    transferred.transitions += last_step + 1
    return num_parts > 1


def _begin(memory: ReplayMemory, episode: _Episode, step: int) -> None:
    row, env_ids = np.s_[step : step + 1], np.zeros(1, np.int32)
    if episode.stacks is None:
        memory.begin(_rows(episode.frames, row), env_ids)
    else:  # its older frames may be others than the padding
        memory.inner.begin_whole(memory.inner.settings.layout.join([episode.stacks[row]]), env_ids)


def _rows(frames: Any, rows: slice) -> Any:
    return map_arrays(lambda array: array[rows], frames)


def _kind_of(name: str, space: Any, stacked_on: StackedOn) -> tuple[StackLayout | None, ObservationSpec]:
    """Return the stacks of the space's observations, and the spec of one frame."""
    unsupported = [path for path, part in _parts_of(space) if path and not _is_supported(part)]
    if unsupported:
        raise InvalidSettingsError(
            f"{name}: the observations {', '.join(unsupported)} are no arrays of numbers of a fixed shape: a memory "
            f"cannot store them; leave them out with leave_out={unsupported}, --leave-out {' '.join(unsupported)}"
        )
    spec = observation_spec(space) if hasattr(space, "spaces") else None
    if spec is not None and stacked_on == "no":
        return None, spec
    if spec is not None or not (hasattr(space, "low") and hasattr(space, "high")):
        raise InvalidSettingsError(
            f"{name}: observations are {space}: they must be a Box, or, without stacked_on, a Dict or Tuple of boxes; "
            "convert the dataset"
        )
    stacks = _stacks_of(space.shape, stacked_on)
    return stacks, observation_spec(space if stacks is None else _frame_space(space, stacks))


def _parts_of(space: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the paths of the parts of Dict and Tuple spaces, such as ``robot/name``, and the parts."""
    parts = getattr(space, "spaces", None)
    if not isinstance(parts, Mapping | tuple):
        yield path, space
        return
    for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
        yield from _parts_of(part, f"{path}/{key}" if path else str(key))


def _is_supported(space: Any) -> bool:
    try:
        observation_spec({"": space})
    except InvalidSettingsError:
        return False
    return True


def _without(space: Any, keys: Sequence[str]) -> Any:
    """Return a Dict space without some keys, given as paths."""
    from gymnasium.spaces import Dict  # noqa: PLC0415 -- it comes with the extra

    if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
        raise InvalidSettingsError(f"leave_out is {keys!r}: it must be a list of keys; give ['name']")
    for key in keys:
        first, _, rest = key.partition("/")
        parts = dict(space.spaces) if isinstance(space, Dict) else {}
        if first not in parts:
            raise InvalidSettingsError(
                f"leave_out has {key!r}: the observations have the keys {sorted(parts)}; use these"
            )
        part = parts.pop(first)
        space = Dict(parts | ({first: _without(part, [rest])} if rest else {}))
    return space


def _chosen(structure: Any, observations: Any) -> Any:
    """Return the parts of ``observations`` that ``structure`` has."""
    if isinstance(structure, dict) and isinstance(observations, dict):
        return {key: _chosen(part, observations[key]) for key, part in structure.items() if key in observations}
    if isinstance(structure, tuple) and isinstance(observations, tuple) and len(structure) == len(observations):
        return tuple(map(_chosen, structure, observations))
    return observations


def _as_dtype(observations: npt.NDArray[Any], dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Return observations in the space's dtype if that changes no value; files may have a wider dtype."""
    if observations.dtype == dtype:
        return observations
    with np.errstate(all="ignore"):
        cast = observations.astype(dtype)
    if not np.array_equal(cast, observations, equal_nan=observations.dtype.kind == "f"):
        raise InvalidSettingsError(
            f"{where}: observations are {observations.dtype}, and some would change in its space's {dtype}: a memory "
            "never rounds; correct the space of the dataset"
        )
    return cast


def _stacks_of(shape: tuple[int, ...], stacked_on: StackedOn) -> StackLayout | None:
    """Return the stacks of observations of ``shape``; ``None`` if they are not stacked."""
    if stacked_on == "no":
        return None
    if len(shape) < 2:
        raise InvalidSettingsError(f"observations have shape {shape}: a stack has at least 2 axes; use 'no'")
    axis = 0 if stacked_on == "first_axis" else -1
    return StackLayout(axis, shape[axis])


def _newest_frames(observations: npt.NDArray[Any], stacks: StackLayout, where: str) -> npt.NDArray[Any]:
    """Return the newest frame of each observation of an episode, ``(T + 1, *frame)``.

    Raises:
        InvalidSettingsError: an observation is not the previous one shifted by one frame.
    """
    frames = stacks.split(observations)
    is_shifted = equal_rows(frames[1:, :-1], frames[:-1, 1:])
    if not is_shifted.all():
        raise InvalidSettingsError(
            f"{where}: observation {int(np.argmin(is_shifted)) + 1} is not the previous one shifted by one frame: "
            f"these are not stacks of consecutive frames along axis {stacks.axis}; use stacked_on='no'"
        )
    return np.ascontiguousarray(frames[:, -1])


def _paddings_of(first_observation: npt.NDArray[Any], stacks: StackLayout) -> set[StackPadding]:
    """Return the paddings that match an episode's first observation: none, one, or both if its frame is black."""
    [window] = stacks.split(first_observation[None])
    fitting: set[StackPadding] = set()
    for padding in STACK_PADDINGS:
        padded = window.copy()
        pad_window(padded, stacks.depth - 1, padding)
        if equal_rows(padded[None], window[None]).all():
            fitting.add(padding)
    return fitting


def _frame_space(space: Any, stacks: StackLayout) -> Any:
    """Return the space of the newest frame of a stack."""
    low, high = (stacks.split(bounds[None])[0, -1] for bounds in (space.low, space.high))
    return SimpleNamespace(shape=low.shape, dtype=space.dtype, low=low, high=high)

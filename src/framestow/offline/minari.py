"""Minari datasets (Farama Foundation) into a memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedDataError, InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec, map_arrays, observation_spec
from framestow.frames.stacking import StackPadding
from framestow.integrations.drop_in.observation_layout import StackedOn, Stacks
from framestow.offline.minari_library import bytes_of_dataset, has_lossy_pictures, open_dataset
from framestow.offline.transfer import Progress, Transferred, no_progress
from framestow.replay.action_spec import ActionSpec
from framestow.replay.memory import ReplayMemory

HAS_BEGINNING, HAS_END = "framestow_has_beginning", "framestow_has_end"  # what an export says of an episode


class _Episode(NamedTuple):
    number: int
    frames: Any
    actions: npt.NDArray[Any]
    rewards: npt.NDArray[Any]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MinariData:
    """A Minari dataset whose observations are pictures or vectors, or dicts and tuples of them, opened.

    Observations must be a ``Box``, or a ``Dict`` or ``Tuple`` that a memory takes, and actions a ``Discrete``,
    ``MultiDiscrete``, ``MultiBinary`` or ``Box``. An episode of T steps has T + 1 observations there, so the true last
    frame of every episode comes over, and both flags as they are. An episode with neither flag at its end is cut off by
    the next one; one that goes on behind a flag is parted there. Rewards become ``float32``. Seeds, ids, options and
    infos have no place in a memory.

    Arguments of ``open``:
        dataset: the dataset's folder, or the id of one that lies on this machine.
        stacked_on: whether observations are stacks of frames, and on which axis (see ``StackedOn``). The memory then
            keeps single frames and stacks them again; that it makes the same observations is checked, each of them.
        stack_padding: what those stacks are padded by; ``None`` looks at the first one.
    """

    dataset: Any
    frame: AnySpec
    action: ActionSpec
    stacks: Stacks | None
    stack_padding: StackPadding
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def open(
        cls, dataset: str | Path, stacked_on: StackedOn = "no", stack_padding: StackPadding | None = None
    ) -> MinariData:
        """Read what the dataset says of itself, and its first observation if that is a stack.

        Raises ``InvalidSettingsError`` where there is no such dataset, or it has spaces that no memory takes,
        ``MissingExtraError`` where Minari is not installed, ``DamagedDataError`` where it cannot be read.
        """
        opened = open_dataset(dataset)
        space = opened.observation_space
        stacks, frame = _kind_of(opened.id, space, stacked_on)
        action = ActionSpec.from_space(opened.action_space)
        if not opened.total_steps:
            raise InvalidSettingsError(f"{opened.id}: it has no step: there is nothing to import")
        padding = stack_padding
        if padding is None:
            padding = "first_frame" if stacks is None else _padding(opened, stacks)
        notes = []
        if has_lossy_pictures(opened):
            notes.append("the dataset keeps its pictures as JPEG: they are not what the environment showed")
        return cls(opened, frame, action, stacks, padding, tuple(notes))

    @property
    def name(self) -> str:
        """Id of the environment, or of the dataset where it does not say that."""
        return str(self.dataset.id if self.dataset.env_spec is None else self.dataset.env_spec.id)

    @property
    def num_steps(self) -> int:
        """Transitions in it."""
        return int(self.dataset.total_steps)

    @property
    def file_bytes(self) -> int:
        """Bytes of its files."""
        return bytes_of_dataset(self.dataset)

    @property
    def array_bytes(self) -> int:
        """Bytes that its arrays take in RAM once they are loaded: observations, actions, float64 rewards, flags."""
        observations = self.num_steps + int(self.dataset.total_episodes)
        depth = 1 if self.stacks is None else self.stacks.depth
        action = self.dataset.action_space
        action_bytes = math.prod(action.shape) * np.dtype(action.dtype).itemsize
        return int(observations * depth * self.frame.nbytes + self.num_steps * (action_bytes + 8 + 2))

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append every episode to stream 0 of ``memory``, one of them in RAM at a time.

        ``progress`` counts bytes of observations. Raises ``InvalidStepError``, naming the episode, for steps that no
        memory takes, ``InvalidSettingsError`` for observations that are no such stacks as was said,
        ``DamagedDataError`` for an episode that contradicts itself.
        """
        self._check_memory(memory)
        transferred = Transferred(notes=list(self.notes))
        total = (self.num_steps + int(self.dataset.total_episodes)) * self.frame.nbytes
        done = num_parted = 0
        for number in self.dataset.episode_indices.tolist():
            episode = self._read(number)
            try:
                num_parted += _append(memory, episode, transferred)
            except InvalidStepError as error:
                raise InvalidStepError(f"{self.dataset.id}: episode {number}: {error}") from error
            done += (len(episode.rewards) + 1) * self.frame.nbytes
            progress(done, total)
        if num_parted:
            transferred.notes.append(f"parted where a step ended them and they went on: {num_parted:,} of the episodes")
        return transferred

    def _check_memory(self, memory: ReplayMemory) -> None:
        if self.stacks is None:
            return
        wanted, present = (self.stacks.depth, self.stack_padding), (memory.stack, memory._settings.stack_padding)
        if wanted != present:
            raise InvalidSettingsError(
                f"the memory stacks {present[0]} frames padded by {present[1]!r}: this dataset's observations are "
                f"{wanted[0]} padded by {wanted[1]!r}; make the memory alike"
            )

    def _read(self, number: int) -> _Episode:
        where = f"{self.dataset.id}: episode {number}"
        try:
            data = next(self.dataset.iterate_episodes([number]))
            [metadata] = self.dataset.storage.get_episode_metadata([number])
        except (OSError, ValueError, KeyError, AssertionError) as error:
            raise DamagedDataError(f"{where}: Minari cannot read it: {error}; fetch the dataset again") from error
        observations = self._arrays(data.observations, where)
        counts = [len(part) - 1 for part in observations]
        lengths = [*counts, *map(len, (data.actions, data.rewards, data.terminations, data.truncations))]
        if len(set(lengths)) != 1 or not lengths[0]:
            raise DamagedDataError(
                f"{where}: it has {counts[0] + 1} observations and {lengths[-4:]} actions, rewards and flags: "
                "there must be one observation more than steps, and a step; fetch the dataset again"
            )
        terminated, truncated = (np.asarray(flags, np.bool_) for flags in (data.terminations, data.truncations))
        if not metadata.get(HAS_END, True):  # an export ended it so, since Minari wants every episode to end
            truncated = truncated & False
        frames = self._frames(observations, metadata, where)
        return _Episode(number, frames, np.asarray(data.actions), np.asarray(data.rewards), terminated, truncated)

    def _arrays(self, observations: Any, where: str) -> list[npt.NDArray[Any]]:
        """The observations' arrays, one a leaf, in the dtypes of the space."""
        if isinstance(self.frame, FrameSpec):
            return [_as_dtype(np.asarray(observations), self.frame.dtype, where)]
        try:
            parts = zip(self.frame.leaves, self.frame.flattened(observations), strict=True)
        except InvalidStepError as error:
            raise DamagedDataError(f"{where}: its observations are not those of its space: {error}") from error
        return [_as_dtype(np.asarray(part), leaf.frame.dtype, where + leaf.place) for leaf, part in parts]

    def _frames(self, arrays: list[npt.NDArray[Any]], metadata: dict[str, Any], where: str) -> Any:
        if isinstance(self.frame, ObservationSpec):
            leaves = zip(self.frame.leaves, arrays, strict=True)
            return self.frame.rebuilt(tuple(leaf.as_kept(part) for leaf, part in leaves))
        (observations,) = arrays
        if self.stacks is None:
            return observations
        if metadata.get(HAS_BEGINNING, True) and self.stack_padding not in self.stacks.paddings_of(observations[0]):
            raise InvalidSettingsError(
                f"{where}: its first observation is not its newest frame padded by {self.stack_padding!r}: a memory "
                "would make another one of it; give the other stack_padding, or stacked_on='no'"
            )
        return self.stacks.frames(observations, where)


def _append(memory: ReplayMemory, episode: _Episode, transferred: Transferred) -> bool:
    """Append an episode; say whether it went on behind one of its ends."""
    first = np.zeros(1, np.int32)
    memory.begin(_rows(episode.frames, np.s_[:1]), first)
    last_step = len(episode.rewards) - 1
    num_parts = 1
    for step in range(last_step + 1):
        here = slice(step, step + 1)
        frame = _rows(episode.frames, np.s_[step + 1 : step + 2])
        flags = episode.terminated[here], episode.truncated[here]
        memory.append(episode.actions[here], episode.rewards[here], *flags, frame, first)
        if step < last_step and (flags[0][0] or flags[1][0]):
            memory.begin(frame, first)
            num_parts += 1
    transferred.episodes += num_parts
    transferred.transitions += last_step + 1
    return num_parts > 1


def _rows(frames: Any, rows: slice) -> Any:
    return map_arrays(lambda array: array[rows], frames)


def _kind_of(name: str, space: Any, stacked_on: StackedOn) -> tuple[Stacks | None, AnySpec]:
    """How observations of a space are stacked, and one frame of them."""
    spec = observation_spec(space) if hasattr(space, "spaces") else None
    if spec is not None and stacked_on == "no":
        return None, spec
    if spec is not None or not (hasattr(space, "low") and hasattr(space, "high")):
        raise InvalidSettingsError(
            f"{name}: observations are {space}: a memory holds pictures or vectors, a Box, or, unstacked, a Dict or "
            "Tuple of them; map them to one"
        )
    stacks = Stacks.of_shape(space.shape, stacked_on)
    return stacks, FrameSpec.from_space(space if stacks is None else _frame_space(space, stacks))


def _as_dtype(observations: npt.NDArray[Any], dtype: np.dtype[Any], where: str) -> npt.NDArray[Any]:
    """Give observations as the space has them, where that changes no value: files may hold a wider type."""
    if observations.dtype == dtype:
        return observations
    with np.errstate(all="ignore"):
        cast = observations.astype(dtype)
    if not np.array_equal(cast, observations, equal_nan=observations.dtype.kind == "f"):
        raise InvalidSettingsError(
            f"{where}: observations are {observations.dtype}, which its space's {dtype} does not hold: a memory never "
            "rounds; correct the space of the dataset"
        )
    return cast


def _frame_space(space: Any, stacks: Stacks) -> Any:
    """What a memory reads of a space: that of the newest frame of a stack."""
    low, high = stacks.one_frame_of(space.low), stacks.one_frame_of(space.high)
    return SimpleNamespace(shape=low.shape, dtype=space.dtype, low=low, high=high)


def _padding(dataset: Any, stacks: Stacks) -> StackPadding:
    first = next(dataset.iterate_episodes(dataset.episode_indices[:1]))
    fitting = stacks.paddings_of(np.asarray(first.observations)[0])
    if not fitting:
        raise InvalidSettingsError(
            f"{dataset.id}: the first observation is its newest frame padded neither by that frame nor by zeros: a "
            "memory would make another one of it; take stacked_on='no'"
        )
    return "first_frame" if "first_frame" in fitting else "zeros"

"""Tianshou's buffers with observations in a packed memory.

``NumberedSlots`` overrides the methods of a Tianshou buffer that read or write observations. The buffers at the end of
the module combine it with Tianshou's classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Unpack, cast

import numpy as np
import numpy.typing as npt
from tianshou.data import Batch, PrioritizedReplayBufferManager, ReplayBufferManager
from tianshou.data import PrioritizedReplayBuffer as TianshouPrioritized
from tianshou.data import PrioritizedVectorReplayBuffer as TianshouPrioritizedVector
from tianshou.data import ReplayBuffer as TianshouBuffer
from tianshou.data import VectorReplayBuffer as TianshouVector

from framestow.checks import as_array, as_flags, real_number, truth_value, whole_number
from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.integrations.drop_in.memory_options import MemoryOptions, take_options
from framestow.integrations.drop_in.packed_array import PackedArray
from framestow.integrations.drop_in.paired_steps import check_frame_stack
from framestow.integrations.tianshou.observation_store import ObservationStep, ObservationStore
from framestow.interface import one_line
from framestow.replay.memory import ReplayMemory, describe_memory
from framestow.replay.settings.observation_layout import MAX_STACK

OBSERVATIONS = ("obs", "obs_next")
SLOT_OF_EACH_STEP = "Tianshou draws slots of a full buffer; give a smaller size, or a directory"
ROWS_AT_ONCE = 64  # rows read together when steps are copied from another buffer
Added = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


class NumberedSlots(TianshouBuffer):  # type: ignore[misc]  # a library without types
    """Mixin that stores the observations of a Tianshou buffer in an ``ObservationStore``.

    In ``buffer._meta``, Tianshou's arrays, ``obs`` has the number of each step in the store (0 for an empty slot), and
    ``obs_next`` is missing. Everything else is Tianshou's: the other arrays, the order of slots, the draws.
    """

    _observations: ObservationStore
    _first_env_id = 0
    _is_part = False  # whether a vector buffer owns the store

    def _init_observations(self, observations: ObservationStore) -> None:
        """Store observations there. Call it after Tianshou's constructor."""
        self._observations = observations
        self._stores_last_frame: bool = self.options["save_only_last_obs"]
        self._save_obs_next = self._save_only_last_obs = False  # Tianshou must store the numbers unchanged

    def __repr__(self) -> str:
        def details() -> Iterable[str]:
            if len(self.memories) == 1:
                return describe_memory(self.memories[0], len(self), self.maxsize)
            memories = f" in {len(self.memories)} memories" if self.memories else ""
            return [f"{len(self):,} of {self.maxsize:,} transitions{memories}"]

        return one_line(self, details)

    @property
    def memories(self) -> tuple[ReplayMemory, ...]:
        """The memories with the observations: none before the first step, then one for all environments.

        From the first step of some environments without the others on, each has its own. The first memory stays until
        nobody needs its steps.
        """
        return self._observations.memories

    @property
    def memory(self) -> ReplayMemory:
        """The memory with the observations; raises ``InvalidSettingsError`` unless there is exactly one."""
        if len(self.memories) != 1:
            raise InvalidSettingsError(
                f"the buffer has {len(self.memories)} memories: there is none before the first step, and one per "
                "environment once environments step separately; use buffer.memories"
            )
        return self.memories[0]

    def add(self, batch: Any, buffer_ids: Any = None) -> Added:
        """Add one step of one or several environments; ``obs_next`` is always stored.

        Raises:
            InvalidStepError: before anything is stored.
        """
        if not {"obs", "act", "rew", "terminated", "truncated"} <= set(batch.get_keys()):
            return cast(Added, super().add(batch, buffer_ids))  # raises Tianshou's error
        env_ids, is_one = self._envs_that_step(buffer_ids)
        num_envs = len(env_ids)
        _check_rewards(batch.rew, num_envs, is_one)
        numbers = self._observations.add(
            env_ids,
            ObservationStep(
                self._frames(batch.obs, is_one, num_envs),
                self._frames(batch.get("obs_next"), is_one, num_envs),
                _flags("terminated", batch.terminated, num_envs),
                _flags("truncated", batch.truncated, num_envs),
            ),
        )
        numbered = Batch()
        numbered.__dict__.update(batch.__dict__)  # an assignment would copy the arrays
        numbered.__dict__["obs"] = numbers.reshape(()) if is_one else numbers
        return cast(Added, super().add(numbered, buffer_ids))

    def sample(self, batch_size: int | None) -> tuple[Batch, npt.NDArray[Any]]:
        """Sample a batch with Tianshou's generator; return its transitions and their slots."""
        if batch_size is not None:
            batch_size = whole_number("batch_size", batch_size, 0, rule="0 or None gives all transitions")
        self._observations.batch_size = batch_size or 0
        return cast("tuple[Batch, npt.NDArray[Any]]", super().sample(batch_size))

    def get(
        self, index: Any, key: str, default_value: Any = None, stack_num: int | None = None
    ) -> Batch | npt.NDArray[Any]:
        """Return the values of ``key`` in these slots, stacked as Tianshou does."""
        if stack_num is not None:
            whole_number("stack_num", stack_num, 1, MAX_STACK, rule=f"an observation has 1 to {MAX_STACK} frames")
        if key not in OBSERVATIONS or not self.memories:
            return super().get(index, key, default_value, stack_num)
        return self._pair(index, stack_num)[key == "obs_next"]

    def __getitem__(self, index: Any) -> Batch:
        """Return the transitions in these slots in new arrays.

        ``obs_next`` is the true next observation, also with ``ignore_obs_next``: at the end of an episode its last
        observation, stacked like the others. ``obs`` is exact even if the previous slots are overwritten.
        """
        if isinstance(index, slice):
            index = self._slots_of(index)
        obs, obs_next = self._pair(index, None)
        given = {"obs": obs}
        given |= {key: self._meta[key][index] for key in ("act", "rew", "terminated", "truncated", "done")}
        given["obs_next"] = obs_next
        given |= {key: self.get(index, key, Batch()) for key in ("info", "policy")}
        others = (key for key in self._meta.get_keys() if key not in self._reserved_keys)
        return Batch(given | {key: self._meta[key][index] for key in others})

    def __getattr__(self, key: str) -> Any:
        if key in OBSERVATIONS and "_observations" in self.__dict__ and self.memories:
            return self._as_arrays(key, self.get(np.zeros(0, int), key, stack_num=1))
        return super().__getattr__(key)

    def reset(self, keep_statistics: bool = False) -> None:
        """Remove all steps. With ``keep_statistics``, open episodes continue and keep their frame history."""
        super().reset(keep_statistics)
        if hasattr(self, "weight"):  # Tianshou's priorities would draw the steps that are gone
            self.weight[np.arange(self.maxsize)] = 0.0
        if self.memories and not keep_statistics and not self._is_part:
            self._observations.clear()
            self._meta["obs"][:] = 0

    def update(self, buffer: Any) -> npt.NDArray[Any]:
        """Add all steps of another buffer, Tianshou's or one of these; return their slots in this buffer."""
        if not isinstance(buffer, TianshouBuffer):
            raise InvalidSettingsError(f"buffer is {buffer!r}: it must be a buffer of Tianshou; give one with steps")
        knows_next = buffer._observations.knows_next if isinstance(buffer, NumberedSlots) else buffer._save_obs_next
        stack_num, buffer.stack_num = buffer.stack_num, 1
        try:
            slots = buffer.sample_indices(0) if len(buffer) and self.maxsize else np.array([], int)
            numbers = np.zeros(buffer.maxsize, np.uint32)
            for first in range(0, len(slots), ROWS_AT_ONCE):
                moved = slots[first : first + ROWS_AT_ONCE]
                numbers[moved] = self._store_batch([self._first_env_id], buffer[moved], knows_next)
        finally:
            buffer.stack_num = stack_num
        fields = {key: buffer._meta[key] for key in buffer._meta.get_keys() if key != "obs_next"}
        indices: npt.NDArray[Any] = super().update(_MovedSteps(slots, Batch({**fields, "obs": numbers})))
        return indices

    def set_batch(self, batch: Any) -> None:
        """Replace all steps by those of a batch, one step per slot; observations are copied."""
        if self._is_part:
            raise InvalidSettingsError(
                "set_batch was called on a part of a vector buffer: the parts share their observations; call it on the "
                "vector buffer"
            )
        numbers_here = self._meta.get("obs")
        super().set_batch(batch)  # raises Tianshou's errors
        if "obs" not in batch.get_keys() or batch.obs is numbers_here:  # the batch was read from this buffer
            return
        self._observations.clear()
        env_ids = list(range(self._observations.num_envs))
        numbers = np.zeros(self.maxsize, np.uint32)
        for slots in np.arange(self.maxsize).reshape(len(env_ids), -1).T:
            numbers[slots] = self._store_batch(env_ids, batch[slots])
        kept = {key: batch[key] for key in batch.get_keys() if key != "obs_next"}
        super().set_batch(Batch({**kept, "obs": numbers}))

    def hasnull(self) -> bool:
        """Return whether a value is missing; Tianshou's trainers call this after every collect.

        Observations are unpacked only if one with NaN was ever added. Tianshou's buffer copies all of them.
        """
        if not self.memories or self._observations.had_nan:
            return bool(super().hasnull())
        fields = _without_integers(self._meta)
        return bool(fields.get_keys()) and bool(fields[self.sample_indices(0)].hasnull())

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with packed observations; parts of a vector buffer leave the shared store out."""
        shared = {"_observations": None, "_meta": Batch()} if self._is_part else {}
        return self.__dict__ | shared

    def _store_batch(self, env_ids: list[int], batch: Any, knows_next: bool = True) -> npt.NDArray[np.uint32]:
        """Store a batch's observations: one step per environment, or consecutive steps of one. Return their numbers."""
        obs, obs_next = (_tree(batch.get(key)) for key in OBSERVATIONS)
        obs_next = obs_next if knows_next else None
        ends = [np.asarray(batch[key], bool) for key in ("terminated", "truncated")]
        steps = [np.s_[:]] if len(env_ids) > 1 else [np.s_[at : at + 1] for at in range(len(batch))]
        added = [self._observations.add(env_ids, ObservationStep(obs, obs_next, *ends).of(step)) for step in steps]
        return np.concatenate(added)

    def _slots_of(self, index: slice) -> npt.NDArray[Any]:
        """Return the slots of a slice; ``[:]`` gives all slots, oldest step first, as in Tianshou."""
        slots: npt.NDArray[Any] = self.sample_indices(0) if index == slice(None) else self._indices[: len(self)][index]
        return slots

    def _envs_that_step(self, buffer_ids: Any) -> tuple[list[int], bool]:
        """Return the environments of an ``add`` call, and whether the step has no axis for environments."""
        return [self._first_env_id], buffer_ids is None

    def _envs_of(self, slots: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        return np.full(len(slots), self._first_env_id)

    def _frames(self, observations: Any, is_one: bool, num_envs: int) -> Any:
        """Return observations as ``(n, *shape)``; with ``save_only_last_obs`` the newest frame of each stack."""
        if type(observations) is not np.ndarray:
            arrays = _tree(observations)
            return None if arrays is None else map_arrays(lambda part: self._frames(part, is_one, num_envs), arrays)
        rows = observations[None] if is_one else observations
        _check_rows("obs", num_envs, rows)
        return rows[:, -1] if self._stores_last_frame else rows

    def _as_arrays(self, name: str, form: Any, path: tuple[str, ...] = ()) -> Any:
        """Return the observations in all slots as a ``PackedArray``, or as a ``Batch`` of them like ``form``."""
        if isinstance(form, Batch):
            arrays = Batch()
            for key, part in form.items():
                arrays.__dict__[key] = self._as_arrays(name, part, (*path, key))
            return arrays

        def read(slots: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
            found: Any = self.get(slots, name, stack_num=1)
            for key in path:
                found = found[key]
            return cast("npt.NDArray[Any]", found)

        return PackedArray(read, self._indices, form.shape[1:], form.dtype)

    def _pair(self, index: Any, stack_num: int | None) -> tuple[Any, Any]:
        """Return ``obs`` and ``obs_next`` of these slots."""
        self._meta["obs"]  # KeyError for an empty buffer, so that np.array([buffer]) is an array of objects
        slots = np.asarray(self._indices[index])
        stack_num = self.stack_num if stack_num is None else stack_num
        obs, obs_next = self._flat_pair(slots.ravel(), stack_num)
        return _reshape(obs, slots.shape), _reshape(obs_next, slots.shape)

    def _flat_pair(self, slots: npt.NDArray[Any], stack_num: int) -> tuple[Any, Any]:
        if self._observations.knows_next:
            return self._read(slots, stack_num)
        return self._read(slots, stack_num)[0], self._read(self.next(slots), stack_num)[0]

    def _read(self, slots: npt.NDArray[Any], stack_num: int) -> tuple[Any, Any]:
        """Return the stored pairs of these slots; stacks deeper than the store's also use the previous slots."""
        if stack_num <= self._observations.stack:
            return self._observations.pairs(self._envs_of(slots), self._meta["obs"][slots], stack_num)
        several = [slots]
        for _ in range(stack_num - 1):
            several.insert(0, self.prev(several[0]))
        singles, _ = self._read(np.stack(several, 1).ravel(), 1)
        obs = map_arrays(lambda part: part.reshape(-1, stack_num, *part.shape[1:]), singles)
        _, newest = self._read(slots, 1)
        return obs, map_arrays(lambda older, new: np.concatenate([older[:, 1:], new[:, None]], 1), obs, newest)


class NumberedSlotsOfParts(NumberedSlots, ReplayBufferManager):  # type: ignore[misc]
    """``NumberedSlots`` for a buffer with one part per environment."""

    def _share_observations(self) -> None:
        """Create one store for all parts, with the settings of theirs. Call it after Tianshou's constructor."""
        self._init_observations(self.buffers[0]._observations.with_envs(self.buffer_num))
        for env_id, part in enumerate(self.buffers):
            part._observations, part._first_env_id, part._is_part = self._observations, env_id, True

    def _envs_that_step(self, buffer_ids: Any) -> tuple[list[int], bool]:
        return _check_buffer_ids(buffer_ids, self.buffer_num), False

    def _envs_of(self, slots: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        env_ids: npt.NDArray[np.int64] = np.searchsorted(self._offset, slots, "right") - 1
        return env_ids

    def _set_batch_for_children(self) -> None:
        for offset, part in zip(self._offset, self.buffers, strict=True):
            part._meta = self._meta[offset : offset + part.maxsize]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for part in self.buffers:
            part._observations = self._observations
        if self._meta.get_keys():
            self._set_batch_for_children()


class _MovedSteps:
    """Steps to copy, with the interface that Tianshou's ``update`` needs of a buffer."""

    def __init__(self, slots: npt.NDArray[Any], meta: Batch) -> None:
        self._slots, self._meta, self.stack_num = slots, meta, 1

    def __len__(self) -> int:
        return len(self._slots)

    def sample_indices(self, _batch_size: int) -> npt.NDArray[Any]:
        return self._slots


def _without_integers(batch: Batch) -> Batch:
    """Return a batch without arrays of integers and booleans, which have no missing values."""
    fields = Batch()
    for key, value in batch.items():
        if isinstance(value, Batch):
            fields.__dict__[key] = _without_integers(value)
        elif value.dtype.kind not in "biu":
            fields.__dict__[key] = value
    return fields


def _tree(observations: Any) -> Any:
    """Return observations as arrays or dicts of arrays; ``None`` if there are none."""
    if type(observations) is np.ndarray:
        return observations
    if isinstance(observations, Batch):
        observations = observations.to_dict() or None
    as_arrays = partial(as_array, "observations", error_class=InvalidStepError)
    return None if observations is None else map_arrays(as_arrays, observations)


def _check_rows(name: str, num_envs: int, array: npt.NDArray[Any]) -> None:
    if array.shape[:1] != (num_envs,):
        raise InvalidStepError(
            f"{name} has shape {array.shape}: its first axis must have length {num_envs}; give a row for each of them"
        )


def _check_rewards(rewards: Any, num_envs: int, is_one: bool) -> None:
    array = as_array("rew", rewards, InvalidStepError)
    if array.dtype.kind not in "biuf":
        raise InvalidStepError(f"rew is {rewards!r}: rewards must be numbers; give one for each environment")
    if not is_one:
        _check_rows("rew", num_envs, array)


def _flags(name: str, values: Any, num_envs: int) -> npt.NDArray[np.bool_]:
    flags = as_flags(name, values)
    if num_envs == 1 and flags.size > 1:
        raise InvalidStepError(
            f"{name} has shape {flags.shape}: the step is of one environment; give one boolean, or use a buffer of "
            f"several, VectorReplayBuffer(total_size, buffer_num={flags.size})"
        )
    if flags.size != num_envs:
        raise InvalidStepError(
            f"{name} has shape {flags.shape}: there must be {num_envs} flags; give one boolean for each environment"
        )
    return flags.reshape(num_envs)


def _check_buffer_ids(buffer_ids: Any, num_buffers: int) -> list[int]:
    """Return the numbers of the buffers that step, all of them for ``None``."""
    if buffer_ids is None:
        return list(range(num_buffers))
    ids = as_array("buffer_ids", buffer_ids, InvalidStepError)
    numbers: list[int] = ids.tolist() if ids.ndim == 1 and ids.dtype.kind in "iu" else []
    if not numbers or min(numbers) < 0 or max(numbers) >= num_buffers:
        raise InvalidStepError(
            f"buffer_ids is {buffer_ids!r}: it must be a list of numbers from 0 to {num_buffers - 1}; give [0], or "
            "None for all"
        )
    return numbers


def _check_settings(
    kind: type,
    size: Any,
    frame_stack: Any,
    *,
    stack_num: Any = 1,
    ignore_obs_next: Any = False,
    save_only_last_obs: Any = False,
    sample_avail: Any = False,
    random_seed: Any = 42,
    **memory: Any,
) -> dict[str, Any]:
    """Return the memory's options; raise ``InvalidSettingsError`` for arguments that ``kind`` lacks or cannot use."""
    reasons = {"max_bytes": f"not possible here: {SLOT_OF_EACH_STEP}"}
    options = take_options(kind, MemoryOptions, memory, reasons)
    whole_number("size", size, 0, rule="it must be a number of transitions, at least 0")
    whole_number("stack_num", stack_num, 1, MAX_STACK, rule=f"an observation has 1 to {MAX_STACK} frames")
    check_frame_stack(frame_stack)
    if random_seed is not None:
        whole_number("random_seed", random_seed, 0, 2**32 - 1, rule="NumPy takes seeds from 0 to 2**32 - 1")
    truth_value("ignore_obs_next", ignore_obs_next)
    truth_value("save_only_last_obs", save_only_last_obs)
    truth_value("sample_avail", sample_avail)
    return options


def _reshape(observations: Any, shape: tuple[int, ...]) -> Any:
    """Return observations ``(n, ...)`` with ``shape`` instead of the first axis; dicts become a ``Batch``."""
    shaped = map_arrays(lambda part: part.reshape((*shape, *part.shape[1:])), observations)
    return Batch(shaped) if isinstance(shaped, dict) else shaped


class BufferOptions(MemoryOptions, total=False):
    """The arguments that a prioritized buffer passes on to Tianshou's buffer, and the options of the memory."""

    stack_num: int
    """Frames per observation, if single frames are added; 1 by default."""
    ignore_obs_next: bool
    """As of Tianshou's buffer; saves no memory here."""
    save_only_last_obs: bool
    """Store the newest frame of each observation, which is a stack, as Tianshou's buffer does."""
    sample_avail: bool
    """Draw only steps whose stack is whole."""
    random_seed: int
    """Seed of the draws."""


class ReplayBuffer(NumberedSlots):
    """Tianshou's ``ReplayBuffer`` for one environment, with packed observations.

    Same as Tianshou's buffer: the arguments up to ``random_seed``, slots, draws and batches.

    Different: each frame is stored once, also with ``stack_num=1``. ``obs_next`` is always the true next observation,
    also with ``ignore_obs_next``, which saves no memory here.

    Arguments:
        frame_stack: frames per observation with ``stack_num=1``; ``None`` decides by shape.
        memory: options of the memory, by keyword: ``threads``, ``storage``, ``frames_per_segment``, ``directory``,
            ``flush_every`` (``MemoryOptions``). In the ``directory`` are the observations; all else stays in RAM. It
            must be empty: a pickle or ``save_hdf5`` has all else and names the folder, and loading goes on there.

    Raises:
        InvalidSettingsError: invalid settings. ``add`` raises ``InvalidStepError``, before anything is stored, for
            observations that are not numbers or whose shape or dtype changes.
    """

    def __init__(
        self,
        size: int,
        stack_num: int = 1,
        ignore_obs_next: bool = False,
        save_only_last_obs: bool = False,
        sample_avail: bool = False,
        random_seed: int = 42,
        *,
        frame_stack: int | None = None,
        **memory: Unpack[MemoryOptions],
    ) -> None:
        settings = {
            "stack_num": stack_num,
            "ignore_obs_next": ignore_obs_next,
            "save_only_last_obs": save_only_last_obs,
            "sample_avail": sample_avail,
            "random_seed": random_seed,
        }
        options = _check_settings(type(self), size, frame_stack, **settings, **memory)
        TianshouBuffer.__init__(self, size, **settings)
        self._init_observations(ObservationStore(size, 1, stack_num, frame_stack, **options))


class PrioritizedReplayBuffer(TianshouPrioritized, NumberedSlots):  # type: ignore[misc]
    """Tianshou's ``PrioritizedReplayBuffer`` for one environment; ``kwargs`` are arguments of ``ReplayBuffer``."""

    def __init__(
        self,
        size: int,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        *,
        frame_stack: int | None = None,
        **kwargs: Unpack[BufferOptions],
    ) -> None:
        options = _check_settings(type(self), size, frame_stack, **kwargs)
        of_tianshou: dict[str, Any] = {name: value for name, value in kwargs.items() if name not in options}
        real_number("alpha", alpha, 0, rule="it must be above 0; Tianshou's examples have 0.6", is_least_excluded=True)
        real_number("beta", beta, 0, rule="it must be at least 0; Tianshou's examples have 0.4")
        truth_value("weight_norm", weight_norm)
        TianshouPrioritized.__init__(self, size, alpha, beta, weight_norm, **of_tianshou)
        stack_num = self.options["stack_num"]
        self._init_observations(ObservationStore(size, 1, stack_num, frame_stack, **options))


class VectorReplayBuffer(NumberedSlotsOfParts, TianshouVector):  # type: ignore[misc]
    """Tianshou's ``VectorReplayBuffer`` for several environments; ``kwargs`` are arguments of ``ReplayBuffer``."""

    def __init__(self, total_size: int, buffer_num: int, **kwargs: Any) -> None:
        ReplayBufferManager.__init__(self, _parts(ReplayBuffer, total_size, buffer_num, kwargs))
        self._share_observations()


class PrioritizedVectorReplayBuffer(TianshouPrioritizedVector, NumberedSlotsOfParts):  # type: ignore[misc]
    """Tianshou's ``PrioritizedVectorReplayBuffer``; ``kwargs`` are arguments of ``PrioritizedReplayBuffer``."""

    def __init__(self, total_size: int, buffer_num: int, **kwargs: Any) -> None:
        PrioritizedReplayBufferManager.__init__(self, _parts(PrioritizedReplayBuffer, total_size, buffer_num, kwargs))
        self._share_observations()


def _parts(kind: Any, total_size: Any, buffer_num: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return the buffers of ``kind`` of the environments, all of one size."""
    buffer_num = whole_number("buffer_num", buffer_num, 1, rule="it must be the number of environments, at least 1")
    total_size = whole_number("total_size", total_size, 1, rule="a buffer stores at least 1 transition")
    return [kind(-(-total_size // buffer_num), **kwargs) for _ in range(buffer_num)]

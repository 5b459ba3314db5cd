"""Export of a memory as a Minari dataset (Farama Foundation): ``export_minari``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from framestow.checks import folder_path
from framestow.errors import InvalidSettingsError, MissingExtraError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import ObservationSpec
from framestow.interface import clause
from framestow.offline.minari_files import HAS_BEGINNING, HAS_END, MAX_NAME, load_minari
from framestow.offline.transfer import Progress, Transferred, begins_padded, check_transfer, fill_path, no_progress
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.episodes import StoredEpisode
from framestow.replay.settings.action_spec import ActionSpec

ENV_ID = "framestow_env_id"

DataFormat: TypeAlias = Literal["hdf5", "arrow", "parquet"]  # Minari checks it


@dataclass(frozen=True)
class MinariDescription:
    """Id and metadata of an exported Minari dataset."""

    dataset_id: str
    """Minari's id, such as ``namespace/name-v0``."""

    environment: str | None = None
    """Gymnasium id of the environment, such as ALE/Breakout-v5."""

    data_format: DataFormat = "hdf5"
    """File format: hdf5, or arrow or parquet, which need pyarrow."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Further entries with Minari's names: description, algorithm_name, author (a set), code_permalink, ..."""

    def __post_init__(self) -> None:
        if self.environment is not None and not isinstance(self.environment, str):
            raise InvalidSettingsError(
                f"environment is {self.environment!r}: it must be the id of an environment; give 'ALE/Breakout-v5'"
            )
        if not isinstance(self.metadata, dict):
            raise InvalidSettingsError(
                f"metadata is {self.metadata!r}: it must be a dict; give {{'description': '...'}}"
            )


def export_minari(
    memory: ReplayMemory, folder: str | Path, description: MinariDescription, progress: Progress = no_progress
) -> Transferred:
    """Write all episodes of ``memory`` as a Minari dataset into a new ``folder``.

    ::

        export_minari(
            memory,
            "breakout/mine-v0",
            MinariDescription("breakout/mine-v0", "ALE/Breakout-v5"),
        )

    Observations are those of the memory's space: single frames if it was built with ``stack``, otherwise whole ones.
    They are stored without loss (Minari's default is JPEG). An episode of T transitions has T + 1 of them, including
    the true last one. Environments follow one after the other; one episode is in RAM at a time. ``folder`` only appears
    when it is complete. Single frames lack the older frames of a stack that does not continue the one before it: the
    ``notes`` of the result count these stacks.

    Minari requires every episode to end. An open or cut-off episode gets a truncation at its last step and the metadata
    ``framestow_has_end: false``. An episode whose first steps were evicted gets ``framestow_has_beginning: false``.
    Extras are stored in ``infos``, each beside the observation before the step, and as zeros beside the last
    observation.

    Arguments:
        memory: the memory to export.
        folder: must not exist; Minari expects ``NAMESPACE/NAME-v0``.
        description: id and metadata.
        progress: called with bytes of frames done and in total.

    Raises:
        InvalidSettingsError: before anything is written, for an invalid id, an unknown environment, an empty memory, an
            existing ``folder``, or keys of observations that are no names in a file.
        MissingExtraError: Minari or a package for the file format is missing.
    """
    check_transfer(memory, progress)
    folder = folder_path("folder", folder)
    if not isinstance(description, MinariDescription):
        raise InvalidSettingsError(
            f"description is {description!r}: it must be a MinariDescription; give MinariDescription('name-v0')"
        )
    minari = load_minari()
    if not len(memory):
        raise InvalidSettingsError("the memory has no transition: there is nothing to export; append steps first")
    _check_id(minari, description.dataset_id)
    for key in itertools.chain.from_iterable(array.path for array in memory.inner.settings.layout.arrays):
        name = str(key)  # in the file
        if name in ("", ".", "..") or "/" in name or not name.isprintable() or len(name) > MAX_NAME:
            raise InvalidSettingsError(
                f"observations have the key {key!r}: a dataset's keys are 1 to {MAX_NAME} printable characters "
                "other than '/', and not '.' or '..'; export a memory with other keys"
            )
    env_spec = _env_spec(description.environment)
    transferred = Transferred(notes=_notes(memory))
    episode_metadata: list[dict[str, Any]] = []
    total = sum(len(episode) + 1 for episode in memory.episodes()) * memory.inner.settings.frame.nbytes
    with fill_path(folder) as unfinished:
        storage = _new_storage(minari, unfinished, memory, description, env_spec)
        storage.update_metadata({"dataset_id": description.dataset_id, "minari_version": minari.__version__})
        if description.metadata:
            storage.update_metadata(description.metadata)
        storage.update_episodes(
            _buffers(minari, memory, transferred, episode_metadata, lambda done: progress(done, total))
        )
        storage.update_episode_metadata(episode_metadata)
    return transferred


def _buffers(
    minari: Any, memory: ReplayMemory, transferred: Transferred, episode_metadata: list[dict[str, Any]], progress: Any
) -> Iterator[Any]:
    """Yield each episode as a Minari ``EpisodeBuffer``; append its metadata to ``episode_metadata``."""
    buffer_of = minari.data_collector.episode_buffer.EpisodeBuffer
    num_borders = num_unpadded = 0
    has_single_frames = memory.inner.settings.layout.takes_frames
    for episode in memory.episodes():
        if has_single_frames and memory.stack > 1:
            num_borders += int(episode.borders.sum())
            num_unpadded += not begins_padded(memory, episode)
        yield buffer_of(
            observations=episode.frames() if has_single_frames else episode.observations(),
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=episode.terminated,
            truncations=_truncations(episode),
            infos=_infos(episode),
        )
        episode_metadata.append(
            {ENV_ID: episode.env_id, HAS_BEGINNING: episode.has_beginning, HAS_END: episode.has_end}
        )
        transferred.episodes += 1
        transferred.transitions += len(episode)
        transferred.observation_bytes += (len(episode) + 1) * memory.inner.settings.frame.nbytes
        progress(transferred.observation_bytes)
    if num_borders:
        transferred.notes.append(
            f"{num_borders:,} next observations are not their observations shifted by one frame: stacks of the "
            "dataset's frames differ from the policy's there"
        )
    if num_unpadded:
        transferred.notes.append(
            f"{clause(num_unpadded, 'episode', 'begin')} with an observation that is not padded: its older frames "
            "are not in the dataset"
        )


def _infos(episode: StoredEpisode) -> dict[str, Any] | None:
    """Return extras with one more entry, as Minari's infos need; ``None`` without extras."""
    padded = {name: np.concatenate([values, np.zeros_like(values[:1])]) for name, values in episode.extras.items()}
    # Minari 0.5.4 cannot read back one-dimensional arrays from Arrow, but lists of numbers.
    return {name: list(values) if values.ndim == 1 else values for name, values in padded.items()} or None


def _truncations(episode: StoredEpisode) -> np.ndarray[Any, np.dtype[np.bool_]]:
    truncations = episode.truncated.copy()
    truncations[-1] |= not episode.has_end
    return truncations


def _new_storage(minari: Any, folder: Path, memory: ReplayMemory, description: MinariDescription, spec: Any) -> Any:
    folder.mkdir()
    layout = memory.inner.settings.layout
    shown = layout.frame_space if layout.takes_frames else layout.spec
    try:
        return minari.dataset.minari_storage.MinariStorage.new(
            folder / "data",
            observation_space=_space_of_part(shown, shown.structure),
            action_space=_action_space(memory.inner.settings.action),
            env_spec=spec,
            data_format=description.data_format,
            jpeg_encoding=False,
        )
    except ImportError as missing:
        raise MissingExtraError(
            f"data_format is {description.data_format!r}: Minari lacks a package ({missing}); install that package, "
            "or leave data_format out"
        ) from missing
    except ValueError as error:
        raise InvalidSettingsError(
            f"data_format is {description.data_format!r}: Minari refuses it ({error}); leave it out"
        ) from error


def _space_of_part(spec: ObservationSpec, structure: Any) -> Any:
    from gymnasium.spaces import Dict, Tuple  # noqa: PLC0415 -- it comes with the extra

    if isinstance(structure, dict):
        return Dict({key: _space_of_part(spec, part) for key, part in structure.items()})
    if isinstance(structure, tuple):
        return Tuple([_space_of_part(spec, part) for part in structure])
    array = spec.arrays[structure]
    return _space_of_array(array.frame, array.frame.shape if array.has_axes else ())


def _space_of_array(frame: FrameSpec, shape: tuple[int, ...]) -> Any:
    from gymnasium.spaces import Box  # noqa: PLC0415 -- as above

    low: Any
    high: Any
    if frame.is_scaled:
        low, high = 0.0, 1.0
    elif frame.dtype.kind == "f":
        low, high = -np.inf, np.inf
    elif frame.dtype.kind == "b":
        low, high = 0, 1
    else:
        low, high = np.iinfo(frame.dtype).min, np.iinfo(frame.dtype).max
    return Box(low, high, shape, frame.dtype.type)


def _action_space(action: ActionSpec) -> Any:
    from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete  # noqa: PLC0415 -- as above

    if action.is_counted and not action.shape:
        return Discrete(action.num_actions, start=action.widest[0])
    if isinstance(action.low, tuple):
        lows, highs = np.array(action.ranges).T.reshape(2, *action.shape)
        return MultiDiscrete(highs - lows + 1, start=lows)
    if action.is_counted:
        return MultiBinary(action.shape)
    dtype = np.dtype(action.dtype)
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return Box(low, high, action.shape, dtype.type)


def _check_id(minari: Any, dataset_id: str) -> None:
    try:
        minari.dataset.minari_dataset.parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:  # TypeError for an id without a version, and for what is no text
        raise InvalidSettingsError(
            f"dataset_id is {dataset_id!r}: Minari does not accept it; give a name with a "
            "version, such as 'atari/breakout/mixed-v0'"
        ) from error


def _env_spec(environment: str | None) -> Any:
    if environment is None:
        return None
    import gymnasium  # noqa: PLC0415 -- as above

    if environment.startswith("ALE/"):
        import ale_py  # noqa: F401, PLC0415 -- it registers them
    try:
        return gymnasium.spec(environment)
    except gymnasium.error.Error as error:
        raise InvalidSettingsError(
            f"environment is {environment!r}: Gymnasium does not know it ({error}); give the id of a registered one"
        ) from error


def _notes(memory: ReplayMemory) -> list[str]:
    notes = []
    if memory.stack > 1 and memory.inner.settings.layout.takes_frames:
        notes.append(
            f"observations are single frames: the dataset does not store the policy's stacks of {memory.stack} frames "
            "and their padding"
        )
    extras = memory.inner.settings.extras
    if extras:
        notes.append(f"extras are in infos, with zeros beside an episode's last observation: {extras.description}")
    return notes

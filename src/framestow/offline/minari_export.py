"""A memory's episodes as a Minari dataset (Farama Foundation)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from framestow.errors import InvalidSettingsError, MissingExtraError
from framestow.frames.frame_spec import FrameSpec
from framestow.frames.observation_spec import AnySpec, ObservationSpec
from framestow.offline.minari import HAS_BEGINNING, HAS_END
from framestow.offline.minari_library import load_minari
from framestow.offline.transfer import Progress, Transferred, no_progress
from framestow.offline.unfinished_folder import unfinished_folder
from framestow.replay.action_spec import ActionSpec
from framestow.replay.episodes import HeldEpisode
from framestow.replay.memory import ReplayMemory

ENV_ID = "framestow_env_id"


@dataclass(frozen=True)
class MinariDescription:
    """What a Minari dataset says of itself besides its data."""

    dataset_id: str
    """``namespace/name-v0``; Minari finds it under that name."""

    environment: str | None = None
    """Gymnasium's id of the environment that it was recorded from, such as ALE/Breakout-v5."""

    data_format: str = "hdf5"
    """How Minari keeps it: hdf5, or arrow and parquet where pyarrow is installed."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Further entries as Minari names them: description, algorithm_name, author (a set), code_permalink, ..."""


def export_minari(
    memory: ReplayMemory, folder: str | Path, description: MinariDescription, progress: Progress = no_progress
) -> Transferred:
    """Write every episode that ``memory`` holds into ``folder``, which is made: Minari's ``NAMESPACE/NAME-v0``.

    ``folder`` exists once everything is written; after an error nothing of it does.

    Observations are single frames, T + 1 of an episode of T transitions, the true last one among them; losslessly,
    where Minari by itself keeps pictures as JPEG. One episode after the other, stream by stream; in RAM is one episode.
    Minari wants every episode to end: one that is open or cut off gets a truncation at its last step, and its metadata
    says ``framestow_has_end`` false; one whose first steps have left says ``framestow_has_beginning`` false. Extra
    extras lie in ``infos``, by name, each transition's beside the observation that it starts with, and zeros
    beside an episode's last one, for infos have as many entries as observations.
    ``progress`` counts bytes of frames.

    Raises ``InvalidSettingsError``, before anything is written, for an id that Minari does not take, an environment
    that Gymnasium does not know, a memory without transitions, or a ``folder`` that exists; ``MissingExtraError``
    without Minari or what its format needs.
    """
    minari = load_minari()
    if not len(memory):
        raise InvalidSettingsError("the memory holds no transition: there is nothing to export; append steps first")
    _check_id(minari, description.dataset_id)
    env_spec = _env_spec(description.environment)
    transferred = Transferred(notes=_notes(memory))
    told: list[dict[str, Any]] = []
    total = sum(len(episode) + 1 for episode in memory.episodes()) * memory._settings.frame.nbytes
    with unfinished_folder(folder) as unfinished:
        storage = _new_storage(minari, unfinished, memory, description, env_spec)
        storage.update_metadata({"dataset_id": description.dataset_id, "minari_version": minari.__version__})
        if description.metadata:
            storage.update_metadata(description.metadata)
        storage.update_episodes(_buffers(minari, memory, transferred, told, lambda done: progress(done, total)))
        storage.update_episode_metadata(told)
    return transferred


def _buffers(
    minari: Any, memory: ReplayMemory, transferred: Transferred, told: list[dict[str, Any]], progress: Any
) -> Iterator[Any]:
    """Give each episode as Minari's buffer when it is asked for, and keep what its metadata will say."""
    buffer_of = minari.data_collector.episode_buffer.EpisodeBuffer
    done = 0
    for episode in memory.episodes():
        frames = episode.frames()
        yield buffer_of(
            observations=frames,
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=episode.terminated,
            truncations=_truncations(episode),
            infos=_infos(episode),
        )
        told.append({ENV_ID: episode.env_id, HAS_BEGINNING: episode.has_beginning, HAS_END: episode.has_end})
        transferred.episodes += 1
        transferred.transitions += len(episode)
        done += (len(episode) + 1) * memory._settings.frame.nbytes
        progress(done)


def _infos(episode: HeldEpisode) -> dict[str, Any] | None:
    """Extras with one more entry, as Minari's infos have; None where there are none."""
    padded = {name: np.concatenate([values, np.zeros_like(values[:1])]) for name, values in episode.extras.items()}
    # Minari 0.5.4 cannot read an array with one axis again that it wrote as Arrow; a list of its numbers it can.
    return {name: list(values) if values.ndim == 1 else values for name, values in padded.items()} or None


def _truncations(episode: HeldEpisode) -> np.ndarray[Any, np.dtype[np.bool_]]:
    truncations = episode.truncated.copy()
    truncations[-1] |= not episode.has_end
    return truncations


def _new_storage(minari: Any, folder: Path, memory: ReplayMemory, description: MinariDescription, spec: Any) -> Any:
    folder.mkdir()
    try:
        return minari.dataset.minari_storage.MinariStorage.new(
            folder / "data",
            observation_space=_observation_space(memory._settings.frame),
            action_space=_action_space(memory._settings.action),
            env_spec=spec,
            data_format=description.data_format,
            jpeg_encoding=False,
        )
    except ImportError as missing:
        raise MissingExtraError(f"data_format is {description.data_format!r}: {missing}") from missing
    except ValueError as error:
        raise InvalidSettingsError(f"data_format is {description.data_format!r}: {error}") from error


def _observation_space(spec: AnySpec) -> Any:
    if isinstance(spec, FrameSpec):
        return _space_of_array(spec, spec.shape)
    return _space_of_part(spec, spec.structure)


def _space_of_part(spec: ObservationSpec, structure: Any) -> Any:
    from gymnasium.spaces import Dict, Tuple  # noqa: PLC0415 -- it comes with the extra

    if isinstance(structure, dict):
        return Dict({key: _space_of_part(spec, part) for key, part in structure.items()})
    if isinstance(structure, tuple):
        return Tuple([_space_of_part(spec, part) for part in structure])
    leaf = spec.leaves[structure]
    return _space_of_array(leaf.frame, leaf.frame.shape if leaf.has_axes else ())


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
    except (ValueError, TypeError) as error:  # a TypeError is what becomes of an id without a version
        raise InvalidSettingsError(
            f"dataset_id is {dataset_id!r}: Minari takes names such as 'atari/breakout/mixed-v0', with a version"
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
        raise InvalidSettingsError(f"environment is {environment!r}: Gymnasium does not know it: {error}") from error


def _notes(memory: ReplayMemory) -> list[str]:
    notes = []
    if memory.stack > 1:
        notes.append(
            f"observations are single frames: that the policy saw stacks of {memory.stack}, and how they were padded, "
            "has no place in the dataset"
        )
    extras = memory._settings.extras
    if extras:
        notes.append(f"extras lie in infos beside the observations, zeros beside an episode's last: {extras.told}")
    return notes

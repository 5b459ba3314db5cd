"""A store gone through from end to end: manifests, states, every byte of the logs, and each generation by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from framestow.errors import DamagedDataError
from framestow.replay.saving.array_file import Arrays, unpack_arrays
from framestow.replay.saving.block_checks import SegmentCheck, StepsCheck
from framestow.replay.saving.examined_generation import ExaminedGeneration, examine_generation
from framestow.replay.saving.examined_log import ExaminedLog, LogView
from framestow.replay.saving.rebuilding import RebuiltState
from framestow.replay.saving.saved_settings import checked_settings
from framestow.replay.saving.state_file import generations_by_state, manifest_in_state
from framestow.replay.saving.store_format import FRAMES, KIND, STEPS, Manifest, checked_manifest
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import generations, manifest_path, read_checked

Progress = Callable[[int, int], None]
"""Is told how many bytes were gone through, and of how many."""


class Finding(NamedTuple):
    """Something that is not as it was written."""

    file: Path
    offset: int | None
    """Where in the file; None where it is about the whole of it."""
    message: str
    transitions: int | None
    """How many transitions of the newest readable generation it costs; None where that cannot be said of it alone."""

    @property
    def what(self) -> str:
        """The message without the name of the file and the way out."""
        told = self.message.removeprefix(f"{self.file}: ")
        return told.rpartition("; ")[0] or told


class ExaminedStore:
    """Everything that verification tells and repair goes by. Close it in the end.

    ``manifests`` are the whole ones that stay, oldest first; ``generations`` those of them whose state is whole too.
    """

    def __init__(self, folder: Path, files: FileSystem = DISK, progress: Progress = lambda _done, _all: None) -> None:
        self.folder, self._disk, self._progress = folder, files, progress
        self.findings: list[Finding] = []
        self.recovered: list[int] = []
        """Generations whose manifests are damaged, and told by their state files."""
        self.manifests = self._kept_manifests()
        self.generations: list[ExaminedGeneration] = []
        self.logs: dict[str, ExaminedLog] = {}
        self._views: dict[int, dict[str, LogView]] = {}
        self.num_bytes = self._done = self._to_do = 0
        if self.manifests:
            # All is opened before the long reading: a writer may remove what it needs no more, not what is open.
            self._states = {manifest.generation: self._state(manifest) for manifest in self.manifests}
            for name in (FRAMES, STEPS):
                states = [getattr(manifest, name) for manifest in self.manifests]
                self.logs[name] = ExaminedLog(folder, name, states, files)
            self._views = {manifest.generation: self._opened_views(manifest) for manifest in self.manifests}
            self._examine_logs()
            for manifest in self.manifests:
                self._examine_generation(manifest)
            self._progress(self._to_do, self._to_do)

    def salvage(self) -> None:
        """Where no generation can be read, make the newest one anew by its manifest and the logs.

        Raises ``DamagedDataError`` where there is no manifest either: then nothing tells what the memory was.
        """
        if not self.manifests:
            raise DamagedDataError(
                f"{self.folder}: every manifest and every state file is damaged or gone, so nothing tells what the "
                "memory was; take an older save"
            )
        self._examine_generation(self.manifests[-1], has_state=False)
        if self.newest is None:
            raise DamagedDataError(self.findings[-1].message)

    def views(self, generation: int) -> tuple[LogView, LogView]:
        """What that generation has of the logs of frames and of steps."""
        views = self._views[generation]
        return views[FRAMES], views[STEPS]

    @property
    def newest(self) -> ExaminedGeneration | None:
        """The newest generation that can be read."""
        return self.generations[-1] if self.generations else None

    def close(self) -> None:
        """Close the files."""
        for log in self.logs.values():
            log.close()
        for views in self._views.values():
            for view in views.values():
                view.close()

    def __enter__(self) -> ExaminedStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _kept_manifests(self) -> list[Manifest]:
        """The newest whole manifest, and the older ones that stay beside it; others are what a crash left."""
        self.there = generations(self.folder, self._disk)
        there = self.there or generations_by_state(self.folder, self._disk)
        if not there:
            raise FileNotFoundError(f"{self.folder}: no {KIND} was saved in this folder; give the folder of one")
        newest: Manifest | None = None
        kept: list[Manifest] = []
        for number in reversed(there):
            if newest is not None and newest.generation == there[-1] and number not in newest.kept:
                continue
            manifest = self._manifest(number)
            if manifest and (newest is None or manifest.is_pinned or number in newest.kept):
                newest = newest or manifest
                kept.append(manifest)
        return kept[::-1]

    def _manifest(self, number: int) -> Manifest | None:
        """The manifest of a generation, by its state file where it is damaged; None where both are."""
        try:
            return checked_manifest(self.folder, number, self._disk)
        except (DamagedDataError, FileNotFoundError) as error:
            recovered = manifest_in_state(self.folder, number, self._disk)
            cost = None if recovered is None else 0
            self.findings.append(Finding(manifest_path(self.folder, number), None, str(error), cost))
            self.recovered += [number] if recovered else []
            return recovered

    def _opened_views(self, manifest: Manifest) -> dict[str, LogView]:
        return {name: log.view(getattr(manifest, name)) for name, log in self.logs.items()}

    def _examine_logs(self) -> None:
        newest = self.manifests[-1]
        settings = checked_settings(newest.memory, str(manifest_path(self.folder, newest.generation)))
        in_logs = sum(file["bytes"] for log in self.logs.values() for file in log.union["files"])
        self.num_bytes = in_logs + sum(manifest.state["bytes"] for manifest in self.manifests)
        self._to_do = 2 * in_logs  # once for its bytes, once for what they mean
        self.logs[FRAMES].examine(SegmentCheck(settings, newest.frames_per_segment), self._advance)
        self.logs[STEPS].examine(StepsCheck(settings), self._advance)

    def _examine_generation(self, manifest: Manifest, *, has_state: bool = True) -> None:
        views = self._views[manifest.generation]
        path = self.folder / manifest.state["name"]
        try:
            settings = checked_settings(manifest.memory, str(manifest_path(self.folder, manifest.generation)))
            if has_state:
                arrays = self._arrays(manifest)
            else:
                rebuilt = RebuiltState(settings, manifest.frames_per_segment)
                arrays = rebuilt.arrays(views[FRAMES].whole_keys(), views[STEPS])
            generation = examine_generation(manifest, settings, arrays, views[FRAMES], views[STEPS])
        except DamagedDataError as error:
            self.findings.append(Finding(path, None, str(error), None))
        else:
            self.generations.append(generation)
            told = [*generation.contradictions, *self._unexplained(generation)]
            self.findings += [Finding(path, None, f"{path}: {what}", None) for what in told]

    def _unexplained(self, generation: ExaminedGeneration) -> Iterator[str]:
        """Blocks that a generation needs and that are not there, although its log has no damage that tells why."""
        for name, lost in ((FRAMES, generation.lost_segments), (STEPS, generation.lost_steps)):
            for key in lost:
                if not self.logs[name].explains(key):
                    yield f"block {key.number} of stream {key.stream} is in none of the files of its {name}"

    def _state(self, manifest: Manifest) -> bytes | DamagedDataError:
        """The content of its state file, or why that cannot be had."""
        try:
            return read_checked(self.folder, manifest.state, self._disk)
        except DamagedDataError as error:
            return error

    def _arrays(self, manifest: Manifest) -> Arrays:
        state = self._states[manifest.generation]
        if isinstance(state, DamagedDataError):
            raise state
        return unpack_arrays(state, str(self.folder / manifest.state["name"]))

    def _advance(self, num_bytes: int) -> None:
        self._done += num_bytes
        self._progress(self._done, self._to_do)

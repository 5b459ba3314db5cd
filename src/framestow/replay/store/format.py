"""The files of a store, and the checks of its manifest.

::

    MANIFEST.000007            manifest of generation 7: settings, and how much of each file belongs to the generation
    MANIFEST.000008.begun.5.3  generation 8 is being written; its new files are frames.000005, steps.000003 and above
    MANIFEST.000006.old        manifest of a superseded generation, until its files are removed
    frames.000001.log .index   sealed segments of frames, by (track, number of the segment)
    steps.000001.log .index    sealed blocks of steps, by the step store's key
    state.000007.npz           small, changing state: open segments, steps of incomplete blocks, a value for each track
    LOCK                       locked by the one writer
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from framestow.errors import DamagedDataError, FramestowError
from framestow.replay.memory_settings import MemorySettings
from framestow.storage.files.block_format import INDEX, LOG, FileState, LogState, file_name, repair_hint
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import manifest_path, read_manifest

KIND: Final = "framestow memory"  # of the file; a manifest of another kind is refused
VERSION: Final = 1  # of the format; another number is refused
FRAMES, STEPS = "frames", "steps"  # names of the logs
Read = TypeVar("Read")


class Manifest(NamedTuple):
    """A manifest with checked fields."""

    generation: int
    commit: str
    """Random name of the commit. It tells apart two memories that save to one folder."""
    memory: dict[str, Any]
    """Settings, sampler and generator, from ``MemoryParts.state``."""
    frames_per_segment: int
    num_transitions: int
    frames: LogState
    steps: LogState
    state: dict[str, Any]
    """Name, size and checksum of the state file."""
    kept: list[int]
    """Older generations that later commits keep until ``prune``."""
    is_pinned: bool
    """Whether later commits keep this generation too."""
    is_closed: bool
    """Whether no later step is missing: the memory was closed with this commit, or saved to another folder."""
    follows: list[str]
    """Commits of the generations that were in the folder; those that are not in ``kept`` are superseded by this one."""


def file_names(manifest: Manifest) -> set[str]:
    """Return the names of all files that a manifest names, including the indices of the logs."""
    logs = {FRAMES: manifest.frames, STEPS: manifest.steps}
    return {manifest.state["name"]} | {
        file_name(name, file["number"], ending)
        for name, log in logs.items()
        for file in log["files"]
        for ending in (LOG, INDEX)
    }


def manifest_content(manifest: Manifest) -> dict[str, Any]:
    """Return the fields of a manifest as ``write_manifest`` takes them."""
    content = manifest._asdict()
    del content["generation"]
    return content


def read_checked_manifest(
    folder: Path, generation: int, files: FileSystem = DISK, *, is_superseded: bool = False
) -> Manifest:
    """Read the manifest of a generation and check its fields; ``is_superseded`` reads one that was superseded.

    Raises:
        FileNotFoundError: the generation has no manifest.
        DamagedDataError: the file is damaged or a field is invalid; the message names both.
        IncompatibleError: another version wrote it.
    """
    file = str(manifest_path(folder, generation))
    way_out = repair_hint(folder)
    try:
        content = read_manifest(
            folder, KIND, VERSION, generation=generation, is_superseded=is_superseded, files=files, way_out=way_out
        )
    except FramestowError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedDataError(f"{file}: the file is not a valid manifest ({error}); {way_out}") from error
    return manifest_of(content, file, generation)


def manifest_of(content: Any, file: str, generation: int) -> Manifest:
    """Build a ``Manifest`` from the JSON of ``file``; raise ``DamagedDataError`` naming an invalid field."""
    fields = CheckedFields(content, file)
    entry = fields.inner("state")
    entry.file_name("name"), entry.integer("bytes"), entry.integer("checksum")
    return Manifest(
        generation=generation,
        commit=fields.text("commit"),
        memory=fields.inner("memory").values,
        frames_per_segment=fields.integer("frames_per_segment", 1),
        num_transitions=fields.integer("num_transitions"),
        frames=_log_state(fields.inner("frames")),
        steps=_log_state(fields.inner("steps")),
        state=entry.values,
        kept=fields.integers("kept"),
        is_pinned=fields.boolean("is_pinned"),
        is_closed=fields.boolean("is_closed"),
        follows=fields.texts("follows") if "follows" in fields.values else [],
    )


def _log_state(fields: CheckedFields) -> LogState:
    """Check the state of a log."""
    files = [
        FileState(number=file.integer("number", 1), bytes=file.integer("bytes"), blocks=file.integer("blocks"))
        for file in fields.each("files")
    ]
    return LogState(files=files, next_file=fields.integer("next_file", 1))


def read_settings(memory: dict[str, Any], file: str) -> MemorySettings:
    """Return the settings in ``memory``, the field of that name of the manifest ``file``.

    Raises:
        DamagedDataError: a field is invalid; the message names file and field.
        InvalidSettingsError: this version does not know a value.
    """
    return _read_settings(memory, file, MemorySettings.from_state)


def read_arguments(memory: dict[str, Any], file: str) -> dict[str, Any]:
    """Return the arguments of a ``ReplayMemory`` with these settings; raises as ``read_settings``."""
    return _read_settings(memory, file, MemorySettings.arguments_of)


def _read_settings(memory: dict[str, Any], file: str, convert: Callable[[dict[str, Any]], Read]) -> Read:
    try:
        return convert(CheckedFields(memory, file).inner("settings").values)
    except FramestowError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedDataError(f"{file}: settings are damaged ({error}); {_repair_hint(file)}") from error


class CheckedFields:
    """The fields of one JSON object of a file; each getter checks type and range.

    An invalid or missing field raises ``DamagedDataError`` naming the file and the field.

    >>> fields = CheckedFields({"frames": {"bytes": -1}}, "MANIFEST.000001")
    >>> fields.inner("frames").integer("bytes")
    Traceback (most recent call last):
    ...
    framestow.errors.DamagedDataError: MANIFEST.000001: frames.bytes is -1: it must be an integer from 0 to ...
    """

    def __init__(self, values: Any, file: str, path: str = "") -> None:
        if not isinstance(values, dict):
            raise DamagedDataError(
                f"{file}: {path or 'it'} is {_shorten(values)}: it must be an object with named fields; "
                f"{_repair_hint(file)}"
            )
        # The JSON object itself.
        self.values: dict[str, Any] = values
        # For messages: the name of the file, and the dotted name of this object in it.
        self._file, self._prefix = file, path

    def inner(self, name: str) -> CheckedFields:
        """Return the fields of the JSON object in field ``name``."""
        return CheckedFields(self.values.get(name), self._file, self._path(name))

    def integer(self, name: str, low: int = 0, high: int = 2**62) -> int:
        """Return field ``name``, an integer from ``low`` to ``high``."""
        value = self.values.get(name)
        if type(value) is not int or not low <= value <= high:
            raise self._make_error(name, f"an integer from {low} to {high}")
        return value

    def integers(self, name: str, count: int | None = None) -> list[int]:
        """Return field ``name``, a list of integers >= 0; ``count`` of them unless it is ``None``."""
        value: list[int] = self.values.get(name)  # type: ignore[assignment]  # the next line checks it
        is_list = isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
        if not is_list or count not in (None, len(value)):
            raise self._make_error(name, f"a list of {'' if count is None else f'{count} '}integers >= 0")
        return value

    def each(self, name: str) -> list[CheckedFields]:
        """Return the fields of each JSON object in the list in field ``name``."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise self._make_error(name, "a list")
        return [CheckedFields(one, self._file, f"{self._path(name)}[{index}]") for index, one in enumerate(value)]

    def boolean(self, name: str) -> bool:
        """Return field ``name``, true or false."""
        value = self.values.get(name)
        if not isinstance(value, bool):
            raise self._make_error(name, "true or false")
        return value

    def text(self, name: str) -> str:
        """Return field ``name``, a string."""
        value = self.values.get(name)
        if not isinstance(value, str):
            raise self._make_error(name, "a string")
        return value

    def texts(self, name: str) -> list[str]:
        """Return field ``name``, a list of strings."""
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._make_error(name, "a list of strings")
        return value

    def file_name(self, name: str) -> str:
        """Return field ``name``, the name of a file in the same folder."""
        value = self.text(name)
        if not value or "/" in value or "\\" in value or "\0" in value or value in (".", ".."):
            raise self._make_error(name, "the name of a file in the same folder")
        return value

    def _path(self, name: str) -> str:
        return f"{self._prefix}.{name}" if self._prefix else name

    def _make_error(self, name: str, rule: str) -> DamagedDataError:
        shown = _shorten(self.values.get(name)) if name in self.values else "missing"
        return DamagedDataError(
            f"{self._file}: {self._path(name)} is {shown}: it must be {rule}; {_repair_hint(self._file)}"
        )


def _repair_hint(file: str) -> str:
    return repair_hint(Path(file).parent)


MAX_SHOWN = 60  # characters of a value in an error message


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."

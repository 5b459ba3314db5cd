"""What a store is made of, and the checks of what its manifest says.

::

    MANIFEST.000007            of generation 7: what the memory was, and how much of which files belongs to it
    frames.000001.log .index   sealed segments of frames, by (stream, number of the segment)
    steps.000001.log .index    sealed blocks of steps, by what the timeline calls them
    state.000007.npz           all that is small and changes: open segments, steps of no full block, one entry a stream
    LOCK                       held by the one writer
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from framestow.errors import DamagedDataError, FramestowError
from framestow.replay.saving.checked_fields import WAY_OUT, CheckedFields
from framestow.storage.files.block_format import INDEX, LOG, FileState, LogState, file_name
from framestow.storage.files.file_system import DISK, FileSystem
from framestow.storage.files.manifest import manifest_path, read_manifest

KIND: Final = "framestow memory"
VERSION: Final = 1
FRAMES, STEPS = "frames", "steps"  # names of the logs
LOCK: Final = "LOCK"


class Manifest(NamedTuple):
    """A manifest whose fields are of the right kinds."""

    generation: int
    commit: str
    """Drawn at random for each commit, so that two memories that save to one folder are told apart."""
    memory: dict[str, Any]
    """Settings, sampler and generator, as ``MemoryParts.state`` gave them."""
    frames_per_segment: int
    num_transitions: int
    frames: LogState
    steps: LogState
    state: dict[str, Any]
    """Name, size and checksum of the file of small things."""
    kept: list[int]
    """Older generations that stay until they are told to go."""
    is_pinned: bool
    """Whether this one stays too, when it is no more the newest."""
    is_closed: bool
    """Whether nothing that came after is missing: a memory was closed with it, or saved from elsewhere."""


def file_names(manifest: Manifest) -> set[str]:
    """Names of the files that a manifest names; the logs' indices are among them."""
    logs = {FRAMES: manifest.frames, STEPS: manifest.steps}
    return {manifest.state["name"]} | {
        file_name(name, file["number"], ending)
        for name, log in logs.items()
        for file in log["files"]
        for ending in (LOG, INDEX)
    }


def manifest_content(manifest: Manifest) -> dict[str, Any]:
    """What ``write_manifest`` takes."""
    content = manifest._asdict()
    del content["generation"]
    return content


def checked_manifest(folder: Path, generation: int, files: FileSystem = DISK) -> Manifest:
    """Read the manifest of a generation.

    Raises ``FileNotFoundError`` without it, ``DamagedDataError`` naming it, and the field that cannot be what was
    written, ``IncompatibleError`` for another version.
    """
    file = str(manifest_path(folder, generation))
    try:
        content = read_manifest(folder, KIND, VERSION, generation=generation, files=files)
    except FramestowError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise DamagedDataError(f"{file}: it is no manifest ({error}); {WAY_OUT}") from error
    return manifest_of(content, file, generation)


def manifest_of(content: Any, file: str, generation: int) -> Manifest:
    """Check the fields of a manifest that was read from ``file``; ``DamagedDataError`` names it and the field."""
    fields = CheckedFields(content, file)
    entry = fields.inner("state")
    entry.file_name("name"), entry.integer("bytes"), entry.integer("checksum")
    return Manifest(
        generation=generation,
        commit=fields.text("commit"),
        memory=fields.inner("memory").values,
        frames_per_segment=fields.integer("frames_per_segment", 1),
        num_transitions=fields.integer("num_transitions"),
        frames=_checked_log(fields.inner("frames")),
        steps=_checked_log(fields.inner("steps")),
        state=entry.values,
        kept=fields.integers("kept"),
        is_pinned=fields.boolean("is_pinned"),
        is_closed=fields.boolean("is_closed"),
    )


def _checked_log(fields: CheckedFields) -> LogState:
    """The state of a log."""
    files = [
        FileState(number=file.integer("number", 1), bytes=file.integer("bytes"), blocks=file.integer("blocks"))
        for file in fields.each("files")
    ]
    return LogState(files=files, next_file=fields.integer("next_file", 1))

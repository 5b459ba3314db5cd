"""The options of a ``ReplayMemory`` that drop-ins take, beside the arguments of the library's own buffer.

A drop-in declares ``**memory: Unpack[MemoryOptions]``, so a type checker refuses any other keyword. ``take_options``
does so at run time, where libraries pass plain dicts on. What is left out has the default of ``ReplayMemory``.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, TypedDict

from framestow.checks import folder_path, whole_number
from framestow.keywords import refuse_arguments
from framestow.replay.settings.memory_settings import check_unpacking
from framestow.replay.store.open_store import check_flush_every
from framestow.storage.frame_storage import Storage


class PackingOptions(TypedDict, total=False):
    """The options of a drop-in whose memory stays in RAM."""

    threads: int
    """Number of threads that unpack a batch, 1 to 64; 1 by default."""
    storage: Storage
    """``"packed"``, the default, compresses frames; ``"raw"`` stores them uncompressed."""
    frames_per_segment: int | None
    """Number of frames that are compressed, and later evicted, together; ``None`` chooses what compresses best."""


class MemoryOptions(PackingOptions, total=False):
    """The options of a drop-in that may live in a folder."""

    directory: str | PathLike[str] | None
    """Folder of the frames; ``None``, the default, keeps them in RAM."""
    flush_every: float | None
    """Seconds between two flushes to ``directory``, 5 by default; with ``None`` only ``memory.flush()`` flushes."""


class BudgetOptions(MemoryOptions, total=False):
    """The options of a drop-in that may also store fewer steps than it has room for."""

    max_bytes: int | str | None
    """Maximum size in RAM and files, such as ``"8 GiB"``; the oldest steps are evicted to stay below it."""


IN_RAM = "not possible here: this buffer stays in RAM, and has room for all its steps; use a ReplayMemory"
OF_FRAMES = (
    "not an argument here: the shape of the observations says it; give frame_stack, or the "
    "library's own argument, if it does not"
)
OF_RETURNS = "not an argument here: this buffer stores single steps; give the library's own argument for returns"
OF_DRAWS = "not an argument here: the library draws; seed its generator, or choose another of its buffers"
NOT_TAKEN = {
    "stack": OF_FRAMES,
    "stack_axis": OF_FRAMES,
    "stack_padding": OF_FRAMES,
    "n_step": OF_RETURNS,
    "discount": OF_RETURNS,
    "sampler": OF_DRAWS,
    "seed": OF_DRAWS,
    "num_envs": "not an argument here: a library that has several environments names them; give its own argument",
    "label": "not an argument here: only ReplayMemory has one; leave it out",
    "extras": "not possible here: the library's buffer has no such fields; use a ReplayMemory",
    "retention": "not possible here: the library's buffer evicts its oldest steps; use a ReplayMemory",
    "on_damage": "not possible here: the library draws every row, also a damaged one; load the store with "
    "ReplayMemory.open(..., on_damage='skip')",
    **dict.fromkeys(("directory", "flush_every", "max_bytes"), IN_RAM),
}
"""Why a drop-in does not take an argument of ``ReplayMemory``, unless it has one of that name itself."""


def take_options(
    owner: type, kind: type, given: Mapping[str, Any], reasons: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the options of ``kind`` in ``given``, checked; ``directory`` is a path.

    Raises:
        InvalidSettingsError: one has a wrong value, or is neither an option nor an argument of ``owner``. ``reasons``
            says by name why an option of a memory is none here.
    """
    known = kind.__annotations__
    others = {name: value for name, value in given.items() if name not in known}
    own_reasons = dict(reasons or {})
    refuse_arguments(owner, others, NOT_TAKEN | own_reasons, known.keys() | own_reasons)
    options = {name: value for name, value in given.items() if name in known}
    check_unpacking(options.get("storage", "packed"), options.get("threads", 1))
    check_flush_every(options.get("flush_every"))
    if options.get("frames_per_segment") is not None:
        whole_number("frames_per_segment", options["frames_per_segment"], 1, rule="a segment has at least 1 frame")
    if options.get("directory") is not None:
        options["directory"] = folder_path("directory", options["directory"])
    return options

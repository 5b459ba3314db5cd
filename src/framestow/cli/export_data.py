"""``framestow export``: a store in other people's formats."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from framestow.cli.progress_bars import byte_bar, show_bytes, show_transfer

if TYPE_CHECKING:
    from framestow.offline.transfer import Progress, Transferred
    from framestow.replay.memory import ReplayMemory


@dataclasses.dataclass(frozen=True)
class ExportDqnReplay:
    """The layout of the DQN Replay Dataset, as Dopamine's replay memory loads it: frames of uint8, counted actions."""

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of a memory, a run or a checkpoint."""

    to: Path
    """Folder to make."""

    cut_ends: Literal["refuse", "terminal", "new_checkpoint"] = "refuse"
    """What becomes of episodes that were truncated or cut off, which the layout cannot say: refuse to write, mark them
    as terminal as Dopamine does, or begin a new checkpoint after each, which keeps them as they are."""

    slots_per_checkpoint: int = 1_000_000
    """Slots in a checkpoint at most: 1,000,000 in the dataset."""

    compression_level: int = 6
    """Of gzip: 0 (none) to 9 (smallest, and slow)."""

    def run(self, console: Console) -> int:
        """Export, and show the bytes before and after; return the exit code."""
        from framestow.offline.dqn_replay import export_dqn_replay  # noqa: PLC0415 -- help does not wait

        def write(memory: ReplayMemory, folder: Path, show: Progress) -> Transferred:
            return export_dqn_replay(
                memory,
                folder,
                cut_ends=self.cut_ends,
                slots_per_checkpoint=self.slots_per_checkpoint,
                compression_level=self.compression_level,
                progress=show,
            )

        return _export(console, "DQN Replay", self.store, self.to, write)


@dataclasses.dataclass(frozen=True)
class ExportMinari:
    """A Minari dataset, losslessly: single frames, every episode with its true last one."""

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of a memory, a run or a checkpoint."""

    to: Path
    """Folder of Minari datasets, as MINARI_DATASETS_PATH names it; the dataset lies there under its id."""

    dataset_id: str
    """Name of the dataset, with a version: atari/breakout/mixed-v0."""

    environment: str | None = None
    """Gymnasium's id of the environment that it was recorded from: ALE/Breakout-v5."""

    data_format: Literal["hdf5", "arrow", "parquet"] = "hdf5"
    """How Minari keeps it; arrow and parquet need pip install "minari[arrow]"."""

    description: str | None = None
    """What the dataset is."""

    algorithm: str | None = None
    """What played."""

    author: str | None = None
    """Who recorded it."""

    author_email: str | None = None
    """Where to ask."""

    code_permalink: str | None = None
    """Where the code is that recorded it."""

    def run(self, console: Console) -> int:
        """Export, and show the bytes before and after; return the exit code."""
        from framestow.offline.minari import MinariDescription, export_minari  # noqa: PLC0415 -- as above

        description = MinariDescription(self.dataset_id, self.environment, self.data_format, self._metadata())

        def write(memory: ReplayMemory, folder: Path, show: Progress) -> Transferred:
            return export_minari(memory, folder, description, show)

        return _export(console, "Minari", self.store, self.to / self.dataset_id, write)

    def _metadata(self) -> dict[str, Any]:
        given = {
            "description": self.description,
            "algorithm_name": self.algorithm,
            "author": {self.author} if self.author else None,
            "author_email": {self.author_email} if self.author_email else None,
            "code_permalink": self.code_permalink,
        }
        return {name: value for name, value in given.items() if value}


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a store in another format: the DQN Replay Dataset's layout or a Minari dataset.

    Nothing is at the place that --to says until everything is there. Needs the extra 'offline'.
    """

    target: Annotated[
        Annotated[ExportDqnReplay, tyro.conf.subcommand("dqn-replay")]
        | Annotated[ExportMinari, tyro.conf.subcommand("minari")],
        tyro.conf.arg(name=""),
    ]

    def run(self, console: Console) -> int:
        """Export to that format; return the exit code."""
        return self.target.run(console)


def _export(
    console: Console,
    name: str,
    store: Path,
    to: Path,
    write: Callable[[ReplayMemory, Path, Progress], Transferred],
) -> int:
    from framestow import ReplayMemory, Uniform  # noqa: PLC0415 -- as above
    from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
    from framestow.offline.transfer import bytes_of_folder  # noqa: PLC0415

    start = time.monotonic()
    saved = find_memory(store)
    # Nothing is sampled here, so any sampler will do.
    memory = ReplayMemory.open(saved.folder, generation=saved.generation, sampler=Uniform())
    with byte_bar(console, "exporting") as show:
        told = write(memory, to, show)
    show_transfer(console, told, time.monotonic() - start)
    raw_bytes = (told.transitions + told.episodes) * memory._settings.frame.nbytes
    show_bytes(
        console,
        ("framestow", bytes_of_folder(saved.folder), memory.nbytes),
        (name, bytes_of_folder(to), raw_bytes),
    )
    console.print(f"written to {to}", highlight=False, soft_wrap=True)
    return 0

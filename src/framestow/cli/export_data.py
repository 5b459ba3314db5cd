"""``framestow export``: convert a store into another dataset format."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.printing import print_line
from framestow.cli.progress_bars import ProgressDisplay, show_bytes, show_transfer
from framestow.errors import InvalidSettingsError

if TYPE_CHECKING:
    from framestow.offline.transfer import Progress, Transferred
    from framestow.replay.memory import ReplayMemory


@dataclasses.dataclass(frozen=True)
class ExportDqnReplay:
    """Write the layout of the DQN Replay Dataset, which Dopamine loads: uint8 frames and discrete actions.

      framestow export dqn-replay stores/breakout --to dqn/mine

    The folder --to appears when the export is complete.
    """

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of a memory, a run or a checkpoint."""

    to: Path
    """New folder to write."""

    cut_ends: Literal["refuse", "terminal", "new_checkpoint"] = "refuse"
    """How to write truncated and cut-off episodes, which the layout cannot mark. refuse: stop with an error;
    terminal: mark them as terminal, as Dopamine does; new_checkpoint: start a new checkpoint after each one."""

    slots_per_checkpoint: int = 1_000_000
    """Maximum number of slots per checkpoint; the dataset has 1,000,000."""

    compression_level: int = 6
    """Compression level of gzip, from 0 (none) to 9 (smallest and slowest)."""

    def run(self, console: Console) -> int:
        """Export the store, print the sizes before and after, and return the exit code."""
        from framestow.offline.dqn_replay import export_dqn_replay  # noqa: PLC0415 -- slow import

        def write(memory: ReplayMemory, folder: Path, show: Progress) -> Transferred:
            return export_dqn_replay(
                memory,
                folder,
                cut_ends=self.cut_ends,
                slots_per_checkpoint=self.slots_per_checkpoint,
                compression_level=self.compression_level,
                progress=show,
            )

        with _options_in_errors(ExportDqnReplay):
            return _export(console, "DQN Replay", self.store, self.to, write)


@dataclasses.dataclass(frozen=True)
class ExportMinari:
    """Write a Minari dataset without loss: single frames, every episode with its true last frame.

      framestow export minari stores/breakout --to data --dataset-id atari/mine-v0

    The dataset appears when the export is complete.
    """

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of a memory, a run or a checkpoint."""

    to: Path
    """Folder of Minari datasets (MINARI_DATASETS_PATH). The dataset is written into the subfolder named by its id."""

    dataset_id: str
    """Id of the dataset, with a version: atari/breakout/mixed-v0."""

    environment: str | None = None
    """Gymnasium id of the recorded environment: ALE/Breakout-v5."""

    data_format: Literal["hdf5", "arrow", "parquet"] = "hdf5"
    """File format of the dataset; arrow and parquet need pip install "minari[arrow]"."""

    description: str | None = None
    """Description of the dataset."""

    algorithm: str | None = None
    """Name of the algorithm that played."""

    author: str | None = None
    """Name of the author."""

    author_email: str | None = None
    """E-mail address of the author."""

    code_permalink: str | None = None
    """Link to the code that recorded the dataset."""

    def run(self, console: Console) -> int:
        """Export the store, print the sizes before and after, and return the exit code."""
        from framestow.offline.minari import MinariDescription, export_minari  # noqa: PLC0415 -- slow import

        description = MinariDescription(self.dataset_id, self.environment, self.data_format, self._metadata())

        def write(memory: ReplayMemory, folder: Path, show: Progress) -> Transferred:
            return export_minari(memory, folder, description, show)

        with _options_in_errors(ExportMinari):
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


@contextmanager
def _options_in_errors(command: type) -> Iterator[None]:
    """Write the options of ``command`` in an ``InvalidSettingsError`` that names Python arguments.

    ``cut_ends='terminal'`` becomes ``--cut-ends terminal``, and ``dataset_id is`` becomes ``--dataset-id is``.
    """
    try:
        yield
    except InvalidSettingsError as error:
        text = str(error)
        for field in dataclasses.fields(command):
            option = f"--{field.name.replace('_', '-')}"
            text = re.sub(rf"\b{field.name}='(\w+)'", rf"{option} \1", text)
            text = re.sub(rf"\b{field.name}\b" if "_" in field.name else rf"^{field.name}(?= is )", option, text)
        raise InvalidSettingsError(text) from error


def _export(
    console: Console,
    name: str,
    store: Path,
    to: Path,
    write: Callable[[ReplayMemory, Path, Progress], Transferred],
) -> int:
    from framestow import ReplayMemory, Uniform  # noqa: PLC0415 -- slow import
    from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
    from framestow.offline.transfer import bytes_of_folder  # noqa: PLC0415

    start = time.monotonic()
    check_output("to", to, is_folder=True)
    saved = find_memory(store)
    # The export samples nothing, so the sampler does not matter.
    with ProgressDisplay(console, "opening the store"):
        memory = ReplayMemory.open(saved.folder, generation=saved.generation, sampler=Uniform())
    with ProgressDisplay(console, "exporting", "bytes") as show:
        transferred = write(memory, to, show)
    show_transfer(console, transferred, time.monotonic() - start)
    raw_bytes = (transferred.transitions + transferred.episodes) * memory.inner.settings.frame.nbytes
    show_bytes(
        console,
        ("framestow", bytes_of_folder(saved.folder), memory.nbytes),
        (name, bytes_of_folder(to), raw_bytes),
    )
    print_line(console, f"written to {to}")
    return 0

"""``framestow export``: convert a store into a Minari dataset."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.printing import print_line
from framestow.cli.progress_bars import ProgressDisplay, show_bytes, show_transfer
from framestow.errors import InvalidSettingsError


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
        from framestow import ReplayMemory, Uniform  # noqa: PLC0415 -- slow import
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.offline.minari import MinariDescription, export_minari  # noqa: PLC0415
        from framestow.offline.transfer import bytes_of_folder  # noqa: PLC0415

        start = time.monotonic()
        description = MinariDescription(self.dataset_id, self.environment, self.data_format, self._metadata())
        to = self.to / self.dataset_id
        check_output("to", to, is_folder=True)
        saved = find_memory(self.store)
        # The export samples nothing, so the sampler does not matter.
        with ProgressDisplay(console, "opening the store"):
            memory = ReplayMemory.open(saved.folder, generation=saved.generation, sampler=Uniform())
        with _options_in_errors(), ProgressDisplay(console, "exporting", "bytes") as show:
            transferred = export_minari(memory, to, description, show)
        show_transfer(console, transferred, time.monotonic() - start)
        raw_bytes = (transferred.transitions + transferred.episodes) * memory.inner.settings.frame.nbytes
        show_bytes(
            console,
            ("framestow", bytes_of_folder(saved.folder), memory.nbytes),
            ("Minari", bytes_of_folder(to), raw_bytes),
        )
        print_line(console, f"written to {to}")
        return 0

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
def _options_in_errors() -> Iterator[None]:
    """Write options in an ``InvalidSettingsError`` that names Python arguments: ``dataset_id`` as ``--dataset-id``."""
    try:
        yield
    except InvalidSettingsError as error:
        text = str(error)
        for field in dataclasses.fields(ExportMinari):
            option = f"--{field.name.replace('_', '-')}"
            text = re.sub(rf"\b{field.name}\b" if "_" in field.name else rf"^{field.name}(?= is )", option, text)
        raise InvalidSettingsError(text) from error

"""``framestow repair``: keeps what is whole of a damaged memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro
from rich.console import Console

from framestow.cli.verify import DAMAGED, WHOLE, show_verification


@dataclasses.dataclass(frozen=True)
class Repair:
    """Keep what is whole of a damaged memory on the disk: all transitions but those that damage touches.

    Verifies first. What is taken out is moved into damaged-TIME/ in the memory's folder, never deleted; a repair that
    is broken off can be begun again. Nobody else may write there meanwhile. Exit code 0: the memory is whole now;
    1: it is damaged, and --dry-run changed nothing; 2: refused, or there is nothing that could be kept.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    dry_run: bool = False
    """Only say what would be done."""

    def run(self, console: Console) -> int:
        """Repair and tell; return the exit code."""
        # Help does not wait for what reads.
        from framestow.cli.progress_bars import ReadingBar  # noqa: PLC0415
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.replay.store.repair import repair_store  # noqa: PLC0415

        folder = find_memory(self.folder).folder
        with ReadingBar(console, "verifying") as progress:
            repair = repair_store(folder, dry_run=self.dry_run, progress=progress)
        show_verification(repair.found, console)
        if repair.found.is_intact:
            console.print("nothing to repair")
            return WHOLE
        console.print("what would be done:" if self.dry_run else "what was done:")
        for action in repair.actions:
            console.print(f"  {action}", soft_wrap=True, highlight=False, markup=False)
        if repair.moved_to:
            told = f"what was taken out lies in {repair.moved_to}"
            console.print(told, soft_wrap=True, highlight=False, markup=False)
        return DAMAGED if self.dry_run else WHOLE

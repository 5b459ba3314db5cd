"""``framestow repair``: remove the damaged parts of a saved replay memory."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import tyro
from rich.console import Console

from framestow.cli.printing import print_line
from framestow.cli.verify import DAMAGED, WHOLE, show_verification


@dataclasses.dataclass(frozen=True)
class Repair:
    """Repair a damaged replay memory on disk: keep every whole transition and remove the damaged ones.

      framestow repair runs/Breakout-baselines-s0-20260131-174500 --dry-run
      framestow repair my.memory

    Verifies first. Removed files are moved into damaged-TIME/ in the folder of the memory; nothing is deleted. An
    interrupted repair can be started again. No other process may write there meanwhile. Exit codes: 0 for a memory
    that is whole now, 1 for a damaged one after --dry-run, 2 for a refusal or if no transition can be kept.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    dry_run: bool = False
    """Print the repair without changing any file."""

    def run(self, console: Console) -> int:
        """Repair the memory, print each change and return the exit code."""
        # Imported here: --help must not wait for them.
        from framestow.cli.progress_bars import ProgressDisplay  # noqa: PLC0415
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.replay.store.repair import repair_store  # noqa: PLC0415

        folder = find_memory(self.folder).folder
        with ProgressDisplay(console, "verifying", "bytes") as progress:
            repair = repair_store(folder, dry_run=self.dry_run, progress=progress)
        show_verification(repair.found, console, advises_repair=False)
        if repair.found.is_intact:
            console.print("nothing to repair")
            return WHOLE
        console.print("planned changes:" if self.dry_run else "changes made:")
        for action in repair.actions:
            print_line(console, f"  {action}")
        if repair.moved_to:
            print_line(console, f"the damaged files are now in {repair.moved_to}")
        return DAMAGED if self.dry_run else WHOLE

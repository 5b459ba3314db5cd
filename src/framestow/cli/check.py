"""``framestow verify`` and ``framestow repair``: check every byte of a memory, remove what is damaged."""

from __future__ import annotations

import dataclasses
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console

from framestow.cli.printing import ProgressDisplay, print_json, print_line

if TYPE_CHECKING:
    from framestow.replay.store.verify import Verification


WHOLE, DAMAGED = 0, 1  # exit codes
MAX_SHOWN = 40  # findings


@dataclasses.dataclass(frozen=True)
class Verify:
    """Read every byte of a saved replay memory, unpack every frame and print each damage.

      framestow verify runs/Breakout-baselines-s0-20260131-174500
      framestow verify my.memory --json

    Takes the folder of a memory, of a run or of a checkpoint, and only reads there. Exit codes: 0 for a whole
    memory, 1 for a damaged one, 2 for a folder without a memory or with one of another format version.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    json: bool = False
    """Print one JSON object instead of text."""

    def run(self, console: Console) -> int:
        """Verify the memory, print the result and return the exit code."""
        # Imported here: --help must not wait for them.
        from framestow.cli.saved_memory import find_memories  # noqa: PLC0415
        from framestow.replay.store.verify import verify_store  # noqa: PLC0415

        verifications = []
        announce = (lambda _: None) if self.json else partial(show_work_space, console)
        for found in find_memories(self.folder):
            with ProgressDisplay(console, "verifying", "bytes", is_shown=not self.json) as progress:
                verifications.append(verify_store(found.folder, progress, announce=announce))
            if not self.json:
                show_verification(verifications[-1], console)
        if self.json:
            contents = [as_json(verification) for verification in verifications]
            print_json(console, contents[0] if len(contents) == 1 else {"shards": contents})
        return WHOLE if all(verification.is_intact for verification in verifications) else DAMAGED


def show_work_space(console: Console, num_bytes: int) -> None:
    """Print how much memory verifying takes, before it starts."""
    from framestow.replay.eviction.byte_amounts import format_bytes  # noqa: PLC0415

    print_line(console, f"takes up to {format_bytes(num_bytes)} of memory")


def show_verification(verification: Verification, console: Console, *, advises_repair: bool = True) -> None:
    """Print how much was read, each damage with the transitions it costs, and the result."""
    from framestow.replay.eviction.byte_amounts import format_bytes  # noqa: PLC0415

    say = partial(print_line, console)

    say(f"{verification.folder}")
    say(
        f"read {verification.num_blocks:,} {'block' if verification.num_blocks == 1 else 'blocks'}, "
        f"{format_bytes(verification.num_bytes)}, of "
        + ("generation " if len(verification.generations) == 1 else "generations ")
        + (", ".join(map(str, verification.generations)) or "unknown")
    )
    for finding in verification.findings[:MAX_SHOWN]:
        place = finding.file.name + ("" if finding.offset is None else f", offset {finding.offset:,}")
        cost = "" if not finding.transitions else f" ({finding.transitions:,} transitions lost)"
        say(f"  {place}: {finding.what}{cost}", "red")
    if len(verification.findings) > MAX_SHOWN:
        say(f"  and {len(verification.findings) - MAX_SHOWN:,} more places", "red")
    if verification.is_intact:
        say(f"all {verification.transitions:,} transitions are whole", "green")
    else:
        num_findings = len(verification.findings)
        places = "1 place" if num_findings == 1 else f"{num_findings:,} places"
        way_out = ""
        if not verification.transitions:
            way_out = "; load an older save"
        elif advises_repair:
            way_out = f"; to keep the whole ones, run: framestow repair {shlex.quote(str(verification.folder))}"
        say(
            f"damaged in {places}: {verification.transitions:,} transitions are whole, {verification.lost:,} are lost"
            + way_out
        )


def as_json(verification: Verification) -> dict[str, Any]:
    """Return the verification as values that ``json.dumps`` takes."""
    content = dataclasses.asdict(verification) | {
        "folder": str(verification.folder),
        "is_whole": verification.is_intact,
    }
    content["findings"] = [finding._asdict() | {"file": str(finding.file)} for finding in verification.findings]
    return content


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
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.replay.eviction.byte_amounts import format_bytes  # noqa: PLC0415
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
        if self.dry_run and repair.copied_bytes:
            print_line(console, f"the copy needs up to {format_bytes(repair.copied_bytes)} of free disk")
        if repair.moved_to:
            print_line(console, f"the damaged files are now in {repair.moved_to}")
        return DAMAGED if self.dry_run else WHOLE

"""``framestow verify``: whether every byte of a saved memory is what was written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro
from rich.console import Console

if TYPE_CHECKING:
    from framestow.replay.store.verify import Verification

WHOLE, DAMAGED = 0, 1
MAX_SHOWN = 40  # findings


@dataclasses.dataclass(frozen=True)
class Verify:
    """Read every byte of a memory on the disk, unpack every frame, and tell what is not as it was written.

    Takes the folder of a memory, of a run or of a checkpoint, and changes nothing there. Exit code 0: all is whole;
    1: something is damaged; 2: there is no memory, or one of another version.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    json: bool = False
    """Print one JSON object instead."""

    def run(self, console: Console) -> int:
        """Verify and tell; return the exit code."""
        # Help does not wait for what reads.
        from framestow.cli.progress_bars import ReadingBar  # noqa: PLC0415
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.replay.store.verify import verify_store  # noqa: PLC0415

        folder = find_memory(self.folder).folder
        with ReadingBar(console, "verifying", is_shown=not self.json) as progress:
            verification = verify_store(folder, progress)
        if self.json:
            print(json.dumps(as_json(verification), indent=1))
        else:
            show_verification(verification, console)
        return WHOLE if verification.is_intact else DAMAGED


def show_verification(verification: Verification, console: Console) -> None:
    """Say what was gone through, then each damage and what it costs."""
    from framestow.replay.byte_amounts import format_bytes  # noqa: PLC0415

    def say(line: str, style: str = "") -> None:
        console.print(line, style=style, soft_wrap=True, highlight=False, markup=False)

    say(f"{verification.folder}")
    say(
        f"{verification.num_blocks:,} blocks in {format_bytes(verification.num_bytes)} were read, of "
        + ("generation " if len(verification.generations) == 1 else "generations ")
        + ", ".join(map(str, verification.generations))
    )
    for finding in verification.findings[:MAX_SHOWN]:
        place = finding.file.name + ("" if finding.offset is None else f", offset {finding.offset:,}")
        cost = "" if not finding.transitions else f" ({finding.transitions:,} transitions)"
        say(f"  {place}: {finding.what}{cost}", "red")
    if len(verification.findings) > MAX_SHOWN:
        say(f"  and {len(verification.findings) - MAX_SHOWN:,} more", "red")
    if verification.is_intact:
        say(f"all {verification.transitions:,} transitions are whole", "green")
    else:
        num_findings = len(verification.findings)
        places = "1 place" if num_findings == 1 else f"{num_findings:,} places"
        say(
            f"damaged in {places}: {verification.transitions:,} transitions are whole and "
            f"{verification.lost:,} are lost; keep those that are whole with: framestow repair {verification.folder}"
        )


def as_json(verification: Verification) -> dict[str, Any]:
    """Everything as JSON-able values."""
    told = dataclasses.asdict(verification) | {"folder": str(verification.folder), "is_whole": verification.is_intact}
    told["findings"] = [finding._asdict() | {"file": str(finding.file)} for finding in verification.findings]
    return told

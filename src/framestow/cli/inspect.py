"""``framestow inspect``: what a saved memory holds."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import tyro
from rich.console import Console

from framestow.errors import InvalidSettingsError


@dataclasses.dataclass(frozen=True)
class Inspect:
    """Tell what a memory on the disk holds: by game its episodes, returns and ages, and where the bytes are.

    Takes the folder of a memory (what save() wrote, or directory=), of a run or of a checkpoint. Changes nothing
    there, so it works beside whoever is writing. Draws one transition into a picture.
    """

    folder: tyro.conf.Positional[Path]
    """Folder of a memory, a run or a checkpoint."""

    filmstrip: Path | None = None
    """PNG file for the transition; None writes NAME-filmstrip.png where you are, and nothing with --json."""

    key: str = ""
    """Which array is drawn where an observation has several, such as camera or arm.0; the largest picture if empty."""

    seed: int = 0
    """Which transition is drawn; each is equally likely."""

    json: bool = False
    """Print one JSON object instead of tables."""

    def run(self, console: Console) -> int:
        """Look, print and draw; return the exit code."""
        # Help does not wait for what reads and draws.
        from framestow.cli.filmstrip import write_filmstrip  # noqa: PLC0415
        from framestow.cli.inspection_tables import show_inspection  # noqa: PLC0415
        from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
        from framestow.replay.inspection import draw_transition, inspect_memory  # noqa: PLC0415

        if self.seed < 0:
            raise InvalidSettingsError(f"seed is {self.seed}: it must be at least 0; give another --seed")
        found = find_memory(self.folder)
        inspection, memory = inspect_memory(found.folder, found.generation)
        picture = self._picture() if len(memory) else None
        if picture:
            drawn = draw_transition(memory, self.seed)
            write_filmstrip(picture, drawn, memory._settings.frame, inspection.label_of(drawn.env_id), self.key)
        if self.json:
            told = inspection.to_dict() | {"filmstrip": None if picture is None else str(picture)}
            print(json.dumps(told, indent=1))
            return 0
        show_inspection(inspection, console)
        if picture:
            console.print(f"a transition of it is drawn in {picture}", soft_wrap=True, highlight=False, markup=False)
        return 0

    def _picture(self) -> Path | None:
        if self.filmstrip is None and not self.json:
            return Path(f"{self.folder.resolve().name}-filmstrip.png")
        return self.filmstrip

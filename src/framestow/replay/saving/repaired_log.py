"""A log without its damaged bytes: the whole blocks of damaged files copied into new ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from framestow.replay.saving.examined_log import ExaminedLog
from framestow.storage.files.block_format import INDEX, LOG, BlockKey, BlockPlace, FileState, LogState, file_name
from framestow.storage.files.block_log import BlockLogWriter
from framestow.storage.files.file_system import DISK, FileSystem


class RepairedLog:
    """What becomes of one log.

    ``replaced`` are the log files that no generation is to name any more; ``indices`` those of other files that have to
    be written anew.
    """

    def __init__(self, folder: Path, log: ExaminedLog, files: FileSystem = DISK) -> None:
        self._folder, self._log, self._disk = folder, log, files
        self.replaced = {*log.damaged_files, *log.missing}
        damaged_indices = {damage.file for damage in log.damages if damage.file.suffix == f".{INDEX}"}
        self.indices = sorted(path for path in damaged_indices if path.with_suffix(f".{LOG}") not in self.replaced)
        self.moving: dict[BlockKey, BlockPlace] = {}
        """Whole blocks that have to be copied, and where they lie."""
        self._moved: list[FileState] = []
        self._next_file = 1

    def keep(self, state: LogState, keys: Iterable[BlockKey]) -> bool:
        """See to it that whole blocks of a generation stay; tell whether its manifest has to name other files then."""
        named = {self._folder / name for name in _file_names(self._log.name, state)}
        view = self._log.view(state)
        has_to_move = False
        try:
            for key in keys:
                place = view.whole_place(key)
                if place is not None and (place.file in self.replaced or place.file not in named):
                    self.moving[key] = place
                    has_to_move = True
        finally:
            view.close()
        return has_to_move or bool(named & self.replaced)

    def copy_blocks(self) -> None:
        """Copy what has to move into new files; they are on the disk when this returns."""
        if not self.moving:
            return
        in_order = sorted(self.moving.items(), key=lambda item: (item[1].file, item[1].offset))
        with BlockLogWriter.create(self._folder, self._log.name, files=self._disk) as writer:
            for key, place in in_order:
                with self._disk.open_to_read(place.file) as file:
                    writer.append(key, file.read_at(place.offset, place.size))
            state = writer.sync()
        self._moved, self._next_file = state["files"], state["next_file"]

    def state(self, former: LogState) -> LogState:
        """What a manifest that said ``former`` has to say of the log now."""
        names = _file_names(self._log.name, former)
        kept = [
            file for file, name in zip(former["files"], names, strict=True) if self._folder / name not in self.replaced
        ]
        return LogState(files=[*kept, *self._moved], next_file=max(former["next_file"], self._next_file))

    def write_indices(self) -> None:
        """Write the damaged and lost indices anew."""
        if self.indices:
            self._log.repair_indices()

    def told(self) -> Iterator[str]:
        """What is going to be done, in sentences."""
        for path in sorted(self.replaced):
            num_moving = sum(place.file == path for place in self.moving.values())
            num_lost = len({damage.key for damage in self._log.damages if damage.file == path and damage.key})
            if path in self._log.missing:
                yield f"{path.name} is gone, and named no more"
            else:
                moving = "1 whole block is" if num_moving == 1 else f"{num_moving:,} whole blocks are"
                left_out = "1 is" if num_lost == 1 else f"{num_lost:,} are"
                yield f"{path.name}: {moving} copied into a new file, {left_out} left out"
        for path in self.indices:
            yield f"{path.name} is written anew from its log"


def _file_names(name: str, state: LogState) -> list[str]:
    return [file_name(name, file["number"], LOG) for file in state["files"]]

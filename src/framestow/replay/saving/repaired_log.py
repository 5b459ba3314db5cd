"""A log without its damaged bytes: the whole blocks of damaged files copied into new ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from framestow.replay.saving.examined_log import ExaminedLog
from framestow.storage.files.block_format import INDEX, LOG, BlockKey, BlockPlace, LogState, file_name
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
        self._copies: list[_Copies] = []

    def keep(self, generation: int, state: LogState, keys: Iterable[BlockKey]) -> bool:
        """See to it that whole blocks of a generation stay; tell whether its manifest has to name other files then.

        Call it for older generations first.
        """
        named = {self._folder / name for name in _file_names(self._log.name, state)}
        view = self._log.view(state)
        try:
            places = {key: place for key in keys if (place := view.whole_place(key)) is not None}
        finally:
            view.close()
        moving = {key: place for key, place in places.items() if place.file in self.replaced or place.file not in named}
        if moving:
            copies = next((one for one in self._copies if one.fit(places)), None)
            if copies is None:
                self._copies.append(copies := _Copies())
            copies.add(generation, moving)
        return bool(moving or named & self.replaced)

    def copy_blocks(self) -> None:
        """Copy what has to move into new files; they are on the disk when this returns."""
        for copies in self._copies:
            with BlockLogWriter.create(self._folder, self._log.name, files=self._disk) as writer:
                for generation, moving in copies.moving.items():
                    for key, place in sorted(moving.items(), key=lambda item: (item[1].file, item[1].offset)):
                        with self._disk.open_to_read(place.file) as file:
                            writer.append(key, file.read_at(place.offset, place.size))
                    copies.states[generation] = writer.sync()

    def state(self, generation: int, former: LogState) -> LogState:
        """What the manifest of a generation that said ``former`` has to say of the log now."""
        names = _file_names(self._log.name, former)
        kept = [
            file for file, name in zip(former["files"], names, strict=True) if self._folder / name not in self.replaced
        ]
        copied = next((one.states[generation] for one in self._copies if generation in one.states), None)
        next_files = [state["next_file"] for one in self._copies for state in one.states.values()]
        return LogState(
            files=kept + (copied["files"] if copied else []), next_file=max([former["next_file"], *next_files])
        )

    def write_indices(self) -> None:
        """Write the damaged and lost indices anew."""
        if self.indices:
            self._log.repair_indices()

    def told(self) -> Iterator[str]:
        """What is going to be done, in sentences."""
        for path in sorted(self.replaced):
            places = {place for copies in self._copies for place in copies.places.values()}
            num_moving = sum(place.file == path for place in places)
            num_lost = len({damage.key for damage in self._log.damages if damage.file == path and damage.key})
            if path in self._log.missing:
                yield f"{path.name} is gone, and named no more"
            else:
                moving = "1 whole block is" if num_moving == 1 else f"{num_moving:,} whole blocks are"
                left_out = "1 is" if num_lost == 1 else f"{num_lost:,} are"
                yield f"{path.name}: {moving} copied into a new file, {left_out} left out"
        for path in self.indices:
            yield f"{path.name} is written anew from its log"


class _Copies:
    """Blocks that are copied into one row of new files, by generation those that it names beside those before it.

    So a generation names, as where no repair was, no block of what came after it: whoever goes on from it would take
    that for its own of the same number. Nor a block of the same number that other steps led to.
    """

    def __init__(self) -> None:
        self.places: dict[BlockKey, BlockPlace] = {}
        self.moving: dict[int, dict[BlockKey, BlockPlace]] = {}
        self.states: dict[int, LogState] = {}
        """Of the new log, once it is written."""

    def fit(self, places: dict[BlockKey, BlockPlace]) -> bool:
        """Whether a generation whose blocks lie at ``places`` may name all of these too."""
        newest: dict[int, int] = {}
        for key in places:
            newest[key.stream] = max(key.number, newest.get(key.stream, -1))
        return all(
            places[key] == place if key in places else key.number < newest.get(key.stream, -1)
            for key, place in self.places.items()
        )

    def add(self, generation: int, moving: dict[BlockKey, BlockPlace]) -> None:
        """Copy these for a generation, but for those that are copied already."""
        self.moving[generation] = {key: place for key, place in moving.items() if key not in self.places}
        self.places |= moving


def _file_names(name: str, state: LogState) -> list[str]:
    return [file_name(name, file["number"], LOG) for file in state["files"]]

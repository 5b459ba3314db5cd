"""``framestow bench``: storage and sampling on this machine, beside other libraries' memories."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from framestow.errors import InvalidSettingsError, MissingExtraError
from framestow.replay.byte_amounts import GIB

if TYPE_CHECKING:
    from framestow.benchmarking.measurement import BenchSettings


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure bytes a transition and the time of sample() on a game, for framestow and other installed libraries.

    Plays the game at random, fills every memory with this play repeatedly, checks that each returns what it was fed,
    and times them in turn. Prints a table and writes bench.json and bench.png.
    """

    game: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME")] = "Breakout"
    """Atari game, as framestow train takes it: Breakout, MsPacman, …"""

    transitions: int = 200_000
    """Transitions in framestow's memory; the others store as many as fit their share of memory and time."""

    batch_size: int = 32
    """Transitions in a sample."""

    threads: int = 1
    """Threads that framestow unpacks a batch with; the others use their defaults."""

    rounds: int = 200
    """Rounds in which each system samples 5 batches in turn; the median counts."""

    libraries: tuple[str, ...] = ("auto",)
    """Libraries to compare with: auto (all that are installed), none, or names such as tianshou torchrl."""

    out: Path | None = None
    """Folder for bench.json and bench.png; by default bench-GAME."""

    frames: int = 20_000
    """Frames to play; the memories are filled with them repeatedly."""

    stack: int = 4
    """Frames in an observation."""

    preset: str = "machado2018"
    """Recipe of the environment: machado2018 (sticky actions 0.25), nature, baselines, dopamine or envpool."""

    max_gib: float | None = None
    """GiB that all systems may take together; by default 12, or half of the free memory if that is less."""

    fill_seconds: float = 20.0
    """Seconds after which filling stops for a library that reserves less than a frame a transition."""

    seed: int = 0
    """Seed of the game, of the random play and of the sampling."""

    def run(self, console: Console) -> int:
        """Play, fill, check, time, print and write; return the exit code."""
        # Imported here so that --help does not load the emulator.
        from framestow.benchmarking.libraries import chosen_libraries  # noqa: PLC0415
        from framestow.benchmarking.measurement import measure  # noqa: PLC0415
        from framestow.benchmarking.play import record_play  # noqa: PLC0415
        from framestow.benchmarking.report import table, write_plot  # noqa: PLC0415
        from framestow.benchmarking.result_files import write_result  # noqa: PLC0415

        _require_matplotlib()
        if self.out is not None and self.out.is_file():
            raise InvalidSettingsError(f"out is {self.out}: that is a file; give a folder with --out")
        settings = self._settings()
        libraries, missing = chosen_libraries(self.libraries)
        with _Progress(console) as progress:
            others = ", ".join(library.key for library in libraries) or "no other library"
            console.print(
                f"playing {self.frames:,} frames, then filling and timing framestow and {others}; "
                "Ctrl-C stops without writing anything",
                soft_wrap=True,
                highlight=False,
            )
            play = record_play(
                self.game, self.frames, self.preset, self.seed, lambda done: progress.show("playing", done, self.frames)
            )
            figures = measure(play, self.preset, settings, libraries, progress.show)
        console.print(table(figures, missing))
        folder = Path(f"bench-{figures.game}") if self.out is None else self.out
        not_installed = {"not_installed": {library.key: library.install_command for library in missing}}
        result = write_result(folder / "bench.json", figures.to_dict() | not_installed)
        plot = write_plot(figures, folder / "bench.png")
        console.print(f"written to {result} and {plot}", soft_wrap=True, highlight=False)
        return 0

    def _settings(self) -> BenchSettings:
        from framestow.benchmarking.measurement import BenchSettings, affordable_bytes  # noqa: PLC0415 -- as above

        if self.max_gib is not None and self.max_gib <= 0:
            raise InvalidSettingsError(f"max_gib is {self.max_gib:g}: it must be above 0; give a larger --max-gib")
        return BenchSettings(
            transitions=self.transitions,
            batch_size=self.batch_size,
            threads=self.threads,
            stack=self.stack,
            rounds=self.rounds,
            max_bytes=affordable_bytes() if self.max_gib is None else int(self.max_gib * GIB),
            fill_seconds=self.fill_seconds,
            seed=self.seed,
        )


def _require_matplotlib() -> None:
    """Raise ``MissingExtraError`` before anything is measured."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError(
            "framestow bench needs matplotlib: it is part of the extra 'bench', which is not installed; "
            'run: pip install "framestow[bench]"'
        )


class _Progress(Progress):
    """A progress bar for the current work."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.add_task("")
        self._what = ""

    def show(self, what: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` of ``what`` is done."""
        if what != self._what:
            self._what = what
            self.reset(self._task, total=total, description=what)
        self.update(self._task, completed=done)

"""``framestow bench``: compare storage and sampling with other libraries on this machine."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from framestow.errors import InvalidSettingsError
from framestow.lazy_names import missing_extra
from framestow.replay.byte_amounts import GIB

if TYPE_CHECKING:
    from framestow.benchmarking.measurement import BenchSettings


@dataclasses.dataclass(frozen=True)
class Bench:
    """Compare framestow with other installed libraries on a game: bytes per transition and time per sample.

    Plays the game at random, fills the memory of each library with these frames, checks that the samples are correct,
    and times the libraries in turn. Prints a table and writes bench.json and bench.png.
    """

    game: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME")] = "Breakout"
    """Name of the Atari game: Breakout, MsPacman, …"""

    transitions: int = 200_000
    """Transitions in framestow's memory. The other libraries store what fits into --max-gib and --fill-seconds."""

    batch_size: int = 32
    """Transitions per sample."""

    threads: int = 1
    """Threads that unpack a framestow batch. The other libraries use their defaults."""

    rounds: int = 200
    """Rounds of timing. In each round every library samples 5 batches; the table shows the median."""

    libraries: tuple[str, ...] = ("auto",)
    """Libraries to compare with: auto (every installed one), none, or names such as tianshou torchrl."""

    out: Path | None = None
    """Folder for bench.json and bench.png; None takes bench-GAME."""

    frames: int = 20_000
    """Frames to play. The memories are filled with them repeatedly."""

    stack: int = 4
    """Frames per observation."""

    preset: str = "machado2018"
    """Preset of the environment: machado2018 (sticky actions 0.25), nature, baselines, dopamine or envpool."""

    max_gib: float | None = None
    """RAM limit in GiB for all libraries together; None takes 12, or half of the free RAM if that is less."""

    fill_seconds: float = 20.0
    """Time limit in seconds for filling a library that reserves less than one frame per transition."""

    seed: int = 0
    """Seed of the environment, the random actions and the sampling."""

    def run(self, console: Console) -> int:
        """Run the benchmark, print the table, write both files and return the exit code."""
        # Imported here: --help must not load the emulator.
        from framestow.benchmarking.libraries import chosen_libraries  # noqa: PLC0415
        from framestow.benchmarking.measurement import measure  # noqa: PLC0415
        from framestow.benchmarking.play import record_play  # noqa: PLC0415
        from framestow.benchmarking.report import table, write_plot  # noqa: PLC0415
        from framestow.benchmarking.result_files import write_result  # noqa: PLC0415

        _require_matplotlib()
        if self.out is not None and self.out.is_file():
            raise InvalidSettingsError(f"out is {self.out}: it is a file; give a folder with --out")
        settings = self._settings()
        libraries, missing = chosen_libraries(self.libraries)
        with _Progress(console) as progress:
            others = ", ".join(library.key for library in libraries) or "no other library"
            console.print(
                f"playing {self.frames:,} frames, then filling and timing framestow and {others}. "
                "Ctrl-C stops the benchmark; no file is written",
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
        from framestow.benchmarking.measurement import BenchSettings, affordable_bytes  # noqa: PLC0415 -- slow import

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
    """Raise ``MissingExtraError`` if matplotlib is missing, before the benchmark starts."""
    if find_spec("matplotlib") is None:
        raise missing_extra("framestow bench", "matplotlib", "bench")


class _Progress(Progress):
    """A progress bar for the current part of the benchmark."""

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
        self._part = ""

    def show(self, part: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` units of ``part`` are done."""
        if part != self._part:
            self._part = part
            self.reset(self._task, total=total, description=part)
        self.update(self._task, completed=done)

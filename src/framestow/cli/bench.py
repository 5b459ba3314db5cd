"""``framestow bench``: compare storage and sampling with other libraries on this machine."""

from __future__ import annotations

import dataclasses
import math
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from framestow.cli.arguments import check_output
from framestow.cli.printing import ProgressDisplay, print_line
from framestow.errors import InvalidSettingsError
from framestow.replay.eviction.byte_amounts import GIB

if TYPE_CHECKING:
    from framestow.benchmarking.measurement import BenchFigures, BenchSettings


@dataclasses.dataclass(frozen=True)
class Bench:
    """Compare framestow with other installed libraries on games: bytes per transition and time per sample.

      framestow bench Breakout
      framestow bench Pong MsPacman --transitions 1M --libraries torchrl

    Plays a game at random, fills the memory of each library with these frames, checks that the samples are correct, and
    times the libraries in turn. Prints a table for each game, writes its figures into GAME.json, and all games into
    one picture, bench.png.
    """

    games: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="GAME")] = ("Breakout",)
    """Names of Atari games: Breakout, MsPacman, …"""

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
    """Folder for the files; None takes bench-GAME, or bench-N-games for several."""

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
        if not self.games:
            raise InvalidSettingsError(
                f"games is {self.games}: a benchmark needs at least 1; give an Atari game's name"
            )
        from framestow.envs.atari.games import find_rom, title  # noqa: PLC0415 -- --help must not load the emulator

        games = list(dict.fromkeys(title(find_rom(game)) for game in self.games))
        folder = self.out or Path(f"bench-{games[0]}" if len(games) == 1 else f"bench-{len(games)}-games")
        check_output("out", folder, is_folder=True)
        # The rest after it, so that a wrong name is refused at once.
        from framestow.benchmarking.libraries import choose_libraries  # noqa: PLC0415
        from framestow.benchmarking.measurement import measure  # noqa: PLC0415
        from framestow.benchmarking.play import record_play  # noqa: PLC0415
        from framestow.benchmarking.report import table, write_plot  # noqa: PLC0415
        from framestow.benchmarking.result_files import write_result  # noqa: PLC0415

        import_module("matplotlib")  # a missing package is named before anything is measured
        settings = self._settings()
        with ProgressDisplay(console, "loading the libraries"):
            libraries, missing = choose_libraries(self.libraries)
        not_installed = {"not_installed": {library.key: library.install_command for library in missing}}
        others = ", ".join(library.key for library in libraries) or "no other library"
        measured: list[BenchFigures] = []
        for game in games:
            print_line(
                console,
                f"{game}: playing {self.frames:,} frames, then filling and timing framestow and {others}. "
                "Ctrl-C stops the benchmark; finished games are written",
            )
            with ProgressDisplay(console, unit="items") as progress:
                play = record_play(
                    game,
                    self.frames,
                    self.preset,
                    self.seed,
                    lambda done: progress.show_part("playing", done, self.frames),
                )
                measured.append(measure(play, self.preset, settings, libraries, progress.show_part))
            console.print(table(measured[-1], missing))
            result = write_result(folder / f"{game}.json", measured[-1].to_dict() | not_installed)
            plot = write_plot(measured, folder / "bench.png")
            print_line(console, f"written to {result} and {plot}")
        return 0

    def _settings(self) -> BenchSettings:
        from framestow.benchmarking.measurement import BenchSettings, affordable_bytes  # noqa: PLC0415 -- slow import

        if self.max_gib is not None and not 0 < self.max_gib < math.inf:
            raise InvalidSettingsError(
                f"max_gib is {self.max_gib:g}: it must be above 0 and finite; give another --max-gib"
            )
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

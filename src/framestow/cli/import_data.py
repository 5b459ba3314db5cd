"""``framestow import``: convert an offline dataset into a store."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import tyro
from rich.console import Console

from framestow.checks import whole_number
from framestow.cli.arguments import check_output
from framestow.cli.printing import print_line
from framestow.cli.progress_bars import ProgressDisplay, show_bytes, show_transfer
from framestow.errors import InvalidSettingsError
from framestow.frames.stacking import StackPadding

if TYPE_CHECKING:
    from framestow.offline.transfer import Progress, Transferred
    from framestow.replay.memory import ReplayMemory


FLUSHED_BYTES = 32 << 20  # flush after this growth: a flush moves frames from RAM to files


class Source(Protocol):
    """A dataset that can be imported."""

    @property
    def file_bytes(self) -> int:
        """Bytes of the dataset's files."""

    @property
    def array_bytes(self) -> int:
        """Bytes in RAM when the dataset's usual library loads it."""

    def import_into(self, memory: ReplayMemory, progress: Progress) -> Transferred:
        """Append every step to ``memory``."""


@dataclasses.dataclass(frozen=True)
class ImportDqnReplay:
    """Import the DQN Replay Dataset, or other files of Dopamine's replay memory ($store$_observation_ckpt.N.gz, …).

      framestow import dqn-replay dqn/Pong/1 --to stores/pong --game Pong
      framestow import dqn-replay dqn/Pong/1 --to stores/first --checkpoints 0 1

    The folder --to appears when the import is complete.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Folder of the files, or the folder that contains replay_logs."""

    to: Path
    """Folder of the new store."""

    checkpoints: tuple[int, ...] = ()
    """Numbers of the checkpoints to import; all if none is given."""

    capacity: int | None = None
    """Maximum number of transitions; the newest are kept. None keeps all."""

    stack: int = 4
    """Frames per observation."""

    stack_padding: StackPadding = "zeros"
    """Padding of a stack before the first frame of an episode: zeros, as in Dopamine, or first_frame."""

    discount: float = 0.99
    """Discount factor of the stored transitions."""

    num_actions: int | None = None
    """Number of actions of the game. None takes the largest action in the files plus one."""

    blank_slots: int | None = None
    """Blank slots before each episode. None counts them in the files (Dopamine writes stack - 1)."""

    game: str = ""
    """Name of the game. It becomes the label of the store."""

    seed: int = 0
    """Seed of the random generator that samples batches from the store."""

    def run(self, console: Console) -> int:
        """Import the dataset, print the sizes before and after, and return the exit code."""
        from framestow import ReplayMemory  # noqa: PLC0415 -- slow import
        from framestow.offline.dqn_replay import DqnReplay  # noqa: PLC0415

        check_output("to", self.to, is_folder=True)
        if self.blank_slots is not None:
            whole_number("blank_slots", self.blank_slots, 0, rule="it must be at least 0; leave it out to count them")
        with ProgressDisplay(console, "reading how the files begin"):
            replay = DqnReplay.open(self.folder, self.checkpoints or None, self.blank_slots, self.num_actions)
        numbers = ", ".join(str(checkpoint.number) for checkpoint in replay.checkpoints)
        print_line(
            console,
            f"checkpoints {numbers}: {replay.num_slots:,} slots, {replay.padding} blank slots before each episode, "
            f"{replay.num_actions} actions",
        )

        def make_memory(folder: Path) -> ReplayMemory:
            return ReplayMemory(
                max(1, replay.num_slots) if self.capacity is None else self.capacity,
                replay.frame,
                replay.num_actions,
                stack=self.stack,
                stack_padding=self.stack_padding,
                discount=self.discount,
                seed=self.seed,
                label=self.game,
                directory=folder,
                flush_every=None,
            )

        return _import(console, "DQN Replay", replay, make_memory, self.to)


@dataclasses.dataclass(frozen=True)
class ImportMinari:
    """Import a Minari dataset whose observations are pictures or vectors.

      framestow import minari atari/breakout/expert-v0 --to stores/expert

    The folder --to appears when the import is complete.
    """

    dataset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATASET")]
    """Id of a dataset on this machine, or its folder."""

    to: Path
    """Folder of the new store."""

    stacked_on: Literal["no", "first_axis", "last_axis"] = "no"
    """Axis of the frames if the observations are stacks: first_axis for (4, 84, 84), last_axis for (84, 84, 4)."""

    capacity: int | None = None
    """Maximum number of transitions; the newest are kept. None keeps all."""

    stack: int | None = None
    """Frames per observation. None takes 1, or the depth of the dataset's stacks."""

    stack_padding: StackPadding | None = None
    """Padding of a stack before the first frame of an episode. None takes the dataset's own, or first_frame."""

    leave_out: tuple[str, ...] = ()
    """Keys of the observations that are not imported, such as a text; robot/name for a nested one."""

    skip_bad: bool = False
    """Leave out episodes that cannot be imported, and name them; otherwise the first one ends the import."""

    discount: float = 0.99
    """Discount factor of the stored transitions."""

    seed: int = 0
    """Seed of the random generator that samples batches from the store."""

    def run(self, console: Console) -> int:
        """Import the dataset, print the sizes before and after, and return the exit code."""
        from framestow import ReplayMemory  # noqa: PLC0415 -- slow import

        check_output("to", self.to, is_folder=True)
        with ProgressDisplay(console, "opening the dataset"):
            from framestow.offline.minari import MinariData  # noqa: PLC0415 -- slow import

            data = MinariData.open(
                self.dataset, self.stacked_on, self.stack_padding, self.leave_out, skip_bad=self.skip_bad
            )
        depth = 1 if data.stacks is None else data.stacks.depth

        def make_memory(folder: Path) -> ReplayMemory:
            return ReplayMemory(
                data.num_steps if self.capacity is None else self.capacity,
                data.frame,
                data.action,
                stack=depth if self.stack is None else self.stack,
                stack_padding=data.stack_padding,
                discount=self.discount,
                seed=self.seed,
                label=data.name,
                directory=folder,
                flush_every=None,
            )

        return _import(console, "Minari", data, make_memory, self.to)


def _import(console: Console, name: str, source: Source, make_memory: Callable[[Path], ReplayMemory], to: Path) -> int:
    from framestow.offline.transfer import bytes_of_folder, fill_folder  # noqa: PLC0415 -- slow import

    start = time.monotonic()
    with fill_folder(to) as folder, make_memory(folder) as memory:
        with ProgressDisplay(console, "importing", "bytes") as show:
            transferred = source.import_into(memory, _flushing(memory, show))
        if not transferred.transitions:
            raise InvalidSettingsError(
                f"{name}: none of the {sum(transferred.left_out.values()):,} steps can be imported: a step needs the "
                "beginning of its episode and its next frame; import more checkpoints"
            )
    show_transfer(console, transferred, time.monotonic() - start)
    if len(memory) < transferred.transitions:
        print_line(
            console, f"the store keeps the newest {len(memory):,} transitions; give a larger --capacity to keep more"
        )
    show_bytes(
        console,
        (name, source.file_bytes, source.array_bytes),
        ("framestow", bytes_of_folder(to), memory.nbytes),
    )
    print_line(console, f"written to {to}")
    return 0


def _flushing(memory: ReplayMemory, show: Progress) -> Progress:
    """Return a progress callback that also flushes the memory when it has grown.

    A background flush would fall behind on a slow disk.
    """
    nbytes_after_flush = memory.nbytes

    def show_and_flush(done: int, total: int) -> None:
        nonlocal nbytes_after_flush
        show(done, total)
        if memory.nbytes > nbytes_after_flush + FLUSHED_BYTES:
            memory.flush()
            nbytes_after_flush = memory.nbytes

    return show_and_flush

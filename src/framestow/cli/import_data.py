"""``framestow import``: other people's data into a store."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import tyro
from rich.console import Console

from framestow.cli.progress_bars import byte_bar, show_bytes, show_transfer
from framestow.errors import InvalidSettingsError
from framestow.frames.stacking import StackPadding

if TYPE_CHECKING:
    from framestow.offline.transfer import Progress, Transferred
    from framestow.replay.memory import ReplayMemory


FLUSHED_BYTES = 32 << 20  # that a memory may grow by before it is flushed: then its frames leave RAM


class Source(Protocol):
    """What can be imported."""

    @property
    def file_bytes(self) -> int:
        """Bytes of its files."""

    @property
    def array_bytes(self) -> int:
        """Bytes that it takes in RAM where its own readers load it."""

    def import_into(self, memory: ReplayMemory, progress: Progress) -> Transferred:
        """Append everything to ``memory``."""


@dataclasses.dataclass(frozen=True)
class ImportDqnReplay:
    """The DQN Replay Dataset, or what else Dopamine's replay memory wrote: $store$_observation_ckpt.N.gz and so on."""

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Folder of the files, or the one above its replay_logs."""

    to: Path
    """Folder of the store to make."""

    checkpoints: tuple[int, ...] = ()
    """Numbers of the checkpoints to take; all by default."""

    capacity: int | None = None
    """Transitions that the memory keeps, the newest; None keeps all."""

    stack: int = 4
    """Frames in an observation."""

    stack_padding: StackPadding = "zeros"
    """What stands before an episode's first frame in a stack: zeros, as in Dopamine, or first_frame."""

    discount: float = 0.99
    """Discount of a step that did not terminate."""

    num_actions: int | None = None
    """Actions of the game; None takes one more than the largest one in the files."""

    blank_slots: int | None = None
    """Blank slots before each episode; None looks how many there are (Dopamine writes its stack less one)."""

    game: str = ""
    """Name of the game, which the store will tell."""

    seed: int = 0
    """Seed of the memory's generator, which draws samples later."""

    def run(self, console: Console) -> int:
        """Import, and show the bytes before and after; return the exit code."""
        from framestow import ReplayMemory  # noqa: PLC0415 -- help does not wait for it
        from framestow.offline.dqn_replay import DqnReplay  # noqa: PLC0415

        replay = DqnReplay.open(self.folder, self.checkpoints or None, self.blank_slots, self.num_actions)
        numbers = ", ".join(str(checkpoint.number) for checkpoint in replay.checkpoints)
        console.print(
            f"checkpoints {numbers}: {replay.num_slots:,} slots, {replay.padding} blank ones before each episode, "
            f"{replay.num_actions} actions",
            highlight=False,
            soft_wrap=True,
        )

        def make_memory(folder: Path) -> ReplayMemory:
            return ReplayMemory(
                self.capacity or max(1, replay.num_slots),
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
    """A Minari dataset whose observations are pictures or vectors."""

    dataset: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATASET")]
    """Id of a dataset on this machine, or its folder."""

    to: Path
    """Folder of the store to make."""

    stacked_on: Literal["no", "first_axis", "last_axis"] = "no"
    """Whether observations are stacks of frames: first_axis as (4, 84, 84), last_axis as (84, 84, 4)."""

    capacity: int | None = None
    """Transitions that the memory keeps, the newest; None keeps all."""

    stack: int | None = None
    """Frames in an observation; None takes 1, or the depth of the dataset's stacks."""

    stack_padding: StackPadding | None = None
    """What stands before an episode's first frame in a stack; None takes first_frame, or what the dataset's have."""

    discount: float = 0.99
    """Discount of a step that did not terminate."""

    seed: int = 0
    """Seed of the memory's generator, which draws samples later."""

    def run(self, console: Console) -> int:
        """Import, and show the bytes before and after; return the exit code."""
        from framestow import ReplayMemory  # noqa: PLC0415 -- help does not wait for it
        from framestow.offline.minari import MinariData  # noqa: PLC0415

        data = MinariData.open(self.dataset, self.stacked_on, self.stack_padding)
        depth = 1 if data.stacks is None else data.stacks.depth

        def make_memory(folder: Path) -> ReplayMemory:
            return ReplayMemory(
                self.capacity or data.num_steps,
                data.frame,
                data.action,
                stack=self.stack or depth,
                stack_padding=data.stack_padding,
                discount=self.discount,
                seed=self.seed,
                label=data.name,
                directory=folder,
                flush_every=None,
            )

        return _import(console, "Minari", data, make_memory, self.to)


@dataclasses.dataclass(frozen=True)
class Import:
    """Make a store of other people's data: a DQN Replay Dataset or a Minari dataset.

    Nothing is at the place that --to says until everything is there. Needs the extra 'offline'.
    """

    source: Annotated[
        Annotated[ImportDqnReplay, tyro.conf.subcommand("dqn-replay")]
        | Annotated[ImportMinari, tyro.conf.subcommand("minari")],
        tyro.conf.arg(name=""),
    ]

    def run(self, console: Console) -> int:
        """Import from that source; return the exit code."""
        return self.source.run(console)


def _import(console: Console, name: str, source: Source, make_memory: Callable[[Path], ReplayMemory], to: Path) -> int:
    from framestow.offline.transfer import bytes_of_folder, unfinished_folder  # noqa: PLC0415 -- as above

    start = time.monotonic()
    with unfinished_folder(to) as folder, make_memory(folder) as memory:
        with byte_bar(console, "importing") as show:
            told = source.import_into(memory, _flushing(memory, show))
        if not told.transitions:
            raise InvalidSettingsError(
                f"{name}: none of its {sum(told.left_out.values()):,} steps has both its episode's beginning and the "
                "frame that it led to: there is nothing to import; take more checkpoints"
            )
    show_transfer(console, told, time.monotonic() - start)
    if len(memory) < told.transitions:
        console.print(f"the memory keeps the newest {len(memory):,}: raise --capacity for all", highlight=False)
    show_bytes(
        console,
        (name, source.file_bytes, source.array_bytes),
        ("framestow", bytes_of_folder(to), memory.nbytes),
    )
    console.print(f"written to {to}", highlight=False, soft_wrap=True)
    return 0


def _flushing(memory: ReplayMemory, show: Progress) -> Progress:
    """Flush whenever the memory has grown: one that flushes in the background falls behind where the disk is slow."""
    nbytes_after_flush = memory.nbytes

    def show_and_flush(done: int, total: int) -> None:
        nonlocal nbytes_after_flush
        show(done, total)
        if memory.nbytes > nbytes_after_flush + FLUSHED_BYTES:
            memory.flush()
            nbytes_after_flush = memory.nbytes

    return show_and_flush

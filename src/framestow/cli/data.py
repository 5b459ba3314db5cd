"""``framestow import`` and ``framestow export``: data of other formats, with sizes before and after."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import tyro
from rich.console import Console
from rich.table import Table

from framestow.checks import whole_number
from framestow.cli.arguments import check_output
from framestow.cli.printing import ProgressDisplay, print_line
from framestow.errors import InvalidSettingsError
from framestow.frames.stacking import StackPadding
from framestow.interface import plural
from framestow.offline.layouts import LayoutName
from framestow.replay.eviction.byte_amounts import format_bytes

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
        from framestow.offline.dqn_replay import DqnReplay  # noqa: PLC0415 -- slow import

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
        settings = {"stack": self.stack, "stack_padding": self.stack_padding, "label": self.game}
        spaces = replay.frame, replay.num_actions
        return _import(console, self, "DQN Replay", replay, max(1, replay.num_slots), *spaces, **settings)


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
        check_output("to", self.to, is_folder=True)
        with ProgressDisplay(console, "opening the dataset"):
            from framestow.offline.minari import MinariData  # noqa: PLC0415 -- slow import

            data = MinariData.open(
                self.dataset, self.stacked_on, self.stack_padding, self.leave_out, skip_bad=self.skip_bad
            )
        depth = 1 if data.stacks is None else data.stacks.depth
        stack = depth if self.stack is None else self.stack
        settings = {"stack": stack, "stack_padding": data.stack_padding, "label": data.name}
        return _import(console, self, "Minari", data, data.num_steps, data.frame, data.action, **settings)


@dataclasses.dataclass(frozen=True)
class ImportArrays:
    """Import files of arrays: D4RL, d3rlpy (versions 1 and 2), .npz, DrQ-v2, DreamerV1 and V2, v-d4rl, robomimic.

      framestow import arrays hopper-medium.hdf5 --to stores/hopper
      framestow import arrays replay.npz --to stores/mine --num-actions 4
      framestow import arrays exp_local/buffer --to stores/walker --layout episodes
      framestow import arrays lift/image.hdf5 --to stores/lift --layout robomimic --keys agentview_image

    The names of the arrays say whether it is D4RL's or d3rlpy's; give --layout for the others. Episodes: row t has the
    action and reward that led to observation t, as DrQ-v2, DreamerV1, DreamerV2 and v-d4rl write it (not DreamerV3).
    The folder --to appears when the import is complete.
    """

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """File with observations, actions, rewards and ends of episodes, or for --layout episodes a folder of files."""

    to: Path
    """Folder of the new store."""

    layout: LayoutName | None = None
    """How to read it. None takes d4rl, d3rlpy or npz by the names of the arrays."""

    keys: tuple[str, ...] = ()
    """Arrays that are the observation: one is it itself, several are a dict. Of episodes and robomimic."""

    filter_key: str | None = None
    """Name of a list of demonstrations in a file of robomimic, such as train."""

    num_actions: int | None = None
    """Number of actions if they are integers. None takes that of the file, or the largest action in it plus one."""

    skip_bad: bool = False
    """Leave out episodes that cannot be imported, and name them; otherwise the first one ends the import."""

    capacity: int | None = None
    """Maximum number of transitions; the newest are kept. None keeps all."""

    n_step: int | None = None
    """Rewards in a transition's return. None takes that of the file, or 1."""

    discount: float | None = None
    """Discount factor of the stored transitions. None takes that of the file, or 0.99."""

    label: str | None = None
    """What played, such as a game. None takes the name of the file."""

    seed: int = 0
    """Seed of the random generator that samples batches from the store."""

    def run(self, console: Console) -> int:
        """Import the file, print the sizes before and after, and return the exit code."""
        from framestow.offline.arrays import ArrayData  # noqa: PLC0415 -- slow import

        check_output("to", self.to, is_folder=True)
        with ProgressDisplay(console, "checking the file"):
            data = ArrayData.open(
                self.file,
                self.num_actions,
                layout=self.layout,
                keys=self.keys,
                filter_key=self.filter_key,
                skip_bad=self.skip_bad,
            )
        settings = {"discount": 0.99, "label": self.file.name} | data.settings
        settings |= _given(self, "discount", "label", "n_step")
        spaces = data.observation_space, data.action_space
        return _import(console, self, "arrays", data, data.num_steps, *spaces, **settings)


@dataclasses.dataclass(frozen=True)
class ImportMemory:
    """Read saved memories into a new one with other settings, such as another capacity or n_step.

      framestow import memory stores/old --to stores/new --capacity 2_000_000 --n-step 3
      framestow import memory runs/Pong runs/Breakout --to stores/both --num-envs 2

    Takes folders of memories, of runs or of checkpoints, one after the other; they are only read. Frames, stack and
    actions must be equal. The folder --to appears when the import is complete.
    """

    old: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="OLD ...")]
    """Folders of the memories to read."""

    to: Path
    """Folder of the new store."""

    capacity: int | None = None
    """Maximum number of transitions; the newest are kept. None takes that of the first, or more to keep all."""

    n_step: int | None = None
    """Rewards in a transition's return. None takes that of the first."""

    discount: float | None = None
    """Discount factor. None takes that of the first."""

    num_envs: int | None = None
    """Number of environments; those of the memories follow one another, modulo this. None takes the largest number."""

    stack_padding: StackPadding | None = None
    """Padding of a stack before the first frame of an episode. None takes that of the first."""

    storage: Literal["packed", "raw"] | None = None
    """How frames are stored. None takes that of the first."""

    retention: Literal["fifo", "random"] | None = None
    """Which transitions are evicted. None takes that of the first."""

    max_bytes: str | None = None
    """Budget in RAM and files, such as "2 GiB". None has no budget."""

    leave_out_labels: bool = False
    """Give the new store no labels; otherwise memories that share an environment must have the same label."""

    skip_bad: bool = False
    """Leave out steps that are damaged, and count them; otherwise the first one ends the import."""

    seed: int = 0
    """Seed of the random generator that samples batches from the store."""

    def run(self, console: Console) -> int:
        """Import the memories, print the sizes before and after, and return the exit code."""
        from framestow.cli.saved_memory import find_memories  # noqa: PLC0415 -- slow import
        from framestow.offline.memory_data import MemoryData, MemoryGroup  # noqa: PLC0415

        check_output("to", self.to, is_folder=True)
        if not self.old:
            raise InvalidSettingsError("missing: OLD; framestow import memory --help explains all arguments")
        with ProgressDisplay(console, "opening the memories"):
            found = [saved for folder in self.old for saved in find_memories(folder)]
            memories = [MemoryData.open(one.folder, generation=one.generation, skip_bad=self.skip_bad) for one in found]
            group = MemoryGroup.of(memories, self.num_envs, keeps_labels=not self.leave_out_labels)
        settings = group.settings | _given(
            self, "discount", "max_bytes", "n_step", "retention", "stack_padding", "storage"
        )
        spaces = settings.pop("observation_space"), settings.pop("action_space")
        capacity = max(memories[0].memory.capacity, group.num_steps)
        return _import(console, self, "read", group, capacity, *spaces, **settings)


def _given(options: ImportArrays | ImportMemory, *names: str) -> dict[str, Any]:
    """Return the options of these names that are not ``None``."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _import(
    console: Console,
    options: ImportDqnReplay | ImportMinari | ImportArrays | ImportMemory,
    name: str,
    source: Source,
    capacity: int,
    observation_space: Any,
    action_space: Any,
    **settings: Any,
) -> int:
    """Import ``source`` into a new store, print the sizes before and after, and return the exit code.

    ``capacity`` is that of the store unless the options have one. ``settings`` precede the options' discount.
    """
    from framestow import ReplayMemory  # noqa: PLC0415 -- slow import
    from framestow.offline.transfer import bytes_of, fill_path  # noqa: PLC0415

    start = time.monotonic()
    capacity = capacity if options.capacity is None else options.capacity
    settings = {"discount": options.discount, "seed": options.seed, "flush_every": None} | settings
    try:
        with (
            fill_path(options.to) as folder,
            ReplayMemory(capacity, observation_space, action_space, directory=folder, **settings) as memory,
        ):
            with ProgressDisplay(console, "importing", "bytes") as show:
                transferred = source.import_into(memory, _flushing(memory, show))
            if not transferred.transitions:
                raise InvalidSettingsError(
                    f"{name}: none of the {sum(transferred.left_out.values()):,} steps can be imported: a step needs "
                    "the beginning of its episode and its next frame; import more of them"
                )
    except KeyboardInterrupt as stopped:
        raise KeyboardInterrupt(f"{options.to} was not written, and what was read is unchanged") from stopped
    show_transfer(console, transferred, time.monotonic() - start)
    if len(memory) < transferred.transitions:
        print_line(
            console,
            f"the store keeps {'the newest ' if memory.retention == 'fifo' else ''}{len(memory):,} transitions; give a "
            "larger --capacity to keep more",
        )
    show_bytes(
        console,
        (name, source.file_bytes, source.array_bytes),
        ("framestow", bytes_of(options.to), memory.nbytes),
    )
    print_line(console, f"written to {options.to}")
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


@dataclasses.dataclass(frozen=True)
class ExportMinari:
    """Write a Minari dataset without loss: single frames, every episode with its true last frame.

      framestow export minari stores/breakout --to data --dataset-id atari/mine-v0

    The dataset appears when the export is complete.
    """

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of a memory, a run or a checkpoint."""

    to: Path
    """Folder of Minari datasets (MINARI_DATASETS_PATH). The dataset is written into the subfolder named by its id."""

    dataset_id: str
    """Id of the dataset, with a version: atari/breakout/mixed-v0."""

    environment: str | None = None
    """Gymnasium id of the recorded environment: ALE/Breakout-v5."""

    data_format: Literal["hdf5", "arrow", "parquet"] = "hdf5"
    """File format of the dataset; arrow and parquet need pip install "minari[arrow]"."""

    description: str | None = None
    """Description of the dataset."""

    algorithm: str | None = None
    """Name of the algorithm that played."""

    author: str | None = None
    """Name of the author."""

    author_email: str | None = None
    """E-mail address of the author."""

    code_permalink: str | None = None
    """Link to the code that recorded the dataset."""

    def run(self, console: Console) -> int:
        """Export the store, print the sizes before and after, and return the exit code."""
        from framestow.offline.minari_export import MinariDescription, export_minari  # noqa: PLC0415 -- slow import

        description = MinariDescription(self.dataset_id, self.environment, self.data_format, self._metadata())
        to = self.to / self.dataset_id
        check_output("to", to, is_folder=True)

        def export(memory: ReplayMemory, show: Progress) -> Transferred:
            with _options_in_errors():
                return export_minari(memory, to, description, show)

        return _export(console, "Minari", self.store, to, export)

    def _metadata(self) -> dict[str, Any]:
        given = {
            "description": self.description,
            "algorithm_name": self.algorithm,
            "author": {self.author} if self.author else None,
            "author_email": {self.author_email} if self.author_email else None,
            "code_permalink": self.code_permalink,
        }
        return {name: value for name, value in given.items() if value}


@dataclasses.dataclass(frozen=True)
class ExportArrays:
    """Write all episodes to one file of arrays, with next_observations: for D4RL, d3rlpy, or NumPy.

      framestow export arrays stores/breakout --to breakout.hdf5
      framestow export arrays stores/breakout --to breakout.h5 --layout d3rlpy

    Observations are whole stacks, compressed by gzip. The file appears when the export is complete.
    """

    store: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE")]
    """Folder of a memory, a run or a checkpoint."""

    to: Path
    """The new file."""

    layout: Literal["d4rl", "d3rlpy", "npz"] | None = None
    """Arrays of the file: d4rl has a row for each step, d3rlpy arrays for each episode, npz d4rl's names without HDF5.
    None takes npz if the file's name ends with .npz, and d4rl otherwise."""

    def run(self, console: Console) -> int:
        """Export the store, print the sizes before and after, and return the exit code."""
        from framestow.offline.array_export import export_arrays  # noqa: PLC0415 -- slow import

        check_output("to", self.to)
        layout = self.layout or ("npz" if self.to.suffix == ".npz" else "d4rl")
        return _export(
            console, layout, self.store, self.to, lambda memory, show: export_arrays(memory, self.to, layout, show)
        )


def _export(
    console: Console, name: str, store: Path, to: Path, export: Callable[[ReplayMemory, Progress], Transferred]
) -> int:
    """Export the memory in ``store`` by ``export``, print the sizes before and after, and return the exit code."""
    from framestow import ReplayMemory, Uniform  # noqa: PLC0415 -- slow import
    from framestow.cli.saved_memory import find_memory  # noqa: PLC0415
    from framestow.offline.transfer import bytes_of  # noqa: PLC0415

    start = time.monotonic()
    saved = find_memory(store)
    # The export samples nothing, so the sampler does not matter.
    with ProgressDisplay(console, "opening the store"):
        memory = ReplayMemory.open(saved.folder, generation=saved.generation, sampler=Uniform())
    with ProgressDisplay(console, "exporting", "bytes") as show:
        transferred = export(memory, show)
    show_transfer(console, transferred, time.monotonic() - start)
    in_file = name, bytes_of(to), transferred.observation_bytes
    show_bytes(console, ("framestow", bytes_of(saved.folder), memory.nbytes), in_file)
    print_line(console, f"written to {to}")
    return 0


@contextmanager
def _options_in_errors() -> Iterator[None]:
    """Write options in an ``InvalidSettingsError`` that names Python arguments: ``dataset_id`` as ``--dataset-id``."""
    try:
        yield
    except InvalidSettingsError as error:
        text = str(error)
        for field in dataclasses.fields(ExportMinari):
            option = f"--{field.name.replace('_', '-')}"
            text = re.sub(rf"\b{field.name}\b" if "_" in field.name else rf"^{field.name}(?= is )", option, text)
        raise InvalidSettingsError(text) from error


def show_transfer(console: Console, transferred: Transferred, seconds: float) -> None:
    """Print how much was transferred, which steps were skipped and why, and the notes about the format."""
    print_line(
        console,
        f"{plural(transferred.transitions, 'transition')} of {plural(transferred.episodes, 'episode')} in "
        f"{seconds:,.1f} s",
    )
    for reason, steps in transferred.left_out.items():
        print_line(console, f"left out: {reason}: {steps:,}")
    for note in transferred.notes:
        print_line(console, f"note: {note}")


def show_bytes(console: Console, before: tuple[str, int, int], after: tuple[str, int, int]) -> None:
    """Print a table of sizes on disk and in RAM, and how many times smaller or larger ``after`` is.

    ``before`` and ``after`` are each a name, bytes on disk and bytes in RAM.
    """
    table = Table("", "on disk", "in RAM", show_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, on_disk, in_ram in (before, after):
        table.add_row(name, format_bytes(on_disk), format_bytes(in_ram))
    table.add_row("ratio", *(_ratio(one, other) for one, other in zip(before[1:], after[1:], strict=True)))
    console.print(table)


def _ratio(before: int, after: int) -> str:
    if before >= after:
        return f"{before / max(1, after):,.1f} times smaller"
    return f"{after / max(1, before):,.1f} times larger"

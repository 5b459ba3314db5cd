"""Import of the steps of another memory: ``MemoryData``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from framestow.checks import any_path, truth_value, whole_number
from framestow.errors import DamagedDataError, DamagedSegmentError, InvalidSettingsError
from framestow.interface import one_line, plural
from framestow.offline.array_files import PIECE_BYTES
from framestow.offline.transfer import Progress, Transferred, check_transfer, match_extras, no_progress
from framestow.replay.eviction.retention import OnDamage
from framestow.replay.memory import ReplayMemory
from framestow.replay.reading.episodes import StepSpan, StoredEpisode, read_episode, spans_by_age
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.settings.step_fields import ExtrasSpec
from framestow.replay.store.reader import StoredMemory

if TYPE_CHECKING:
    from typing import Self

STEPS_PER_PROGRESS = 64
# Reasons in ``Transferred.left_out``.
LOST = "steps that were forgotten or lost, or whose returns include such a step"
DAMAGED = "steps whose frames are damaged"
OF_ONE_MEMORY = "num_envs", "capacity", "max_bytes", "frames_per_segment", "label"


@dataclass(frozen=True)
class MemoryData:
    """The steps of a saved memory, opened to be read.

    ::

        data = MemoryData.open("stores/old")
        memory = ReplayMemory(
            2_000_000, num_envs=data.num_envs, **data.settings | {"n_step": 3}
        )
        transferred = data.import_into(memory)

    ====================  ============================================================================================
    imported              how
    ====================  ============================================================================================
    episodes              in the order of their last steps, each step with both of its whole observations
    ends                  with their flags. An episode that is open, or was cut off, is cut off in the new memory too
    steps                 those that can be sampled, and those that wait for their return. Steps that were forgotten
                          are left out, and with ``n_step`` above 1 those whose returns include one
    extras                those of the new memory; it may have fewer
    priorities, samplers  not: every transition begins with the largest priority so far
    ====================  ============================================================================================
    """

    path: Path
    memory: ReplayMemory
    """The saved memory, which takes no steps."""
    skip_bad: bool
    sampler: str
    """Class of the saved sampler."""
    file_bytes: int
    """Bytes of the files of this generation."""

    def __repr__(self) -> str:
        def details() -> Iterator[str]:
            yield str(self.path)
            yield plural(self.num_steps, "step")
            yield plural(self.num_envs, "environment")

        return one_line(self, details)

    @classmethod
    def open(cls, path: str | Path, *, generation: int | None = None, skip_bad: bool = False) -> Self:
        """Open the memory in a folder; it is only read, and may be written meanwhile.

        Arguments:
            path: folder that ``save`` wrote to, or the ``directory`` of a memory.
            generation: number of an earlier generation; ``None`` takes the newest.
            skip_bad: leave out the steps whose frames or blocks are damaged. ``left_out`` of the import's result counts
                them, and its ``notes`` have the first error.

        Raises:
            FileNotFoundError: nothing was saved there.
            DamagedDataError: it is damaged; with ``skip_bad`` only if no step can be read.
            IncompatibleError: another version wrote it.
        """
        folder, skip_bad = any_path("path", path), truth_value("skip_bad", skip_bad)
        on_damage: OnDamage = "skip" if skip_bad else "raise"
        # The import draws nothing, so the sampler does not matter.
        memory = ReplayMemory.open(folder, generation=generation, sampler=Uniform(), on_damage=on_damage)
        with StoredMemory.open(folder.resolve(), generation, skips_damage=skip_bad) as stored:
            commit = stored.commit
        logs = (file["bytes"] for log in (commit.frames, commit.steps) for file in log["files"])
        return cls(folder, memory, skip_bad, str(commit.memory["sampler"]["kind"]), sum(logs) + commit.state_bytes)

    @property
    def num_steps(self) -> int:
        """Number of steps that can be imported, before any damage is found."""
        return sum(span.length for span in spans_by_age(self.memory.inner.parts))

    @property
    def num_envs(self) -> int:
        """Number of environments."""
        return self.memory.num_envs

    @property
    def extras(self) -> ExtrasSpec:
        """Extra fields of a step."""
        return self.memory.inner.settings.extras

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of what fed each environment; empty if there is none."""
        return self.memory.inner.settings.labels

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of a ``ReplayMemory`` that takes these steps, but ``capacity``, ``num_envs`` and ``label``."""
        arguments = self.memory.inner.settings.arguments()
        return {name: value for name, value in arguments.items() if name not in OF_ONE_MEMORY}

    @property
    def array_bytes(self) -> int:
        """Bytes that the memory takes in RAM and in files."""
        report = self.memory.report()
        return report.nbytes + report.disk_bytes

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress, *, offset: int = 0) -> Transferred:
        """Append all steps to ``memory`` by ``add``, with some MiB of observations in RAM at a time.

        Environment i becomes environment ``(offset + i) % memory.num_envs``, whose open episode is cut off. This memory
        is not changed. After Ctrl-C, ``memory`` has the steps before it, and the ``KeyboardInterrupt`` says how many.

        Arguments:
            memory: memory of the same frames, stack and actions. Padding, storage, retention, budget, ``n_step``,
                ``discount`` and ``num_envs`` may differ, and the axes of the stack.
            progress: called with the bytes of the observations that are done, and their total.
            offset: added to the number of each environment.

        Raises:
            InvalidSettingsError: before anything is stored: ``memory`` has other frames, actions, labels or extras.
            DamagedDataError: a segment is damaged; the message names its file.
        """
        check_transfer(memory, progress)
        offset = whole_number("offset", offset, 0, rule="it is added to the number of each environment")
        self.check_memory(memory, offset)
        return _Import(self, memory, progress, offset).run()

    def check_memory(self, memory: ReplayMemory, offset: int) -> None:
        """Raise ``InvalidSettingsError`` unless ``memory`` takes these steps."""
        mine, other = self.memory.inner.settings, memory.inner.settings
        if memory.directory is not None and memory.directory == self.path.resolve():
            raise InvalidSettingsError(
                f"memory lives in {self.path}: it would be imported into itself; give a memory of another folder"
            )
        for name, has, wanted in (
            ("frames", other.frame, mine.frame),
            ("stack", other.layout.depths, mine.layout.depths),
            ("actions", other.action, mine.action),
        ):
            if has != wanted:
                raise InvalidSettingsError(
                    f"memory has the {name} {has}: the memory in {self.path} has {wanted}, and no step is converted; "
                    "build it with the settings of MemoryData"
                )
        match_extras(memory, self.extras, self.path)
        for env_id, label in enumerate(self.labels if other.labels else ()):
            target = (offset + env_id) % memory.num_envs
            if label != other.labels[target]:
                raise InvalidSettingsError(
                    f"label of environment {env_id} in {self.path} is {label!r}: environment {target} of the memory is "
                    f"labelled {other.labels[target]!r}; give the memory more environments and an offset, or no label"
                )


@dataclass(frozen=True)
class MemoryGroup:
    """Several memories, imported one after the other; the environments of each follow those of the one before."""

    memories: tuple[MemoryData, ...]
    num_envs: int
    """Number of environments of the new memory: environment numbers are modulo this."""
    labels: tuple[str, ...]
    """Label of each environment of the new memory; empty for none."""

    @classmethod
    def of(cls, memories: Sequence[MemoryData], num_envs: int | None = None, *, keeps_labels: bool = True) -> Self:
        """Return the group of memories; with ``num_envs=None``, it has the largest number of environments of them.

        Raises:
            InvalidSettingsError: ``keeps_labels``, and memories with different labels share an environment.
        """
        largest = max(data.num_envs for data in memories)
        rule = "a memory has at least 1 environment"
        num_envs = largest if num_envs is None else whole_number("num_envs", num_envs, 1, rule=rule)
        found: dict[int, str] = {}
        for data, offset in zip(memories, _offsets(memories), strict=True):
            for env_id, label in enumerate(data.labels if keeps_labels else ()):
                target = (offset + env_id) % num_envs
                if found.setdefault(target, label) != label:
                    raise InvalidSettingsError(
                        f"num_envs is {num_envs}: environment {target} would have the steps of {found[target]!r} and, "
                        f"from {data.path}, of {label!r}; raise it to {_offsets([*memories, data])[-1]}, or leave out "
                        "the labels"
                    )
        labels = tuple(found.get(env_id, "") for env_id in range(num_envs)) if found else ()
        return cls(tuple(memories), num_envs, labels)

    @property
    def num_steps(self) -> int:
        """Number of steps of all memories."""
        return sum(data.num_steps for data in self.memories)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of a new memory, but ``capacity``: those of the first, and the extras that all have alike."""
        first, *others = self.memories
        fields = [{spec.name: (spec.dtype, spec.shape) for spec in data.extras.extras} for data in others]
        shared = [
            spec
            for spec in first.extras.extras
            if all(found.get(spec.name) == (spec.dtype, spec.shape) for found in fields)
        ]
        return first.settings | {
            "num_envs": self.num_envs,
            "label": self.labels,
            "extras": ExtrasSpec(tuple(shared)),
        }

    @property
    def file_bytes(self) -> int:
        """Bytes of the files of all memories."""
        return sum(data.file_bytes for data in self.memories)

    @property
    def array_bytes(self) -> int:
        """Bytes of all memories, in RAM and in files."""
        return sum(data.array_bytes for data in self.memories)

    def import_into(self, memory: ReplayMemory, progress: Progress = no_progress) -> Transferred:
        """Append all steps to ``memory``, as ``MemoryData.import_into`` does.

        Raises:
            InvalidSettingsError: before anything is stored: ``memory`` does not take the steps of one of them.
        """
        check_transfer(memory, progress)
        offsets = _offsets(self.memories)
        for data, offset in zip(self.memories, offsets, strict=True):
            data.check_memory(memory, offset)
        result = Transferred()
        sizes = [data.num_steps for data in self.memories]
        total = sum(sizes)
        for number, (data, offset) in enumerate(zip(self.memories, offsets, strict=True)):
            before, size = sum(sizes[:number]), max(1, sizes[number])

            def show(done: int, of: int, before: int = before, size: int = size) -> None:
                row_bytes = of // size
                progress(before * row_bytes + done, total * row_bytes)

            found = data.import_into(memory, show, offset=offset)
            result.transitions += found.transitions
            result.episodes += found.episodes
            result.notes += [f"{data.path}: {note}" if len(self.memories) > 1 else note for note in found.notes]
            for reason, count in found.left_out.items():
                result.left_out[reason] = result.left_out.get(reason, 0) + count
        return result


def _offsets(memories: Sequence[MemoryData]) -> list[int]:
    """Return the number that is added to the environments of each memory."""
    return [0, *itertools.accumulate(data.num_envs for data in memories)][: len(memories)]


class _Import:
    """One import: reads spans of steps and stores them."""

    def __init__(self, data: MemoryData, memory: ReplayMemory, progress: Progress, offset: int) -> None:
        self._data, self._memory, self._progress, self._offset = data, memory, progress, offset
        self._parts = data.memory.inner.parts
        self._left = spans_by_age(self._parts)[::-1]  # the next one is the last
        self._num_steps = sum(span.length for span in self._left)
        self._names = memory.inner.settings.extras.names
        self._layout = memory.inner.settings.layout
        self._row_bytes = data.memory.stack * data.memory.inner.settings.frame.nbytes
        self._first_error: DamagedSegmentError | None = None
        self._result = Transferred(notes=self._notes())

    def run(self) -> Transferred:
        """Import all steps."""
        try:
            while self._left:
                self._import_span(self._left.pop())
        except KeyboardInterrupt as stopped:
            raise KeyboardInterrupt(
                f"the import stopped: the memory has {self._result.transitions:,} of "
                f"{plural(self._num_steps, 'transition')}, and {self._data.path} is unchanged"
            ) from stopped
        lost = len(self._data.memory.inner.steps.lost)
        damaged = self._parts.damage.num_transitions
        counts = {LOST: max(0, lost - damaged), DAMAGED: damaged}
        self._result.left_out = {reason: count for reason, count in counts.items() if count}
        if self._first_error is not None:
            self._result.notes.append(f"damage that was left out, the first: {self._first_error}")
        return self._result

    def _notes(self) -> list[str]:
        mine = self._data.memory.inner.settings
        notes = match_extras(self._memory, mine.extras, self._data.path)
        if mine.labels and not self._memory.inner.settings.labels:
            notes.append(f"labels are left out, since the new memory has none: {', '.join(dict.fromkeys(mine.labels))}")
        if self._data.sampler != "Uniform":
            notes.append(
                f"the state of the sampler {self._data.sampler} is left out: all transitions begin with one priority"
            )
        return notes

    def _import_span(self, span: StepSpan) -> None:
        """Store the steps of a span as an episode; after damage, put what is left of it back."""
        env_id = (self._offset + span.env_id) % self._memory.num_envs
        episode = read_episode(self._parts, span.env_id, span.first, span.length, has_beginning=span.has_beginning)
        step = max(1, PIECE_BYTES // self._row_bytes)
        try:
            for start in range(0, span.length, step):
                stop = min(start + step, span.length)
                try:
                    observations = self._layout.flatten(self._layout.join(episode.stacks(start, stop + 1)))
                except DamagedSegmentError as error:
                    self._skip(error, episode, span, start)
                    break
                if not start:
                    self._result.episodes += 1
                    first = self._layout.spec.rebuild([part[:1] for part in observations])
                    self._memory.inner.begin_whole(first, np.array([env_id], np.int32))
                self._add(episode, start, observations, env_id)
        finally:
            self._memory.inner.close_episode(env_id)

    def _add(self, episode: StoredEpisode, start: int, observations: tuple[npt.NDArray[Any], ...], env_id: int) -> None:
        """Store the steps from ``start`` on; there is an observation more than steps."""
        env_ids, add = np.array([env_id], np.int32), self._memory.inner.add
        extras = {name: episode.extras[name] for name in self._names}
        for row in range(len(observations[0]) - 1):
            here = slice(start + row, start + row + 1)
            add(
                (
                    env_ids,
                    episode.actions[here],
                    episode.rewards[here],
                    episode.terminated[here],
                    episode.truncated[here],
                    tuple(part[row + 1 : row + 2] for part in observations),
                    {name: values[here] for name, values in extras.items()} or None,
                    tuple(part[row : row + 1] for part in observations),
                )
            )
            self._result.transitions += 1
            if not self._result.transitions % STEPS_PER_PROGRESS:
                self._progress(self._result.transitions * self._row_bytes, self._num_steps * self._row_bytes)

    def _skip(self, error: DamagedSegmentError, episode: StoredEpisode, span: StepSpan, start: int) -> None:
        """Lose the steps of a damaged segment, and put the other steps of the span from ``start`` on back."""
        if not self._data.skip_bad:
            raise DamagedDataError(f"{error}; leave such steps out by skip_bad=True, --skip-bad") from error
        self._first_error = self._first_error or error
        with self._parts.lock:
            self._parts.damage.skip(error)
            is_readable = self._parts.steps.places(episode.indices[start:])[0] >= 0
        edges = np.flatnonzero(np.diff(is_readable, prepend=False, append=False)).reshape(-1, 2).tolist()
        for begins, ends in reversed(edges):
            first = span.first + start + begins
            has_beginning = span.has_beginning and first == span.first
            self._left.append(span._replace(first=first, length=ends - begins, has_beginning=has_beginning))

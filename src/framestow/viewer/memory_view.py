"""``MemoryView``: one generation of a saved memory as resources for a browser, each made when it is asked for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from framestow.errors import IncompatibleError
from framestow.frames.frame_spec import ArraySpec
from framestow.replay.forked_locks import call_in_children
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.facts import OF_A_MEMORY, shown_in
from framestow.replay.reports.inspection import OF_A_STORE, StoredSteps, find_files
from framestow.replay.samplers.uniform import Uniform
from framestow.replay.store.format import read_while_written
from framestow.viewer.columns import pack_columns
from framestow.viewer.distribution import describe_distribution
from framestow.viewer.episode_table import BEGINNINGS, ENDINGS, SPARK_BINS, EpisodeTable, draw_sparkline
from framestow.viewer.frame_pieces import (
    STEPS_AT_ONCE,
    count_steps,
    frames_per_piece,
    read_batches,
    read_piece,
    steps_of_piece,
)

if TYPE_CHECKING:
    from framestow.viewer.agent_values import AgentValues

FindAgent = Callable[[ReplayMemory], "AgentValues | None"]  # returns the agent that learns from a memory, if any
ROWS_A_SPARK_BLOCK = 16  # episodes whose sparklines are one resource
MEMORY_OF_A_RUN = "memory"  # name of its folder
MOST_MESSAGES = 20  # about damage
MOST_DIGITS = 18  # of a number in a name
DAMAGE_LOGGER = "framestow.replay.eviction.retention"


class MemoryView:
    """What a browser shows of a memory. It only reads the folder, so another process may write there.

    ====================  ===================================================================================
    resource              content
    ====================  ===================================================================================
    ``memory``            settings, numbers of transitions and episodes, damage
    ``episodes``          the table of episodes: a row for each that is shown
    ``sparklines/B``      rewards over the episodes of 16 rows
    ``episode/N``         the steps of episode N, and how likely each is drawn
    ``frames/N/K``        piece K of its frames, and the observations of its steps
    ``values/N/K``        the agent's values of these observations, and the TD errors; only with an ``agent``
    ``distribution``      charts of what the sampler draws, and what it draws most often
    ====================  ===================================================================================

    ``resource`` may be called by several threads; it makes one resource at a time, and charts beside it, so that few
    are in RAM.
    """

    def __init__(
        self,
        memory: ReplayMemory,
        agent: AgentValues | None,
        folder: Path,
        generation: int,
        damage: list[str],
        sampler_note: str,
    ) -> None:
        self.memory, self.agent, self.folder, self.generation = memory, agent, folder, generation
        self.table = EpisodeTable.of(memory.inner.parts)
        self.damage = dict.fromkeys(damage)
        """What is damaged, as far as it was read: messages, each once."""
        self._sampler_note = sampler_note
        # One resource is made at a time; charts, which take long, beside another one.
        self._lock, self._lock_of_charts = threading.Lock(), threading.Lock()
        call_in_children(self)
        self._kinds: dict[str, Callable[..., bytes]] = {
            "memory": self._memory,
            "episodes": self._episodes,
            "sparklines": self._sparklines,
            "episode": self._episode,
            "frames": self._frames,
            "values": self._values,
            "distribution": self._distribution,
        }
        self._shown: npt.NDArray[np.int64] = np.arange(len(self.table))
        self._selection = ""

    @classmethod
    def open(cls, folder: Path, generation: int | None = None, *, find_agent: FindAgent = lambda _: None) -> MemoryView:
        """Open a snapshot of the memory in ``folder``: of its newest generation unless one is given.

        Arguments:
            folder: Folder of the memory.
            generation: Its generation; ``None`` opens the newest.
            find_agent: Returns the agent whose values of the memory are shown; ``None`` for none.

        Raises:
            FileNotFoundError: ``folder`` has no memory.
            DamagedDataError: what describes the memory is damaged. Damaged segments and blocks of steps are left out.
        """
        return read_while_written(folder, lambda _: cls._open(folder, generation, find_agent))

    @classmethod
    def _open(cls, folder: Path, wanted: int | None, find_agent: FindAgent) -> MemoryView:
        generation = find_files(folder, wanted).generation
        open_memory = partial(ReplayMemory.open, folder, generation=generation, on_damage="skip")
        note = ""
        with _DamageMessages() as damage:
            try:
                memory = open_memory()
            except IncompatibleError as error:
                memory = open_memory(sampler=Uniform())
                note = str(error).partition(":")[2].partition(";")[0].strip()
        # From now on damage is raised, and shown where it is.
        memory.inner.parts.damage.are_skipped = False
        return cls(memory, find_agent(memory), folder, generation, damage.messages, note)

    def show_only(self, numbers: Iterable[int], selection: str) -> None:
        """Show these episodes only, in the table and on the sheet of what is drawn most often.

        Arguments:
            numbers: Numbers of the episodes.
            selection: Which these are, in words; the page says it.
        """
        self._shown, self._selection = np.array(sorted(numbers), np.int64), selection

    def resource(self, name: str) -> bytes:
        """Return a resource by its name, compressed.

        Raises:
            LookupError: there is none of this name.
        """
        kind, *numbers = name.split("/")
        if kind not in self._kinds or not all(number.isdecimal() and len(number) <= MOST_DIGITS for number in numbers):
            raise LookupError(f"{name!r} is no resource; ask for one of {', '.join(self._kinds)}")
        with self._lock_of_charts if kind == "distribution" else self._lock:
            try:
                return self._kinds[kind](*map(int, numbers))
            except TypeError as error:
                raise LookupError(f"{name!r} is no resource: it has too many or too few numbers; {error}") from error

    def enter_child(self) -> None:
        """Replace the locks, which a thread of the parent may hold while it makes a resource."""
        self._lock, self._lock_of_charts = threading.Lock(), threading.Lock()

    @property
    def name(self) -> str:
        """Name of the memory's folder, or of the run that it belongs to."""
        folder = self.folder.resolve()
        return folder.parent.name if folder.name == MEMORY_OF_A_RUN else folder.name

    def num_pieces(self, number: int) -> int:
        """Return the number of pieces that the frames of an episode have."""
        return -(-int(self.table.episodes.num_frames[number]) // frames_per_piece(self.memory))

    def _memory(self) -> bytes:
        memory, settings = self.memory, self.memory.inner.settings
        report, steps = memory.report(), memory.inner.steps
        stored = StoredSteps(steps, settings.num_envs, self.table.episodes, len(steps.pending))
        numbers = {name: fact.compute(stored) for name, fact in shown_in("view", OF_A_STORE)}
        numbers |= {name: getattr(report, fact.key) for name, fact in shown_in("view", OF_A_MEMORY)}
        values = {
            "name": self.name,
            **numbers,
            "tiles": [
                [numbers[fact.homes["view"]], fact.unit, words]
                for words, fact in shown_in("tile", OF_A_MEMORY, OF_A_STORE)
            ],
            "num_envs": settings.num_envs,
            "labels": sorted(set(settings.labels)),
            "stack": settings.stack,
            "stack_padding": settings.stack_padding,
            "n_step": settings.n_step,
            "discount": settings.discount,
            "retention": settings.retention,
            "sampler": repr(memory.sampler),
            "sampler_note": self._sampler_note,
            "arrays": [_describe_array(array) for array in settings.frame.arrays],
            "depths": list(settings.layout.depths),
            "action_shape": list(settings.action.shape),
            "are_actions_counted": settings.action.is_counted,
            "extras": [[spec.name, list(spec.shape)] for spec in settings.extras.extras],
            "frames_per_piece": frames_per_piece(memory),
            "rows_a_spark_block": ROWS_A_SPARK_BLOCK,
            "damage": list(self.damage)[:MOST_MESSAGES],
            "selection": self._selection,
            "agent_steps": self.agent.agent_steps if self.agent else None,
            "action_names": self.agent.names if self.agent else [],
            "endings": list(ENDINGS),
            "beginnings": list(BEGINNINGS),
        }
        return pack_columns(values, {})

    def _episodes(self) -> bytes:
        table, rows = self.table, self._shown
        names, of_envs = np.unique(self.memory.inner.settings.labels, return_inverse=True)
        spans = table.spans[rows]
        columns = {
            "number": rows.astype(np.int32),
            "env_id": spans["env_id"],
            "length": spans["length"],
            "history": spans["history"],
            "return": spans["total_reward"],
            "ending": table.endings[rows],
            "beginning": table.beginnings[rows],
            "age": table.ages[rows],
        }
        if len(names):
            columns["label"] = of_envs.astype(np.int32)[spans["env_id"]]
        return pack_columns({}, columns)

    def _sparklines(self, block: int) -> bytes:
        rows = self._shown[block * ROWS_A_SPARK_BLOCK : (block + 1) * ROWS_A_SPARK_BLOCK]
        if not len(rows):
            raise LookupError(f"sparklines {block} are beyond the last episode; ask for earlier ones")
        lines = [draw_sparkline(self.table.read(self.memory.inner.parts, number).rewards) for number in rows.tolist()]
        return pack_columns({}, {"rewards": np.array(lines, np.float32).reshape(len(rows), SPARK_BINS)})

    def _episode(self, number: int) -> bytes:
        self._check_episode(number)
        memory, steps = self.memory, self.memory.inner.steps
        parts = memory.inner.parts
        episode = self.table.read(parts, number)
        span = self.table.spans[number]
        indices = episode.indices
        is_sampleable = steps.is_sampleable(indices)
        sampled = indices[is_sampleable]
        windows, fields = steps.resolve(sampled, False)
        of_transitions: dict[str, npt.NDArray[Any]] = {
            "n_step_return": fields.reward,
            "discount": fields.discount,
            "n_terminated": fields.terminated,
            "n_truncated": fields.truncated,
            "num_steps": count_steps(windows).astype(np.uint8),
        }
        with memory.inner.lock:
            chances = parts.notified_sampler.chances(sampled) if len(sampled) else None
        if chances is not None:
            of_transitions |= {"probability": chances.probabilities, "weight": chances.weights}
            if chances.priorities is not None:
                of_transitions["priority"] = chances.priorities
        columns = {
            "index": indices,
            "action": episode.actions,
            "reward": episode.rewards,
            "border": episode.borders,
            "is_sampleable": is_sampleable,
            **{name: _spread(values, is_sampleable) for name, values in of_transitions.items()},
            **{f"extra.{name}": values for name, values in episode.extras.items()},
        }
        values = {
            "number": number,
            "env_id": episode.env_id,
            "length": len(episode),
            "history": episode.history,
            "first_position": int(span["first"]),
            "age": int(self.table.ages[number]),
            "ending": int(self.table.endings[number]),
            "beginning": int(self.table.beginnings[number]),
            "is_open": bool(span["is_open"]),
            "pieces": self.num_pieces(number),
        }
        return pack_columns(values, columns)

    def _frames(self, number: int, piece: int) -> bytes:
        self._check_episode(number)
        if piece >= self.num_pieces(number):
            raise LookupError(f"episode {number} has {self.num_pieces(number)} pieces of frames; ask for one of them")
        episode = self.table.read(self.memory.inner.parts, number)
        content, gaps = read_piece(self.memory, episode, int(self.table.spans[number]["first"]), piece)
        self.damage.update(dict.fromkeys(gap.reason for gap in gaps))
        return content

    def _values(self, number: int, piece: int) -> bytes:
        self._check_episode(number)
        if self.agent is None or piece >= self.num_pieces(number):
            raise LookupError(f"episode {number} has no values {piece}; show the memory of a run, or ask for others")
        episode = self.table.read(self.memory.inner.parts, number)
        steps = steps_of_piece(self.memory, episode, piece)
        values = np.full((len(steps), len(self.agent.names)), np.nan, np.float32)
        errors = np.full(len(steps), np.nan, np.float32)
        indices = episode.indices[steps]
        rows = np.flatnonzero(self.memory.inner.steps.is_sampleable(indices))
        for start in range(0, len(rows), STEPS_AT_ONCE):
            some = rows[start : start + STEPS_AT_ONCE]
            for own, batch in read_batches(self.memory, indices, some, steps, {}):
                values[own], errors[own] = self.agent.of_batch(batch)
        first = int(steps[0]) if len(steps) else 0
        return pack_columns({"first_step": first}, {"values": values, "td_error": errors})

    def _distribution(self) -> bytes:
        return describe_distribution(self.memory, self.table, self._shown)

    def _check_episode(self, number: int) -> None:
        if number >= len(self.table):
            raise LookupError(f"there is no episode {number}: the memory has {len(self.table)}; ask for one of them")


def _describe_array(array: ArraySpec) -> dict[str, Any]:
    frame = array.frame
    return {
        "key": array.key,
        "shape": list(frame.shape),
        "dtype": frame.dtype.name,
        "is_scaled": frame.is_scaled,
        "has_axes": array.has_axes,
    }


def _spread(values: npt.NDArray[Any], is_given: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return ``values`` where ``is_given``, and zeros elsewhere."""
    spread = np.zeros(len(is_given), values.dtype)
    spread[is_given] = values
    return spread


class _DamageMessages(logging.Handler):
    """Collects the messages about damage that is skipped, in a ``with`` block."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def __enter__(self) -> _DamageMessages:
        logging.getLogger(DAMAGE_LOGGER).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger(DAMAGE_LOGGER).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())

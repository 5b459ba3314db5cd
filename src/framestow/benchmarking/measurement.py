"""Fill the memories with the same play, check what they return, and time them in turn."""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from framestow import __version__
from framestow.benchmarking.buffers import Buffer
from framestow.benchmarking.libraries import FRAMESTOW_SYSTEMS, Library, System, Task
from framestow.benchmarking.play import MOST_STEPS, Play, Row, Step
from framestow.benchmarking.timing import BareCopy, measure_turns, settle_allocator
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.process import available_bytes, live_bytes, resident_bytes
from framestow.replay.memory import ReplayMemory

GIB = 1 << 30
BARE_BYTES = 4 * GIB  # the bare copy's array, at most
MOST_BYTES = 12 * GIB  # of all systems together, where that much memory is free
CHUNK = 256  # steps appended between two readings of the clock
CHECKED_BATCHES = 8  # of each system, compared with the play before anything is timed
CALLS = 5  # batches a turn

OnProgress = Callable[[str, int, int], object]
"""Called with a description of the current work, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class BenchSettings:
    """Sizes and limits of a benchmark; raises ``InvalidSettingsError`` for invalid values."""

    transitions: int
    batch_size: int
    threads: int
    stack: int
    rounds: int
    max_bytes: int
    """For all systems together; the bare copy's array takes at most a third of it, and at most 4 GiB."""
    fill_seconds: float
    """Filling stops after this time for a library that reserves less than a frame a transition."""
    seed: int

    def __post_init__(self) -> None:
        for name in ("transitions", "batch_size", "threads", "stack", "rounds", "max_bytes", "fill_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidSettingsError(f"{name} is {getattr(self, name)}: it must be above 0; give a larger one")
        if self.transitions > MOST_STEPS:
            raise InvalidSettingsError(
                f"transitions is {self.transitions:,}: each reward is its transition's number, exact as float32 up to "
                f"{MOST_STEPS:,}; give fewer"
            )


@dataclass(frozen=True)
class SystemFigures:
    """One system's row of the table."""

    name: str
    setting: str
    version: str
    gives_up: str
    transitions: int
    bytes_per_transition: float
    sample_us: float
    append_us: float | None
    """Median over chunks of appends, for one step of one environment; ``None`` for the bare copy."""
    torch_threads: int | None = None
    """Number of PyTorch threads that was quicker; ``None`` where it does not matter."""

    @property
    def description(self) -> str:
        """Name, version, setting and what it gives up, in one line."""
        threads = "" if self.torch_threads is None else f", torch threads: {self.torch_threads}"
        loss = f"; gives up {self.gives_up}" if self.gives_up else ""
        return f"{' '.join(filter(None, (self.name, self.version)))}: {self.setting}{threads}{loss}"


@dataclass(frozen=True)
class LeftOut:
    """A system that was not measured, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class BenchFigures:
    """Everything measured in one run; the first system is framestow's default storage."""

    game: str
    preset: str
    frame_shape: tuple[int, ...]
    stack: int
    batch_size: int
    threads: int
    frames_played: int
    rounds: int
    seed: int
    bare_copy: SystemFigures
    systems: tuple[SystemFigures, ...]
    left_out: tuple[LeftOut, ...]
    append_us_of_8_envs: float

    def sample_of_bare_copy(self, system: SystemFigures) -> float:
        """Return the system's sampling time divided by the bare copy's."""
        return system.sample_us / self.bare_copy.sample_us

    def bytes_of_framestow(self, system: SystemFigures) -> float:
        """Return the system's bytes per transition divided by those of framestow's default storage."""
        return system.bytes_per_transition / self.systems[0].bytes_per_transition

    def sample_of_framestow(self, system: SystemFigures) -> float:
        """Return the system's sampling time divided by that of framestow's default storage."""
        return system.sample_us / self.systems[0].sample_us

    def to_dict(self) -> dict[str, Any]:
        """Return all figures and their ratios as values for JSON."""
        plain = asdict(self)
        rows = []
        for system in (self.bare_copy, *self.systems):
            ratios = {
                "sample_of_bare_copy": self.sample_of_bare_copy(system),
                "bytes_of_framestow": self.bytes_of_framestow(system),
                "sample_of_framestow": self.sample_of_framestow(system),
            }
            rows.append({**asdict(system), **ratios})
        plain["bare_copy"], *plain["systems"] = rows
        return plain


def affordable_bytes() -> int:
    """Return 12 GiB, or half of the memory that this process can still take if that is less."""
    return min(MOST_BYTES, available_bytes() // 2)


def measure(
    play: Play,
    preset: str,
    settings: BenchSettings,
    libraries: Iterable[Library],
    on_progress: OnProgress,
    framestow_systems: Sequence[System] = FRAMESTOW_SYSTEMS,
) -> BenchFigures:
    """Measure framestow's storages and the other libraries' memories on ``play``.

    A library that fails, or returns other observations than it was fed, is left out with the reason. An error in
    framestow's own systems is raised.
    """
    others = [(system, library) for library in libraries for system in library.systems]
    bare_bytes = min(BARE_BYTES, settings.max_bytes // 3, settings.transitions * play.frames[0].nbytes)
    share = (settings.max_bytes - bare_bytes) // (len(framestow_systems) + len(others))
    bare = BareCopy(play, max(bare_bytes, (settings.stack + 2) * play.frames[0].nbytes), settings.seed)
    unlimited, limited = _Limits(share, float("inf")), _Limits(share, settings.fill_seconds)
    filled = [_fill_system(each, __version__, play, settings, unlimited, on_progress) for each in framestow_systems]
    left_out = []
    for system, library in others:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                filled.append(_fill_system(system, library.version, play, settings, limited, on_progress))
        except Exception as error:  # any version of another library may fail; the others are still measured
            left_out.append(LeftOut(system.name, f"{type(error).__name__}: {error}".splitlines()[0]))
    settle_allocator()
    bare_us, systems = _time_systems(bare, filled, settings, on_progress)
    return BenchFigures(
        game=play.game,
        preset=preset,
        frame_shape=play.frames.shape[1:],
        stack=settings.stack,
        batch_size=settings.batch_size,
        threads=settings.threads,
        frames_played=len(play.frames),
        rounds=settings.rounds,
        seed=settings.seed,
        bare_copy=SystemFigures(bare.name, "", "", "", bare.num_frames, bare.frame_bytes, bare_us, None),
        systems=tuple(systems),
        left_out=tuple(left_out),
        append_us_of_8_envs=append_us_of_envs(play, 8, settings.stack),
    )


def append_us_of_envs(play: Play, num_envs: int, stack: int, num_calls: int = 2_048) -> float:
    """Return the median microseconds of a step in calls that append one step of every environment, ``begin`` included.

    The environments start at evenly spaced steps of the play.
    """
    frame, capacity = FrameSpec(play.frames.shape[1:]), num_calls * num_envs
    memory = ReplayMemory(capacity, frame, play.num_actions, stack=stack, num_envs=num_envs)
    spacing = len(play.positions) // num_envs
    plays = [play.steps(num_calls, stack, first=env_id * spacing) for env_id in range(num_envs)]
    is_first_call = True
    chunk_us = []
    calls_a_chunk = 64  # so that each chunk includes work that is done once a segment
    for _ in range(num_calls // calls_a_chunk):
        elapsed = 0.0
        for _ in range(calls_a_chunk):
            steps = [next(of_env) for of_env in plays]
            starting = [env_id for env_id, step in enumerate(steps) if step.starts_episode or is_first_call]
            is_first_call = False
            first_frames = np.array([steps[env_id].observation[-1] for env_id in starting])
            actions, rewards = np.array([step.action for step in steps]), np.array([step.reward for step in steps])
            terminated = np.array([step.terminated for step in steps])
            truncated = np.array([step.truncated for step in steps])
            frames = np.stack([step.next_observation[-1] for step in steps])
            start = time.perf_counter()
            if starting:
                memory.begin(first_frames, starting)
            memory.append(actions, rewards, terminated, truncated, frames)
            elapsed += time.perf_counter() - start
        chunk_us.append(elapsed / (calls_a_chunk * num_envs) * 1e6)
    return statistics.median(chunk_us)


class _Limits(NamedTuple):
    """Where filling stops: the system's share of bytes, and seconds."""

    nbytes: int
    seconds: float


class _Filled(NamedTuple):
    system: System
    buffer: Buffer
    figures: SystemFigures


def _fill_system(
    system: System,
    version: str,
    play: Play,
    settings: BenchSettings,
    limits: _Limits,
    on_progress: OnProgress,
) -> _Filled:
    """Build a system, fill it and check it."""
    shape = play.frames.shape[1:]
    task = Task(0, shape, settings.stack, play.num_actions, settings.batch_size, settings.threads, settings.seed)
    _warm_up(system, replace(task, capacity=CHUNK), play)
    reserved = system.bytes_reserved(task)
    capacity = min(settings.transitions, max(limits.nbytes // reserved, CHUNK))
    if reserved >= task.frame_bytes:
        limits = limits._replace(seconds=float("inf"))  # the reserved bytes are taken even if few are filled
    before = live_bytes()
    buffer = system.build(replace(task, capacity=capacity))
    steps = play.steps(capacity, settings.stack)
    count, append_us = _fill(buffer, steps, limits, lambda done: on_progress(f"filling {system.name}", done, capacity))
    nbytes = max(live_bytes() - before, buffer.read_reported_bytes())
    check_batches(system, buffer, play, task, count)
    figures = SystemFigures(
        name=system.name,
        setting=system.setting,
        version=version,
        gives_up=system.gives_up,
        transitions=count,
        bytes_per_transition=nbytes / count,
        sample_us=float("nan"),
        append_us=append_us,
    )
    return _Filled(system, buffer, figures)


def _fill(
    buffer: Buffer, steps: Iterator[Step], limits: _Limits, on_steps: Callable[[int], object]
) -> tuple[int, float]:
    """Append the steps until none is left or a limit is reached; return how many, and the median µs of one.

    The time includes the containers that the library takes a step in, but not their arrays. The bytes that a system
    took when it was built do not count here: some systems write to all of their arrays at once, and
    ``bytes_reserved`` has kept those within the limit.
    """
    bytes_before = resident_bytes()
    chunk_us = []
    count, deadline = 0, time.monotonic() + limits.seconds
    while chunk := list(islice(steps, CHUNK)):
        rows = [Row.of(step) for step in chunk]
        start = time.perf_counter()
        for row in rows:
            buffer.add(buffer.prepare(row))
        chunk_us.append((time.perf_counter() - start) / len(chunk) * 1e6)
        count += len(chunk)
        on_steps(count)
        if resident_bytes() - bytes_before > limits.nbytes or time.monotonic() > deadline:
            break
    return count, statistics.median(chunk_us)


def _warm_up(system: System, task: Task, play: Play) -> None:
    """Load the library and let it allocate what it shares between memories, before bytes are counted."""
    buffer = system.build(task)
    for step in play.steps(task.capacity, task.stack):
        buffer.add(buffer.prepare(Row.of(step)))
    buffer.sample(task.batch_size)


def check_batches(system: System, buffer: Buffer, play: Play, task: Task, num_steps: int) -> None:
    """Raise ``DamagedDataError`` if sampled observations differ from the stored ones."""
    for _ in range(CHECKED_BATCHES):
        arrays = buffer.as_arrays(buffer.sample(task.batch_size))
        numbers = arrays.rewards.astype(np.int64)
        if numbers.min() < 0 or numbers.max() >= num_steps:
            raise _wrong(system, "reward")
        newest = play.positions[numbers % len(play.positions)]
        is_padded = newest - play.episode_starts[newest] < task.stack - 1
        counts = ~is_padded | system.pads_as_played
        if not (arrays.observations[counts] == play.observations(numbers[counts], task.stack)).all():
            raise _wrong(system, "observation")
        # A buffer that returns the following step's observation as the next one has none for the newest step either.
        has_follower = ~play.has_ended(numbers) & (numbers < num_steps - 1)
        counts &= has_follower | system.keeps_final_frames
        expected = play.observations(numbers[counts], task.stack, steps_later=1)
        if arrays.next_observations is None or not (arrays.next_observations[counts] == expected).all():
            raise _wrong(system, "next observation")


def _time_systems(
    bare: BareCopy, filled: list[_Filled], settings: BenchSettings, on_progress: OnProgress
) -> tuple[float, list[SystemFigures]]:
    """Time the bare copy and every system in turn, those on PyTorch with one thread and with its default."""
    candidates: dict[str, Callable[[], Any]] = {bare.name: partial(bare.copy, settings.batch_size, settings.stack + 1)}
    before_turn: dict[str, Callable[[], Any]] = {}
    names: list[dict[int | None, str]] = []
    torch: Any = sys.modules.get("torch")
    default_threads = torch.get_num_threads() if torch else 1
    for each in filled:
        threads = dict.fromkeys([1, default_threads] if each.system.uses_torch else [None])
        names.append({count: f"{each.figures.name}, {count}" for count in threads})
        for count, name in names[-1].items():
            candidates[name] = partial(each.buffer.sample, settings.batch_size)
            if count is not None:
                before_turn[name] = partial(torch.set_num_threads, count)
    rounds_done = iter(range(1, settings.rounds + 4))
    turns = measure_turns(
        candidates,
        settings.rounds,
        CALLS,
        before_turn=before_turn,
        after_round=lambda: on_progress("timing in turn", next(rounds_done), settings.rounds + 3),
    )
    if torch:
        torch.set_num_threads(default_threads)
    # The median of single calls: on a busy machine most turns contain an interrupted call.
    medians = {name: statistics.median(chain.from_iterable(times)) * 1e6 for name, times in turns.items()}
    systems = []
    for each, by_threads in zip(filled, names, strict=True):
        best = min(by_threads, key=lambda count: medians[by_threads[count]])
        systems.append(replace(each.figures, sample_us=medians[by_threads[best]], torch_threads=best))
    return medians[bare.name], systems


def _wrong(system: System, what: str) -> DamagedDataError:
    return DamagedDataError(
        f"{system.name} returned a wrong {what}: only libraries with right batches are compared; leave it out with "
        "--libraries"
    )

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
from framestow.benchmarking.libraries import OWN_SYSTEMS, Peer, System, Task
from framestow.benchmarking.play import MOST_STEPS, Play, Step
from framestow.benchmarking.timing import BareCopy, interleaved_turns
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.process_memory import available_bytes, live_bytes, resident_bytes
from framestow.replay.memory import ReplayMemory


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
    """Median over stretches of appends, for one step of one stream; ``None`` for the bare copy."""
    torch_threads: int | None = None
    """With how many threads PyTorch was the quicker; ``None`` where it does not matter."""

    @property
    def description(self) -> str:
        """Name, version, setting and what is given up, in one line."""
        threads = "" if self.torch_threads is None else f", torch threads: {self.torch_threads}"
        loss = f"; gives up {self.gives_up}" if self.gives_up else ""
        return f"{' '.join(filter(None, (self.name, self.version)))}: {self.setting}{threads}{loss}"


@dataclass(frozen=True)
class LeftOut:
    """A system without figures, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class BenchFigures:
    """Everything that was measured in one run; the first system is framestow's default storage."""

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
    append_us_of_8_streams: float

    def of_the_bare_copy(self, system: SystemFigures) -> float:
        """How many times the bare copy's time a batch takes."""
        return system.sample_us / self.bare_copy.sample_us

    def times_our_bytes(self, system: SystemFigures) -> float:
        """How many times the bytes of framestow's default storage."""
        return system.bytes_per_transition / self.systems[0].bytes_per_transition

    def times_our_time(self, system: SystemFigures) -> float:
        """How many times the sampling time of framestow's default storage."""
        return system.sample_us / self.systems[0].sample_us

    def to_dict(self) -> dict[str, Any]:
        """All figures with their ratios, as JSON has them."""
        plain = asdict(self)
        rows = []
        for system in (self.bare_copy, *self.systems):
            ratios = {
                "sample_of_bare_copy": self.of_the_bare_copy(system),
                "bytes_of_framestow": self.times_our_bytes(system),
                "sample_of_framestow": self.times_our_time(system),
            }
            rows.append({**asdict(system), **ratios})
        plain["bare_copy"], *plain["systems"] = rows
        return plain


GIB = 1 << 30
BARE_BYTES = 4 * GIB  # what the bare copy's array takes where there is room
MOST_BYTES = 12 * GIB  # what all systems take together where there is room
CHUNK = 256  # steps that are appended between two looks at the clock
CHECKED_BATCHES = 8
CALLS = 5  # batches a turn
SETTLING_BYTES = 31 << 20  # just under what glibc takes as the largest block to learn from

Watch = Callable[[str, int, int], object]
"""Is told what is being done, how much of it is done, and how much there is."""


@dataclass(frozen=True)
class BenchSettings:
    """How much of what is measured; raises ``InvalidSettingsError``."""

    transitions: int
    batch_size: int
    threads: int
    stack: int
    rounds: int
    max_bytes: int
    """For all systems together; the bare copy's array takes a third of it, at most 4 GiB."""
    fill_seconds: float
    """After so long a peer whose memory grows with what it holds has as many transitions as it has."""
    seed: int

    def __post_init__(self) -> None:
        for name in ("transitions", "batch_size", "threads", "stack", "rounds", "max_bytes", "fill_seconds"):
            if not getattr(self, name) > 0:
                raise InvalidSettingsError(f"{name} is {getattr(self, name)}: it must be above 0; give a larger one")
        if self.transitions > MOST_STEPS:
            raise InvalidSettingsError(
                f"transitions is {self.transitions:,}: a reward tells each one's number, exact as float32 up to "
                f"{MOST_STEPS:,}; give fewer"
            )


def affordable_bytes() -> int:
    """Return 12 GiB, or half of what this process may still take if that is less."""
    return min(MOST_BYTES, available_bytes() // 2)


class _Limits(NamedTuple):
    """Where filling stops: the system's share of bytes, and seconds."""

    nbytes: int
    seconds: float


class _Filled(NamedTuple):
    system: System
    figures: SystemFigures


def measure(
    play: Play,
    preset: str,
    settings: BenchSettings,
    peers: Iterable[Peer],
    watch: Watch,
    own_systems: Sequence[type[System]] = OWN_SYSTEMS,
) -> BenchFigures:
    """Measure framestow's storages and the peers on ``play``.

    A peer that fails, or gives other observations than it was fed, is left out with the reason; framestow's own
    failures are raised.
    """
    kinds = [(kind, peer) for peer in peers for kind in peer.systems]
    bare_bytes = min(BARE_BYTES, settings.max_bytes // 3)
    share = (settings.max_bytes - bare_bytes) // (len(own_systems) + len(kinds))
    bare = BareCopy(play, bare_bytes, settings.batch_size, settings.stack, settings.seed)
    own_limits, limits = _Limits(share, float("inf")), _Limits(share, settings.fill_seconds)
    filled = [_filled(kind, __version__, play, settings, own_limits, watch) for kind in own_systems]
    left_out = []
    for kind, peer in kinds:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                filled.append(_filled(kind, peer.version, play, settings, limits, watch))
        except Exception as error:  # whatever another library's version does, the others are still measured
            left_out.append(LeftOut(kind.name, f"{type(error).__name__}: {error}".splitlines()[0]))
    _settle_the_allocator()
    bare_us, systems = _timed(bare, filled, settings, watch)
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
        append_us_of_8_streams=append_us_of_streams(play, 8, settings.stack),
    )


def _filled(
    kind: type[System],
    version: str,
    play: Play,
    settings: BenchSettings,
    limits: _Limits,
    watch: Watch,
) -> _Filled:
    """Build a system, fill it and check it."""
    shape = play.frames.shape[1:]
    task = Task(0, shape, settings.stack, play.num_actions, settings.batch_size, settings.threads, settings.seed)
    _use_a_little(kind, replace(task, capacity=CHUNK), play)
    reserved = kind.bytes_reserved(task)
    capacity = min(settings.transitions, max(limits.nbytes // reserved, CHUNK))
    if reserved >= task.stack_bytes // task.stack:
        limits = limits._replace(seconds=float("inf"))  # what is reserved is taken, however little of it is filled
    before = live_bytes()
    system = kind(replace(task, capacity=capacity))
    steps = play.steps(capacity, settings.stack)
    count, append_us = _fed(system, steps, limits, lambda done: watch(f"filling {kind.name}", done, capacity))
    nbytes = max(live_bytes() - before, system.bytes_told())
    _check_pictures(system, play, settings.stack, count)
    figures = SystemFigures(
        name=kind.name,
        setting=kind.setting,
        version=version,
        gives_up=kind.gives_up,
        transitions=count,
        bytes_per_transition=nbytes / count,
        sample_us=float("nan"),
        append_us=append_us,
    )
    return _Filled(system, figures)


def _fed(
    system: System, steps: Iterator[Step], limits: _Limits, on_steps: Callable[[int], object]
) -> tuple[int, float]:
    """Append the steps until they or the limits are reached; return how many, and the median µs of one.

    What a system took when it was built does not count here: some write to all of their arrays at once, but
    ``bytes_reserved`` has kept those within the limit.
    """
    bytes_before = resident_bytes()
    chunk_us = []
    count, deadline = 0, time.monotonic() + limits.seconds
    while chunk := list(islice(steps, CHUNK)):
        start = time.perf_counter()
        for step in chunk:
            system.append(step)
        chunk_us.append((time.perf_counter() - start) / len(chunk) * 1e6)
        count += len(chunk)
        on_steps(count)
        if resident_bytes() - bytes_before > limits.nbytes or time.monotonic() > deadline:
            break
    return count, statistics.median(chunk_us)


def _use_a_little(kind: type[System], task: Task, play: Play) -> None:
    """Have the libraries loaded and what they keep for themselves allocated before bytes are counted."""
    system = kind(task)
    for step in play.steps(task.capacity, task.stack):
        system.append(step)
    system.sample()


def _check_pictures(system: System, play: Play, stack: int, num_steps: int) -> None:
    """Raise ``DamagedDataError`` if sampled observations are not those that were fed."""
    for _ in range(CHECKED_BATCHES):
        observations, next_observations, rewards = system.pictures(system.sample())
        numbers = rewards.astype(np.int64)
        if numbers.min() < 0 or numbers.max() >= num_steps:
            raise DamagedDataError(f"{system.name} gave a reward that it was not fed: its batches cannot be trusted")
        if not (observations == play.observations(numbers, stack)).all():
            raise DamagedDataError(f"{system.name} gave an observation that it was not fed: it cannot be compared")
        # A buffer that takes the following step's observation for the next one has none for the newest step either.
        has_follower = ~play.has_ended(numbers) & (numbers < num_steps - 1)
        counts = has_follower | system.keeps_final_frames
        expected = play.observations(numbers, stack, steps_later=1)
        if not (next_observations[counts] == expected[counts]).all():
            raise DamagedDataError(f"{system.name} gave a next observation that it was not fed: it cannot be compared")


def _settle_the_allocator() -> None:
    """Let freed batches stay with the process, as in one that has ever let a large array go.

    The C library hands large freed blocks back to the system until it has seen a larger one freed, and every batch in
    new arrays then pays for the pages anew. It is the others' advantage: cpprb's sample(32) took 166 µs or 840, by
    what else had been freed before; framestow uses its arrays again.
    """
    np.ones(SETTLING_BYTES, np.uint8)


def _timed(
    bare: BareCopy, filled: list[_Filled], settings: BenchSettings, watch: Watch
) -> tuple[float, list[SystemFigures]]:
    """Time the bare copy and every system in turn, those on PyTorch with one thread and with its default."""
    candidates: dict[str, Callable[[], Any]] = {bare.name: bare.sample}
    before_turn: dict[str, Callable[[], Any]] = {}
    names: list[dict[int | None, str]] = []
    torch: Any = sys.modules.get("torch")
    default_threads = torch.get_num_threads() if torch else 1
    for each in filled:
        threads = dict.fromkeys([1, default_threads] if each.system.uses_torch else [None])
        names.append({count: f"{each.figures.name}, {count}" for count in threads})
        for count, name in names[-1].items():
            candidates[name] = each.system.sample
            if count is not None:
                before_turn[name] = partial(torch.set_num_threads, count)
    rounds_done = iter(range(1, settings.rounds + 4))
    turns = interleaved_turns(
        candidates,
        settings.rounds,
        CALLS,
        before_turn=before_turn,
        after_round=lambda: watch("timing in turn", next(rounds_done), settings.rounds + 3),
    )
    if torch:
        torch.set_num_threads(default_threads)
    # Of single calls: where the machine is busy with something else, most turns hold one that was interrupted.
    medians = {name: statistics.median(chain.from_iterable(times)) * 1e6 for name, times in turns.items()}
    systems = []
    for each, by_threads in zip(filled, names, strict=True):
        best = min(by_threads, key=lambda count: medians[by_threads[count]])
        systems.append(replace(each.figures, sample_us=medians[by_threads[best]], torch_threads=best))
    return medians[bare.name], systems


CALLS_A_CHUNK = 64  # calls between two looks at the clock: it holds whatever is put off to the end of a segment


def append_us_of_streams(play: Play, num_streams: int, stack: int, num_calls: int = 2_048) -> float:
    """Median microseconds a step of calls that each append one step of every stream, ``begin`` included.

    The streams go through the play at places as far apart as can be.
    """
    frame, capacity = FrameSpec(play.frames.shape[1:]), num_calls * num_streams
    memory = ReplayMemory(capacity, frame, play.num_actions, stack=stack, num_streams=num_streams)
    apart = len(play.positions) // num_streams
    streams = [play.steps(num_calls, stack, first=stream * apart) for stream in range(num_streams)]
    is_first_call = True
    chunk_us = []
    for _ in range(num_calls // CALLS_A_CHUNK):
        elapsed = 0.0
        for _ in range(CALLS_A_CHUNK):
            steps = [next(stream) for stream in streams]
            starting = [stream for stream, step in enumerate(steps) if step.starts_episode or is_first_call]
            is_first_call = False
            first_frames = np.array([steps[stream].observation[-1] for stream in starting])
            actions, rewards = np.array([step.action for step in steps]), np.array([step.reward for step in steps])
            terminated = np.array([step.terminated for step in steps])
            truncated = np.array([step.truncated for step in steps])
            frames = np.stack([step.next_observation[-1] for step in steps])
            start = time.perf_counter()
            if starting:
                memory.begin(first_frames, starting)
            memory.append(actions, rewards, terminated, truncated, frames)
            elapsed += time.perf_counter() - start
        chunk_us.append(elapsed / (CALLS_A_CHUNK * num_streams) * 1e6)
    return statistics.median(chunk_us)

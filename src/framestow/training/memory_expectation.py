"""What the memory of a run will take when it is full, measured by a short play; a memory that cannot fit is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from framestow.envs import Recorder, make_atari
from framestow.errors import InvalidSettingsError
from framestow.process import available_bytes, available_disk_bytes
from framestow.replay.byte_amounts import MIB, format_bytes, parse_bytes
from framestow.replay.memory import ReplayMemory
from framestow.replay.memory_report import MemoryReport
from framestow.training.run import memory_arguments, num_actions_of
from framestow.training.settings import Settings

PLAYED_FRAMES, MIN_FRAMES = 6_400, 640  # one or two seconds; two segments, since fewer frames give no ratio
LEARNER_BYTES = 256 * MIB  # RAM of the learner beside the memory, after PyTorch is loaded


def measure_play(settings: Settings, show: Callable[[int, int], object]) -> MemoryReport:
    """Play the game at random for a tenth of the steps, at most 6,400; return the report of such a run's memory.

    ``show`` is called with the numbers of frames played and to play.
    """
    num_frames = min(PLAYED_FRAMES, max(MIN_FRAMES, settings.steps // 10))
    env = make_atari(settings.game, 1, settings.preset, settings.seed)
    small = {"capacity": num_frames, "num_envs": 1, "retention": "fifo", "sampler": settings.sampler()}
    num_actions = num_actions_of(env)
    memory = ReplayMemory(
        observation_space=env.single_observation_space, action_space=num_actions, **memory_arguments(settings) | small
    )
    recorder, random = Recorder(env, memory), np.random.default_rng(settings.seed)
    try:
        recorder.reset()
        for done in range(1, num_frames):  # the first frame is that of the reset
            recorder.step(random.integers(0, num_actions, 1))
            show(done + 1, num_frames)
    finally:
        recorder.close()
    return memory.report()


def expect_memory(settings: Settings, report: MemoryReport, basis: str, folder: Path, stored: int = 0) -> str:
    """Return a line about the bytes of the full memory beside what is free.

    Arguments:
        settings: The settings of the run.
        report: That of a memory with such transitions.
        basis: What ``report`` was measured on.
        folder: The run folder; it need not exist yet.
        stored: Transitions that the run has stored and saved already.

    Raises:
        InvalidSettingsError: what is missing until the memory is full cannot fit; the message names what does.
    """
    each = report.bytes_per_transition
    full, free_ram = min(settings.memory, settings.steps), max(available_bytes() - LEARNER_BYTES, 0)
    if settings.memory_bytes is not None:
        full = min(full, int(parse_bytes(settings.memory_bytes) / each))
    in_ram = each - report.sealed_bytes_per_transition if settings.memory_on_disk else each
    places = {"RAM": (in_ram, free_ram), f"disk space at {folder}": (each, available_disk_bytes(folder))}
    measured = f"{each:,.0f} bytes each, measured on {basis}"
    for place, (bytes_each, free) in places.items():
        if (full - stored) * bytes_each > free:
            fitting = stored + min(int(free / one) for one, free in places.values())
            raise InvalidSettingsError(
                f"memory is {settings.memory:,}: the {full:,} transitions of this run take about "
                f"{format_bytes(full * bytes_each)} of {place}, and only {format_bytes(free)} are free ({measured}); "
                f"give --memory {float(f'{max(0.9 * fitting, 1):.1e}'):_.0f} or less"
                + (", or --memory-on-disk" if place == "RAM" and not settings.memory_on_disk else "")
            )
    (ram_each, ram), (disk_each, disk) = places.values()
    return (
        f"about {format_bytes(full * ram_each)} in RAM ({format_bytes(ram)} free) and {format_bytes(full * disk_each)} "
        f"on disk ({format_bytes(disk)} free) for {full:,} transitions: {measured}"
    )

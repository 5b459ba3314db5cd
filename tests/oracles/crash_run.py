"""A memory whose calls are interrupted by Ctrl-C at random moments, and plain lists of what it has to store."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.samplers.prioritized import Prioritized
from framestow.replay.samplers.uniform import Uniform
from oracles.ctrl_c import NumberedPoints

NUM_ENVS, STACK, NUM_ACTIONS, SEGMENT_FRAMES = 2, 3, 4, 16
CAPACITY = SEGMENT_FRAMES * (NUM_ENVS + 16) + NUM_ENVS * STACK  # the smallest for retention="random"
NUM_FRAMES = 32_768  # different ones; a life stores fewer

PICTURE = FrameSpec((6, 5))
VECTOR = FrameSpec((3,), np.dtype(np.float64))
SCALED = FrameSpec((4, 4), np.dtype(np.float32), is_scaled=True)
KINDS: dict[str, dict[str, FrameSpec]] = {
    "pictures": {"": PICTURE},
    "vectors": {"": VECTOR},
    "scaled floats": {"": SCALED},
    "Dict": {"camera": PICTURE, "arm": VECTOR, "seen": SCALED},
}


@cache
def all_frames(kind: str) -> dict[str, np.ndarray]:
    """Frame i of each array of an observation, for every i; of scaled floats every third is no pixel over 255."""
    random, frames = np.random.default_rng(1), {}
    for key, spec in KINDS[kind].items():
        values = random.integers(0, 256, (NUM_FRAMES, *spec.shape)).astype(spec.dtype)
        if spec.is_scaled:
            values /= 255
            values[::3] += np.float32(1e-3)
        values.reshape(NUM_FRAMES, -1)[:, 0] = np.arange(NUM_FRAMES) % 251 / (255 if spec.is_scaled else 1)
        frames[key] = values
    return frames


class Step(NamedTuple):
    """One stored step; frames by their numbers."""

    env_id: int
    position: int  # in its environment
    observation: list[int]
    next_observation: list[int]
    action: int
    terminated: bool
    truncated: bool


class ByTimer:
    """Interrupts calls by a real timer, at a random moment of as long as such a call took before."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._seconds: dict[str, float] = {}
        self._may_interrupt = False

    def call(self, name: str, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Whether Ctrl-C came before ``call`` returned, and what it returned otherwise."""
        # The handler stays. So a signal that another thread received, and that is handled late, does nothing.
        signal.signal(signal.SIGALRM, self._interrupt)
        after_s = max(1e-6, self._random.random() * 1.2 * self._seconds.get(name, 1e-4))
        start = time.perf_counter()
        try:
            self._may_interrupt = True
            signal.setitimer(signal.ITIMER_REAL, after_s)
            result = call()
            self._may_interrupt = False
        except KeyboardInterrupt:
            self._seconds[name] = max(self._seconds.get(name, 0.0), after_s)
            return True, None
        signal.setitimer(signal.ITIMER_REAL, 0)
        took_s = time.perf_counter() - start
        self._seconds[name] = 0.8 * self._seconds.get(name, took_s) + 0.2 * took_s
        return False, result

    def _interrupt(self, *_: Any) -> None:
        if self._may_interrupt:
            self._may_interrupt = False
            raise KeyboardInterrupt


class AtPlaces:
    """Interrupts calls at a random one of the points where Python looks for signals."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self._num_points: dict[str, int] = {}

    def call(self, name: str, call: Callable[[], Any]) -> tuple[bool, Any]:
        """Whether Ctrl-C came before ``call`` returned, and what it returned otherwise."""
        most = self._num_points.get(name, 0)
        point = int(self._random.integers(most + 1)) if most and self._random.random() < 0.9 else 0  # 0: count them
        points = NumberedPoints(point)
        try:
            with points:
                result = call()
        except KeyboardInterrupt:
            return True, None
        self._num_points[name] = max(most, points.num_seen)
        return False, result


class CrashRun:
    """Calls a memory's methods at random, each with Ctrl-C somewhere in it, and checks all that it gives.

    The reward of a step is its number. A step whose ``append`` returned is stored; one whose ``append`` was interrupted
    is stored whole or not at all. ``num_interrupts`` and ``num_rows`` count what was tried and compared.
    """

    def __init__(self, kind: str, storage: str, retention: str, is_prioritized: bool, folder: Path, seed: int) -> None:
        self.kind, self.folder, self.is_fifo = kind, folder, retention == "fifo"
        self.is_prioritized, self.lives_in_folder = is_prioritized, storage == "on disk"
        self.random = np.random.default_rng(seed)
        self.interrupts: ByTimer | AtPlaces = AtPlaces(self.random)
        self.num_interrupts = self.num_rows = self.next_frame = self.next_number = 0
        self.num_saved = 0  # steps that a save or flush which returned has covered
        self.steps: dict[int, Step] = {}  # by number, in the order in which they were stored
        self.episodes: list[list[int]] = [[] for _ in range(NUM_ENVS)]
        self.is_open = [False] * NUM_ENVS
        self.next_positions = [0] * NUM_ENVS
        spec: Any = KINDS[kind]
        self.memory = ReplayMemory(
            CAPACITY,
            spec.get("", spec),
            NUM_ACTIONS,
            stack=STACK,
            num_envs=NUM_ENVS,
            sampler=Prioritized() if is_prioritized else Uniform(),
            storage="packed" if self.lives_in_folder else storage,
            retention=retention,  # type: ignore[arg-type]
            frames_per_segment=SEGMENT_FRAMES,
            directory=folder if self.lives_in_folder else None,
            flush_every=None,
            seed=seed,
        )

    def live(self, interrupts: ByTimer | AtPlaces, num_calls: int) -> None:
        """Fill the memory, then interrupt so many calls; check everything."""
        self.interrupts = interrupts
        while len(self.steps) < CAPACITY:
            self.step(is_interrupted=False)
        calls = [self.step] * 6 + [self.sample, self.sample_sequences, self.update_priorities]
        for _ in range(num_calls):
            if self.random.random() < 0.05:
                self.save()
            else:
                calls[self.random.integers(len(calls))]()
        for _ in range(2 * SEGMENT_FRAMES):  # the memory goes on
            self.step(is_interrupted=False)
        self.check()

    def step(self, *, is_interrupted: bool = True) -> None:
        """Begin episodes where they ended, now and then elsewhere too, and append a step."""
        closed = [env_id for env_id, is_open in enumerate(self.is_open) if not is_open or self.random.random() < 0.02]
        if closed and not self.begin(closed, is_interrupted):
            return
        env_ids = self.random.permutation(NUM_ENVS)[: self.random.integers(1, NUM_ENVS + 1)].tolist()
        frames, numbers = self.new_frames(len(env_ids)), np.arange(len(env_ids)) + self.next_number
        self.next_number += len(env_ids)
        actions = self.random.integers(0, NUM_ACTIONS, len(env_ids)).tolist()
        terminated, truncated = (self.random.random((2, len(env_ids))) < 0.04).tolist()
        arguments = actions, numbers.astype(np.float64), terminated, truncated, self.shown(frames), env_ids
        was_interrupted, _ = self.called("append", lambda: self.memory.append(*arguments), is_interrupted)
        if was_interrupted and not self.has_stored(env_ids, frames):
            return
        for row, env_id in enumerate(env_ids):
            before = self.stack(env_id)
            self.episodes[env_id].append(frames[row])
            self.steps[int(numbers[row])] = Step(
                env_id,
                self.next_positions[env_id],
                before,
                self.stack(env_id),
                actions[row],
                terminated[row],
                truncated[row],
            )
            self.next_positions[env_id] += 1
            self.is_open[env_id] = not (terminated[row] or truncated[row])

    def begin(self, env_ids: list[int], is_interrupted: bool) -> bool:
        """Begin episodes; whether they have begun."""
        frames = self.new_frames(len(env_ids))
        was_interrupted, _ = self.called(
            "begin", lambda: self.memory.begin(self.shown(frames), env_ids), is_interrupted
        )
        has_begun = not was_interrupted or self.has_stored(env_ids, frames)
        for frame, env_id in zip(frames if has_begun else [], env_ids, strict=False):
            self.episodes[env_id], self.is_open[env_id] = [frame], True
            self.next_positions[env_id] += 1
        return has_begun and all(self.is_open)

    def sample(self) -> None:
        """Sample transitions."""
        _, batch = self.called("sample", lambda: self.memory.sample(8))
        if batch is not None:
            self.check_rows(batch.reward, batch)

    def sample_sequences(self) -> None:
        """Sample sequences; their steps follow one another."""
        _, batch = self.called("sample_sequences", lambda: self.memory.sample_sequences(3, 5))
        if batch is None:
            return
        self.check_rows(batch.reward, batch, batch.mask)
        for rewards, mask in zip(batch.reward, batch.mask, strict=True):
            steps = [self.steps[number] for number in rewards[mask].astype(int).tolist()]
            assert [(steps[0].env_id, steps[0].position + row) for row in range(len(steps))] == [
                (step.env_id, step.position) for step in steps
            ]

    def update_priorities(self) -> None:
        """Sample, and give what was drawn other priorities."""
        if self.is_prioritized:
            indices = self.memory.sample(16).index
            errors = self.random.random(16) * 10
            self.called("update_priorities", lambda: self.memory.update_priorities(indices, errors))

    def save(self) -> None:
        """Save or flush; what lies in the folder afterwards is what it promises."""
        save = self.memory.flush if self.lives_in_folder else lambda: self.memory.save(self.folder)
        was_interrupted, _ = self.called("save", save)
        if not was_interrupted:
            self.num_saved = len(self.steps)
        if (was_interrupted or self.random.random() < 0.2) and self.num_saved:
            self.check_stored(ReplayMemory.load(self.folder), self.num_saved)

    def called(self, name: str, call: Callable[[], Any], is_interrupted: bool = True) -> tuple[bool, Any]:
        """Whether the call was interrupted, and what it gave otherwise."""
        if not is_interrupted:
            return False, call()
        was_interrupted, given = self.interrupts.call(name, call)
        self.num_interrupts += was_interrupted
        return was_interrupted, given

    def check(self) -> None:
        """Raise unless the memory stores what it has to, is saved and loaded, and draws by its priorities."""
        self.check_stored(self.memory, len(self.steps))
        self.check_shown(self.memory)
        _ = self.memory.flush() if self.lives_in_folder else self.memory.save(self.folder)
        loaded = ReplayMemory.load(self.folder)
        self.check_stored(loaded, len(self.steps))
        self.check_shown(loaded)
        np.testing.assert_array_equal(self.memory.sampleable_indices(), loaded.sampleable_indices())
        if self.is_prioritized:
            self.check_priorities()

    def check_stored(self, memory: ReplayMemory, num_steps: int) -> None:
        """Raise unless ``memory`` has at least the first ``num_steps`` steps, except those that were evicted."""
        memory.inner.parts.check()
        batch = memory.get(memory.sampleable_indices())
        self.check_rows(batch.reward, batch)
        stored = batch.reward.astype(int).tolist()
        assert len(set(stored)) == len(stored), "a step is stored twice"
        numbers = list(self.steps)
        count = max(num_steps, numbers.index(max(stored)) + 1)
        expected = numbers[max(0, count - CAPACITY) : count]
        if self.is_fifo:  # an interrupted append may have made room for a step that it did not store
            assert expected[-len(stored) :] == stored
            assert len(stored) >= len(expected) - NUM_ENVS
        elif count == len(numbers):
            for env_id in range(NUM_ENVS):
                positions = {number: step.position for number, step in self.steps.items() if step.env_id == env_id}
                first = max(positions.values()) // SEGMENT_FRAMES * SEGMENT_FRAMES + STACK
                firm = {number for number, position in positions.items() if position >= first}
                assert not firm - set(stored), "steps of a segment that may not leave are gone"

    def check_rows(self, rewards: np.ndarray, batch: Any, mask: np.ndarray | None = None) -> None:
        """Raise unless each row of ``batch``, of those that ``mask`` names, is the step whose number is its reward."""
        chosen: Any = np.s_[:] if mask is None else mask
        steps = [self.steps[number] for number in rewards[chosen].astype(int).tolist()]
        self.num_rows += len(steps)
        for name in ("observation", "next_observation"):
            numbers = np.array([getattr(step, name) for step in steps])
            actual = getattr(batch, name)
            for key, frames in all_frames(self.kind).items():
                part = actual[key] if key else actual
                np.testing.assert_array_equal(frames[numbers], part[chosen], f"{name} {key}")
        for name in ("action", "terminated", "truncated"):
            np.testing.assert_array_equal([getattr(step, name) for step in steps], getattr(batch, name)[chosen], name)

    def check_shown(self, memory: ReplayMemory) -> None:
        """Raise unless a policy sees each environment's newest frames, and the memory knows which episodes are open."""
        shown, numbers = memory.observations(), np.array([self.stack(env_id) for env_id in range(NUM_ENVS)])
        for key, frames in all_frames(self.kind).items():
            np.testing.assert_array_equal(frames[numbers], shown[key] if key else shown, f"observations {key}")
        assert self.is_open == memory.open_episodes.tolist()

    def check_priorities(self) -> None:
        """Raise unless a stratified draw takes each step as often as its new priority says."""
        indices = self.memory.sampleable_indices()
        priorities = self.random.integers(1, 5, len(indices)).astype(np.float64)
        self.memory.update_priorities(indices, priorities)
        weights = (priorities + 1e-6) ** 0.6
        counts = np.bincount(np.searchsorted(indices, self.memory.sample(1000).index), minlength=len(indices))
        assert np.abs(counts - 1000 * weights / weights.sum()).max() < 2.001

    def has_stored(self, env_ids: list[int], frames: list[int]) -> bool:
        """Whether the memory has the new frames; raises where it has only some of them."""
        shown = self.memory.observations()
        is_there = [
            all(
                np.array_equal(all_frames(self.kind)[key][frame], (shown[key] if key else shown)[env_id, -1])
                for key in all_frames(self.kind)
            )
            for env_id, frame in zip(env_ids, frames, strict=True)
        ]
        assert len(set(is_there)) == 1, f"of environments {env_ids} only {is_there} have their new frame"
        return is_there[0]

    def new_frames(self, count: int) -> list[int]:
        """Numbers of frames that were not used before."""
        first, self.next_frame = self.next_frame, self.next_frame + count
        assert self.next_frame <= NUM_FRAMES, "a life has so many frames at most"
        return list(range(first, self.next_frame))

    def shown(self, numbers: list[int]) -> Any:
        """The frames of these numbers as a memory takes them."""
        parts = {key: frames[numbers] for key, frames in all_frames(self.kind).items()}
        return parts.get("", parts)

    def stack(self, env_id: int) -> list[int]:
        """Numbers of the frames of an environment's newest observation."""
        episode = self.episodes[env_id]
        return [episode[max(0, len(episode) - STACK + row)] for row in range(STACK)]

"""Play that shows a memory any observations, and the list of all steps: the oracle of ``ReplayMemory.add``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Dict

from framestow import ReplayMemory
from framestow.errors import NothingToSampleError
from framestow.frames.observation_spec import map_arrays
from framestow.replay.settings.observation_layout import ObservationLayout

SIDE = 32  # pixels, the least of a picture
NUM_ACTIONS, DISCOUNT = 4, 0.5
EXTRAS = {"number": np.int64}
KINDS = 9  # of a step, as ``AnyPlay.shown`` has them; three of them go on as they should

SPACES = {
    "first axis": Box(0, 255, (4, SIDE, SIDE), np.uint8),
    "last axis": Box(0, 255, (SIDE, SIDE, 4), np.uint8),
    "joined colours": Box(0, 255, (SIDE, SIDE, 6), np.uint8),
    "colours first": Box(0, 255, (6, SIDE, SIDE), np.uint8),
    "colours on a fourth axis": Box(0, 255, (SIDE, SIDE, 3, 4), np.uint8),
    "scaled floats": Box(0, 1, (4, SIDE, SIDE), np.float32),
    "floats": Box(-np.inf, np.inf, (SIDE, SIDE, 3), np.float32),
    "one picture": Box(0, 255, (SIDE, SIDE), np.uint8),
    "vector": Box(-np.inf, np.inf, (5,), np.float64),
    "dict": Dict({"camera": Box(0, 255, (SIDE, SIDE, 4), np.uint8), "joints": Box(-1, 1, (3,), np.float32)}),
}
SMALL = Box(0, 255, (4, 3, 5), np.uint8)  # a stack if ``stack_axis=0`` says so


class GivenStep(NamedTuple):
    """One step as it was given; ``episode`` and ``offset`` count the environment's episodes and the steps in it."""

    env_id: int
    episode: int
    offset: int
    observation: Any
    action: int
    reward: float
    next_observation: Any
    terminated: bool
    truncated: bool

    @property
    def has_ended(self) -> bool:
        return self.terminated or self.truncated


class AnyPlay:
    """Environments that show anything, and ``steps``, the list of all steps in the order of their numbers.

    Most steps shift the stack by one frame. The others skip a frame, show an unrelated observation, or next
    observation, reset in the middle, or show the next episode's first observation after an end. With ``mixes``,
    ``begin`` and ``append`` take turns with ``add``. The more ``kinds``, the more steps are regular.
    """

    def __init__(
        self,
        memory: Any,
        layout: ObservationLayout,
        seed: int,
        *,
        mixes: bool = False,
        kinds: int = KINDS,
        padding: str | None = None,
    ) -> None:
        self.memory, self.layout, self.mixes, self.kinds = memory, layout, mixes, kinds
        # The memory's stack_padding; asked for if ``memory`` is a writer of shards.
        self.padding = memory.inner.settings.stack_padding if padding is None else padding
        self.random, self.num_envs = np.random.default_rng(seed), memory.num_envs
        self.now = [self.stack() for _ in range(self.num_envs)]
        self.steps: list[GivenStep] = []
        self.forgotten = 0
        self.closed: set[int] = set()
        """Steps after which a memory was resumed that closed their episodes: no sequence goes on from them."""
        self.by_env: list[list[int]] = [[] for _ in range(self.num_envs)]
        self.by_episode: dict[tuple[int, int], list[int]] = {}
        # Of each open episode: the observation that continues it, and its frames.
        self.current: list[Any] = [None] * self.num_envs
        self.frames: list[Any] = [None] * self.num_envs
        self.episodes, self.offsets = [-1] * self.num_envs, [0] * self.num_envs

    # Playing

    def frame(self) -> list[np.ndarray]:
        """Return one random frame of each array; few different values, so that frames are often equal."""
        frames = []
        for spec in self.layout.frame_space.frame_specs:
            corner = self.random.integers(0, 3, (2,), dtype=np.uint8)
            frame = np.zeros(spec.shape, spec.dtype)
            frame.reshape(-1)[:2] = corner / np.float32(255) if spec.is_scaled else corner
            if spec.dtype.kind == "f" and self.random.random() < 0.1:
                frame.reshape(-1)[-1] = [np.nan, -0.0, 0.3][self.random.integers(3)]
            frames.append(frame)
        return frames

    def stack(self) -> list[list[np.ndarray]]:
        """Return an observation's frames, oldest first: repeated, behind zeros, or from an episode's middle."""
        depth = self.layout.depth
        frames = [self.frame() for _ in range(depth)]
        form = self.random.integers(3)
        if form == 0:
            frames = [frames[-1]] * depth
        elif form == 1:
            frames = [[np.zeros_like(part) for part in frames[-1]]] * (depth - 1) + [frames[-1]]
        return frames

    def observed(self, stacks) -> Any:
        """Return the observations of some environments, as the environment shows them, of their frames."""
        parts = []
        for number, depth in enumerate(self.layout.depths):
            parts.append(np.array([[frame[number] for frame in stack[-depth:]] for stack in stacks]))
        return self.layout.join(parts)

    def newest(self, stacks) -> Any:
        """Return what ``begin`` and ``append`` take: single frames, or whole observations."""
        if not self.layout.takes_frames:
            return self.observed(stacks)
        parts = [np.stack(parts) for parts in zip(*(stack[-1] for stack in stacks), strict=True)]
        return self.layout.frame_space.rebuild(parts)

    def play(self, num_calls: int) -> AnyPlay:
        for _ in range(num_calls):
            count = self.random.integers(1, self.num_envs + 1)
            env_ids = self.random.permutation(self.num_envs)[:count].tolist()
            way = self.random.integers(5) if self.mixes else 2
            if way == 0:
                self.begin(env_ids)
            elif way == 1:
                self.append([env_id for env_id in env_ids if self.current[env_id] is not None])
            else:
                self.add(env_ids)
        return self

    def add(self, env_ids: list[int]) -> None:
        before, after, ends, following = zip(*map(self.shown, env_ids), strict=True)
        given = self.observed(before), self.observed(after)
        action, reward, extras = self.chosen(len(env_ids))
        terminated, truncated = np.array(ends).T
        self.memory.add(given[0], action, reward, given[1], terminated, truncated, env_ids, extras)
        for row, env_id in enumerate(env_ids):
            of_row = [row_of(observation, row) for observation in given]
            self.note(env_id, of_row[0], action[row], reward[row], of_row[1], *ends[row], after[row])
            self.now[env_id] = following[row]

    def begin(self, env_ids: list[int]) -> None:
        """Begin episodes with ``begin``; of a single frame the memory makes a padded stack."""
        for env_id in env_ids:
            first = self.stack()
            if self.layout.takes_frames:
                first = [self.padding_of(first[-1])] * (self.layout.depth - 1) + [first[-1]]
            self.now[env_id] = first
        stacks = [self.now[env_id] for env_id in env_ids]
        self.memory.begin(self.newest(stacks), env_ids)
        observations = self.observed(stacks)
        for row, env_id in enumerate(env_ids):
            self.start(env_id, row_of(observations, row), stacks[row])

    def append(self, env_ids: list[int]) -> None:
        """Step open episodes with ``append``; a single frame shifts the stack by one."""
        if not env_ids:
            return
        _, after, ends, _ = zip(*map(self.shown, env_ids), strict=True)
        if self.layout.takes_frames:
            after = [[*self.frames[env_id][1:], stack[-1]] for env_id, stack in zip(env_ids, after, strict=True)]
        action, reward, extras = self.chosen(len(env_ids))
        terminated, truncated = np.array(ends).T
        self.memory.append(action, reward, terminated, truncated, self.newest(after), env_ids, extras)
        observations = self.observed(after)
        for row, env_id in enumerate(env_ids):
            next_observation = row_of(observations, row)
            self.note(env_id, self.current[env_id], action[row], reward[row], next_observation, *ends[row], after[row])
            self.now[env_id] = after[row]

    def shown(self, env_id: int):
        """Return the frames of a step's observation and of its next one, how it ended, and what the next step shows."""
        before, kind, ends = self.now[env_id], self.random.integers(self.kinds), (False, False)
        after = following = [*before[1:], self.frame()]
        if kind == 0:
            after = following = [*before[2:], self.frame(), self.frame()][-len(before) :]  # a skipped frame
        elif kind == 1:
            after = following = self.stack()  # anything
        elif kind == 2:
            after = self.stack()  # a next observation that is not the next step's
        elif kind == 3:
            following, ends = self.stack(), (True, False)
        elif kind == 4:
            following, ends = self.stack(), (False, True)
        elif kind == 5:
            after = following = self.stack()  # the next episode's first observation
            ends = (True, False)
        elif kind == 6:
            following = self.stack()  # a reset without a flag
        return before, after, ends, following

    def chosen(self, count: int):
        """Return actions, rewards and the steps' numbers."""
        action, reward = self.random.integers(0, NUM_ACTIONS, count), self.random.integers(-3, 4, count)
        return action, reward.astype(np.float32), {"number": len(self.steps) + np.arange(count)}

    def padding_of(self, frame: list[np.ndarray]) -> list[np.ndarray]:
        return frame if self.padding == "first_frame" else [np.zeros_like(part) for part in frame]

    def start(self, env_id: int, observation: Any, frames: Any = None) -> None:
        self.episodes[env_id] += 1
        self.offsets[env_id] = 0
        self.current[env_id], self.frames[env_id] = observation, frames

    def note(self, env_id: int, observation, action, reward, next_observation, terminated, truncated, frames) -> None:
        """List a step. Its episode goes on if it is open and shows the same observation, bit for bit."""
        if self.current[env_id] is None or not is_equal(self.current[env_id], observation):
            self.start(env_id, observation)
        place = env_id, self.episodes[env_id], self.offsets[env_id]
        self.by_env[env_id].append(len(self.steps))
        self.by_episode.setdefault(place[:2], []).append(len(self.steps))
        self.steps.append(
            GivenStep(*place, observation, int(action), float(reward), next_observation, terminated, truncated)
        )
        self.offsets[env_id] += 1
        has_ended = terminated or truncated
        self.current[env_id], self.frames[env_id] = (None, None) if has_ended else (next_observation, frames)

    def forget(self, before: int) -> None:
        """Forget the observations of the steps before this number, which a long play does not keep."""
        while self.forgotten < before:
            step = self.steps[self.forgotten]
            self.steps[self.forgotten] = step._replace(observation=None, next_observation=None)
            self.forgotten += 1

    # What the list says

    def is_open(self, number: int) -> bool:
        """Whether the step's episode may go on."""
        step = self.steps[number]
        return self.current[step.env_id] is not None and step.episode == self.episodes[step.env_id]

    def rest_of(self, number: int) -> list[int]:
        """Return the numbers of the steps of an episode from ``number`` on."""
        step = self.steps[number]
        return self.by_episode[step.env_id, step.episode][step.offset :]

    def sampleable(self, capacity: int, n_step: int = 1) -> list[int]:
        """Return the transitions of the newest ``capacity`` steps whose returns are complete."""
        kept = range(max(0, len(self.steps) - capacity), len(self.steps))
        return [number for number in kept if not self.is_open(number) or len(self.rest_of(number)) >= n_step]

    def following(self, number: int, length: int, crosses: bool, readable: set[int]) -> list[int]:
        """Return the numbers of a sequence from ``number`` on."""
        later = [other for other in self.by_env[self.steps[number].env_id] if other >= number]
        found = []
        for other in (later if crosses else self.rest_of(number))[:length]:
            is_cut = (
                bool(found) and found[-1] in self.closed and self.steps[found[-1]].episode == self.steps[other].episode
            )
            if other not in readable or is_cut:
                break
            found.append(other)
        return found

    def numbers_at(self, indices: np.ndarray) -> list[int]:
        """Return the numbers of these transitions of the memory."""
        return self.memory.get(indices).extras["number"].tolist() if len(indices) else []

    def is_aligned(self, number: int, stride: int, readable: set[int]) -> bool:
        """Whether sequences of which one begins every ``stride`` steps may begin here: nearer behind what is gone."""
        step = self.steps[number]
        return step.offset % stride == 0 or self.by_episode[step.env_id, step.episode][step.offset - 1] not in readable

    def fitting(self, length: int, stride: int, readable: set[int]) -> list[int]:
        """Return every start, a multiple of ``stride`` steps into its episode, of ``length`` readable steps of it."""
        starts = [number for number in sorted(readable) if self.steps[number].offset % stride == 0]
        return [number for number in starts if len(self.following(number, length, False, readable)) == length]

    def whole_episodes(self, readable: set[int]) -> list[list[int]]:
        """Return the steps of each episode that has ended, or was cut off, and of which every step is readable."""
        episodes = self.by_episode.values()
        return [steps for steps in episodes if not self.is_open(steps[0]) and readable.issuperset(steps)]

    # Comparing

    def assert_batch(self, batch, n_step: int = 1, lost: bool = False) -> None:
        """Compare every row with the listed step, and with the last one of its return.

        ``lost``: returns may end before a step that is not there any more, and indices may be others.
        """
        numbers = batch.extras["number"].tolist()
        if not lost:
            assert numbers == batch.index.tolist()
        for row, number in enumerate(numbers):
            first, steps = self.steps[number], [self.steps[other] for other in self.rest_of(number)[:n_step]]
            assert_same(first.observation, row_of(batch.observation, row))
            assert first.action == batch.action[row]
            found = [
                float(batch.reward[row]),
                float(batch.discount[row]),
                bool(batch.terminated[row]),
                bool(batch.truncated[row]),
                bits_of(row_of(batch.next_observation, row)),
            ]
            lengths = range(1, len(steps) + 1) if lost else [len(steps)]
            assert found in [_return_of(steps[:length]) for length in lengths], f"transition {number}"

    def assert_sequences(self, batch, borders: str, readable: set[int], fewest: int = 0) -> None:
        """Compare every step of every sequence; behind them there is nothing."""
        length = batch.mask.shape[1]
        for row in range(len(batch)):
            first = int(batch.extras["number"][row, 0])
            numbers = self.following(first, length, borders == "cross", readable)
            count = len(numbers)
            assert count >= fewest
            assert [True] * count + [False] * (length - count) == batch.mask[row].tolist()
            assert numbers == batch.extras["number"][row, :count].tolist()
            for place, number in enumerate(numbers):
                step = self.steps[number]
                assert (step.offset == 0) == batch.is_first[row, place]
                values = step.action, step.reward, step.terminated, step.truncated
                columns = batch.action, batch.reward, batch.terminated, batch.truncated
                assert values == tuple(column[row, place] for column in columns)
                assert batch.discount[row, place] == (0.0 if step.terminated else DISCOUNT)
                for given, found in (
                    (step.observation, batch.observation),
                    (step.next_observation, batch.next_observation),
                ):
                    assert_same(given, row_of(found, (row, place)))
            behind = [part[row, count:] for part in self.layout.flatten(batch.next_observation)]
            newest = [part[:, -1] for part in (behind if self.layout.takes_frames else self.layout.split(behind))]
            values = batch.action, batch.reward, batch.discount, batch.terminated, batch.truncated, batch.is_first
            for column in (*newest, *(value[row, count:] for value in values)):
                assert not column.any()
            assert (batch.index[row, count:] == -1).all()


def _return_of(steps: list[GivenStep]) -> list[Any]:
    """Return reward, discount, flags and next observation of a transition with these steps."""
    last = steps[-1]
    total = sum(DISCOUNT**power * step.reward for power, step in enumerate(steps))
    discount = 0.0 if last.terminated else DISCOUNT ** len(steps)
    return [total, discount, last.terminated, last.truncated, bits_of(last.next_observation)]


def readable_steps(memory: ReplayMemory, play: AnyPlay) -> set[int]:
    """Return the numbers of the steps that the memory still has."""
    if memory.retention == "random":
        return {number for part in memory.episodes() for number in part.extras["number"].tolist()}
    readable = set()
    for number in range(len(play.steps)):  # which is its index
        try:
            memory.steps_from([number])
        except NothingToSampleError:
            continue
        readable.add(number)
    return readable


def row_of(observation: Any, row: Any) -> Any:
    """Return a copy of one observation of several."""
    return map_arrays(lambda part: np.array(part[row]), observation)


def bits_of(observation: Any) -> Any:
    return map_arrays(lambda part: (part.shape, part.dtype, part.tobytes()), observation)


def is_equal(some: Any, other: Any) -> bool:
    return bits_of(some) == bits_of(other)


def assert_same(given: Any, found: Any) -> None:
    """Compare two observations bit for bit, with shapes and dtypes."""
    if is_equal(given, found):
        return
    map_arrays(np.testing.assert_array_equal, given, found)
    raise AssertionError(f"other bits, shapes or dtypes: {bits_of(given)} and {bits_of(found)}")

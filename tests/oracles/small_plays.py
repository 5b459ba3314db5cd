"""Small random plays for property tests of exports and imports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from oracles.episode_lists import RecordedPlay

ENDS = {"terminated": (True, False), "truncated": (False, True), "both": (True, True), "cut": (False, False)}


@dataclass(frozen=True)
class SmallPlay:
    """Episodes as (length, end), played in turn by ``num_envs`` environments into a memory of ``capacity``."""

    episodes: tuple[tuple[int, str], ...]
    num_envs: int = 1
    capacity: int = 1000
    stack: int = 4
    seed: int = 0

    def recorded(self, frame: FrameSpec | None = None, **settings) -> RecordedPlay:
        """Play it; every frame is random and none is all zeros."""
        spec = FrameSpec((5, 3)) if frame is None else frame
        rng = np.random.default_rng(self.seed)
        memory = ReplayMemory(
            self.capacity, spec, 6, stack=self.stack, num_envs=self.num_envs, **{"seed": 0} | settings
        )
        play = RecordedPlay(memory)
        turns = [list(self.episodes[env_id :: self.num_envs]) for env_id in range(self.num_envs)]
        left = [0] * self.num_envs
        while any(turns) or any(left):
            for env_id in range(self.num_envs):
                if not left[env_id]:
                    if not turns[env_id]:
                        continue
                    left[env_id], end = turns[env_id][0]
                    play.begin(self._frame(rng, spec), [env_id])
                left[env_id] -= 1
                end = turns[env_id][0][1]
                flags = ENDS[end] if left[env_id] == 0 else (False, False)
                step = [int(rng.integers(6))], [float(rng.normal())], [flags[0]], [flags[1]]
                play.append(*step, self._frame(rng, spec), [env_id])
                if not left[env_id]:
                    turns[env_id].pop(0)
        return play

    @staticmethod
    def _frame(rng: np.random.Generator, spec: FrameSpec) -> np.ndarray:
        if spec.dtype.kind == "f":
            return rng.normal(size=(1, *spec.shape)).astype(spec.dtype)
        return rng.integers(1, 100, (1, *spec.shape)).astype(spec.dtype)


def small_plays(max_envs: int = 3, ends: tuple[str, ...] = tuple(ENDS)) -> st.SearchStrategy[SmallPlay]:
    """Draw a few short episodes, for memories that store all of them or evict the oldest."""
    episodes = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(ends)), min_size=1, max_size=7).map(tuple)
    return st.builds(
        SmallPlay,
        episodes=episodes,
        num_envs=st.integers(1, max_envs),
        capacity=st.sampled_from([5, 13, 1000]),
        stack=st.integers(1, 5),
        seed=st.integers(0, 1000),
    )

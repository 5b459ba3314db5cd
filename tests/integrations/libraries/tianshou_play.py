"""Random steps as Tianshou's collectors add them, and the true observations of every step in plain lists."""

import numpy as np
import pytest

Batch = pytest.importorskip("tianshou.data", reason="Tianshou is in the environment of make libraries").Batch

DEPTH = 4


class Play:
    """Environments of random frames, or of stacks of them, whose episodes end with any of the flags or break off.

    Pixels have few values, so that frames and observations are often equal by chance.
    """

    def __init__(self, seed, num_envs, *, env_stacks, is_dict=False, padding="first_frame", reset_chance=0.0):
        self.generator = np.random.default_rng(seed)
        self.num_envs, self.env_stacks, self.is_dict = num_envs, env_stacks, is_dict
        self.padding, self.reset_chance = padding, reset_chance
        self.windows = [self.begun() for _ in range(num_envs)]

    def frame(self):
        return self.generator.integers(0, 3, (5, 6), dtype=np.uint8)

    def begun(self):
        frame = self.frame()
        older = frame if self.padding == "first_frame" else np.zeros_like(frame)
        return [older] * (DEPTH - 1) + [frame]

    def shown(self, windows):
        """Return observations of these windows: stacks, or their newest frames."""
        return self.sampled(windows, None if self.env_stacks else 1)

    def sampled(self, windows, stack_num):
        """Return these windows as a buffer with this ``stack_num`` returns them; ``None`` for unstacked."""
        frames = np.stack([np.stack(window[-(stack_num or DEPTH) :]) for window in windows])
        angles = (frames.sum((2, 3)) / 7).astype(np.float32)
        if stack_num == 1:
            frames, angles = frames[:, 0], angles[:, 0]
        return {"pixels": frames, "angles": angles} if self.is_dict else frames

    def step(self, env_ids):
        """Return the batch of one step of these environments, and the windows before and after it."""
        num = len(env_ids)
        before = [self.windows[env_id] for env_id in env_ids]
        after = [[*window[1:], self.frame()] for window in before]
        terminated, truncated = self.generator.random((2, num)) < 0.08
        batch = Batch(
            obs=self.shown(before),
            act=self.generator.integers(0, 4, num),
            rew=self.generator.normal(size=num),
            terminated=terminated,
            truncated=truncated,
            obs_next=self.shown(after),
            info=Batch(lives=self.generator.integers(0, 4, num)),
        )
        for row, env_id in enumerate(env_ids):
            over = terminated[row] or truncated[row] or self.generator.random() < self.reset_chance
            self.windows[env_id] = self.begun() if over else after[row]
        return batch, list(zip(before, after, strict=True))


def assert_same(theirs, ours):
    """Check that two batches or arrays are equal in structure, dtype and value."""
    if isinstance(theirs, Batch):
        assert isinstance(ours, Batch)
        assert sorted(theirs.get_keys()) == sorted(ours.get_keys())
        for key in theirs.get_keys():
            assert_same(theirs[key], ours[key])
        return
    assert np.asarray(theirs).dtype == np.asarray(ours).dtype
    np.testing.assert_array_equal(theirs, ours)

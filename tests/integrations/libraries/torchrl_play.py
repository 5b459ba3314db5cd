"""Steps of several environments as a TorchRL collector returns them, with frames of 5x6."""

import torch
from tensordict import TensorDict


class Play:
    """``num_envs`` environments with random frames, as frames and as stacks of ``depth`` frames."""

    def __init__(self, seed, num_envs, depth=4, padding="same", shape=(1, 5, 6), end=0.2, values=3):
        self.generator = torch.Generator().manual_seed(seed)
        self.num_envs, self.depth, self.padding, self.shape = num_envs, depth, padding, shape
        self.end, self.values = end, values
        self.num_trajectories = 0
        self.trajectories = [self.new_trajectory() for _ in range(num_envs)]
        self.windows = [self.first() for _ in range(num_envs)]

    def random(self, *shape):
        return torch.rand(shape, generator=self.generator)

    def frame(self):
        return torch.randint(self.values, self.shape, generator=self.generator).to(torch.uint8)

    def new_trajectory(self):
        self.num_trajectories += 1
        return self.num_trajectories - 1

    def first(self):
        frame = self.frame()
        return [frame if self.padding == "same" else torch.zeros_like(frame)] * (self.depth - 1) + [frame]

    def step(self, env):
        """Return one step of ``env`` as a TensorDict with frames and one with stacks."""
        window = self.windows[env]
        after = [*window[1:], self.frame()]
        ends = bool(self.random() < self.end)
        terminated = ends and bool(self.random() < 0.5)
        truncated = ends and (not terminated or bool(self.random() < 0.2))
        flags = {
            "done": torch.tensor([ends]),
            "terminated": torch.tensor([terminated]),
            "truncated": torch.tensor([truncated]),
        }
        number = torch.tensor(self.trajectories[env])
        pair = []
        for now, then in ((window[-1], after[-1]), (torch.cat(window), torch.cat(after))):
            pair.append(
                TensorDict(
                    {
                        "pixels": now.clone(),
                        "action": torch.tensor(len(pair)),
                        "collector": {"traj_ids": number.clone()},
                        **{name: torch.zeros_like(flag) for name, flag in flags.items()},
                        "next": {
                            "pixels": then.clone(),
                            "reward": torch.tensor([float(self.trajectories[env])]),
                            **{name: flag.clone() for name, flag in flags.items()},
                        },
                    }
                )
            )
        pair[1]["action"] = pair[0]["action"]
        self.windows[env] = self.first() if ends else after
        if ends:
            self.trajectories[env] = self.new_trajectory()
        return pair

    def batch(self, num_steps):
        """``(num_envs, num_steps)`` of frames and of stacks."""
        rows = [[self.step(env) for _ in range(num_steps)] for env in range(self.num_envs)]
        return tuple(torch.stack([torch.stack([pair[kind] for pair in row]) for row in rows]) for kind in range(2))


def assert_equal(expected, actual):
    """Check that TensorDicts have the same keys, dtypes and values, bit for bit."""
    keys = [key if isinstance(key, tuple) else (key,) for key in expected.keys(True, True)]
    assert sorted(keys) == sorted(key if isinstance(key, tuple) else (key,) for key in actual.keys(True, True))
    assert expected.batch_size == actual.batch_size
    for key in keys:
        assert expected[key].dtype == actual[key].dtype
        assert torch.equal(expected[key], actual[key]), key

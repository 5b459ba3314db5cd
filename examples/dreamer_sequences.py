"""Feed a recurrent world model with sequences in DreamerV3's layout.

python examples/dreamer_sequences.py                 a small built-in environment
python examples/dreamer_sequences.py --crafter       Crafter (pip install crafter "numpy<2")

In that layout step t has an image, and the action and reward that *led to* it. framestow's step t has an observation,
and the action and reward that *followed*. ``dreamer_batch`` shifts them. A small recurrent model then learns to predict
images, rewards and ends. Needs: pip install "framestow[torch,gymnasium]".
"""

import argparse

import numpy as np
import torch
from torch import nn

from framestow import FrameSpec, ReplayMemory

BATCH_SIZE, LENGTH, FEATURES = 8, 32, 128


class Bounce:
    """A block that bounces in a picture of 64x64; actions push it. An episode has 60 steps, or ends in a corner."""

    num_actions = 5

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        """Return the first frame of an episode."""
        self.position, self.speed = self.generator.integers(8, 48, 2), self.generator.integers(-3, 4, 2)
        self.num_steps = 0
        return self.frame()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Return frame, reward, terminated and truncated."""
        self.num_steps += 1
        self.speed = np.clip(self.speed + [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)][action], -3, 3)
        self.speed = np.where(
            (self.position + self.speed < 0) | (self.position + self.speed > 56), -self.speed, self.speed
        )
        self.position = self.position + self.speed
        is_corner = bool(((self.position < 4) | (self.position > 52)).all())
        return self.frame(), float(is_corner), is_corner, self.num_steps >= 60

    def frame(self) -> np.ndarray:
        """Return the picture, (64, 64, 3)."""
        picture = np.zeros((64, 64, 3), np.uint8)
        picture[self.position[0] : self.position[0] + 8, self.position[1] : self.position[1] + 8] = (80, 160, 240)
        return picture


class Crafter:
    """Crafter with the calls of ``Bounce``."""

    num_actions = 17

    def __init__(self, seed: int) -> None:
        import crafter  # noqa: PLC0415 -- only where it is asked for

        self.env = crafter.Env(seed=seed)

    def reset(self) -> np.ndarray:
        """Return the first frame of an episode."""
        return self.env.reset()

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Return frame, reward, terminated and truncated."""
        frame, reward, done, info = self.env.step(action)
        return frame, reward, done and info["discount"] == 0, done and info["discount"] != 0


def dreamer_batch(memory: ReplayMemory, batch_size: int, length: int, num_actions: int) -> dict[str, torch.Tensor]:
    """Return sequences of ``length`` images in DreamerV3's layout: each with the action and reward that led to it."""
    batch = memory.sample_sequences(batch_size, length - 1)  # one image more than steps
    images = np.concatenate([batch.observation[:, :, 0], batch.next_observation[:, -1:, 0]], 1)
    numbers = np.arange(batch_size)
    ends = batch.mask.sum(1)  # after an end the last true image is that of the last step's next observation
    images[numbers, ends] = batch.next_observation[numbers, ends - 1, 0]

    def shifted(array: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros_like(array[:, :1]), array], 1)

    actions = np.eye(num_actions, dtype=np.float32)[batch.action] * batch.mask[:, :, None]
    arrays = {
        "image": images,
        "action": shifted(actions),
        "reward": shifted(batch.reward),
        "is_terminal": shifted(batch.terminated),
        "is_last": shifted(batch.terminated | batch.truncated),
        "mask": np.concatenate([np.ones((batch_size, 1), bool), batch.mask], 1),
    }
    arrays["is_first"] = np.zeros_like(arrays["mask"])
    arrays["is_first"][:, 0] = True  # the model's state starts here
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class WorldModel(nn.Module):
    """Encoder, GRU and heads: predicts each image from the state before it and the action that led to it."""

    def __init__(self, num_actions: int) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            *(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 4), nn.ReLU(), nn.Flatten()),
            nn.Linear(512, FEATURES),
        )
        self.recur = nn.GRU(FEATURES + num_actions, FEATURES, batch_first=True)
        self.decode = nn.Sequential(nn.Linear(FEATURES + num_actions, 32 * 16), nn.ReLU(), nn.Unflatten(1, (32, 4, 4)))
        self.draw = nn.Sequential(nn.ConvTranspose2d(32, 16, 4, 4), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 4))
        self.outcome = nn.Linear(FEATURES + num_actions, 2)  # reward, and whether the episode continues

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the loss over all steps that exist."""
        images = batch["image"].permute(0, 1, 4, 2, 3).float() / 255
        features = self.encode(images.flatten(0, 1)).unflatten(0, images.shape[:2])
        states, _ = self.recur(torch.cat([features, batch["action"]], 2))
        ahead = torch.cat([states[:, :-1], batch["action"][:, 1:]], 2)
        drawn = self.draw(self.decode(ahead.flatten(0, 1))).unflatten(0, ahead.shape[:2])
        reward, continues = self.outcome(ahead).unbind(2)
        exists = batch["mask"][:, 1:].float()
        errors = (drawn - images[:, 1:]).square().mean((2, 3, 4)) + (reward - batch["reward"][:, 1:]).square()
        errors += nn.functional.binary_cross_entropy_with_logits(
            continues, 1 - batch["is_terminal"][:, 1:].float(), reduction="none"
        )
        return (errors * exists).sum() / exists.sum()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--crafter", action="store_true", help="play Crafter instead of the built-in environment")
    parser.add_argument("--steps", type=int, default=2_000, help="random steps to record")
    parser.add_argument("--updates", type=int, default=100, help="updates of the world model")
    options = parser.parse_args()
    torch.manual_seed(0)
    generator = np.random.default_rng(0)

    env = (Crafter if options.crafter else Bounce)(seed=0)
    memory = ReplayMemory(1_000_000, FrameSpec((64, 64, 3)), env.num_actions, stack=1, seed=0)
    memory.begin(env.reset()[None])
    for _ in range(options.steps):
        action = int(generator.integers(env.num_actions))
        frame, reward, terminated, truncated = env.step(action)
        memory.append([action], [reward], [terminated], [truncated], frame[None])
        if terminated or truncated:
            memory.begin(env.reset()[None])

    model = WorldModel(env.num_actions)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for update in range(options.updates):
        loss = model.loss(dreamer_batch(memory, BATCH_SIZE, LENGTH, env.num_actions))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 20 == 0 or update == options.updates - 1:
            print(f"{update + 1} updates, loss {loss.item():.4f}")
    print(memory.report())


if __name__ == "__main__":
    main()

"""Train a DQN on an Atari game with PyTorch: a whole agent in 80 lines.

python examples/dqn_pytorch.py --game Pong --steps 1000000

Needs: pip install "framestow[atari,torch]".
"""

import argparse

import torch
from torch import nn

from framestow import ReplayMemory
from framestow.envs import Recorder, finished_games, make_atari
from framestow.torch import BatchLoader, scale_pixels

BATCH_SIZE, STEPS_PER_UPDATE = 32, 4


def network(num_actions: int) -> nn.Module:
    """Return the network of Mnih et al. (2015)."""
    return nn.Sequential(
        *(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()),
        nn.Linear(512, num_actions),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--steps", type=int, default=10_000, help="agent steps, of four emulator frames each")
    parser.add_argument("--warmup", type=int, default=1_000, help="random steps before the first update")
    parser.add_argument("--capacity", type=int, default=1_000_000, help="maximum number of transitions")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"

    env = make_atari(options.game, num_envs=1, preset="baselines", seed=0)
    env.action_space.seed(0)
    memory = ReplayMemory(options.capacity, env.single_observation_space, env.single_action_space, stack=4, seed=0)
    env = Recorder(env, memory, reward_limit=1.0)  # the memory stores clipped rewards, the scores are whole
    q, target_q = (network(env.single_action_space.n).to(device) for _ in range(2))
    target_q.load_state_dict(q.state_dict())
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4)
    batches = BatchLoader(memory, BATCH_SIZE, device)  # a thread unpacks the next batches

    observations, _ = env.reset(seed=0)
    scores, loss = [], torch.tensor(torch.nan)
    for step in range(1, options.steps + 1):
        epsilon = max(0.05, 1 - step / (0.5 * options.steps))
        if step <= options.warmup or torch.rand(()) < epsilon:
            actions = env.action_space.sample()
        else:
            with torch.no_grad():
                actions = q(scale_pixels(torch.as_tensor(observations, device=device))).argmax(1).cpu().numpy()
        observations, _, _, _, infos = env.step(actions)
        scores += [game.score for game in finished_games(infos)]

        if step > options.warmup and step % STEPS_PER_UPDATE == 0:
            batch = next(batches)
            with torch.no_grad():
                target = batch.reward + batch.discount * target_q(scale_pixels(batch.next_observation)).amax(1)
            chosen = q(scale_pixels(batch.observation)).gather(1, batch.action[:, None])[:, 0]
            loss = nn.functional.smooth_l1_loss(chosen, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if step % 2_000 == 0:
            target_q.load_state_dict(q.state_dict())
        if step % 1_000 == 0 or step == options.steps:
            recent = sum(scores[-20:]) / max(len(scores[-20:]), 1)
            print(f"{step:,} steps, {len(scores)} games, the last ones scored {recent:.1f}, loss {loss.item():.4f}")
    batches.close()
    env.close()
    print(memory.report())


if __name__ == "__main__":
    main()

"""Record an archive of Atari play once, then learn from it without an environment.

python examples/offline_archive.py --archive breakout --steps 20000 --updates 2000

The archive is a folder. A second call appends to it. Learning is conservative Q-learning (Kumar et al. 2020): it
lowers the values of actions that the archive does not have. Needs: pip install "framestow[atari,torch]".
"""

import argparse
from itertools import islice

import torch
from torch import nn

from framestow import ReplayMemory
from framestow.envs import Recorder, make_atari
from framestow.torch import BatchLoader, scale_pixels


def record(game: str, folder: str, steps: int) -> None:
    """Append ``steps`` random steps of ``game`` to the archive in ``folder``."""
    env = make_atari(game, num_envs=4, preset="machado2018")
    spaces = env.single_observation_space, env.single_action_space
    with ReplayMemory(50_000_000, *spaces, stack=4, num_envs=4, label=game, directory=folder) as memory:
        recorder = Recorder(env, memory)
        recorder.reset()
        for _ in range(steps // 4):
            recorder.step(env.action_space.sample())
        recorder.close()


def network(num_actions: int) -> nn.Module:
    """Return a small convolutional network."""
    return nn.Sequential(
        *(nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten()),
        *(nn.Linear(2592, 256), nn.ReLU(), nn.Linear(256, num_actions)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--archive", default="archive", help="folder of the archive")
    parser.add_argument("--steps", type=int, default=4_000, help="steps to append before learning; 0 appends none")
    parser.add_argument("--updates", type=int, default=200, help="updates of 32 transitions each")
    options = parser.parse_args()
    torch.manual_seed(0)

    if options.steps:
        record(options.game, options.archive, options.steps)
    archive = ReplayMemory.open(options.archive, seed=0)  # read-only: frames stay in the files
    print(f"{len(archive):,} transitions, {archive.report().disk_bytes / max(len(archive), 1):.0f} bytes each on disk")

    num_actions = 18  # machado2018 plays with all actions
    q, target_q = network(num_actions), network(num_actions)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-4)
    with BatchLoader(archive, 32) as loader:
        for update, batch in enumerate(islice(loader, options.updates)):
            if update % 100 == 0:
                target_q.load_state_dict(q.state_dict())
            with torch.no_grad():
                bootstrap = target_q(scale_pixels(batch.next_observation)).amax(1)
                target = batch.reward.sign() + batch.discount * bootstrap
            all_values = q(scale_pixels(batch.observation))
            chosen = all_values.gather(1, batch.action[:, None])[:, 0]
            conservative = (all_values.logsumexp(1) - chosen).mean()
            loss = nn.functional.smooth_l1_loss(chosen, target) + 0.1 * conservative
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if update % 100 == 99 or update == options.updates - 1:
                print(f"{update + 1} updates, loss {loss.item():.4f}")

    rewards = [abs(float(batch.reward.sum())) for batch in archive.batches(1024)]  # each transition once
    print(f"the archive's rewards sum to {sum(rewards):.0f}")


if __name__ == "__main__":
    main()

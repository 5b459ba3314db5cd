"""Train a DQN on an Atari game with JAX alone: network, Adam and update in one compiled function.

python examples/dqn_jax.py --game Pong --steps 1000000

Needs: pip install "framestow[atari,jax]".
"""

import argparse
import random

import jax
import jax.numpy as jnp

from framestow import ReplayMemory
from framestow.envs import Recorder, finished_games, make_atari
from framestow.jax import BatchLoader

BATCH_SIZE, STEPS_PER_UPDATE, LEARNING_RATE = 32, 4, 1e-4
LAYERS = [((32, 4, 8, 8), 4), ((64, 32, 4, 4), 2), ((64, 64, 3, 3), 1)]  # kernel and stride (Mnih et al. 2015)


def initial_weights(key: jax.Array, num_actions: int) -> list[tuple[jax.Array, jax.Array]]:
    """Return the kernels and biases of all layers, by He et al. (2015)."""
    shapes = [shape for shape, _ in LAYERS] + [(3136, 512), (512, num_actions)]
    fan_in = [shape[1] * shape[2] * shape[3] if len(shape) == 4 else shape[0] for shape in shapes]
    keys = jax.random.split(key, len(shapes))
    kernels = [jax.random.normal(k, s) * (2 / f) ** 0.5 for k, s, f in zip(keys, shapes, fan_in, strict=True)]
    return [(kernel, jnp.zeros(kernel.shape[0] if kernel.ndim == 4 else kernel.shape[1])) for kernel in kernels]


def values(weights: list[tuple[jax.Array, jax.Array]], observation: jax.Array) -> jax.Array:
    """Return the value of each action, (B, num_actions), for uint8 stacks (B, 4, 84, 84)."""
    x = observation.astype(jnp.float32) / 255
    for (kernel, bias), (_, stride) in zip(weights[:3], LAYERS, strict=True):
        x = jax.nn.relu(jax.lax.conv(x, kernel, (stride, stride), "VALID") + bias[:, None, None])
    hidden = jax.nn.relu(x.reshape(len(x), -1) @ weights[3][0] + weights[3][1])
    return hidden @ weights[4][0] + weights[4][1]


@jax.jit
def update(weights, target_weights, moments, count, batch):
    """Make one update with Adam; return the weights, the moments and the loss."""

    def loss_of(weights):
        bootstrap = values(target_weights, batch.next_observation).max(1)
        target = batch.reward + batch.discount * bootstrap  # the discount is 0 after termination
        chosen = values(weights, batch.observation)[jnp.arange(BATCH_SIZE), batch.action]
        error = jnp.abs(target - chosen)
        return jnp.where(error < 1, 0.5 * error**2, error - 0.5).mean()

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, moments[1], gradient)
    scale = LEARNING_RATE * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    weights = jax.tree.map(lambda w, m, s: w - scale * m / (jnp.sqrt(s) + 1e-8), weights, mean, square)
    return weights, (mean, square), loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="name of the Atari game")
    parser.add_argument("--steps", type=int, default=10_000, help="agent steps, of four emulator frames each")
    parser.add_argument("--warmup", type=int, default=1_000, help="random steps before the first update")
    parser.add_argument("--capacity", type=int, default=1_000_000, help="maximum number of transitions")
    options = parser.parse_args()
    random.seed(0)

    env = make_atari(options.game, num_envs=1, preset="baselines", seed=0)
    env.action_space.seed(0)
    memory = ReplayMemory(options.capacity, env.single_observation_space, env.single_action_space, stack=4, seed=0)
    env = Recorder(env, memory, reward_limit=1.0)  # the memory stores clipped rewards, the scores are whole
    weights = target_weights = initial_weights(jax.random.key(0), int(env.single_action_space.n))
    moments = (jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights))
    greedy = jax.jit(lambda weights, observation: values(weights, observation).argmax(1))
    batches = BatchLoader(memory, BATCH_SIZE)  # a thread unpacks the next batches

    observations, _ = env.reset(seed=0)
    scores, loss, num_updates = [], float("nan"), 0
    for step in range(1, options.steps + 1):
        if step <= options.warmup or random.random() < max(0.05, 1 - step / (0.5 * options.steps)):
            actions = env.action_space.sample()
        else:
            actions = jax.device_get(greedy(weights, observations))
        observations, _, _, _, infos = env.step(actions)
        scores += [game.score for game in finished_games(infos)]

        if step > options.warmup and step % STEPS_PER_UPDATE == 0:
            num_updates += 1
            weights, moments, loss = update(weights, target_weights, moments, num_updates, next(batches))
        if step % 2_000 == 0:
            target_weights = weights
        if step % 1_000 == 0 or step == options.steps:
            recent = sum(scores[-20:]) / max(len(scores[-20:]), 1)
            print(f"{step:,} steps, {len(scores)} games, the last ones scored {recent:.1f}, loss {float(loss):.4f}")
    batches.close()
    env.close()
    print(memory.report())


if __name__ == "__main__":
    main()

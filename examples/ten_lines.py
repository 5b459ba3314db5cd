"""Play Breakout at random in eight environments, store every step, and sample a batch: ten lines.

python examples/ten_lines.py

Needs: pip install "framestow[atari]".
"""

from framestow import ReplayMemory
from framestow.envs import Recorder, make_atari

env = make_atari("Breakout", num_envs=8, seed=0)
memory = ReplayMemory(1_000_000, env.single_observation_space, env.single_action_space, stack=4, num_envs=8, seed=0)
env = Recorder(env, memory)
env.reset(seed=0)
for _ in range(250):
    env.step(env.action_space.sample())
batch = memory.sample(32)
print(batch.observation.shape)  # (32, 4, 84, 84)
print(memory.report())

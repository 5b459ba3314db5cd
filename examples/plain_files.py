"""Play Breakout, write the play to a plain .npz file, and read it back into a memory.

python examples/plain_files.py --steps 2000

Any NumPy program reads and writes such a file. Its arrays have D4RL's names. Needs: pip install "framestow[atari]".
"""

import argparse

import numpy as np

from framestow import ReplayMemory
from framestow.envs import Recorder, make_atari
from framestow.offline import ArrayData, export_arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2_000, help="random steps to play")
    parser.add_argument("--file", default="breakout.npz", help="the file to write; must not exist")
    options = parser.parse_args()

    env = make_atari("Breakout", num_envs=1, seed=0)
    spaces = env.single_observation_space, env.single_action_space
    played = ReplayMemory(options.steps, *spaces, stack=4)
    recorder = Recorder(env, played)
    recorder.reset(seed=0)
    for _ in range(options.steps):
        recorder.step(env.action_space.sample())
    recorder.close()

    written = export_arrays(played, options.file, "npz")
    with np.load(options.file) as file:  # what any NumPy program does with it
        print({name: file[name].shape for name in file if name != "next_observations"})
    data = ArrayData.open(options.file, num_actions=env.single_action_space.n)
    memory = ReplayMemory(data.num_steps, data.observation_space, data.action_space, seed=0)
    read = data.import_into(memory)

    same = np.array_equal(played.get([0]).observation, memory.get([0]).observation)
    print(f"{written.transitions:,} transitions written, {read.transitions:,} read; the first is the same: {same}")
    print(f"a transition has {data.file_bytes / read.transitions:,.0f} bytes in the file, of two whole stacks")


if __name__ == "__main__":
    main()

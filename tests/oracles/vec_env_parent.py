"""A process with a ``SubprocVecEnv`` of ours, which a test ends in several ways.

    python -m oracles.vec_env_parent ENDING FOLDER

It prints a line with its processes in JSON, then plays until it is ended, or ends by itself without ``close``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from framestow.integrations.classic import SubprocVecEnv
from oracles.failing_envs import makers
from oracles.process_watch import logged_processes, with_descendants


def main() -> None:
    ending, folder = sys.argv[1], Path(sys.argv[2])
    env = SubprocVecEnv(makers(folder, 2, seconds_a_step=0.01), context="fork")
    env.reset()
    env.step([0, 1])
    try:  # the test interrupts it as soon as it has read the line
        sys.stdout.write(json.dumps(sorted(logged_processes(folder) | with_descendants(os.getpid()))) + "\n")
        sys.stdout.flush()
        while ending != "end":
            env.step([0, 1])
    except KeyboardInterrupt:
        env.close()


if __name__ == "__main__":
    main()

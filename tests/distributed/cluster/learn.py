"""Train Catch on a cluster until it is killed: ``python -m distributed.cluster.learn FOLDER ADDRESS``.

Prints ``resumed`` with the steps and updates of learner, shards and checkpoint, then ``step`` and ``saved`` with steps.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from framestow.training.checkpoint import newest_checkpoint, read_agent, read_agent_steps
from framestow.training.loop import start_run
from framestow.training.run_folder import RunFolder
from framestow.training.training_run import StepTaken
from training.catch_runs import catch_settings, make_catch

SAVE_EVERY = 200  # agent steps


def main(path: Path, address: str) -> None:
    settings = catch_settings(
        recipe="dqn", steps=10**9, num_envs=2, workers=0, actors=2, shards=2, warmup=100, memory=20_000
    )
    settings = replace(settings, priority_exponent=0.5, double=False)
    folder = RunFolder.open(path) if path.exists() else RunFolder.create(path, settings)
    with folder.lock():
        run = start_run(folder, make_catch, address)
        newest = newest_checkpoint(folder.checkpoints)
        saved = read_agent_steps(newest) if newest else 0
        updates = int(read_agent(newest)["num_updates"]) if newest else 0
        print("resumed", run.tally.agent_steps, run.memory.counts.inserted, run.agent.num_updates, saved, updates)
        next_save = run.tally.agent_steps + SAVE_EVERY
        for event in run.events():
            if isinstance(event, StepTaken):
                print("step", event.agent_steps, flush=True)
                if event.agent_steps >= next_save:
                    run.save(folder.checkpoints)
                    next_save = event.agent_steps + SAVE_EVERY
                    print("saved", event.agent_steps, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

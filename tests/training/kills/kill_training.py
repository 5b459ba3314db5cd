"""Kill ``framestow train`` with SIGKILL at random moments, and check after each kill that nothing is lost or left over.

    python tests/training/kills/kill_training.py                  200 kills, written to tests/kills.json
    python tests/training/kills/kill_training.py --kills 20 --seed 7

Each run is a short one of Breakout. It is killed and resumed until it is done, and compared with an uninterrupted run
(rounds.py). Some trainings are new processes (``python -m framestow``), the others are forks of this process, which
has PyTorch loaded. The seed determines moments, delays and kinds of runs.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from pathlib import Path

from framestow.benchmarking.result_files import write_result
from training.kills.kinds import KINDS
from training.kills.rounds import kill_again_and_again

RESULT = Path(__file__).parents[2] / "kills.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS)[1:])
    parser.add_argument(
        "--forked-share", type=float, default=0.9, help="of the trainings, without an interpreter of their own"
    )
    arguments = parser.parse_args()
    started = time.monotonic()
    kinds = [KINDS[name] for name in arguments.kinds]
    importlib.import_module("torch._dynamo")  # every optimiser loads it, which takes two seconds: once for all forks
    with tempfile.TemporaryDirectory(prefix="framestow-kills-") as folder:
        count = kill_again_and_again(kinds, Path(folder), arguments.kills, arguments.forked_share, arguments.seed)
    result = {
        "kills": count.num_kills,
        "survived": count.num_kills,  # the first that is not ends this with PromiseBrokenError
        "of_processes_of_their_own": count.own_processes,
        "by_moment": dict(sorted(count.kills.items())),
        "found_after_the_kill": dict(sorted(count.found.items())),
        "resumes_from_a_checkpoint_checked": count.resumed,
        "runs_finished_equal_to_the_uninterrupted_one": count.runs_finished,
        "kinds_of_run": arguments.kinds,
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - started, 1),
    }
    for name, value in result.items():
        sys.stdout.write(f"{name.replace('_', ' ')}: {value}\n")
    if (arguments.kills, arguments.seed, arguments.kinds) == (200, 0, list(KINDS)[1:]):
        write_result(RESULT, result, "make kills")
    return 0


if __name__ == "__main__":
    sys.exit(main())

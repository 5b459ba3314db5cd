"""Use ``framestow train --distributed`` as at a terminal: start, Ctrl-C, resume, a running cluster, a wrong address.

python tests/distributed/cluster/train_command.py
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from framestow.distributed.ray import LOCAL_ENVIRONMENT

os.environ.update(LOCAL_ENVIRONMENT)  # before Ray is imported

from ray.cluster_utils import Cluster

from distributed.cluster.kill_actors import started

FRAMESTOW = Path(sys.executable).with_name("framestow")
NEW = ("train", "Pong", "--distributed", "--actors", "2", "--shards", "2", "--num-envs", "2", "--warmup", "300")
LATEST_S = 300.0


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    """Start the command in a process group of its own, as a shell does, with its output in ``folder/output``."""
    with (folder / "output").open("wb") as output:
        command = [str(FRAMESTOW), *map(str, arguments)]
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, start_new_session=True)


def finished(folder: Path, process: subprocess.Popen, code: int, *expected: str) -> str:
    """Wait for the end of the command and return its output; check its exit code and what it must say."""
    assert process.wait(LATEST_S) == code, (process.returncode, output_of(folder))
    text = output_of(folder)
    assert all(line in text for line in expected), (expected, text)
    assert "Traceback" not in text, text
    return text


def output_of(folder: Path) -> str:
    return (folder / "output").read_text()


def is_training(folder: Path) -> bool:
    return any(line.startswith("steps ") and not line.startswith("steps 0/") for line in output_of(folder).splitlines())


def wait_until(is_done, folder: Path) -> None:
    until = time.monotonic() + LATEST_S
    while not is_done():
        assert time.monotonic() < until, output_of(folder)
        time.sleep(0.2)


def actors_below(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if "ray::_Ray" in " ".join(child.cmdline())]


def check_wrong_address(folder: Path) -> None:
    process = start(folder, *NEW, "--address", "127.0.0.1:9", "--run-dir", "wrong")
    finished(folder, process, 2, "error: --address is 127.0.0.1:9: no Ray cluster answers there")
    assert not (folder / "wrong").exists()


def check_interruption_and_resume(folder: Path) -> None:
    process = start(folder, *NEW, "--steps", "1_000_000", "--run-dir", "run")
    wait_until(lambda: is_training(folder), folder)
    children = psutil.Process(process.pid).children(recursive=True)
    assert sum("ray::_Ray" in " ".join(child.cmdline()) for child in children) == 4
    os.killpg(process.pid, signal.SIGINT)
    finished(folder, process, 128 + signal.SIGINT, "2 actors of 2 environments, 2 shards", "actors 2/2", "saved\n")
    assert not psutil.wait_procs(children, timeout=10)[1]

    rows = (folder / "run" / "progress.csv").read_text().splitlines()
    steps = int(rows[-1].split(",")[rows[0].split(",").index("agent_steps")])
    process = start(folder, "train", "--resume", "run", "--steps", str(steps + 1_500))
    text = finished(folder, process, 0, "resuming Pong at step ", "report.html has the learning curve")
    assert int(text.split("at step ")[1].split()[0].replace(",", "")) >= steps, (steps, text)
    assert (folder / "run" / "report.html").stat().st_size > 0


def check_running_cluster(folder: Path, cluster: Cluster) -> None:
    process = start(folder, *NEW, "--steps", "1_000", "--run-dir", "joined", "--address", cluster.address)
    finished(folder, process, 0, "report.html has the learning curve")
    wait_until(lambda: not actors_below(psutil.Process()), folder)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="framestow-train-") as name:
        folder = Path(name)
        check_wrong_address(folder)
        check_interruption_and_resume(folder)
        head = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
        cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head))
        try:
            check_running_cluster(folder, cluster)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    main()

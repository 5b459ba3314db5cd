"""Kill shards, actors and nodes of a local Ray cluster with SIGKILL, and check what is stored, sampled and lost.

    python tests/distributed/cluster/kill_actors.py      20 kills of each kind, written to tests/distributed.json
    python tests/distributed/cluster/kill_actors.py --kills 3 --kinds shard_in_ram actor

Each kill is noted in ``build/kill_actors.json``, and the same command at the same commit continues from there.

The cluster has three nodes in this machine. Actors play environments that count their steps in files, and this process
samples and checks every row. After each kill all steps that are stored are compared with all that were played.

=============  =======================================================================================================
kind           promise
=============  =======================================================================================================
actor          its environments lose at most ``max_in_flight + 1`` chunks each; the episode that was open is closed
shard_in_ram   loses what it had stored before; every step that was still in an actor is stored after the restart
shard_on_disk  has all that it had flushed, and every step that was still in an actor
node           what its actors and its shards lose by these rules
learner        resumes from the newest checkpoint, with shards and counts of the same moment
=============  =======================================================================================================
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from framestow.distributed.ray import LOCAL_ENVIRONMENT

os.environ.update(LOCAL_ENVIRONMENT)  # before Ray is imported: all addresses are 127.0.0.1

import numpy as np
import ray
from ray.cluster_utils import Cluster

from distributed.cluster.counted_play import (
    ACTORS,
    ENVS,
    LENGTH,
    SHARDS,
    AnyPolicy,
    MakeCounted,
    check_batch,
    counted_replay,
    env_and_step,
    steps_played,
)
from framestow.benchmarking.result_files import source, write_result
from framestow.distributed import ActorPlacement, Rollouts, start_ray_rollouts, start_ray_shards
from framestow.errors import NothingToSampleError

REPOSITORY = Path(__file__).parents[3]
RESULT = REPOSITORY / "tests" / "distributed.json"
NOTES = REPOSITORY / "build" / "kill_actors.json"  # of a run that is not finished
KINDS = ("actor", "shard_in_ram", "node", "shard_on_disk", "learner")
IN_FLIGHT = 2  # calls of an actor to each shard
FLUSH_EVERY_S = 1.0
BACK_S = 900.0  # on a busy machine a process takes minutes to start
ON_WORKER = ActorPlacement(resources={"worker": 0.001})


class PromiseBrokenError(Exception):
    """A kill lost more than was promised."""


class Play:
    """A replay and actors on the cluster, and what is known of them."""

    def __init__(self, folder: Path, on_disk: bool) -> None:
        folder.mkdir()
        self.folder, self.on_disk = folder, on_disk
        self.replay = counted_replay(
            directory=folder / "memory" if on_disk else None,
            flush_every=FLUSH_EVERY_S,
            start=partial(start_ray_shards, placement=ON_WORKER),
        )
        self.rollouts = Rollouts(
            self.replay,
            MakeCounted(folder, ENVS),
            AnyPolicy,
            ACTORS,
            steps_per_call=25,
            start=partial(start_ray_rollouts, placement=ON_WORKER),
        )
        self.rows = 0

    def go_on(self, seconds: float, until: Any = None) -> float:
        """Play, sample and check for some seconds, or until ``until()``; return the longest wait for a batch."""
        longest, stop = 0.0, time.monotonic() + seconds
        while time.monotonic() < stop:
            self.rollouts.poll(0.02)
            if self.replay.may_sample(32):
                since = time.monotonic()
                try:
                    batch = self.replay.sample(32)
                except NothingToSampleError:  # both shards were on the node that was lost
                    continue
                longest = max(longest, time.monotonic() - since)
                check_batch(batch)
                self.replay.update_priorities(batch.index, np.random.default_rng(self.rows).normal(size=32))
                self.rows += 32
            if until is not None and until():
                return longest
        if until is not None:
            raise PromiseBrokenError(f"not back after {seconds:g} s: {self.replay.counts}, {self.rollouts.num_lost}")
        return longest

    def wait_for_steps(self, num_more: int) -> None:
        """Go on until every environment has played some more steps."""
        goal = self.played() + num_more
        self.go_on(BACK_S, lambda: bool((self.played() >= goal).all()))

    def played(self) -> np.ndarray:
        return steps_played(self.folder, ACTORS * ENVS)

    def stored(self) -> set[tuple[int, int]]:
        """Return all stored steps, after everything was sent; raise if one is stored twice."""
        self.rollouts.flush(BACK_S)
        found: list[tuple[int, int]] = []
        for shard in range(SHARDS):
            calls = self.replay.group.calls
            batch = calls.result(calls.call(shard, "read_all"), BACK_S)
            check_batch(batch)
            found += env_and_step(batch)
        if len(set(found)) != len(found):
            raise PromiseBrokenError(f"{len(found) - len(set(found))} steps are stored twice")
        return set(found)

    def close(self) -> None:
        self.rollouts.close()
        self.replay.close()


def missing(stored: set[tuple[int, int]], env_id: int, played: int) -> list[int]:
    return [step for step in range(1, played + 1) if (env_id, step) not in stored]


def kill(calls: Any, number: int) -> None:
    os.kill(calls.process_id(number, BACK_S), signal.SIGKILL)


def kill_actor(play: Play, chance: random.Random) -> dict[str, float]:
    number, before = chance.randrange(ACTORS), play.rollouts.num_lost
    lost_before = [set(missing_of) for missing_of in all_missing(play)]
    play.go_on(chance.uniform(0.1, 1.0))
    kill(play.rollouts.calls, number)
    since = time.monotonic()
    play.go_on(BACK_S, lambda: play.rollouts.num_lost > before)
    play.wait_for_steps(40)
    back_s = time.monotonic() - since
    lost = [len(set(now) - old) for now, old in zip(all_missing(play), lost_before, strict=True)]
    for env_id, num in enumerate(lost):
        most = (IN_FLIGHT + 1) * LENGTH if env_id // ENVS == number else 0
        if num > most:
            raise PromiseBrokenError(f"environment {env_id} lost {num} steps with actor {number}: at most {most}")
    return {"lost": sum(lost), "promised": ENVS * (IN_FLIGHT + 1) * LENGTH, "back_s": back_s}


def all_missing(play: Play) -> list[list[int]]:
    stored = play.stored()
    return [missing(stored, env_id, played) for env_id, played in enumerate(play.played().tolist())]


def kill_shard(play: Play, chance: random.Random) -> dict[str, float]:
    number, before = chance.randrange(SHARDS), play.replay.counts.lost_shards
    lost_before = [set(missing_of) for missing_of in all_missing(play)]
    play.go_on(chance.uniform(1.0, 3.0))
    of_shard = [env_id for env_id in range(ACTORS * ENVS) if env_id % SHARDS == number]
    played_at_flush = play.played()
    if play.on_disk:
        play.go_on(FLUSH_EVERY_S + 2.0)
    kill(play.replay.group.calls, number)  # on a busy machine it takes a while to learn the process: actors play on
    at_kill, since = play.played(), time.monotonic()
    longest = play.go_on(BACK_S, lambda: play.replay.counts.lost_shards > before and play.replay.group.num_lost == 0)
    back_s = time.monotonic() - since
    play.wait_for_steps(40)
    lost = 0
    for env_id, now in enumerate(all_missing(play)):
        new = sorted(set(now) - lost_before[env_id])
        lost += len(new)
        if env_id not in of_shard and new:
            raise PromiseBrokenError(f"environment {env_id} of another shard lost steps {new[:5]}")
        if new and new[-1] > at_kill[env_id] + 1:
            raise PromiseBrokenError(
                f"steps {new} of environment {env_id} are lost: {at_kill[env_id]} were played before the kill"
            )
        flushed = played_at_flush[env_id] - (IN_FLIGHT + 1) * LENGTH
        if play.on_disk and new and new[0] <= flushed:
            raise PromiseBrokenError(f"step {new[0]} of environment {env_id} is lost: {flushed} were flushed")
    most = sum(
        int(at_kill[env_id] - (played_at_flush[env_id] - (IN_FLIGHT + 1) * LENGTH if play.on_disk else 0))
        for env_id in of_shard
    )
    return {"lost": lost, "promised": most, "back_s": back_s, "longest_batch_s": longest}


def kill_node(play: Play, chance: random.Random, cluster: Cluster, nodes: list[Any]) -> dict[str, float]:
    lost_before = [set(missing_of) for missing_of in all_missing(play)]
    play.go_on(chance.uniform(0.5, 1.5))
    at_kill, number = play.played(), chance.randrange(len(nodes))
    node = nodes.pop(number)
    since = time.monotonic()
    cluster.remove_node(node, allow_graceful=False)
    nodes.append(add_worker(cluster))
    play.go_on(BACK_S, lambda: play.replay.group.num_lost == 0)
    play.wait_for_steps(40)
    back_s = time.monotonic() - since
    lost, in_actors = 0, (IN_FLIGHT + 1) * LENGTH
    for env_id, now in enumerate(all_missing(play)):
        new = sorted(set(now) - lost_before[env_id])
        lost += len(new)
        after = [step for step in new if step > at_kill[env_id] + 1]
        if len(after) > in_actors:
            raise PromiseBrokenError(f"environment {env_id} lost {len(after)} steps that were played after the kill")
    return {"lost": lost, "promised": int(at_kill.sum()) + ACTORS * ENVS * in_actors, "back_s": back_s}


def add_worker(cluster: Cluster) -> Any:
    options = {"num_cpus": 1, "resources": {"worker": 1}, "object_store_memory": 100 * 2**20}
    return started(lambda: cluster.add_node(**options, **agent_ports()))


def agent_ports() -> dict[str, int]:
    """Return free ports for the agents of a node. A node waits 15 s for agents that choose ports, and gives up."""
    names = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in names]
        return {name: each.getsockname()[1] for name, each in zip(names, sockets, strict=True)}


def started(start: Any) -> Any:
    """Return what ``start`` starts; on a busy machine a node exceeds the 30 seconds that Ray allows."""
    for _ in range(4):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def kill_learner(folder: Path, chance: random.Random, address: str) -> dict[str, float]:
    """Kill a training process, resume it, and check that shards and learner are of the same checkpoint."""
    command = [sys.executable, "-m", "distributed.cluster.learn", str(folder), address]
    since = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = []
    kill_at = float("inf")
    for line in process.stdout:
        lines.append(line.split())
        if lines[-1][0] == "saved" and kill_at == float("inf"):
            started_s, kill_at = time.monotonic() - since, time.monotonic() + chance.uniform(0.0, 1.5)
        if time.monotonic() >= kill_at:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.wait()
    resumed = next(line for line in lines if line[0] == "resumed")
    checked = [int(number) for number in resumed[1:]]
    agent_steps, inserted, updates, saved_steps, saved_updates = checked
    if not agent_steps == inserted >= saved_steps or updates != saved_updates:  # shards take steps during a save
        raise PromiseBrokenError(f"learner and shards are of different moments: {resumed}")
    last = max((int(line[1]) for line in lines if line[0] == "step"), default=agent_steps)
    saved = max(int(line[1]) for line in lines if line[0] == "saved")
    return {"lost": last - saved, "back_s": started_s}  # the steps since the newest checkpoint


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=2, help="beside the head; 0 plays on the head, without node kills")
    parser.add_argument("--result", type=Path, default=RESULT)
    arguments = parser.parse_args()
    head: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
    if not arguments.nodes:
        head["resources"] = {"worker": 1}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=head | agent_ports()))
    nodes = [add_worker(cluster) for _ in range(arguments.nodes)]
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    notes = Notes(
        {"seed": arguments.seed, "kills": arguments.kills, "nodes": arguments.nodes, "commit": source()["commit"]}
    )
    play: Play | None = None
    with tempfile.TemporaryDirectory(prefix="framestow-distributed-") as name:
        for kind in arguments.kinds:
            figures = notes.of(kind)
            chance = random.Random(f"{kind} {arguments.seed} {len(figures)}")
            on_disk = kind == "shard_on_disk"
            if kind != "learner" and len(figures) < arguments.kills and (play is None or play.on_disk != on_disk):
                if play is not None:
                    play.close()
                play = Play(Path(name) / kind, on_disk)
                play.wait_for_steps(100)
            while len(figures) < arguments.kills:
                since, rows = time.monotonic(), 0 if play is None else play.rows
                if kind == "learner":
                    figure = kill_learner(Path(name) / kind, chance, cluster.address)
                elif kind == "node":
                    figure = kill_node(play, chance, cluster, nodes)
                else:
                    figure = (kill_actor if kind == "actor" else kill_shard)(play, chance)
                if play is not None and kind != "learner":
                    figure["rows_checked"] = play.rows - rows
                figure["seconds"] = time.monotonic() - since
                figures.append(figure)
                notes.write()
                print(
                    f"{kind} {len(figures)}: { {name: round(value, 2) for name, value in figure.items()} }", flush=True
                )
        if play is not None:
            play.close()  # before the folder of its shards goes
    write_result(
        arguments.result,
        {
            **notes.about,
            "ray": ray.__version__,
            "kinds": {kind: summary(notes.of(kind)) for kind in arguments.kinds},
        },
        "make distributed" if len(sys.argv) == 1 else None,
    )
    NOTES.unlink()
    ray.shutdown()
    cluster.shutdown()
    return 0


class Notes:
    """The figures of each kill so far, in a file; ``about`` says which kills they are."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.about, self._figures = about, {}
        if NOTES.exists() and (noted := json.loads(NOTES.read_text()))["about"] == about:
            self._figures = noted["figures"]

    def of(self, kind: str) -> list[dict[str, float]]:
        return self._figures.setdefault(kind, [])

    def write(self) -> None:
        NOTES.parent.mkdir(exist_ok=True)
        NOTES.write_text(json.dumps({"about": self.about, "figures": self._figures}))


def summary(figures: list[dict[str, float]]) -> dict[str, Any]:
    """Return the numbers of a kind: the first broken promise ends this program."""
    back = [figure["back_s"] for figure in figures]
    result = {
        "kills": len(figures),
        "seconds": round(sum(figure["seconds"] for figure in figures), 1),
        "steps_lost_most": max(figure["lost"] for figure in figures),
        "steps_lost_median": statistics.median(figure["lost"] for figure in figures),
        "seconds_until_back_median": round(statistics.median(back), 2),
        "seconds_until_back_most": round(max(back), 2),
    }
    if "promised" in figures[0]:
        result["largest_part_of_the_promise_lost"] = round(max(each["lost"] / each["promised"] for each in figures), 3)
    if "longest_batch_s" in figures[0]:
        result["longest_wait_for_a_batch_s"] = round(max(figure["longest_batch_s"] for figure in figures), 2)
    if "rows_checked" in figures[0]:
        result["rows_checked"] = sum(figure["rows_checked"] for figure in figures)
    return result


if __name__ == "__main__":
    sys.exit(main())

"""Workers end with their parent: by SIGKILL, Ctrl-C, an error or without ``close``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oracles.patience import PATIENCE_S
from oracles.process_watch import (
    Identity,
    end,
    eventually,
    identity,
    left_in_shared_memory,
    logged_processes,
    still_running,
    with_descendants,
)
from oracles.start_methods import every_start_method

TESTS = Path(__file__).parents[3]


class Parent:
    """A process of ``oracles.worker_parent`` in a process group of its own."""

    def __init__(self, ending: str, start_method: str, process_folder: Path) -> None:
        self.process_folder = process_folder
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oracles.worker_parent", ending, start_method, str(process_folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(TESTS), "PYTHONWARNINGS": "default"},
            start_new_session=True,
        )
        self.own = identity(self.process.pid)
        self.processes, self.shared_memory = {self.own}, []
        told = self.told()
        self.processes = {Identity(*process) for process in told["processes"]}
        self.shared_memory = told["shared_memory"]
        assert len(self.processes) >= 3

    def told(self) -> dict:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def watch(self) -> None:
        """Take up what it has started since."""
        self.processes |= with_descendants(self.process.pid) | logged_processes(self.process_folder)

    def nothing_is_left(self) -> bool:
        others = self.processes - {self.own} | logged_processes(self.process_folder)
        return not still_running(others) and not left_in_shared_memory(self.shared_memory)


@pytest.fixture
def parent_that(process_folder) -> Iterator:
    parents: list[Parent] = []

    def start(ending: str, start_method: str) -> Parent:
        parents.append(Parent(ending, start_method, process_folder))
        return parents[-1]

    yield start
    for parent in parents:
        end({*parent.processes, *logged_processes(process_folder)})
        parent.process.communicate()


@pytest.mark.parametrize("start_method", every_start_method())
@pytest.mark.parametrize("ending", ["play", "hang", "hang_in_c", "hang_stubbornly"])
def test_when_the_parent_is_killed_its_workers_and_its_shared_memory_go(ending, start_method, parent_that):
    parent = parent_that(ending, start_method)
    time.sleep(0.3)  # into the midst of a step
    parent.watch()

    parent.process.kill()

    assert eventually(parent.nothing_is_left), (still_running(parent.processes), parent.shared_memory)


@pytest.mark.parametrize("start_method", every_start_method(quick=("fork", "forkserver")))
def test_after_ctrl_c_in_a_step_the_memory_can_be_saved_and_sampled_and_no_process_is_left(start_method, parent_that):
    parent = parent_that("interrupt", start_method)
    time.sleep(0.3)
    parent.watch()

    os.killpg(parent.process.pid, signal.SIGINT)  # what a terminal does

    told = parent.told()
    assert told["interrupted"]
    assert told["held"] >= 32
    assert told["shape"] == [16, 2, 2, 4]
    assert parent.told() == {"closed": True}
    _, text = parent.process.communicate(timeout=PATIENCE_S)
    assert parent.process.returncode == 0, text
    assert "Traceback" not in text, "workers keep quiet"
    assert eventually(parent.nothing_is_left)


@pytest.mark.parametrize("start_method", every_start_method(quick=("fork", "forkserver")))
def test_ctrl_c_that_the_parent_only_takes_note_of_disturbs_no_worker(start_method, parent_that):
    parent = parent_that("endure", start_method)
    assert parent.told() == {"is_deaf": True}

    for _ in range(3):
        time.sleep(0.15)
        os.killpg(parent.process.pid, signal.SIGINT)

    assert parent.told() == {"alive": 2}, "no worker was lost: each of the two lived once"
    _, text = parent.process.communicate(timeout=PATIENCE_S)
    assert (parent.process.returncode, text) == (0, "")


@pytest.mark.each_value
@pytest.mark.parametrize("start_method", every_start_method())
@pytest.mark.parametrize(("ending", "code"), [("end", 0), ("exit", 3), ("raise", 1), ("abort", 5), ("forget", 0)])
def test_a_parent_that_ends_without_close_leaves_no_process_and_no_memory(ending, code, start_method, parent_that):
    parent = parent_that(ending, start_method)

    _, text = parent.process.communicate(timeout=PATIENCE_S)

    assert parent.process.returncode == code, text
    assert eventually(parent.nothing_is_left), (still_running(parent.processes), parent.shared_memory)
    if ending == "raise":
        assert "RuntimeError: the training failed" in text
    else:
        assert text.strip() == "", "nothing to complain of"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_parent_ended_by_a_signal_leaves_no_process_and_no_memory(number, parent_that):
    parent = parent_that("play", "fork")

    parent.process.send_signal(number)

    assert eventually(parent.nothing_is_left)
    assert parent.process.wait(PATIENCE_S) == -number


def test_a_second_ctrl_c_while_workers_are_closed_leaves_no_orphan(parent_that):
    parent = parent_that("interrupt", "fork")
    time.sleep(0.2)
    os.killpg(parent.process.pid, signal.SIGINT)
    parent.told()
    os.killpg(parent.process.pid, signal.SIGINT)

    parent.process.communicate(timeout=PATIENCE_S)

    assert eventually(parent.nothing_is_left)

"""Environments that start processes, and processes that may not start workers, get the same words."""

from __future__ import annotations

import multiprocessing
import re
import subprocess
import sys
from functools import partial

import pytest

from framestow.envs import SerialVectorEnv, WorkerVectorEnv, make_atari
from framestow.errors import EnvironmentFailedError, InvalidSettingsError
from oracles.numbered_frames import NumberedEnv

DAEMON = "give daemon=False to the WorkerVectorEnv, make_atari or AsyncVectorEnv that started the process"


class StartsProcess(NumberedEnv):
    """Starts a process when it is made, or at its first reset."""

    def __init__(self, at_reset: bool = False) -> None:
        super().__init__()
        self.at_reset = at_reset
        if not at_reset:
            run_process()

    def reset(self, **arguments):
        if self.at_reset:
            run_process()
        return super().reset(**arguments)


def run_process() -> None:
    process = multiprocessing.get_context("fork").Process(target=int)
    process.start()
    process.join()


class WithWorkers(NumberedEnv):
    """Has a vector environment of workers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = WorkerVectorEnv([NumberedEnv], start_method="fork")
        self.inner.reset()

    def close(self):
        self.inner.close()


@pytest.mark.parametrize("make", [StartsProcess, WithWorkers])
def test_an_environment_that_starts_processes_needs_daemon_false_and_works_with_it(make):
    with pytest.raises(EnvironmentFailedError, match="environment 0 raised") as error:
        WorkerVectorEnv([make], start_method="fork")
    assert str(error.value).count(DAEMON) == 1

    env = WorkerVectorEnv([make], start_method="fork", daemon=False)
    assert env.reset()[0].shape == (1, 2, 3)
    env.close()


def test_it_is_named_too_if_the_process_is_started_by_a_reset():
    env = WorkerVectorEnv([partial(StartsProcess, at_reset=True)], start_method="fork")

    with pytest.raises(EnvironmentFailedError, match=re.escape(f"it starts a process: {DAEMON}")):
        env.reset()
    env.close()


def test_make_atari_passes_daemon_on():
    with pytest.raises(InvalidSettingsError, match="daemon is 'no': it must be True or False"):
        make_atari("Pong", num_envs=1, workers=1, daemon="no")

    env = make_atari("Pong", num_envs=1, workers=1, daemon=False)
    (process,) = [each for each in multiprocessing.active_children() if each.name == "framestow-worker-0"]
    assert not process.daemon
    env.close()


def message_of_workers_here(connection) -> None:
    """Send the message that a daemonic process gets, such as a worker of a DataLoader."""
    try:
        WorkerVectorEnv([NumberedEnv])
    except InvalidSettingsError as error:
        connection.send(str(error))
    connection.send([SerialVectorEnv([NumberedEnv]).reset()[0].shape])


def test_in_a_daemonic_process_the_error_comes_before_anything_starts():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=message_of_workers_here, args=(theirs,), daemon=True)
    process.start()

    assert ours.poll(20)
    message, shapes = ours.recv(), ours.recv()
    process.join()

    assert message.startswith("this process cannot start workers: it is a daemon")
    assert "in a worker of a DataLoader, which has no such argument, use SerialVectorEnv" in message
    assert [(1, 2, 3)] == shapes


SCRIPT = """
import gymnasium
from framestow.envs import WorkerVectorEnv
WorkerVectorEnv([lambda: gymnasium.make("CartPole-v1")], start_method="spawn").close()
"""


def test_a_script_on_stdin_is_not_told_to_add_a_main_block():
    run = subprocess.run([sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, timeout=120, check=False)

    assert run.returncode == 1
    assert "a script on stdin cannot be read again by a worker: save it to a file, or give start_method='fork'" in (
        run.stderr
    )
    assert "__name__" not in run.stderr.splitlines()[-1]


def test_a_script_in_a_file_without_a_main_block_is_told_to_add_one(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)

    assert "a script needs: if __name__ == '__main__':" in run.stderr

"""What runs in a worker: it answers one message after another until it is told to close."""

from __future__ import annotations

import gc
import signal
import socket
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

from gymnasium.vector import AutoresetMode

from framestow.envs.workers.channel import WorkerEnd
from framestow.envs.workers.env_host import EnvHost, EnvRaisedError
from framestow.envs.workers.factories import Factories
from framestow.envs.workers.lifeline import hang_on
from framestow.envs.workers.messages import Command, Outcome, pickled
from framestow.envs.workers.shared_block import SharedBlock


class WorkerArguments(NamedTuple):
    """What a worker process is started with."""

    numbers: Sequence[int]
    """Which environments are its own."""
    factories: Factories
    mode: AutoresetMode
    block: SharedBlock
    end: socket.socket
    lifeline: Connection


def run_worker(arguments: WorkerArguments) -> None:
    """Answer until CLOSE, or until the parent is gone."""
    # Under fork the parent's garbage came along. To destroy it here may end the process: ALE's vector environment, for
    # one, joins threads that only the parent has.
    gc.freeze()
    _take_no_signals()
    hang_on(arguments.lifeline)
    end = WorkerEnd(arguments.end)
    host = EnvHost(arguments.numbers, arguments.factories, arguments.mode, arguments.block)
    with suppress(EOFError, OSError):  # the parent is gone: there is nobody to tell
        while _answers_one(end, host):
            pass


def _answers_one(end: WorkerEnd, host: EnvHost) -> bool:
    """Answer one message; tells whether another may come."""
    sequence, command, payload = end.receive()
    try:
        answer, outcome = host.answer(command, payload), Outcome.DONE
    except EnvRaisedError as error:
        answer, outcome = pickled(error.failure), Outcome.FAILED
    end.send(sequence, outcome, answer)
    return command != Command.CLOSE


def _take_no_signals() -> None:
    """Leave Ctrl-C to the parent, and what the parent made of SIGTERM as well.

    A terminal sends SIGINT to the whole group of processes; under fork the parent's own handlers came along.
    """
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})

"""Children that are forked while other threads of their parent work, and must not hang."""

from __future__ import annotations

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

LIMIT_S = 20  # for a child; one that waits for a lock of its parent waits for ever

HUNG = f"it did not end within {LIMIT_S} s"


def fork_and_call(call: Callable[[], Any]) -> str:
    """What is wrong with a forked child that calls ``call``: nothing, or why it failed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forking beside threads
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT_S)  # ends the process, whatever it waits for
            call()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {0: "", -signal.SIGALRM: HUNG}.get(code, f"it ended with {code}")


@contextmanager
def running(*calls: Callable[[], Any]) -> Iterator[None]:
    """Call each function again and again, each in a thread of its own; raise the first error of one at the end."""
    is_over, errors = threading.Event(), []

    def repeat(call: Callable[[], Any]) -> None:
        try:
            while not is_over.is_set():
                call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]

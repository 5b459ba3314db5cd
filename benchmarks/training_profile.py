"""Where the time of framestow's trainer goes: the parts of its loop, timed around the calls that do them."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

ACTING, ENVIRONMENT, PACKING, SAMPLING = "acting", "environment", "packing", "sampling"
COPY, FORWARD, BACKWARD, OPTIMISER, REST = "copy to tensors", "forward and loss", "backward", "optimiser", "rest"
PARTS = (ENVIRONMENT, PACKING, SAMPLING, COPY, FORWARD, BACKWARD, OPTIMISER, ACTING, REST)


class PartClock:
    """Sums the seconds of parts, each without the parts inside it, for the creating thread and for all others.

    ``clock`` returns seconds: on the clock, or of the thread's processor time.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._main = threading.get_ident()
        self._lock = threading.Lock()
        self._threads = threading.local()  # .open: a list of [part, since] for each thread
        self.seconds: dict[str, float] = {}
        self.beside: dict[str, float] = {}

    def begin(self, part: str) -> None:
        """Begin a part, which interrupts the one around it."""
        now = self._clock()
        open_parts = self._open()
        if open_parts:
            self._add(open_parts[-1][0], now - open_parts[-1][1])
        open_parts.append([part, now])

    def end(self) -> None:
        """End the part that began last in this thread; the one around it continues."""
        now = self._clock()
        open_parts = self._open()
        part, since = open_parts.pop()
        self._add(part, now - since)
        if open_parts:
            open_parts[-1][1] = now

    def around(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``call`` with its time added to ``part``."""

        @functools.wraps(call)
        def timed(*arguments: Any, **named: Any) -> Any:
            self.begin(part)
            try:
                return call(*arguments, **named)
            finally:
                self.end()

        return timed

    def _open(self) -> list[list[Any]]:
        if not hasattr(self._threads, "open"):
            self._threads.open = []
        open_parts: list[list[Any]] = self._threads.open
        return open_parts

    def _add(self, part: str, seconds: float) -> None:
        with self._lock:
            sums = self.seconds if threading.get_ident() == self._main else self.beside
            sums[part] = sums.get(part, 0.0) + seconds


@contextmanager
def profiled(run: Any) -> Iterator[PartClock]:
    """Time the parts of ``run``, a framestow training, within the ``with`` block; in the end the rest is added.

    The parts are known by public calls: of the run's environment, memory and agent, and PyTorch's. What an update does
    besides the named parts counts as forward and loss.
    """
    import torch
    from torch.optim import optimizer

    from framestow.torch import tensor_batch

    clock = PartClock()
    methods = [
        (type(run.agent), "act", ACTING),
        (type(run.agent), "learn", FORWARD),
        (type(run.env), "step_async", ENVIRONMENT),
        (type(run.env), "step_wait", ENVIRONMENT),
        (type(run.env.env), "step", ENVIRONMENT),  # the recorder's thread calls it while this one learns
        (type(run.memory), "begin", PACKING),
        (type(run.memory), "append", PACKING),
        (type(run.memory), "observations", PACKING),
        (type(run.memory), "sample", SAMPLING),
        (torch.autograd, "backward", BACKWARD),
        (torch.autograd, "grad", BACKWARD),
        *((module, "to_tensors", COPY) for module in _modules_with("to_tensors", tensor_batch.to_tensors)),
    ]
    with ExitStack() as wrapped:
        for owner, name, part in methods:
            wrapped.enter_context(patch.object(owner, name, clock.around(part, getattr(owner, name))))
        wrapped.callback(optimizer.register_optimizer_step_pre_hook(lambda *_: clock.begin(OPTIMISER)).remove)
        wrapped.callback(optimizer.register_optimizer_step_post_hook(lambda *_: clock.end()).remove)
        start = time.perf_counter()
        yield clock
        wall = time.perf_counter() - start
    clock.seconds[REST] = wall - sum(clock.seconds.values())


def _modules_with(name: str, value: object) -> list[Any]:
    """Return framestow's modules in which ``name`` is ``value``."""
    modules = [module for key, module in sys.modules.items() if key.startswith("framestow")]
    return [module for module in modules if vars(module).get(name) is value]

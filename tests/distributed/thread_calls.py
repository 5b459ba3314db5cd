"""Shards and actors in threads of this process, each of which executes its calls in order, as a Ray actor does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from copy import copy
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

from framestow.distributed.rollouts import RolloutActor, RolloutSettings
from framestow.distributed.shard import Shard, ShardSettings
from framestow.errors import ActorLostError


class ThreadCalls:
    """Calls to objects that have a thread each. They wait for each other as processes do; none of them dies."""

    def __init__(self, makes: Sequence[Callable[[int], Any]]) -> None:
        self.objects = [make(0) for make in makes]
        self._threads = [ThreadPoolExecutor(1) for _ in makes]
        self._lock, self._unanswered = Lock(), [0] * len(makes)
        self.most_unanswered = 0
        """The largest number of calls that one object had not answered, at any moment."""

    @property
    def num_objects(self) -> int:
        return len(self.objects)

    def call(self, number: int, method: str, *arguments: Any) -> Future:
        with self._lock:
            self._unanswered[number] += 1
            self.most_unanswered = max(self.most_unanswered, self._unanswered[number])
        handle = self._threads[number].submit(getattr(self.objects[number], method), *arguments)  # raises after close
        handle.add_done_callback(lambda _: self._note_answer(number))
        return handle

    def _note_answer(self, number: int) -> None:
        with self._lock:
            self._unanswered[number] -= 1

    def result(self, handle: Future, timeout_s: float) -> Any:
        try:
            return handle.result(timeout_s)
        except TimeoutError as error:
            raise ActorLostError(f"no answer in {timeout_s} s", is_silent=True) from error

    def wait(self, handles: Sequence[Future], timeout_s: float = 0.0) -> list[Future]:
        wait(handles, timeout_s, "FIRST_COMPLETED")
        return [handle for handle in handles if handle.done()]

    def share(self, value: Any) -> Any:
        return value

    def replace(self, number: int) -> None:
        raise AssertionError(f"object {number} was taken for dead")

    def close(self) -> None:
        """Let each thread end after its call. An actor that waits for a shard raises, since the shard is closed."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)


def start_shards_in_threads(settings: Sequence[ShardSettings], shard: type[Shard] = Shard) -> ThreadCalls:
    return ThreadCalls([partial(shard, one) for one in settings])


def start_rollouts_in_threads(settings: Sequence[RolloutSettings]) -> ThreadCalls:
    def make(one: RolloutSettings, num_restarts: int) -> RolloutActor:
        return RolloutActor(replace(one, writer=copy(one.writer)), num_restarts)  # as in a process of its own

    return ThreadCalls([partial(make, one) for one in settings])

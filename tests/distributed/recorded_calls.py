"""Calls to shards in this process, of which a test loses some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from framestow.distributed.ray import LocalCalls
from framestow.distributed.shard import Chunk
from framestow.errors import ActorLostError


class RecordedCalls(LocalCalls):
    """Lists every chunk that was sent, and loses the answers or the calls of those that a test chooses."""

    def __init__(self, *makes: Callable[[int], Any]) -> None:
        super().__init__(makes)
        self.sent: list[Sequence[Chunk]] = []
        self.lost_calls: set[int] = set()  # numbers of the calls of ``take`` that never arrive
        self.lost_answers: set[int] = set()
        self.statuses: list[str] = []  # of all chunks that arrived

    def call(self, number: int, method: str, *given: Any) -> Any:
        if method != "take":
            return super().call(number, method, *given)
        index = len(self.sent)
        self.sent.append(given[0])
        lost = None, ActorLostError("the call is lost")
        if index in self.lost_calls:
            return lost
        handle = super().call(number, method, *given)
        self.statuses += handle[0].statuses if handle[0] else []
        return lost if index in self.lost_answers else handle

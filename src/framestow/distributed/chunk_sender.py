"""``ChunkSender``: sends the chunks of a writer until the shards have them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from framestow.distributed.calls import START_S, Calls
from framestow.distributed.chunks import GAP, REPLACED, STORED, Chunk, Priorities, ShardReport, Taken
from framestow.errors import ActorLostError
from framestow.replay.memory_settings import MemorySettings


@dataclass(frozen=True)
class WriterSettings:
    """Settings of a ``ShardWriter``."""

    memory: MemorySettings  # of each shard
    env_ids: tuple[int, ...]  # of the whole replay
    max_in_flight: int = 2  # calls to each shard
    timeout_s: float = 30.0  # of one call
    give_up_s: float = START_S  # a shard that is not back by then raises
    waits_for_limiter: bool = True  # False for the writer of the process that samples
    priority: Priorities | None = np.abs  # of TD errors


@dataclass
class WriterCounts:
    """What a writer did since it was created."""

    appended: int = 0  # steps, sent or not
    waited_s: float = 0.0  # for the rate limiter
    blocked_s: float = 0.0  # for a slow or restarting shard


class ChunkSender:
    """Sends chunks in order. Up to ``max_in_flight`` calls are in flight to each shard.

    A chunk is sent again if its call fails, or if its shard refuses it since it lost the chunk before. Then it has its
    ``context``.
    """

    def __init__(self, shards: Calls, settings: WriterSettings, counts: WriterCounts) -> None:
        self._shards, self._settings, self._counts = shards, settings, counts
        # By shard: the calls without an answer, oldest first, each with its chunks.
        self._in_flight: dict[int, deque[tuple[Any, list[Chunk]]]] = {s: deque() for s in range(shards.num_objects)}
        # By shard: its last report, for the rate limiter; a shard is missing before its first answer.
        self._reports: dict[int, ShardReport] = {}
        # By shard and env_id there: frames in its segment before the first one of the writer, modulo a segment.
        self.offsets: dict[tuple[int, int], int] = {}

    def send(self, shard: int, chunks: list[Chunk]) -> None:
        """Send chunks to a shard, after a wait for the oldest call in flight or for the rate limiter."""
        while len(self._in_flight[shard]) >= self._settings.max_in_flight:
            self._receive(shard)
        self._wait_for_limiter(shard)
        without_context = [replace(chunk, context=None) for chunk in chunks]
        self._in_flight[shard].append((self._shards.call(shard, "take", without_context), chunks))

    def finish(self) -> None:
        """Wait until the shards have stored all chunks."""
        for shard, in_flight in self._in_flight.items():
            while in_flight:
                self._receive(shard)

    def _receive(self, shard: int) -> None:
        """Wait for the oldest call to ``shard``; send again what it refused or may have lost."""
        since, in_flight = time.monotonic(), self._in_flight[shard]
        missing = self._list_missing(shard, *in_flight.popleft())
        while missing and in_flight:  # later chunks come after these
            missing += self._list_missing(shard, *in_flight.popleft())
        self._send_again(shard, missing)
        self._counts.blocked_s += time.monotonic() - since

    def _list_missing(self, shard: int, handle: Any, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Wait for the answer to a call; return the chunks that must be sent again."""
        try:
            taken: Taken = self._shards.result(handle, self._settings.timeout_s)
        except ActorLostError:
            return list(chunks)
        self._reports[shard] = taken.report
        for chunk, status, open_frames in zip(chunks, taken.statuses, taken.open_frames, strict=True):
            if status == REPLACED:
                raise ActorLostError(
                    f"environment {chunk.env_id} of shard {shard} has a newer writer: this one was replaced; close it"
                )
            if status == STORED:
                self.offsets[shard, chunk.env_id] = open_frames - chunk.next_frame
        return [chunk for chunk, status in zip(chunks, taken.statuses, strict=True) if status == GAP]

    def _send_again(self, shard: int, missing: Sequence[Chunk]) -> None:
        """Send chunks one by one, in order, until the shard has each of them."""
        give_up_at, pause_s = time.monotonic() + self._settings.give_up_s, 0.05
        for number, chunk in enumerate(missing):
            while self._list_missing(shard, self._shards.call(shard, "take", [chunk]), [chunk]):
                if time.monotonic() > give_up_at:
                    raise ActorLostError(
                        f"shard {shard} did not come back within {self._settings.give_up_s:g} s: the steps of "
                        f"{len(missing) - number} chunks are lost; see why it died, or raise give_up_s"
                    )
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 2.0)

    def _wait_for_limiter(self, shard: int) -> None:
        """Wait while the shard has as many steps as the rate limiter allows, with those that are on their way to it."""
        since, pause_s = time.monotonic(), 0.01
        while self._settings.waits_for_limiter and shard in self._reports:
            report, in_flight = self._reports[shard], self._in_flight[shard]
            num_sent = sum(chunk.steps.num_steps for _, chunks in in_flight for chunk in chunks)
            if report.inserted + num_sent < report.insert_limit:
                break
            if in_flight:
                self._receive(shard)
                continue
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.2)
            try:
                handle = self._shards.call(shard, "report")
                self._reports[shard] = self._shards.result(handle, self._settings.timeout_s)
            except ActorLostError:
                break  # the next call waits for the shard
        self._counts.waited_s += time.monotonic() - since

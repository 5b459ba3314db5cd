"""Write TensorBoard events in the caller's thread."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

FILE_VERSION = "brain.Event:2"  # first record of a TensorBoard file


class EventFile:
    """A file of scalars over agent steps, for ``tensorboard --logdir``.

    A full disk raises ``OSError`` in the caller. PyTorch's ``SummaryWriter`` has a writer thread instead: a full disk
    ends the thread, and ``close`` then waits forever.

    ``resumed_at`` is the agent step at which the run resumes. TensorBoard hides later points of earlier files.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        name = f"events.out.tfevents.{time.time_ns()}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / name).open("xb")  # TensorBoard reads files in the order of their names
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version=FILE_VERSION))
        if resumed_at:
            start = SessionLog(status=SessionLog.START)
            self._write(Event(wall_time=time.time(), step=resumed_at + 1, session_log=start))

    def add(self, name: str, value: float, agent_steps: int) -> None:
        """Add a point. It is in the file after the next ``flush``."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        self._write(Event(wall_time=time.time(), step=agent_steps, summary=summary))

    def flush(self) -> None:
        """Write all buffered points to the file."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())

"""A file of TensorBoard events, written in the caller's thread."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

FILE_VERSION = "brain.Event:2"


class EventFile:
    """Scalars over agent steps, for ``tensorboard --logdir``.

    PyTorch's ``SummaryWriter`` writes on a thread of its own, which dies of a full disk and then lets ``close`` wait
    for ever; here an ``OSError`` reaches the caller. ``resumed_at`` tells TensorBoard to hide what an earlier file in
    the folder has after that step.
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
        """Add a point; it is in the file after the next :meth:`flush`."""
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        self._write(Event(wall_time=time.time(), step=agent_steps, summary=summary))

    def flush(self) -> None:
        """Hand everything to the operating system."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close."""
        self._file.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())

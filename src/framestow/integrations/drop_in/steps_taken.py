"""How many steps a memory has taken, for buffers that count along and were interrupted."""

from __future__ import annotations

from framestow.replay.memory import ReplayMemory


def num_steps_taken(memory: ReplayMemory) -> int:
    """Count the steps that ever came to a memory of retention ``"fifo"`` and ``n_step`` 1; takes a time as ``len``.

    Steps are numbered as they come, and the newest is always held. After Ctrl-C in ``append`` this alone tells whether
    the step is there: a memory finishes what it has begun.
    """
    indices = memory.sampleable_indices()
    return int(indices[-1]) + 1 if indices.size else 0

"""Environment variables with which the heap of a new process looks different: sizes of freed buffers depend on them."""

from __future__ import annotations

import pytest

HEAP_LAYOUTS = [
    pytest.param({}, id="as it is"),
    pytest.param({"OMP_NUM_THREADS": "1"}, id="one thread"),
    pytest.param({"MALLOC_ARENA_MAX": "1"}, id="one arena"),
    pytest.param({"LONG_VARIABLE": "x" * 3000}, id="a long variable"),
]

"""A process that ends while threads work in a memory exits with code 0 and prints nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# Arguments: a call that a daemon thread repeats beside another one that samples, the storage, and the number of forked
# children that end in the middle of it. Without children, the process itself does.
ENDS_BESIDE_THREADS = """
import os, sys, threading
import numpy as np
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

call, storage, num_children = sys.argv[1], sys.argv[2], int(sys.argv[3])
frames = np.random.default_rng(0).integers(0, 256, (500, 84, 84), np.uint8)
flag, stacks = np.zeros(1, bool), np.zeros((1, 4, 84, 84), np.uint8)
memory, of_stacks = (
    ReplayMemory(1000, FrameSpec(shape), 4, stack=stack, storage=storage, threads=2, seed=0)
    for shape, stack in (((84, 84), 4), ((4, 84, 84), None))
)

def append(frame):
    memory.append(flag.astype(int), flag.astype(float), flag, flag, frame)

memory.begin(frames[:1])
for frame in frames[1:, None]:
    append(frame)

children = []
for _ in range(num_children):
    children.append(os.fork())
    if children[-1] == 0:
        break
else:
    if num_children:
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        sys.exit(f"the children ended with {codes}" if any(codes) else 0)

calls = {
    "add": lambda: of_stacks.add(stacks, [1], [1.0], stacks, flag, flag),
    "append": lambda: append(frames[:1]),
    "get": lambda: memory.get(memory.sampleable_indices()[-32:]),
    "sample": lambda: memory.sample(32),
    "sample_sequences": lambda: memory.sample_sequences(8, 10),
}

def repeat(call, is_in_the_middle):
    for _ in range(3):
        call()
    is_in_the_middle.set()
    while True:
        call()

for repeated in (calls["sample"], calls[call]):
    is_in_the_middle = threading.Event()
    threading.Thread(target=repeat, args=(repeated, is_in_the_middle), daemon=True).start()
    if not is_in_the_middle.wait(60):
        sys.exit("a thread did not begin")
"""

# The argument is an empty folder. Nothing is closed. nanobind lists the native objects that are alive after all that.
ENDS_WITH_EVERYTHING_OPEN = """
import sys
import numpy as np
from framestow._core import set_leak_warnings
from framestow.envs import Recorder, SerialVectorEnv
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.torch import BatchLoader
from oracles.numbered_frames import NUM_ACTIONS, SHAPE, NumberedEnv

set_leak_warnings(True)
memory = ReplayMemory(
    200, FrameSpec(SHAPE), NUM_ACTIONS, stack=4, num_envs=2, threads=2, seed=0, directory=sys.argv[1], flush_every=0.01
)
recorder = Recorder(SerialVectorEnv([NumberedEnv, NumberedEnv]), memory)
recorder.reset()
for _ in range(150):
    recorder.step(np.zeros(2, int))
sequences = memory.sample_sequences(4, 3)
loader = BatchLoader(memory, 32, threads=2)
batch = next(loader)

class Cycle:
    def __init__(self):
        self.itself, self.kept = self, (memory, loader, recorder, batch, sequences)

cycle = Cycle()
try:
    memory.get([10**9])
except LookupError as error:
    kept_error = error  # with the frames of its traceback
recorder.step_async(np.zeros(2, int))
"""


def ended(script: str, *arguments: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    """Run a script in a new process; return its exit code and what it printed."""
    command = [sys.executable, *options, "-c", script, *arguments]
    process = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout


@pytest.mark.each_value
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("call", ["add", "append", "get", "sample", "sample_sequences"])
def test_a_process_ends_quietly_while_daemon_threads_use_a_memory(call, storage):
    assert (0, "") == ended(ENDS_BESIDE_THREADS, call, storage, "4")


@pytest.mark.parametrize("storage", ["packed", "raw"])
def test_a_process_in_development_mode_ends_quietly_while_daemon_threads_sample(storage):
    assert (0, "") == ended(ENDS_BESIDE_THREADS, "sample", storage, "0", options=("-X", "dev"))


def test_a_process_that_closes_nothing_ends_quietly_and_releases_every_native_object(tmp_path):
    assert (0, "") == ended(ENDS_WITH_EVERYTHING_OPEN, str(tmp_path))

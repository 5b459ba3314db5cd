"""Stores with valid checksums that claim to be large, or contradict themselves: no call takes what they claim."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from framestow.errors import FramestowError, IncompatibleError, NothingToSampleError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.reports.inspection import inspect_memory
from framestow.replay.store import reader
from framestow.replay.store.format import Arrays, Commit
from framestow.replay.store.reader import StoredMemory, loading_bytes
from oracles.damaged_stores import Kind, RecordedStore
from oracles.hostile_stores import CLAIMS, rewrite, store_black_frames, store_claim

if sys.platform != "linux":
    pytest.skip("only Linux says how much memory a call took", allow_module_level=True)

LIMIT = 384 * 2**20  # bytes of addresses that the calls of the child process may take
SLACK = 24 * 2**20  # bytes that any call may take: code that is read for the first time, and what the allocator keeps
FEW_BYTES = 4 * 2**20  # what an estimate may be above twice the real bytes: it matters to no load
CALLS = """
import json, logging, resource, sys, warnings
from pathlib import Path
from framestow import ReplayMemory
from framestow.errors import FramestowError
from framestow.replay.reports.inspection import inspect_memory
from framestow.replay.store.repair import repair_store
from framestow.replay.store.verify import verify_store
warnings.simplefilter("ignore"), logging.disable()
def status(name):
    return int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0]) * 1024
def verify(folder):
    verify_store(folder, announce=announced.append)
calls = {
    "inspect": inspect_memory, "verify": verify, "repair": lambda folder: repair_store(folder, dry_run=True),
    "load": ReplayMemory.load, "open": ReplayMemory.open,
    "load with a budget": lambda folder: ReplayMemory.load(folder, max_bytes="16 MiB"),
}
resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + int(sys.argv[2]),) * 2)
results = []
for folder in sorted(Path(sys.argv[1]).iterdir()):
    for name, call in calls.items():
        announced, before = [0], status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        try:
            call(folder)
            error = ""
        except FramestowError as refusal:
            error = type(refusal).__name__
        except BaseException as other:
            error = "not framestow's: " + repr(other)
        results.append((folder.name, name, error, status("VmHWM") - before, sum(announced)))
print(json.dumps(results))
"""


class Called(NamedTuple):
    """What became of a call in the child process."""

    claim: int
    call: str
    error: str
    num_bytes: int
    announced: int


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> list[Called]:
    """Make every call on every claim in one child process with little memory."""
    folder = tmp_path_factory.mktemp("claims")
    for number, name in enumerate(CLAIMS):
        store_claim(name, folder / f"{number:02d}")
    child = subprocess.run(
        [sys.executable, "-c", CALLS, str(folder), str(LIMIT)], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    return [Called(int(claim), *rest) for claim, *rest in json.loads(child.stdout)]


@pytest.mark.parametrize("name", CLAIMS)
def test_every_call_on_a_store_that_claims_much_works_or_raises_within_little_memory(called, name):
    own = [one for one in called if one.claim == list(CLAIMS).index(name)]

    assert 6 == len(own)
    for one in own:
        assert not one.error.startswith("not"), one
        if one.call in ("inspect", "verify"):
            assert one.num_bytes <= SLACK + one.announced, one
        if one.call == "load with a budget":
            assert one.num_bytes <= SLACK + 16 * 2**20, one


@pytest.mark.parametrize("settings", [{}, {"retention": "random"}, {"storage": "raw"}])
@pytest.mark.parametrize("how", ["load", "open", "directory"])
def test_what_loading_takes_is_compared_with_what_is_free_before_anything_is_allocated(
    how, settings, tmp_path, monkeypatch
):
    memory = store_black_frames(tmp_path / "store", num_steps=500, frames_per_segment=32, **settings)
    monkeypatch.setattr(reader, "free_memory", lambda: 10_000)
    call = {
        "load": lambda: ReplayMemory.load(tmp_path / "store"),
        "open": lambda: ReplayMemory.open(tmp_path / "store"),
        "directory": lambda: ReplayMemory(
            5_000, FrameSpec((8, 8)), 4, stack=2, frames_per_segment=32, directory=tmp_path / "store", **settings
        ),
    }[how]

    with pytest.raises(
        IncompatibleError, match=r"bytes\) of memory and 9.8 KiB \(10_000 bytes\) are free; .*max_bytes"
    ):
        call()

    monkeypatch.undo()
    assert len(memory) == len(call())


KINDS: dict[str, tuple[FrameSpec, dict]] = {
    "noise, packed": (FrameSpec((84, 84)), {}),
    "black, raw": (FrameSpec((84, 84)), {"storage": "raw"}),
    "vectors": (FrameSpec((400,), np.float32), {}),
    "scaled": (FrameSpec((84, 84), np.float32, is_scaled=True), {"storage": "raw"}),
    "random retention": (FrameSpec((84, 84)), {"retention": "random", "frames_per_segment": 64}),
    "many environments": (FrameSpec((42, 42)), {"num_envs": 64}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_estimate_is_never_below_what_a_memory_takes_and_at_most_twice_as_much(kind, tmp_path):
    spec, settings = KINDS[kind]
    num_envs = settings.get("num_envs", 4)
    memory = ReplayMemory(20_000, spec, 4, stack=4, seed=0, **{"num_envs": num_envs} | settings)
    random = np.random.default_rng(0)

    def frames() -> np.ndarray:
        pixels = random.integers(0, 256 if "black" not in kind else 1, (num_envs, *spec.shape))
        return (pixels / 255 if spec.is_scaled else pixels).astype(spec.dtype)

    memory.begin(frames())
    nothing = np.zeros(num_envs, np.bool_)
    for _ in range(300 if num_envs == 4 else 60):
        memory.append(nothing.astype(int), nothing.astype(float), nothing, nothing, frames())
    memory.save(tmp_path / "store")

    loaded = ReplayMemory.load(tmp_path / "store")
    with StoredMemory.open(tmp_path / "store") as stored:
        logs = stored.frames, stored.steps
        estimate = loading_bytes(stored.settings, stored.arrays, logs, None, in_files=False)

    assert loaded.nbytes <= estimate <= 2 * loaded.nbytes + FEW_BYTES


def test_a_load_with_a_budget_keeps_the_newest_transitions_and_never_takes_more(tmp_path):
    whole = store_black_frames(tmp_path / "store", 64, 2_000, storage="raw", frames_per_segment=32)
    budget = 2**21

    loaded = ReplayMemory.load(tmp_path / "store", max_bytes=budget)

    assert loaded.nbytes <= budget
    assert 300 < len(loaded) < 500
    assert whole.sampleable_indices()[-len(loaded) :].tolist() == loaded.sampleable_indices().tolist()
    loaded.inner.parts.check()


NUM_MUTATIONS = 40
READS = {
    "all": lambda memory: memory.get(memory.sampleable_indices()),
    "sample": lambda memory: memory.sample(8),
    "sequences": lambda memory: memory.sample_sequences(3, length=5),
    "across borders": lambda memory: memory.sample_sequences(3, length=5, overlap=2, burn_in=1, borders="cross"),
    "episodes": lambda memory: memory.sample_episodes(3),
    "iterated episodes": lambda memory: [(one.observations(), one.frames(), one.has_end) for one in memory.episodes()],
    "returns": lambda memory: memory.returns_to_go(memory.sampleable_indices()),
    "steps": lambda memory: memory.steps_from(memory.sampleable_indices(), length=4),
    "batches": lambda memory: list(memory.batches(50)),
    "observations": lambda memory: memory.observations(),
    "report": lambda memory: memory.report(),
}


def mutate(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Change one or several values of an array: by one, to those of others, or to extremes."""
    changed = np.array(array)
    if not changed.size:
        return changed
    flat, rows = changed.reshape(-1), random.integers(changed.size, size=random.choice([1, 1, 2, 8]))
    kind = random.integers(6)
    if changed.dtype == np.bool_ or kind == 0:
        flat[rows] = flat[random.permutation(rows)] if kind == 0 else ~flat[rows]
    elif changed.dtype.kind == "f":
        flat[rows] = random.choice([np.nan, np.inf, -1.0, 3e38])
    elif kind == 5:
        return changed[: random.integers(len(changed) + 1)] if changed.ndim else changed
    else:
        extremes = [np.iinfo(changed.dtype).max, np.iinfo(changed.dtype).min, 0]
        flat[rows] = (
            random.choice(extremes)
            if kind == 1
            else flat[rows] + np.array(random.choice([-1, 1, 2])).astype(flat.dtype)
        )
    return changed


@pytest.mark.each_value
@pytest.mark.parametrize("retention", ["fifo", "random"])
@pytest.mark.parametrize("n_step", [1, 3])
def test_a_store_that_contradicts_itself_is_refused_or_every_read_works(retention, n_step, tmp_path):
    random = np.random.default_rng(n_step)
    RecordedStore(Kind((150, 90), retention=retention, n_step=n_step, stack=2), tmp_path / "store")
    num_opened = 0
    for number in range(NUM_MUTATIONS):
        copy = shutil.copytree(tmp_path / "store", tmp_path / f"copy {number}")
        changed: list[str] = []

        def change(commit: Commit, arrays: Arrays, changed: list[str] = changed) -> Commit:
            changed += random.choice(sorted(arrays), random.choice([1, 1, 2])).tolist()
            for name in changed:
                arrays[name] = mutate(arrays[name], random)
            return commit

        rewrite(copy, change)
        try:
            inspect_memory(copy)
            memory = ReplayMemory.open(copy)
        except FramestowError:
            continue
        num_opened += 1
        for name, read in READS.items():
            try:
                read(memory)
            except NothingToSampleError:
                pass
            except Exception as error:
                raise AssertionError(f"{name} after a change of {changed}") from error
    assert 4 < num_opened < NUM_MUTATIONS

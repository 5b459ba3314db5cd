"""Extras are declared by name, stored with the step, and returned in every batch."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.errors import DamagedDataError, InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.replay.settings.step_fields import ExtrasSpec

FRAME = FrameSpec((2, 3))
FRAMES = np.zeros((2, 2, 3), np.uint8)
COLUMNS = {"log_prob": np.float32, "state": (np.float64, (2, 3)), "visits": np.int16, "is_greedy": np.bool_}


def memory_with(extras=COLUMNS, capacity: int = 100, **settings) -> ReplayMemory:
    return ReplayMemory(capacity, FRAME, 4, stack=2, num_envs=2, extras=extras, seed=0, **settings)


def values_at(step: int) -> dict[str, np.ndarray]:
    """The extras of both environments at that step; all values differ."""
    return {
        "log_prob": np.array([-step, -step - 0.5], np.float32),
        "state": step + np.arange(12.0).reshape(2, 2, 3),
        "visits": np.array([step, 1000 + step], np.int16),
        "is_greedy": np.array([step % 2 == 0, step % 3 == 0]),
    }


def append(memory: ReplayMemory, extras, ends: bool = False) -> None:
    memory.append([1, 2], [0.0, 1.0], [ends] * 2, [False] * 2, FRAMES, extras=extras)


def played(num_steps: int, **settings) -> ReplayMemory:
    memory = memory_with(**settings)
    for step in range(num_steps):
        if not memory.open_episodes.all():
            memory.begin(FRAMES)
        append(memory, values_at(step), ends=step % 7 == 6)
    return memory


def assert_holds_what_was_played(memory: ReplayMemory) -> None:
    """Return the expected extras by index: 2 * step + environment."""
    indices = memory.sampleable_indices()
    extras = memory.get(indices).extras
    assert COLUMNS.keys() == extras.keys()
    for row, index in enumerate(indices.tolist()):
        for name, values in values_at(index // 2).items():
            np.testing.assert_array_equal(values[index % 2], extras[name][row], f"{name} of transition {index}")


def test_a_memory_without_extras_returns_none():
    memory = ReplayMemory(10, FRAME, 4, stack=4)
    memory.begin(FRAMES[:1])
    memory.append([0], [0.0], [False], [False], FRAMES[:1], extras={})

    assert {} == memory.sample(1).extras


def test_extras_are_copied_into_the_memory_and_into_batches():
    memory = memory_with()
    memory.begin(FRAMES)
    values = values_at(0)
    append(memory, values)
    values["state"][...] = 99.0

    memory.sample(4).extras["state"][...] = 77.0

    assert_holds_what_was_played(memory)


@pytest.mark.parametrize(
    ("dtype", "extremes"),
    [
        (np.float32, [np.nan, -np.inf]),
        (np.float64, [np.inf, np.nan]),
        (np.float16, [np.nan, 6e-8]),
        (np.int64, [-(2**63), 2**63 - 1]),
        (np.uint64, [0, 2**64 - 1]),
    ],
)
def test_all_values_of_the_dtype_are_returned_including_nan_and_infinity(dtype, extremes):
    memory = memory_with({"value": dtype})
    memory.begin(FRAMES)
    values = np.array(extremes, dtype)

    append(memory, {"value": values})

    assert values.tobytes() == memory.get([0, 1]).extras["value"].tobytes()


@pytest.mark.parametrize(
    "form",
    [
        lambda array: array.tolist(),
        lambda array: np.repeat(array, 2, axis=0)[::2],
        lambda array: array.astype(array.dtype.newbyteorder()),
        memoryview,
        lambda array: array.astype(np.float64) if array.dtype == np.float32 else array,
        lambda array: array.astype(np.int64) if array.dtype == np.int16 else array,
        np.asfortranarray,
    ],
    ids=["lists", "not contiguous", "other byte order", "memoryviews", "wider floats", "wider integers", "Fortran"],
)
def test_extras_are_stored_alike_in_every_form(form):
    memory = memory_with()
    memory.begin(FRAMES)

    append(memory, {name: form(values) for name, values in values_at(0).items()})

    assert_holds_what_was_played(memory)


BAD = [
    (None, "extras lack is_greedy, log_prob, state, visits: every step of this memory has"),
    ({"state": ...}, "extras lack state: every step of this memory has"),
    ({"extra": [1, 2]}, "extras have extra: this memory stores is_greedy bool, log_prob float32, state float64 2x3"),
    ({"state": np.zeros((2, 3))}, "extra 'state' has shape (2, 3): 2 environments need (2, 2, 3)"),
    ({"visits": [1]}, "extra 'visits' has shape (1,): 2 environments need (2,)"),
    ({"visits": [1.0, 2.0]}, "extra 'visits' has dtype float64: this memory stores it as int16; convert it"),
    ({"visits": [1, 40_000]}, "extra 'visits' is 40000 at row 1: it does not fit int16"),
    ({"log_prob": [0.0, 1e300]}, "extra 'log_prob' is 1e+300 at row 1: it does not fit float32"),
    ({"is_greedy": [0, 1]}, "extra 'is_greedy' has dtype int64: this memory stores it as bool"),
    ([1, 2], "extras is [1, 2]: it must map names to arrays"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_extras_that_break_a_rule_are_refused_before_anything_is_stored(change, message):
    memory = memory_with()
    memory.begin(FRAMES)
    extras = change
    if isinstance(change, dict):
        extras = {name: value for name, value in (values_at(0) | change).items() if value is not ...}

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        append(memory, extras)

    assert 0 == len(memory)
    memory.inner.parts.check()
    append(memory, values_at(0))
    assert_holds_what_was_played(memory)


def test_a_memory_without_extras_refuses_them():
    memory = memory_with(None)
    memory.begin(FRAMES)

    with pytest.raises(InvalidStepError, match="extras have log_prob: this memory stores none; leave it out"):
        append(memory, {"log_prob": np.zeros(2, np.float32)})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"reward": np.float32}, "extras has the name 'reward': a batch already has this field; use another name"),
        ({"mask": np.float32}, "extras has the name 'mask': a batch already has this field"),
        ({"": np.float32}, "extras has the name '': a name must be a Python identifier"),
        ({"log prob": np.float32}, "extras has the name 'log prob'"),
        ({3: np.float32}, "extras has the name 3"),
        ({"name": object}, "extra 'name' is object: an extra must be at least one number or boolean"),
        ({"name": "U8"}, "extra 'name' is <U8: an extra must be at least one number or boolean"),
        ({"name": [("x", np.int8)]}, "an extra must be at least one number or boolean"),
        ({"name": np.longdouble}, "an extra must be at least one number or boolean of up to 8 bytes"),
        ({"name": (np.float32, (0,))}, "an extra must be at least one number or boolean"),
        ({"name": "no such dtype"}, "extra 'name' is 'no such dtype': it must be a NumPy dtype"),
        ({"name": (np.float32, (-1,))}, "it must be a NumPy dtype"),
        ({"name": (np.uint8, 65_537)}, "extras take 65537 bytes per step: at most 65536 are allowed"),
        (["log_prob"], "extras is ['log_prob']: it must map names to dtypes"),
    ],
)
def test_declarations_that_cannot_work_are_refused_by_name(declared, message):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        memory_with(declared)


def test_the_order_of_declaration_does_not_matter():
    declared = {"b": np.int8, "a": np.int64}

    assert ExtrasSpec.from_declared(declared) == ExtrasSpec.from_declared(dict(reversed(declared.items())))


def test_saved_extras_of_another_shape_are_reported_as_damage(tmp_path):
    memory = played(3)
    arrays = memory.inner.steps.state()
    arrays["extra.state"] = arrays["extra.state"][:, :1]

    with pytest.raises(
        DamagedDataError, match=re.escape("extra.state has shape (6, 1, 3): these slots need (6, 2, 3)")
    ):
        memory_with().inner.steps.restore(arrays, lambda _: None)


def test_the_bytes_of_extras_are_reported():
    per_step = ExtrasSpec.from_declared(COLUMNS).dtype.itemsize
    reported = played(50, capacity=1000).report()
    assert 55 == per_step
    without = memory_with(None, capacity=1000)
    for step in range(50):
        if not without.open_episodes.all():
            without.begin(FRAMES)
        append(without, None, ends=step % 7 == 6)

    assert 100 * per_step == reported.parts["steps"] - without.report().parts["steps"]


@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize(("retention", "fewest"), [("fifo", 1000), ("random", 800)])
def test_extras_count_against_a_budget(retention, fewest, storage):
    budget, state = 3 << 20, np.zeros((2, 2000), np.uint8)
    memory = memory_with(
        {"state": (np.uint8, 2000)}, capacity=100_000, max_bytes=budget, retention=retention, storage=storage
    )
    memory.begin(FRAMES)

    for step in range(1200):
        append(memory, {"state": state}, ends=step % 50 == 49)
        if step % 50 == 49:
            memory.begin(FRAMES)
        assert memory.inner.steps.nbytes <= budget

    assert memory.report().all_bytes <= budget
    assert fewest < len(memory) < 1573  # of 1573 transitions the extras alone would fill the budget

"""A step is stored alike in whatever form its arguments come, and refused alike in each."""

from __future__ import annotations

import re

import numpy as np
import pytest

from framestow.errors import InvalidSettingsError, InvalidStepError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory

SHAPE = (3, 4)
NUM_ENVS = 2
ACTIONS, REWARDS, TERMINATED, TRUNCATED = [1, 3], [-2.0, 5.0], [False, True], [True, False]
FRAMES = np.arange(24, dtype=np.uint8).reshape(2, *SHAPE)


class Space:
    """Stands for a Gymnasium Discrete (``n``, ``start``) or Box (``shape``, ``dtype``, ``low``, ``high``)."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def begun(action_space=4) -> ReplayMemory:
    memory = ReplayMemory(6, FrameSpec(SHAPE), action_space, stack=2, num_envs=NUM_ENVS, discount=0.5)
    memory.begin(np.zeros((NUM_ENVS, *SHAPE), np.uint8))
    return memory


def every_other(values) -> np.ndarray:
    return np.repeat(np.asarray(values), 2, axis=0)[::2]


def swapped(values) -> np.ndarray:
    array = np.asarray(values)
    return array.astype(array.dtype.newbyteorder())


def read_only(values) -> np.ndarray:
    array = np.asarray(values).copy()
    array.setflags(write=False)
    return array


def unaligned(values) -> np.ndarray:
    array = np.asarray(values)
    shifted = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    shifted[...] = array
    return shifted


def of_dtype(dtype):
    return lambda values: np.asarray(values).astype(dtype)


ANY_FORMS = {
    "arrays": np.asarray,
    "lists": lambda values: np.asarray(values).tolist(),
    "tuples": lambda values: tuple(np.asarray(values).tolist()),
    "lists of NumPy scalars": lambda values: list(np.asarray(values)),
    "arrays that are not contiguous": every_other,
    "arrays of the other byte order": swapped,
    "arrays that are read-only": read_only,
    "arrays that are not aligned": unaligned,
    "memoryviews": lambda values: memoryview(np.asarray(values)),
}
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
ACTION_FORMS = ANY_FORMS | {np.dtype(dtype).name: of_dtype(dtype) for dtype in INTEGERS}
REWARD_FORMS = ANY_FORMS | {
    np.dtype(dtype).name: of_dtype(dtype) for dtype in [np.int8, np.int64, np.float16, np.float32, np.longdouble]
}
FORMS = [
    *[(0, ACTIONS, name, form) for name, form in ACTION_FORMS.items()],
    *[(1, REWARDS, name, form) for name, form in REWARD_FORMS.items()],
    *[(2, TERMINATED, name, form) for name, form in ANY_FORMS.items()],
    *[(3, TRUNCATED, name, form) for name, form in ANY_FORMS.items()],
    *[(4, FRAMES, name, form) for name, form in ANY_FORMS.items() if not name.startswith(("lists", "tuples"))],
    *[(5, [0, 1], name, form) for name, form in ACTION_FORMS.items()],
]


@pytest.mark.parametrize(("index", "values", "name", "form"), FORMS, ids=[f"{form[0]}-{form[2]}" for form in FORMS])
def test_a_step_is_stored_equally_in_every_form(index, values, name, form):
    step = [np.array(part) for part in (ACTIONS, REWARDS, TERMINATED, TRUNCATED, FRAMES, [0, 1])]
    step[index] = form(values)
    memory = begun()

    memory.append(*step)

    batch = memory.get([0, 1])
    assert (np.int64, np.float32) == (batch.action.dtype, batch.reward.dtype)
    assert ACTIONS == batch.action.tolist()
    assert REWARDS == batch.reward.tolist()
    assert TERMINATED == batch.terminated.tolist()
    assert TRUNCATED == batch.truncated.tolist()
    assert [0.5, 0.0] == batch.discount.tolist()
    np.testing.assert_array_equal(batch.next_observation[:, -1], FRAMES)
    np.testing.assert_array_equal(memory.observations()[:, -1], FRAMES)


@pytest.mark.parametrize(
    ("start", "num_actions", "chosen"),
    [
        (0, 18, [0, 17]),
        (-3, 5, [-3, 1]),
        (-200, 401, [-200, 200]),
        (0, 70_000, [69_999, 0]),
        (2**40, 3, [2**40 + 2] * 2),
        (-(2**40), 2**41 + 1, [2**40, -(2**40)]),
    ],
)
def test_discrete_actions_of_any_range_are_sampled_unchanged(start, num_actions, chosen):
    memory = begun(Space(n=num_actions, start=start))

    memory.append(chosen, REWARDS, TERMINATED, TRUNCATED, FRAMES)

    assert chosen == memory.get([0, 1]).action.tolist()


def multi_discrete(nvec, start=0) -> Space:
    counts = np.array(nvec)
    return Space(nvec=counts, start=np.broadcast_to(start, counts.shape), shape=counts.shape, dtype=np.dtype(np.int64))


MANY_INTEGERS = {
    "MultiDiscrete": (multi_discrete([3, 5, 2]), [[0, 4, 1], [2, 0, 0]], np.uint8),
    "MultiDiscrete from other numbers": (multi_discrete([3, 300], [-200, 10]), [[-200, 309], [-198, 10]], np.int16),
    "MultiDiscrete of two axes": (multi_discrete([[2, 70_000], [4, 4]]), [[[1, 69_999], [3, 0]]] * 2, np.uint32),
    "MultiDiscrete of large numbers": (
        multi_discrete([3, 3], [-(2**40), 2**40]),
        [[-(2**40), 2**40 + 2]] * 2,
        np.int64,
    ),
    "MultiDiscrete around 0": (multi_discrete([3, 128], [-1, 0]), [[-1, 127], [1, 0]], np.int8),
    "MultiBinary": (Space(n=4, shape=(4,), dtype=np.dtype(np.int8)), [[0, 1, 1, 0], [1, 0, 0, 1]], np.uint8),
    "MultiBinary of two axes": (
        Space(n=(2, 2), shape=(2, 2), dtype=np.dtype(np.int8)),
        [[[0, 1], [1, 0]]] * 2,
        np.uint8,
    ),
}


@pytest.mark.parametrize("form", ACTION_FORMS.values(), ids=ACTION_FORMS)
@pytest.mark.parametrize(("space", "chosen", "kept"), MANY_INTEGERS.values(), ids=MANY_INTEGERS)
def test_actions_of_several_integers_are_sampled_unchanged_in_every_form(space, chosen, kept, form):
    memory = begun(space)
    given = form(np.array(chosen))
    if np.array_equal(given, chosen):  # the form holds them
        memory.append(given, REWARDS, TERMINATED, TRUNCATED, FRAMES)

        assert kept == memory.inner.settings.action.stored_dtype
        actions = memory.get([0, 1]).action
        assert np.int64 == actions.dtype
        np.testing.assert_array_equal(chosen, actions)


@pytest.mark.parametrize("form", ["arrays", "lists"])
@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([[0, 12], [2, 15]], "action is [2, 15] at row 1: element 1 runs from 10 to 14; check the policy"),
        ([[3, 10], [0, 10]], "action is [3, 10] at row 0: element 0 runs from 0 to 2"),
        ([[0, 10], [0, -1]], "action is [0, -1] at row 1: element 1 runs from 10 to 14"),
        ([[0.0, 10.0], [0.0, 10.0]], "actions have dtype float64: this action_space needs integers; convert them"),
        ([[0], [1]], "actions have shape (2, 1): 2 environments need (2, 2)"),
        ([0, 10], "actions have shape (2,): 2 environments need (2, 2)"),
    ],
)
def test_actions_of_several_integers_that_break_a_bound_are_refused_by_element(actions, message, form):
    memory = begun(multi_discrete([3, 5], [0, 10]))

    with pytest.raises(InvalidStepError, match=re.escape(message)):
        memory.append(ANY_FORMS[form](actions), REWARDS, TERMINATED, TRUNCATED, FRAMES)

    assert 0 == len(memory)


def test_an_action_beyond_int64_is_refused_for_any_bounds():
    memory = begun(multi_discrete([2**62, 2**62], [2**62, 2**62]))
    actions = np.array([[2**62, 2**62], [2**62, 2**63]], np.uint64)

    with pytest.raises(InvalidStepError, match="9223372036854775808\\] at row 1: element 1 runs from"):
        memory.append(actions, REWARDS, TERMINATED, TRUNCATED, FRAMES)


def test_the_largest_actions_are_sampled_unchanged():
    memory = begun(multi_discrete([2**62, 2**63 - 1], [2**62, 0]))
    actions = np.array([[2**63 - 1, 2**63 - 2], [2**62, 0]])

    memory.append(actions, REWARDS, TERMINATED, TRUNCATED, FRAMES)

    np.testing.assert_array_equal(actions, memory.get([0, 1]).action)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (multi_discrete([3, 0]), "action_space has [3, 0] actions: every element of an action needs at least 1 value"),
        (multi_discrete([2, 3], [0, 2**63 - 2]), "action_space runs from 0 to 9223372036854775808"),
        (Space(spaces=(), shape=None), "give a Discrete, MultiDiscrete, MultiBinary or Box"),
    ],
)
def test_unsupported_action_spaces_are_refused(space, message):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        begun(space)


@pytest.mark.parametrize("space", [space for space, _, _ in MANY_INTEGERS.values()], ids=MANY_INTEGERS)
def test_bounds_an_element_are_saved(space, tmp_path):
    memory = begun(space)

    memory.save(tmp_path / "memory")

    assert memory.inner.settings == ReplayMemory.load(tmp_path / "memory").inner.settings


@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint8, np.int32])
def test_actions_of_a_box_are_sampled_in_the_dtype_of_the_box(dtype, shape):
    memory = begun(Space(shape=shape, dtype=dtype, low=0, high=9))
    actions = np.arange(NUM_ENVS * np.prod(shape, dtype=int)).reshape(NUM_ENVS, *shape)

    for form in (of_dtype(dtype), of_dtype(np.uint8), lambda values: unaligned(values.astype(dtype))):
        memory.append(form(actions), REWARDS, TERMINATED, TRUNCATED, FRAMES)
        memory.begin(FRAMES)

    batch = memory.get(memory.sampleable_indices())
    assert np.dtype(dtype) == batch.action.dtype
    np.testing.assert_array_equal(batch.action, np.concatenate([actions] * 3))


@pytest.mark.parametrize("storage", ["packed", "raw"])
@pytest.mark.parametrize("form", [every_other, unaligned, read_only, memoryview])
@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_frames_of_longer_elements_are_stored_equally_in_every_form(dtype, form, storage):
    memory = ReplayMemory(6, FrameSpec(SHAPE, dtype), 4, stack=2, num_envs=NUM_ENVS, storage=storage)
    frames = FRAMES.astype(dtype)
    memory.begin(form(frames + 1))

    memory.append(ACTIONS, REWARDS, TERMINATED, TRUNCATED, form(frames))

    np.testing.assert_array_equal(memory.get([0, 1]).next_observation, np.stack([frames + 1, frames], axis=1))


@pytest.mark.parametrize("given", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("kept", [np.float16, np.float32])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e300])
def test_an_action_of_a_box_that_is_not_finite_as_it_is_kept_is_refused(given, kept, wrong):
    memory = begun(Space(shape=(2,), dtype=kept, low=0, high=9))
    with np.errstate(over="ignore"):
        actions = np.array([[0.0, 1.0], [2.0, wrong]]).astype(given)

    with pytest.raises(InvalidStepError, match="at row 1: actions must be finite"):
        memory.append(actions, REWARDS, TERMINATED, TRUNCATED, FRAMES)

    assert 0 == len(memory)


@pytest.mark.parametrize("num_envs", [256, 257, 65_537])
def test_every_one_of_many_environments_gets_its_step_back(num_envs):
    memory = ReplayMemory(2 * num_envs, FrameSpec((1, 1)), num_envs, stack=1, num_envs=num_envs)
    frames = (np.arange(num_envs) % 251).astype(np.uint8).reshape(-1, 1, 1)
    memory.begin(frames)
    flags = np.zeros(num_envs, bool)

    memory.append(np.arange(num_envs), np.zeros(num_envs), flags, flags, frames)

    batch = memory.get(memory.sampleable_indices())
    np.testing.assert_array_equal(batch.action, np.arange(num_envs))
    np.testing.assert_array_equal(batch.observation.ravel(), frames.ravel())


def test_numbers_of_the_stored_dtype_are_stored_under_any_of_its_names():
    memory = ReplayMemory(6, FrameSpec(SHAPE, np.int64), 4, stack=1, num_envs=NUM_ENVS, extras={"count": np.int64})
    for dtype in (np.longlong, np.int64):
        frames = FRAMES.astype(dtype)
        memory.begin(frames)

        memory.append(ACTIONS, REWARDS, TERMINATED, TRUNCATED, frames, extras={"count": np.array([7, 8], dtype)})

        batch = memory.get(memory.sampleable_indices())
        np.testing.assert_array_equal(batch.next_observation[:, 0], FRAMES)
        assert [7, 8] == batch.extras["count"].tolist()
        memory.clear()


def test_a_step_of_no_environment_changes_nothing():
    memory = begun()

    memory.append(np.zeros(0, int), [], np.zeros(0, bool), np.zeros(0, bool), FRAMES[:0], [])

    assert 0 == len(memory)

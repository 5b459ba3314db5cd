"""Every argument of the wrong kind or out of range is refused by name, value and rule, before anything happens."""

from __future__ import annotations

import copy
import os
import pickle
import re
from types import SimpleNamespace

import numpy as np
import pytest

from framestow import ByAge, EmphasizeRecent, FrameSpec, Mixture, Prioritized, ReplayMemory, Uniform
from framestow.errors import InvalidSettingsError, InvalidStepError
from oracles.numbered_steps import SHAPE, numbered_memory, play_episode

FRAMES = np.zeros((1, *SHAPE), np.uint8)
NAN, INF = float("nan"), float("inf")


def made(**settings) -> ReplayMemory:
    return ReplayMemory(**{"capacity": 1000, "observation_space": FrameSpec(SHAPE), "action_space": 4} | settings)


def filled() -> ReplayMemory:
    memory = numbered_memory(100)
    play_episode(memory, 0, length=20)
    return memory


def refused(name: str, value: object) -> pytest.RaisesContext:
    """An error that begins with the argument's name and its value as it was given, and has a rule."""
    shown = "|".join({re.escape(repr(value)), re.escape(str(value))})
    return pytest.raises(InvalidSettingsError, match=rf"^{re.escape(name)} is ({shown}): \w.{{10}}")


NO_WHOLE_NUMBERS = [1.5, "4", True, NAN, INF, [4], 4j, np.float32(4), np.bool_(True), b"4", None, -1]
NO_NUMBERS = ["0.5", True, NAN, INF, [0.5], 1j, np.bool_(True), None, -0.1]
NO_FLAGS = ["no", 1, None]
NO_PATHS = ["", 5, b"memory", True, ["memory"], __file__, f"{__file__}/below"]
SETTINGS = {  # of a memory
    "capacity": [*NO_WHOLE_NUMBERS, 0],
    "num_envs": [*NO_WHOLE_NUMBERS, 0],
    "stack": [*filter(None, NO_WHOLE_NUMBERS), 0],  # None is the space's own
    "frames_per_segment": [*filter(None, NO_WHOLE_NUMBERS), 0],
    "n_step": [*NO_WHOLE_NUMBERS, 0, 256],
    "threads": [*NO_WHOLE_NUMBERS, 0, 65],
    "discount": [*NO_NUMBERS, 1.1],
    "seed": [-1, 2.0, "7", True, [1], NAN],
    "stack_padding": ["none", 0, ["zeros"]],
    "storage": ["zip", None, 0, ["raw"]],
    "retention": ["lifo", None, 0, ["fifo"]],
    "on_damage": ["ignore", None, True, ["skip"]],
    "label": [5, None, [5], b"Pong"],
    "flush_every": [0, -1, NAN, INF, "5", True, [5]],
    "max_bytes": [0, -1, 1.5, True, "1 GB/s", "", [5]],
    "directory": NO_PATHS,
    "extras": [5, "log_prob", ["log_prob"]],
}
CALLS = [  # of a memory, and of samplers: the argument, its wrong values, and the call
    ("batch_size", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().sample(value)),
    ("batch_size", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().draw_ahead(value)),
    ("batch_size", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().sample_episodes(value)),
    ("batch_size", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().batches(value)),
    ("batch_size", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().sample_sequences(value, 2)),
    ("batch_size", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().draw_sequences_ahead(value, 2)),
    ("length", [*NO_WHOLE_NUMBERS, 0], lambda value: filled().sample_sequences(2, value)),
    ("length", [*NO_WHOLE_NUMBERS, 0, 10**15], lambda value: filled().steps_from([0], value)),
    ("overlap", [1.5, "4", True, NAN, [4], -1, 99], lambda value: filled().sample_sequences(2, 4, overlap=value)),
    ("burn_in", [*NO_WHOLE_NUMBERS, 99], lambda value: filled().sample_sequences(2, 4, burn_in=value)),
    ("borders", ["wrap", None, 5, ["mask"]], lambda value: filled().sample_sequences(2, 4, borders=value)),
    ("shuffled", NO_FLAGS, lambda value: filled().batches(5, shuffled=value)),
    ("drop_last", NO_FLAGS, lambda value: filled().batches(5, drop_last=value)),
    ("seed", [-1, 2.0, "7", True, [1], NAN], lambda value: filled().batches(5, shuffled=True, seed=value)),
    ("discount", [*NO_NUMBERS, 1.1], lambda value: filled().returns_to_go([0], discount=value)),
    ("path", [*NO_PATHS, None], lambda value: filled().save(value)),
    ("path", [*NO_PATHS, None], ReplayMemory.load),
    ("path", [*NO_PATHS, None], ReplayMemory.open),
    ("path", [*NO_PATHS, None], lambda value: filled().prune(value, 1)),
    ("keep_previous", NO_FLAGS, lambda value: filled().save("saved", keep_previous=value)),
    ("read_only", NO_FLAGS, lambda value: ReplayMemory.open("saved", read_only=value)),
    ("generation", [1.0, "1", True, -1], lambda value: ReplayMemory.load("saved", generation=value)),
    ("generation", [1.0, "1", True, -1], lambda value: ReplayMemory.open("saved", generation=value)),
    ("generation", [1.0, "1", True, -1], lambda value: filled().prune("saved", value)),
    ("alpha", [*NO_NUMBERS, 10.1], lambda value: Prioritized(alpha=value)),
    ("beta", [*NO_NUMBERS, 1.1], lambda value: Prioritized(beta=value)),
    ("epsilon", [*NO_NUMBERS, 2e30], lambda value: Prioritized(epsilon=value)),
    ("final_beta", [*NO_NUMBERS[:-2], -0.1, 2.0], lambda value: Prioritized(final_beta=value, annealed_over=5)),
    ("half_life", [*NO_NUMBERS, 0], ByAge),
    ("eta", [*NO_NUMBERS, 0, 1.01], lambda value: EmphasizeRecent(eta=value)),
    ("final_eta", [*NO_NUMBERS[:-2], -1], lambda value: EmphasizeRecent(final_eta=value, annealed_over=5)),
    ("the share of Uniform", [*NO_NUMBERS, 0], lambda value: Mixture((Uniform(), value))),
    ("annealed_over", [*NO_WHOLE_NUMBERS[:-2], -1, 0], lambda value: Prioritized(final_beta=1.0, annealed_over=value)),
    ("annealed_over", [*NO_WHOLE_NUMBERS[:-2], 0], lambda value: EmphasizeRecent(final_eta=1.0, annealed_over=value)),
    ("num_updates", [*NO_WHOLE_NUMBERS, 0], lambda value: EmphasizeRecent(num_updates=value)),
    ("num_updates", [*NO_WHOLE_NUMBERS, 0], lambda value: EmphasizeRecent().begin_phase(value)),
    ("min_recent", [*NO_WHOLE_NUMBERS, 0], lambda value: EmphasizeRecent(min_recent=value)),
]
CALLS += [(name, values, lambda value, name=name: made(**{name: value})) for name, values in SETTINGS.items()]


@pytest.mark.parametrize(("name", "values", "call"), CALLS, ids=[name for name, _, _ in CALLS])
def test_a_wrong_value_is_refused_by_name_and_rule_and_nothing_is_written(name, values, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in values:
        with refused(name, value):
            call(value)

    assert [] == os.listdir(tmp_path)


def test_a_whole_number_that_is_written_as_a_float_is_refused_with_the_way_to_write_it():
    with pytest.raises(
        InvalidSettingsError, match=re.escape("capacity is 1000000.0: it must be a whole number, write 1_000_000; ")
    ):
        made(capacity=1e6)


def test_numpy_numbers_are_numbers_of_a_memory_that_is_saved_and_loaded(tmp_path):
    numbers = {"capacity": 100, "stack": 2, "num_envs": 1, "n_step": 2, "threads": 1, "frames_per_segment": 16}
    memory = made(
        discount=np.float32(0.5), seed=np.int64(3), **{name: np.int32(value) for name, value in numbers.items()}
    )

    memory.save(tmp_path / "memory")

    assert ReplayMemory.load(tmp_path / "memory").inner.settings == made(discount=0.5, **numbers).inner.settings


@pytest.mark.parametrize(
    ("settings", "way_out"),
    [({}, "lower it, or give max_bytes: then unused steps take no memory"), ({"max_bytes": "1 GiB"}, "lower it")],
    ids=["no budget", "budget"],
)
def test_a_capacity_that_the_system_cannot_give_is_refused_with_the_bytes_asked_for(settings, way_out):
    with pytest.raises(
        InvalidSettingsError,
        match="^capacity is 1152921504606846976: the system does not give 12582912.0 TiB, 12 bytes for the step of "
        f"each transition; {way_out}$",
    ):
        made(capacity=2**60, **settings)


@pytest.mark.parametrize("capacity", [2**62 + 1, 2**63, 10**30])
def test_a_capacity_above_all_indices_is_refused(capacity):
    for settings in ({}, {"max_bytes": "1 GiB"}, {"retention": "random"}):
        with pytest.raises(
            InvalidSettingsError, match=rf"^capacity is {capacity}: a memory stores 1 to 2\*\*62 transitions$"
        ):
            made(capacity=capacity, **settings)


@pytest.mark.parametrize(
    ("shape", "stack", "most"),
    [
        (SHAPE, 1, 2**24),
        (SHAPE, 5, 2**22),  # each frame may begin a stretch, with 4 older frames
        ((1024, 1024), 1, 2048),
        ((1024, 1024), 3, 1024),
        ((1024, 1024), 256, 8),
    ],
)
def test_more_frames_than_a_segment_can_have_are_refused(shape, stack, most):
    for frames in (most + 1, 10**9, 2**64):
        message = f"a segment of frames of [0-9]+ bytes in stacks of {stack} has 1 to {most} frames"
        with pytest.raises(InvalidSettingsError, match=rf"^frames_per_segment is {frames}: {message}$"):
            made(observation_space=FrameSpec(shape), stack=stack, frames_per_segment=frames)

    given = made(observation_space=FrameSpec(shape), stack=stack, frames_per_segment=most)
    assert most == given.inner.settings.frames_per_segment


def test_segments_of_deep_stacks_of_large_frames_are_shorter_without_being_told():
    large = FrameSpec((2048, 2048))

    assert made(observation_space=large, stack=4).inner.settings.frames_per_segment == 8
    assert made(observation_space=large, stack=256).inner.settings.frames_per_segment == 2


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, (np.complex64, (3,))])
def test_an_extra_of_complex_numbers_is_refused_with_the_way_out(dtype):
    with pytest.raises(InvalidSettingsError, match=r"extra 'wave' is .*store the real and the imaginary part"):
        made(extras={"wave": dtype})


@pytest.mark.parametrize(("stack", "n_step"), [(1, 1), (4, 1), (8, 1)])
def test_random_retention_needs_segments_that_contain_a_whole_transition(stack, n_step):
    settings = {"capacity": 3000, "retention": "random", "stack": stack, "n_step": n_step}
    least = stack + 1

    for frames in (1, least - 1):
        with pytest.raises(
            InvalidSettingsError, match=f"^frames_per_segment is {frames}: with retention='random' .* at least {least}$"
        ):
            made(**settings, frames_per_segment=frames)

    assert least == made(**settings, frames_per_segment=least).inner.settings.frames_per_segment
    assert made(**settings).inner.settings.frames_per_segment >= least


@pytest.mark.parametrize(
    ("indices", "fault"),
    [
        ([0.9], "indices have dtype float64: they must be integers; cast them"),
        ([True], "indices have dtype bool: they must be integers; cast them"),
        (["a"], "indices have dtype <U1: they must be integers; cast them"),
        ([[0], [1, 2]], "indices cannot be converted to an array ("),
        (None, "indices have dtype object: they must be integers; cast them"),
        (np.array([2**63], np.uint64), "an index is 9223372036854775808: indices must fit into int64; "),
    ],
)
def test_indices_that_are_no_integers_are_refused(indices, fault):
    memory = filled()

    for call in (memory.get, memory.steps_from, memory.returns_to_go):
        with pytest.raises(InvalidSettingsError, match="^" + re.escape(fault)):
            call(indices)


def test_indices_of_two_axes_are_refused_with_the_way_out():
    memory = filled()

    for call in (memory.get, memory.steps_from):
        with pytest.raises(InvalidSettingsError, match=r"^indices have shape \(1, 1\): they must have 1 axis; .*ravel"):
            call([[0]])
    assert (2, 1) == memory.returns_to_go([[0], [1]]).shape
    assert 1 == len(memory.get(np.uint8(3)).reward)
    assert 0 == len(memory.get([]).reward)


@pytest.mark.parametrize("shape", [84, None, "84", (84.0, 84), (True, 2), (), (0,), (-1, 4)], ids=repr)
def test_a_wrong_frame_shape_is_refused(shape):
    with pytest.raises(InvalidSettingsError, match=re.escape(f"frame shape is {shape!r}: every side must be a whole ")):
        FrameSpec(shape)


@pytest.mark.parametrize(
    ("space", "fault"),
    [
        ((84, 84), "observation_space is (84, 84): numbers are the shape of a frame"),
        ([4, 84, 84], "observation_space is [4, 84, 84]: numbers are the shape of a frame"),
        ({"camera": (84, 84)}, "observation_space['camera'] is (84, 84): numbers are the shape of a frame"),
    ],
    ids=str,
)
def test_a_shape_is_no_observation_space_and_the_error_gives_the_frame_spec_to_write(space, fault):
    with pytest.raises(InvalidSettingsError, match=re.escape(fault) + r".*; give FrameSpec\(\(.*84, 84\)\)"):
        made(observation_space=space)


class Space:
    """Stands for a class of spaces that was given instead of an object, and for spaces with wrong attributes."""

    shape, dtype = property(), property()

    def __init__(self, shape, dtype):
        self.__dict__ |= {"shape": shape, "dtype": dtype}


@pytest.mark.parametrize("space", [Space, np.uint8, np.ndarray, 84, None, "pixels", ("a", "b"), {"camera": None}])
def test_a_value_that_is_no_observation_space_is_refused(space):
    with pytest.raises(InvalidSettingsError, match=r"^observation_space\S* is .*: .*; "):
        made(observation_space=space)


@pytest.mark.parametrize("convert", [np.asarray, pytest.importorskip("torch").as_tensor], ids=["array", "tensor"])
def test_an_array_is_no_space_and_the_error_gives_the_frame_spec_to_write(convert):
    array = convert(np.zeros((84, 84), np.uint8))

    for space, name in ((array, ""), ({"camera": array}, r"\['camera'\]"), ((array,), r"\[0\]")):
        message = rf"^observation_space{name} is an array of shape \(84, 84\) and dtype uint8: a space describes arrays"
        with pytest.raises(InvalidSettingsError, match=message + r".*; give FrameSpec\(\(84, 84\), np.uint8\)"):
            made(observation_space=space)


def test_a_number_of_actions_may_be_numpys():
    assert made(action_space=np.int64(6)).inner.settings == made(action_space=6).inner.settings


@pytest.mark.parametrize("dtype", [None, "pixels", 5, [1]], ids=repr)
def test_a_value_that_is_no_dtype_is_refused_for_frames_and_extras(dtype):
    for name, make in (
        ("frame dtype", lambda: FrameSpec((4, 4), dtype)),
        ("frame dtype", lambda: made(observation_space=SimpleNamespace(shape=(4, 4), dtype=dtype or "pixels"))),
        ("extra 'log_prob'", lambda: made(extras={"log_prob": dtype})),
    ):
        with pytest.raises(InvalidSettingsError, match=f"^{name} is .*: it must be a NumPy dtype; give one such as"):
            make()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy], ids=lambda copied: copied.__name__)
def test_a_memory_is_not_pickled_or_copied_and_the_error_says_save_and_load(copied):
    with pytest.raises(InvalidSettingsError, match=r"^a ReplayMemory was pickled or copied: .*; call save\(path\)"):
        copied(filled())


RAGGED = [[1, 2], [3]]
ADDED = {
    "observation": FRAMES[0],
    "action": 0,
    "reward": 0.5,
    "next_observation": FRAMES[0],
    "terminated": False,
    "truncated": False,
    "env_ids": 0,
    "extras": {"log_prob": 0.5},
}


@pytest.mark.parametrize("has_step", [False, True], ids=["first", "later"])
@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("observation", RAGGED, "observation cannot be converted to an array ("),
        ("next_observation", RAGGED, "next_observation cannot be converted to an array ("),
        ("env_ids", RAGGED, "env_ids cannot be converted to an array ("),
        ("env_ids", "a", "env_ids is 'a': it must be a list of environment numbers"),
        ("extras", [1], "extras is [1]: it must map names to arrays; give a dict"),
        ("extras", 5, "extras is 5: it must map names to arrays; give a dict"),
        ("extras", {"log_prob": RAGGED}, "extra 'log_prob' cannot be converted to an array ("),
    ],
    ids=str,
)
def test_a_wrong_argument_of_add_is_refused_before_anything_is_stored(name, value, fault, has_step):
    memory = made(extras={"log_prob": np.float32})
    if has_step:
        memory.add(**ADDED)

    with pytest.raises(InvalidStepError, match="^" + re.escape(fault)):
        memory.add(**ADDED | {name: value})

    assert int(has_step) == len(memory)


def test_ragged_arguments_of_a_step_are_refused_before_anything_is_stored():
    memory = made(extras={"state": (np.float32, (2,))})
    ragged = [[1, 2], [3]]
    with pytest.raises(InvalidStepError, match=r"^frames cannot be converted to an array \("):
        memory.begin([[[1, 2], [3]]])
    assert [False] == memory.open_episodes.tolist()

    memory.begin(FRAMES)
    step = {
        "actions": [0],
        "rewards": [0.0],
        "terminated": [False],
        "truncated": [False],
        "frames": FRAMES,
        "extras": {"state": [[0, 0]]},
    }
    for name in step:
        wrong = {"state": ragged} if name == "extras" else ragged
        shown = "extra 'state'" if name == "extras" else name
        with pytest.raises(InvalidStepError, match=rf"^{shown} cannot be converted to an array \("):
            memory.append(**step | {name: wrong})
    with pytest.raises(InvalidStepError, match=r"^env_ids cannot be converted to an array \("):
        memory.append(**step, env_ids=ragged)

    assert 0 == len(memory)
    memory.append(**step)
    assert 1 == len(memory)

"""Rows of several shards as one batch: the weight of each, and the arrays, beside plain oracles."""

from __future__ import annotations

import math

import numpy as np
import pytest

from distributed.env_steps import STACK, memory
from framestow import FrameSpec
from framestow.distributed.group import Given, compute_weights, make_handles, merge, split_handles
from framestow.distributed.shard import Answer, Rows
from framestow.replay.reading.sequences import SequenceShape


def answer(masses: list[float]) -> Answer:
    """Return the answer of a shard whose transitions have these masses."""
    return Answer(0, len(masses), sum(masses), min(masses, default=math.inf), 0)


def drawn(shard: int, masses: list[float], indices: list[int], beta: float) -> Given:
    """Return rows of these transitions as a shard weights them: relative to its least likely transition."""
    weight = np.array([(min(masses) / masses[index]) ** beta for index in indices], np.float32)
    return shard, answer(masses), Rows((), {}, np.array(indices), weight)


@pytest.mark.parametrize("beta", [1.0, 0.4, 0.0])
@pytest.mark.parametrize("growth", [1.0, 1.7, 0.3])
def test_weights_are_those_of_the_known_probabilities_relative_to_the_smallest(beta, growth):
    random = np.random.default_rng(0)
    reported = [random.uniform(0.1, 5.0, num).tolist() for num in (3, 5, 2)]
    at_draw = [(growth * np.array(each)).tolist() if shard else each for shard, each in enumerate(reported)]
    indices = [[0, 2, 2], [4, 1], [1, 0]]

    given = [drawn(shard, at_draw[shard], chosen, beta) for shard, chosen in enumerate(indices)]
    masses, smallest = np.array(list(map(sum, reported))), np.array(list(map(min, reported)))
    weights = compute_weights(given, masses, smallest, beta)

    total = sum(map(sum, reported))
    probability = [
        [sum(before) / total * mass / sum(now) for mass in now] for before, now in zip(reported, at_draw, strict=True)
    ]
    least = min(map(min, probability))
    expected = [(least / probability[shard][index]) ** beta for shard, chosen in enumerate(indices) for index in chosen]
    np.testing.assert_allclose(expected, weights, rtol=1e-6)


def test_the_least_likely_transition_may_be_in_a_shard_that_gave_no_row():
    likely, unlikely = [4.0, 4.0], [0.5, 7.5]

    weights = compute_weights([drawn(0, likely, [0, 1], 1.0)], np.array([8.0, 8.0]), np.array([4.0, 0.5]), 1.0)
    without_it = compute_weights([drawn(0, likely, [0, 1], 1.0)], np.array([8.0, 0.0]), np.array([4.0, 0.5]), 1.0)

    assert [min(unlikely) / 4.0] * 2 == weights.tolist()
    assert [1.0, 1.0] == without_it.tolist()  # it is lost


def test_weights_of_one_shard_are_not_computed_anew():
    given = drawn(0, [0.3, 0.7, 2.0], [2, 1, 0], 0.6)

    weights = compute_weights([given], np.array([9.0]), np.array([0.1]), 0.6)

    assert weights is given[2].weight


def test_a_handle_names_its_shard_its_epoch_and_its_index_and_masked_steps_stay_masked():
    indices = np.array([[0, 2**41 - 1], [7, -1]])

    handles = make_handles(1023, 5 + 2**12, indices)

    shards, epochs, found = split_handles(handles[indices >= 0])
    assert ({1023}, {5}, [0, 2**41 - 1, 7]) == (set(shards), set(epochs), found.tolist())
    assert -1 == handles[1, 1]
    np.testing.assert_array_equal(indices, make_handles(0, 0, indices))


def rows_with(frames: np.ndarray, steps: tuple[int, ...], first: int) -> Rows:
    """Return rows whose fields are numbered from ``first``."""
    numbers = first + np.arange(math.prod(steps)).reshape(steps)
    fields = {name: numbers.astype(np.float32) for name in ("action", "reward", "discount", "terminated", "truncated")}
    if len(steps) == 2:
        fields |= {"is_first": numbers == 0, "mask": numbers >= 0}
    fields["extras"] = {"extra": numbers + 0.5}
    return Rows((frames,), fields, numbers, np.ones(steps[0], np.float32))


SPEC = FrameSpec((2,))
LENGTH = 4  # of a sequence


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", ["transitions", "sequences", "crossing sequences"])
@pytest.mark.parametrize("forms", [(1,), (2,), (1, 1), (2, 2), (1, 2), (2, 1, 1)], ids=str)
def test_a_batch_has_the_observations_of_all_rows_whatever_windows_their_shards_gave(forms, kind, n_step):
    """A form is 1 where observations and next observations share windows, and 2 where each stack has a window."""
    random, settings = np.random.default_rng(1), memory(observation_space=SPEC, n_step=n_step).inner.settings
    shape = None if kind == "transitions" else SequenceShape(LENGTH, None, 0, "mask")
    later = n_step if shape is None else 1  # frames from an observation to the next one
    rows, expected = [], ([], [])
    for number, form in enumerate(forms):
        num = number + 2
        steps = (num,) if shape is None else (num, LENGTH)
        if form == 2 and kind == "sequences":  # the first observation, then each next one
            frames = random.integers(0, 256, (num, LENGTH + 1, STACK, 2), np.uint8)
            observations = frames[:, :-1], frames[:, 1:]
        elif form == 2:
            axis = 2 if kind == "crossing sequences" else 0  # of observation and next observation
            frames = random.integers(0, 256, (*steps[:axis], 2, *steps[axis:], STACK, 2), np.uint8)
            observations = np.moveaxis(frames, axis, 0)
        elif kind == "sequences":
            frames = random.integers(0, 256, (num, STACK + LENGTH, 2), np.uint8)
            observations = [
                [[window[step + which : step + which + STACK] for step in range(LENGTH)] for window in frames]
                for which in (0, 1)
            ]
        else:
            frames = random.integers(0, 256, (math.prod(steps), STACK + later, 2), np.uint8)
            observations = [
                np.array([window[which * later :][:STACK] for window in frames]).reshape(*steps, STACK, 2)
                for which in (0, 1)
            ]
        frames = frames.reshape(-1, *frames.shape[-2:])
        rows.append(rows_with(frames, steps, 100 * number))
        for which in (0, 1):
            expected[which].extend(observations[which])

    given = [(shard, answer([1.0]), of_shard) for shard, of_shard in enumerate(rows)]
    batch = merge(given, np.ones(len(expected[0]), np.float32), settings, shape)

    np.testing.assert_array_equal(expected[0], batch.observation)
    np.testing.assert_array_equal(expected[1], batch.next_observation)
    numbers = np.concatenate([each.fields["reward"] for each in rows])
    for name in ("action", "discount", "terminated", "truncated"):
        np.testing.assert_array_equal(numbers, getattr(batch, name), name)
    np.testing.assert_array_equal(numbers + 0.5, batch.extras["extra"])
    np.testing.assert_array_equal(split_handles(batch.index)[2], numbers)

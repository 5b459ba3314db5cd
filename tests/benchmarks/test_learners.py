from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from framestow.benchmarking.buffers import BatchArrays
from framestow.benchmarking.libraries import LIBRARIES
from framestow.benchmarking.play import Play
from framestow.errors import DamagedDataError
from learner_systems import GROUPS, framestow, saved_memory
from learner_workload import QUESTIONS, Learner, Workload, check_priorities, check_samples

LENGTHS = (1, 2, 100, 7, 150)  # steps of the play's episodes; every other one is terminated
STACK, N_STEP, DISCOUNT = 3, 4, 0.9


@pytest.fixture(scope="module")
def workload() -> Workload:
    generator = np.random.default_rng(0)
    num_frames = sum(LENGTHS) + len(LENGTHS)
    starts, positions, ends = [], [], []
    for length in LENGTHS:
        first = len(starts)
        starts += [first] * (length + 1)
        positions += range(first, first + length)
        ends += [False] * (length - 1) + [True]
    terminated = np.array(ends) & (np.cumsum(ends) % 2 == 1)
    play = Play(
        "a made-up game",
        4,
        generator.integers(256, size=(num_frames, 4, 4), dtype=np.uint8),
        np.array(starts),
        np.array(positions),
        generator.integers(4, size=len(positions)),
        terminated,
        np.array(ends) & ~terminated,
    )
    return Workload(play, 1_000, STACK, N_STEP, DISCOUNT)


def test_a_workload_equals_a_walk_step_by_step(workload):
    numbers = np.arange(workload.num_steps)
    ends = [number for number in numbers if workload.has_ended(np.array([number]))[0]]
    rewards = workload.rewards(numbers)

    first, lasts, returns, discounts, episodes = 0, [], [], [], []
    for end in ends:
        for number in range(first, end + 1):
            last = min(number + N_STEP - 1, end)
            lasts.append(last)
            returns.append(sum(DISCOUNT**k * rewards[number + k] for k in range(last - number + 1)))
            discounts.append(0 if workload.terminated(np.array([last]))[0] else DISCOUNT ** (last - number + 1))
            episodes.append(first)
        first = end + 1

    assert ends[-1] == workload.num_steps - 1
    assert np.cumsum(LENGTHS).tolist() == [end + 1 for end in ends[: len(LENGTHS)]]
    assert lasts == workload.last_of_n(numbers).tolist()
    np.testing.assert_allclose(returns, workload.returns(numbers))
    np.testing.assert_allclose(discounts, workload.discounts(numbers))
    assert episodes == workload.episodes(numbers).tolist()


def test_pieces_of_a_workload_are_all_of_its_steps_and_none_crosses_an_end(workload):
    pieces = list(workload.rows(60))

    assert np.concatenate([piece.actions for piece in pieces]).tolist() == list(range(workload.num_steps))
    assert all(len(piece.actions) <= 60 and not piece.ended[:-1].any() for piece in pieces)
    starts = {piece.actions[0] for piece in pieces if piece.starting}
    assert starts == set(workload.episodes(np.arange(workload.num_steps)).tolist())


@pytest.mark.parametrize("question", QUESTIONS)
def test_framestow_returns_what_it_was_fed(question, workload, tmp_path: Path):
    saved_memory(workload, N_STEP if question == "n_step" else 1, tmp_path)
    system = framestow(question, tmp_path, threads=1)

    if question == "prioritized":
        check_priorities(system)
    check_samples(system, workload, 64)


@pytest.mark.filterwarnings("ignore:Got conflicting batch_sizes")  # TorchRL's: a batch is as large as is asked here
@pytest.mark.parametrize("group", GROUPS)
def test_a_library_returns_what_it_was_fed(group, workload):
    library = LIBRARIES[GROUPS[group].library]
    if not library.is_installed:
        pytest.skip(f"{library.key} is not installed: {library.install_command}")
    if group == "torchrl-pairs" and not has_torchrls_trees():
        pytest.skip("torchrl's compiled priority trees want another PyTorch: benchmarks/requirements.txt names it")

    for system in GROUPS[group].build(workload):
        if system.question == "prioritized":
            check_priorities(system)
        check_samples(system, workload, 64)


def has_torchrls_trees():
    from torchrl.data.replay_buffers.samplers import prioritized  # noqa: PLC0415 -- where it is installed

    return prioritized.SumSegmentTreeFp32 is not None


class Answering:
    """Returns the same batch each time."""

    def __init__(self, arrays):
        self._arrays = arrays

    def sample(self, batch_size):
        return self._arrays

    def as_arrays(self, batch):
        return batch


def answering(question, arrays):
    return Learner("a library", question, Answering(arrays), 1_000, setting="")


def right(question, workload):
    numbers = np.array([[0, 0, 0], [10, 11, 12]]) if question == "sequences" else np.array([3, 20, 101, 102])
    mask = np.array([[True, False, False], [True] * 3]) if question == "sequences" else None
    is_n_step = question == "n_step"
    return BatchArrays(
        workload.observations(numbers),
        workload.observations(workload.last_of_n(numbers) if is_n_step else numbers, 1),
        workload.returns(numbers) if is_n_step else workload.rewards(numbers),
        numbers,
        workload.discounts(numbers) if is_n_step else None,
        mask,
    )


def wrong_in_one_place(array):
    changed = array.copy()
    changed.reshape(-1)[-1] += 1  # of a contiguous array, a view
    return changed


@pytest.mark.parametrize(
    ("question", "field", "message"),
    [
        ("uniform", "observations", "an observation that it was not fed"),
        ("uniform", "next_observations", "a next observation that it was not fed"),
        ("n_step", "next_observations", "a next observation that it was not fed"),
        ("uniform", "rewards", "a reward that it was not fed"),
        ("n_step", "rewards", "a reward that it was not fed"),
        ("n_step", "discounts", "a discount of another horizon"),
    ],
)
def test_a_batch_that_is_wrong_in_one_place_is_found(question, field, message, workload):
    arrays = right(question, workload)
    check_samples(answering(question, arrays), workload, 4)
    wrong = arrays._replace(**{field: wrong_in_one_place(getattr(arrays, field))})

    with pytest.raises(DamagedDataError, match=message):
        check_samples(answering(question, wrong), workload, 4)


def test_a_sequence_that_skips_a_step_or_crosses_an_end_is_found(workload):
    for steps, message in (([10, 12, 13], "do not follow"), ([101, 102, 103], "two episodes")):
        numbers = np.array([steps])
        arrays = BatchArrays(workload.observations(numbers), None, workload.rewards(numbers), numbers)

        with pytest.raises(DamagedDataError, match=message):
            check_samples(answering("sequences", arrays), workload, 1)


def test_uniform_samples_are_refused_as_samples_by_priority(workload):
    class Uniform(Answering):
        def sample(self, batch_size):
            numbers = np.random.default_rng(0).integers(1_000, size=batch_size)
            return BatchArrays(workload.observations(numbers[:0]), None, workload.rewards(numbers), numbers)

        def set_errors(self, numbers, errors):
            pass

    with pytest.raises(DamagedDataError, match="does not sample by priority"):
        check_priorities(Learner("a library", "prioritized", Uniform(None), 1_000, setting=""))

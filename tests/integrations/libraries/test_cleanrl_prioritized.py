"""Our prioritized buffer gives rainbow_atari.py the same batches as its own, except where that is wrong."""

import pickle
import signal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow.errors import InvalidSettingsError, InvalidStepError, NothingToSampleError
from framestow.integrations.cleanrl import PrioritizedReplayBuffer
from integrations.libraries.cleanrl_play import AsInRainbow, Play, true_transitions
from oracles.ctrl_c import ctrl_c_at_line

SHAPE = (4, 5, 6)
GAMMA = 0.99


def buffer_of(capacity, n_step, alpha=0.5, beta=0.4, eps=1e-6, **ours):
    return PrioritizedReplayBuffer(capacity, SHAPE, torch.device("cpu"), n_step, GAMMA, alpha, beta, eps, **ours)


def add(buffer, step):
    buffer.add(*step[:5])


def transition_of(batch, row):
    return (
        batch.observations[row].numpy(),
        batch.actions[row, 0].item(),
        batch.rewards[row, 0].numpy(),
        batch.next_observations[row].numpy(),
        batch.dones[row, 0].item(),
    )


def assert_same(expected, actual):
    for part, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(other, part, strict=isinstance(part, np.ndarray))


def assert_is_drawn_as(theirs, ours, seed, batch_size=16):
    np.random.seed(seed)
    slots, weights = theirs.draw(batch_size)
    state = np.random.get_state()
    np.random.seed(seed)
    batch = ours.sample(batch_size)
    np.testing.assert_array_equal(state[1], np.random.get_state()[1])
    np.testing.assert_array_equal(slots, batch.indices % theirs.capacity)
    for row, slot in enumerate(slots):
        assert_same(theirs.transitions[slot], transition_of(batch, row))
    np.testing.assert_allclose(batch.weights[:, 0].numpy(), weights, rtol=1e-5)
    return slots, batch.indices


@pytest.mark.parametrize(("capacity", "n_step", "terminated"), [(32, 1, 0.1), (27, 1, 0.1), (32, 3, 0.0), (17, 3, 0.0)])
def test_the_same_seed_samples_the_same_batches_after_wrapping_and_priority_updates(capacity, n_step, terminated):
    priorities = np.random.default_rng(1)
    play = Play(2, terminated=terminated)
    # Integers, so that CleanRL's float32 sums are exact.
    theirs, ours = (
        AsInRainbow(capacity, n_step, GAMMA, 1.0, 0.4, 0.0),
        buffer_of(capacity, n_step, 1.0, 0.4, 0.0, frame_stack=4),
    )
    for row in range(90):
        step = play.step()
        theirs.add(step)
        add(ours, step)
        assert ours.size == theirs.size
        if row >= n_step and row % 4 == 0:
            theirs.beta = ours.beta = min(1.0, 0.4 + row / 90)
            slots, numbers = assert_is_drawn_as(theirs, ours, row)
            told = priorities.integers(1, 9, 16).astype(np.float32)
            theirs.update_priorities(slots, told)
            ours.update_priorities(numbers, told)
    assert ours.memory.stack == 4  # each frame is stored once
    assert ours.nbytes > ours.memory.nbytes + 5 * capacity  # includes priorities


def test_probabilities_and_weights_equal_cleanrls():
    play, priorities = Play(3), np.random.default_rng(4)
    theirs, ours = fed([play.step() for _ in range(130)], 50, beta=0.7)
    numbers = np.arange(128 - 50, 128)
    told = priorities.exponential(1.0, 50).astype(np.float32)
    told[7] *= -1  # of any sign
    theirs.update_priorities(numbers % 50, told)
    ours.update_priorities(numbers, told)

    batch = ours.sample(40_000)  # stratified: counts are proportional to probabilities, up to edges
    counts = np.bincount(batch.indices - numbers[0], minlength=50)
    chances = theirs.sums[numbers % 50 + 49] / theirs.sums[0]
    np.testing.assert_allclose(counts, 40_000 * chances, atol=2)
    np.testing.assert_allclose(batch.weights[:, 0].numpy(), theirs.weights(batch.indices % 50), rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_step=st.integers(1, 4),
    num_envs=st.integers(1, 3),
    terminated=st.sampled_from([0.0, 0.1, 0.5]),
    truncated=st.sampled_from([0.0, 0.1, 0.5]),
    num_rows=st.integers(1, 30),
)
def test_the_sampleable_transitions_equal_those_of_a_plain_list(
    seed, n_step, num_envs, terminated, truncated, num_rows
):
    rows_kept = 10
    play = Play(seed, num_envs, terminated, truncated, values=3)
    ours = buffer_of(rows_kept * num_envs, n_step, num_envs=num_envs)
    settled = {}
    for row in range(num_rows):
        step = play.step()
        if row % 3 == 1:
            with pytest.raises(InvalidStepError, match="action is -1 at row 0"):
                ours.add(step.obs, step.actions * 0 - 1, *step[2:5])
        add(ours, step)
        whole = [true_transitions(play.steps, env, n_step, GAMMA) for env in range(num_envs)]
        settled = {row * num_envs + env: one for env, rows in enumerate(whole) for row, one in rows.items()}
    held = {number: one for number, one in settled.items() if is_held(number, play.steps, n_step, num_envs, rows_kept)}
    assert ours.size == len(held)
    if not held:
        with pytest.raises(NothingToSampleError, match=f"no transition with all of its {n_step} steps"):
            ours.sample(1)
        return
    np.random.seed(seed)
    batch = ours.sample(3 * len(held))
    assert set(batch.indices.tolist()) == set(held)
    for row, number in enumerate(batch.indices.tolist()):
        assert_same(held[number], transition_of(batch, row))
    ours.memory.inner.parts.check()


def is_held(number, steps, n_step, num_envs, rows_kept):
    """Return whether no newer settled step of the environment has its slot."""
    row, env = divmod(number, num_envs)
    ends = [step.terminations[env] or step.truncations[env] for step in steps]
    newest = len(steps) - n_step
    for last in range(max(newest, 0), len(steps)):
        if steps[last].terminations[env] or (ends[last] and last < len(steps) - 1):
            newest = max(newest, last)
    return row > newest - rows_kept


def played_to_the_end(terminated, length=6, then=3):
    """An episode of ``length`` steps, and some steps of the next one."""
    play = Play(11)
    for row in range(length + then):
        play.chances = (float(terminated), float(not terminated)) if row == length - 1 else (0.0, 0.0)
        play.step()
    return play.steps


def fed(steps, capacity=16, n_step=3, alpha=0.5, beta=0.4, eps=1e-6):
    theirs, ours = (
        AsInRainbow(capacity, n_step, GAMMA, alpha, beta, eps),
        buffer_of(capacity, n_step, alpha, beta, eps),
    )
    for step in steps:
        theirs.add(step)
        add(ours, step)
    return theirs, ours


def drawn(buffer):
    batch = buffer.sample(4 * buffer.size)
    return {number: transition_of(batch, row) for row, number in enumerate(batch.indices.tolist())}


def test_no_return_crosses_a_truncation_unlike_in_cleanrl():
    steps = played_to_the_end(terminated=False)
    theirs, ours = fed(steps)

    _, _, returned, next_obs, done = theirs.transitions[5]  # the truncated step and two of the next episode
    assert returned == np.float32(sum(GAMMA**k * steps[5 + k].rewards[0] for k in range(3)))
    np.testing.assert_array_equal(next_obs, steps[7].next_obs[0])
    assert not done
    transitions = drawn(ours)
    assert sorted(transitions) == [0, 1, 2, 3, 6]  # 4 and 5 are truncated after fewer than 3 rewards
    np.testing.assert_array_equal(transitions[3][3], steps[5].next_obs[0])  # the true last observation
    assert not transitions[3][4]  # it bootstraps


def test_the_last_steps_of_a_terminated_episode_are_transitions_unlike_in_cleanrl():
    steps = played_to_the_end(terminated=True)
    theirs, ours = fed(steps)

    assert theirs.size == 5  # steps 0 to 3, and 6
    transitions = drawn(ours)
    assert sorted(transitions) == [0, 1, 2, 3, 4, 5, 6]
    for number, rewards in ((3, 3), (4, 2), (5, 1)):
        returned = np.float32(sum(GAMMA**k * steps[number + k].rewards[0] for k in range(rewards)))
        assert (transitions[number][2], transitions[number][4]) == (returned, True)


def test_a_short_episode_drops_no_steps_of_the_next_one_unlike_in_cleanrl():
    play = Play(12)
    for row in range(6):
        play.chances = (float(row == 1), 0.0)  # the first episode has two steps
        play.step()
    theirs, ours = fed(play.steps)

    starts = [
        next(row for row, step in enumerate(play.steps) if (step.obs[0] == one[0]).all())
        for one in theirs.transitions[:2]
    ]
    assert starts == [0, 3]  # without step 1, the last one, and step 2, the first of the next episode
    assert sorted(drawn(ours)) == [0, 1, 2, 3]


def test_the_largest_random_number_draws_a_transition_and_not_an_empty_slot_as_in_cleanrl(monkeypatch):
    play = Play(13)
    theirs, ours = fed([play.step() for _ in range(3)], 4, 1, alpha=1.0, eps=0.0)
    told = np.array([0.5, 0.5, 1 + 3 * 2**-23], np.float32)  # their float32 sum is rounded up
    theirs.update_priorities([0, 1, 2], told)
    ours.update_priorities([0, 1, 2], told)

    largest = np.nextafter(1.0, 0.0)
    empty = theirs.slot_at(theirs.sums[0] * largest)
    assert empty == 3
    assert np.isnan(theirs.weights(np.array([0, empty]))).any()  # so the loss is NaN
    monkeypatch.setattr(np.random, "random", lambda count: np.full(count, largest))
    batch = ours.sample(1)
    assert batch.indices.tolist() == [2]
    assert batch.weights.tolist() == [[1.0]]


def test_a_pickled_buffer_resumes_with_the_same_steps_priorities_and_draws():
    play, ours = Play(15, 2, 0.1, 0.1), buffer_of(32, 3, num_envs=2)
    for _ in range(25):
        add(ours, play.step())
    ours.update_priorities(np.arange(20, 40), np.linspace(0, 3, 20))
    other = pickle.loads(pickle.dumps(ours))
    for _ in range(12):
        for buffer in (ours, other):
            np.random.seed(16)
            batch = buffer.sample(16)
            buffer.update_priorities(batch.indices, np.linspace(0, 2, 16))
        step = play.step()
        for buffer in (ours, other):
            add(buffer, step)
    batches = []
    for buffer in (ours, other):
        np.random.seed(17)
        batches.append(buffer.sample(64))
    for part, other_part in zip(*batches, strict=True):
        np.testing.assert_array_equal(other_part, part)


@pytest.mark.exhaustive
def test_ctrl_c_at_any_line_of_add_loses_and_changes_no_transition():
    play = Play(19, values=2)
    for row in range(9):
        play.chances = (float(row in (2, 7)), float(row == 5))  # the interrupted step, 7, ends an episode
        play.step()
    *before, interrupted, after = play.steps
    before_it = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcomes, is_interrupted = [], True
        while is_interrupted:
            ours = buffer_of(5, 2)
            for step in before:
                add(ours, step)
            try:
                with ctrl_c_at_line(len(outcomes) + 1):
                    add(ours, interrupted)
                is_interrupted = False
            except KeyboardInterrupt:
                outcomes.append(int(ours.memory.sampleable_indices()[-1]) == 7)
                ours.sample(2)  # stored transitions are complete
                if not outcomes[-1]:
                    add(ours, interrupted)
            add(ours, after)
            transitions, expected = drawn(ours), true_transitions(play.steps, 0, 2, GAMMA)
            assert sorted(transitions) == [3, 4, 6, 7]  # the newest five settled ones, without 5, which was cut off
            for number, transition in transitions.items():
                assert_same(expected[number], transition)
    finally:
        signal.signal(signal.SIGINT, before_it)
    assert {False, True} == set(outcomes)


def test_invalid_arguments_are_refused_by_name():
    with pytest.raises(InvalidSettingsError, match="capacity is 4, num_envs 2 and n_step 3: the capacity must be at"):
        buffer_of(4, 3, num_envs=2)
    ours, play = buffer_of(8, 1), Play(18)
    step = play.step()
    with pytest.raises(InvalidStepError, match=r"observations have shape \(1, 3, 5, 6\).*\(1, 4, 5, 6\)"):
        ours.add(step.obs[:, 1:], *step[1:5])
    with pytest.raises(InvalidStepError, match=r"actions have shape \(1, 2\): there is 1 environment"):
        ours.add(step.obs, np.zeros((1, 2), int), *step[2:5])
    add(ours, step)
    with pytest.raises(InvalidSettingsError, match="priority of transition 0 is nan"):
        ours.update_priorities([0], [np.nan])
    with pytest.raises(AttributeError):
        ours.alpha = 0.7  # priorities use the old exponent

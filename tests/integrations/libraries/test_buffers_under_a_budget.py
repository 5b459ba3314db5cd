"""A drop-in buffer under ``max_bytes`` has the library's newest rows, and its draw r is the r-th oldest of them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common import buffers

from framestow.errors import InvalidSettingsError
from framestow.integrations import cleanrl
from framestow.integrations import stable_baselines3 as sb3
from framestow.offline import from_stable_baselines3
from integrations.libraries.sb3_play import Play, assert_equal_samples

PICTURES, ACTIONS = spaces.Box(0, 255, (4, 36, 36), np.uint8), spaces.Discrete(4)
DICT = spaces.Dict({"picture": PICTURES, "place": spaces.Box(-1, 1, (2,), np.float32)})
MAX_BYTES, BATCH = 2_500_000, 16
KINDS = {
    "Stable-Baselines3": (buffers.ReplayBuffer, sb3.ReplayBuffer, PICTURES),
    "Dict": (buffers.DictReplayBuffer, sb3.DictReplayBuffer, DICT),
    "n-step": (buffers.NStepReplayBuffer, sb3.NStepReplayBuffer, PICTURES),
    "CleanRL": (buffers.ReplayBuffer, cleanrl.ReplayBuffer, PICTURES),
}


class Noise(Play):
    """Steps whose frames compress badly, so that a small budget evicts soon."""

    def values(self, space, n):
        if len(space.shape) < 3:
            return super().values(space, n)
        return self.generator.integers(0, 256, (n, *space.shape), np.uint8)


def draw(buffer, seed):
    np.random.seed(seed)
    return buffer.sample(BATCH)


def newest(theirs, num_rows, ours, seed):
    """Return what the library's buffer of ``num_rows`` rows has where a draw of ``ours`` falls."""
    np.random.seed(seed)
    return theirs._get_samples(np.random.randint(0, ours.size(), BATCH) + num_rows - ours.size())


def as_theirs(samples):
    return buffers.ReplayBufferSamples(*samples) if isinstance(samples, cleanrl.ReplayBufferSamples) else samples


@pytest.mark.each_value
@pytest.mark.parametrize("in_a_folder", [False, True], ids=["in RAM", "in a folder"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_is_the_librarys_row_of_that_age(kind, in_a_folder, tmp_path):
    their_kind, our_kind, space = KINDS[kind]
    num_envs, num_rows = 3, 900 if in_a_folder else 600
    play = Noise(0, space, ACTIONS, num_envs, stack=4)
    max_bytes = 3_700_000 if in_a_folder else MAX_BYTES  # each step is in RAM and in files
    where = {"directory": tmp_path} if in_a_folder else {}
    theirs = their_kind(num_rows * num_envs, space, ACTIONS, device="cpu", n_envs=num_envs)
    ours = our_kind(num_rows * num_envs, space, ACTIONS, device="cpu", n_envs=num_envs, max_bytes=max_bytes, **where)
    has_begun_in_a_row = False
    for number in range(1, num_rows):
        step = play.step()
        theirs.add(*step)
        ours.add(*step)
        oldest = int(ours.memory.sampleable_indices()[0])
        has_begun_in_a_row |= oldest % num_envs > 0
        assert ours.size() == number - -(-oldest // num_envs), "rows whose steps are all stored"
        if number % 61 == 0 or number == num_rows - 1:
            assert_equal_samples(newest(theirs, number, ours, number), as_theirs(draw(ours, number)))
            assert ours.memory.nbytes + ours.memory.report().disk_bytes <= max_bytes

    assert 10 < ours.size() < num_rows - 10
    assert has_begun_in_a_row
    assert (num_rows - 1, False) == (ours.pos, ours.full)
    is_stored = np.arange(num_rows) >= num_rows - 1 - ours.size()
    is_stored[-1] = False  # the next row
    np.testing.assert_array_equal(np.where(is_stored[:, None], theirs.rewards, 0), ours.rewards)
    if space is PICTURES:
        np.testing.assert_array_equal(theirs.observations[is_stored], ours.observations[np.flatnonzero(is_stored)])
        assert not ours.observations[0].any()


def test_a_ring_that_the_budget_does_not_fill_turns_as_the_librarys():
    theirs, ours = (
        kind(64, PICTURES, ACTIONS, "cpu", 2, **settings)
        for kind, settings in ((buffers.ReplayBuffer, {}), (sb3.ReplayBuffer, {"max_bytes": "1 GiB"}))
    )
    play = Noise(0, PICTURES, ACTIONS, 2, stack=4)
    for number in range(75):
        step = play.step()
        for buffer in (theirs, ours):
            buffer.add(*step)
        assert_equal_samples(draw(theirs, number), draw(ours, number))
        assert (theirs.pos, theirs.full, theirs.size()) == (ours.pos, ours.full, ours.size())


def test_a_ring_turns_under_a_budget_and_comes_back_from_a_pickle():
    ours, rewards = sb3.ReplayBuffer(1_400, PICTURES, ACTIONS, "cpu", max_bytes=MAX_BYTES), []
    play = Noise(0, PICTURES, ACTIONS, 1, stack=4)
    for _ in range(3_000):
        step = play.step()
        rewards.append(step[3][0])
        ours.add(*step)

    loaded = pickle.loads(pickle.dumps(ours))

    assert 700 < ours.size() < 1_400
    assert (200, False) == (ours.pos, ours.full)
    for buffer in (ours, loaded):
        np.random.seed(0)
        ranks = np.random.randint(0, buffer.size(), BATCH)
        expected = np.array(rewards, np.float32)[-buffer.size() :][ranks]
        np.testing.assert_array_equal(expected, draw(buffer, 0).rewards[:, 0])
    memory = from_stable_baselines3(ours)
    newest_rewards = memory.get(np.arange(len(memory))).reward
    np.testing.assert_array_equal(np.array(rewards, np.float32)[-ours.size() :], newest_rewards)


def test_priorities_under_a_budget_draw_stored_steps_only():
    ours = sb3.PrioritizedReplayBuffer(2_000, PICTURES, ACTIONS, "cpu", 2, max_bytes=MAX_BYTES)
    play = Noise(0, PICTURES, ACTIONS, 2, stack=4)
    for number in range(700):
        ours.add(*play.step())
        if number % 50 == 49:
            batch = ours.sample(BATCH)
            ours.update_priorities(batch.indices, np.ones(BATCH))

    assert len(ours.memory) < 1_400
    assert set(batch.indices) <= set(ours.memory.sampleable_indices())


GOALS = spaces.Dict(dict.fromkeys(("observation", "achieved_goal", "desired_goal"), PICTURES))
REFUSED = {
    "hindsight": lambda: sb3.HerReplayBuffer(100, GOALS, ACTIONS, None, "cpu", max_bytes="1 GiB"),
    "Rainbow": lambda: cleanrl.PrioritizedReplayBuffer(100, (4, 36, 36), "cpu", 3, 0.9, max_bytes="1 GiB"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_budget_is_refused_where_a_state_is_kept_by_row(kind):
    with pytest.raises(InvalidSettingsError, match=r"^max_bytes is .*: .* of a full buffer; .* or a directory$"):
        REFUSED[kind]()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [-1, 0, "1 GiG", 1_000, 2.5, True], ids=repr)
def test_a_budget_that_cannot_work_is_refused(kind, wrong, tmp_path):
    with pytest.raises(InvalidSettingsError, match=r"^max_bytes is "):
        KINDS[kind][1](100, KINDS[kind][2], ACTIONS, max_bytes=wrong, device="cpu", directory=tmp_path / "replay")
    assert [] == list(tmp_path.iterdir())

"""A batch of several memories has a fixed share of each, with the rows that each would draw alone."""

from __future__ import annotations

import math
import re
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed.env_steps import NumberedSteps, local_replay
from framestow import FrameSpec, Mixture, Prioritized, ReplayEnsemble, ReplayMemory, Uniform
from framestow.errors import FramestowError, InvalidSettingsError, NothingToSampleError
from framestow.torch import BatchLoader, SequenceLoader
from oracles.ctrl_c import ctrl_c_at_line
from oracles.damage import damage_a_segment
from oracles.numbered_steps import numbered_memory, play_episode

FIELDS = (
    *("observation", "action", "reward", "discount", "next_observation", "weight", "terminated", "truncated"),
    *("mask", "is_first"),  # of sequences
)


def played(number: int, num_episodes: int = 6, **settings) -> ReplayMemory:
    """Return a memory whose frames are of episodes from 20 times ``number`` on."""
    memory = numbered_memory(500, seed=number, **settings)
    for episode in range(num_episodes):
        play_episode(memory, 20 * number + episode, length=9, truncated=True)
    return memory


def assert_same_rows(expected, batch, rows: slice, member: int) -> None:
    for name in FIELDS:
        if hasattr(expected, name):
            np.testing.assert_array_equal(getattr(expected, name), getattr(batch, name)[rows], name)
    np.testing.assert_array_equal(np.where(expected.index < 0, -1, member), batch.memory[rows])
    np.testing.assert_array_equal(expected.index, np.where(batch.index < 0, -1, batch.index % 2**59)[rows])


def shares_of(draw_weights: list[int]) -> list[float]:
    return [weight / sum(draw_weights) for weight in draw_weights]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_each_member_gives_its_share_to_less_than_a_row(weights: list[int], batch_sizes: list[int]):
    shares = shares_of(weights)
    memory = numbered_memory(10)
    members = [memory] + [numbered_memory(10) for _ in weights[1:]]
    for member in members:
        play_episode(member, 0, length=2, truncated=True)
    ensemble = ReplayEnsemble(members, shares)

    counts = np.zeros(len(weights))
    for number, batch_size in enumerate(batch_sizes):
        if number == len(batch_sizes) // 2:
            ensemble = ReplayEnsemble(members, shares, carried=ensemble.carried)
        batch = ensemble.sample(batch_size)
        assert batch_size == len(batch)
        assert sorted(batch.memory.tolist()) == batch.memory.tolist()
        counts += np.bincount(batch.memory, minlength=len(weights))
        assert np.abs(counts - sum(batch_sizes[: number + 1]) * np.array(shares)).max() < 1


@pytest.mark.parametrize("kind", ["transitions", "mask", "inside", "cross"])
def test_rows_are_those_that_each_member_draws_alone(kind: str, tmp_path: Path):
    def members() -> list:
        stored = played(0, directory=tmp_path / "store") if not (tmp_path / "store").exists() else None
        if stored is not None:
            stored.close()
        replay = local_replay(seed=3)
        NumberedSteps().play(replay, 0, 100)
        replay.flush()
        return [
            ReplayMemory.open(tmp_path / "store", seed=5),
            played(1, sampler=Prioritized(), threads=2),
            played(2, storage="raw"),
            replay,
        ]

    def draw(memory, count: int):
        if kind == "transitions":
            return memory.sample(count)
        return memory.sample_sequences(count, 6, burn_in=1, borders=kind)

    together, alone = members(), members()
    groups = [slice(0, 3), slice(3, 4)]  # shards have other spaces than the three memories
    for group in groups:
        some, others = together[group], alone[group]
        ensemble = ReplayEnsemble(some, [1 / len(some)] * len(some))
        for batch_size in (1, 12, 32):
            batch, start = draw(ensemble, batch_size), 0
            for number, other in enumerate(others):
                count = int((batch.memory[..., 0] if kind != "transitions" else batch.memory).tolist().count(number))
                if count:
                    assert_same_rows(draw(other, count), batch, slice(start, start + count), number)
                start += count
            assert start == batch_size
    assert len(ReplayEnsemble(together[:3], [0.2, 0.3, 0.5])) == sum(map(len, together[:3]))


def test_priorities_reach_the_member_of_each_row():
    together, alone = ([played(number, sampler=Prioritized()) for number in range(2)] for _ in range(2))
    ensemble = ReplayEnsemble(together, [0.25, 0.75])

    for _ in range(5):
        batch = ensemble.sample(16)
        errors = np.arange(16.0)
        ensemble.update_priorities(batch.index, errors)
        for number, rows in enumerate([slice(0, 4), slice(4, 16)]):
            expected = alone[number].sample(rows.stop - rows.start)
            assert_same_rows(expected, batch, rows, number)
            alone[number].update_priorities(expected.index, errors[rows])


def test_priorities_of_a_member_that_has_none_are_ignored_unless_none_has():
    uniform, prioritized = played(0), played(1, sampler=Prioritized())
    batch = (ensemble := ReplayEnsemble([uniform, prioritized], [0.5, 0.5])).sample(8)

    ensemble.update_priorities(batch.index, np.ones(8))
    ensemble.update_priorities([-1], [1.0])
    ensemble.update_priorities(batch.index[:4], np.ones(4))  # rows of the first member, by chance
    with pytest.raises(InvalidSettingsError, match=r"priority of transition \d+ is nan"):
        ensemble.update_priorities(batch.index[:4], np.full(4, np.nan))
    with pytest.raises(InvalidSettingsError, match="it does not use priorities"):
        ReplayEnsemble([uniform, played(2)], [0.5, 0.5]).update_priorities(batch.index[:4], np.ones(4))
    with pytest.raises(InvalidSettingsError, match="it is of member 2, and there are 2"):
        ensemble.update_priorities([2 << 59], [1.0])


@pytest.mark.parametrize(("shares", "if_empty"), [((0.99, 0.01), "raise"), ((0.5, 0.5), "others")])
def test_a_batch_of_any_of_the_members_may_be_updated(shares, if_empty):
    demonstrations, online = played(0), numbered_memory(500, sampler=Prioritized())
    ensemble = ReplayEnsemble([demonstrations, online], shares, if_empty=if_empty)
    if if_empty == "raise":
        play_episode(online, 100, length=9, truncated=True)

    for _ in range(20):
        batch = ensemble.sample(4)
        ensemble.update_priorities(batch.index, np.ones(4))


def priorities_of(memory: ReplayMemory) -> list[float]:
    memory.inner.parts.check()
    return memory.inner.parts.notified_sampler.chances(memory.sampleable_indices()).priorities.tolist()


@pytest.mark.parametrize("refusing", [0, 1, 2])
def test_an_update_that_one_member_refuses_changes_no_member(refusing: int):
    samplers = [Prioritized(alpha=0.5), Mixture((Uniform(), 1), (Prioritized(alpha=0.25), 1)), Uniform()]
    samplers[refusing : refusing + 1] = [Prioritized(alpha=1.0), samplers[refusing]]
    members = [played(number, sampler=sampler) for number, sampler in enumerate(samplers)]
    ensemble = ReplayEnsemble(members, [0.25] * 4)
    batch = ensemble.sample(40)
    before = [priorities_of(member) for member in members[:3]]
    errors = np.where(batch.memory == refusing, 1e60, 2.0)

    with pytest.raises(InvalidSettingsError, match=r"to the power of alpha=1.0 it must be finite in float32"):
        ensemble.update_priorities(batch.index, errors)

    assert before == [priorities_of(member) for member in members[:3]]
    ensemble.update_priorities(batch.index, np.full(40, 2.0))
    assert all(a != b for a, b in zip(before, map(priorities_of, members[:3]), strict=True))


def test_an_empty_member_raises_or_leaves_its_share_to_the_others():
    members = [played(0), numbered_memory(10), played(2)]
    shares = [0.5, 0.25, 0.25]

    with pytest.raises(NothingToSampleError, match="member 1 of the ensemble has no transition"):
        ReplayEnsemble(members, shares).sample(8)
    ensemble = ReplayEnsemble(members, shares, if_empty="others")
    assert np.bincount(ensemble.sample(12).memory).tolist() == [8, 0, 4]
    play_episode(members[1], 0, length=3, truncated=True)
    assert np.bincount(ensemble.sample(12).memory).tolist() == [6, 3, 3]
    with pytest.raises(NothingToSampleError, match="member 0"):
        ReplayEnsemble([numbered_memory(9)], [1.0], if_empty="others").sample(1)


def test_loaders_take_an_ensemble():
    members, alone = ([played(number) for number in range(2)] for _ in range(2))
    ensemble, expected = ReplayEnsemble(members, [0.5, 0.5]), ReplayEnsemble(alone, [0.5, 0.5])

    with BatchLoader(ensemble, 7, threads=2) as loader:
        for batch in islice(loader, 5):
            assert expected.sample(7).index.tolist() == batch.index.tolist()
            assert set(batch.memory.tolist()) == {0, 1}
    with SequenceLoader(ReplayEnsemble(alone, [0.5, 0.5]), 4, 3) as loader:
        assert next(loader).memory[:, 0].tolist() == [0, 0, 1, 1]


def test_damage_in_a_member_that_skips_it_is_drawn_again(tmp_path: Path):
    with played(0, num_episodes=20, directory=tmp_path / "store", frames_per_segment=16) as stored:
        stored.flush()
    damage_a_segment(tmp_path / "store")
    skipping = ReplayMemory.open(tmp_path / "store", on_damage="skip", seed=0)
    ensemble = ReplayEnsemble([played(1), skipping], [0.5, 0.5])

    for _ in range(20):
        batch = ensemble.sample(32)
        assert np.bincount(batch.memory).tolist() == [16, 16]
    assert ensemble.report().skipped_segments == 1


def test_a_ctrl_c_leaves_no_draw_behind_and_counts_no_row():
    members = [numbered_memory(100, seed=number) for number in range(2)]
    for member in members:
        play_episode(member, 0, length=20, truncated=True)
    ensemble = ReplayEnsemble(members, [0.5, 0.5])

    for number in range(1, 400, 7):
        before = list(ensemble.carried)
        try:
            with ctrl_c_at_line(number, packages=("framestow.replay.ensemble",)):
                ensemble.draw_ahead(3).stop()
        except KeyboardInterrupt:
            assert sum(ensemble.carried) == pytest.approx(0)
        else:
            break
        assert ensemble.carried == before or max(map(abs, ensemble.carried)) < 1
    for episode in range(1, 30):  # an open draw would make the writer wait for ever
        for member in members:
            play_episode(member, episode, length=20, truncated=True)


def test_a_report_is_the_sum_of_all_members():
    members = [played(0), played(1)]

    report = ReplayEnsemble(members, [0.5, 0.5]).report()

    assert (report.transitions, report.capacity) == (108, 1000)
    assert report.nbytes == sum(member.nbytes for member in members)
    assert "50% of member 0 with 54 transitions" in repr(ReplayEnsemble(members, [0.5, 0.5]))


def other(**settings) -> list[ReplayMemory]:
    return [played(0), numbered_memory(**{"capacity": 10} | settings)]


@pytest.mark.parametrize(
    ("members", "arguments", "message"),
    [
        (None, {"shares": [0.5, 0.6]}, "they sum to 1.1; give shares that sum to 1"),
        (None, {"shares": [1.0]}, "an ensemble has one for each member; give a list of 2"),
        (None, {"shares": [1.0, 0.0]}, "shares[1] is 0.0: it must be above 0; leave the member out"),
        (None, {"shares": [math.nan, 1.0]}, "shares[0] is nan"),
        (None, {"shares": 0.5}, "shares are 0.5"),
        (None, {"if_empty": "skip"}, "if_empty is 'skip': it must be one of"),
        (None, {"carried": [0.5]}, "carried are [0.5]"),
        (None, {"carried": [5.0, -5.0]}, "carried[0] is 5.0: 2 members are owed fractions of rows; give carried of"),
        (None, {"carried": [0.0, -1e9]}, "carried[1] is -1000000000.0: 2 members are owed fractions of rows"),
        ([], {}, "an ensemble has 1 to 16 memories"),
        ([3, 4], {}, "member 0 is 3: it must be a ReplayMemory"),
        (other(stack=3), {}, "observation of member 1 is"),
        (other(n_step=2), {}, "n_step of member 1 is 2, and 1 of member 0"),
        (other(discount=0.5), {}, "discount of member 1 is 0.5"),
        (other(extras={"log_prob": np.float32}), {}, "extras of member 1"),
        ([played(0), ReplayMemory(10, FrameSpec((2, 3)), 5, stack=2)], {}, "action of member 1"),
        ([memory := played(0), memory], {}, "it is a member already"),
    ],
)
def test_members_and_shares_that_cannot_work_are_refused(members, arguments: dict, message: str):
    members = [played(0), played(1)] if members is None else members

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        ReplayEnsemble(**{"members": members, "shares": [0.5, 0.5]} | arguments)


@pytest.mark.parametrize("call", ["sample", "draw_ahead", "sample_sequences"])
def test_a_wrong_batch_size_is_refused_before_anything_is_drawn(call: str):
    ensemble = ReplayEnsemble([played(0)], [1.0])

    with pytest.raises(FramestowError, match="batch_size is 0"):
        getattr(ensemble, call)(*([0, 3] if "sequences" in call else [0]))
    assert ensemble.carried == [0.0]

"""A replay of shards in this process: what it stores, and with which probabilities it samples."""

from __future__ import annotations

import inspect
import os
import re
from functools import partial

import numpy as np
import pytest

from distributed.env_steps import NumberedSteps, arguments, local_replay, memory
from distributed.test_any_observation_in_shards import KINDS_OF_REPLAY
from framestow import EmphasizeRecent, Prioritized, ReplayEnsemble, ReplayMemory, Uniform
from framestow.distributed import SampleToInsertRatio, ShardedReplay, ShardWriter, group, start_local_shards
from framestow.distributed.group import split_rows
from framestow.distributed.ray import LocalCalls
from framestow.distributed.replay import keep_only, memory_folders, start_over
from framestow.distributed.shard import Shard
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.torch import BatchLoader
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, AnyPlay
from oracles.chi_square import chi_square, chi_square_bound

FIELDS = (
    *("observation", "action", "reward", "discount", "next_observation", "index", "weight", "terminated"),
    "truncated",
)


def make_sampler(kind: str):
    return Uniform() if kind == "uniform" else Prioritized(final_beta=1.0, annealed_over=30)


def calls_of(kind: type) -> dict[str, list[tuple]]:
    """Return name, kind and default of the arguments of each public method, and of the constructor."""
    methods = {"__init__": kind.__init__} | dict(inspect.getmembers(kind, inspect.isfunction))
    signatures = {name: inspect.signature(method).parameters.values() for name, method in methods.items()}
    return {
        name: [(each.name, each.kind, each.default) for each in arguments]
        for name, arguments in signatures.items()
        if name == "__init__" or not name.startswith("_")
    }


def test_a_replay_and_its_writers_have_the_calls_of_a_memory():
    of_memory, of_replay, of_writer = map(calls_of, (ReplayMemory, ShardedReplay, ShardWriter))
    built, built_memory = of_replay.pop("__init__"), of_memory.pop("__init__")
    names_of_replay, names_of_writer = of_memory.keys() & of_replay.keys(), of_memory.keys() & of_writer.keys()

    assert {name: of_memory[name] for name in names_of_replay} == {name: of_replay[name] for name in names_of_replay}
    assert {name: of_memory[name] for name in names_of_writer} == {name: of_writer[name] for name in names_of_writer}
    assert {"add", "append", "begin", "observations"} <= names_of_writer
    assert names_of_writer | {"sample", "sample_sequences", "update_priorities", "save", "report"} <= names_of_replay
    assert [each for each in built_memory if each[0] != "on_damage"] == [each for each in built if each in built_memory]
    assert {"None"} == {inspect.signature(getattr(ShardWriter, name)).return_annotation for name in ("add", "append")}


OF_ONE_SHARD = [{}, {"n_step": 3}, {"frames_per_segment": 7}, {"storage": "raw", "n_step": 3}, {"retention": "random"}]


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
@pytest.mark.parametrize("settings", OF_ONE_SHARD, ids=str)
def test_one_shard_gives_the_batches_of_one_memory_bit_for_bit(kind, settings):
    one, replay = memory(sampler=make_sampler(kind), **settings), local_replay(sampler=make_sampler(kind), **settings)
    of_one, of_replay = NumberedSteps(), NumberedSteps()

    for part in range(10):
        of_one.play(one, 0, 61)
        of_replay.play(replay, 0, 61)
        replay.flush()
        for _ in range(4):
            expected, batch = one.sample(32), replay.sample(32)
            for name in FIELDS:
                np.testing.assert_array_equal(getattr(expected, name), getattr(batch, name), name)
            if kind == "prioritized":
                errors = np.random.default_rng(part).normal(size=32)
                one.update_priorities(expected.index, errors)
                replay.update_priorities(batch.index, errors)
    replay.group.calls.objects[0].memory.inner.parts.check()
    assert len(one) == len(replay)


@pytest.mark.parametrize("borders", ["mask", "inside", "cross"])
def test_one_shard_gives_the_sequences_of_one_memory_bit_for_bit(borders):
    one, replay = memory(sampler=Prioritized()), local_replay(sampler=Prioritized())
    NumberedSteps().play(one, 0, 100)
    NumberedSteps().play(replay, 0, 100)
    replay.flush()

    for _ in range(3):
        expected = one.sample_sequences(16, 6, burn_in=2, borders=borders)
        batch = replay.sample_sequences(16, 6, burn_in=2, borders=borders)
        for name in (*FIELDS, "mask", "is_first", "learns"):
            np.testing.assert_array_equal(getattr(expected, name), getattr(batch, name), name)


@pytest.mark.parametrize("kind", KINDS_OF_REPLAY)
def test_batches_of_several_shards_have_the_observations_that_were_given(kind):
    options = {"num_envs": 3, "shards": 2, "extras": EXTRAS, "seed": 3, "frames_per_segment": 8}
    options |= {"discount": DISCOUNT} | KINDS_OF_REPLAY[kind]
    replay = ShardedReplay(2_000, options.pop("space"), NUM_ACTIONS, start=start_local_shards, **options)
    padding = replay.settings.stack_padding
    play = AnyPlay(replay, replay.settings.layout, 1, mixes=True, kinds=20, padding=padding)
    shards = replay.group.calls.objects

    for _ in range(4):
        play.play(40)
        replay.flush()
        batch = replay.sample(64)
        play.assert_batch(batch, 1, lost=True)  # the index has the shard
        assert {0, 1} == set((batch.index >> 53).tolist())
        readable = set(np.concatenate([shard.read_all().extras["number"] for shard in shards]).tolist())
        for borders in ("mask", "cross"):
            play.assert_sequences(replay.sample_sequences(16, 5, borders=borders), borders, readable)
    assert len(play.steps) > 100


PRIORITIES = (0.25, 1.0, 4.0)  # of the transitions in turn
ALPHA = 0.5


def rows_of(replay, num_batches: int, batch_size: int = 256):
    """Draw batches ahead, so that all of them are drawn by the masses of the reports before them."""
    pending = [replay.draw_ahead(batch_size) for _ in range(num_batches)]
    batches = [each.unpack() for each in pending]
    return np.concatenate([batch.reward for batch in batches]), np.concatenate([batch.weight for batch in batches])


def with_unequal_shards(sampler, monkeypatch):
    """Return a replay with 60 and 20 transitions, whose answers are kept although 100 more come to the first shard."""
    monkeypatch.setattr(group, "REFRESH_S", np.inf)
    replay, steps = local_replay(shards=2, num_envs=2, sampler=sampler), NumberedSteps(2)
    writer = replay.writer()
    steps.play(writer, 0, 60)
    steps.play(writer, 1, 20)
    writer.flush()
    replay.group.refresh()
    return replay, steps, writer


def set_priorities(replay) -> dict[float, float]:
    """Set the priorities of all transitions; return the mass of each by its reward."""
    seen: dict[float, tuple[int, float]] = {}
    while len(seen) < 80:
        batch = replay.sample(64)
        seen |= dict(zip(batch.reward.tolist(), batch.index.tolist(), strict=True))
    values = {reward: PRIORITIES[place % 3] for place, reward in enumerate(sorted(seen))}
    replay.update_priorities(list(seen.values()), [values[reward] for reward in seen])
    replay.flush()
    return {reward: value**ALPHA for reward, value in values.items()}


@pytest.mark.parametrize("is_stale", [False, True])
@pytest.mark.parametrize("kind", ["uniform", "prioritized"])
def test_rows_have_their_probability_and_a_weight_of_its_inverse(kind, is_stale, monkeypatch):
    is_uniform = kind == "uniform"
    sampler = Uniform() if is_uniform else Prioritized(alpha=ALPHA, beta=1.0, epsilon=0.0)
    replay, steps, writer = with_unequal_shards(sampler, monkeypatch)
    masses = dict.fromkeys([*range(60), *range(1000, 1020)], 1.0) if is_uniform else set_priorities(replay)
    reported = [sum(mass for reward, mass in masses.items() if reward // 1000 == shard) for shard in (0, 1)]
    if is_stale:
        steps.play(writer, 0, 100)
        writer.flush()
        masses |= dict.fromkeys(range(60, 160), 1.0 if is_uniform else max(PRIORITIES) ** ALPHA)

    rewards, weights = rows_of(replay, num_batches=60)

    names = np.array(sorted(masses))
    now = [sum(mass for reward, mass in masses.items() if reward // 1000 == shard) for shard in (0, 1)]
    shard_of = (names // 1000).astype(int)
    probability = np.array([masses[name] for name in names]) / np.take(now, shard_of)
    probability *= np.take(reported, shard_of) / sum(reported)
    counts = np.array([np.count_nonzero(rewards == name) for name in names])
    assert chi_square(counts, probability) < chi_square_bound(len(counts) - 1)
    expected = probability.min() / probability[np.searchsorted(names, rewards)]
    np.testing.assert_allclose(expected, weights, rtol=1e-5)


@pytest.mark.parametrize("masses", [[1.0], [3.0, 1.0, 0.0], [1e-9, 1.0, 5.5, 2.5], [7.0] * 5])
def test_counts_have_exactly_proportional_means(masses):
    masses, num_rows = np.array(masses), 13
    counts = np.array([split_rows(masses, num_rows, random) for random in (np.arange(10_000) + 0.5) / 10_000])

    assert set(counts.sum(axis=1)) == {num_rows}
    assert (counts[:, masses == 0] == 0).all()
    np.testing.assert_allclose(num_rows * masses / masses.sum(), counts.mean(axis=0), atol=1e-3)


def test_a_shard_that_is_lost_gives_no_rows_until_it_is_back_empty():
    replay, steps = local_replay(shards=2, num_envs=2), NumberedSteps(2)
    for env_id in (0, 1):
        steps.play(replay, env_id, 50)
    replay.flush()
    shards = replay.group.calls
    shards.down.add(0)

    during = replay.sample(64)
    shards.replace(0)
    shards.down.clear()
    replay.group.refresh()
    steps.play(replay, 0, 30)
    replay.flush()
    after = replay.sample(256)

    assert set(during.reward.astype(int) // 1000) == {1}
    assert (during.weight == 1.0).all()
    assert set(after.reward[after.reward < 1000].astype(int)) <= set(range(50, 80))
    assert (replay.counts.lost_shards, replay.counts.lost_transitions) == (1, 50)


def test_rows_of_a_shard_that_dies_after_the_draw_are_replaced_by_right_ones():
    replay, steps = local_replay(shards=3, num_envs=3, sampler=Prioritized(beta=1.0)), NumberedSteps(3)
    for env_id in range(3):
        steps.play(replay, env_id, 40)
    replay.flush()
    replay.group.calls.down.add(2)  # the replay has not noticed

    batches = [replay.sample(64) for _ in range(50)]

    rewards = np.concatenate([batch.reward for batch in batches]).astype(int)
    assert all(len(batch) == 64 for batch in batches)
    assert set(rewards // 1000) == {0, 1}
    counts = np.array([np.count_nonzero(rewards == name) for name in (*range(40), *range(1000, 1040))])
    assert chi_square(counts) < chi_square_bound(79)


def test_priorities_of_evicted_and_lost_transitions_are_ignored_and_counted():
    replay, steps = local_replay(capacity=100, sampler=Prioritized()), NumberedSteps()
    steps.play(replay, 0, 50)
    replay.flush()
    old = replay.sample(32).index
    steps.play(replay, 0, 300)
    replay.flush()

    replay.update_priorities(old, np.ones(32))
    replay.flush()
    replay.report()
    evicted = replay.counts.ignored_updates
    newer = replay.sample(16).index
    replay.group.calls.replace(0)
    replay.group.refresh()
    replay.update_priorities(newer, np.ones(16))
    replay.flush()
    replay.report()

    assert (evicted, replay.counts.ignored_updates) == (32, 48)


def test_priorities_that_a_sampler_refuses_are_refused_before_a_shard_gets_them():
    replay = local_replay(shards=2, num_envs=2, sampler=Prioritized(alpha=1.0))
    for env_id in (0, 1):
        NumberedSteps(2).play(replay, env_id, 40)
    replay.flush()
    batch = replay.sample(8)
    ensemble = ReplayEnsemble([replay], [1.0])

    for given in (replay, ensemble):
        with pytest.raises(InvalidSettingsError, match=r"a priority is 1e\+60: to the power of alpha=1.0"):
            given.update_priorities(batch.index, [1e60] * 8)
    assert len(replay.sample(8)) == 8
    with pytest.raises(InvalidSettingsError, match="it does not use priorities"):
        ReplayEnsemble([local_replay()], [1.0]).update_priorities([1], [1.0])


def test_a_resumed_replay_gives_the_batches_of_the_saved_one(tmp_path):
    settings = {"shards": 2, "num_envs": 2, "sampler": None}
    replay, steps = local_replay(**settings), NumberedSteps(2)
    for env_id in (0, 1):
        steps.play(replay, env_id, 60)
    replay.flush()
    replay.sample(32)
    generation = replay.save(tmp_path)
    expected = [replay.sample(32).reward.tolist() for _ in range(3)]

    resumed = local_replay(saved=(tmp_path, generation), **settings)

    assert expected == [resumed.sample(32).reward.tolist() for _ in range(3)]
    assert (120, 1) == (resumed.counts.inserted, generation)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n_step": 3}, "n_step is 3: the memory in .*shard-0 has 1"),
        ({"capacity": 100}, "capacity is 50: the memory in .*shard-0 has 200"),
        ({"num_envs": 4}, "num_envs is 2: the memory in .*shard-0 has 1"),
    ],
)
def test_a_save_with_other_settings_is_refused_before_a_shard_starts(other, message, tmp_path):
    settings = {"shards": 2, "num_envs": 2}
    settings["saved"] = str(tmp_path), local_replay(**settings).save(tmp_path)

    with pytest.raises(IncompatibleError, match=message):
        ShardedReplay(**arguments(**settings | other), start=pytest.fail)
    assert 0 == len(local_replay(**settings))


def test_a_save_has_all_steps_of_append_and_may_be_resumed_with_another_budget(tmp_path):
    settings = {"shards": 2, "num_envs": 2}
    replay = local_replay(**settings, max_bytes="8 MiB")
    NumberedSteps(2).play(replay, 0, 20)
    generation = replay.save(tmp_path)

    resumed = local_replay(**settings, max_bytes="2 MiB", saved=(tmp_path, generation))

    assert [2**20, 2**20] == [shard.memory.inner.settings.max_bytes for shard in resumed.group.calls.objects]
    assert 20 == len(resumed)


@pytest.mark.skipif(os.name != "posix", reason="a link needs rights on Windows")
def test_a_shard_behind_a_link_is_neither_read_nor_written(tmp_path):
    saved, elsewhere = tmp_path / "saved", tmp_path / "elsewhere"
    replay = local_replay(shards=2, num_envs=2)
    generation = replay.save(saved)
    (saved / "shard-1").rename(elsewhere)
    (saved / "shard-1").symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}

    for operation in (
        lambda: local_replay(shards=2, num_envs=2, saved=(saved, generation)),
        lambda: local_replay(shards=2, num_envs=2, directory=saved),
        lambda: replay.save(saved),
        lambda: memory_folders(saved),
        lambda: keep_only(saved, generation),
        lambda: start_over(saved, keeps_pinned=False),
    ):
        with pytest.raises(DamagedDataError, match=f"shard-1: it is a link to '{elsewhere}'"):
            operation()

    assert before == {path.name: path.read_bytes() for path in elsewhere.iterdir()}


def test_the_saved_counts_are_those_of_the_saved_steps_though_shards_take_more_meanwhile(tmp_path):
    replay, steps = local_replay(shards=2, num_envs=2), NumberedSteps(2)
    writer, second = replay.writer(), replay.group.calls.objects[1]
    save = second.save

    def insert_into_the_first_before(*arguments):
        steps.play(writer, 0, 10)
        writer.flush()
        return save(*arguments)

    second.save = insert_into_the_first_before
    for env_id in (0, 1):
        steps.play(writer, env_id, 60)
    writer.flush()

    generation = replay.save(tmp_path)
    resumed = local_replay(saved=(tmp_path, generation), shards=2, num_envs=2)
    replay.group.refresh()

    assert (120, 120, 130) == (resumed.counts.inserted, len(resumed), replay.counts.inserted)


def test_a_shard_that_was_restarted_meanwhile_uses_no_priorities_and_limits_of_its_former_epoch():
    replay, steps = local_replay(sampler=Prioritized(), rate_limiter=SampleToInsertRatio(1.0, 10, 100)), NumberedSteps()
    steps.play(replay, 0, 50)
    replay.flush()
    replay.group.calls.replace(0)
    shard = replay.group.calls.objects[0]
    NumberedSteps().play(replay.writer([0]), 0, 50)

    before = shard.inserts_left()
    shard.sample(4, (0, 1e6), [(np.zeros(4, int), np.arange(4), np.ones(4))])
    shard.answer((0, 1e6))

    assert (4, before) == (shard.report()[1], shard.inserts_left())


def test_a_batch_that_is_never_unpacked_is_refused_before_shards_keep_too_many():
    replay, steps = local_replay(), NumberedSteps()
    steps.play(replay, 0, 20)
    replay.flush()
    pending = [replay.draw_ahead(4) for _ in range(64)]

    with pytest.raises(InvalidSettingsError, match="64 batches were drawn and not unpacked"):
        replay.draw_ahead(4)
    pending[0].stop()
    assert len(replay.draw_ahead(4).unpack()) == 4


def test_a_loader_gives_the_same_batches_as_tensors():
    torch = pytest.importorskip("torch")
    replays = [local_replay(shards=2, num_envs=2, n_step=2) for _ in range(2)]
    for replay in replays:
        steps = NumberedSteps(2)
        for env_id in (0, 1):
            steps.play(replay, env_id, 60)
        replay.flush()

    with BatchLoader(replays[0], 32, "cpu", ahead=2) as loader:
        batches = [next(loader) for _ in range(4)]

    for batch in batches:
        expected = replays[1].sample(32)
        assert torch.equal(torch.from_numpy(expected.next_observation), batch.next_observation)
        assert expected.index.tolist() == batch.index.tolist()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shards": 3, "num_envs": 2}, "shards is 3: a replay has 1 to"),
        ({"sampler": EmphasizeRecent()}, "sampler is a EmphasizeRecent: a sharded replay samples by Uniform or"),
        ({"rate_limiter": SampleToInsertRatio(4.0, 1000, 100.0)}, "rate_limiter has min_size 1000: the replay stores"),
        ({"rate_limiter": 5}, "rate_limiter is 5: it must be a SampleToInsertRatio or None"),
        ({"capacity": "x"}, "capacity is 'x': it must be a whole number"),
        ({"saved": "path"}, "saved is 'path': it must be a folder and a generation"),
        ({"saved": ("path", None)}, "the generation of saved is None: it must be a whole number"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_a_shard_starts(settings, message):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        local_replay(**settings)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env_ids": "ab"}, "env_ids is ab: a writer has environments of 0 to 1, each once"),
        ({"env_ids": [0.5]}, "env_ids is [0.5]: a writer has environments of 0 to 1, each once"),
        ({"env_ids": [1, 1]}, "env_ids is [1, 1]: a writer has environments of 0 to 1, each once"),
        ({"priority": 5}, "priority is 5: it must be a function"),
    ],
)
def test_a_writer_takes_numbers_of_environments_and_a_function_for_priorities(given, message):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        local_replay(num_envs=2).writer(**given)


def test_shards_end_if_one_of_them_cannot_be_built():
    ended = []

    class Calls(LocalCalls):
        def call(self, number, method, *given):
            if number == 1 and method == "answer":
                return None, IncompatibleError("shard 1 has a memory of other settings")
            return super().call(number, method, *given)

        def close(self):
            ended.append(self.num_objects)

    with pytest.raises(IncompatibleError, match="shard 1 has a memory of other settings"):
        ShardedReplay(
            **arguments(num_envs=2, shards=2),
            start=lambda settings: Calls([partial(Shard, one) for one in settings]),
        )

    assert [2] == ended

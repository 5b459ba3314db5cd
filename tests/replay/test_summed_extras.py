"""Extras that are ``Summed``: transitions have the discounted sum over the steps of their return."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import FrameSpec, HindsightGoals, Prioritized, ReplayEnsemble, ReplayMemory, Summed
from framestow.distributed import ShardedReplay, start_local_shards
from framestow.errors import InvalidSettingsError
from framestow.torch import BatchLoader

SHAPE, DISCOUNT = (2, 3), 0.75
EXTRAS = {"cost": Summed(np.float64), "goals": Summed((np.float32, (2,))), "plain": np.float32, "small": Summed("f2")}


class Player:
    """Plays environments into a memory, and keeps the extras of every step in plain lists."""

    def __init__(self, memory, num_envs: int, seed: int, longest: int = 12) -> None:
        self.memory, self.num_envs, self.longest = memory, num_envs, longest
        self.generator = np.random.default_rng(seed)
        self.steps: dict[int, tuple[int, int]] = {}  # environment and place in its list, by index
        self.played: list[list[tuple[int, dict]]] = [[] for _ in range(num_envs)]  # episode and extras of each step
        self.episodes = 0

    def play(self, num_episodes: int) -> None:
        for _ in range(num_episodes):
            env_id, length = int(self.generator.integers(self.num_envs)), int(self.generator.integers(1, self.longest))
            end = self.generator.choice(["terminated", "truncated", "cut off"])
            self.memory.begin(self._frame(), [env_id])
            for step in range(length):
                is_last = step == length - 1
                flags = [is_last and end == "terminated"], [is_last and end == "truncated"]
                extras = self._extras()
                given = {name: value[None] for name, value in extras.items()}
                index = self.memory.append([0], given["cost"], *flags, self._frame(), [env_id], given)
                self._note(index, env_id, extras)
            self.episodes += 1

    def _note(self, index, env_id: int, extras: dict) -> None:
        if index is not None:
            self.steps[int(index[0])] = env_id, len(self.played[env_id])
        self.played[env_id].append((self.episodes, extras))

    def _frame(self) -> np.ndarray:
        return self.generator.integers(0, 256, (1, *SHAPE)).astype(np.uint8)

    def _extras(self) -> dict[str, np.ndarray]:
        numbers = self.generator.normal(size=6)
        cost = np.float64(np.float32(numbers[0]))  # it is the reward, too
        return {
            "cost": np.array(cost),
            "goals": numbers[1:3].astype(np.float32),
            "plain": np.array(numbers[3], np.float32),
            "small": np.array(numbers[4], np.float16),
        }

    def expected(self, index: int, n_step: int) -> dict[str, np.ndarray]:
        """What a transition has: sums in double precision, in the order of the steps."""
        env_id, place = self.steps[index]
        episode, first = self.played[env_id][place]
        later = self.played[env_id][place : place + n_step]
        sums = {name: np.zeros(value.shape) for name, value in first.items()}
        for power, (of_episode, extras) in enumerate(later):
            if of_episode != episode:
                break
            for name, value in extras.items():
                sums[name] = sums[name] + DISCOUNT**power * value.astype(np.float64)
        cast = {name: sums[name].astype(value.dtype) for name, value in first.items()}
        return cast | {"plain": first["plain"]}


def assert_batch_is_what_was_played(batch, player: Player, n_step: int) -> None:
    assert {"cost", "goals", "plain", "small"} == set(batch.extras)
    for row, index in enumerate(batch.index.tolist()):
        for name, value in player.expected(index, n_step).items():
            np.testing.assert_array_equal(value, batch.extras[name][row], f"{name} of transition {index}")
            assert value.dtype == batch.extras[name].dtype
    np.testing.assert_allclose(batch.reward, batch.extras["cost"], rtol=1e-5, atol=1e-6)


def memory_of(n_step: int, num_envs: int = 2, capacity: int = 60, **options) -> ReplayMemory:
    options = {"extras": EXTRAS, "discount": DISCOUNT, "seed": 0} | options
    return ReplayMemory(capacity, FrameSpec(SHAPE), 4, stack=2, num_envs=num_envs, n_step=n_step, **options)


AT_RANDOM = {"retention": "random", "frames_per_segment": 8, "capacity": 160}


@settings(max_examples=12, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 3, 10]),
    st.sampled_from([{}, AT_RANDOM]),
    st.sampled_from([None, Prioritized]),
)
def test_transitions_have_the_sums_of_their_return_whatever_is_evicted_changed_or_forgotten(
    seed: int, n_step: int, retention: dict, sampler
):
    memory = memory_of(n_step, sampler=sampler and sampler(), **retention)
    player = Player(memory, 2, seed)
    for _ in range(6):
        player.play(5)
        indices = memory.sampleable_indices()
        assert_batch_is_what_was_played(memory.get(indices), player, n_step)
        if len(indices):
            assert_batch_is_what_was_played(memory.sample(5), player, n_step)
            changed = player.generator.choice(indices, 3)
            goals = player.generator.normal(size=(3, 2)).astype(np.float32)
            memory.set_extras(changed, {"goals": goals})
            for index, value in zip(changed.tolist(), goals, strict=True):
                env_id, place = player.steps[index]
                player.played[env_id][place][1]["goals"] = value
            memory.forget(player.generator.choice(indices, 1))
            assert_batch_is_what_was_played(memory.get(memory.sampleable_indices()), player, n_step)


@pytest.mark.parametrize("retention", [{}, {"retention": "random", "frames_per_segment": 32}], ids=["fifo", "random"])
def test_the_longest_returns_are_summed_too(retention):
    memory = memory_of(255, capacity=1_000, **retention)
    player = Player(memory, 2, seed=0, longest=600)
    player.play(8)
    indices = memory.sampleable_indices()

    assert_batch_is_what_was_played(memory.get(indices[:: len(indices) // 50]), player, 255)


@pytest.mark.parametrize("retention", [{}, AT_RANDOM], ids=["fifo", "random"])
def test_a_saved_memory_sums_when_it_is_loaded_opened_and_repaired_from_its_folder(retention, tmp_path):
    memory = memory_of(3, **retention)
    player = Player(memory, 2, 0)
    player.play(20)
    memory.save(tmp_path)

    for again in (ReplayMemory.load(tmp_path, seed=0), ReplayMemory.open(tmp_path, seed=0)):
        assert_batch_is_what_was_played(again.get(memory.sampleable_indices()), player, 3)
        assert_batch_is_what_was_played(again.sample(8), player, 3)


def test_sequences_episodes_and_steps_have_the_values_of_single_steps():
    memory = memory_of(3)
    player = Player(memory, 2, 0)
    player.play(10)
    indices = memory.sampleable_indices()

    def assert_single(index: int, name: str, value) -> None:
        env_id, place = player.steps[index]
        np.testing.assert_array_equal(player.played[env_id][place][1][name], value)

    sequences, steps = memory.sample_sequences(8, 4), memory.steps_from(indices, 2)
    for batch in (sequences, steps):
        for row, column in np.argwhere(batch.index >= 0):
            for name in EXTRAS:
                assert_single(int(batch.index[row, column]), name, batch.extras[name][row, column])
    for episode in memory.episodes():
        assert_single(int(episode.indices[0]), "goals", episode.extras["goals"][0])


def test_batches_that_are_made_elsewhere_are_summed_too():
    memories = [memory_of(3, seed=number) for number in range(2)]
    players = [Player(memory, 2, number) for number, memory in enumerate(memories)]
    for player in players:
        player.play(10)

    batch = ReplayEnsemble(memories, [0.5, 0.5]).sample(20)
    with BatchLoader(memories[0], 8) as loader:
        loaded = next(loader)

    for member, player in enumerate(players):
        for row in np.flatnonzero(batch.memory == member):
            expected = player.expected(int(batch.index[row] % 2**59), 3)
            np.testing.assert_array_equal(expected["goals"], batch.extras["goals"][row])
    for row, index in enumerate(loaded.index.tolist()):
        np.testing.assert_array_equal(players[0].expected(index, 3)["goals"], loaded.extras["goals"][row].numpy())
    all_of_them = {}
    for each in memories[0].batches(7):
        all_of_them |= dict(zip(each.index.tolist(), each.extras["cost"].tolist(), strict=True))
    assert {index: players[0].expected(index, 3)["cost"] for index in all_of_them} == all_of_them


@pytest.mark.parametrize("n_step", [1, 3])
def test_shards_give_the_sums_that_one_memory_gives(n_step):
    settings = {"num_envs": 2, "n_step": n_step, "discount": DISCOUNT, "extras": EXTRAS, "seed": 0, "stack": 2}
    replay = ShardedReplay(200, FrameSpec(SHAPE), 4, shards=2, start=start_local_shards, **settings)
    alone = memory_of(n_step, capacity=200)
    for played in (replay, alone):
        player = Player(played, 2, 0)
        player.play(20)
    replay.flush()
    by_cost = {
        float(cost): (goals, small)
        for each in alone.batches(50)
        for cost, goals, small in zip(each.extras["cost"], each.extras["goals"], each.extras["small"], strict=True)
    }

    batch = replay.sample(32)

    for cost, goals, small in zip(batch.extras["cost"], batch.extras["goals"], batch.extras["small"], strict=True):
        np.testing.assert_array_equal(by_cost[float(cost)][0], goals)
        assert by_cost[float(cost)][1] == small
    replay.close()


def test_nan_and_infinity_count_only_in_the_sums_that_have_them():
    memory = ReplayMemory(50, FrameSpec(SHAPE), 4, stack=1, n_step=2, discount=0.5, extras={"cost": Summed("f2")})
    memory.begin(np.zeros((1, *SHAPE), np.uint8))
    costs = [1.0, np.nan, 2.0, np.inf, 60_000.0, 60_000.0, 4.0]
    for step, cost in enumerate(costs):
        ends = [step == len(costs) - 1]
        memory.append([0], [0.0], ends, [False], np.zeros((1, *SHAPE), np.uint8), extras={"cost": [cost]})

    sums = memory.get(memory.sampleable_indices()).extras["cost"]

    np.testing.assert_array_equal([np.nan, np.nan, np.inf, np.inf, np.inf, 60_000.0, 4.0], sums)  # 90,000 is no float16


def test_a_list_of_summed_names_is_saved_if_there_is_one_and_is_not_compared_on_resume(tmp_path):
    plain = {"cost": np.float32}
    ReplayMemory(50, FrameSpec(SHAPE), 4, stack=1, extras=plain).save(tmp_path / "plain")
    summed = ReplayMemory(50, FrameSpec(SHAPE), 4, stack=1, extras={"cost": Summed(np.float32)})
    summed.save(tmp_path / "summed")

    settings = {name: memory_settings(tmp_path / name) for name in ("plain", "summed")}
    assert "summed" not in settings["plain"]
    assert ["cost"] == settings["summed"]["summed"]
    assert settings["plain"]["extras"] == settings["summed"]["extras"] == {"cost": ["float32", []]}
    with ReplayMemory(50, FrameSpec(SHAPE), 4, stack=1, extras=plain, directory=tmp_path / "resumed"):
        pass
    with ReplayMemory(
        50, FrameSpec(SHAPE), 4, stack=1, extras={"cost": Summed(np.float32)}, directory=tmp_path / "resumed"
    ) as again:
        assert ("cost",) == again.inner.settings.extras.summed


def memory_settings(folder) -> dict:
    found = [re.search(rb'\{.*"extras".*\}', path.read_bytes()) for path in sorted(folder.glob("COMMIT.*"))]
    text = next(match[0] for match in found if match)
    return _find(json.JSONDecoder().raw_decode(text.decode("latin-1"))[0], "extras")


def _find(value, key: str):
    if isinstance(value, dict):
        return value if key in value else next((one for each in value.values() if (one := _find(each, key))), None)
    return None


def test_members_of_an_ensemble_agree_on_what_is_summed():
    members = [
        ReplayMemory(50, FrameSpec(SHAPE), 4, stack=1, extras={"cost": cost}) for cost in (np.float32, Summed("f4"))
    ]
    with pytest.raises(InvalidSettingsError, match=r"extras of member 1 is .*give members with the same extras"):
        ReplayEnsemble(members, [0.5, 0.5])


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, (np.uint8, (2,))])
def test_only_floats_can_be_summed(dtype):
    with pytest.raises(InvalidSettingsError, match=r"is Summed of .*: a discounted sum has fractions; give Summed\("):
        memory_of(3, extras={"cost": Summed(dtype)})


def test_hindsight_sees_the_values_of_its_single_steps():
    space = {name: FrameSpec((2,), np.float32) for name in ("achieved_goal", "desired_goal", "observation")}
    memory = ReplayMemory(50, space, 4, stack=1, seed=0, extras={"cost": Summed(np.float32)})
    frames = {name: np.zeros((1, 2), np.float32) for name in space}
    memory.begin(frames)
    for step in range(10):
        memory.append([0], [0.0], [False], [step == 9], frames, extras={"cost": [step]})
    seen = []

    def reward(achieved, desired, info) -> np.ndarray:
        seen.append(info["cost"])
        return np.zeros(len(achieved))

    batch = HindsightGoals(memory, reward, share=1.0).sample(8)

    np.testing.assert_array_equal(batch.index, batch.extras["cost"])
    np.testing.assert_array_equal(batch.index, seen[0])

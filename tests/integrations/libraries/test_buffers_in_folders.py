"""A drop-in buffer lives in a folder: the library sees the same buffer, and a pickle names what the folder has."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv

from framestow import ReplayMemory
from framestow.errors import DamagedDataError, IncompatibleError, InvalidSettingsError
from framestow.integrations import cleanrl
from framestow.integrations import stable_baselines3 as sb3
from framestow.integrations.drop_in.pickled_memory import MemoryInFolder
from integrations.libraries.sb3_play import Play, assert_same_weights
from oracles.store_files import files_of_newest_commit

SPACE, ACTIONS, NUM_ENVS = spaces.Box(0, 255, (4, 6, 5), np.uint8), spaces.Discrete(4), 2
VECTOR = spaces.Box(-1, 1, (2,), np.float32)
GOALS = spaces.Dict({"observation": SPACE, "achieved_goal": VECTOR, "desired_goal": VECTOR})


class Kind:
    """A buffer of a library, and how one adds to it."""

    def __init__(self, make, space=SPACE, has_infos=True):
        self.make, self.space, self.has_infos = make, space, has_infos

    def add(self, buffer, play, num_rows):
        for _ in range(num_rows):
            obs, next_obs, action, reward, done, infos = play.step()
            if self.has_infos:
                buffer.add(obs, next_obs, action, reward, done, infos)
            else:
                buffer.add(obs, action, reward, next_obs, done)

    def play(self, seed=0):
        return Play(seed, self.space, ACTIONS, NUM_ENVS, stack=4)

    def filled(self, num_rows=25, **where):
        buffer = self.make(**where)
        self.add(buffer, self.play(), num_rows)
        if isinstance(buffer, sb3.PrioritizedReplayBuffer):
            buffer.update_priorities(np.arange(50), np.arange(50))  # those of evicted steps count for nothing
        return buffer


def rows(kind, space=SPACE, **settings):
    def make(**where):
        np.random.seed(7)  # seeds the priorities of Stable-Baselines3's
        return kind(32, space, ACTIONS, device="cpu", n_envs=NUM_ENVS, **settings, **where)

    return make


def rainbow(**where):
    return cleanrl.PrioritizedReplayBuffer(32, SPACE.shape, "cpu", 3, 0.9, num_envs=NUM_ENVS, **where)


KINDS = {
    "Stable-Baselines3": Kind(rows(sb3.ReplayBuffer)),
    "Dict": Kind(rows(sb3.DictReplayBuffer, GOALS), GOALS),
    "n-step": Kind(rows(sb3.NStepReplayBuffer)),
    "prioritized": Kind(rows(sb3.PrioritizedReplayBuffer)),
    "hindsight": Kind(rows(sb3.HerReplayBuffer, GOALS, env=None), GOALS),
    "CleanRL": Kind(rows(cleanrl.ReplayBuffer)),
    "Rainbow": Kind(rainbow, has_infos=False),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


class Goals:
    """The environments of a hindsight buffer, which no pickle has."""

    def env_method(self, _name, achieved, desired, _infos, indices):
        return [np.linalg.norm(achieved - desired, axis=1) for _ in indices]


def arrays_of(samples):
    """Return all arrays of some samples, by name."""
    found = {}
    for name, part in samples._asdict().items():
        for key, array in part.items() if isinstance(part, dict) else [("", part)]:
            found[f"{name}{key}"] = np.asarray(array)
    return found


def assert_same_draws(expected, actual):
    for seed in range(3):
        draws = []
        for buffer in (expected, actual):
            buffer.env = Goals()
            np.random.seed(seed)
            draws.append(arrays_of(buffer.sample(16)))
        assert draws[0].keys() == draws[1].keys()
        for name, array in draws[0].items():
            np.testing.assert_array_equal(array, draws[1][name], err_msg=name)


def resumed(kind, folder):
    with pytest.warns(
        RuntimeWarning, match=r"has \d+ transitions: the buffer resumes it; give another directory"
    ) as warned:
        buffer = kind.make(directory=folder)
    assert {__file__} == {each.filename for each in warned}
    return buffer


def test_a_buffer_in_a_folder_is_the_buffer_in_ram(kind, tmp_path: Path):
    in_ram, on_disk = kind.filled(), kind.filled(directory=tmp_path / "replay", flush_every=None)

    on_disk.memory.flush()

    assert_same_draws(in_ram, on_disk)
    assert len(on_disk.memory) == len(ReplayMemory.open(tmp_path / "replay"))


def test_a_pickle_names_the_folder_and_goes_on_in_it(kind, tmp_path: Path):
    in_ram, on_disk = kind.filled(), kind.filled(directory=tmp_path / "replay", threads=2, flush_every=60)
    pickled = pickle.dumps(on_disk)
    names_before = {path.name for path in tmp_path.rglob("*.log")}
    on_disk.memory.close()  # as the end of the process does
    del on_disk

    loaded = pickle.loads(pickled)

    assert_same_draws(in_ram, loaded)
    assert (2, 60) == MemoryInFolder.flushed(loaded.memory)[-2:]
    for buffer in (in_ram, loaded):
        kind.add(buffer, kind.play(1), 5)
    assert_same_draws(in_ram, loaded)
    assert names_before <= {path.name for path in tmp_path.rglob("*.log")}
    assert ["replay"] == [path.name for path in tmp_path.iterdir()]  # and no second copy


def test_a_pickle_takes_over_the_memory_that_this_process_has_open(kind, tmp_path: Path):
    in_ram, pickled = kind.filled(), pickle.dumps(kind.filled(directory=tmp_path / "replay"))
    gc.collect()
    (tmp_path / "replay").rename(tmp_path / "moved")
    built = resumed(kind, tmp_path / "moved")

    loaded = pickle.loads(pickled)

    assert built.memory is loaded.memory
    assert_same_draws(in_ram, loaded)


def test_a_pickle_that_the_folder_has_left_behind_is_refused_with_both_generations(kind, tmp_path: Path):
    buffer = kind.filled(directory=tmp_path, flush_every=None)
    pickled, old = pickle.dumps(buffer), ReplayMemory.open(tmp_path)
    kind.add(buffer, kind.play(1), 1)
    new = buffer.memory.flush() + 1  # it flushes again

    refusal = rf"generation {new - 2} of {tmp_path} \({50} steps\), which now has generation {new} \(52 steps\)"
    with pytest.raises(IncompatibleError, match=refusal):
        pickle.loads(pickled)
    buffer.memory.close()
    with pytest.raises(IncompatibleError, match=r"generation \d+ of .* \(50 steps\), which now has .* \(52 steps\)"):
        pickle.loads(pickled)
    assert len(old) == len(ReplayMemory.open(tmp_path))


def test_a_moved_folder_is_found_by_a_buffer_that_was_built_with_it(kind, tmp_path: Path):
    buffer = kind.filled(directory=tmp_path / "replay")
    pickled = pickle.dumps(buffer)
    buffer.memory.close()
    (tmp_path / "replay").rename(tmp_path / "moved")

    refusal = "replay has no memory: .* build a buffer with the directory where it is now"
    with pytest.raises(FileNotFoundError, match=refusal):
        pickle.loads(pickled)
    (tmp_path / "replay").touch()
    with pytest.raises(FileNotFoundError, match=refusal):
        pickle.loads(pickled)

    there = resumed(kind, tmp_path / "moved")
    assert there.memory is pickle.loads(pickled).memory


@pytest.mark.each_value
@pytest.mark.parametrize("num_rows", [7, 25], ids=["begun", "full"])
def test_a_buffer_built_on_a_used_folder_resumes_it(kind, num_rows, tmp_path: Path):
    expected = kind.filled(num_rows)
    kind.filled(num_rows, directory=tmp_path).memory.close()

    buffer = resumed(kind, tmp_path)

    if kind is KINDS["hindsight"]:  # a resumed memory has no open episodes
        with warnings.catch_warnings(action="ignore"):  # that they will be truncated
            expected.truncate_last_trajectory()
    assert_same_draws(expected, buffer)
    for one in (expected, buffer):
        kind.add(one, kind.play(1), 20)
    assert_same_draws(expected, buffer)


@pytest.mark.parametrize(
    "env_ids", [[0, 0, 0, 1, 1, 1], [0, 1, 1, 0], [0, 1, 0]], ids=["imported", "exchanged", "recorded"]
)
def test_a_folder_whose_rows_have_not_one_step_of_each_environment_is_refused(env_ids, tmp_path: Path):
    memory = ReplayMemory(32, SPACE, ACTIONS, num_envs=NUM_ENVS, directory=tmp_path)
    frame = np.zeros((1, *SPACE.shape), np.uint8)
    for env_id in env_ids:
        memory.add(frame, [0], [0.0], frame, [False], [True], env_ids=[env_id])
    memory.close()

    refusal = f"memory {tmp_path} has rows without a step of each of its 2 environments: .*; give another directory"
    for _ in range(2):  # the refused memory is closed
        with pytest.raises(IncompatibleError, match=refusal):
            KINDS["Stable-Baselines3"].make(directory=tmp_path)
    assert len(env_ids) == len(ReplayMemory.open(tmp_path))


def test_a_reset_empties_the_folder_too(tmp_path: Path):
    kind = KINDS["Dict"]
    buffer = kind.filled(directory=tmp_path)
    pickled = pickle.dumps(buffer)

    buffer.reset()

    assert (0, 0, False, 0) == (buffer.size(), buffer.pos, buffer.full, len(ReplayMemory.open(tmp_path)))
    kind.add(buffer, kind.play(), 25)
    assert_same_draws(kind.filled(), buffer)
    buffer.memory.flush()
    with pytest.raises(IncompatibleError, match="the store was replaced by another one"):
        pickle.loads(pickled)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_buffer_in_a_folder_is_refused(way, tmp_path: Path):
    buffer = KINDS["CleanRL"].make(directory=tmp_path)

    with pytest.raises(InvalidSettingsError, match=r"was copied: one memory lives in a folder; call memory.save\("):
        way(buffer._steps if way is copy.copy else buffer)


REFUSED = {
    "flush_every": ({"flush_every": 0}, "flush_every is 0: it must be a number of seconds above 0"),
    "directory": ({"directory": 3}, "directory is 3: it must be the path of a folder"),
    "a near name": ({"direcotry": 3}, "direcotry is not an argument of .*; did you mean 'directory'?"),
    "no near name": ({"xyz": 3}, "xyz is not an argument of .*; choose one of .*'directory'"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_wrong_arguments_are_refused_before_a_folder_is_made(kind, wrong, tmp_path: Path):
    arguments, message = REFUSED[wrong]

    with pytest.raises(InvalidSettingsError, match=message):
        kind.make(**{"directory": tmp_path / "replay"} | arguments)
    assert [] == list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_used_is_refused(kind, tmp_path: Path):
    buffer = kind.filled(directory=tmp_path)

    with pytest.raises(
        IncompatibleError,
        match=r"is being written by process .*: one process may .*close that one \(a buffer by its memory",
    ):
        kind.make(directory=tmp_path)
    buffer.memory.close()
    with pytest.raises(IncompatibleError, match=r"storage is 'raw': the memory in .* has 'packed'"):
        kind.make(directory=tmp_path, storage="raw")
    for newest in files_of_newest_commit(tmp_path):
        newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(DamagedDataError, match=newest.stem):
        kind.make(directory=tmp_path)


def trained(folder, steps=60, **settings):
    """Return a DQN with a plain Dict buffer, in a folder if one is given, that was saved and loaded on the way."""

    def make_env():
        return make_vec_env(lambda: BitFlippingEnv(4, continuous=False), n_envs=2, seed=0)

    model = DQN("MultiInputPolicy", make_env(), buffer_size=200, learning_starts=20, seed=1, device="cpu", **settings)
    callback = CheckpointCallback(15, folder / "checkpoints", save_replay_buffer=True)
    model.learn(steps, callback=callback)
    model.save(folder / "model")
    model.save_replay_buffer(folder / "buffer")
    if hasattr(model.replay_buffer, "memory"):
        model.replay_buffer.memory.close()
    with warnings.catch_warnings(record=True, action="always") as warned:
        model = DQN.load(folder / "model", env=make_env(), seed=2)
    resuming = [each.filename for each in warned if "the buffer resumes it" in str(each.message)]
    assert [__file__] * ("replay_buffer_kwargs" in settings) == resuming
    model.load_replay_buffer(folder / "buffer")
    model.learn(steps, reset_num_timesteps=False)
    return model


def test_a_model_of_stable_baselines3_is_saved_and_loaded_with_its_folder(tmp_path: Path):
    settings = {"replay_buffer_class": sb3.DictReplayBuffer, "replay_buffer_kwargs": {"directory": tmp_path / "replay"}}

    theirs, ours = trained(tmp_path / "theirs"), trained(tmp_path / "ours", **settings)

    assert_same_weights(theirs, ours)
    assert tmp_path / "replay" == ours.replay_buffer.memory.directory
    assert theirs.replay_buffer.pos == ours.replay_buffer.pos
    (oldest, *_) = sorted((tmp_path / "ours" / "checkpoints").glob("*replay_buffer*"))
    refusal = r"with generation \d+ of .*, which now has generation \d+ .*: only the newest stays"
    with pytest.raises(IncompatibleError, match=refusal), oldest.open("rb") as file:
        ours.load_replay_buffer(file)
    ours.replay_buffer.memory.close()
    without = DQN.load(tmp_path / "ours" / "model", replay_buffer_kwargs={})  # only to play
    assert without.replay_buffer.memory.directory is None

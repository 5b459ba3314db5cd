"""Files of D4RL, d3rlpy and NumPy are imported and exported without loss, and refused where they cannot be."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st

from framestow import FrameSpec, ReplayMemory, Summed
from framestow.errors import DamagedDataError, FramestowError, InvalidSettingsError, InvalidStepError
from framestow.frames.observation_spec import map_arrays
from framestow.offline import ArrayData, export_arrays, from_stable_baselines3
from framestow.replay.settings.observation_layout import ObservationLayout
from framestow.storage.files.writer_lock import LOCK
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, SPACES, AnyPlay, assert_same, row_of
from oracles.ctrl_c import ctrl_c_at_line
from oracles.small_plays import SmallPlay, small_plays

h5py = pytest.importorskip("h5py", reason='h5py is not installed; run: pip install "framestow[offline]"')

FILES = {"d4rl": "made.hdf5", "d3rlpy": "made.h5", "npz": "made.npz"}
STEPS = {"observations": (6, 5), "actions": (6,), "rewards": (6,), "terminals": (6,), "timeouts": (6,)}


def imported(path: Path, **choice) -> ReplayMemory:
    data = ArrayData.open(path, **choice)
    settings = {"discount": DISCOUNT, "seed": 0} | data.settings
    memory = ReplayMemory(data.num_steps, data.observation_space, data.action_space, **settings)
    transferred = data.import_into(memory)
    memory.inner.parts.check()
    assert len(memory) == transferred.transitions == data.num_steps
    return memory


def read(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file as its users read them."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


def write(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file.create_dataset(name, data=array)
    return path


def flat_steps() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 3, shape).astype(np.float32) for name, shape in STEPS.items()}
    return arrays | {"actions": arrays["actions"].astype(int), "terminals": np.eye(6)[3], "timeouts": np.eye(6)[5]}


@settings(max_examples=12)
@given(st.sampled_from(list(SPACES)), st.sampled_from(list(FILES)), st.integers(0, 99))
def test_any_play_is_written_as_played_and_comes_back_the_same(space: str, layout: str, seed: int):
    memory = ReplayMemory(1000, SPACES[space], NUM_ACTIONS, num_envs=2, discount=DISCOUNT, extras=EXTRAS, seed=0)
    play = AnyPlay(memory, memory.inner.settings.layout, seed, mixes=True).play(40)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, FILES[layout])
        if space == "dict":
            with pytest.raises(InvalidSettingsError, match="export it to Minari"):
                export_arrays(memory, path, layout)
            assert not list(Path(scratch).iterdir())
            return
        transferred = export_arrays(memory, path, layout)
        again, arrays = imported(path), read(path)

    steps = [play.steps[number] for numbers in play.by_env for number in numbers]
    assert (len(steps), len(play.by_episode)) == (transferred.transitions, transferred.episodes)
    batch = again.get(np.arange(len(steps)))
    for row, step in enumerate(steps):
        for name, given_one in (("observation", step.observation), ("next_observation", step.next_observation)):
            assert_same(given_one, row_of(getattr(batch, name), row))
            if layout != "d3rlpy":
                assert_same(given_one, arrays[f"{name}s"][row])
        is_last = step.offset == len(play.by_episode[step.env_id, step.episode]) - 1
        is_marked = layout != "d3rlpy" and is_last and not step.terminated
        expected = step.action, step.reward, step.terminated, step.truncated or is_marked
        assert expected == (batch.action[row], batch.reward[row], batch.terminated[row], batch.truncated[row])
    assert batch.extras["number"].tolist() == [number for numbers in play.by_env for number in numbers]


ACTIONS = {
    "Discrete": (Discrete(6), 5),
    "another start": (Discrete(6, start=-3), -3),
    "MultiDiscrete": (MultiDiscrete([3, 4]), [2, 3]),
    "one of MultiDiscrete": (MultiDiscrete([7]), [6]),
    "MultiBinary": (MultiBinary(3), [0, 1, 1]),
    "Box": (Box(-1, 1, (2,), np.float64), [0.1, 0.2]),
}
KEPT = {"log_prob": np.float32, "is_liked": np.bool_, "goal": (np.int16, (2, 3)), "cost": Summed((np.float32, (2,)))}


@pytest.mark.parametrize("layout", FILES)
@pytest.mark.parametrize("kind", ACTIONS)
def test_a_file_keeps_discount_n_step_action_space_and_extras(kind: str, layout: str, tmp_path: Path):
    space, action = ACTIONS[kind]
    memory = ReplayMemory(100, FrameSpec((3,)), space, n_step=3, discount=0.9, extras=KEPT, seed=0)
    for step in range(7):
        extras = {"log_prob": -step, "is_liked": step == 2, "goal": np.full((2, 3), step, np.int16), "cost": [step, 1]}
        row = np.full((2, 3), step, np.uint8)
        memory.add(row[0], action, step, row[1] + 1, step == 6, False, extras=extras)

    export_arrays(memory, tmp_path / FILES[layout], layout)
    again = imported(tmp_path / FILES[layout])

    assert (again.discount, again.n_step) == (0.9, 3)
    assert memory.inner.settings.action == again.inner.settings.action
    assert memory.inner.settings.extras == again.inner.settings.extras
    [old], [new] = memory.episodes(), again.episodes()
    for name in KEPT:
        np.testing.assert_array_equal(old.extras[name], new.extras[name])
    np.testing.assert_array_equal(old.actions, new.actions)
    before, after = memory.get(np.arange(7)), again.get(np.arange(7))
    assert before.reward.tolist() == after.reward.tolist()
    assert before.extras["cost"].tolist() == after.extras["cost"].tolist()


def test_a_memory_may_have_fewer_extras_than_the_file_and_no_other(tmp_path: Path):
    memory = ReplayMemory(100, FrameSpec((3,)), 4, extras=KEPT, seed=0)
    extras = {"log_prob": -1, "is_liked": True, "goal": np.zeros((2, 3), np.int16), "cost": [0, 0]}
    memory.add(np.zeros(3, np.uint8), 0, 0, np.zeros(3, np.uint8), True, False, extras=extras)
    export_arrays(memory, tmp_path / "made.npz", "npz")
    data = ArrayData.open(tmp_path / "made.npz")

    fewer = ReplayMemory(100, FrameSpec((3,)), 4, extras={"log_prob": np.float32})
    [note] = data.import_into(fewer).notes
    other = ReplayMemory(100, FrameSpec((3,)), 4, extras={"log_prob": np.float64})
    with pytest.raises(InvalidSettingsError, match=r"memory has the extra log_prob float64: .*made.npz has cost"):
        data.import_into(other)

    assert note == "extras are left out, which the memory does not have: cost float32 2, goal int16 2x3, is_liked bool"
    assert [-1.0] == fewer.get([0]).extras["log_prob"].tolist()
    assert not len(other)


WRONG_TEXTS = {
    "no JSON": "{",
    "no discount": "{}",
    "a discount of 2": json.dumps({"discount": 2, "n_step": 1, "action_space": None, "extras": {}}),
    "a list": "[]",
    "an action of text": json.dumps(
        {"discount": None, "n_step": None, "action_space": {"shape": [1], "dtype": "object"}, "extras": {}}
    ),
    "a large action": json.dumps(
        {"discount": None, "n_step": None, "action_space": {"shape": [10**9], "dtype": "int8"}, "extras": {}}
    ),
    "an extra that is not there": json.dumps(
        {"discount": None, "n_step": None, "action_space": None, "extras": {"cost": ["float32", []]}}
    ),
    "an action of another shape": json.dumps(
        {"discount": None, "n_step": None, "action_space": {"shape": [2], "dtype": "float32"}, "extras": {}}
    ),
}


@pytest.mark.parametrize("file", ["made.npz", "made.hdf5"])
@pytest.mark.parametrize("name", WRONG_TEXTS)
def test_a_file_that_says_what_no_memory_has_is_refused(name: str, file: str, tmp_path: Path):
    text = WRONG_TEXTS[name]
    arrays = flat_steps()
    if file.endswith("npz"):
        arrays["framestow"] = np.frombuffer(text.encode(), np.uint8)
    path = write(tmp_path / file, arrays)
    if file.endswith("hdf5"):
        with h5py.File(path, "a") as opened:
            opened.attrs["framestow"] = text

    with pytest.raises(DamagedDataError, match=rf"{re.escape(str(path))}.*; make the file again"):
        ArrayData.open(path)


def test_d3rlpy_has_an_array_for_each_episode_and_each_part_of_a_tuple(tmp_path: Path):
    space = (SPACES["one picture"], SPACES["vector"])
    memory = ReplayMemory(100, space, NUM_ACTIONS, seed=0, extras=EXTRAS, discount=DISCOUNT)
    play = AnyPlay(memory, ObservationLayout.of_space(space), seed=1).play(30)

    export_arrays(memory, tmp_path / "made.h5", "d3rlpy")

    arrays = read(tmp_path / "made.h5")
    assert len(play.by_episode) == arrays["num_episodes"]
    assert arrays["version"] == b"2.1"
    for number, numbers in enumerate(play.by_episode.values()):
        steps = [play.steps[step] for step in numbers]
        for part in range(2):
            np.testing.assert_array_equal(
                [step.observation[part] for step in steps], arrays[f"observations_{number}_{part}"]
            )
        assert [[step.action] for step in steps] == arrays[f"actions_{number}"].tolist()
        assert steps[-1].terminated == arrays[f"terminated_{number}"]
    batch = imported(tmp_path / "made.h5").get(np.arange(30))
    for row, step in enumerate(play.steps):
        assert_same(step.observation, row_of(batch.observation, row))
        assert_same(step.next_observation, row_of(batch.next_observation, row))


@settings(max_examples=20)
@given(small_plays(max_envs=1), st.sampled_from(["d4rl", "v1", "npz", "v2"]))
def test_without_next_observations_each_next_row_has_them_and_the_last_of_a_cut_off_episode_is_left_out(
    small_play: SmallPlay, form: str
):
    episodes = small_play.recorded().episodes[0]
    with tempfile.TemporaryDirectory() as scratch:
        path = write(Path(scratch, "made.npz" if form == "npz" else "made.h5"), as_others_write(episodes, form))
        expected = []
        for number, episode in enumerate(episodes):
            frames, last = episode.frames[:-1], len(episode.actions) - 1
            is_whole, truncated = episode.terminated[-1], episode.truncated[-1]
            if form in ("v1", "v2"):
                truncated = not is_whole
            elif not (is_whole or truncated) and number < len(episodes) - 1:
                return  # a file with a row for each step cannot tell the two episodes apart
            for step in range(last + is_whole):
                after = np.zeros_like(frames[0]) if step == last else frames[step + 1]
                ends = step == last, truncated and step == last - (not is_whole)
                expected.append((frames[step], episode.actions[step], episode.rewards[step], after, *ends))
        if not expected:
            with pytest.raises(InvalidSettingsError, match="no step can be imported: last steps of episodes"):
                ArrayData.open(path)
            return
        memory, data = imported(path), ArrayData.open(path)

    batch = memory.get(np.arange(len(expected)))
    fields = batch.observation, batch.action, batch.reward, batch.next_observation, batch.terminated, batch.truncated
    for row, step in enumerate(expected):
        for given_one, found in zip(step, fields, strict=True):
            np.testing.assert_array_equal(given_one, found[row])
    assert sum(data.left_out.values()) == sum(len(episode.actions) for episode in episodes) - len(expected)


def as_others_write(episodes, form: str) -> dict[str, np.ndarray]:
    """Return the arrays of episodes as D4RL and d3rlpy write them."""
    if form == "v2":
        arrays = {"num_episodes": np.array(len(episodes)), "columns": np.array([b"observations"])}
        for number, episode in enumerate(episodes):
            arrays[f"observations_{number}"] = np.stack(episode.frames[:-1])
            arrays[f"actions_{number}"] = np.stack(episode.actions)[:, None]
            arrays[f"rewards_{number}"] = np.array(episode.rewards)[:, None]
            arrays[f"terminated_{number}"] = np.array(episode.terminated[-1])
        return arrays
    lists = {
        "observations": [frame for episode in episodes for frame in episode.frames[:-1]],
        "actions": [action for episode in episodes for action in episode.actions],
        "rewards": [reward for episode in episodes for reward in episode.rewards],
        "terminals": [flag for episode in episodes for flag in episode.terminated],
    }
    ends = [is_last for episode in episodes for is_last in np.arange(len(episode.actions)) == len(episode.actions) - 1]
    timeouts = [flag for episode in episodes for flag in episode.truncated]
    lists |= {"episode_terminals": ends} if form == "v1" else {"timeouts": timeouts}
    return {name: np.array(values) for name, values in lists.items()}


def test_a_file_without_timeouts_says_that_episodes_may_be_joined(tmp_path: Path):
    arrays = flat_steps()
    del arrays["timeouts"]

    data = ArrayData.open(write(tmp_path / "made.hdf5", arrays))

    assert "where an episode ran out of time" in data.notes[0]
    assert data.num_steps == 5


@pytest.mark.parametrize("file", ["made.npz", "made.hdf5"])
def test_continuous_actions_and_numbers_of_other_byte_orders_keep_their_values(file: str, tmp_path: Path):
    arrays = flat_steps() | {"actions": np.random.default_rng(0).normal(size=(6, 2)).astype(">f4")}
    arrays |= {"observations": np.arange(6.0).astype(">f8"), "rewards": np.ones((6, 1)), "terminals": np.eye(6)[[3]].T}

    batch = imported(write(tmp_path / file, arrays)).get(np.arange(5))

    assert batch.observation.tolist() == [[0], [1], [2], [3], [4]]
    assert batch.next_observation.tolist() == [[1], [2], [3], [0], [5]]
    np.testing.assert_array_equal(arrays["actions"][:5], batch.action)
    assert batch.terminated.tolist() == [False] * 3 + [True, False]


def external_link(file: h5py.File, outside: Path) -> None:
    file["rewards"] = h5py.ExternalLink(str(outside), "rewards")


def soft_link(file: h5py.File, _: Path) -> None:
    file["rewards"] = h5py.SoftLink("/terminals")


def external_storage(file: h5py.File, outside: Path) -> None:
    file.create_dataset("rewards", (6,), "f8", external=[(str(outside), 0, 48)])


def virtual(file: h5py.File, outside: Path) -> None:
    layout = h5py.VirtualLayout((6,), "f8")
    layout[:] = h5py.VirtualSource(str(outside), "rewards", (6,))
    file.create_virtual_dataset("rewards", layout)


def bytes_from_nothing(file: h5py.File, _: Path) -> None:
    file.create_dataset("rewards", (10**12,), "f8", chunks=(100,))


def large_chunks(file: h5py.File, _: Path) -> None:
    file.create_dataset("rewards", (10**7,), "f8", chunks=(10**7,), compression="gzip")[:1] = 0


def other_filter(file: h5py.File, _: Path) -> None:
    file.create_dataset("rewards", data=np.zeros(6), chunks=(6,), scaleoffset=4)


def group(file: h5py.File, _: Path) -> None:
    file.create_group("rewards")


def text(file: h5py.File, _: Path) -> None:
    file["rewards"] = ["a"] * 6


def fewer(file: h5py.File, _: Path) -> None:
    file["rewards"] = np.zeros(5)


@pytest.mark.parametrize(
    "put",
    [
        external_link,
        soft_link,
        external_storage,
        virtual,
        bytes_from_nothing,
        large_chunks,
        other_filter,
        group,
        text,
        fewer,
    ],
)
def test_a_hostile_array_is_refused_by_name_and_nothing_outside_is_read(put, tmp_path: Path):
    outside = write(tmp_path / "secret.h5", {"rewards": np.ones(6)})
    path = write(tmp_path / "made.hdf5", flat_steps())
    with h5py.File(path, "a") as file:
        del file["rewards"]
        put(file, outside)

    with pytest.raises(DamagedDataError, match=r"made\.hdf5: .*rewards.*; "):
        ArrayData.open(path)


def test_no_object_of_an_npz_file_is_unpickled_and_no_size_is_believed(tmp_path: Path):
    path = tmp_path / "made.npz"
    np.savez(path, **flat_steps() | {"rewards": np.array([{}] * 6, object)})
    with pytest.raises(DamagedDataError, match=r"rewards: it cannot be read: .*object"):
        ArrayData.open(path)

    np.savez(path, **flat_steps() | {"observations": np.asfortranarray(np.zeros((6, 5)))})
    with pytest.raises(DamagedDataError, match="observations: it cannot be read: it is in Fortran order"):
        ArrayData.open(path)

    np.savez(path, **flat_steps())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"'shape': (6, 5)", b"'shape': (6, 9)"))
    with pytest.raises(DamagedDataError, match="observations: it cannot be read"):
        ArrayData.open(path)


@pytest.mark.parametrize(
    "shape", [b"(-6, 5)", b"(-6, -5)", b"(-1,)", b"(" + b"1, " * 63 + b")", b"(" + b"1, " * 33 + b")"]
)
def test_no_shape_of_an_npz_file_is_believed_that_no_array_can_have(shape: bytes, tmp_path: Path):
    path = tmp_path / "made.npz"
    np.savez(path, **flat_steps())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + b", }"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    members["observations.npy"] = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(120)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)

    with pytest.raises(DamagedDataError, match=r"made\.npz: observations: it cannot be read: "):
        ArrayData.open(path)


@pytest.mark.parametrize("file", ["made.npz", "made.hdf5"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.98])
def test_a_file_that_was_cut_short_or_is_another_is_refused(file: str, share: float, tmp_path: Path):
    path = write(tmp_path / file, flat_steps())
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])

    with pytest.raises(DamagedDataError, match=re.escape(str(path))):
        ArrayData.open(path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"rewards": np.array([0, 0, 0, 0, np.nan, 0])},
            InvalidStepError,
            "episode 1: from its row 0 on, reward is nan",
        ),
        ({"actions": np.array([0, 0, -1, 0, 0, 0])}, InvalidStepError, "episode 0: from its row 0 on, action is -1"),
        ({"terminals": np.full(6, 0.5)}, InvalidStepError, "made.npz: terminals is 0.5"),
        ({"terminals": np.zeros((6, 2))}, DamagedDataError, "terminals has shape (6, 2): a row must have one flag"),
        ({"timeouts": np.zeros((6, 2))}, DamagedDataError, "timeouts has shape (6, 2): a row must have one flag"),
        ({"actions": np.zeros((6, 0))}, DamagedDataError, "actions: it cannot be read: its shape is (6, 0): a row has"),
        ({"timeouts": np.zeros(5)}, DamagedDataError, "terminals and timeouts have different lengths"),
        ({"next_observations": np.zeros((6, 4), np.float32)}, DamagedDataError, "next observations must be as the"),
        ({name: np.zeros((0, *shape[1:])) for name, shape in STEPS.items()}, DamagedDataError, "lengths, or none"),
        ({"num_episodes": np.array(2)}, DamagedDataError, "there is no terminated_0"),
        ({name: np.zeros(4) for name in ("terminals", "timeouts")}, DamagedDataError, "'terminals': 4"),
        ({"num_episodes": np.array(-1)}, InvalidSettingsError, "num_episodes is -1"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(change, error, message: str, tmp_path: Path):
    path = write(tmp_path / "made.npz", flat_steps() | change)

    with pytest.raises(error, match=re.escape(message)):
        ArrayData.open(path)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="Linux lists a process's open files there")
@pytest.mark.parametrize("file", ["made.npz", "made.hdf5"])
def test_a_file_is_closed_after_it_was_opened_and_after_an_import(file: str, tmp_path: Path):
    path = write(tmp_path / file, flat_steps())
    opened = []
    data = ArrayData.open(path)
    opened += [link.resolve() for link in Path("/proc/self/fd").iterdir()]
    data.import_into(ReplayMemory(6, data.observation_space, data.action_space))
    opened += [link.resolve() for link in Path("/proc/self/fd").iterdir()]

    assert opened
    assert path.resolve() not in opened


def test_other_arrays_are_refused_with_their_names(tmp_path: Path):
    with pytest.raises(
        InvalidSettingsError, match=r"no actions and no rewards.*but the arrays observations, terminals"
    ):
        ArrayData.open(write(tmp_path / "made.npz", {"observations": np.zeros(3), "terminals": np.zeros(3)}))
    with pytest.raises(InvalidSettingsError, match=r"d3rlpy 2\.0 wrote it"):
        ArrayData.open(write(tmp_path / "old.h5", {"columns": np.zeros(1), "total_size": np.zeros(1)}))
    with pytest.raises(InvalidSettingsError, match="there is no such file"):
        ArrayData.open(tmp_path / "nowhere.hdf5")


def test_bad_episodes_are_named_and_left_out_on_request(tmp_path: Path):
    episodes = SmallPlay(tuple((3, "terminated") for _ in range(5))).recorded().episodes[0]
    arrays = as_others_write(episodes, "v2")
    arrays["rewards_1"][2] = np.inf
    arrays["observations_3"] = arrays["observations_3"][:, :2]
    del arrays["actions_4"]
    path = write(tmp_path / "made.h5", arrays)

    with pytest.raises(
        InvalidStepError, match=r"episode 1: .*reward is inf.*; or leave such episodes out: skip_bad=True"
    ):
        ArrayData.open(path)
    data = ArrayData.open(path, skip_bad=True)

    assert data.left_out == {"episodes that cannot be imported": 3}
    assert "episodes that were left out: 1, 3, 4. The first: from its row 0 on, reward is inf" in data.notes[-1]
    memory = imported(path, skip_bad=True)
    np.testing.assert_array_equal(
        [*episodes[0].frames[:3], *episodes[2].frames[:3]], memory.get(np.arange(6)).observation
    )


def test_a_damaged_chunk_is_found_and_its_episode_left_out_on_request(tmp_path: Path):
    path = tmp_path / "made.hdf5"
    observations = np.random.default_rng(0).integers(0, 255, (6, 100))
    write(path, {name: array for name, array in flat_steps().items() if name != "observations"})
    with h5py.File(path, "a") as file:
        dataset = file.create_dataset("observations", data=observations, chunks=(1, 100), compression="gzip")
        place = dataset.id.get_chunk_info(1).byte_offset
    content = bytearray(path.read_bytes())
    content[place : place + 8] = bytes(8)
    path.write_bytes(content)

    data = ArrayData.open(path)
    with pytest.raises(DamagedDataError, match="observations: it cannot be read"):
        data.import_into(ReplayMemory(6, data.observation_space, data.action_space))

    assert len(imported(path, skip_bad=True)) == 1  # of the episode of the last two rows


def test_an_import_takes_some_mib_however_large_the_file(tmp_path: Path):
    path = tmp_path / "made.npz"
    count = 2500
    arrays = {name: np.zeros(count, np.uint8) for name in ("actions", "rewards", "terminals", "timeouts")}
    np.savez_compressed(path, observations=np.zeros((count, 4, 84, 84), np.uint8), **arrays)
    data = ArrayData.open(path)
    memory = ReplayMemory(count, data.observation_space, data.action_space)

    tracemalloc.start()
    data.import_into(memory)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert data.array_bytes > 70e6
    assert peak < 40e6


FILLS_THE_DISK = """
import sys
from pathlib import Path
from framestow import ReplayMemory
from framestow.offline import export_arrays
from training.full_disk import no_file_larger_than

memory, folder = ReplayMemory.load(sys.argv[1]), Path(sys.argv[2])
for name, layout in (("made.hdf5", "d4rl"), ("made.h5", "d3rlpy"), ("made.npz", "npz")):
    for num_bytes in (0, 1_000, 10_000, 40_000, 90_000):
        try:
            with no_file_larger_than(num_bytes):
                export_arrays(memory, folder / name, layout)
        except OSError as error:
            assert str(folder / name) in str(error), error
        else:
            raise AssertionError(f"{name} has {(folder / name).stat().st_size} bytes")
    export_arrays(memory, folder / name, layout)
"""


def test_a_full_disk_ends_an_export_with_an_error_that_names_the_file(tmp_path: Path):
    memory = ReplayMemory(60, FrameSpec((84, 84)), NUM_ACTIONS, stack=1)
    noise = np.random.default_rng(0).integers(0, 256, (61, 1, 84, 84), np.uint8)
    memory.begin(noise[0])
    for frame in noise[1:]:
        memory.append([0], [0.0], [False], [False], frame)
    memory.save(tmp_path / "memory")
    out = tmp_path / "out"

    ended = subprocess.run(
        [sys.executable, "-c", FILLS_THE_DISK, tmp_path / "memory", out],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert (ended.returncode, ended.stderr[-2000:]) == (0, "")
    assert {*FILES.values()} == {path.name for path in out.iterdir()}


@pytest.mark.parametrize("layout", FILES)
def test_nothing_remains_after_a_ctrl_c_during_an_export(layout: str, tmp_path: Path):
    memory = SmallPlay(((3, "terminated"), (2, "cut"))).recorded().memory
    for number in itertools.chain(range(1, 400, 41), range(400, 4000, 411)):
        try:
            with ctrl_c_at_line(number):
                export_arrays(memory, tmp_path / "out" / FILES[layout], layout)
        except KeyboardInterrupt:
            left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != LOCK]
            assert not left, f"Ctrl-C at line {number}"
        else:
            break
    assert len(imported(tmp_path / "out" / FILES[layout])) == 5


PART = np.zeros(3, np.uint8)


def of_tuple(first) -> ReplayMemory:
    memory = ReplayMemory(9, map_arrays(lambda part: FrameSpec(part.shape), (first, PART)), 4)
    memory.add((first, PART), 1, 0.0, (first, PART), True, False)
    return memory


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"path": "made.txt", "layout": "npz"}, "a file of the layout npz ends with .npz; give such a name"),
        ({"path": "made.npz", "layout": "d3rlpy"}, "a file of the layout d3rlpy ends with .hdf5 or .h5 or .hdf; give"),
        ({"path": "own.xyz"}, "path is own.xyz: a file of the layout d4rl ends with .hdf5 or .h5 or .hdf; give such"),
        ({"path": "own"}, "path is own: a file of the layout d4rl ends with"),
        ({"memory": of_tuple((PART,)), "layout": "d3rlpy"}, "a tuple: d3rlpy has one array for each part; export it"),
        ({"memory": of_tuple({"a": PART}), "layout": "d3rlpy"}, "a tuple: d3rlpy has one array for each part; export"),
        ({"memory": of_tuple({"a": PART})}, "a tuple: d4rl has one array for them; export it to Minari"),
        ({"layout": "hdf5"}, "layout is 'hdf5': it must be one of"),
        ({"memory": ReplayMemory(9, SPACES["vector"], 4)}, "the memory has no transition"),
        ({"memory": None}, "memory is None"),
        ({"path": "there.hdf5"}, "the path exists, and nothing is overwritten"),
    ],
)
def test_an_export_that_cannot_be_is_refused_before_anything_is_written(
    arguments: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("there.hdf5").touch()
    memory = SmallPlay(((3, "terminated"),)).recorded().memory

    with pytest.raises(FramestowError, match=re.escape(message)):
        export_arrays(**{"memory": memory, "path": "new.hdf5"} | arguments)

    assert ["there.hdf5"] == [path.name for path in tmp_path.iterdir()]


def test_a_written_npz_file_is_compressed_and_read_by_numpy_alone(tmp_path: Path):
    export_arrays(SmallPlay(((9, "terminated"),)).recorded().memory, tmp_path / "made.npz", "npz")

    with zipfile.ZipFile(tmp_path / "made.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_DEFLATED}
        assert archive.testzip() is None
    assert sorted(np.load(tmp_path / "made.npz")) == sorted([*STEPS, "framestow", "next_observations"])


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("num_steps", [7, 25])
@pytest.mark.parametrize("kind", ["ReplayBuffer", "DictReplayBuffer", "framestow"])
def test_a_buffer_of_stable_baselines3_becomes_a_memory_with_its_transitions(
    kind: str, num_steps: int, optimized: bool
):
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    from framestow.integrations import stable_baselines3  # noqa: PLC0415

    is_dict = kind == "DictReplayBuffer"
    if is_dict and optimized:
        return
    make = stable_baselines3.ReplayBuffer if kind == "framestow" else getattr(buffers, kind)
    space = SPACES["dict" if is_dict else "last axis"]
    options = {"optimize_memory_usage": optimized, "handle_timeout_termination": not optimized}
    from gymnasium.spaces import Box  # noqa: PLC0415

    buffer = make(20, space, Box(-1, 1, (2,), np.float32), "cpu", n_envs=2, **options)
    space.seed(0)
    shown = [space.sample() for _ in range(2)]
    rng = np.random.default_rng(0)

    def stacked(rows):
        return map_arrays(lambda *parts: np.stack(parts), rows[0], *rows[1:])

    for _ in range(num_steps):
        after, done = [space.sample() for _ in range(2)], rng.random(2) < 0.3
        infos = [{"TimeLimit.truncated": bool(end and rng.random() < 0.5)} for end in done]
        actions = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        buffer.add(stacked(shown), stacked(after), actions, rng.normal(size=2), done, infos)
        shown = [space.sample() if end else one for one, end in zip(after, done, strict=True)]

    memory = from_stable_baselines3(buffer, seed=0)

    is_full, size = num_steps >= 10, 10
    left_out = int(optimized and is_full and kind != "framestow")
    rows = [(num_steps - min(num_steps, size) + row) % size for row in range(left_out, min(num_steps, size))]
    assert len(memory) == 2 * len(rows)
    batch = memory.get(np.arange(len(memory)))
    for place, (row, env_id) in enumerate(itertools.product(rows, range(2))):
        after_row = (row + 1) % size if optimized and kind != "framestow" else row
        after = buffer.observations if optimized and kind != "framestow" else buffer.next_observations
        expected = map_arrays(lambda part, at=(row, env_id): np.asarray(part[at]), buffer.observations)
        map_arrays(np.testing.assert_array_equal, expected, row_of(batch.observation, place))
        expected = map_arrays(lambda part, at=(after_row, env_id): np.asarray(part[at]), after)
        map_arrays(np.testing.assert_array_equal, expected, row_of(batch.next_observation, place))
        np.testing.assert_array_equal(buffer.actions[row, env_id], batch.action[place])
        assert buffer.rewards[row, env_id] == batch.reward[place]
        assert bool(buffer.timeouts[row, env_id]) == batch.truncated[place]
        assert bool(buffer.dones[row, env_id]) == batch.truncated[place] or batch.terminated[place]


def test_what_is_no_buffer_of_stable_baselines3_or_an_empty_one_is_refused():
    with pytest.raises(InvalidSettingsError, match="buffer is 3: it must be a replay buffer of Stable-Baselines3"):
        from_stable_baselines3(3)
    buffers = pytest.importorskip("stable_baselines3.common.buffers")
    from gymnasium.spaces import Discrete  # noqa: PLC0415

    with pytest.raises(InvalidSettingsError, match="buffer is empty"):
        from_stable_baselines3(buffers.ReplayBuffer(4, SPACES["vector"], Discrete(2), "cpu"))

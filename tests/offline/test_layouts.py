"""Episodes of DrQ-v2, DreamerV1 and V2, v-d4rl and robomimic come in by their own conventions, or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from framestow import ReplayMemory
from framestow.cli import main
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.offline import ArrayData, arrays
from framestow.offline.layouts import LAYOUTS, LayoutName
from oracles import episode_files
from oracles.episode_files import ACTION, Played, number_of, picture

h5py = pytest.importorskip("h5py", reason='h5py is not installed; run: pip install "framestow[offline]"')

LENGTHS = 5, 1, 9, 3, 4, 2, 6, 1, 3, 2, 7, 2  # the numbers of twelve episodes have one digit or two
PLAYED = Played(
    tuple((length, ("terminated", "truncated", "cut")[number % 3]) for number, length in enumerate(LENGTHS))
)
BY_FLAG = {"terminated": (True, False), "truncated": (False, True), "cut": (False, False)}
BY_DISCOUNT = BY_FLAG | {"cut": (False, True)}
ALL_TRUNCATED = dict.fromkeys(BY_FLAG, (False, True))
OF_EPISODES = {  # by writer: the flags of each kind of end, and the shape of an observation
    "drq_v2": (ALL_TRUNCATED, (9, 32, 32)),
    "dreamer_v1": (BY_DISCOUNT, (8, 8, 3)),
    "dreamer_v2": (BY_FLAG, (8, 8, 3)),
    "v_d4rl": (BY_FLAG, (3, 8, 8)),
}


def imported(path: Path, **choice) -> tuple[ReplayMemory, ArrayData, list[str]]:
    data = ArrayData.open(path, **choice)
    memory = ReplayMemory(data.num_steps, data.observation_space, data.action_space, seed=0)
    result = data.import_into(memory)
    memory.inner.parts.check()
    assert len(memory) == result.transitions == data.num_steps
    return memory, data, result.notes


def assert_steps(memory: ReplayMemory, expected, show) -> None:
    """Compare each step; ``show(episode, row)`` is an observation."""
    batch = memory.get(memory.sampleable_indices())
    assert len(batch.index) == len(expected)
    for row, step in enumerate(expected):
        number = number_of(step.episode, step.step)
        assert ([number] * ACTION, number) == (batch.action[row].tolist(), batch.reward[row]), step
        assert (step.terminated, step.truncated) == (batch.terminated[row], batch.truncated[row]), step
        for observation, at in ((batch.observation, step.step), (batch.next_observation, step.step + 1)):
            shown = show(step.episode, at)
            found = (
                {key: part[row] for key, part in observation.items()} if isinstance(shown, dict) else observation[row]
            )
            np.testing.assert_equal(found, shown)


@pytest.mark.parametrize("kind", OF_EPISODES)
def test_every_step_has_the_action_and_reward_that_led_to_its_next_observation(kind, tmp_path):
    ends, shape = OF_EPISODES[kind]
    getattr(episode_files, kind)(PLAYED, tmp_path / "data")

    memory, data, notes = imported(tmp_path / "data", layout="episodes")

    assert_steps(memory, PLAYED.expected(ends), lambda episode, row: picture(episode, row, shape))
    assert (len(LENGTHS), sum(LENGTHS)) == (len(list(memory.episodes())), data.num_steps)
    assert any("no episode terminates" in note and "DrQ-v2" in note for note in notes) == (kind == "drq_v2")
    stacked = [note for note in notes if "stack_axis" in note]
    assert [bool(re.search(r"\(9, 32, 32\) are taken for stacks of 3 frames", note)) for note in stacked] == [True] * (
        kind == "drq_v2"
    )


@pytest.mark.parametrize("kind", OF_EPISODES)
def test_without_a_layout_the_error_names_both_conventions_and_the_layouts(kind, tmp_path):
    getattr(episode_files, kind)(PLAYED, tmp_path / "data")
    one = min((tmp_path / "data").iterdir())

    for path in (tmp_path / "data", one):
        with pytest.raises(InvalidSettingsError, match=re.escape(str(path))) as raised:
            ArrayData.open(path)

        said = str(raised.value)
        for words in ("led to observation t", "row 0 zeros", "DrQ-v2", "taken at observation t", "DreamerV3"):
            assert words in said
        assert "--layout (episodes: a folder" in said
        assert "robomimic: robomimic's HDF5" in said


def test_episodes_of_dreamer_v3_are_refused_with_the_reason(tmp_path):
    episode_files.dreamer_v3(PLAYED, tmp_path / "data")
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for number, path in enumerate(sorted((tmp_path / "data").iterdir())):
        (renamed / f"episode_{number}.npz").write_bytes(path.read_bytes())

    with pytest.raises(
        InvalidSettingsError, match="is one of DreamerV3's, whose files are chunks of steps: this layout"
    ):
        ArrayData.open(tmp_path / "data", layout="episodes")
    reason = r"row 0, the first of an episode, has the action \[1.0, 1.0, 1.0\] and reward 0.0: this layout needs"
    with pytest.raises(InvalidSettingsError, match=reason) as raised:
        ArrayData.open(renamed, layout="episodes", skip_bad=True)
    assert "action taken at observation t (DreamerV3); if the data has the second, write it with" in str(raised.value)


def rewrite(path: Path, **changes) -> None:
    with np.load(path) as file:
        arrays = dict(file) | changes
    np.savez_compressed(path, **{name: values for name, values in arrays.items() if values is not None})


def flags(length: int, *rows: int) -> np.ndarray:
    return np.isin(np.arange(length), rows)


WRONG = {
    "a reward in row 0": ({"reward": np.arange(1, 7)}, "row 0, the first of an episode, has the action"),
    "is_first later": ({"is_first": flags(6, 0, 3)}, r"is_first is true at the rows \[0, 3\], and not at row 0 alone"),
    "no is_first": ({"is_first": flags(6)}, r"is_first is true at the rows \[\], and not at row 0 alone"),
    "an array of DreamerV3": ({"stepid": np.zeros((6, 20), np.uint8)}, "is one of DreamerV3's"),
}
BAD = {
    "is_last early": ({"is_last": flags(6, 2, 5)}, "is_last ends an episode at row 2, and rows up to 5 follow it"),
    "is_terminal early": ({"is_terminal": flags(6, 4)}, "is_terminal ends an episode at row 4"),
    "a discount of 0 early": ({"discount": np.array([1, 1, 0, 1, 1, 1.0])}, "discount ends an episode at row 2"),
    "a step type of 2 early": ({"step_type": np.array([0, 2, 1, 1, 1, 2])}, "is_last ends an episode at row 1"),
    "too few rewards": (
        {"reward": np.zeros(5)},
        r"reward has shape \(5,\): it must have one number for each of 6 rows",
    ),
    "two flags a row": ({"is_last": np.zeros((6, 2))}, "is_last has shape .*: it must have one number for each of 6"),
    "a reward of NaN": ({"reward": np.array([0, 1, np.nan, 1, 1, 1])}, "reward is nan"),
}


@pytest.mark.parametrize("name", WRONG | BAD)
def test_what_no_episode_of_this_convention_has_is_refused(name, tmp_path):
    changes, message = (WRONG | BAD)[name]
    episode_files.dreamer_v2(Played(((5, "truncated"), (5, "terminated"))), tmp_path / "data")
    first = min((tmp_path / "data").iterdir())
    rewrite(first, **changes)

    with pytest.raises(
        InvalidSettingsError if name in WRONG else (DamagedDataError, ValueError), match=message
    ) as raised:
        ArrayData.open(tmp_path / "data", layout="episodes")
    assert first.name in str(raised.value)
    if name in BAD:
        memory, _, notes = imported(tmp_path / "data", layout="episodes", skip_bad=True)
        assert 5 == len(memory)
        assert memory.get(memory.sampleable_indices()).reward.tolist() == [number_of(1, step) for step in range(5)]
        assert any(note.startswith("episodes that were left out: 0. The first: ") for note in notes)


def test_discounts_between_0_and_1_and_other_arrays_are_noted(tmp_path):
    episode_files.dreamer_v1(Played(((5, "terminated"), (4, "truncated"))), tmp_path / "data")
    first = min((tmp_path / "data").iterdir())
    rewrite(first, discount=np.array([1, 1, 0.9, 0.5, 1, 0]), health=np.zeros(6), depth=np.zeros((6, 8, 8)))

    memory, _, notes = imported(tmp_path / "data", layout="episodes")

    assert 9 == len(memory)
    assert any(note.startswith("2 rows have a discount between 0 and 1") for note in notes)
    assert any(note.startswith("arrays that are not imported: depth, health; keys=, --keys") for note in notes)


def test_keys_choose_the_observation(tmp_path):
    episode_files.dreamer_v2(Played(((5, "truncated"),)), tmp_path / "data")
    [path] = (tmp_path / "data").iterdir()
    rewrite(path, image=None, camera=np.zeros((6, 8, 8), np.uint8), joints=np.arange(12.0).reshape(6, 2))

    with pytest.raises(InvalidSettingsError, match=r"it has no observation and no image, but the arrays .*camera"):
        ArrayData.open(path, layout="episodes")
    with pytest.raises(InvalidSettingsError, match=r"it has no nothing, but the arrays .*choose those of an .* --keys"):
        ArrayData.open(path, layout="episodes", keys=["nothing"])
    alone, _, _ = imported(path, layout="episodes", keys=["joints"])
    both, _, _ = imported(path, layout="episodes", keys=["camera", "joints"])

    assert [8.0, 9.0] == alone.get([3]).next_observation[0].tolist()
    assert [8.0, 9.0] == both.get([3]).next_observation["joints"][0].tolist()
    assert (1, 8, 8) == both.get([3]).observation["camera"].shape


def test_hdf5_without_the_beginnings_of_episodes_is_refused(tmp_path):
    episode_files.v_d4rl(PLAYED, tmp_path / "data")
    for path in (tmp_path / "data").iterdir():
        with h5py.File(path, "a") as file:
            del file["step_type"]

    with pytest.raises(
        InvalidSettingsError, match="neither step_type nor is_first, which say where its episodes begin"
    ):
        ArrayData.open(tmp_path / "data", layout="episodes")


@pytest.mark.skipif(os.name != "posix", reason="a link needs rights on Windows")
def test_no_link_in_a_folder_of_episodes_is_followed(tmp_path):
    episode_files.drq_v2(PLAYED, tmp_path / "data")
    elsewhere = tmp_path / "elsewhere.npz"
    first = min((tmp_path / "data").iterdir())
    first.rename(elsewhere)
    first.symlink_to(elsewhere)

    with pytest.raises(DamagedDataError, match="it is a link, which may lead out of the folder; copy the file"):
        ArrayData.open(tmp_path / "data", layout="episodes")


def shown(episode: int, row: int) -> dict[str, np.ndarray]:
    return {"image": picture(episode, row, (8, 8, 3)), "joints": np.array([episode, row], np.float64)}


def test_demonstrations_of_robomimic_are_dicts_in_the_order_of_their_numbers(tmp_path):
    episode_files.robomimic(PLAYED, tmp_path / "demos.hdf5")

    memory, _, notes = imported(tmp_path / "demos.hdf5", layout="robomimic")

    assert_steps(memory, PLAYED.expected(BY_DISCOUNT), shown)
    assert any("4 flags in dones is imported as a termination" in note for note in notes)


def test_a_demonstration_goes_on_after_a_flag_in_dones_as_another_episode(tmp_path):
    episode_files.robomimic(Played(((6, "truncated"),)), tmp_path / "demos.hdf5", dones_at=(2, 3))

    memory, _, _ = imported(tmp_path / "demos.hdf5", layout="robomimic")

    assert [3, 1, 2] == [len(episode) for episode in memory.episodes()]
    assert [False, False, True, True, False, False] == memory.get(np.arange(6)).terminated.tolist()
    assert [False] * 5 + [True] == memory.get(np.arange(6)).truncated.tolist()


def test_without_next_obs_the_last_step_of_a_demonstration_is_left_out(tmp_path):
    episode_files.robomimic(Played(((4, "truncated"), (3, "terminated"))), tmp_path / "demos.hdf5", has_next=False)

    memory, data, _ = imported(tmp_path / "demos.hdf5", layout="robomimic", keys=["joints"])

    assert [3, 3] == [len(episode) for episode in memory.episodes()]
    assert [1] == list(data.left_out.values())
    assert [[0, 3], [0, 0]] == memory.get([2, 5]).next_observation["joints"].tolist()


def test_a_filter_key_chooses_demonstrations(tmp_path):
    episode_files.robomimic(PLAYED, tmp_path / "demos.hdf5")

    memory, _, notes = imported(tmp_path / "demos.hdf5", layout="robomimic", keys=["joints"], filter_key="even")

    assert sum(LENGTHS[::2]) == len(memory)
    assert any(note == "keys of the observations that are not imported: image" for note in notes)
    with pytest.raises(InvalidSettingsError, match="filter_key is 'odd': the file has even; give one of these, or"):
        ArrayData.open(tmp_path / "demos.hdf5", layout="robomimic", filter_key="odd")
    with pytest.raises(InvalidSettingsError, match="keys has 'sound': the observations have image, joints; use these"):
        ArrayData.open(tmp_path / "demos.hdf5", layout="robomimic", keys=["sound"])


LINKS = "data", "data/demo_1", "data/demo_1/obs", "data/demo_1/obs/image", "data/demo_1/actions", "mask/even"


@pytest.mark.parametrize("where", LINKS)
def test_a_link_at_any_level_of_a_demonstration_is_refused(where, tmp_path):
    episode_files.robomimic(Played(((4, "truncated"), (3, "terminated"))), tmp_path / "demos.hdf5")
    episode_files.robomimic(Played(((4, "truncated"), (3, "terminated"))), tmp_path / "other.hdf5")
    with h5py.File(tmp_path / "demos.hdf5", "a") as file:
        del file[where]
        file[where] = h5py.ExternalLink(str(tmp_path / "other.hdf5"), where)

    with pytest.raises(DamagedDataError, match="is a link; make the file again"):
        ArrayData.open(tmp_path / "demos.hdf5", layout="robomimic", filter_key="even" if "mask" in where else None)


NOT_READ = {
    "steps.npy": "one array of NumPy",
    "steps.pkl": "a pickle, which can run code",
    "video.mp4": "a video, which has no actions and rewards",
}


@pytest.mark.parametrize("name", NOT_READ)
def test_other_files_are_refused_with_what_they_are(name, tmp_path):
    (tmp_path / name).write_bytes(b"something")

    with pytest.raises(
        InvalidSettingsError, match=f"{name}: it is {NOT_READ[name]}; say what it is by layout=, --layo"
    ):
        ArrayData.open(tmp_path / name)


def test_a_folder_without_episodes_is_refused(tmp_path):
    (tmp_path / "notes.txt").touch()

    with pytest.raises(InvalidSettingsError, match=r"it is a folder of files with .txt, and nothing says how to read"):
        ArrayData.open(tmp_path)
    with pytest.raises(
        InvalidSettingsError, match=r"it has no file whose name ends with .npz, .hdf5, .h5; give the fo"
    ):
        ArrayData.open(tmp_path, layout="episodes")
    with pytest.raises(
        InvalidSettingsError, match="layout is 'rlds': it must be one of 'd4rl', 'd3rlpy', 'npz', 'epis"
    ):
        ArrayData.open(tmp_path, layout="rlds")


def test_a_folder_of_episodes_is_imported_by_the_command(tmp_path, capsys):
    episode_files.drq_v2(PLAYED, tmp_path / "buffer")

    command = ["import", "arrays", str(tmp_path / "buffer"), "--to", str(tmp_path / "store"), "--n-step", "3"]
    assert 2 == main(command)
    assert "row t may have the action and reward that led to observation t" in capsys.readouterr().err
    assert 0 == main([*command, "--layout", "episodes"])

    output = capsys.readouterr().out
    assert "45 transitions of 12 episodes in " in output
    assert "note: no episode terminates" in output
    assert "stack_axis" in output
    store = ReplayMemory.load(tmp_path / "store")
    assert (45, 3, ("buffer",)) == (len(store), store.n_step, store.inner.settings.labels)


def test_every_layout_has_a_reader_a_line_in_the_docstring_and_one_on_the_page():
    page = Path(__file__).parents[2] / "docs" / "libraries" / "logged-data.md"

    assert get_args(LayoutName) == tuple(LAYOUTS)
    for name, layout in LAYOUTS.items():
        assert layout.summary
        assert re.search(rf"^{name} +\S", arrays.__doc__, re.MULTILINE)
        assert name in page.read_text().lower()

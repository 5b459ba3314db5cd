"""Minari datasets are imported and exported without loss."""

from __future__ import annotations

import re
import sys
import tempfile
import tracemalloc
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import given, settings

from framestow import ReplayMemory
from framestow.errors import DamagedDataError, InvalidSettingsError, InvalidStepError, MissingExtraError
from framestow.frames.frame_spec import FrameSpec
from framestow.offline.minari import MinariData
from framestow.offline.minari_export import MinariDescription, export_minari
from framestow.offline.transfer import Transferred
from framestow.replay.settings.observation_layout import ObservationLayout
from oracles.any_play import DISCOUNT, EXTRAS, AnyPlay, assert_same, row_of
from oracles.bordered_steps import bordered_memory
from oracles.episode_lists import RecordedPlay
from oracles.small_plays import SmallPlay, small_plays

minari = pytest.importorskip("minari", reason='Minari is not installed; run: pip install "framestow[offline]"')
from minari.data_collector.episode_buffer import EpisodeBuffer  # noqa: E402
from minari.dataset.minari_storage import MinariStorage  # noqa: E402

PIXELS = Box(0, 255, (5, 3), np.uint8)


def dataset(folder: Path, episodes: list[dict], observations: Box = PIXELS, actions=None, **settings) -> Path:
    """Create a dataset with Minari only."""
    storage = MinariStorage.new(folder, observations, Discrete(6) if actions is None else actions, **settings)
    storage.update_metadata({"dataset_id": "made/by-minari-v0", "minari_version": minari.__version__})
    storage.update_episodes(EpisodeBuffer(**episode) for episode in episodes)
    return folder


def episode(length: int = 3, seed: int = 0, space: Box = PIXELS, terminated=True, truncated=False, **settings) -> dict:
    rng = np.random.default_rng(seed)
    last = np.arange(length) == length - 1
    shape = (length + 1, *space.shape)
    is_float = space.dtype.kind == "f"
    observations = rng.normal(size=shape) if is_float else rng.integers(1, 200, shape)
    return {
        "observations": observations.astype(space.dtype),
        "actions": rng.integers(0, 6, length),
        "rewards": rng.normal(size=length).astype(np.float32),
        "terminations": last & terminated,
        "truncations": last & truncated,
    } | settings


def imported(folder: Path | str, capacity: int = 1000, **choice) -> tuple[ReplayMemory, Transferred]:
    data = MinariData.open(folder, **choice)
    stack = 4 if data.stacks is None else data.stacks.depth
    memory = ReplayMemory(
        capacity, data.frame, data.action, stack=stack, stack_padding=data.stack_padding, seed=0, label=data.name
    )
    transferred = data.import_into(memory)
    memory.inner.parts.check()
    return memory, transferred


def exported(play: RecordedPlay, root: Path, **description) -> Path:
    export_minari(play.memory, root / "made/here-v0", MinariDescription("made/here-v0", **description))
    return root / "made/here-v0"


@settings(max_examples=12)
@given(small_plays())
def test_an_export_has_every_episode_as_played(small_play: SmallPlay):
    play = small_play.recorded()
    with tempfile.TemporaryDirectory() as scratch:
        found = list(minari.MinariDataset(exported(play, Path(scratch)) / "data"))

    for (plain, first), data in zip(play.held(), found, strict=True):
        np.testing.assert_array_equal(plain.frames[first:], data.observations)
        np.testing.assert_array_equal(plain.actions[first:], data.actions)
        np.testing.assert_array_equal(plain.rewards[first:], data.rewards)
        assert plain.terminated[first:] == data.terminations.tolist()
        is_cut = not (plain.terminated[-1] or plain.truncated[-1])
        assert [*plain.truncated[first:-1], plain.truncated[-1] or is_cut] == data.truncations.tolist()


def test_images_are_exported_losslessly_and_not_as_jpeg(tmp_path: Path):
    play = SmallPlay(((4, "terminated"),)).recorded(FrameSpec((84, 84)))

    [data] = minari.MinariDataset(exported(play, tmp_path) / "data")

    np.testing.assert_array_equal(play.episodes[0][0].frames, data.observations)


def test_jpeg_images_are_noted(tmp_path: Path):
    space = Box(0, 255, (84, 84), np.uint8)

    _, transferred = imported(dataset(tmp_path / "lossy", [episode(space=space)], space))
    _, lossless = imported(dataset(tmp_path / "raw", [episode(space=space)], space, jpeg_encoding=False))

    assert ["the dataset stores images as JPEG: they differ from the environment's frames"] == transferred.notes
    assert [] == lossless.notes


def test_jpeg_images_in_a_dict_are_noted(tmp_path: Path):
    picture = Box(0, 255, (32, 32, 3), np.uint8)
    frames = {"screen": np.zeros((4, 32, 32, 3), np.uint8), "pose": np.zeros((4, 2), np.float32)}
    space = Dict({"screen": picture, "pose": Box(-1, 1, (2,), np.float32)})
    made = dataset(tmp_path / "made", [episode() | {"observations": frames}], space)

    assert any("JPEG" in note for note in MinariData.open(made).notes)


@pytest.mark.parametrize("data_format", ["arrow", "parquet"])
def test_other_formats_of_minari_work_or_name_the_missing_package(data_format: str, tmp_path: Path):
    play = SmallPlay(((3, "terminated"), (2, "cut"))).recorded()
    if find_spec("pyarrow") is None:
        with pytest.raises(MissingExtraError, match=re.escape('pip install "minari[arrow]"')):
            exported(play, tmp_path, data_format=data_format)
    else:
        memory, _ = imported(exported(play, tmp_path, data_format=data_format))
        assert [[False] * 3, [False] * 2] == [episode.truncated.tolist() for episode in memory.episodes()]


def test_vectors_and_continuous_actions_are_exported_and_imported(tmp_path: Path):
    space, actions = Box(-np.inf, np.inf, (7,), np.float32), Box(-1, 1, (2,), np.float32)
    made = episode(5, space=space, actions=np.random.default_rng(0).uniform(-1, 1, (5, 2)).astype(np.float32))

    memory, _ = imported(dataset(tmp_path / "made", [made], space, actions))
    export_minari(memory, tmp_path / "again", MinariDescription("made/again-v0"))

    [data] = minari.MinariDataset(tmp_path / "again/data")
    np.testing.assert_array_equal(made["observations"], data.observations)
    np.testing.assert_array_equal(made["actions"], data.actions)


@pytest.mark.parametrize(
    "frame",
    [FrameSpec((4, 4), np.float32, is_scaled=True), FrameSpec((3, 4), bool), FrameSpec((6,), np.int16)],
    ids=["scaled", "bool", "int16"],
)
def test_frames_of_other_kinds_are_exported_and_imported(frame: FrameSpec, tmp_path: Path):
    play = SmallPlay(((5, "terminated"),)).recorded(frame)

    memory, _ = imported(exported(play, tmp_path))

    assert (frame,) == memory.inner.settings.frame.frame_specs
    np.testing.assert_array_equal(next(play.memory.episodes()).frames(), next(memory.episodes()).frames())


def test_both_end_flags_and_an_episode_without_one_are_imported(tmp_path: Path):
    ends = [(True, False), (False, True), (True, True), (False, False), (True, False)]
    episodes = [episode(seed=seed, terminated=one, truncated=other) for seed, (one, other) in enumerate(ends)]

    memory, _ = imported(dataset(tmp_path / "made", episodes))

    assert ends == [(bool(held.terminated[-1]), bool(held.truncated[-1])) for held in memory.episodes()]


def test_an_episode_that_continues_after_an_end_flag_is_split_there(tmp_path: Path):
    made = episode(4, terminations=np.array([False, True, False, True]))

    memory, transferred = imported(dataset(tmp_path / "made", [made]))

    first, second = memory.episodes()
    assert (2, 4) == (transferred.episodes, transferred.transitions)
    assert ["split because they continued after an end flag: 1 of the episodes"] == transferred.notes
    np.testing.assert_array_equal(made["observations"][:3], first.frames())
    np.testing.assert_array_equal(made["observations"][2:], second.frames())


@pytest.mark.parametrize("padding", ["first_frame", "zeros"])
@pytest.mark.parametrize("stacked_on", ["first_axis", "last_axis"])
def test_stacks_are_stored_as_single_frames_and_sampled_as_stacks(stacked_on: str, padding: str, tmp_path: Path):
    frames = episode(9)["observations"]
    black = frames[0] if padding == "first_frame" else np.zeros_like(frames[0])
    axis = 0 if stacked_on == "first_axis" else -1
    padded = [black] * 3 + list(frames)
    stacks = np.stack([np.stack(padded[at : at + 4], axis) for at in range(10)])
    space = Box(0, 255, stacks.shape[1:], np.uint8)

    memory, _ = imported(dataset(tmp_path / "made", [episode(9, observations=stacks)], space), stacked_on=stacked_on)

    batch = memory.get(memory.sampleable_indices())
    assert ((5, 3), padding) == (memory.inner.settings.frame.frame_specs[0].shape, memory.inner.settings.stack_padding)
    np.testing.assert_array_equal(stacks[:-1], np.moveaxis(batch.observation, 1, axis if axis < 0 else 1))
    np.testing.assert_array_equal(stacks[1:], np.moveaxis(batch.next_observation, 1, axis if axis < 0 else 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((5, 1), "episode 0: observation 5 is not the previous one shifted by one frame"),
        ((0, 1), "the first observation is padded neither by its newest frame nor by zeros"),
    ],
)
def test_observations_that_are_not_stacks_are_refused(change: tuple[int, int], message: str, tmp_path: Path):
    frames = list(episode(9)["observations"])
    stacks = np.stack([np.stack(([frames[0]] * 3 + frames)[at : at + 4]) for at in range(10)])
    stacks[change] += 1
    folder = dataset(tmp_path / "made", [episode(9, observations=stacks)], Box(0, 255, (4, 5, 3), np.uint8))

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        imported(folder, stacked_on="first_axis")


def test_stacks_are_imported_exactly_where_a_beginning_is_lost_or_follows_an_end_flag(tmp_path: Path):
    frames = np.random.default_rng(0).integers(1, 200, (13, 5, 3), np.uint8)
    lost = np.stack([frames[at : at + 4] for at in range(10)])
    frames[:3] = 0
    padded = np.stack([frames[at : at + 4] for at in range(4)])
    flagged = episode(9, observations=lost, terminations=np.arange(9) % 5 == 3)
    made = [episode(observations=padded[:, :3]), flagged, episode(observations=padded)]
    folder = dataset(tmp_path / "made", made, Box(0, 255, (4, 5, 3), np.uint8))
    MinariStorage.read(folder).update_episode_metadata([{"framestow_has_beginning": False}], [1])

    memory, transferred = imported(folder, stacked_on="first_axis", skip_bad=True)

    batch = memory.get(memory.sampleable_indices())
    assert ("zeros", 1) == (memory.inner.settings.stack_padding, sum(transferred.left_out.values()))
    np.testing.assert_array_equal(np.concatenate([lost[:-1], padded[:-1]]), batch.observation)
    np.testing.assert_array_equal(np.concatenate([lost[1:], padded[1:]]), batch.next_observation)


def stacks_of_floats(frames: np.ndarray) -> tuple[np.ndarray, Box]:
    padded = np.concatenate([frames[:1]] * 3 + [frames])
    stacks = np.stack([padded[at : at + 4] for at in range(len(frames))])
    return stacks, Box(-np.inf, np.inf, stacks.shape[1:], np.float32)


def test_stacks_of_floats_are_compared_bit_by_bit(tmp_path: Path):
    frames = np.arange(40, dtype=np.float32).reshape(10, 4)
    frames[4] = np.nan, -0.0, 0.0, np.inf
    stacks, space = stacks_of_floats(frames)
    other = stacks.copy()
    other[5, 2] = np.nan, 0.0, 0.0, np.inf  # an older frame, which differs from its newer copy by a sign

    folder = dataset(tmp_path / "made", [episode(9, observations=stacks)], space)
    memory, _ = imported(folder, stacked_on="first_axis")
    wrong = dataset(tmp_path / "wrong", [episode(9, observations=other)], space)

    batch = memory.get(memory.sampleable_indices())
    assert stacks[:-1].tobytes() == np.ascontiguousarray(batch.observation).tobytes()
    with pytest.raises(InvalidSettingsError, match="observation 5 is not the previous one shifted by one frame"):
        imported(wrong, stacked_on="first_axis")


def test_another_padding_in_a_later_episode_is_refused(tmp_path: Path):
    made = []
    for seed, padding in enumerate([1, 0]):
        frames = list(episode(3, seed)["observations"])
        padded = [frames[0] * np.uint8(padding)] * 3 + frames
        made.append(episode(3, seed, observations=np.stack([np.stack(padded[at : at + 4]) for at in range(4)])))
    folder = dataset(tmp_path / "made", made, Box(0, 255, (4, 5, 3), np.uint8))

    with pytest.raises(InvalidSettingsError, match="episode 1: its first observation is not padded by"):
        imported(folder, stacked_on="first_axis")


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (Dict({"screen": PIXELS, "told": Text(5)}), Discrete(6), "the observations told are no arrays of"),
        (Discrete(16), Discrete(6), "they must be a Box, or, without stacked_on, a Dict or Tuple of boxes"),
        (PIXELS, Dict({"arm": Discrete(3)}), "give a Discrete, MultiDiscrete, MultiBinary or Box"),
    ],
)
def test_unsupported_spaces_are_refused(observations, actions, message: str, tmp_path: Path):
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        MinariData.open(dataset(tmp_path / "made", [], observations, actions))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rewards": np.array([0, np.nan, 0])}, InvalidStepError, "episode 0: reward is nan at row 1"),
        ({"actions": np.array([0, 6, 0])}, InvalidStepError, "episode 0: action is 6"),
        ({"observations": np.zeros((4, 3, 5))}, DamagedDataError, "episode 0: observations have shape (4, 3, 5): its"),
        ({"observations": np.zeros(4)}, DamagedDataError, "episode 0: observations have shape (4,): its space has"),
        ({"actions": np.array([0, 1])}, DamagedDataError, "episode 0: it has 4 observations and [2, 3, 3, 3] actions"),
        (
            {"observations": np.full((4, 5, 3), 0.5)},
            InvalidSettingsError,
            "episode 0: observations are float64, and some would change in its space's uint8",
        ),
    ],
)
def test_an_episode_that_cannot_be_stored_exactly_is_named(changes: dict, error: type, message: str, tmp_path: Path):
    folder = dataset(tmp_path / "made", [episode(**changes)])

    with pytest.raises(error, match=re.escape(message)):
        imported(folder)


def test_a_bad_episode_is_left_out_counted_and_named_on_request(tmp_path: Path):
    lacking = episode()
    lacking["observations"] = lacking["observations"][:3]
    made = [episode(seed=1), lacking, episode(seed=2), episode(rewards=np.array([0, np.inf, 0])), episode(seed=3)]
    folder = dataset(tmp_path / "made", made)

    memory, transferred = imported(folder, skip_bad=True)

    stored = [each.frames() for each in memory.episodes()]
    np.testing.assert_array_equal([made[at]["observations"] for at in (0, 2, 4)], stored)
    assert (9, 3, {"episodes that cannot be imported": 2}) == (
        transferred.transitions,
        transferred.episodes,
        transferred.left_out,
    )
    [note] = transferred.notes
    assert note.startswith("episodes that were left out: 1, 3. The first: made/by-minari-v0: episode 1: it has 3 obser")


def test_a_key_is_left_out_on_request(tmp_path: Path):
    space = Dict({"screen": PIXELS, "told": Text(5), "robot": Dict({"name": Text(5), "pose": Box(-1, 1, (2,))})})
    screens, poses = episode()["observations"], np.ones((4, 2), np.float32)
    told = {"told": ["a"] * 4, "robot": {"name": ["b"] * 4, "pose": poses}}
    folder = dataset(tmp_path / "made", [episode() | {"observations": {"screen": screens, **told}}], space)
    with pytest.raises(InvalidSettingsError, match=re.escape("--leave-out robot/name told")):
        MinariData.open(folder)

    memory, transferred = imported(folder, leave_out=["told", "robot/name"])

    [found] = memory.episodes()
    np.testing.assert_array_equal(screens, found.frames()["screen"])
    np.testing.assert_array_equal(poses, found.frames()["robot"]["pose"])
    assert ["left out of the observations: told, robot/name"] == transferred.notes
    with pytest.raises(InvalidSettingsError, match=re.escape("leave_out has 'tolt': the observations have the keys [")):
        MinariData.open(folder, leave_out=["tolt"])


def test_a_wider_dtype_is_accepted_if_no_value_changes(tmp_path: Path):
    made = episode()

    memory, _ = imported(dataset(tmp_path / "made", [made | {"observations": made["observations"].astype(np.float64)}]))

    np.testing.assert_array_equal(made["observations"], next(memory.episodes()).frames())


def test_repr_of_a_dataset_has_its_id_and_counts_its_episodes_and_steps(tmp_path: Path):
    data = MinariData.open(dataset(tmp_path / "data", [episode(3), episode(4, seed=1)]))

    assert "MinariData(made/by-minari-v0, 2 episodes, 7 steps)" == repr(data)


def test_a_dataset_is_found_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    exported(SmallPlay(((4, "terminated"),)).recorded(), tmp_path, environment="ALE/Breakout-v5")

    memory, _ = imported("made/here-v0")

    assert ["made/here-v0"] == list(minari.list_local_datasets())
    assert (4, ("ALE/Breakout-v5",)) == (len(memory), memory.inner.settings.labels)
    with pytest.raises(InvalidSettingsError, match="download it with: minari download made/nowhere-v0"):
        MinariData.open("made/nowhere-v0")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (MinariDescription("no version"), "dataset_id is 'no version': Minari does not accept it"),
        (MinariDescription("no/version"), "dataset_id is 'no/version': Minari does not accept it"),
        (MinariDescription("a-v0", "Nonsense-v0"), "environment is 'Nonsense-v0': Gymnasium does not know it"),
        (MinariDescription("a-v0", data_format="zip"), "data_format is 'zip'"),
    ],
)
def test_an_invalid_description_is_refused(description: MinariDescription, message: str, tmp_path: Path):
    memory = SmallPlay(((4, "terminated"),)).recorded().memory

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        export_minari(memory, tmp_path / "out", description)


@pytest.mark.parametrize("key", ["a/b", "", ".", "..", "a\nb", "a" * 201])
def test_a_key_that_no_file_can_have_is_refused_before_an_export(key: str, tmp_path: Path):
    memory = ReplayMemory(9, Dict({"robot": Dict({key: PIXELS, "a": PIXELS})}), 4)
    shown = {"robot": dict.fromkeys([key, "a"], np.zeros(PIXELS.shape, np.uint8))}
    memory.add(shown, 1, 0.0, shown, True, False)

    with pytest.raises(InvalidSettingsError, match=re.escape(f"observations have the key {key!r}: a dataset's keys")):
        export_minari(memory, tmp_path / "a-v0", MinariDescription("a-v0"))
    assert [] == list(tmp_path.iterdir())


def test_an_export_to_a_relative_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    play = SmallPlay(((4, "terminated"),)).recorded()
    monkeypatch.chdir(tmp_path)

    export_minari(play.memory, Path("datasets/made/here-v0"), MinariDescription("made/here-v0"))

    assert ["here-v0"] == [path.name for path in (tmp_path / "datasets/made").iterdir()]
    memory, _ = imported(Path("datasets/made/here-v0"))
    np.testing.assert_array_equal(next(play.memory.episodes()).frames(), next(memory.episodes()).frames())


def test_a_failed_export_leaves_nothing(tmp_path: Path):
    def fail(done: int, total: int) -> None:
        raise OSError(f"disk is full after {done} of {total}")

    memory = SmallPlay(((4, "terminated"),)).recorded().memory

    with pytest.raises(OSError, match="disk is full"):
        export_minari(memory, tmp_path / "datasets/made/here-v0", MinariDescription("made/here-v0"), fail)
    with pytest.raises(InvalidSettingsError, match="data_format is 'zip'"):
        export_minari(memory, tmp_path / "datasets/a-v0", MinariDescription("a-v0", data_format="zip"))

    assert [] == list(tmp_path.iterdir())


def test_one_episode_is_in_memory_at_a_time(tmp_path: Path):
    play = SmallPlay(((60, "terminated"),) * 12).recorded(FrameSpec((84, 84)))  # 430 kB each
    tracemalloc.start()
    try:
        folder = exported(play, tmp_path)
        after_export = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        imported(folder, capacity=60)

        assert max(after_export, tracemalloc.get_traced_memory()[1]) < 3 << 20
    finally:
        tracemalloc.stop()


def test_without_minari_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setitem(sys.modules, "minari", None)

    with pytest.raises(MissingExtraError, match=re.escape('pip install "framestow[offline]"')):
        MinariData.open(tmp_path)


@pytest.mark.parametrize("data_format", ["hdf5", *(["arrow", "parquet"] if find_spec("pyarrow") else [])])
def test_extras_and_actions_of_several_integers_are_exported(data_format: str, tmp_path: Path):
    space, frames = MultiDiscrete([3, 5], start=[0, -2]), np.arange(8, dtype=np.uint8).reshape(8, 1, 1)
    extras = {"log_prob": np.float32, "state": (np.float64, (2,))}
    memory = ReplayMemory(100, FrameSpec((1,)), space, stack=1, extras=extras)
    memory.begin(frames[0])
    for step in range(7):
        extra = {"log_prob": [-step], "state": [[step, 2 * step]]}
        memory.append([[step % 3, step % 5 - 2]], [0.0], [step == 6], [False], frames[step + 1], extras=extra)

    description = MinariDescription("made/here-v0", data_format=data_format)
    (transferred,) = export_minari(memory, tmp_path / "made/here-v0", description).notes

    assert transferred.endswith("with zeros beside an episode's last observation: log_prob float32, state float64 2")
    (data,) = minari.MinariDataset(tmp_path / "made/here-v0/data")
    assert np.float32 == data.infos["log_prob"].dtype
    np.testing.assert_array_equal([*-np.arange(7), 0], data.infos["log_prob"])
    np.testing.assert_array_equal([*np.outer(np.arange(7), [1, 2]).tolist(), [0, 0]], np.stack(data.infos["state"]))
    back, _ = imported(tmp_path / "made/here-v0")
    assert memory.inner.settings.action == back.inner.settings.action
    np.testing.assert_array_equal(memory.get(range(7)).action, back.get(range(7)).action)


def test_binary_actions_are_exported_and_imported(tmp_path: Path):
    memory = ReplayMemory(100, FrameSpec((1,)), MultiBinary(3), stack=1)
    memory.begin(np.zeros((1, 1), np.uint8))
    memory.append([[0, 1, 1]], [0.0], [True], [False], np.ones((1, 1), np.uint8))

    export_minari(memory, tmp_path / "made/here-v0", MinariDescription("made/here-v0"))

    back, _ = imported(tmp_path / "made/here-v0")
    assert memory.inner.settings.action == back.inner.settings.action
    assert [[0, 1, 1]] == back.sample(1).action.tolist()


def test_observations_of_several_arrays_are_exported_and_imported(tmp_path: Path):
    space = Dict({"screen": PIXELS, "arm": Tuple([Box(-1, 1, (3,), np.float32), Discrete(4)])})
    rng = np.random.default_rng(0)
    frames = {
        "screen": rng.integers(0, 256, (8, 5, 3), dtype=np.uint8),
        "arm": (rng.normal(size=(8, 3)).astype(np.float32), rng.integers(0, 4, 8)),
    }
    made = dataset(tmp_path / "made", [episode(7) | {"observations": frames}], space)

    memory, transferred = imported(made)
    export_minari(memory, tmp_path / "made/here-v0", MinariDescription("made/here-v0"))
    (data,) = minari.MinariDataset(tmp_path / "made/here-v0/data")

    assert (7, 1) == (transferred.transitions, transferred.episodes)
    np.testing.assert_equal(frames, next(memory.episodes()).frames())
    np.testing.assert_equal(frames, data.observations)
    with pytest.raises(InvalidSettingsError, match="without stacked_on, a Dict or Tuple of boxes"):
        MinariData.open(made, stacked_on="first_axis")


def test_next_observations_that_are_not_shifted_are_noted(tmp_path: Path):
    description = MinariDescription("made/here-v0")

    notes = export_minari(bordered_memory(2), tmp_path / "made/here-v0", description).notes

    assert notes[-1].startswith("2 next observations are not their observations shifted by one frame")
    assert 1 == len(export_minari(bordered_memory(0), tmp_path / "made/there-v0", description).notes)


@pytest.mark.parametrize(
    ("space", "stack_axis"),
    [
        (FrameSpec((4, 3, 5)), 0),
        (FrameSpec((3, 5, 4)), -1),
        (FrameSpec((3, 5)), None),
        (Dict({"camera": Box(0, 255, (4, 3, 5), np.uint8), "joints": Box(-1, 1, (3,), np.float32)}), {"camera": 0}),
    ],
    ids=["first axis", "last axis", "one frame", "dict"],
)
def test_any_observations_are_exported_whole_and_imported_again(space, stack_axis, tmp_path: Path):
    memory = ReplayMemory(400, space, 4, stack_axis=stack_axis, num_envs=2, extras=EXTRAS, discount=DISCOUNT)
    play = AnyPlay(memory, ObservationLayout.of_space(space, stack_axis), 0, kinds=12).play(150)

    notes = export_minari(memory, tmp_path / "made/here-v0", MinariDescription("made/here-v0")).notes
    data = MinariData.open(tmp_path / "made/here-v0")
    back = ReplayMemory(400, data.frame, data.action, stack_axis=stack_axis, discount=DISCOUNT)
    data.import_into(back)

    assert all(note.startswith("extras are in infos") for note in notes)
    numbers = [number for one in memory.episodes() for number in one.extras["number"].tolist()]
    batch = back.get(back.sampleable_indices())
    assert len(play.steps) == len(numbers) == len(batch)
    for row, number in enumerate(numbers):
        step = play.steps[number]
        assert_same(step.observation, row_of(batch.observation, row))
        assert_same(step.next_observation, row_of(batch.next_observation, row))
        for name in ("action", "reward", "terminated", "truncated"):
            assert getattr(step, name) == getattr(batch, name)[row], name


def test_an_episode_that_begins_in_its_middle_is_noted(tmp_path: Path):
    memory = ReplayMemory(10, FrameSpec((5, 3)), 4, stack=4)
    frames = np.random.default_rng(0).integers(0, 256, (5, 5, 3), np.uint8)
    memory.add(frames[:4], 0, 0.0, frames[1:], False, True)

    notes = export_minari(memory, tmp_path / "made/here-v0", MinariDescription("made/here-v0")).notes

    assert notes[-1].startswith("1 episode begins with an observation that is not padded")

"""``framestow import`` and ``framestow export``: a real game out and in again, and what is refused."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from framestow import ReplayMemory
from framestow.cli import data, main
from framestow.envs import Recorder, make_atari
from framestow.storage.files.manifest import write_manifest
from oracles.dopamine_memory import write_dopamine_log
from oracles.episode_lists import RecordedPlay
from oracles.small_plays import SmallPlay

NUM_STEPS = 400
NEEDS_MINARI = pytest.mark.skipif(find_spec("minari") is None, reason="Minari is not installed")
IMPORTS_AND_DIES = """
import os, signal, sys
from framestow import ReplayMemory
from framestow.cli import data, main
append, left = ReplayMemory.append, [int(sys.argv[1])]
def append_or_die(*arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    append(*arguments)
ReplayMemory.append = append_or_die
main(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def breakout(tmp_path_factory: pytest.TempPathFactory) -> tuple[RecordedPlay, Path]:
    """Some hundred steps of random play, as they were recorded and as a store."""
    env = make_atari("Breakout", num_envs=1, preset="dopamine", seed=0)
    space = env.single_observation_space
    memory = ReplayMemory(
        1000, space, env.single_action_space, stack=4, stack_padding="zeros", seed=0, label="Breakout"
    )
    play = RecordedPlay(memory)
    recorder, rng = Recorder(env, play), np.random.default_rng(0)
    recorder.reset(seed=0)
    while play.num_steps < NUM_STEPS:
        recorder.step(rng.integers(0, env.single_action_space.n, 1))
    recorder.close()
    folder = tmp_path_factory.mktemp("breakout") / "store"
    memory.save(folder)
    return play, folder


def assert_same_play(play: RecordedPlay, store: Path, *, has_final_frames: bool, is_cut_marked: bool = False) -> None:
    memory = ReplayMemory.load(store)
    memory.inner.parts.check()
    for plain, stored in zip(play.episodes[0], memory.episodes(), strict=True):
        np.testing.assert_array_equal(plain.actions, stored.actions)
        np.testing.assert_array_equal(plain.rewards, stored.rewards)
        assert plain.terminated == stored.terminated.tolist()
        is_cut = is_cut_marked and not (plain.terminated[-1] or plain.truncated[-1])
        assert [*plain.truncated[:-1], plain.truncated[-1] or is_cut] == stored.truncated.tolist()
        is_whole = has_final_frames or not stored.terminated[-1]
        shown = len(plain.frames) if is_whole else len(plain.frames) - 1
        np.testing.assert_array_equal(plain.frames[:shown], stored.frames()[:shown])


def test_breakout_in_the_dqn_replay_layout_is_imported(breakout, tmp_path: Path, capsys):
    play, _ = breakout
    write_dopamine_log(play, tmp_path / "logs")

    options = ["--num-actions", "4", "--game", "Breakout"]
    assert 0 == main(["import", "dqn-replay", str(tmp_path / "logs"), "--to", str(tmp_path / "again"), *options])

    output = capsys.readouterr().out
    assert_same_play(play, tmp_path / "again", has_final_frames=False)
    assert ("Breakout",) == ReplayMemory.load(tmp_path / "again").inner.settings.labels
    assert f"{NUM_STEPS:,} transitions of {len(play.episodes[0])} episodes in " in output
    assert re.search(r"framestow\s+│\s+[\d.]+ KiB\s+│\s+[\d.]+ KiB", output), output
    assert re.search(r"ratio\s+│\s+[\d.,]+ times (larger|smaller)\s+│\s+[\d.,]+ times (larger|smaller)", output), output


@NEEDS_MINARI
def test_the_memory_of_a_run_or_a_checkpoint_is_exported_as_its_own_folder_is(tmp_path: Path, capsys):
    run, checkpoint = tmp_path / "run", tmp_path / "run" / "checkpoints" / "step-000000000005"
    memory = SmallPlay(((5, "terminated"),)).recorded().memory
    checkpoint.mkdir(parents=True)
    generation = memory.save(run / "memory", keep_previous=True)
    write_manifest(checkpoint, "framestow checkpoint", 2, {"memory_generation": generation})
    memory.begin(np.ones((1, 5, 3), np.uint8))
    memory.append([1], [0.5], [True], [False], np.ones((1, 5, 3), np.uint8))
    memory.save(run / "memory", keep_previous=True)
    to = ["--to", str(tmp_path), "--dataset-id"]

    for number, (folder, counts) in enumerate({checkpoint: "5 transitions of 1 ", run: "6 transitions of 2 "}.items()):
        assert 0 == main(["export", "minari", str(folder), *to, f"made/here-v{number}"])
        assert counts in capsys.readouterr().out
    assert "has no memory" in refused(["export", "minari", str(tmp_path), *to, "made/no-v0"], capsys)


@NEEDS_MINARI
def test_breakout_is_exported_to_minari_and_imported_again(breakout, tmp_path: Path, capsys):
    play, store = breakout
    name = "atari/breakout/random-v0"

    metadata = ["--environment", "ALE/Breakout-v5", "--description", "random play", "--author", "somebody"]
    assert 0 == main(["export", "minari", str(store), "--to", str(tmp_path), "--dataset-id", name, *metadata])
    assert 0 == main(["import", "minari", str(tmp_path / name), "--to", str(tmp_path / "again"), "--stack", "4"])

    assert_same_play(play, tmp_path / "again", has_final_frames=True)
    assert ("ALE/Breakout-v5",) == ReplayMemory.load(tmp_path / "again").inner.settings.labels
    assert 2 == capsys.readouterr().out.count(f"{NUM_STEPS:,} transitions of {len(play.episodes[0])} episodes in ")


@pytest.mark.parametrize("file", ["out.hdf5", "out.h5 --layout d3rlpy", "out.npz"])
def test_breakout_is_exported_to_a_file_of_arrays_and_imported_again(file: str, breakout, tmp_path: Path, capsys):
    pytest.importorskip("h5py")
    play, store = breakout
    name, *layout = file.split()

    assert 0 == main(["export", "arrays", str(store), "--to", str(tmp_path / name), *layout])
    assert 0 == main(["import", "arrays", str(tmp_path / name), "--to", str(tmp_path / "again"), "--num-actions", "4"])

    assert_same_play(play, tmp_path / "again", has_final_frames=True, is_cut_marked=not layout)
    assert (name,) == ReplayMemory.load(tmp_path / "again").inner.settings.labels
    assert 4 == ReplayMemory.load(tmp_path / "again").stack
    assert 2 == capsys.readouterr().out.count(f"{NUM_STEPS:,} transitions of {len(play.episodes[0])} episodes in ")
    assert "nothing is overwritten" in refused(["export", "arrays", str(store), "--to", str(tmp_path / name)], capsys)
    assert [name, "again"] == sorted((path.name for path in tmp_path.iterdir()), reverse=True)


@NEEDS_MINARI
def test_a_bad_episode_of_a_minari_dataset_is_named_and_left_out_on_request(tmp_path: Path, capsys):
    h5py = pytest.importorskip("h5py")
    SmallPlay(((5, "terminated"), (4, "terminated"))).recorded().memory.save(tmp_path / "store")
    main(["export", "minari", str(tmp_path / "store"), "--to", str(tmp_path), "--dataset-id", "made-v0"])
    with h5py.File(tmp_path / "made-v0/data/main_data.hdf5", "a") as file:
        del file["episode_0/rewards"]
    command = ["import", "minari", str(tmp_path / "made-v0"), "--to", str(tmp_path / "again")]

    assert "made-v0: episode 0: Minari cannot read it" in refused(command, capsys)
    assert 0 == main([*command, "--skip-bad"])

    output = capsys.readouterr().out
    assert "4 transitions of 1 " in output
    assert "episodes that were left out: 0. The first: made-v0: episode 0: Minari cannot read it" in output


@NEEDS_MINARI
@pytest.mark.parametrize("to", ["out", "./out/", "deep/../out", "~/out", "--to=~/out"])
def test_a_path_counts_from_where_the_command_runs_and_a_tilde_is_the_home_folder(
    to: str, breakout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    play, store = breakout
    home = tmp_path / "home"
    for folder in (home, tmp_path / "deep"):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    above = home if "~" in to else tmp_path

    def arguments(name: str) -> list[str]:
        return [to + name] if to.startswith("--to=") else ["--to", to + name]

    assert 0 == main(["export", "minari", str(store), *arguments("/minari"), "--dataset-id", "made/here-v0"])
    write_dopamine_log(play, above / "out/dqn")
    for source in (["minari", str(above / "out/minari/made/here-v0")], ["dqn-replay", str(above / "out/dqn")]):
        assert 0 == main(["import", *source, *arguments(f"/{source[0]}-again")])

    assert ["dqn", "dqn-replay-again", "minari", "minari-again"] == sorted(os.listdir(above / "out"))
    assert_same_play(play, above / "out/minari-again", has_final_frames=True)
    assert sorted({"home", "deep", "out"} if above == tmp_path else {"home", "deep"}) == sorted(os.listdir(tmp_path))


def test_an_import_moves_frames_from_ram_to_the_store(breakout, tmp_path: Path, monkeypatch):
    play, _ = breakout
    write_dopamine_log(play, tmp_path / "logs")
    flushes, flush = [], ReplayMemory.flush
    monkeypatch.setattr(data, "FLUSHED_BYTES", 1000)
    monkeypatch.setattr(ReplayMemory, "flush", lambda memory: flushes.append(len(memory)) or flush(memory))

    main(["import", "dqn-replay", str(tmp_path / "logs"), "--to", str(tmp_path / "again"), "--num-actions", "4"])

    assert flushes
    assert 0 < flushes[0] < NUM_STEPS
    assert_same_play(play, tmp_path / "again", has_final_frames=False)


def test_an_import_with_a_capacity_keeps_the_newest_transitions(breakout, tmp_path: Path, capsys):
    play, _ = breakout
    write_dopamine_log(play, tmp_path / "logs")

    main(["import", "dqn-replay", str(tmp_path / "logs"), "--to", str(tmp_path / "again"), "--capacity", "100"])

    assert 100 == len(ReplayMemory.load(tmp_path / "again"))
    assert (
        "the store keeps the newest 100 transitions; give a larger --capacity to keep more" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "appends", [pytest.param(1, marks=pytest.mark.exhaustive), 10, pytest.param(39, marks=pytest.mark.exhaustive)]
)
def test_an_import_that_is_killed_leaves_no_store_and_can_be_done_again(appends: int, tmp_path: Path):
    write_dopamine_log(SmallPlay(((40, "cut"),)).recorded(), tmp_path / "logs")
    command = ["import", "dqn-replay", str(tmp_path / "logs"), "--to", str(tmp_path / "again")]

    killed = subprocess.run([sys.executable, "-c", IMPORTS_AND_DIES, str(appends), *command], check=False)

    assert -signal.SIGKILL == killed.returncode
    assert not (tmp_path / "again").exists()
    assert 0 == main(command)
    assert 40 == len(ReplayMemory.load(tmp_path / "again"))
    assert ["again", "logs"] == sorted(path.name for path in tmp_path.iterdir())


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert 2 == main(arguments)
    error = capsys.readouterr().err
    assert 1 == error.count("\n")
    return error


@NEEDS_MINARI
def test_a_folder_that_exists_or_does_not_is_refused(tmp_path: Path, capsys):
    SmallPlay(((5, "cut"),)).recorded().memory.save(tmp_path / "store-v0")
    to = ["--to", str(tmp_path / "out")]

    assert "the folder does not exist" in refused(["import", "dqn-replay", str(tmp_path / "nowhere"), *to], capsys)
    assert not (tmp_path / "out").exists()
    over = ["export", "minari", str(tmp_path / "store-v0"), "--to", str(tmp_path), "--dataset-id", "store-v0"]
    assert "nothing is overwritten" in refused(over, capsys)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--capacity", "--capacity is 0: a memory stores"),
        ("--stack", "--stack is 0: an observation has 1 to 256 frames"),
        ("--num-actions", "--num-actions is 0: the files have actions from 0 to "),
        ("--blank-slots=-1", "--blank-slots is -1: it must be at least 0; leave it out to count them"),
    ],
)
def test_an_option_of_an_import_that_is_out_of_range_is_refused_by_its_name(option, message, tmp_path: Path, capsys):
    write_dopamine_log(SmallPlay(((5, "terminated"),)).recorded(), tmp_path / "logs")
    value = [] if "=" in option else ["0"]

    error = refused(
        ["import", "dqn-replay", str(tmp_path / "logs"), "--to", str(tmp_path / "out"), option, *value], capsys
    )

    assert error.startswith(f"error: {message}")
    assert not (tmp_path / "out").exists()


@NEEDS_MINARI
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["minari", "--dataset-id", "made/here"], "error: --dataset-id is 'made/here': Minari does not accept it"),
        (["minari", "--dataset-id", "made/here-v0", "--environment", "No-v0"], "error: --environment is 'No-v0': "),
    ],
)
def test_an_error_of_an_export_names_the_option(arguments, message, tmp_path: Path, capsys):
    SmallPlay(((3, "terminated"),)).recorded().memory.save(tmp_path / "store")

    error = refused(["export", *arguments, str(tmp_path / "store"), "--to", str(tmp_path / "out")], capsys)

    assert message in error


def test_data_without_a_complete_step_is_refused(tmp_path: Path, capsys):
    write_dopamine_log(SmallPlay(((1, "cut"),)).recorded(), tmp_path / "logs")
    wrong = ["import", "dqn-replay", str(tmp_path / "logs"), "--to", str(tmp_path / "out"), "--blank-slots", "9"]

    assert "none of the 2 steps can be imported: a step needs the beginning of its episode" in refused(wrong, capsys)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("minari", ["import", "minari", "nowhere", "--to", "out"]),
        pytest.param("h5py", ["import", "minari", "nowhere", "--to", "out"], marks=pytest.mark.exhaustive),
        pytest.param("rich", ["import", "dqn-replay", "nowhere", "--to", "out"], marks=pytest.mark.exhaustive),
    ],
)
def test_a_missing_extra_says_what_to_install(module: str, arguments: list[str], tmp_path: Path):
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "metadata.json").write_text(
        '{"data_format": "hdf5", "observation_space": "{\\"type\\": \\"Discrete\\", \\"n\\": 2, \\"start\\": 0}",'
        ' "action_space": "{\\"type\\": \\"Discrete\\", \\"n\\": 2, \\"start\\": 0}"}'
    )
    script = (
        f"import sys; sys.modules[{module!r}] = None; from framestow.cli import main; sys.exit(main({arguments!r}))"
    )

    finished = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )

    assert 2 == finished.returncode, finished.stderr
    assert re.fullmatch(r'error: .*pip install "(framestow\[(offline|cli)\]|minari\[hdf5\])".*\n', finished.stderr)

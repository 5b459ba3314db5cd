"""``framestow inspect``: the memory it finds, and the tables it prints."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from framestow.cli import main
from framestow.cli.saved_memory import SavedMemory, find_memory
from framestow.distributed import ShardedReplay, start_local_shards
from framestow.errors import DamagedDataError, InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.replay.memory import ReplayMemory
from framestow.storage.files.manifest import write_manifest
from oracles.hostile_folders import NO_FILES, Outside, bounded
from oracles.newest_sampler import Newest
from oracles.numbered_steps import numbered_memory, play_episode
from oracles.store_files import commit_files, log_file


def played_memory() -> ReplayMemory:
    memory = numbered_memory(1000, num_envs=2, label=["Pong", "Qbert"])
    play_episode(memory, 0, 4, env_id=0, terminated=True)
    play_episode(memory, 0, 5, env_id=1)
    return memory


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    played_memory().save(tmp_path / "saved")
    return tmp_path / "saved"


def file_contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_inspect_prints_each_game_and_writes_nothing(saved, capsys):
    before = file_contents(saved)

    assert 0 == main(["inspect", str(saved)])

    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines() if str(saved) not in line) <= 80
    assert re.search(r"^ +Pong +Qbert$", shown, re.MULTILINE)
    assert re.search(r"^transitions +4 +5$", shown, re.MULTILINE)
    assert re.search(r"^whole episodes +1 +0$", shown, re.MULTILINE)
    assert re.search(r"^return of whole episodes, mean +6 +-$", shown, re.MULTILINE)
    assert "stack 2, padded with first frame" in shown
    assert before == file_contents(saved)
    assert [saved] == list(Path().absolute().iterdir())


def test_observations_that_were_given_whole_have_no_padding(tmp_path, capsys):
    memory = ReplayMemory(10, FrameSpec((4, 84, 84)), 4)
    memory.add(np.zeros((4, 84, 84), np.uint8), 0, 0.0, np.zeros((4, 84, 84), np.uint8), False, False)
    memory.save(tmp_path / "saved")

    assert 0 == main(["inspect", str(tmp_path / "saved")])

    assert "· stack 4 ·" in capsys.readouterr().out


def test_a_memory_that_is_not_smaller_than_its_arrays_has_no_ratio(tmp_path, capsys):
    memory = ReplayMemory(10, FrameSpec((3,), "float32"), 4)
    memory.add(np.zeros(3, np.float32), 0, 0.0, np.ones(3, np.float32), False, False)
    memory.save(tmp_path / "saved")

    assert 0 == main(["inspect", str(tmp_path / "saved")])

    assert "times smaller" not in capsys.readouterr().out


def test_a_memory_with_n_step_returns_and_a_user_defined_sampler_is_inspected(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    memory = numbered_memory(1000, n_step=3, sampler=Newest())
    play_episode(memory, 0, 6, terminated=True)
    memory.save("saved")

    assert 0 == main(["inspect", "saved"])

    assert "n_step 3" in capsys.readouterr().out


@pytest.mark.parametrize("num_envs", [2, 4])
def test_labels_are_printed_with_their_brackets(tmp_path, monkeypatch, capsys, num_envs):
    monkeypatch.chdir(tmp_path)
    memory = numbered_memory(1000, num_envs=num_envs, label=[f"Pong[red]{env_id}" for env_id in range(num_envs)])
    for env_id in range(num_envs):
        play_episode(memory, 0, 4, env_id=env_id)
    memory.save("saved")

    assert 0 == main(["inspect", "saved"])

    printed = capsys.readouterr().out
    assert all(f"Pong[red]{env_id}" in printed for env_id in range(num_envs))


def test_inspect_and_verify_count_the_transitions_that_can_be_sampled(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    memory = numbered_memory(1000, n_step=3)
    play_episode(memory, 0, 9)
    memory.save("saved")

    assert [0, 0, 0] == [
        main(line) for line in (["inspect", "saved"], ["verify", "saved"], ["inspect", "saved", "--json"])
    ]

    tables, _, content = capsys.readouterr().out.partition("\n{")
    assert 7 == len(memory) == json.loads("{" + content)["transitions"]
    assert re.search(r"^transitions +7\n  others wait for their return +2$", tables, re.MULTILINE)
    assert "all 7 transitions are whole" in tables


def test_json_has_everything(saved, capsys):
    assert 0 == main(["inspect", str(saved), "--json"])

    content = json.loads(capsys.readouterr().out)
    pong, _ = content["labels"]
    assert ("Pong", 4, 5, 1) == (pong["label"], pong["transitions"], pong["frames"], pong["whole_episodes"])
    assert {"mean": 6.0, "least": 6.0, "greatest": 6.0} == pong["returns"]
    assert 9 == content["transitions"]
    assert content["nbytes"] == sum(file.stat().st_size for file in saved.iterdir() if file.name != "LOCK")


def test_an_empty_memory_is_inspected(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    numbered_memory(10).save("empty")

    assert 0 == main(["inspect", "empty"])

    assert re.search(r"^transitions +0$", capsys.readouterr().out, re.MULTILINE)


def test_extras_are_printed_with_name_dtype_and_shape(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ReplayMemory(10, FrameSpec((1, 1)), 2, stack=4, extras={"log_prob": "f4", "state": ("f8", (2, 3))}).save("empty")

    assert 0 == main(["inspect", "empty"])

    assert "extras log_prob float32, state float64 2x3" in capsys.readouterr().out


OBSERVATIONS = {  # spaces of whole observations, and how inspect describes their frames
    "colours first": (FrameSpec((3, 84, 84)), "frames 3x84x84 uint8"),
    "vector": (FrameSpec((17,), np.float32), "frames 17 float32"),
    "Dict": (
        {"eye": FrameSpec((8, 8, 3)), "pose": FrameSpec((3,), np.float32)},
        "frames of eye 8x8x3 uint8, pose 3 float32",
    ),
}


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_memories_of_whole_observations_are_inspected_in_a_folder_without_write_permission(name, tmp_path, capsys):
    space, description = OBSERVATIONS[name]
    memory = ReplayMemory(10, space, 4, seed=0)
    zeros = memory.inner.settings.layout.spec.rebuild(
        [frame.empty() for frame in memory.inner.settings.frame.frame_specs]
    )
    memory.add(zeros, 1, 0.5, zeros, True, False)
    memory.save(tmp_path / "saved")
    for path in (tmp_path / "saved", tmp_path):
        path.chmod(0o555)

    try:
        assert 0 == main(["inspect", str(tmp_path / "saved")])
        assert 0 == main(["verify", str(tmp_path / "saved")])
    finally:
        tmp_path.chmod(0o755)

    printed = capsys.readouterr().out
    assert description in printed
    assert re.search(r"^transitions +1$", printed, re.MULTILINE)


def test_the_memory_of_a_run_and_of_its_checkpoints_is_found(tmp_path):
    run, checkpoint = tmp_path / "run", tmp_path / "run" / "checkpoints" / "step-000000000020"
    checkpoint.mkdir(parents=True)
    write_manifest(checkpoint, "framestow checkpoint", 1, {"memory_generation": 3})
    played_memory().save(run / "memory")

    assert SavedMemory(run / "memory") == find_memory(run)
    assert SavedMemory(run / "memory") == find_memory(run / "memory")
    assert SavedMemory(run / "memory", 3) == find_memory(checkpoint)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, "is not a folder: a saved memory is a folder; check the path"),
        (Path.touch, "is not a folder: a saved memory is a folder; check the path"),
        (
            Path.mkdir,
            "has no memory: it contains no COMMIT file; give the folder of a memory, a run or a checkpoint",
        ),
        (
            lambda folder: (folder.mkdir(), (folder / "settings.json").touch()),
            "has no memory: the run has not saved a checkpoint yet; train it first",
        ),
    ],
)
def test_a_folder_without_a_memory_is_refused_with_the_way_out(make, message, tmp_path, capsys):
    make(tmp_path / "folder")

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        find_memory(tmp_path / "folder")
    assert 2 == main(["inspect", str(tmp_path / "folder")])
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_pickled_buffer_is_not_opened_and_the_message_says_how_to_look_inside(tmp_path, capsys):
    (tmp_path / "memory.pkl").write_bytes(b"no pickle")

    assert [2, 2] == [main([command, str(tmp_path / "memory.pkl")]) for command in ("view", "inspect")]

    message = " ".join(capsys.readouterr().err.split())
    assert "memory.pkl is a pickled buffer: framestow opens folders only; load the buffer with its library" in message
    assert "model.load_replay_buffer('memory.pkl') and model.replay_buffer.memory.save('memory.memory')" in message


def test_other_generations_and_files_left_by_a_crash_are_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    memory = played_memory()
    memory.save("saved", keep_previous=True)
    play_episode(memory, 1, 3, env_id=0, terminated=True)
    memory.save("saved", keep_previous=True)
    left_over = log_file(Path("saved"), "frames", 9)
    left_over.write_bytes(bytes(300))

    main(["inspect", "saved"])

    shown = " ".join(capsys.readouterr().out.split())
    assert "replay memory, format version 1, generation 3, written" in shown
    assert "other generations in this folder: 2" in shown
    assert f"300 B in {left_over.name} belong to no generation" in shown


@pytest.fixture
def run_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run folder whose checkpoint has shards of 3 and 5 transitions; one more was saved later."""
    monkeypatch.chdir(tmp_path)
    run, space = tmp_path / "run", FrameSpec((2, 2))
    checkpoint = run / "checkpoints" / "step-000000000008"
    checkpoint.mkdir(parents=True)
    replay = ShardedReplay(100, space, 4, shards=2, num_envs=2, label="Pong", seed=0, start=start_local_shards)

    def play(env_id: int, num_steps: int) -> None:
        for _ in range(num_steps):
            frame = np.full((1, 2, 2), 7, np.uint8)
            replay.append([1], [1.0], [False], [False], frame, [env_id])
        replay.flush()

    replay.begin(np.zeros((2, 2, 2), np.uint8))
    play(0, 3), play(1, 5)
    generation = replay.save(run / "memory")
    content = {"memory_generation": generation}
    write_manifest(checkpoint, "framestow checkpoint", 1, content)
    play(1, 1)
    replay.save(run / "memory", keep_previous=True)
    replay.close()
    return run


def test_inspect_lists_all_shards_of_a_distributed_run_and_shows_the_first(run_of_shards, capsys):
    assert 0 == main(["inspect", str(run_of_shards)])

    shown = capsys.readouterr().out
    assert max(len(line) for line in shown.splitlines() if str(run_of_shards) not in line) <= 80
    assert f"{run_of_shards / 'memory'}\nmemory of 2 shards\n" in shown
    assert re.search(r"^shard-0 +3 +[0-9.]+ KiB$", shown, re.MULTILINE)
    assert re.search(r"^shard-1 +6 +[0-9.]+ KiB$", shown, re.MULTILINE)
    assert re.search(r"^total +9 +[0-9.]+ KiB$", shown, re.MULTILINE)
    assert f"below: shard-0; for another one: framestow inspect {run_of_shards / 'memory' / 'shard-1'}\n" in shown
    assert re.search(r"^transitions +3$", shown, re.MULTILINE)


def test_inspect_prints_json_of_the_shards_of_a_checkpoint(run_of_shards, capsys):
    checkpoint = next((run_of_shards / "checkpoints").iterdir())

    assert 0 == main(["inspect", str(checkpoint), "--json"])

    content = json.loads(capsys.readouterr().out)
    shards = content["shards"]
    assert [3, 5] == [shard["transitions"] for shard in shards]  # as saved with the checkpoint
    assert [str(run_of_shards / "memory" / f"shard-{number}") for number in (0, 1)] == [one["folder"] for one in shards]
    assert shards[0]["bytes"] == sum(content["file_bytes"].values())


def test_verify_reads_every_shard_of_a_distributed_run(run_of_shards, capsys):
    assert 0 == main(["verify", str(run_of_shards)])
    shown = capsys.readouterr().out
    assert "all 3 transitions are whole" in shown
    assert "all 6 transitions are whole" in shown

    damaged = commit_files(run_of_shards / "memory" / "shard-1")[-1]
    content = bytearray(damaged.read_bytes())
    content[100] ^= 1
    damaged.write_bytes(content)
    assert 1 == main(["verify", str(run_of_shards), "--json"])
    assert [True, False] == [one["is_whole"] for one in json.loads(capsys.readouterr().out)["shards"]]


def test_commands_that_take_one_memory_name_the_shards_of_a_distributed_run(run_of_shards, capsys):
    assert 2 == main(["repair", str(run_of_shards)])

    folders = ", ".join(str(run_of_shards / "memory" / f"shard-{number}") for number in (0, 1))
    error = capsys.readouterr().err
    assert f"has a memory of 2 shards: this command takes one memory; give one of {folders}" in error


@pytest.mark.skipif(os.name != "posix", reason="a link needs rights on Windows")
@pytest.mark.parametrize("name", ["memory", "checkpoints"])
def test_a_folder_of_a_run_behind_a_link_is_refused_with_its_target(name, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path)

    with pytest.raises(DamagedDataError, match=f"{name}: it is a link to '{tmp_path}'.*; give that folder itself"):
        find_memory(tmp_path / "run")


@pytest.mark.parametrize("kind", NO_FILES)
def test_the_manifest_of_a_checkpoint_is_read_only_if_it_is_a_file(kind, tmp_path):
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000000000100"
    checkpoint.mkdir(parents=True)
    Outside(tmp_path / "home").plant(kind, checkpoint / "MANIFEST")

    with bounded(), pytest.raises(InvalidSettingsError, match="its MANIFEST cannot be read"):
        find_memory(checkpoint)

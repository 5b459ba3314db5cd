"""``framestow import memory``: saved memories into a new one with other settings."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from framestow import FrameSpec, ReplayMemory
from framestow.cli import data, main
from framestow.distributed import ShardedReplay, start_local_shards

SPACE = FrameSpec((3, 5))


def saved(folder: Path, label: str = "", num_steps: int = 60, **settings) -> Path:
    """Save a memory whose rewards count its steps; an episode of each environment ends after every tenth one."""
    memory = ReplayMemory(100, SPACE, 4, **{"stack": 2, "seed": 0, "label": label} | settings)
    rng = np.random.default_rng(0)
    for step in range(num_steps):
        if step % 10 == 0:
            memory.begin(rng.integers(0, 9, (memory.num_envs, 3, 5), np.uint8))
        frames = rng.integers(0, 9, (memory.num_envs, 3, 5), np.uint8)
        zeros = np.zeros(memory.num_envs, bool)
        memory.append(zeros.astype(int), zeros + float(step), zeros + (step % 10 == 9), zeros, frames)
    memory.save(folder)
    return folder


def refused(arguments: list[str], capsys) -> str:
    assert 2 == main(arguments)
    return capsys.readouterr().err


def test_a_memory_gets_the_settings_that_are_given_and_keeps_the_others(tmp_path: Path, capsys):
    old = saved(tmp_path / "old", "Pong", discount=0.9, num_envs=2, num_steps=40, storage="raw")

    options = "--capacity 2_000 --n-step 3 --stack-padding zeros --retention random --max-bytes 64MiB"
    assert 0 == main(["import", "memory", str(old), "--to", str(tmp_path / "new"), *options.split()])

    output = capsys.readouterr().out
    new = ReplayMemory.load(tmp_path / "new")
    assert "80 transitions of 8 episodes in " in output
    assert f"written to {tmp_path / 'new'}" in output
    found = new.capacity, new.n_step, new.discount, new.num_envs, new.retention, new.storage, new.max_bytes
    assert found == (2000, 3, 0.9, 2, "random", "raw", 64 * 2**20)
    assert ("Pong", "Pong") == new.inner.settings.labels
    assert [8, 10] == [len(list(new.episodes())), len(next(new.episodes()))]
    assert "zeros" == new.inner.settings.stack_padding


def test_a_smaller_memory_has_the_newest_and_says_so(tmp_path: Path, capsys):
    old = saved(tmp_path / "old")

    assert 0 == main(["import", "memory", str(old), "--to", str(tmp_path / "new"), "--capacity", "25"])

    assert "the store keeps the newest 25 transitions; give a larger --capacity to keep more" in capsys.readouterr().out
    new = ReplayMemory.load(tmp_path / "new")
    assert list(range(35, 60)) == new.get(new.sampleable_indices()).reward.tolist()


def test_memories_of_several_games_get_environments_of_their_own(tmp_path: Path, capsys):
    folders = [str(saved(tmp_path / game, game, num_steps=number)) for game, number in (("Pong", 30), ("Qbert", 50))]
    to = ["--to", str(tmp_path / "new")]

    error = refused(["import", "memory", *folders, *to], capsys)
    assert error.startswith("error: --num-envs is 1: environment 0 would have the steps of 'Pong' and, from ")
    assert "of 'Qbert'; raise it to 2, or leave out the labels" in error
    assert not (tmp_path / "new").exists()
    assert 0 == main(["import", "memory", *folders, *to, "--num-envs", "2"])
    new = ReplayMemory.load(tmp_path / "new")
    assert ("Pong", "Qbert") == new.inner.settings.labels
    assert [30, 50] == [sum(len(each) for each in new.episodes() if each.env_id == env_id) for env_id in range(2)]
    assert new.capacity == 100

    assert 0 == main(["import", "memory", *folders, "--to", str(tmp_path / "one"), "--leave-out-labels"])
    one = ReplayMemory.load(tmp_path / "one")
    assert (1, 80, ()) == (one.num_envs, len(one), one.inner.settings.labels)


def test_memories_are_joined_with_the_extras_that_all_have(tmp_path: Path, capsys):
    frames = np.zeros((1, 3, 5), np.uint8)
    kinds = {"cost": np.float32, "note": np.int8, "mine": np.int8}, {"cost": np.float32, "note": np.int16}
    for number, extras in enumerate(kinds):
        memory = ReplayMemory(100, SPACE, 4, stack=2, seed=0, extras=extras)
        memory.begin(frames)
        memory.append([0], [1.0], [True], [False], frames, extras={name: [number] for name in extras})
        memory.save(tmp_path / f"old{number}")

    folders = [str(tmp_path / "old0"), str(tmp_path / "old1")]
    assert 0 == main(["import", "memory", *folders, "--to", str(tmp_path / "new")])

    new = ReplayMemory.load(tmp_path / "new")
    assert [0.0, 1.0] == new.get(new.sampleable_indices()).extras["cost"].tolist()
    assert ("cost",) == new.inner.settings.extras.names
    output = capsys.readouterr().out
    assert "old0: extras are left out, which the memory does not have: mine int8, note int8" in output
    assert "old1: extras are left out, which the memory does not have: note int16" in output


def test_all_shards_of_a_replay_are_read(tmp_path: Path):
    replay = ShardedReplay(400, SPACE, 4, stack=2, num_envs=4, shards=2, seed=0, start=start_local_shards)
    writer = replay.writer()
    rng = np.random.default_rng(0)
    writer.begin(rng.integers(0, 9, (4, 3, 5), np.uint8))
    for step in range(30):
        is_last = np.full(4, step == 29)
        writer.append(
            np.zeros(4, int), np.full(4, step), is_last, ~is_last & False, rng.integers(0, 9, (4, 3, 5), "u1")
        )
    writer.flush()
    replay.save(tmp_path / "shards")
    replay.close()

    assert 0 == main(["import", "memory", str(tmp_path / "shards"), "--to", str(tmp_path / "new"), "--num-envs", "4"])

    new = ReplayMemory.load(tmp_path / "new")
    assert [(env_id, 30) for env_id in range(4)] == [(each.env_id, len(each)) for each in new.episodes()]


def test_ctrl_c_leaves_no_folder_and_says_so(tmp_path: Path, capsys, monkeypatch):
    old = saved(tmp_path / "old", num_steps=90)
    monkeypatch.setattr(data, "_flushing", lambda *_: lambda *_: signal.raise_signal(signal.SIGINT))

    assert 130 == main(["import", "memory", str(old), "--to", str(tmp_path / "new")])

    message = f"stopped: {tmp_path / 'new'} was not written, and what was read is unchanged\n"
    assert message == capsys.readouterr().err
    assert ["old"] == [path.name for path in tmp_path.iterdir()]
    assert 90 == len(ReplayMemory.load(old))


def test_a_folder_to_read_is_needed(tmp_path: Path, capsys):
    error = refused(["import", "memory", "--to", str(tmp_path / "new")], capsys)

    assert error == "error: missing: OLD; framestow import memory --help explains all arguments\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--capacity 0", "--capacity is 0: "),
        ("--n-step 300", "--n-step is 300: a return has 1 to 255 rewards"),
        ("--num-envs 0", "--num-envs is 0: a memory has at least 1 environment"),
        ("--retention random --capacity 50", "--capacity is 50: retention='random' with "),
        ("--max-bytes lots", "--max-bytes is 'lots': "),
    ],
)
def test_what_no_memory_takes_is_refused_by_the_option(options: str, message: str, tmp_path: Path, capsys):
    old = saved(tmp_path / "old", num_steps=10)

    error = refused(["import", "memory", str(old), "--to", str(tmp_path / "new"), *options.split()], capsys)

    assert error.startswith(f"error: {message}")
    assert not (tmp_path / "new").exists()

"""What ``repr`` prints of a sharded replay, its writers and its actors."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from framestow import FrameSpec
from framestow.distributed import ActorPlacement, ShardedReplay, start_local_shards
from framestow.training import RunFolder


def test_a_sharded_replay_says_what_its_shards_answered_last():
    with ShardedReplay(
        1_000, FrameSpec((84, 84)), 4, stack=4, shards=2, num_envs=4, start=start_local_shards
    ) as replay:
        replay.begin(np.zeros((4, 84, 84), np.uint8))
        replay.append([0] * 4, [1.0] * 4, [False] * 4, [True] * 4, np.zeros((4, 84, 84), np.uint8))
        replay.flush()

        assert "ShardedReplay(4 of 1,000 transitions, stack 4, 4 environments, 2 shards)" == repr(replay)
        assert "ShardWriter(2 environments, stack 4)" == repr(replay.writer([0, 3]))


def test_a_placement_and_a_run_folder_are_shown_as_the_calls_that_build_them():
    assert "ActorPlacement(num_cpus=1.0, resources={'gpu': 0.5})" == repr(ActorPlacement(1.0, {"gpu": 0.5}))
    assert f"RunFolder({str(Path('runs/pong'))!r})" == repr(RunFolder(Path("runs/pong")))

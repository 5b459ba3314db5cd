"""A type checker finds a wrong string: arguments that take one of a few strings say which."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from gymnasium.vector import AutoresetMode

from framestow.envs import PRESETS
from framestow.envs.atari.presets import PresetName
from framestow.envs.vector.one_env import AutoresetName
from framestow.training.recipes import RECIPES, RecipeName

ROOT = Path(__file__).parents[2]

HEAD = """
from typing import Any
from framestow import FrameSpec, HindsightGoals, Prioritized, ReplayMemory
from framestow.distributed import ShardedReplay
from framestow.envs import AtariEnv, Preset, Recorder, SerialVectorEnv, WorkerVectorEnv, make_atari
from framestow.integrations import classic, cleanrl, gymnasium, stable_baselines3, torchrl
from framestow.offline import MinariData, MinariDescription
from framestow.training import Settings

thing: Any = None
memory = ReplayMemory(8, FrameSpec((2, 2)), 4, stack=4)
"""
CALLS = """
ReplayMemory(8, thing, 4, stack=4, storage="packed")
ReplayMemory(8, thing, 4, stack=4, retention="fifo")
ReplayMemory(8, thing, 4, stack=4, on_damage="skip")
ReplayMemory(8, thing, 4, stack=4, stack_padding="zeros")
ReplayMemory.open("here", on_damage="skip")
memory.sample_sequences(2, 2, borders="inside")
HindsightGoals(memory, thing, strategy="final")
ShardedReplay(8, thing, 4, storage="raw")
ShardedReplay(8, thing, 4, retention="random")
Settings("Pong", recipe="laptop")
Settings("Pong", preset="nature")
Settings("Pong", storage="raw")
Settings("Pong", retention="random")
Settings("Pong", network="impala")
Settings("Pong", distribution="iqn")
Settings("Pong", optimizer="adam")
Settings("Pong", precision="bfloat16")
Settings("Pong", device="cuda")
make_atari("Pong", preset="nature")
make_atari("Pong", render_mode="rgb_array")
make_atari("Pong", 2, autoreset_mode="SameStep")
make_atari("Pong", 2, workers=2, start_method="spawn")
make_atari("Pong", 2, workers=2, on_worker_lost="restart")
AtariEnv("Pong", "nature")
AtariEnv("Pong", render_mode="rgb_array")
Preset("mine", "me", life_loss="terminates")
Preset("mine", "me", opening="fire_frame")
Preset("mine", "me", stack_padding="zeros")
SerialVectorEnv([thing], autoreset_mode="Disabled")
WorkerVectorEnv([thing], autoreset_mode="Disabled")
WorkerVectorEnv([thing], start_method="forkserver")
WorkerVectorEnv([thing], on_worker_lost="raise")
Recorder(thing, memory, autoreset_mode="NextStep")
MinariDescription("a/b-v0", data_format="arrow")
MinariData.open("here", stacked_on="first_axis")
MinariData.open("here", stack_padding="zeros")
gymnasium.FrameStack(thing, 4, axis="channels")
gymnasium.VectorFrameStack(thing, 4, axis="last")
gymnasium.VectorFrameStack(thing, 4, autoreset_mode="NextStep")
classic.ReplayBuffer(8, 4, storage="raw")
classic.MemoryEfficientAtariBuffer(8, storage="raw")
cleanrl.ReplayBuffer(8, thing, thing, storage="raw")
cleanrl.PrioritizedReplayBuffer(8, thing, "cpu", 3, 0.99, storage="raw")
stable_baselines3.ReplayBuffer(8, thing, thing, storage="raw")
stable_baselines3.HerReplayBuffer(8, thing, thing, thing, storage="raw")
torchrl.FramestowStorage(8, storage="raw")
"""
# Keywords that framestow answers with the one that is meant: only at run time.
UNKNOWN = """
ReplayMemory(10, thing, 4, gamma=thing)
Prioritized(beta_frames=thing)
memory.add(thing, 1, 0.5, thing, done=True)
memory.add(thing, 1, 0.5, thing, True, False, info=thing)
memory.add(thing, 1, 0.5, thing, True)
memory.append([1], [0.5], [True], [False], thing, obs=thing)
"""


@pytest.mark.slow
def test_a_type_checker_takes_every_right_string_and_finds_every_wrong_one_and_every_unknown_keyword(tmp_path):
    right = CALLS.strip().splitlines()
    wrong = [*(re.sub(r'"\w+"\)$', '"zip")', call) for call in right), *UNKNOWN.strip().splitlines()]
    snippet = tmp_path / "snippet.py"
    snippet.write_text(HEAD + "\n".join([*right, *wrong]))

    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", str(snippet)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    first = HEAD.count("\n") + 1
    refused = {int(line) for line in re.findall(r"snippet\.py:(\d+): error", found.stdout)}
    lines = dict(enumerate([*right, *wrong], first))
    assert "" == found.stderr
    assert set(wrong) == {lines[number] for number in refused}, found.stdout


def test_the_names_of_presets_recipes_and_autoreset_modes_are_those_of_their_tables():
    assert tuple(PRESETS) == get_args(PresetName)
    assert tuple(RECIPES) == get_args(RecipeName)
    assert {mode.value for mode in AutoresetMode} == set(get_args(AutoresetName))

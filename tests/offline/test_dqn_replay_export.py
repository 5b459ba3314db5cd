"""Dopamine's replay memory samples the exported transitions."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from hypothesis import given, settings

from framestow import ReplayMemory
from framestow.errors import InvalidSettingsError
from framestow.frames.frame_spec import FrameSpec
from framestow.offline.dqn_checkpoint import checkpoint_numbers
from framestow.offline.dqn_replay import export_dqn_replay
from oracles.bordered_steps import append_with_borders, bordered_memory
from oracles.dopamine_memory import DopamineReader, Drawn
from oracles.episode_lists import RecordedPlay
from oracles.holed_memory import holed_play
from oracles.small_plays import SmallPlay, small_plays


def drawn_from(folder: Path, stack: int) -> list[Drawn]:
    readers = [DopamineReader(folder, number, stack) for number in checkpoint_numbers(folder)]
    return [transition for reader in readers for transition in reader.drawn()]


def stacked(frames: list[np.ndarray], last: int, stack: int) -> np.ndarray:
    black = np.zeros_like(frames[0])
    return np.stack([frames[place] if place >= 0 else black for place in range(last - stack + 1, last + 1)])


def assert_dopamine_draws_what_was_played(play: RecordedPlay, drawn: list[Drawn], *, marks_cuts: bool = False) -> None:
    expected = [(episode, step) for episode, first in play.held() for step in range(first, len(episode.indices))]
    assert len(expected) == len(drawn)
    for (episode, step), actual in zip(expected, drawn, strict=True):
        assert (int(episode.actions[step]), episode.rewards[step]) == (actual.action, actual.reward)
        is_last_of_env = episode is play.episodes[episode.env_id][-1]
        is_marked = marks_cuts and step == len(episode.indices) - 1 and not is_last_of_env
        assert (episode.terminated[step] or is_marked) == actual.terminal
        np.testing.assert_array_equal(stacked(episode.frames, step, play.stack), actual.state)
        if not actual.terminal:
            np.testing.assert_array_equal(stacked(episode.frames, step + 1, play.stack), actual.next_state)


@settings(max_examples=15)
@given(small_plays())
def test_dopamine_samples_exactly_the_stored_transitions(small_play: SmallPlay):
    play = small_play.recorded()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "replay_logs"

        transferred = export_dqn_replay(play.memory, folder, cut_ends="new_checkpoint")

        assert_dopamine_draws_what_was_played(play, drawn_from(folder, small_play.stack))
    assert (len(play.memory), len(play.held())) == (transferred.transitions, transferred.episodes)
    assert {} == transferred.left_out


@settings(max_examples=8)
@given(small_plays(ends=("terminated", "cut", "truncated")))
def test_cut_ends_can_be_marked_as_terminal_as_dopamine_does(small_play: SmallPlay):
    play = small_play.recorded()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "replay_logs"

        export_dqn_replay(play.memory, folder, cut_ends="terminal")

        assert_dopamine_draws_what_was_played(play, drawn_from(folder, small_play.stack), marks_cuts=True)


@pytest.mark.parametrize("stack", [1, 4])
def test_dopamine_samples_the_stored_transitions_of_a_memory_with_holes(stack: int, tmp_path: Path):
    play = holed_play(stack, seed=23)  # a complete episode, then one with an evicted beginning
    played = {
        int(reward): (episode, step) for episode in play.episodes[0] for step, reward in enumerate(episode.rewards)
    }

    export_dqn_replay(play.memory, tmp_path / "logs", cut_ends="new_checkpoint")

    drawn = drawn_from(tmp_path / "logs", stack)
    held = play.memory.get(play.memory.sampleable_indices()).reward.tolist()
    assert held == [transition.reward for transition in drawn]
    for transition in drawn:
        episode, step = played[int(transition.reward)]
        np.testing.assert_array_equal(stacked(episode.frames, step, stack), transition.state)
        assert (int(episode.actions[step]), episode.terminated[step]) == (transition.action, transition.terminal)
        if not transition.terminal:
            np.testing.assert_array_equal(stacked(episode.frames, step + 1, stack), transition.next_state)


def test_a_checkpoint_ends_before_it_has_too_many_slots(tmp_path: Path):
    play = SmallPlay(((10, "terminated"),) * 6).recorded()

    export_dqn_replay(play.memory, tmp_path / "logs", slots_per_checkpoint=30)

    assert [0, 1, 2] == checkpoint_numbers(tmp_path / "logs")
    assert all(len(DopamineReader(tmp_path / "logs", number, 4).observation) <= 30 for number in range(3))
    assert_dopamine_draws_what_was_played(play, drawn_from(tmp_path / "logs", 4))


def test_the_same_memory_gives_the_same_bytes(tmp_path: Path):
    memory = SmallPlay(((5, "terminated"),)).recorded().memory

    export_dqn_replay(memory, tmp_path / "one")
    export_dqn_replay(memory, tmp_path / "two")

    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_information_that_the_layout_does_not_store_is_noted(tmp_path: Path):
    play = SmallPlay(((5, "terminated"), (4, "terminated"), (3, "truncated")), num_envs=2).recorded()

    notes = export_dqn_replay(play.memory, tmp_path / "logs").notes

    assert [
        "the layout does not store the frame after a terminal step: 2 frames",
        "the layout has no truncation flag: 1 flags",
        "frames are (5, 3), not (84, 84): set Dopamine's observation_shape",
        "the memory pads stacks with an episode's first frame, Dopamine pads with black frames",
        "the 2 environments follow one after the other, without their numbers",
    ] == notes


def test_cut_off_episodes_are_refused_without_cut_ends(tmp_path: Path):
    play = SmallPlay(((5, "truncated"), (4, "cut"), (3, "terminated"))).recorded()

    message = "2 of 3 episodes were truncated or cut off: the layout only has a flag for termination"
    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        export_dqn_replay(play.memory, tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def test_a_next_observation_that_is_not_shifted_is_refused_but_at_a_terminal_step(tmp_path: Path):
    message = "2 next observations are not their observations shifted by one frame"
    with pytest.raises(InvalidSettingsError, match=message):
        export_dqn_replay(bordered_memory(2), tmp_path / "logs")
    with pytest.raises(InvalidSettingsError, match="7 next observations"):
        export_dqn_replay(bordered_memory(8), tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def floats() -> ReplayMemory:
    return SmallPlay(((2, "cut"),)).recorded(FrameSpec((4, 4), np.float32)).memory


def several_arrays() -> ReplayMemory:
    return ReplayMemory(9, {"eye": FrameSpec((4, 4)), "pose": FrameSpec((2,), np.float32)}, 4, stack=4)


def box_actions() -> ReplayMemory:
    return ReplayMemory(9, FrameSpec((4, 4)), Box(-1, 1, (2,)), stack=4)


def nothing() -> ReplayMemory:
    return ReplayMemory(9, FrameSpec((4, 4)), 4, stack=4)


@pytest.mark.parametrize(
    ("make_memory", "message"),
    [
        (floats, "frames have dtype float32"),
        (
            several_arrays,
            "observations are of eye, pose: the layout of the DQN Replay Dataset holds one array",
        ),
        (box_actions, "the layout needs single numbers from 0 on"),
        (nothing, "the memory has no transition"),
    ],
)
def test_a_memory_that_does_not_fit_the_layout_is_refused(
    make_memory: Callable[[], ReplayMemory], message: str, tmp_path: Path
):
    memory = make_memory()

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        export_dqn_replay(memory, tmp_path / "logs")

    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"cut_ends": "drop"}, "cut_ends is 'drop'"),
        ({"slots_per_checkpoint": 0}, "slots_per_checkpoint is 0"),
        ({"compression_level": 10}, "compression_level is 10"),
    ],
)
def test_an_invalid_option_is_refused(option: dict, message: str, tmp_path: Path):
    memory = SmallPlay(((2, "cut"),)).recorded().memory

    with pytest.raises(InvalidSettingsError, match=re.escape(message)):
        export_dqn_replay(memory, tmp_path / "logs", **option)


def test_a_failed_export_leaves_nothing(tmp_path: Path):
    def fail(done: int, total: int) -> None:
        raise OSError(f"disk is full after {done} of {total}")

    memory = SmallPlay(((4, "terminated"),)).recorded().memory

    with pytest.raises(OSError, match="disk is full"):
        export_dqn_replay(memory, tmp_path / "dqn/logs", progress=fail)

    assert [] == list(tmp_path.iterdir())


def test_extras_are_not_exported_and_noted(tmp_path):
    memory = ReplayMemory(10, FrameSpec((84, 84)), 4, stack=1, extras={"log_prob": np.float32})
    memory.begin(np.zeros((1, 84, 84), np.uint8))
    memory.append([0], [0.0], [False], [False], np.zeros((1, 84, 84), np.uint8), extras={"log_prob": [-1.0]})

    transferred = export_dqn_replay(memory, tmp_path / "logs")

    assert "the layout does not store extras: log_prob float32" in transferred.notes


def test_actions_of_several_integers_are_refused(tmp_path):
    memory = ReplayMemory(10, FrameSpec((84, 84)), MultiDiscrete([2, 3]), stack=1)

    with pytest.raises(InvalidSettingsError, match="the layout needs single numbers from 0 on"):
        export_dqn_replay(memory, tmp_path / "logs")


def test_an_episode_that_begins_in_its_middle_is_refused_and_nothing_is_written(tmp_path):
    memory = ReplayMemory(10, FrameSpec((84, 84)), 4, stack=4)
    stacks = np.random.default_rng(0).integers(0, 256, (5, 84, 84), np.uint8)
    memory.add(stacks[:4], 0, 0.0, stacks[1:], False, True)

    with pytest.raises(InvalidSettingsError, match="of environment 0 begins with an observation that is not padded"):
        export_dqn_replay(memory, tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_a_part_of_an_episode_that_shows_frames_from_before_its_run_is_refused(tmp_path):
    memory = ReplayMemory(3, FrameSpec((84, 84)), 4, stack=4)
    stacks = np.random.default_rng(0).integers(0, 256, (12, 84, 84), np.uint8)
    memory.add(stacks[:4], 0, 0.0, stacks[5:9], False, False)  # a border: it is evicted, and what follows shows a run
    for first in range(5, 8):
        memory.add(stacks[first : first + 4], 0, 0.0, stacks[first + 1 : first + 5], first == 7, False)

    with pytest.raises(InvalidSettingsError, match="of environment 0 begins with an observation that is not padded"):
        export_dqn_replay(memory, tmp_path / "dataset")


def test_a_border_at_a_terminal_step_is_left_out_and_all_else_comes_back(tmp_path):
    export_dqn_replay(bordered_memory(0), tmp_path / "without")
    memory = ReplayMemory(20, FrameSpec((5, 3)), 6, stack=3)
    frames = np.random.default_rng(0).integers(1, 100, (9, 1, 5, 3)).astype(np.uint8)
    memory.begin(frames[0])
    for step in range(8):
        fields = [step % 6], [1.0], [step == 7], [False], frames[step + 1]
        append_with_borders(memory, fields, [0], np.array([step == 7]))

    export_dqn_replay(memory, tmp_path / "logs")

    for name in sorted(path.name for path in (tmp_path / "without").iterdir()):
        assert (tmp_path / "without" / name).read_bytes() == (tmp_path / "logs" / name).read_bytes()

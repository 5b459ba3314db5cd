"""A writer takes any observations, and its shards give back, bit for bit, what was not lost; a list is the oracle."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed.recorded_calls import RecordedCalls
from framestow import FrameSpec, ReplayMemory
from framestow.distributed.shard import Shard, ShardSettings
from framestow.distributed.writer import ShardWriter, WriterSettings
from framestow.errors import NothingToSampleError
from oracles.any_play import DISCOUNT, EXTRAS, NUM_ACTIONS, SMALL, AnyPlay, assert_same, row_of

NUM_ENVS, NUM_SHARDS = 3, 2
DICT = {"camera": FrameSpec((4, 3, 5)), "joints": FrameSpec((3,), np.float32)}
KINDS_OF_REPLAY = {
    "without stack": {"space": SMALL, "stack_axis": 0},
    "stack of 4": {"space": FrameSpec((3, 5)), "stack": 4},
    "stack of 1": {"space": FrameSpec((3, 5)), "stack": 1},
    "last axis": {"space": FrameSpec((3, 5, 4)), "stack_axis": -1},
    "joined channels": {"space": FrameSpec((3, 5, 6)), "stack_axis": (-1, 3)},
    "dict with one stack": {"space": DICT, "stack_axis": {"camera": 0}},
    "dict of one picture": {"space": {"camera": FrameSpec((4, 3, 5))}, "stack_axis": 0},
    "dict of one frame": {"space": {"camera": FrameSpec((3, 5))}, "stack": 4},
    "scaled floats": {"space": Box(0, 1, (4, 3, 5), np.float32), "stack_axis": 0},
    "vectors": {"space": FrameSpec((3, 2), np.float64), "stack_axis": 0},
    "uncompressed": {"space": SMALL, "stack_axis": 0, "storage": "raw"},
    "random retention": {"space": SMALL, "stack_axis": 0, "retention": "random", "frames_per_segment": 8},
}
SEEDS = st.integers(0, 2**32)


class Shards:
    """Two shards, a writer for their environments, and a play that it stores."""

    def __init__(self, kind, seed, n_step=1, padding="first_frame", frames_per_segment=8, directory=None) -> None:
        options = {"stack": None, "stack_axis": None, "frames_per_segment": frames_per_segment}
        options |= {"num_envs": -(-NUM_ENVS // NUM_SHARDS), "discount": DISCOUNT, "extras": EXTRAS}
        options |= {"stack_padding": padding, "n_step": n_step} | KINDS_OF_REPLAY[kind]
        of_shard = ReplayMemory(2_000, options.pop("space"), NUM_ACTIONS, **options).inner.settings
        self.n_step, self.directory = n_step, directory
        self.calls = RecordedCalls(*(partial(self._shard, of_shard, number) for number in range(NUM_SHARDS)))
        self.writer = ShardWriter(self.calls, WriterSettings(of_shard, tuple(range(NUM_ENVS)), give_up_s=5.0))
        self.play = AnyPlay(self.writer, of_shard.layout, seed, mixes=True, kinds=20, padding=padding)
        self.lost_before = [0] * NUM_SHARDS
        """Of each shard: the number of the first step that was given after its last loss."""

    def _shard(self, of_shard, number, num_restarts) -> Shard:
        folder = None
        if self.directory is not None:
            folder = self.directory / str(number) / str(num_restarts)
            if num_restarts:  # the files that a killed process leaves
                before = folder.with_name(str(num_restarts - 1))
                shutil.copytree(before, folder, ignore=shutil.ignore_patterns("LOCK"))
            folder /= "memory"
        return Shard(ShardSettings(of_shard, 0, None, folder, flush_every=1e9), num_restarts)

    def lose(self, number) -> None:
        """Let a shard die, with all that it did not flush."""
        killed = self.calls.objects[number]
        self.calls.replace(number)
        killed.close()
        for env_id in range(number, NUM_ENVS, NUM_SHARDS):
            kept = [step for step in self.readable(number) if self.play.steps[step].env_id == env_id]
            self.play.closed |= {max(kept, default=-1)}
        self.lost_before[number] = len(self.play.steps)

    def memory(self, number) -> ReplayMemory:
        return self.calls.objects[number].memory

    def readable(self, number) -> set[int]:
        """Return the numbers of all steps that a shard has."""
        memory, found = self.memory(number), []
        for episode in memory.episodes():
            found += memory.steps_from(episode.indices).extras["number"][:, 0].tolist()
        assert len(found) == len(set(found))
        return set(found)

    def assert_all(self) -> None:
        """Compare all transitions, sequences and current observations, and which of them are there."""
        self.writer.flush()
        given_numbers = self.play.sampleable(10**9, self.n_step)
        for number in range(NUM_SHARDS):
            memory = self.memory(number)
            memory.inner.parts.check()
            indices, found = memory.sampleable_indices(), []
            if indices.size:
                batch = memory.get(indices)
                self.play.assert_batch(batch, self.n_step, lost=True)
                found = batch.extras["number"].tolist()
            expected = [step for step in given_numbers if self.play.steps[step].env_id % NUM_SHARDS == number]
            since = {step for step in expected if step >= self.lost_before[number]}
            assert since <= set(found) <= set(expected) if self.lost_before[number] else sorted(found) == expected
            self.assert_sequences(number)
            for env_id in range(number, NUM_ENVS, NUM_SHARDS):
                if self.play.current[env_id] is not None:
                    observed = row_of(memory.observations(), env_id // NUM_SHARDS)
                    assert_same(self.play.current[env_id], observed)
                    assert_same(self.play.current[env_id], row_of(self.writer.observations(), env_id))

    def assert_sequences(self, number) -> None:
        readable = self.readable(number)
        for borders in ("mask", "cross"):
            try:
                batch = self.memory(number).sample_sequences(16, 9, borders=borders)
            except NothingToSampleError:
                return
            self.play.assert_sequences(batch, borders, readable)


def check_lost_shards(kind, seed, n_step, padding, frames_per_segment, lost, directory=None):
    """Play; ``lost``: what happens in turn: a shard dies, a call or an answer gets lost, or the writer flushes."""
    shards = Shards(kind, seed, n_step, padding, frames_per_segment, directory)
    for happens in lost:
        shards.play.play(8)
        if happens in ("shard 0", "shard 1"):
            shards.lose(int(happens[-1]))
        elif happens == "call":
            shards.calls.lost_calls.add(len(shards.calls.sent))
        elif happens == "answer":
            shards.calls.lost_answers.add(len(shards.calls.sent))
        elif happens == "flush":
            shards.writer.flush()
        elif happens == "store":
            for shard in shards.calls.objects:
                shard.flush()
    shards.play.play(8)
    shards.assert_all()
    for shard in shards.calls.objects:
        shard.close()


LOSSES = st.lists(st.sampled_from(["nothing", "flush", "shard 0", "shard 1", "call", "answer"]), max_size=8)
OF_PLAYS = {
    "seed": SEEDS,
    "n_step": st.integers(1, 5),
    "padding": st.sampled_from(["first_frame", "zeros"]),
    "frames_per_segment": st.sampled_from([1, 3, 8, None]),
    "lost": LOSSES,
}


@pytest.mark.parametrize("kind", KINDS_OF_REPLAY)
@pytest.mark.parametrize("max_examples", [8, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_what_a_writer_takes_comes_out_of_its_shards_whatever_was_lost(kind, max_examples):
    @settings(max_examples=max_examples)
    @given(**OF_PLAYS)
    def check(**play):
        check_lost_shards(kind, **play)

    check()


IN_DIRECTORIES = OF_PLAYS | {"lost": st.lists(st.sampled_from(["store", "flush", "shard 0", "shard 1"]), max_size=8)}
QUICK_KINDS = ["without stack", "dict with one stack", "uncompressed", "random retention"]


@pytest.mark.parametrize(
    ("kind", "max_examples"),
    [
        *((kind, 4) for kind in QUICK_KINDS),
        *(pytest.param(kind, 60, marks=pytest.mark.exhaustive) for kind in KINDS_OF_REPLAY),
    ],
)
def test_shards_in_directories_have_what_they_stored_and_what_came_after_a_kill(kind, max_examples, tmp_path):
    folder = tmp_path / "shards"

    @settings(max_examples=max_examples)
    @given(**IN_DIRECTORIES)
    def check(**play):
        shutil.rmtree(folder, ignore_errors=True)  # of the play before
        check_lost_shards(kind, **play, directory=folder)

    check()

"""Tianshou's buffers, theirs and ours, fed with the same steps, and a plain list of what each step was."""

import numpy as np
import pytest

pytest.importorskip("tianshou")

from tianshou import data as tianshou
from tianshou.data import Batch

from framestow.integrations import tianshou as packed
from integrations.libraries.tianshou_play import DEPTH, Play, assert_same

SIZE = 13  # slots of a stream: no multiple of anything

WAYS = [
    # the environment stacks, and the buffer shows what comes, or stacks the newest frames again
    {"env_stacks": True},
    {"env_stacks": True, "is_dict": True},
    {"env_stacks": True, "padding": "zeros"},
    {"env_stacks": True, "save_only_last_obs": True},
    {"env_stacks": True, "save_only_last_obs": True, "stack_num": DEPTH},
    # frames come, and the buffer stacks them, or nobody
    {"env_stacks": False},
    {"env_stacks": False, "stack_num": DEPTH},
    {"env_stacks": False, "stack_num": 2, "is_dict": True},
]
PLAYED = ("env_stacks", "is_dict", "padding")


class BesideOneAnother:
    """A buffer of theirs and one of ours that are fed with the same play, and what each of their slots is."""

    def __init__(self, way, num_streams, seed=0, size=SIZE, reset_chance=0.0, kind="VectorReplayBuffer", **settings):
        played = {key: value for key, value in way.items() if key in PLAYED}
        settings |= {key: value for key, value in way.items() if key not in PLAYED}
        self.play = Play(seed, num_streams, reset_chance=reset_chance, **played)
        self.theirs, self.ours = (
            getattr(library, kind)(num_streams * size, num_streams, **settings) for library in (tianshou, packed)
        )
        self.seen = {}

    def add(self, streams, with_next=True):
        batch, seen = self.play.step(streams)
        if not with_next:
            batch.pop("obs_next")
        theirs = self.theirs.add(Batch(batch, copy=True), buffer_ids=streams)
        ours = self.ours.add(batch, buffer_ids=streams)
        for part in (batch.obs, batch.get("obs_next")):  # an environment may use its arrays again
            for array in part.values() if isinstance(part, Batch) else [part]:
                if array is not None:
                    array[:] = 99
        for expected, actual in zip(theirs, ours, strict=True):
            assert_same(expected, actual)
        self.seen |= dict(zip(ours[0].tolist(), seen, strict=True))

    def truth(self, slots, which):
        """What was seen before (0) or after (1) the step in each of these slots, as the buffers' settings show it."""
        windows = [self.seen[slot][which] for slot in slots.tolist()]
        stack_num = self.ours.stack_num if self.ours.stack_num > 1 or self.ours.options["save_only_last_obs"] else None
        return (
            Batch(obs=self.play.sampled(windows, stack_num)).obs
            if self.play.env_stacks
            else (Batch(obs=self.play.sampled(windows, self.ours.stack_num)).obs)
        )

    def assert_all_right(self):
        """Every slot shows what was seen; all but observations is as in theirs."""
        slots = self.ours.sample_indices(0)
        shown, expected = self.ours[slots], self.theirs[slots]
        assert_same(self.truth(slots, 0), shown.pop("obs"))
        assert_same(self.truth(slots, 1), shown.pop("obs_next"))
        del expected.__dict__["obs"], expected.__dict__["obs_next"]
        assert_same(expected, shown)


def some_streams(generator, num_streams, is_uneven):
    if is_uneven and generator.random() < 0.5:
        return np.sort(generator.permutation(num_streams)[: generator.integers(1, num_streams + 1)])
    return np.arange(num_streams)


@pytest.mark.parametrize("is_uneven", [False, True])
@pytest.mark.parametrize("num_streams", [1, 3])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(f"{key}={value}" for key, value in way.items()))
def test_what_is_sampled_is_what_was_seen_and_all_else_is_as_in_tianshous_buffer(way, num_streams, is_uneven):
    generator = np.random.default_rng(num_streams + is_uneven)
    both = BesideOneAnother(way, num_streams, reset_chance=0.05, ignore_obs_next=bool(generator.integers(2)))

    for step in range(2 * SIZE * (1 + is_uneven) + 5):
        both.add(some_streams(generator, num_streams, is_uneven))
        if step % 5 == 0:
            both.assert_all_right()
        assert_same(both.theirs.sample_indices(4), both.ours.sample_indices(4))
    both.assert_all_right()
    assert len(both.ours.memories) == (num_streams if is_uneven else 1)

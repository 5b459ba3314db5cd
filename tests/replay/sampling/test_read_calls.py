"""A memory, an ensemble and shards are sampled by the same calls."""

from __future__ import annotations

import inspect

import pytest

from framestow import ReplayEnsemble, ReplayMemory
from framestow.distributed import ShardedReplay
from framestow.replay.reading.batches_ahead import DrawsAhead
from framestow.replay.reading.read_calls import ReadCalls

CALLS = {**vars(DrawsAhead), **vars(ReadCalls)}
NAMES = ["__len__", *(name for name in CALLS if not name.startswith("_"))]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [ReplayMemory, ReplayEnsemble, ShardedReplay])
def test_what_can_be_sampled_has_every_call_with_the_same_arguments(kind, name):
    stated, found = CALLS[name], getattr(kind, name)

    assert isinstance(stated, property) == isinstance(found, property)
    if not isinstance(stated, property):
        expected = [(each.name, each.kind, each.default) for each in inspect.signature(stated).parameters.values()]
        assert expected == [
            (each.name, each.kind, each.default) for each in inspect.signature(found).parameters.values()
        ]

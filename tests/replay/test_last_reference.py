"""A memory in RAM is freed with its last reference, without Python's collector: its frames may be gigabytes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from oracles.numbered_steps import numbered_memory, play_episode


@pytest.fixture
def without_a_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_a_collector")
@pytest.mark.parametrize("retention", ["fifo", "random"])
def test_frames_go_with_the_last_reference_to_a_memory(retention, tmp_path):
    memory = numbered_memory(1_000, retention=retention, frames_per_segment=8)
    play_episode(memory, 0, length=30, truncated=True)
    memory.sample(4)
    memory.sample_sequences(2, 3)
    memory.observations()
    memory.save(tmp_path)
    frames, steps = weakref.ref(memory.inner.frames), weakref.ref(memory.inner.steps)

    del memory

    assert (frames(), steps()) == (None, None)


@pytest.mark.usefixtures("without_a_collector")
def test_a_draw_that_is_kept_has_its_frames_until_it_goes_too():
    memory = numbered_memory(1_000)
    play_episode(memory, 0, length=30, truncated=True)
    drawn, frames = memory.draw_ahead(4), weakref.ref(memory.inner.frames)
    del memory

    assert 4 == len(drawn.unpack())
    del drawn

    assert frames() is None

"""``describe_distribution``: which transitions the sampler draws, how old they are, and the returns over time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from framestow.errors import DamagedSegmentError, NothingToSampleError
from framestow.replay.memory import ReplayMemory
from framestow.training.report.charts import Dots, Key, Layer, Line, bin_points, chart
from framestow.viewer.columns import pack_columns
from framestow.viewer.episode_table import EpisodeTable

NUM_DRAWS = 10_000
NUM_BINS = 50
NUM_TOP = 24  # transitions with the highest probabilities
MOST_DOTS = 1_000  # episodes in the chart of returns
STEPS_AT_ONCE = 2**18

Indices = npt.NDArray[np.int64]


def describe_distribution(memory: ReplayMemory, table: EpisodeTable, shown: npt.NDArray[np.int64]) -> bytes:
    """Return charts as HTML, and the transitions of ``shown`` episodes that are most often drawn, with their frames.

    10,000 transitions are drawn as one batch, or all if a sampler without repeats has fewer, by copies of the sampler
    and of its generator: the memory's own draws go on as if nothing had been drawn.
    """
    charts = _returns_chart(table)
    if len(memory):
        try:
            charts = _draw_charts(memory, _draw_on_copies(memory)) + charts
        except NothingToSampleError as error:
            charts = f"<p class='alarm'>{escape(str(error))}</p>" + charts
    best = _Best.of(memory, table, shown)
    key = _picture_key(memory)
    frames = np.zeros((len(best.indices), memory.inner.settings.frame.frame_specs[key].nbytes), np.uint8)
    for row, index in enumerate(best.indices.tolist()):
        with suppress(DamagedSegmentError):  # the video says what is damaged
            frames[row] = _newest_frame(memory, index, key)
    values = {"charts": charts, "key": key}
    arrays: dict[str, npt.NDArray[Any]] = {
        "episode": best.episodes,
        "step": best.steps,
        "probability": best.probabilities,
        "frames": frames,
    }
    return pack_columns(values, arrays)


def _draw_on_copies(memory: ReplayMemory) -> Indices:
    sampler, generator = memory.inner.parts.notified_sampler, memory.inner.parts.generator
    with memory.inner.lock:
        try:
            return sampler.draw_on_copies(NUM_DRAWS, generator)
        except NothingToSampleError:
            if len(memory) >= NUM_DRAWS:
                raise
            return sampler.draw_on_copies(len(memory), generator)


def _newest_frame(memory: ReplayMemory, index: int, key: int) -> npt.NDArray[np.uint8]:
    """Return the newest frame of an array of a transition's observation, as bytes."""
    layout = memory.inner.settings.layout
    frames = layout.split(layout.flatten(memory.get([index]).observation))[key]
    return np.ascontiguousarray(frames[0, -1]).reshape(-1).view(np.uint8)


def _picture_key(memory: ReplayMemory) -> int:
    """Return the number of the array of an observation that is shown: the largest picture, or the largest vector."""
    specs = memory.inner.settings.frame.frame_specs
    return max(range(len(specs)), key=lambda key: (len(specs[key].shape) > 1, specs[key].nbytes))


def _draw_charts(memory: ReplayMemory, drawn: Indices) -> str:
    """Return charts of the drawn transitions, by their order in the memory and by their age."""
    steps = memory.inner.steps
    count = len(memory)
    num_bins = min(NUM_BINS, count)
    edges = np.arange(num_bins + 1) * count // num_bins
    firsts = steps.sampleable_at(edges[:-1])
    in_bins = np.bincount(np.searchsorted(firsts, drawn, side="right") - 1, minlength=num_bins)
    times = in_bins / len(drawn) * count / np.diff(edges)
    middle = (edges[:-1] + edges[1:]) / 2
    mean: list[Layer] = [Line(np.array([0.0, count]), np.array([1.0, 1.0]), 5, "dashed")]
    by_order = chart(
        "Drawn, by order",
        [*mean, Line(middle, times, 0)],
        f"How often a part of the memory is drawn, as times the mean, over its transitions from the oldest to the "
        f"newest; {NUM_DRAWS:,} draws.",
    )
    most = 1 + max(int(_ages(memory, indices).max()) for indices in _pieces(memory))
    bins = np.linspace(0, most, min(NUM_BINS, most) + 1)
    centres = (bins[:-1] + bins[1:]) / 2
    stored = np.sum([np.histogram(_ages(memory, indices), bins)[0] for indices in _pieces(memory)], axis=0)
    in_bins_drawn = np.histogram(_ages(memory, drawn), bins)[0]
    shares = [stored / count * 100, in_bins_drawn / len(drawn) * 100]
    by_age = chart(
        "Age",
        [Line(centres, shares[0], 5, "dashed"), Line(centres, shares[1], 1)],
        f"Per cent of the transitions in each of {len(centres)} parts, over age: frames that its "
        "environment stored since.",
        [Key("drawn", 1), Key("stored", 5, "dashed")],
    )
    return by_order + by_age


def _returns_chart(table: EpisodeTable) -> str:
    whole = table.spans[table.episodes.is_whole]
    ends = whole["first"] + whole["length"]
    order = np.argsort(ends, kind="stable")
    xs, ys = ends[order].astype(np.float64), whole["total_reward"][order]
    stride = -(-len(xs) // MOST_DOTS) or 1
    dots = "an episode" if stride == 1 else f"an episode (every {stride}th)"
    return chart(
        "Returns",
        [Dots(xs[::stride], ys[::stride], 0), Line(*bin_points(xs, ys, 40), 0)],
        "Return of each whole episode, over the frames that its environment had stored.",
        [Key(dots, 0, "dots"), Key("mean", 0)],
    )


def _pieces(memory: ReplayMemory) -> Iterator[Indices]:
    """Yield the indices of all transitions, some at a time."""
    for start in range(0, len(memory), STEPS_AT_ONCE):
        yield memory.inner.steps.sampleable_at(np.arange(start, min(start + STEPS_AT_ONCE, len(memory))))


def _ages(memory: ReplayMemory, indices: Indices) -> Indices:
    env_ids, positions = memory.inner.steps.places(indices)
    ages: Indices = memory.inner.steps.newest_positions[env_ids] - positions - 1
    return ages


@dataclass(frozen=True)
class _Best:
    """The transitions that are most often drawn, the first one most often; none if all are drawn as often."""

    indices: Indices
    episodes: Indices
    steps: Indices
    probabilities: npt.NDArray[np.float64]

    @classmethod
    def of(cls, memory: ReplayMemory, table: EpisodeTable, shown: npt.NDArray[np.int64]) -> _Best:
        found, likely = [np.zeros(0, np.int64)], [np.zeros(0)]
        least = np.inf
        for indices in _pieces(memory):
            with memory.inner.lock:
                chances = memory.inner.parts.notified_sampler.chances(indices)
            if chances is None:
                continue
            least = min(least, float(chances.probabilities.min()))
            own, probabilities = indices, chances.probabilities
            if len(shown) < len(table):
                is_shown = np.isin(table.find(memory.inner.parts, indices)[0], shown)
                own, probabilities = own[is_shown], probabilities[is_shown]
            order = np.argsort(-probabilities, kind="stable")[:NUM_TOP]
            found.append(own[order])
            likely.append(probabilities[order])
        all_found, all_likely = np.concatenate(found), np.concatenate(likely)
        order = np.argsort(-all_likely, kind="stable")[:NUM_TOP]
        if not len(order) or all_likely[order[0]] <= least * (1 + 1e-9):
            order = order[:0]
        episodes, steps = table.find(memory.inner.parts, all_found[order]) if len(order) else (found[0], found[0])
        return cls(all_found[order], episodes, steps, all_likely[order])

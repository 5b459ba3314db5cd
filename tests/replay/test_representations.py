"""What ``repr`` prints: one line that says what an object is, also of one that is half built or busy."""

from __future__ import annotations

import re
import threading
from time import perf_counter

import numpy as np
import pytest

import framestow
from framestow import Draw, FrameSpec, HindsightGoals, ReplayMemory, Sampler, Uniform
from framestow import torch as face
from framestow.errors import InvalidStepError
from framestow.frames import LazyFrames, LazyFramesBatch


def filled(**settings) -> ReplayMemory:
    """A memory of 60 random frames, 30 steps of each of two environments."""
    memory = ReplayMemory(1_000, FrameSpec((84, 84)), 4, num_envs=2, seed=0, **{"stack": 4} | settings)
    frames = np.random.default_rng(0).integers(0, 255, (31, 2, 84, 84), np.uint8)
    memory.begin(frames[0])
    for step in range(30):
        memory.append([0, 1], [1.0, 2.0], [False] * 2, [step == 29] * 2, frames[step + 1])
    return memory


def test_every_object_is_one_line_with_its_class_and_without_its_numbers(tmp_path):
    goal = FrameSpec((2,), np.float32)
    of_goals = ReplayMemory(10, {"achieved_goal": goal, "desired_goal": goal}, 4, n_step=1, extras={"cost": np.float32})
    zeros = dict.fromkeys(of_goals.observation_space, np.zeros(2, np.float32))
    of_goals.add(zeros, 0, 0.0, zeros, True, False, extras={"cost": 0.0})
    memory, lazy = filled(n_step=3), LazyFrames([np.zeros((84, 84), np.uint8)] * 4)
    with filled(directory=tmp_path, frames_per_segment=8) as on_disk:
        on_disk.flush()
        assert str(tmp_path) in repr(on_disk)
    batches = [memory.sample(32), memory.sample_sequences(1, 2, burn_in=1), of_goals.sample(1)]
    objects = [memory, of_goals, on_disk, ReplayMemory.open(tmp_path), memory.report(), of_goals.report()]
    objects += [*batches, *map(face.to_tensors, batches), memory.steps_from([0], 1), memory.batches(16)]
    objects += [next(memory.episodes()), HindsightGoals(of_goals, lambda *_: [0.0]), face.RandomShift()]
    objects += [lazy, LazyFramesBatch([lazy])]

    with face.BatchLoader(memory, 4) as loader, face.SequenceLoader(memory, 4, 2) as sequences:
        shown = {type(each).__name__: repr(each) for each in [*objects, loader, sequences]}

    for name, line in shown.items():
        assert re.fullmatch(rf"{name.removeprefix('Tensor')}\(.{{1,300}}\)", line)
        assert "unknown" not in line
    assert "30 steps" in shown["StoredEpisode"]
    assert "32 transitions" in repr(batches[0])


def test_a_report_is_a_table_in_a_notebook():
    report = filled(label="a <b>", frames_per_segment=16).report()

    html = report._repr_html_()

    assert list(report.parts) == [part for part in report.parts if f"<td>{part}</td>" in html]
    assert html.count("<table") == html.count("</table>") == 1
    assert "0 of 10 transitions" in ReplayMemory(10, FrameSpec((2, 2)), 4).report()._repr_html_()


def test_repr_of_a_memory_waits_only_briefly_for_its_lock_and_then_leaves_the_size_out():
    class Waiting(Uniform):
        def draw(self, *arguments):
            drawing.set()
            answered.wait()
            return super().draw(*arguments)

    drawing, answered = threading.Event(), threading.Event()
    memory = filled(sampler=Waiting())
    thread = threading.Thread(target=memory.sample, args=(2,))
    thread.start()
    drawing.wait()
    began = perf_counter()

    shown = repr(memory)

    took = perf_counter() - began
    answered.set()
    thread.join()
    assert "ReplayMemory(60 of 1,000 transitions, stack 4, 2 environments)" == shown
    assert took < 2


def test_a_memory_whose_constructor_raised_has_a_repr():
    assert "ReplayMemory(unknown: AttributeError)" == repr(ReplayMemory.__new__(ReplayMemory))


@pytest.mark.parametrize(
    "call",
    [
        "Prioritized(alpha=0.5, beta=0.4, final_beta=1.0, annealed_over=10, epsilon=1e-06)",
        "EmphasizeRecent(eta=0.996, num_updates=1000, min_recent=5000)",
        "Mixture((Uniform(distinct=False), 3), (ByAge(half_life=10.0), 1))",
    ],
)
def test_a_sampler_is_shown_as_the_call_that_builds_it(call):
    assert call == repr(eval(call, {name: getattr(framestow, name) for name in framestow.__all__}))


def test_a_sampler_of_ones_own_is_shown_with_its_plain_settings():
    class Newest(Sampler):
        def __init__(self, share, weights):
            self.share, self.weights = share, weights

        def draw(self, batch_size, transitions, generator):
            ranks = np.full(batch_size, len(transitions) - 1)
            return Draw(transitions.sampleable_at(ranks), np.ones(batch_size, np.float32))

    assert "Newest(share=0.5)" == repr(Newest(0.5, np.zeros(1_000_000)))


def test_keys_of_a_stranger_reach_no_terminal_as_they_are():
    key, frame = "\x1b]0;title\x07\n\u202e", np.zeros((40, 40, 4), np.uint8)
    memory = ReplayMemory(10, {key: FrameSpec(frame.shape)}, 4)
    memory.add({key: frame}, 1, 0.5, {key: frame}, True, False)
    batch, report = memory.sample(2), memory.report()
    shown = [str(report), repr(report), report._repr_html_(), repr(batch), repr(face.to_tensors(batch)), repr(memory)]
    for wrong in ({"camera": frame}, frame, None, {key: frame[1:]}):
        with pytest.raises(InvalidStepError) as refused:
            memory.add(wrong, 1, 0.5, {key: frame}, True, False)
        shown.append(str(refused.value))
    for build in (
        lambda: ReplayMemory(10, {key: FrameSpec((2, 2))}, 4, stack_axis={"camera": 0}),
        lambda: HindsightGoals(memory, lambda *_: [0.0]),
        lambda: memory.add({}, 1, 0.5, {}, True, False),
    ):
        with pytest.raises(ValueError, match="title") as refused:
            build()
        shown.append(str(refused.value))

    assert [] == [text for text in shown if not text.replace("\n", "").isprintable() or "\x07\n" in text]
    assert all(r"\x1b]0;title\x07\n\u202e" in text for text in shown if "title" in text)
    assert sum("title" in text for text in shown) > 8

"""What ``repr`` prints of memories, samplers, batches and reports: one line that says what they are."""

from __future__ import annotations

import threading
from time import perf_counter

import numpy as np
import pytest

import framestow
from framestow import Draw, FrameSpec, HindsightGoals, ReplayMemory, Sampler, Uniform


def filled(**settings) -> ReplayMemory:
    """A memory of 60 random frames, 30 steps of each of two environments."""
    memory = ReplayMemory(1_000, FrameSpec((84, 84)), 4, num_envs=2, seed=0, **{"stack": 4} | settings)
    frames = np.random.default_rng(0).integers(0, 255, (31, 2, 84, 84), np.uint8)
    memory.begin(frames[0])
    for step in range(30):
        memory.append([0, 1], [1.0, 2.0], [False] * 2, [step == 29] * 2, frames[step + 1])
    return memory


def test_a_memory_says_how_full_it_is_how_large_and_what_it_stores():
    memory = filled()

    size = f"{memory.nbytes / 2**10:.1f} KiB"
    assert f"ReplayMemory(60 of 1,000 transitions, {size}, stack 4, 2 environments)" == repr(memory)


def test_an_empty_memory_of_one_environment_has_its_words_in_the_singular():
    memory = ReplayMemory(1_000_000, FrameSpec((2, 2)), 4, stack=1, n_step=3)

    assert repr(memory).startswith("ReplayMemory(0 of 1,000,000 transitions, ")
    assert repr(memory).endswith(" KiB, stack 1, n_step 3, 1 environment)")


def test_a_memory_on_disk_says_where_its_frames_are_and_that_it_is_closed(tmp_path):
    with filled(directory=tmp_path / "store", frames_per_segment=8) as memory:
        memory.flush()
        report = memory.report()
        of_disk = f"{report.nbytes / 2**10:.1f} KiB and {report.disk_bytes / 2**10:.1f} KiB in files of"
        assert f"(60 of 1,000 transitions, {of_disk} {tmp_path / 'store'}, stack 4, 2 environments)" in repr(memory)

    assert repr(memory).endswith("2 environments, read-only)")
    assert repr(ReplayMemory.open(tmp_path / "store")).endswith("2 environments, read-only)")


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
        "Uniform()",
        "Prioritized(alpha=0.6, beta=0.4, epsilon=1e-06)",
        "Prioritized(alpha=0.5, beta=0.4, final_beta=1.0, annealed_over=10, epsilon=1e-06)",
        "ByAge(half_life=100000.0)",
        "EmphasizeRecent(eta=0.996, num_updates=1000, min_recent=5000)",
        "Mixture((Uniform(), 3), (ByAge(half_life=10.0), 1))",
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


def test_hindsight_goals_show_their_share_strategy_and_memory():
    goal = FrameSpec((2,), np.float32)
    memory = ReplayMemory(10, {"achieved_goal": goal, "desired_goal": goal}, 4, stack=4)

    shown = repr(HindsightGoals(memory, lambda achieved, desired, info: np.zeros(len(achieved)), share=0.5))

    assert f"HindsightGoals(share 0.5, strategy 'future', {memory!r})" == shown


def test_a_batch_shows_shapes_and_dtypes_instead_of_numbers():
    memory = filled()

    assert "Batch(32 transitions, observation (32, 4, 84, 84) uint8, action (32,) int64)" == repr(memory.sample(32))
    assert "SequenceBatch(3 sequences of 5 steps, observation (3, 5, 4, 84, 84) uint8, action (3, 5) int64)" == repr(
        memory.sample_sequences(3, 5)
    )
    assert repr(memory.sample_sequences(1, 2, burn_in=1)).endswith("action (1, 2) int64, burn_in 1)")
    assert "StepSequences(2 sequences of 1 step, action (2, 1) int64)" == repr(memory.steps_from([0, 1], 1))


def test_a_batch_of_several_arrays_and_extras_shows_each_of_them():
    space = {"camera": FrameSpec((3, 3)), "arm": FrameSpec((2,), np.float32)}
    memory = ReplayMemory(10, space, 4, stack=2, extras={"log_prob": np.float32})
    frames = {"camera": np.zeros((1, 3, 3), np.uint8), "arm": np.zeros((1, 2), np.float32)}
    memory.begin(frames)
    memory.append([0], [1.0], [False], [False], frames, extras={"log_prob": [0.0]})

    assert (
        "Batch(1 transition, observation {arm: (1, 2, 2) float32, camera: (1, 2, 3, 3) uint8}, action (1,) int64, "
        "extras {log_prob: (1,) float32})"
    ) == repr(memory.get([0]))


def test_batches_of_a_whole_memory_say_how_many_are_left():
    batches = filled().batches(16)
    next(batches)

    assert "StoredBatches(3 of 4 batches of 16 left)" == repr(batches)


def test_a_stored_episode_shows_its_length_and_total_reward():
    episode = list(filled().episodes())[1]

    assert "StoredEpisode(30 steps of environment 1, total reward 60)" == repr(episode)


def test_a_report_is_one_line_in_repr_and_a_table_in_a_notebook():
    report = filled(label="a <b>", frames_per_segment=16).report()

    assert repr(report).startswith("MemoryReport(60 of 1,000 transitions, ")
    assert repr(report).endswith(" bytes each)")
    html = report._repr_html_()
    cells = [part for part in report.parts if f"<td>{part}</td>" in html]
    assert list(report.parts) == cells
    assert "60 of 1,000 transitions in " in html
    assert html.count("<table") == html.count("</table>") == 1


def test_a_report_of_an_empty_memory_has_both_too():
    report = ReplayMemory(10, FrameSpec((2, 2)), 4, stack=4).report()

    assert repr(report).startswith("MemoryReport(0 of 10 transitions, ")
    assert "0 of 10 transitions" in report._repr_html_()

"""Trainers take turns of the same work, and the profile of framestow's trainer is complete."""

from __future__ import annotations

import threading

import psutil
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import training_systems
from framestow.torch import to_tensors
from training_figures import profile_row, remaining_growth, row, speed_table
from training_profile import PARTS, PartClock
from training_systems import BARE, LEARNING_RATE, SB3, SYSTEMS, BareLearner
from training_turns import Rounds, TrainerProcess, busy_process, turn

WARMUP = 40  # steps; more than a batch


@pytest.fixture(autouse=True)
def _one_thread_and_a_short_warmup(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(training_systems, "WARMUP", WARMUP)
    monkeypatch.setattr(training_systems, "CAPACITY", 200)  # transitions
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def num_updates():
    """Return a list that gets an entry with every optimiser step."""
    updates = []
    hook = register_optimizer_step_post_hook(lambda *_: updates.append(1))
    yield updates
    hook.remove()


class Noting:
    """Records its turns."""

    def __init__(self, name, turns):
        self.name, self.turns = name, turns

    def ask(self, do, amount):
        self.turns.append((self.name, do, amount))
        return {"steps": amount, "seconds": 1.0}


def test_every_trainer_takes_one_turn_of_the_same_steps_in_each_round_and_the_order_changes():
    turns = []

    all_take = Rounds({name: Noting(name, turns) for name in "abc"}).take
    answers = [all_take("train", 7) for _ in range(6)]

    rounds = [turns[start : start + 3] for start in range(0, len(turns), 3)]
    assert len(rounds) == 6
    assert all(sorted(each) == [(name, "train", 7) for name in "abc"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert [["a", "b", "c"]] * 6 == [list(each) for each in answers]


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of the libraries
@pytest.mark.parametrize("name", ["framestow", SB3, "CleanRL's dqn_atari", BARE])
def test_each_system_makes_an_update_every_four_steps_after_the_warmup(name, num_updates):
    if SYSTEMS[name].library:
        pytest.importorskip("stable_baselines3")
    trainer = SYSTEMS[name].make(1)

    warmup = trainer.train(WARMUP)
    updates_in_warmup = len(num_updates)
    steps = trainer.train(16)
    updates = len(num_updates)
    trainer.update(2)
    trainer.close()

    assert (WARMUP, 0) == (warmup, updates_in_warmup)
    assert steps == 16
    assert updates in (3, 4)  # some learn before the step, some after it
    assert len(num_updates) == updates + 2


def test_the_bare_learner_makes_the_update_of_framestows_agent():
    trainer = SYSTEMS["framestow"].make(1)
    trainer.train(WARMUP)
    batch = trainer.run.memory.sample(32)
    bare = BareLearner(threads=1, tuned=True)
    weights = [weight.clone() for weight in trainer.run.agent.state_dict()["online"].values()]
    names = list(bare.online.state_dict())
    bare.online.load_state_dict(dict(zip(names, weights, strict=True)))
    bare.target.load_state_dict(dict(zip(names, weights, strict=True)))

    tensors = to_tensors(batch, "cpu")
    loss = bare.learn(tensors.observation, tensors.action, tensors.reward, tensors.discount, tensors.next_observation)
    update = trainer.run.agent.learn(batch)
    trained = list(trainer.run.agent.state_dict()["online"].values())
    trainer.close()

    assert float(update.loss) == pytest.approx(float(loss), rel=1e-5)
    for ours, theirs, before in zip(trained, bare.online.state_dict().values(), weights, strict=True):
        assert (theirs - before).abs().max() > 0.5 * LEARNING_RATE  # Adam's first step is the learning rate
        assert (theirs - ours).abs().mean() < 1e-3 * LEARNING_RATE


def test_the_profile_has_all_parts_and_they_add_up_to_the_time_of_the_turn():
    trainer = SYSTEMS["framestow"].make(1)
    trainer.train(WARMUP + 4)

    answer = turn(trainer, "profile", 8)
    trainer.close()

    assert set(PARTS) == set(answer["parts"])
    assert all(seconds > 0 for seconds in answer["parts"].values())
    assert 0.5 * answer["seconds"] < sum(answer["parts"].values()) <= answer["seconds"]


def test_a_part_excludes_the_parts_inside_it_and_other_threads_are_apart():
    now = [0.0]

    def spend(seconds):
        now[0] += seconds

    clock = PartClock(clock=lambda: now[0])
    inner = clock.around("inner", spend)

    def outer():
        spend(1)
        inner(2)
        spend(4)

    clock.around("outer", outer)()
    thread = threading.Thread(target=inner, args=(8,))
    thread.start()
    thread.join()

    assert {"outer": 5.0, "inner": 2.0} == clock.seconds
    assert {"inner": 8.0} == clock.beside


def test_a_trainer_whose_process_ended_is_named(tmp_path):
    script = tmp_path / "ends.py"
    script.write_text("raise SystemExit(3)")
    process = TrainerProcess("framestow", 1, str(script))

    with pytest.raises(SystemExit, match="framestow: its process ended with 3"):
        process.ask("train", 8)
    process.close()


def test_the_busy_process_runs_within_its_block_only():
    before = psutil.Process().children()

    with busy_process():
        within = psutil.Process().children()

    assert len(within) == len(before) + 1
    assert before == psutil.Process().children()


def answer_of(steps, seconds, **figures):
    return {
        "steps": steps,
        "seconds": seconds,
        "processor_seconds": 1.0,
        "torch_threads": 2,
        "peak_bytes": 10**6,
        **figures,
    }


def stored_after(transitions):
    return {"stored_transitions": transitions, "stored_bytes": 500 + 10 * transitions}


def rounds_of(seconds_of_rounds):
    """Return the rounds in which each system makes 200 steps in these seconds."""
    return [
        {
            name: answer_of(200, each, **stored_after(200 * number))
            for name, each in zip(seconds_of_rounds, turns, strict=True)
        }
        for number, turns in enumerate(zip(*seconds_of_rounds.values(), strict=True), start=1)
    ]


def test_rates_are_medians_and_ratios_are_compared_within_a_round():
    quicker, slower = SB3, f"{SB3}, optimize_memory_usage"
    quiet = rounds_of({"framestow": [2, 4, 40], BARE: [1, 2, 20], quicker: [4, 8, 80], slower: [5, 9, 90]})
    busy = rounds_of({"framestow": [8], BARE: [3], quicker: [8], slower: [9]})

    figures = row("framestow", quiet, busy, quiet)

    assert figures["steps_a_second"] == 50
    assert (figures["of_bare_learner"], figures["of_stable_baselines3"]) == (0.5, 2.0)
    assert (figures["busy_of_quiet"], figures["busy_of_stable_baselines3"]) == (0.5, 1.0)


def test_a_trainer_without_the_others_has_no_ratios():
    figures = row("framestow", *[rounds_of({"framestow": [2, 4]})] * 3)

    assert (None, None) == (figures["of_bare_learner"], figures["of_stable_baselines3"])


def test_the_ring_grows_as_in_the_second_half_until_it_is_full():
    answers = [each["framestow"] for each in rounds_of({"framestow": [1, 1, 1, 1]})]

    assert remaining_growth(answers) == 10 * (100_000 - 800)


def test_the_page_has_a_line_for_each_trainer():
    turns = rounds_of({"framestow": [2, 4], BARE: [1, 2]})
    systems = {name: row(name, turns, turns, turns) for name in turns[0]}

    lines = speed_table({"systems": systems}).splitlines()

    assert "| framestow | 75.0 | 0.50 | | 13.3 | 0.33 | 1 | 2 | 75.0 | |" in lines
    assert len(lines) == 4


def test_a_profile_has_the_milliseconds_of_a_step_and_what_another_thread_did():
    answer = answer_of(100, 1.0, parts=dict.fromkeys(PARTS, 0.1), parts_beside={PARTS[0]: 0.05})

    assert profile_row([answer]) == {
        "ms_a_step": dict.fromkeys(PARTS, 1.0),
        "ms_a_step_in_other_threads": {PARTS[0]: 0.5},
    }

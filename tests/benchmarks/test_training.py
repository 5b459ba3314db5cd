"""Trainers take turns of the same work, and the profile of framestow's trainer is complete."""

from __future__ import annotations

import threading

import psutil
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import training_profile
import training_systems
from training_profile import PARTS, PartClock
from training_systems import BARE, SB3, SYSTEMS, BareLearner, FramestowTrainer
from training_turns import TrainerProcess, busy_process, rounds_of_turns, turn

WARMUP = 40  # steps; more than a batch


@pytest.fixture(autouse=True)
def _one_thread_and_a_short_warmup(monkeypatch):
    threads = torch.get_num_threads()
    monkeypatch.setattr(training_systems, "WARMUP", WARMUP)
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

    answers = rounds_of_turns({name: Noting(name, turns) for name in "abc"}, "train", 6, 7, lambda line: None)

    rounds = [turns[start : start + 3] for start in range(0, len(turns), 3)]
    assert len(rounds) == 6
    assert all(sorted(each) == [(name, "train", 7) for name in "abc"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert {name: len(of_rounds) for name, of_rounds in answers.items()} == {"a": 6, "b": 6, "c": 6}


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
    trainer = FramestowTrainer(threads=1, num_envs=1, workers=0)
    trainer.train(WARMUP)
    batch = trainer.run.memory.sample(32)
    bare = BareLearner(threads=1, tuned=True)
    weights = [weight.clone() for weight in trainer.run.agent.state_dict()["online"].values()]
    names = list(bare.online.state_dict())
    bare.online.load_state_dict(dict(zip(names, weights, strict=True)))
    bare.target.load_state_dict(dict(zip(names, weights, strict=True)))

    arrays = (batch.observation, batch.action, batch.reward, batch.discount, batch.next_observation)
    loss = bare.learn(*(torch.from_numpy(array) for array in arrays))
    update = trainer.run.agent.learn(batch)
    trained = list(trainer.run.agent.state_dict()["online"].values())
    trainer.close()

    assert float(update.loss) == pytest.approx(float(loss), rel=1e-5)
    for ours, theirs, before in zip(trained, bare.online.state_dict().values(), weights, strict=True):
        assert not torch.equal(before, theirs)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-6)  # a fiftieth of Adam's first step


def test_the_profile_has_all_parts_and_they_add_up_to_the_time_of_the_turn():
    trainer = FramestowTrainer(threads=1, num_envs=1, workers=0)
    trainer.train(WARMUP + 4)

    answer = turn(trainer, "profile", 8)
    trainer.close()

    assert set(PARTS) == set(answer["parts"])
    assert all(seconds > 0 for seconds in answer["parts"].values())
    assert sum(answer["parts"].values()) == pytest.approx(answer["seconds"], rel=0.05)


def test_a_part_excludes_the_parts_inside_it_and_other_threads_are_apart(monkeypatch):
    class Time:
        now = 0.0

        @classmethod
        def perf_counter(cls):
            return cls.now

    def spend(seconds):
        Time.now += seconds

    monkeypatch.setattr(training_profile, "time", Time)
    clock = PartClock()
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
    process = TrainerProcess(str(script), "framestow", 1)

    with pytest.raises(SystemExit, match="framestow: its process ended with 3"):
        process.ask("train", 8)
    process.close()


def test_the_busy_process_runs_within_its_block_only():
    before = psutil.Process().children()

    with busy_process():
        within = psutil.Process().children()

    assert len(within) == len(before) + 1
    assert before == psutil.Process().children()

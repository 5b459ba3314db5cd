"""The learner: when batches are drawn, updates are yielded and priorities reach the memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.agents_and_batches import agent_settings
from framestow import FrameSpec, Prioritized, ReplayMemory
from framestow.agents.dqn import DQN
from framestow.training.loop import start_run, train
from framestow.training.run import Learner, Run
from framestow.training.run_folder import RunFolder
from training.catch_runs import catch_settings, make_catch
from training.equal_runs import assert_equal_runs

SIDE = 12


def _memory() -> ReplayMemory:
    memory = ReplayMemory(100, FrameSpec((SIDE, SIDE)), 3, stack=2, sampler=Prioritized(), seed=0)
    generator = np.random.default_rng(0)
    memory.begin(_frame(generator))
    for step in range(60):
        memory.append([step % 3], [float(step % 2)], [step % 20 == 19], [False], _frame(generator))
        if step % 20 == 19:
            memory.begin(_frame(generator))
    return memory


def _frame(generator: np.random.Generator) -> Any:
    return generator.integers(0, 256, (1, SIDE, SIDE), dtype=np.uint8)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The learner's calls of memory and agent, in order."""
    calls: list[str] = []

    def note(owner: type[Any], name: str) -> None:
        call = getattr(owner, name)

        def noted(*args: Any) -> Any:
            calls.append(name)
            return call(*args)

        monkeypatch.setattr(owner, name, noted)

    for name in ("draw_ahead", "sample", "update_priorities"):
        note(ReplayMemory, name)
    note(DQN, "learn")
    return calls


@pytest.fixture(params=[0, 1, 2, 5])
def learner(request: pytest.FixtureRequest) -> Iterator[Learner]:
    agent = DQN((2, SIDE, SIDE), 3, agent_settings("rainbow-lite"), "cpu", seed=0)
    with Learner(agent, _memory(), 8, gives_priorities=True, ahead=request.param) as learner:
        yield learner


def test_every_update_is_yielded_once_and_in_order(learner: Learner) -> None:
    yielded = [event.num_updates for count in (3, 1, 0, 4) for event in learner.update(count)]
    yielded += [event.num_updates for event in learner.finish()]

    assert yielded == list(range(1, 9))


def test_an_update_is_yielded_and_gives_priorities_after_as_many_later_ones_as_are_ahead(calls: list[str]) -> None:
    agent = DQN((2, SIDE, SIDE), 3, agent_settings("rainbow-lite"), "cpu", seed=0)
    with Learner(agent, _memory(), 8, gives_priorities=True, ahead=2) as learner:
        yielded = [[event.num_updates for event in learner.update(1)] for _ in range(4)]

    draw, learn, give = "draw_ahead", "learn", "update_priorities"
    assert yielded == [[], [], [1], [2]]
    assert calls == [draw, draw, draw, learn, draw, learn, draw, learn, give, draw, learn, give]


def test_with_none_ahead_each_batch_is_drawn_after_the_priorities_of_the_last(calls: list[str]) -> None:
    agent = DQN((2, SIDE, SIDE), 3, agent_settings("rainbow-lite"), "cpu", seed=0)
    learner = Learner(agent, _memory(), 8, gives_priorities=True, ahead=0)

    assert [event.num_updates for event in learner.update(2)] == [1, 2]
    assert calls == ["sample", "learn", "update_priorities"] * 2


def test_settling_gives_all_priorities_and_keeps_the_events(learner: Learner, calls: list[str]) -> None:
    yielded = [event.num_updates for event in learner.update(4)]
    learner.settle()

    assert calls.count("update_priorities") == 4
    yielded += [event.num_updates for event in learner.update(1)]
    assert yielded[:4] == [1, 2, 3, 4]


def test_batches_drawn_ahead_give_the_same_run_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_new_learner", lambda run: Learner(run.agent, run.memory, 32, True, ahead=2))
    runs = [_trained(tmp_path / name) for name in "ab"]

    assert_equal_runs(*runs)
    assert runs[0].agent.num_updates == (runs[0].tally.agent_steps - 100) // 8


def _trained(path: Path) -> Run:
    folder = RunFolder.create(path, catch_settings(priority_exponent=0.5))
    run = start_run(folder, make_catch)
    train(run, folder)
    run.close()
    return run

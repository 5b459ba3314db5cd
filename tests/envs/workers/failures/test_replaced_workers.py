"""A lost worker is replaced: its episodes are truncated at the last received frame, the others are unaffected."""

from __future__ import annotations

import time

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from framestow.errors import WorkerLostError
from oracles.expected_vector import ExpectedVector, assert_rows, play
from oracles.failing_envs import CUT, DYING, HANGING, Failure, numbers_of, plans, processes_of
from oracles.patience import PATIENCE_S
from oracles.start_methods import START_METHODS, every_start_method

pytestmark = pytest.mark.filterwarnings("ignore:.*it is replaced:RuntimeWarning")

MODES = list(AutoresetMode)
QUICK = {
    *((kind, "NEXT_STEP", "fork") for kind in (*DYING, *HANGING)),
    *(("sigkill", mode.name, "fork") for mode in MODES),
    ("sigkill", "SAME_STEP", "spawn"),
    ("hang_in_c", "DISABLED", "forkserver"),
}
LOST = {2, 3}  # the environments of the second worker


def makes(make_workers, process_folder, mode, failing, **settings):
    """Return a vector environment that replaces lost workers, after its reset, and its oracle."""
    env = make_workers(failing, autoreset_mode=mode, on_worker_lost="restart", **settings)
    expected = ExpectedVector(plans(process_folder, env.num_envs, **(settings.get("play") or {})), mode, 3)
    frames, _ = env.reset()
    np.testing.assert_array_equal(expected.reset(), frames)
    return env, expected


def lost_in_step(number, environments=LOST):
    return lambda step, answer: environments if step == number else ()


@pytest.mark.parametrize(
    ("kind", "mode", "start_method"),
    [
        pytest.param(kind, mode, method, marks=() if (kind, mode.name, method) in QUICK else pytest.mark.exhaustive)
        for kind in (*DYING, *HANGING)
        for mode in MODES
        for method in START_METHODS
    ],
)
def test_a_lost_worker_is_replaced_and_every_answer_is_the_right_one(
    kind, start_method, mode, make_workers, process_folder
):
    timeout = 0.5 if kind in HANGING else 3.0
    env, expected = makes(
        make_workers, process_folder, mode, {2: Failure(kind, at=6)}, start_method=start_method, step_timeout=timeout
    )

    play(env, expected, 30, lost_in_step(steps_until(expected, 2, 6)))

    assert env.call("touch", 5) == (5, 6, 7, 8)


def steps_until(expected: ExpectedVector, environment: int, real_steps: int) -> int:
    """In which step of the vector an environment makes so many real steps."""
    if expected.mode is not AutoresetMode.NEXT_STEP:
        return real_steps
    plan, calls, episode, left = expected.plans[environment], 0, 0, real_steps
    while left > plan.lengths[episode % len(plan.lengths)]:
        length = plan.lengths[episode % len(plan.lengths)]
        calls, left, episode = calls + length + 1, left - length, episode + 1
    return calls + left


@pytest.mark.parametrize("mode", MODES)
def test_the_message_gives_the_cause_of_the_loss(mode, make_workers, process_folder):
    env, expected = makes(make_workers, process_folder, mode, {2: Failure("sigkill", at=2)})

    answers = play(env, expected, 2, lost_in_step(2))

    infos = answers[-1][-1]
    assert infos["_episode_lost"].tolist() == [False, False, True, True]
    assert infos["episode_lost"][0] is None
    assert "SIGKILL" in infos["episode_lost"][2]


@pytest.mark.parametrize("mode", MODES)
def test_all_workers_at_once_may_be_lost(mode, make_workers, process_folder):
    failing = {0: Failure("sigkill", at=2), 3: Failure("exit", at=2)}
    env, expected = makes(make_workers, process_folder, mode, failing)

    play(env, expected, 20, lost_in_step(2, {0, 1, 2, 3}))


@pytest.mark.parametrize("mode", MODES)
def test_a_worker_may_be_lost_again_and_again(mode, make_workers, process_folder):
    failing = {2: Failure("sigkill", at=2, replacements=(0, 1, 2, 3))}
    env, expected = makes(make_workers, process_folder, mode, failing, play={"lengths": (9,)})
    due = {AutoresetMode.NEXT_STEP: (2, 5, 8, 11)}.get(mode, (2, 4, 6, 8))

    play(env, expected, 20, lambda step, answer: LOST if step in due else ())

    assert expected.replacements == [0, 0, 4, 4]


@pytest.mark.each_value
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [1, 3, 5])
def test_uneven_splits_lose_the_environments_of_one_worker_and_no_others(
    num_workers, mode, make_workers, process_folder
):
    env, expected = makes(
        make_workers, process_folder, mode, {1: Failure("sigkill", at=2)}, num_envs=5, num_workers=num_workers
    )
    processes = processes_of(process_folder, 5)
    shared = {number for number, process in enumerate(processes) if process == processes[1]}

    play(env, expected, 15, lost_in_step(2, shared))

    assert len(shared) in {1: (5,), 3: (1, 2), 5: (1,)}[num_workers]


def test_a_worker_lost_where_an_environment_was_being_reset_loses_only_the_others_episodes(
    make_workers, process_folder
):
    # Environment 2 ends with its 1st step, so its 2nd call of reset comes in the 2nd step of the vector.
    mode = AutoresetMode.NEXT_STEP
    env = make_workers(
        {2: Failure("sigkill", "reset", 2)}, autoreset_mode=mode, on_worker_lost="restart", play={"lengths": (1, 5)}
    )
    expected = ExpectedVector(plans(process_folder, 4, lengths=(1, 5)), mode, 3)
    np.testing.assert_array_equal(expected.reset(), env.reset()[0])

    answers = play(env, expected, 20, lost_in_step(2))

    assert "episode_lost" not in answers[1][-1]  # all four were being reset
    assert [0, 0, 1, 1] == answers[1][-1]["replacement"].tolist()


def test_a_worker_lost_in_the_reset_of_a_step_loses_the_episode_of_that_step(make_workers, process_folder):
    failing = {2: Failure("sigkill", "reset", 2)}
    env, expected = makes(make_workers, process_folder, AutoresetMode.SAME_STEP, failing)

    play(env, expected, 20, lost_in_step(4))


def test_the_step_after_a_worker_was_lost_in_a_masked_reset_reports_its_running_episodes(make_workers, process_folder):
    mode = AutoresetMode.DISABLED
    env, expected = makes(make_workers, process_folder, mode, {2: Failure("sigkill", "reset", 2)})
    for _ in range(2):
        assert_rows(expected.step([1] * 4), env.step([1] * 4))
    mask = np.array([False, False, True, False])

    frames, infos = env.reset(options={"reset_mask": mask})

    np.testing.assert_array_equal(expected.reset([2], LOST), frames)
    assert infos["_replacement"].tolist() == mask.tolist()
    assert infos["replacement"][2] == 1
    answer = env.step([2] * 4)
    assert_rows(expected.step([2] * 4), answer)
    assert answer[-1]["_episode_lost"].tolist() == [False, False, False, True]
    frames, _ = env.reset(options={"reset_mask": answer[3]})
    np.testing.assert_array_equal(expected.reset([3]), frames)
    play(env, expected, 15)


@pytest.mark.parametrize("start_method", every_start_method())
def test_a_worker_lost_in_the_first_reset_is_replaced_and_nothing_is_lost(start_method, make_workers, process_folder):
    env = make_workers({2: Failure("sigkill", "reset", 1)}, on_worker_lost="restart", start_method=start_method)
    expected = ExpectedVector(plans(process_folder, 4), AutoresetMode.NEXT_STEP, 3)

    frames, infos = env.reset()

    np.testing.assert_array_equal(expected.reset(lost=LOST), frames)
    assert infos["replacement"].tolist() == [0, 0, 1, 1]
    play(env, expected, 15)


@pytest.mark.parametrize(
    ("kind", "call"), [("sigkill", "reset"), ("hang", "reset"), ("sigkill", "construct"), ("raise", "construct")]
)
def test_an_environment_that_cannot_be_replaced_raises_an_error(kind, call, make_workers):
    always = tuple(range(1 if call == "construct" else 0, 100))
    env = make_workers(
        {2: Failure(kind, call, 1, replacements=always), 3: Failure("sigkill", "step", 1)},
        on_worker_lost="restart",
        step_timeout=0.5,
    )
    began = time.monotonic()

    with pytest.raises(WorkerLostError, match=r"only close\(\) works now") as caught:  # noqa: PT012  # at some call
        env.reset()
        for _ in range(5):
            env.step([0] * 4)

    assert time.monotonic() - began < PATIENCE_S
    assert {"sigkill": "SIGKILL", "hang": "0.5 s", "raise": CUT}[kind] in str(caught.value)
    with pytest.raises(WorkerLostError):
        env.reset()


def test_a_replacement_whose_construction_raises_is_made_once_more(make_workers, process_folder):
    failing = {2: Failure("raise", "construct", 1, replacements=(1,)), 3: Failure("sigkill", at=1)}
    env, _ = makes(make_workers, process_folder, AutoresetMode.NEXT_STEP, failing)

    env.step([0] * 4)
    frames, *_ = env.step([0] * 4)

    assert [0, 0, 2, 1] == [
        numbers_of(frame).replacement for frame in frames
    ]  # environment 3 was not made beside the failing one


@pytest.mark.parametrize("call", ["call", "render"])
def test_a_worker_lost_in_another_call_is_replaced_for_the_next_step(call, make_workers, process_folder):
    env, expected = makes(make_workers, process_folder, AutoresetMode.NEXT_STEP, {2: Failure("sigkill", call, 1)})
    assert_rows(expected.step([1] * 4), env.step([1] * 4))
    calls = {"call": lambda: env.call("touch", 1), "render": env.render}

    with pytest.raises(WorkerLostError):
        calls[call]()

    assert_rows(expected.step([1] * 4, LOST), env.step([1] * 4))
    play(env, expected, 15)


def test_the_same_losses_give_the_same_answers(make_workers, process_folder, tmp_path):
    draws = []
    for _ in range(2):
        env = make_workers({2: Failure("sigkill", at=2)}, on_worker_lost="restart")
        env.reset()
        draws.append([env.step([0] * 4)[-1]["draw"].tolist() for _ in range(8)])
        for file in process_folder.iterdir():
            file.unlink()
        env.close()

    assert draws[0] == draws[1]

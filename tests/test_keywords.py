"""A keyword that framestow does not have is answered with the one that is meant, and nothing is changed."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

from framestow import (
    ByAge,
    EmphasizeRecent,
    FrameSpec,
    HindsightGoals,
    Prioritized,
    ReplayEnsemble,
    ReplayMemory,
    Uniform,
)
from framestow.distributed import ShardedReplay
from framestow.envs import Recorder, SerialVectorEnv, WorkerVectorEnv
from framestow.errors import InvalidSettingsError
from framestow.integrations import cleanrl
from framestow.keywords import ELSEWHERE, SAME
from framestow.torch import BatchLoader, RandomShift, TransitionDataset

FRAME = np.zeros((2, 2), np.uint8)
TWO_ENDS = " An episode that a time limit truncated still bootstraps, one that terminated does not"


def memory() -> ReplayMemory:
    return ReplayMemory(10, FrameSpec((2, 2)), 4, extras={"log_prob": np.float32})


def refused(message: str) -> pytest.RaisesContext:
    return pytest.raises(InvalidSettingsError, match=f"^{re.escape(message)}$")


@pytest.mark.parametrize(
    ("built", "keyword", "meant"),
    [
        (ReplayMemory, "gamma", "discount"),
        (ReplayMemory, "buffer_size", "capacity"),
        (ReplayMemory, "max_size", "capacity"),
        (ReplayMemory, "n_steps", "n_step"),
        (ReplayMemory, "frame_stack", "stack"),
        (ReplayMemory, "stak", "stack"),
        (ReplayMemory, "n_envs", "num_envs"),
        (ReplayMemory, "obs_shape", "observation_space"),
        (ReplayMemory, "num_actions", "action_space"),
        (ReplayMemory, "Gamma", "discount"),
        (ReplayMemory, "memory_limit", "max_bytes"),
        (ReplayMemory, "remover", "retention"),
        (ReplayMemory, "rng", "seed"),
        (ReplayMemory, "axis", "stack_axis"),
        (ShardedReplay, "gamma", "discount"),
        (Uniform, "distict", "distinct"),
        (Prioritized, "eps", "epsilon"),
        (Prioritized, "priority_exponent", "alpha"),
        (ByAge, "halflife", "half_life"),
        (EmphasizeRecent, "minimum_recent", "min_recent"),
        (HindsightGoals, "stategy", "strategy"),
        (ReplayEnsemble, "share", "shares"),
        (FrameSpec, "shapes", "shape"),
        (Recorder, "reward_limits", "reward_limit"),
        (SerialVectorEnv, "autoreset", "autoreset_mode"),
        (WorkerVectorEnv, "timeout", "step_timeout"),
        (BatchLoader, "batchsize", "batch_size"),
        (TransitionDataset, "batchsize", "batch_size"),
        (RandomShift, "padd", "pad"),
        (cleanrl.ReplayBuffer, "capacity", "buffer_size"),
    ],
)
def test_a_constructor_names_the_keyword_that_is_meant(built, keyword, meant):
    required = {
        name: None
        for name, each in inspect.signature(built).parameters.items()
        if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD
    }
    with refused(f"{keyword} is not an argument of {built.__name__}; did you mean {meant!r}?"):
        built(**required, **{keyword: 1})


@pytest.mark.parametrize("keyword", ["ensemble", "hindsight", "frame_shape", "goals"])
def test_a_keyword_that_resembles_none_gets_all_names(keyword):
    names = ", ".join(sorted(map(repr, inspect.signature(ReplayMemory).parameters)))
    with refused(f"{keyword} is not an argument of ReplayMemory; choose one of {names}"):
        ReplayMemory(10, FrameSpec((2, 2)), 4, **{keyword: 1})


def test_arguments_that_framestow_needs_elsewhere_say_where():
    for name, way_out in ELSEWHERE.items():
        with refused(f"{name} is not an argument of ReplayMemory: {way_out}"):
            ReplayMemory(10, FrameSpec((2, 2)), 4, **{name: 1})


def test_annealing_has_two_arguments_and_counts_batches():
    with refused(
        "beta_frames is not an argument of Prioritized; did you mean 'final_beta' and 'annealed_over'? "
        "It counts batches"
    ):
        Prioritized(beta_frames=1000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"done": True}, f"done{{}}; did you mean 'terminated' and 'truncated'?{TWO_ENDS}"),
        ({"obs": FRAME}, "obs{}; did you mean 'observation'?"),
        ({"next_state": FRAME}, "next_state{}; did you mean 'next_observation'?"),
        ({"info": {}}, "info{}; did you mean 'extras'?"),
        ({"env_id": 0}, "env_id{}; did you mean 'env_ids'?"),
    ],
)
@pytest.mark.parametrize("is_complete", [True, False])
def test_add_names_the_keyword_that_is_meant_and_stores_nothing(given, message, is_complete):
    built = memory()
    step = (FRAME, 1, 0.5, FRAME, True, False) if is_complete else ()

    with refused(message.format(" is not an argument of ReplayMemory.add")):
        built.add(*step, extras={"log_prob": 0.0}, **given)

    assert len(built) == 0
    assert not built.open_episodes.any()


def test_append_names_the_keyword_that_is_meant():
    built = memory()
    built.begin(FRAME[None])

    with refused("next_obs is not an argument of ReplayMemory.append; did you mean 'frames'?"):
        built.append([1], [0.5], [False], [True], next_obs=FRAME[None])
    arguments = "actions, rewards, terminated, truncated and frames"
    with refused(f"frames is missing: ReplayMemory.append takes {arguments}; give all of them"):
        built.append([1], [0.5], [False], [True])

    assert len(built) == 0


def test_five_values_of_add_say_why_an_end_has_two_flags():
    arguments = "observation, action, reward, next_observation, terminated and truncated"

    with refused(f"truncated is missing: ReplayMemory.add takes {arguments}; give all of them.{TWO_ENDS}"):
        memory().add(FRAME, 1, 0.5, FRAME, True)
    for observation in (FRAME, {"camera": FRAME}):
        space = FrameSpec((2, 2)) if observation is FRAME else {"camera": FrameSpec((2, 2))}
        with refused(f"next_observation is missing: ReplayMemory.add takes {arguments}; give all of them"):
            ReplayMemory(10, space, 4).add(observation, 1, 0.5, terminated=True, truncated=False)


def test_an_error_within_a_constructor_stays_what_it_is():
    class Odd(ReplayMemory):
        def __init__(self, gamma: float) -> None:
            super().__init__(10, FrameSpec((2, 2)), int("4") + gamma)

    with pytest.raises(TypeError, match="unsupported operand"):
        Odd("0.9")
    assert Odd(1).capacity == 10


def test_help_shows_the_arguments_as_they_are_written():
    shown = inspect.signature(ReplayMemory.add).parameters

    assert [*shown][-2:] == ["env_ids", "extras"]
    assert shown["truncated"].default is inspect.Parameter.empty
    assert "others" not in shown
    assert inspect.signature(ReplayMemory).parameters["discount"].default == 0.99


def test_no_word_means_two_things():
    words = [word for words in SAME for word in words.split()]

    assert {"frames"} == {word for word in words if words.count(word) > 1}

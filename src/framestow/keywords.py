"""Answer a call with a keyword that framestow does not have: what the field's other names are called here.

``suggests_keywords`` is for classes: it looks only at a call that Python refuses. ``takes_any_call`` is for functions
that are called at every step, which find a wrong call themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from typing import Any, NoReturn, TypedDict, TypeVar

from framestow.checks import nearest_name
from framestow.errors import InvalidSettingsError

Class = TypeVar("Class", bound=type[Any])
Function = TypeVar("Function", bound=Callable[..., Any])
VARIABLE = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD  # kinds of parameters

SAME = (
    "capacity buffer_size max_size size memory_size replay_capacity max_len maxlen",
    "observation_space obs_space observation_shape obs_shape state_shape state_dim obs_dim",
    "action_space act_space num_actions n_actions action_dim",
    "stack frame_stack num_stack n_stack stack_num stack_size stack_frames history_length",
    "num_envs n_envs num_env n_env env_num buffer_num",
    "n_step n_steps nstep num_steps n_multi_step multi_step update_horizon",
    "discount gamma discount_factor",
    "max_bytes memory_bytes memory_limit max_memory",
    "retention remover eviction eviction_policy",
    "seed random_seed random_state rng",
    "directory folder path save_dir scratch_dir data_dir",
    "threads num_threads n_threads num_workers",
    "observation obs state s frames",
    "next_observation next_obs obs_next next_state new_obs s_next next_frames frames",
    "action actions act a",
    "reward rewards rew r",
    "done dones terminal terminals terminated truncated",
    "env_ids env_id env_idx env_index env_indices buffer_ids",
    "extras extra info infos",
    "alpha prob_alpha priority_exponent omega",
    "beta beta0 beta_start initial_beta",
    "beta_frames beta_steps beta_annealing_steps annealing_steps beta_end final_beta annealed_over",
    "epsilon eps prior_eps priority_eps",
    "length seq_len sequence_length num_frames unroll_length",
)
"""Words of the field's libraries for the same argument, in each line."""

ELSEWHERE = {
    "device": "batches are NumPy arrays; give device to framestow.torch.to_tensors, to a BatchLoader, or to those of "
    "framestow.jax",
    "alpha": "it is one of Prioritized; give sampler=Prioritized(alpha=0.6)",
    "beta": "it is one of Prioritized; give sampler=Prioritized(beta=0.4)",
    "optimize_memory_usage": "each frame is stored once in any case; leave it out",
    "handle_timeout_termination": "add takes terminated and truncated apart; leave it out",
}
"""Arguments of other libraries that a class of framestow needs elsewhere, or not at all."""

TWO_ENDS = "An episode that a time limit truncated still bootstraps, one that terminated does not"
NOTES = {"truncated": TWO_ENDS, "annealed_over": "It counts batches"}
"""What to know of an argument that has another name elsewhere."""


class NoKeywords(TypedDict):
    """No keyword: of ``**others: Unpack[NoKeywords]``, a type checker refuses each, and the call says what is meant."""


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING: Any = _Missing()
"""Default of a required argument of a function that ``takes_any_call``."""


def suggests_keywords(built: Class) -> Class:
    """Let the constructor of a class answer a keyword that it lacks with the one that is meant.

    The error is an ``InvalidSettingsError``; Python would raise ``TypeError``.
    """
    init = built.__init__

    @wraps(init)
    def checked(self: Any, *args: Any, **given: Any) -> None:
        try:
            init(self, *args, **given)
        except TypeError:
            known = _keywords_of(init)
            for name in given.keys() - known:
                refuse_keyword(name, built.__name__, known)
            raise

    built.__init__ = checked
    return built


def takes_any_call(function: Function) -> Function:
    """Let a function with ``**others: Unpack[NoKeywords]`` be called without its required arguments, too.

    They are ``MISSING`` then. Type checkers and ``help`` know nothing of it.
    """
    signature = inspect.signature(function)
    own = [each for each in signature.parameters.values() if each.kind not in VARIABLE]
    function.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    defaults = [MISSING if each.default is each.empty else each.default for each in own[1:]]
    function.__defaults__ = tuple(defaults)
    return function


def refuse_keywords(function: Callable[..., Any], others: Collection[str]) -> NoReturn:
    """Raise ``InvalidSettingsError`` for the first of ``others``, keywords that ``function`` lacks."""
    refuse_keyword(next(iter(others)), function.__qualname__, inspect.signature(function).parameters)


def refuse_missing(function: Callable[..., Any], *required: Any) -> None:
    """Raise ``InvalidSettingsError`` if one of the required arguments of ``function`` is ``MISSING``."""
    names = list(inspect.signature(function).parameters)[: len(required)]
    missing = [name for name, value in zip(names, required, strict=True) if value is MISSING]
    if missing:
        takes = f"{function.__qualname__} takes {', '.join(names[:-1])} and {names[-1]}"
        why = f". {TWO_ENDS}" if missing == ["truncated"] else ""
        raise InvalidSettingsError(f"{missing[0]} is missing: {takes}; give all of them{why}") from None


def refuse_arguments(
    owner: type, given: Mapping[str, Any], reasons: Mapping[str, str], options: Collection[str]
) -> None:
    """Raise ``InvalidSettingsError`` for the first argument in ``given``, which the constructor of ``owner`` lacks.

    ``reasons`` says by name what an argument *is* that others take. Of any other name, the message has the one that is
    meant: of the constructor's own, or of ``options``, which it takes without naming them.
    """
    for name in given:
        if name in reasons:
            raise InvalidSettingsError(f"{name} is {reasons[name]}")
        known = {each for kind in owner.__mro__ for each in _keywords_of(kind.__init__)}  # type: ignore[misc]
        refuse_keyword(name, owner.__name__, known.union(options))


def refuse_keyword(name: str, owner: str, known: Collection[str]) -> NoReturn:
    """Raise the error about a keyword that ``owner`` lacks; ``known`` are its own."""
    lacks = f"{name} is not an argument of {owner}"
    own = sorted(set(known) - {"self"})
    for words in map(str.split, SAME):
        meant = [word for word in words if word in own]
        if name.lower() in words and meant:
            why = NOTES.get(meant[-1], "")
            raise InvalidSettingsError(f"{lacks}; did you mean {' and '.join(map(repr, meant))}?{why and ' ' + why}")
    if name in ELSEWHERE:
        raise InvalidSettingsError(f"{lacks}: {ELSEWHERE[name]}")
    raise InvalidSettingsError(f"{lacks}; {nearest_name(name, own)}")


def _keywords_of(function: Callable[..., Any]) -> set[str]:
    """Return the arguments that a function takes by name."""
    return {each.name for each in inspect.signature(function).parameters.values() if each.kind not in VARIABLE}

"""Every sentence that says why a step is refused, once its arguments are arrays (``checks.as_array``).

``docs/refused-steps.md`` is written from this table, and ``tests/replay/test_refusals.py`` makes each row happen. Rows
stand in the order of ``add``: of two faults, the one that stands first is named. ``append`` checks its frames last.

Native code refuses a step by the name of a row; ``replay/refused_steps.py`` has the values of its sentence.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from framestow.errors import InvalidStepError


class Refusal(Enum):
    """Why a step is refused: a name, and the sentence with its values in braces.

    >>> raise Refusal.ENV_IDS_REPEATED.error(given=[1, 1])
    Traceback (most recent call last):
    framestow.errors.InvalidStepError: env_ids is [1, 1]: an environment takes one step in a call; give each number once
    """

    # Dicts, tuples and axes of observations
    NO_OBSERVATION = (
        "{name} is None: each reset and each step has one, also at the end of an episode; give the last one that "
        "reset or step returned"
    )
    NO_DICT = "{name} are a {kind}: this memory needs a dict of {keys}; give one array of frames for each key"
    OTHER_KEYS = (
        "{name} have the keys {given}: this memory needs {keys}; give one array of frames for each of these keys only"
    )
    NO_TUPLE = "{name} are {given}: this memory needs a tuple of {count} parts; give one array of frames for each part"
    AXES_DIFFER = (
        "{name} has shape {shape}, of {kind}, and {first} {first_shape}, of {first_kind}: all arrays have the axis of "
        "environments, or none; add it with array[None]"
    )

    # Environments
    ENV_IDS_FORM = (
        "env_ids is {given!r}: it must be a list of environment numbers; give integers such as [0, 2], or "
        "np.flatnonzero(mask)"
    )
    ENV_IDS_UNKNOWN = (
        "env_ids is {given}: this memory has environments 0 to {last}; give numbers in that range, or build the memory "
        "with a larger num_envs"
    )
    ENV_IDS_REPEATED = "env_ids is {given}: an environment takes one step in a call; give each number once"
    ONE_OBSERVATION_FOR_ENV_IDS = (
        "env_ids is {given}: the observation{subscript} of shape {shape} is of one environment; give its number alone, "
        "or the observations of all these along a first axis"
    )
    ONE_OBSERVATION_FOR_ALL = (
        "observation{subscript} has shape {shape}: it is of one environment, and this memory has {count}; {way_out}"
    )
    NO_OPEN_EPISODE = (
        "environment {env_id} has no open episode: its last one ended, or none began; call begin(frames, "
        "env_ids={closed}) with the frames that reset returned"
    )

    # Whole observations
    OBSERVATION_SHAPE = "{name} has shape {shape}: {takes}; {way_out}"
    OBSERVATION_DTYPE = (
        "{name} has dtype {dtype}: the observation space requires {stored}, and nothing is cast; convert it"
    )

    # A step of one environment
    ONE_ROW = "{name} has shape {shape}: the observation is of one environment, which takes {alone} or {row}; {way_out}"

    # Actions
    ACTIONS_SHAPE = "actions have shape {shape}: {need} {rows}; {way_out}give one action for each environment"
    ACTIONS_NO_INTEGERS = "actions have dtype {dtype}: this action_space needs integers; convert them"
    ACTION_OUTSIDE = (
        "action is {action} at row {row}: {subject} from {low} to {high}; check the policy or the action_space"
    )
    ACTIONS_DTYPE = "actions have dtype {dtype}: the action_space has {stored}; convert them"
    ACTION_NOT_FINITE = "action is {action} at row {row}: actions must be finite; check the policy"

    # Rewards
    REWARDS_SHAPE = (
        "rewards have shape {shape}: {take} numbers of shape ({count},); give one number for each environment"
    )
    REWARDS_DTYPE = (
        "reward is {reward!r}, of dtype {dtype}: rewards are numbers; convert them, or check the order of the "
        "arguments, since flags come after the rewards"
    )
    REWARD_NOT_FINITE = "reward is {reward} at row {row}: rewards must be finite in float32; {way_out}"

    # Flags
    FLAGS = (
        "{name} has shape {shape} and dtype {dtype}: {take} booleans of shape ({count},); give one boolean for each "
        "environment"
    )

    # Extra fields
    EXTRAS_NO_DICT = "extras is {given!r}: it must map names to arrays; give a dict"
    EXTRAS_UNKNOWN = (
        "extras have {unknown}: this memory stores {stored}; leave it out, or declare it when you build the memory"
    )
    EXTRAS_MISSING = "extras lack {missing}: every step of this memory has {names}; give extras={{{first!r}: ...}}"
    EXTRA_SHAPE = "extra {name!r} has shape {shape}: {need} {rows}; give one value for each environment"
    EXTRA_DTYPE = "extra {name!r} has dtype {dtype}: this memory stores it as {stored}; convert it"
    EXTRA_VALUE = "extra {name!r} is {value} at row {row}: it does not fit {stored}; declare a wider dtype"

    # Single frames
    FRAMES_SHAPE = (
        "{name} have shape {shape}: {take} {rows}; give one frame (not a stack) for each environment, along the first "
        "axis"
    )
    FRAMES_DTYPE = (
        "{name} have dtype {dtype}: this memory stores {stored} and never casts; give frames of the observation_space"
    )

    # Steps that another process packed
    SEGMENT_BITS = (
        "bits of frame {frame} are {bits}: a frame begins an episode ({begins}), or has the bits of a step ({step}); "
        "send what a ShardWriter packed"
    )
    SEGMENT_OUTSIDE = (
        "frame {frame} of {count} ends a step, but no episode is open: an episode begins with a frame of its own; send "
        "the steps of an environment in order"
    )

    def error(self, **values: Any) -> InvalidStepError:
        """Return the error with these values in the sentence."""
        return InvalidStepError(self.value.format(**values))

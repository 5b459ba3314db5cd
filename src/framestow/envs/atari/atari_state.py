"""The saved state of an Atari environment: its plain form, and what is refused."""

from __future__ import annotations

from typing import Any

import ale_py
import numpy as np

from framestow.envs.atari.presets import Preset, differing_fields
from framestow.errors import IncompatibleError

_KEYS = frozenset(
    ("rom", "preset", "phase", "emulator", "held_action", "frame", "score", "agent_steps", "pending_seed", "generator")
)

# What a preset says besides how frames, rewards and ends come about.
_NOT_THE_ENVIRONMENTS = frozenset(("name", "source", "stack_padding", "evaluation_epsilon"))


def generator_state(generator: np.random.Generator) -> dict[str, Any]:
    """State of a generator as strings and ints (of up to 128 bits)."""
    return dict(generator.bit_generator.state)


def generator_from(state: dict[str, Any]) -> np.random.Generator:
    """Build a generator that goes on where the one of `generator_state` stood."""
    generator = np.random.Generator(np.random.PCG64())
    generator.bit_generator.state = state
    return generator


def check_state(state: dict[str, Any], rom: str, preset: Preset) -> None:
    """Refuse a state that does not belong to this game and preset, before anything is changed."""
    missing = sorted(_KEYS - set(state))
    if missing:
        raise IncompatibleError(f"state lacks {missing}: it is no AtariEnv's; hand in what state_dict() gave")
    if state["rom"] != rom:
        raise IncompatibleError(f"state is of the game {state['rom']!r}: this is {rom!r}; make the environment of it")
    differing = differing_fields(state["preset"], preset, but=_NOT_THE_ENVIRONMENTS)
    if differing:
        raise IncompatibleError(
            f"state is of the preset {state['preset'].get('name')!r}: it differs in {', '.join(differing)}; "
            "use that preset"
        )
    shape = np.shape(state["frame"])
    if shape != preset.frame_shape:
        raise IncompatibleError(f"state's frame has shape {shape}: {preset.frame_shape} is needed; it is damaged")
    try:
        ale_py.ALEState(state["emulator"])
    except Exception as error:
        raise IncompatibleError(f"state's emulator part is not ale-py's: {error}; it is damaged") from error

"""What ALE's own vector environment can do of a preset."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import AutoresetMode

from framestow.envs.atari.presets import Preset
from framestow.errors import InvalidSettingsError


def ale_settings(preset: Preset, mode: AutoresetMode) -> dict[str, Any]:
    """Arguments of ``AtariVectorEnv`` for ``preset``, where it can do what the preset asks.

    What ALE does otherwise is refused, but for the deviations that docs/environments.md lists: the maximum is
    always of grey values, a reset shows the last raw frame alone, 0 to ``max_noops`` no-ops are drawn and not counted
    in the cap, a FIRE comes before them, and no frame skip is cut short where a life is lost.

    Raises:
        InvalidSettingsError: ALE's vector environment has no such thing; the message names the field.
    """
    _require(preset.resize == "area", preset, "resize", "it averages over the area always")
    _require(preset.opening != "fire_steps", preset, "opening", "it plays no whole steps within a reset")
    noop_steps = (0, 1) if mode is AutoresetMode.NEXT_STEP else (0,)
    _require(
        preset.life_loss == "ignored" or preset.noop_steps_after_life_loss in noop_steps,
        preset,
        "noop_steps_after_life_loss",
        f"it steps all of its games or none, so that with {mode.value} there are {' or '.join(map(str, noop_steps))}",
    )
    return {
        "frameskip": preset.frame_skip,
        "repeat_action_probability": preset.sticky_probability,
        "full_action_space": preset.action_set == "full",
        "noop_max": preset.max_noops + 1,  # it draws below this
        "use_fire_reset": preset.opening == "fire_frame",
        "img_height": preset.frame_shape[0],
        "img_width": preset.frame_shape[1],
        "max_num_frames_per_episode": preset.max_episode_frames,
        "stack_num": 1,
        "grayscale": True,
        "maxpool": True,
        "reward_clipping": False,
        "episodic_life": False,
        "life_loss_info": False,
    }


def _require(holds: bool, preset: Preset, field: str, rule: str) -> None:
    if not holds:
        raise InvalidSettingsError(
            f"preset {preset.name!r} has {field} {getattr(preset, field)!r}: ALE's vector environment cannot do that, "
            f'{rule}; take backend="framestow"'
        )

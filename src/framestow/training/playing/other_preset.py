"""Playing with another preset than the one that a run was trained with: what it means, and where it cannot be done."""

from __future__ import annotations

from framestow.envs.atari.atari_env import AtariEnv
from framestow.envs.atari.presets import PRESETS, Preset, differing_fields
from framestow.errors import IncompatibleError


def warning_of_other_preset(game: str, trained: Preset, played: Preset) -> str | None:
    """Say that scores are not comparable, and in what the presets differ; None where they are one and the same.

    Raises:
        IncompatibleError: the network that was trained does not fit the other preset's actions or frames.
    """
    if trained == played:
        return None
    _check_actions(game, trained, played)
    if trained.frame_shape != played.frame_shape:
        raise IncompatibleError(
            f"preset {played.name!r} has frames of {played.frame_shape}: the run was trained with {trained.name!r}, of "
            f"{trained.frame_shape}, and its network takes no others; play with frames of that shape"
        )
    return (
        f"trained with the preset {trained.name}, played with {played.name}: the scores are not comparable with others "
        f"of {trained.name}, nor with those of agents trained with {played.name}. They differ (trained against played) "
        f"in {', '.join(differing_fields(trained.to_dict(), played))}"
    )


def _check_actions(game: str, trained: Preset, played: Preset) -> None:
    if trained.action_set == played.action_set:
        return
    learnt, offered = _actions(game, trained), _actions(game, played)
    if learnt != offered:
        fitting = [preset.name for preset in PRESETS.values() if preset.action_set == trained.action_set]
        raise IncompatibleError(
            f"preset {played.name!r} has {len(offered)} actions in {game}: the run was trained with {trained.name!r}, "
            f"of {len(learnt)}, and its network has an output for each of these; play with {' or '.join(fitting)}"
        )


def _actions(game: str, preset: Preset) -> list[str]:
    env = AtariEnv(game, preset)
    actions = env.action_meanings()
    env.close()
    return actions

"""From a game's name to an environment, or to many in one."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

from gymnasium.vector import AutoresetMode

from framestow.envs.atari.atari_env import AtariEnv
from framestow.envs.atari.games import find_rom
from framestow.envs.atari.presets import Preset, find_preset
from framestow.envs.backends.ale import AleVectorEnv
from framestow.envs.vector.serial import SerialVectorEnv
from framestow.errors import InvalidSettingsError


@overload
def make_atari(
    game: str,
    num_envs: None = None,
    preset: str | Preset = ...,
    seed: int | None = None,
    *,
    render_mode: str | None = ...,
) -> AtariEnv: ...
@overload
def make_atari(
    game: str,
    num_envs: int,
    preset: str | Preset = ...,
    seed: int | None = None,
    *,
    render_mode: str | None = ...,
    autoreset_mode: AutoresetMode | str = ...,
    backend: Literal["framestow"] = ...,
) -> SerialVectorEnv: ...
@overload
def make_atari(
    game: str,
    num_envs: int,
    preset: str | Preset = ...,
    seed: int | None = None,
    *,
    autoreset_mode: AutoresetMode | str = ...,
    backend: Literal["ale"],
) -> AleVectorEnv: ...
def make_atari(
    game: str,
    num_envs: int | None = None,
    preset: str | Preset = "machado2018",
    seed: int | None = None,
    *,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    backend: Literal["framestow", "ale"] = "framestow",
) -> AtariEnv | SerialVectorEnv | AleVectorEnv:
    """Make an Atari game: one plain environment, or with a number of them (1 included) a vector environment.

    ``game`` may be written ``Breakout``, ``space_invaders``, ``SpaceInvaders`` or ``ALE/Breakout-v5``. ``preset`` is a
    name or a `Preset`. ``seed`` is what the first reset takes when it is given none; many environments get seeds that
    are spread from it and that no other seed's share. ``autoreset_mode`` counts for a vector environment.
    ``backend="ale"`` plays in the threads of ALE's own vector environment: faster, but the last frame of a game is
    wrong, among other deviations (`AleVectorEnv`).

    Raises:
        UnknownGameError: no such game; the message names the nearest.
        InvalidSettingsError: an unknown preset, render mode, autoreset mode or backend, fewer than one environment,
            or something asked of ALE's vector environment that it cannot do.
    """
    rom, recipe = find_rom(game), find_preset(preset)
    if backend != "framestow":
        _check_for_ale(backend, num_envs, render_mode)
        return AleVectorEnv(rom, num_envs, recipe, seed, autoreset_mode=autoreset_mode)  # type: ignore[arg-type]
    if num_envs is None:
        return AtariEnv(rom, recipe, seed, render_mode=render_mode)
    _check_count(num_envs)
    factory: Any = partial(AtariEnv, rom, recipe, render_mode=render_mode)
    return SerialVectorEnv([factory] * num_envs, autoreset_mode=autoreset_mode, seed=seed)


def _check_count(num_envs: object) -> None:
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise InvalidSettingsError(f"num_envs is {num_envs!r}: it must be 1 or more; None makes one plain environment")


def _check_for_ale(backend: str, num_envs: int | None, render_mode: str | None) -> None:
    if backend != "ale":
        raise InvalidSettingsError(f'backend is {backend!r}: there are "framestow" and "ale"; choose one of them')
    if num_envs is None or render_mode is not None:
        raise InvalidSettingsError(
            f"backend 'ale' with num_envs {num_envs} and render_mode {render_mode!r}: it makes vector environments and "
            'renders nothing; give num_envs and no render_mode, or take backend="framestow"'
        )

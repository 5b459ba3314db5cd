"""From a game's name to an environment, or to many in one."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

from gymnasium.vector import AutoresetMode

from framestow.argument_checks import whole_number
from framestow.envs.atari.atari_env import AtariEnv
from framestow.envs.atari.games import find_rom
from framestow.envs.atari.presets import Preset, find_preset
from framestow.envs.backends.ale import AleVectorEnv
from framestow.envs.vector.serial import SerialVectorEnv
from framestow.envs.workers.pool import OnWorkerLost
from framestow.envs.workers.worker_vector_env import WorkerVectorEnv
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
    workers: Literal[0] = ...,
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
@overload
def make_atari(
    game: str,
    num_envs: int,
    preset: str | Preset = ...,
    seed: int | None = None,
    *,
    render_mode: str | None = ...,
    autoreset_mode: AutoresetMode | str = ...,
    workers: int,
    start_method: str | None = ...,
    step_timeout: float = ...,
    on_worker_lost: OnWorkerLost = ...,
    backend: Literal["framestow"] = ...,
) -> SerialVectorEnv | WorkerVectorEnv: ...
def make_atari(
    game: str,
    num_envs: int | None = None,
    preset: str | Preset = "machado2018",
    seed: int | None = None,
    *,
    render_mode: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    workers: int = 0,
    start_method: str | None = None,
    step_timeout: float = 60.0,
    on_worker_lost: OnWorkerLost = "raise",
    backend: Literal["framestow", "ale"] = "framestow",
) -> AtariEnv | SerialVectorEnv | WorkerVectorEnv | AleVectorEnv:
    """Make an Atari game: one plain environment, or with a number of them (1 included) a vector environment.

    ``game`` may be written ``Breakout``, ``space_invaders``, ``SpaceInvaders`` or ``ALE/Breakout-v5``. ``preset`` is a
    name or a `Preset`. ``seed`` is what the first reset takes when it is given none; many environments get seeds that
    are spread from it and that no other seed's share. ``autoreset_mode`` counts for a vector environment.
    ``backend="ale"`` plays in the threads of ALE's own vector environment, without processes, but the last frame of a
    game is wrong, among other deviations (`AleVectorEnv`).

    With ``workers=0`` many environments run in this process, one after another; with more, in so many processes:
    `WorkerVectorEnv` says what ``start_method``, ``step_timeout`` and ``on_worker_lost`` mean there. The frames are the
    same.

    Raises:
        UnknownGameError: no such game; the message names the nearest.
        InvalidSettingsError: an unknown preset, render mode, autoreset mode or backend, fewer than one environment,
            fewer environments than workers, or something asked of ALE's vector environment that it cannot do.
    """
    rom, recipe = find_rom(game), find_preset(preset)
    if num_envs is not None:
        num_envs = whole_number("num_envs", num_envs, 1, rule="it must be 1 or more; None makes one plain environment")
    workers = _checked_workers(workers, num_envs)
    if backend != "framestow":
        _check_for_ale(backend, num_envs, render_mode, workers)
        return AleVectorEnv(rom, num_envs, recipe, seed, autoreset_mode=autoreset_mode)  # type: ignore[arg-type]
    if num_envs is None:
        return AtariEnv(rom, recipe, seed, render_mode=render_mode)
    factory: Any = partial(AtariEnv, rom, recipe, render_mode=render_mode)
    if not workers:
        return SerialVectorEnv([factory] * num_envs, autoreset_mode=autoreset_mode, seed=seed)
    return WorkerVectorEnv(
        [factory] * num_envs,
        autoreset_mode=autoreset_mode,
        num_workers=workers,
        start_method=start_method,
        step_timeout=step_timeout,
        on_worker_lost=on_worker_lost,
        seed=seed,
    )


def _checked_workers(workers: Any, num_envs: int | None) -> int:
    if num_envs is None and workers:
        raise InvalidSettingsError(
            f"workers is {workers!r} and num_envs is None: workers step several environments; give num_envs too, for "
            "instance num_envs=8, or leave workers out"
        )
    rule = f"it must be 0 (this process) to the number of environments, {num_envs or 1}; choose one of these"
    return whole_number("workers", workers, 0, num_envs or 0, rule=rule)


def _check_for_ale(backend: str, num_envs: int | None, render_mode: str | None, workers: int) -> None:
    if backend != "ale":
        raise InvalidSettingsError(f'backend is {backend!r}: there are "framestow" and "ale"; choose one of them')
    if workers:
        raise InvalidSettingsError(
            f"backend 'ale' with {workers} workers: it plays in threads of its own; leave workers out"
        )
    if num_envs is None or render_mode is not None:
        raise InvalidSettingsError(
            f"backend 'ale' with num_envs {num_envs} and render_mode {render_mode!r}: it makes vector environments and "
            'renders nothing; give num_envs and no render_mode, or take backend="framestow"'
        )

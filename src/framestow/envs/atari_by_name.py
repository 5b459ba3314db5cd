"""Make one Atari environment, or a vector environment of many, from the name of a game."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

from gymnasium.vector import AutoresetMode

from framestow.checks import truth_value, whole_number
from framestow.envs.atari.atari_env import AtariEnv, RenderMode, check_render_mode
from framestow.envs.atari.games import find_rom
from framestow.envs.atari.old_names import check_old_name
from framestow.envs.atari.presets import Preset, PresetName, find_preset
from framestow.envs.vector.one_env import AutoresetName, find_mode
from framestow.envs.vector.serial import SerialVectorEnv
from framestow.envs.workers.pool import OnWorkerLost, StartMethod, check_worker_settings
from framestow.envs.workers.worker_vector_env import WorkerVectorEnv
from framestow.errors import InvalidSettingsError


@overload
def make_atari(
    game: str,
    num_envs: None = None,
    preset: PresetName | Preset = ...,
    seed: int | None = None,
    *,
    render_mode: RenderMode | None = ...,
) -> AtariEnv: ...
@overload
def make_atari(
    game: str,
    num_envs: int,
    preset: PresetName | Preset = ...,
    seed: int | None = None,
    *,
    render_mode: RenderMode | None = ...,
    autoreset_mode: AutoresetMode | AutoresetName = ...,
    workers: Literal[0] = ...,
) -> SerialVectorEnv: ...
@overload
def make_atari(
    game: str,
    num_envs: int,
    preset: PresetName | Preset = ...,
    seed: int | None = None,
    *,
    render_mode: RenderMode | None = ...,
    autoreset_mode: AutoresetMode | AutoresetName = ...,
    workers: int,
    start_method: StartMethod | None = ...,
    step_timeout: float = ...,
    on_worker_lost: OnWorkerLost = ...,
    daemon: bool = ...,
) -> SerialVectorEnv | WorkerVectorEnv: ...
def make_atari(
    game: str,
    num_envs: int | None = None,
    preset: PresetName | Preset = "machado2018",
    seed: int | None = None,
    *,
    render_mode: RenderMode | None = None,
    autoreset_mode: AutoresetMode | AutoresetName = AutoresetMode.NEXT_STEP,
    workers: int = 0,
    start_method: StartMethod | None = None,
    step_timeout: float = 60.0,
    on_worker_lost: OnWorkerLost = "raise",
    daemon: bool = True,
) -> AtariEnv | SerialVectorEnv | WorkerVectorEnv:
    """Make an Atari environment, or with ``num_envs`` a vector environment.

    An observation is one frame; the memory or the ``Recorder`` makes the stacks. The same seeds and actions give the
    same frames for every number of workers.

    Arguments:
        game: name in any spelling: ``Breakout``, ``space_invaders``, ``SpaceInvaders`` or ``ALE/Breakout-v5``. An old
            name, such as ``BreakoutNoFrameskip-v4``, needs a preset with the rules that it says.
        num_envs: number of environments; ``None`` makes one plain ``gymnasium.Env``, 1 a vector environment of one.
        preset: name of a recipe in ``PRESETS``, or a ``Preset``.
        seed: seed of the first reset that has none of its own. Each of several environments gets its own seed from
            it; no two runs with different seeds share one.
        render_mode: ``"rgb_array"``, or ``None`` for no rendering.
        autoreset_mode: what a vector environment does when an episode ends.
        workers: number of processes that step the environments; 0 steps them in this process, one after another.
        start_method: how the worker processes start; an argument of ``WorkerVectorEnv``.
        step_timeout: seconds after which a silent worker counts as hung; an argument of ``WorkerVectorEnv``.
        on_worker_lost: ``"raise"`` an error or ``"restart"`` a lost worker; an argument of ``WorkerVectorEnv``.
        daemon: ``False`` for wrappers that start processes; an argument of ``WorkerVectorEnv``.

    Raises:
        UnknownGameError: the game is unknown; the message names the nearest games.
        InvalidSettingsError: an unknown preset, render mode or autoreset mode; fewer than one environment; or more
            workers than environments; or an old name whose rules the preset lacks.

    Example::

        env = make_atari("Breakout", num_envs=8, preset="nature", seed=0, workers=2)
    """
    recipe = find_preset(preset)
    check_old_name(game, recipe)
    rom = find_rom(game)
    if num_envs is not None:
        num_envs = whole_number("num_envs", num_envs, 1, rule="it must be 1 or more; None makes one plain environment")
    workers = _check_workers(workers, num_envs)
    check_render_mode(render_mode)
    find_mode(autoreset_mode)
    check_worker_settings(start_method, step_timeout, on_worker_lost)
    truth_value("daemon", daemon)
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
        daemon=daemon,
    )


def _check_workers(workers: Any, num_envs: int | None) -> int:
    rule = f"it must be from 0 (this process) to the number of environments, {num_envs or 1}"
    workers = whole_number("workers", workers, 0, rule=rule)
    if num_envs is None and workers:
        raise InvalidSettingsError(
            f"workers is {workers!r} and num_envs is None: workers step vector environments; give num_envs too, for "
            "example num_envs=8, or leave workers out"
        )
    return whole_number("workers", workers, 0, num_envs or 0, rule=rule)

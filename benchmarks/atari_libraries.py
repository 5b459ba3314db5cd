"""Atari environments of the other libraries, at their fastest settings for the same work.

All of them: frame skip 4, the maximum of two raw frames, 84x84 grey by area mean, all 18 actions, sticky actions 0.25
by the emulator, no no-ops, unclipped rewards, no end at a lost life, no stack, at most five minutes per game.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ale_py
import cv2
import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

from bare_emulator import FRAME_SKIP, MAX_EPISODE_FRAMES, STICKY_PROBABILITY
from framestow.envs.atari.games import title


def gymnasium_env(rom: str) -> gymnasium.Env[Any, Any]:
    """Gymnasium's `AtariPreprocessing`, without environment checker.

    The inner environment returns grey pictures: `AtariPreprocessing` reads its own in any case, and those in colour,
    which would be the default, take the game longer to make.
    """
    return gymnasium.wrappers.AtariPreprocessing(_game(rom, obs_type="grayscale"), noop_max=0, frame_skip=FRAME_SKIP)


def gymnasium_sync(rom: str, num_envs: int) -> SyncVectorEnv:
    """Gymnasium's serial vector environment; returns its array without a copy."""
    return SyncVectorEnv([partial(gymnasium_env, rom)] * num_envs, copy=False)


def gymnasium_async(rom: str, num_envs: int, **settings: Any) -> AsyncVectorEnv:
    """Gymnasium's processes, one per environment; returns the shared array without a copy."""
    chosen = {"shared_memory": True, "copy": False, "context": "fork", **settings}
    return AsyncVectorEnv([partial(gymnasium_env, rom)] * num_envs, **chosen)


def stable_baselines3_subproc(rom: str, num_envs: int) -> Any:
    """Stable-Baselines3's processes, one per environment, with its `AtariWrapper`.

    The wrapper presses FIRE, and then the action after it, for a step each at every reset, and has no setting for it.
    """
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return SubprocVecEnv([partial(_stable_baselines3_env, rom)] * num_envs, start_method="fork")


def _stable_baselines3_env(rom: str) -> gymnasium.Env[Any, Any]:
    from stable_baselines3.common.atari_wrappers import AtariWrapper

    return AtariWrapper(_game(rom), noop_max=0, terminal_on_life_loss=False, clip_reward=False)


def ale_vector(rom: str, num_envs: int, num_threads: int) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """ALE's own vector environment, in C++ threads."""
    return ale_py.AtariVectorEnv(
        rom,
        num_envs,
        num_threads=num_threads,
        max_num_frames_per_episode=MAX_EPISODE_FRAMES,
        repeat_action_probability=STICKY_PROBABILITY,
        full_action_space=True,
        stack_num=1,
        frameskip=FRAME_SKIP,
        noop_max=0,
        reward_clipping=False,
        use_fire_reset=False,
    )


def envpool_vector(rom: str, num_envs: int, num_threads: int) -> Any:
    """EnvPool's vector environment, in C++ threads; plays at least one no-op at a reset."""
    import envpool

    return envpool.make_gymnasium(
        f"{title(rom)}-v5",
        num_envs=num_envs,
        num_threads=num_threads,
        max_episode_steps=MAX_EPISODE_FRAMES // FRAME_SKIP,
        stack_num=1,
        frame_skip=FRAME_SKIP,
        noop_max=1,
        use_fire_reset=False,
        reward_clip=False,
        full_action_space=True,
        repeat_action_probability=STICKY_PROBABILITY,
        use_inter_area_resize=True,
    )


def _game(rom: str, **settings: Any) -> gymnasium.Env[Any, Any]:
    cv2.setNumThreads(1)
    gymnasium.register_envs(ale_py)
    return gymnasium.make(
        f"ALE/{title(rom)}-v5",
        frameskip=1,
        repeat_action_probability=STICKY_PROBABILITY,
        full_action_space=True,
        max_num_frames_per_episode=MAX_EPISODE_FRAMES,
        disable_env_checker=True,
        **settings,
    )

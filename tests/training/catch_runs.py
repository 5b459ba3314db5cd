"""Runs on Catch that take seconds."""

from typing import Any

from framestow.envs import SerialVectorEnv
from framestow.training.recipes import RECIPES
from framestow.training.settings import Settings
from oracles.catch import Catch


def make_catch(settings: Settings) -> SerialVectorEnv:
    return SerialVectorEnv([Catch] * settings.num_envs, seed=settings.seed)


def catch_settings_of(recipe: str) -> Settings:
    """The settings of a recipe's agent, on a run as short as those of `catch_settings`."""
    fixed = {"preset", "num_envs", "workers", "threads", "warmup", "train_every", "target_every", "epsilon_steps"}
    agent = {name: value for name, value in RECIPES[recipe].values.items() if name not in fixed}
    return catch_settings(**{**agent, "recipe": recipe, "workers": 0, "batch_size": 16, "epsilon_start": 1.0})


def catch_settings(**changes: Any) -> Settings:
    """Few steps, but every part of the loop within them: warm-up, updates, target copies, the memory's wrap."""
    return Settings(
        **{
            "game": "Catch",
            **({} if "recipe" in changes else {"recipe": "dqn", "double": True}),  # laptop's Munchausen goes without
            "steps": 600,
            "num_envs": 3,
            "memory": 300,
            "stack": 2,
            "warmup": 100,
            "train_every": 8,
            "target_every": 20,
            "epsilon_steps": 500,
            "checkpoint_every": 1_000_000,
            "device": "cpu",
            "threads": 1,
            **changes,
        }
    )

"""Recipes: named values for the settings of a training run, each from a paper or a library.

``framestow train --recipe NAME`` takes its values as defaults; options that you give override them. One *step* is an
agent's action, four emulator frames. Sources that count in frames or in updates are converted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from framestow.checks import find_by_name

RecipeName: TypeAlias = Literal["laptop", "laptop-long", "dqn", "nature", "rainbow", "rainbow-lite", "desktop"]
"""The names of ``RECIPES``."""


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Values for settings that a recipe decides, by the names of ``framestow.training.Settings``.

    ``workers`` may be ``None``: the number of cores decides it.
    """

    name: str
    source: str  # papers that the values are from
    values: Mapping[str, Any]

    def values_for(self, cores: int) -> dict[str, Any]:
        """Return the values on a machine with this many cores: a worker process needs a core of its own.

        >>> [RECIPES["laptop"].values_for(cores)["workers"] for cores in (1, 2)]
        [0, 1]
        """
        workers = self.values["workers"]
        return {**self.values, "workers": min(cores - 1, 1) if workers is None else workers}


# Mnih et al. 2015, with Adam instead of RMSProp: what Stable-Baselines3's zoo and CleanRL train.
_DQN = {
    "preset": "baselines",
    "num_envs": 1,
    "workers": 0,
    "threads": 0,
    "batch_size": 32,
    "train_every": 4,
    "warmup": 80_000,
    "network": "nature",
    "distribution": "none",
    "atoms": 51,
    "support": 10.0,
    "double": False,
    "dueling": False,
    "noisy": False,
    "munchausen_after": None,
    "spectral_norm": False,
    "n_step": 1,
    "priority_exponent": 0.0,
    "priority_beta": 0.4,
    "priority_beta_steps": None,
    "optimizer": "adam",
    "learning_rate": 1e-4,
    "learning_rate_falls_after": None,
    "optimizer_epsilon": 1e-8,
    "max_grad_norm": None,
    "precision": "float32",
    "target_every": 250,
    "discount": 0.99,
    "epsilon_start": 1.0,
    "epsilon_end": 0.01,
    "epsilon_steps": 1_000_000,
}
_RAINBOW_LITE = {
    **_DQN,
    "preset": "dopamine",
    "warmup": 20_000,
    "distribution": "c51",
    "n_step": 3,
    "priority_exponent": 0.5,
    "priority_beta": 0.5,
    "learning_rate": 6.25e-5,
    "optimizer_epsilon": 1.5e-4,
    "target_every": 2_000,  # 8,000 steps
    "epsilon_steps": 250_000,
}
_LAPTOP = {
    **_RAINBOW_LITE,
    "preset": "baselines",
    "num_envs": 8,
    "workers": None,  # by the cores
    "threads": 1,  # a second thread costs more than it brings as soon as another process wants a core
    "train_every": 8,
    "warmup": 2_000,
    "network": "layernorm",
    "distribution": "hl-gauss",
    "munchausen_after": 50_000,
    "n_step": 5,
    "learning_rate": 2.5e-4,
    "learning_rate_falls_after": 150_000,
    "optimizer_epsilon": 3e-6,
    "precision": "bfloat16",
    "target_every": 250,  # 2,000 steps
    "epsilon_steps": 20_000,
}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "laptop",
            "our own for two CPU cores: half of the Nature network with layer normalisation (Gallici et al. 2024), the "
            "mean return by HL-Gauss (Farebrother et al. 2024), Dopamine's prioritized replay (Castro et al. 2018), "
            "Munchausen (Vieillard et al. 2020) once play is no longer random, and as many samples a step as "
            "Clark et al. 2024",
            _LAPTOP,
        ),
        Recipe(
            "laptop-long",
            "laptop for runs of more than 200,000 steps: Munchausen later, when the learning rate begins to fall",
            {**_LAPTOP, "munchausen_after": 150_000},
        ),
        Recipe("dqn", "CleanRL's dqn_atari and Stable-Baselines3's zoo: Mnih et al. 2015 with Adam", _DQN),
        Recipe(
            "nature",
            "Mnih et al. 2015, Human-level control through deep reinforcement learning. PyTorch's RMSProp adds epsilon "
            "outside the root, so it is the root of 0.01, over the batch size, since our loss is a mean",
            {
                **_DQN,
                "preset": "nature",
                "warmup": 50_000,
                "optimizer": "rmsprop",
                "learning_rate": 2.5e-4,
                "optimizer_epsilon": 0.1 / 32,
                "target_every": 2_500,  # 10,000 steps
                "epsilon_end": 0.1,
                "epsilon_steps": 250_000,  # a million frames
            },
        ),
        Recipe(
            "rainbow",
            "Hessel et al. 2018, Rainbow",
            {
                **_RAINBOW_LITE,
                "preset": "nature",
                "double": True,
                "dueling": True,
                "noisy": True,
                "priority_beta": 0.4,
                "priority_beta_steps": 50_000_000,
                "max_grad_norm": 10.0,
                "epsilon_start": 0.0,
                "epsilon_end": 0.0,
                "epsilon_steps": 0,
            },
        ),
        Recipe(
            "rainbow-lite",
            "Castro et al. 2018, Dopamine's Rainbow: C51, prioritized replay and 3-step returns only",
            _RAINBOW_LITE,
        ),
        Recipe(
            "desktop",
            "for one GPU: Clark et al. 2024, Beyond the Rainbow (BTR)",
            {
                **_RAINBOW_LITE,
                "preset": "machado2018",
                "num_envs": 64,
                "workers": 4,
                "batch_size": 256,
                "train_every": 64,
                "warmup": 200_000,
                "network": "impala",
                "distribution": "iqn",
                "atoms": 8,
                "dueling": True,
                "noisy": True,
                "munchausen_after": 0,
                "spectral_norm": True,
                "priority_exponent": 0.2,
                "priority_beta": 0.45,
                "learning_rate": 1e-4,
                "optimizer_epsilon": 0.005 / 256,
                "max_grad_norm": 10.0,
                "precision": "bfloat16",
                "target_every": 500,  # 32,000 steps
                "discount": 0.997,
                "epsilon_steps": 2_000_000,
            },
        ),
    )
}
DEFAULT_RECIPE: RecipeName = "laptop"


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name.

    Raises:
        InvalidSettingsError: no recipe has this name; the message gives the nearest name.

    >>> find_recipe("desktop").values["discount"]
    0.997
    """
    return find_by_name("recipe", name, RECIPES)

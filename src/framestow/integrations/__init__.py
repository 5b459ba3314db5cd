"""Drop-in buffers and wrappers for other libraries: one module or package per library."""

from framestow.interface import lazy_names

_PACKAGES = {
    "classic": "",
    "cleanrl": "torch",
    "gymnasium": "gymnasium",
    "stable_baselines3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
}  # with the library that the import of each needs

__getattr__, __dir__ = lazy_names(__name__, {}, packages=_PACKAGES)

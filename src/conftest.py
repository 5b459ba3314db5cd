"""Leaves out the examples of integrations whose library is not installed: `make jax` and `make libraries` run those."""

from importlib.util import find_spec

MODULES = {"jax": ["jax"], "tianshou": ["tianshou", "ring_observations/numbered_slots"]}

collect_ignore = [
    f"framestow/integrations/{module}.py"
    for library, modules in MODULES.items()
    if not find_spec(library)
    for module in modules
]

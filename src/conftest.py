"""Runs the examples of public names as a user does who pastes them: they import all that they use.

Leaves out the examples of integrations whose library is not installed: ``make jax`` and ``make libraries`` run those.
"""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

MODULES = {"jax": "jax.py", "tianshou": "integrations/tianshou"}

collect_ignore = [f"framestow/{module}" for library, module in MODULES.items() if not find_spec(library)]

API = Path(__file__).parents[1] / "docs" / "api"
PUBLIC = {
    name for page in API.glob("*.md") for name in re.findall(r"^::: [\w.]+\.(\w+)$", page.read_text(), re.MULTILINE)
}


@pytest.fixture(autouse=True)
def empty_namespace(request: pytest.FixtureRequest) -> None:
    """Take the names of its module from the example of a public name."""
    example = getattr(request.node, "dtest", None)
    if example is not None:
        names = example.globs
        inside = example.name.removeprefix(f"{names['__name__']}.")
        if inside.partition(".")[0] in PUBLIC:
            names.clear()
            names["__name__"] = "__main__"

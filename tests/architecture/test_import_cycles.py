"""No module imports itself through others, not even for types or within a function."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(source: str) -> set[str]:
    """Return what a module imports: names of modules, and of what is taken from them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def check_no_cycle(sources: dict[str, str]) -> int:
    """Raise ``CycleError`` for a cycle in the imports of modules, by name; return the number of imports."""
    imports: dict[str, set[str]] = {}
    for module, source in sources.items():
        taken_from = {name if name in sources else name.rpartition(".")[0] for name in imported_names(source)}
        imports[module] = (taken_from & sources.keys()) - {module}
    TopologicalSorter(imports).prepare()
    return sum(map(len, imports.values()))


def test_no_module_imports_itself_through_others():
    sources = {module_name(path): path.read_text() for path in SOURCES.rglob("*.py")}

    assert check_no_cycle(sources) > 500  # most modules import several


@pytest.mark.parametrize(
    "back", ["from a.one import f", "def g():\n    import a.one", "if TYPE_CHECKING:\n    from a import one"]
)
def test_a_cycle_is_found_also_through_a_package_a_function_or_a_type(back):
    with pytest.raises(CycleError):
        check_no_cycle({"a": "", "a.one": "from a.two import g", "a.two": "from b import h", "b": back})

"""No module reads a private name of another one."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
OF_NAMEDTUPLE = {"_replace", "_asdict", "_fields", "_make"}
# What subclasses of torch.Tensor need: the first is documented, the second says what an operation writes; os._exit
OF_OTHER_LIBRARIES = {"_make_wrapper_subclass", "_schema", "_exit"}


def private_reads(source: str) -> list[str]:
    """The private attributes that a module reads of objects whose class it does not define."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    of_self = {id(node) for node in attributes if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")}
    own = {node.attr for node in attributes if id(node) in of_self} | OF_NAMEDTUPLE | OF_OTHER_LIBRARIES
    own |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names = [node.attr for node in attributes if node.attr.startswith("_") and not node.attr.startswith("__")]
    return [name for name in names if name not in own]


def test_no_module_reads_a_private_name_of_another():
    found = {str(path.relative_to(SOURCES)): private_reads(path.read_text()) for path in SOURCES.rglob("*.py")}

    assert len(found) > 100
    assert {} == {path: names for path, names in found.items() if names}


def test_a_private_name_of_a_class_of_another_module_is_found():
    source = "class A:\n    def f(self, other, memory):\n        self._mine = other._mine + memory._steps"

    assert ["_steps"] == private_reads(source)

"""Every message of an error says, after a semicolon, what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import framestow.errors
from framestow.refusals import Refusal

SOURCE = Path(__file__).parents[2] / "src" / "framestow"  # a wheel has no C++

# A statement of the core that creates an error. Damaged bytes are left out: Python's DamagedDataError around such a
# message says what to do; and so are errors without a text of their own.
NATIVE_ERROR = re.compile(
    r"""\b(?:throw\s+(?!Damaged|FileNotOpened|std::bad_alloc|nb::python_error)([\w:]+)|(refuse(?:_type)?))
    \(((?:[^;"{}]|"(?:[^"\\]|\\.)*")*)\);""",
    re.VERBOSE,
)

# A rule or a way out; ``fault`` is one that the caller gives.
NATIVE_RULES = re.compile(r"must | pass |; |\bfault\b|is not stored|is not one of the")


class Message(NamedTuple):
    """A message as it stands in the source; each formatted value is its expression in braces."""

    place: str
    text: str


def test_every_message_says_what_to_do():
    lacking = [f"{message.place}: {message.text}" for message in messages() if not says_what_to_do(message.text)]

    assert [] == lacking, "\n".join(lacking)


def test_every_message_of_the_core_says_the_rule_or_what_to_do():
    messages = list(native_messages())
    lacking = [f"{message.place}: {message.text}" for message in messages if not NATIVE_RULES.search(message.text)]

    assert len(messages) > 80, "the pattern no longer finds the messages"
    assert [] == lacking, "\n".join(lacking)


# Numbers of these things are 1 in every other program, so that messages give them by ``interface.plural``.
COUNTED = re.compile(r"\{[^{}]+\} (?:environments|shards|actors)\b")
NEVER_ONE = {
    "{MAX_SHARDS} shards",
    "{len(found)} shards",  # of a memory of several
    "{reprlib.repr(list(infos))} of environments",
}


def test_no_message_says_1_environments():
    sources = (path.read_text(encoding="utf-8") for path in sorted(SOURCE.rglob("*.py")))
    found = {each for source in sources for each in COUNTED.findall(source)}

    assert found <= NEVER_ONE


@pytest.mark.parametrize(
    ("text", "says_it"),
    [
        ("stack is {stack}: it must be at least 1; give 4", True),
        ("axis is {axis!r}: it must be one of {axes}", True),
        ("mode is {mode!r}: it must be 'a' or 'b'", True),
        ("stack is {stack}: {rule}", True),
        ("stack is {stack}: it must be at least 1", False),
        ("stack is {stack}; ", False),
    ],
)
def test_a_way_out_follows_a_semicolon_or_the_rule_lists_what_is_right(text, says_it):
    assert says_it == says_what_to_do(text)


def says_what_to_do(text: str) -> bool:
    """Return whether the message has a way out, lists the right values, or ends with what another message says."""
    _, semicolon, way_out = text.rpartition(";")
    return bool(semicolon and way_out.strip()) or bool(re.search(r"must be (one of|.* or )|\}\)?$", text))


def messages() -> Iterator[Message]:
    """Yield the messages of all errors that framestow creates and a user can meet."""
    trees = {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }
    ours = names_of_errors(trees)
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            if node.func.id in ours:
                for text in texts(node.args[0]):
                    yield Message(f"{module}:{node.lineno}", text)
    for refusal in Refusal:
        yield Message(f"refusals.py: {refusal.name}", refusal.value)


def native_messages() -> Iterator[Message]:
    """Yield the errors of the core; ``text`` is the C++ expression that makes the message."""
    for path in sorted((SOURCE / "_core").rglob("*.[ch]pp")):
        source = path.read_text(encoding="utf-8")
        for found in NATIVE_ERROR.finditer(source):
            line = source.count("\n", 0, found.start()) + 1
            place = f"{path.relative_to(SOURCE).as_posix()}:{line}"
            yield Message(place, " ".join(found[3].split()))


def names_of_errors(trees: dict[str, ast.Module]) -> set[str]:
    """Return the names of framestow's errors and of the classes that derive from them."""
    names = {name for name, value in vars(framestow.errors).items() if is_error(value)}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id in names for b in node.bases):
                names.add(node.name)
    return names


def is_error(value: object) -> bool:
    """Return whether ``value`` is one of framestow's classes of errors."""
    return isinstance(value, type) and issubclass(value, framestow.errors.FramestowError)


def texts(node: ast.expr) -> list[str]:
    """Return the possible texts of an expression: several for a conditional one."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(part for value in node.values for part in texts(value))]
    if isinstance(node, ast.FormattedValue):
        return [f"{{{ast.unparse(node.value)}}}"]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [left + right for left in texts(node.left) for right in texts(node.right)]
    if isinstance(node, ast.IfExp):
        return texts(node.body) + texts(node.orelse)
    return [f"{{{ast.unparse(node)}}}"]

"""Every message of an error: it has the value that was wrong, and after a semicolon what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import framestow.errors

SOURCE = Path(__file__).parents[2] / "src" / "framestow"  # a wheel has no C++

# These errors name a state, such as "the buffer is empty". A state has no value.
OF_A_STATE = {"NothingToSampleError", "ClosedError", "ClosedMemoryError", "StepPendingError", "NoStepPendingError"}

# Other messages that name a state, by their beginning.
STATES = {
    "--wandb needs the library wandb",
    "a FramestowStorage cannot be sent to another process",
    "env is None",
    "env_fns is empty",
    "environments have no running episode",
    "frames are empty",
    "frames are scalars",
    "game is missing",
    "no shard answers",
    "observations are unpacked into a new array",
    "one sampler is two parts of the mixture",
    "sampler is a Uniform",
    "set_batch was called on a part of a vector buffer",
    "the draw was unpacked or stopped before",
    "the environment renders nothing",
    "the memory has no directory",
    "the memory has no transition",
    "the mixture has no parts",
    "the sampler was given to another memory",
    "there are no pictures",
    "there are no runs",
}

# Whole messages from elsewhere, whose own parts are checked where they are built, or have no semicolon.
PASSED_ON = {
    "--{_flag(name)} {rest}",
    "{self._replacer.broken}",
    "{refusals[0]}",
    "{_shorten(printed.getvalue(), command)}",
    "{path}: {error}",
    "{str(error)}",
    "{text}",
    "{where}: {error}",
    "{why}",
}

# These messages become parts of others, which have the value and the way out.
INNER = {
    ("frames/observation_spec.py", "a part of an observation is one array of numbers of a fixed shape"),
    ("replay/store/verify.py", "its content is inconsistent ({error})"),
}

# The ValueErrors of these modules say how stored bytes are damaged; the DamagedDataError around them says what to do.
INNER_VALUE_ERRORS = {
    "agents/dqn.py",
    "offline/dqn_checkpoint.py",
    "offline/minari_files.py",
    "replay/action_spec.py",
    "replay/memory_settings.py",
    "replay/samplers/emphasize_recent.py",
    "replay/samplers/prioritized.py",
    "replay/store/consistency.py",
    "replay/store/format.py",
    "replay/store/reader.py",
    "training/checkpoint.py",
    "training/packed_state.py",
    "training/run.py",
    "training/training_run.py",
}

# A statement of the core that creates an error. Damaged bytes are left out: Python's DamagedDataError around such a
# message says what to do; and so are errors without a text of their own.
NATIVE_ERROR = re.compile(
    r"""\b(?:throw\s+(?!Damaged|FileNotOpened|std::bad_alloc|nb::python_error)([\w:]+)|(refuse))
    \(((?:[^;"{}]|"(?:[^"\\]|\\.)*")*)\);""",
    re.VERBOSE,
)

# A rule or a way out; ``fault`` is one that the caller gives.
NATIVE_RULES = re.compile("must | pass |; | fault|is not stored|is not one of the")

# Left out: AssertionError for our own faults, and errors of Python's protocols, such as StopIteration.
BUILTIN = {"FileNotFoundError", "ImportError", "IndexError", "OSError", "TypeError", "ValueError"}


class Message(NamedTuple):
    """A message as it stands in the source; each formatted value is its expression in braces."""

    place: str
    error: str
    text: str


def test_every_message_has_the_value_that_was_wrong():
    lacking = [
        f"{message.place}: {message.text}"
        for message in messages()
        if "{" not in message.text and message.error not in OF_A_STATE and not message.text.startswith(tuple(STATES))
    ]

    assert [] == lacking, "\n".join(lacking)


def test_every_message_says_what_to_do():
    lacking = [f"{message.place}: {message.text}" for message in messages() if not says_what_to_do(message.text)]

    assert [] == lacking, "\n".join(lacking)


def test_the_exceptions_are_still_in_the_source():
    texts = {message.text for message in messages()}

    assert PASSED_ON <= texts
    assert [] == [state for state in sorted(STATES) if not any(text.startswith(state) for text in texts)]


def test_every_message_of_the_core_says_the_rule_or_what_to_do():
    messages = list(native_messages())
    lacking = [f"{message.place}: {message.text}" for message in messages if not NATIVE_RULES.search(message.text)]

    assert len(messages) > 80, "the pattern no longer finds the messages"
    assert [] == lacking, "\n".join(lacking)


# Numbers of these things are 1 in every other program, so that messages give them by ``one_line.plural``.
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
    """Return whether the message has a way out, lists the right values, or is one of ``PASSED_ON``."""
    _, semicolon, way_out = text.rpartition(";")
    has_way_out = bool(semicolon and way_out.strip())
    # Callers of framestow.argument_checks give the rule: the range of right numbers.
    return has_way_out or text in PASSED_ON or bool(re.search(r"must be (one of|.* or )|: \{rule\}$", text))


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
            error = node.func.id
            is_inner = error == "ValueError" and module in INNER_VALUE_ERRORS
            if error in ours | BUILTIN | {"error_class"} and not is_inner:
                for text in texts(node.args[0]):
                    if (module, text) not in INNER:
                        yield Message(f"{module}:{node.lineno}", error, text)


def native_messages() -> Iterator[Message]:
    """Yield the errors of the core; ``text`` is the C++ expression that makes the message."""
    for path in sorted((SOURCE / "_core").rglob("*.[ch]pp")):
        source = path.read_text(encoding="utf-8")
        for found in NATIVE_ERROR.finditer(source):
            line = source.count("\n", 0, found.start()) + 1
            place = f"{path.relative_to(SOURCE).as_posix()}:{line}"
            yield Message(place, found[1] or found[2], " ".join(found[3].split()))


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

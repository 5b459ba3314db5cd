"""What a user sees: the names, and what importing them brings along."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import framestow
from framestow import distributed, torch
from framestow.integrations.gymnasium import LazyFrames
from framestow.interface import cached_property

SOURCE = Path(__file__).parents[2] / "src" / "framestow"


def public_names_of(module: object) -> set[str]:
    """What completion offers after a module, a class or an object and a dot: names without an underscore."""
    return {name for name in dir(module) if not name.startswith("_")}


def test_dir_has_the_public_names_and_the_packages_whose_library_is_installed_and_no_other():
    packages = {"distributed", "integrations", "offline", "training"}
    packages |= {library for library in ("torch", "jax") if find_spec(library)}

    assert all(hasattr(framestow, name) for name in framestow.__all__)
    assert {*framestow.__all__, *packages} == public_names_of(framestow)
    assert {"__version__", "__doc__", "__path__"} <= set(dir(framestow))


def public_objects() -> dict[str, object]:
    """Return an object of each public class that a program completes on, by name."""
    frames = np.zeros((1, 2, 2), np.uint8)
    memory = framestow.ReplayMemory(100, framestow.FrameSpec((2, 2)), 4, stack=2)
    memory.begin(frames)
    memory.append([0], [0.0], [False], [True], frames)
    replay = distributed.ShardedReplay(
        100, framestow.FrameSpec((2, 2)), 4, num_envs=2, start=distributed.start_local_shards
    )
    objects = [
        memory,
        memory.report(),
        memory.report().observations,
        memory.sample(1),
        memory.sample_sequences(1, 1),
        memory.steps_from([0]),
        memory.batches(1),
        memory.draw_ahead(1),
        memory.draw_sequences_ahead(1, 1),
        next(memory.episodes()),
        framestow.FrameSpec((2, 2)),
        framestow.Uniform(),
        framestow.Prioritized(),
        framestow.EmphasizeRecent(),
        framestow.ByAge(10),
        framestow.Mixture((framestow.Uniform(), 1.0)),
        framestow.Draw(np.zeros(1, np.int64), np.ones(1, np.float32)),
        torch.BatchLoader(memory, 1),
        torch.SequenceLoader(memory, 1, 1),
        LazyFrames([frames[0], frames[0]]),
        replay,
        replay.writer([0]),
    ]
    return {type(each).__name__: each for each in objects}


def test_every_name_that_completion_offers_of_an_object_is_documented():
    undocumented = []
    for kind, each in public_objects().items():
        texts = " ".join(part.__doc__ or "" for part in type(each).__mro__[:-1])
        for name in public_names_of(each):
            member = inspect.getattr_static(type(each), name, None)
            is_call = inspect.isroutine(member) or isinstance(member, (property, cached_property))
            has_own_text = is_call and bool(member.__doc__)
            if not has_own_text and not re.search(rf"\b{name}\b", texts):
                undocumented.append(f"{kind}.{name}")
    assert [] == undocumented


LIBRARIES = {
    "classic": "numpy",
    "cleanrl": "torch",
    "gymnasium": "gymnasium",
    "stable_baselines3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
}  # what the import of each drop-in needs
INSTALLED = {name for name, library in LIBRARIES.items() if find_spec(library)}
FACES = ["distributed", "envs", "offline", "torch", "training", *(["jax"] if find_spec("jax") else [])]


@pytest.mark.parametrize("face", [*FACES, *(f"integrations.{library}" for library in sorted(INSTALLED))])
def test_dir_of_a_package_has_what_it_announces_and_no_other(face):
    package = importlib.import_module(f"framestow.{face}")

    assert set(package.__all__) == public_names_of(package)


def test_dir_of_the_integrations_has_those_whose_library_is_installed_and_each_is_imported_on_first_use():
    assert INSTALLED == public_names_of(framestow.integrations)
    code = "import framestow; print(framestow.integrations.classic.ReplayBuffer.__name__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ReplayBuffer" == result.stdout.strip()


def test_help_of_framestow_needs_no_extra():
    code = (
        "import sys\n"
        "for name in ('torch', 'jax', 'gymnasium', 'ale_py', 'tianshou', 'torchrl', 'stable_baselines3', 'ray'):\n"
        "    sys.modules[name] = None\n"
        "import framestow, pydoc\n"
        "print('ReplayMemory' in pydoc.render_doc(framestow), 'classic' in pydoc.render_doc(framestow.integrations))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert ("True True", "") == (result.stdout.strip(), result.stderr)


def test_importing_framestow_imports_neither_numpy_nor_an_extra():
    code = (
        "import sys, framestow; late = {'numpy', 'torch', 'gymnasium', 'ale_py', 'cv2', 'rich', 'tyro', 'tensorboard'};"
        "print(sorted(late & set(sys.modules)))"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == result.stdout.strip()


def test_no_module_is_a_bag():
    bags = {"utils", "helpers", "common", "base", "misc", "manager", "types"}

    assert {path.name for path in SOURCE.rglob("*.py") if path.stem in bags} == set()


def test_the_face_for_pytorch_is_no_pytorch_and_brings_it():
    code = (
        "import sys; from framestow import torch as face; import torch;"
        "print(face is not torch, face.torch is torch, [name for name in face.__all__ if not hasattr(face, name)])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "True True []" == result.stdout.strip()


@pytest.mark.parametrize(
    ("module", "library"), [("torch", "torch"), ("jax", "jax"), ("integrations.gymnasium", "gymnasium")]
)
def test_a_module_without_its_library_says_what_to_install(module, library):
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from framestow.errors import MissingExtraError\n"
        f"try:\n    import framestow.{module}\n"
        "except MissingExtraError as error:\n    print(error)"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert (
        f"framestow.{module} needs {library}: it is part of the extra '{library}', which is not "
        f'installed; run: pip install "framestow[{library}]"'
    ) == result.stdout.strip()


@pytest.mark.parametrize(
    ("module", "library"),
    [("stable_baselines3", "stable-baselines3"), ("tianshou", "tianshou"), ("torchrl", "torchrl")],
)
def test_a_drop_in_without_its_library_says_what_to_install(module, library):
    code = (
        f"import importlib.metadata as metadata, sys; sys.modules[{module!r}] = None\n"
        "def version(name): raise metadata.PackageNotFoundError(name)\n"
        "metadata.version = version\n"
        "from framestow.errors import MissingExtraError\n"
        f"try:\n    import framestow.integrations.{module}\n"
        "except MissingExtraError as error:\n    print(error)"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert f'{library} is not installed: its drop-in needs it; run: pip install "framestow[{library}]"' == (
        result.stdout.strip()
    )


@pytest.mark.parametrize("package", ["envs", "offline", "training"])
def test_every_name_that_a_package_announces_is_there_when_asked_for(package):
    code = (
        f"import framestow; package = framestow.{package};"
        "print([name for name in package.__all__ if not hasattr(package, name)])"
    )

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == result.stdout.strip()


@pytest.mark.parametrize(
    ("face", "name", "internals"),
    [
        (
            "framestow",
            "ReplayMemory",
            {"settings", "check", "checked_extras", "transitions"},
        ),
        ("framestow.integrations.torchrl", "FramestowStorage", {"saved_state", "restore_state"}),
        ("framestow.offline", "Transferred", {"leave_out"}),
    ],
)
def test_what_only_framestow_calls_is_no_public_name(face, name, internals):
    names = public_names_of(getattr(importlib.import_module(face), name))

    assert set() == names & internals

"""What a user sees: the names, and what importing them brings along."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import framestow

SOURCE = Path(__file__).parents[2] / "src" / "framestow"


def test_every_public_name_is_there_and_none_is_there_unannounced():
    announced = set(framestow.__all__)
    floors = {path.name for path in SOURCE.iterdir() if path.is_dir()} | {
        path.stem for path in SOURCE.glob("*.py") if path.stem != "__init__"
    }
    visible = {
        name
        for name, value in vars(framestow).items()
        if not name.startswith("_") and getattr(value, "__name__", "").split(".")[0] != "importlib"
    } - {"annotations", "TYPE_CHECKING", "Any", "import_module"}

    assert all(hasattr(framestow, name) for name in announced)
    assert visible - floors <= announced


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


def test_what_loaders_and_tests_call_of_a_memory_is_no_public_name():
    names = {name for name in dir(framestow.ReplayMemory) if not name.startswith("_")}

    assert set() == names & {"settings", "check", "draw_ahead", "draw_sequences_ahead", "checked_extras", "transitions"}

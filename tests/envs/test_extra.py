"""Without the extra, framestow.envs names the missing library and the install command."""

from __future__ import annotations

import subprocess
import sys

import pytest

import framestow


@pytest.mark.parametrize(
    ("missing", "name", "extra"),
    [
        ("ale_py", "make_atari", "atari"),
        ("cv2", "make_atari", "atari"),
        ("gymnasium", "make_atari", "atari"),
        ("gymnasium", "Recorder", "gymnasium"),
    ],
)
def test_a_missing_library_of_the_extra_is_named_with_the_install_command(missing, name, extra):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from framestow.errors import MissingExtraError\n"
        f"try:\n    from framestow.envs import {name}\nexcept MissingExtraError as error:\n    print(error)"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert printed.startswith(f"framestow.envs needs {missing}: ")
    assert printed.endswith(f'run: pip install "framestow[{extra}]"\n')


def test_recorder_and_frame_stacks_need_gymnasium_alone():
    code = (
        "import sys; sys.modules['ale_py'] = sys.modules['cv2'] = sys.modules['torch'] = None\n"
        "from framestow.envs import Recorder\n"
        "from framestow.integrations.gymnasium import FrameStack, VectorFrameStack\n"
        "print(Recorder.__name__, FrameStack.__name__, VectorFrameStack.__name__)"
    )

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert "Recorder FrameStack VectorFrameStack\n" == printed


def test_an_unknown_name_raises_the_usual_attribute_error():
    with pytest.raises(AttributeError, match=r"^module 'framestow\.envs' has no attribute 'make_atary'$"):
        framestow.envs.make_atary  # noqa: B018
    assert all(hasattr(framestow.envs, name) for name in framestow.envs.__all__)

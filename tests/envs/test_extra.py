"""What a user without the extra is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

import framestow


@pytest.mark.parametrize("missing", ["ale_py", "cv2", "gymnasium"])
def test_a_missing_part_of_the_extra_gives_the_line_that_installs_it(missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from framestow.errors import MissingExtraError\n"
        "try:\n    from framestow.envs import make_atari\nexcept MissingExtraError as error:\n    print(error)"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert told.startswith(f"framestow.envs needs {missing}: ")
    assert told.endswith('run: pip install "framestow[atari]"\n')


def test_recorder_and_frame_stacks_need_gymnasium_alone():
    code = (
        "import sys; sys.modules['ale_py'] = sys.modules['cv2'] = sys.modules['torch'] = None\n"
        "from framestow.envs import Recorder\n"
        "from framestow.integrations.gymnasium import FrameStack, VectorFrameStack\n"
        "print(Recorder.__name__, FrameStack.__name__, VectorFrameStack.__name__)"
    )

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout

    assert "Recorder FrameStack VectorFrameStack\n" == told


def test_a_name_that_is_not_there_is_told_as_of_any_module():
    with pytest.raises(AttributeError, match=r"^module 'framestow\.envs' has no attribute 'make_atary'$"):
        framestow.envs.make_atary  # noqa: B018
    assert all(hasattr(framestow.envs, name) for name in framestow.envs.__all__)

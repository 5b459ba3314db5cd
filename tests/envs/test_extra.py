"""What a user without the extra is told."""

from __future__ import annotations

import subprocess
import sys

import pytest


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

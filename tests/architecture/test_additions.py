"""What is added in one place and forgotten in another is named here (CONTRIBUTING.md, "How to add")."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import framestow
from framestow import Sampler
from framestow.benchmarking.libraries import LIBRARIES
from framestow.envs import make_atari
from framestow.offline.layouts import LAYOUTS
from framestow.replay.samplers.notified_sampler import SAMPLERS

REPO = Path(__file__).parents[2]
SOURCES = REPO / "src" / "framestow"


def page(name: str) -> str:
    return (REPO / "docs" / name).read_text(encoding="utf-8")


def test_every_public_sampler_can_be_restored_from_a_save():
    public = {name: getattr(framestow, name) for name in framestow.__all__}
    samplers = {name for name, kind in public.items() if isinstance(kind, type) and Sampler in kind.__mro__[1:]}

    assert samplers == SAMPLERS.keys()


def test_the_command_builds_every_listener():
    tree = ast.parse((SOURCES / "training/listeners.py").read_text(encoding="utf-8"))
    listeners = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(part, ast.FunctionDef) and part.name == "take" for part in node.body)
    }
    command = (SOURCES / "cli/training_session.py").read_text(encoding="utf-8")

    assert len(listeners) >= 6
    assert [] == [name for name in sorted(listeners) if f" {name}(" not in command]


def test_every_layout_of_logged_data_stands_on_its_page():
    shown = page("libraries/logged-data.md").lower()

    assert [] == [layout for layout in LAYOUTS if layout not in shown]


def test_every_library_of_the_benchmarks_is_installed_for_them():
    required = (REPO / "benchmarks/requirements.txt").read_text(encoding="utf-8").lower().replace("_", "-")

    wanted = [library.requirement.partition("[")[0] for library in LIBRARIES.values() if library.requirement]
    assert [] == [name for name in wanted if not re.search(rf"^{name}\b", required, re.MULTILINE)]


def test_every_column_of_an_atari_info_stands_on_the_page_of_environments():
    env = make_atari("Breakout", 1)
    columns = set(env.reset(seed=0)[1])
    env.action_space.seed(0)
    while "episode" not in columns:  # until a game has ended
        columns |= env.step(env.action_space.sample())[-1].keys()

    shown = page("environments.md").replace("infos[", "info[")
    columns = {key for key in columns if not key.startswith("_")}  # Gymnasium's masks
    assert columns >= {"lives", "episode"}
    assert [] == [key for key in sorted(columns) if f'info["{key}"]' not in shown]
